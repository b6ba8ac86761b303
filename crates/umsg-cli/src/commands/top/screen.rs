//! The terminal session: handles events, and decides when the screen is drawn.

use std::io;
use std::panic;
use std::thread;
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{
    DisableMouseCapture, EnableMouseCapture, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers,
    poll, read,
};
use ratatui::crossterm::execute;
use ratatui::crossterm::style::force_color_output;
use rustix::process::{Signal, kill_current_process_group};

use super::app::{App, Page};
use super::rates::Refreshes;
use super::style::{Colours, Look};
use super::work::Worker;
use super::{Top, draw};
use crate::cli::Cli;
use crate::commands::sample::gather::Gatherer;
use crate::ending::Ending;
use crate::failure::Result;
use crate::place;

/// The longest wait for an event. After each wait, the session checks for a signal and for the result of a task.
const LONGEST: Duration = Duration::from_millis(200);
const SHORTEST: Duration = Duration::from_millis(20);
/// The maximum number of messages whose priorities or types are counted.
const MOST: usize = 10_000;

pub fn run(top: &Top, cli: &Cli) -> Result {
    let mut gatherer = top.gatherer(cli);
    let mut refreshes = Refreshes::default();
    let view = refreshes.next(gatherer.sample()?);
    let order = (top.sort, top.reverse, top.tree);
    let mut app = App::new(view, Look::of_environment(top.colors), order);
    app.directory = place::path(place::existing(cli)?.path());
    app.interval = top.interval();
    app.read_only = top.read_only;
    app.arrange();
    // The option --colors overrides NO_COLOR, which crossterm would obey.
    force_color_output(app.look.colours != Colours::None);
    // The signals are blocked before other threads start, so that these threads inherit the mask.
    let ending = Ending::prepare()?;
    let dir = cli.dir.clone();
    let worker = Worker::start(move || place::existing_at(dir.as_deref()));
    let mut session = Session {
        app,
        gatherer,
        refreshes,
        worker,
        left: top.count,
        due: Instant::now(),
    };
    thread::scope(|scope| {
        scope.spawn(|| ending.supervise());
        let outcome = with_terminal(|terminal| session.go_on(terminal, &ending));
        ending.finish();
        Ok(outcome?)
    })
}

struct Session<'a> {
    app: App,
    gatherer: Gatherer<'a>,
    refreshes: Refreshes,
    worker: Worker,
    /// The number of refreshes until the command ends; None without a limit.
    left: Option<u32>,
    /// The time of the next refresh.
    due: Instant,
}

impl Session<'_> {
    fn go_on(&mut self, terminal: &mut DefaultTerminal, ending: &Ending) -> io::Result<()> {
        self.due = Instant::now() + self.app.interval;
        loop {
            let size = terminal.size()?;
            self.app.size = (size.width, size.height);
            terminal.draw(|frame| draw::screen(&self.app, frame))?;
            if self.app.is_over || self.left == Some(0) || ending.is_asked() {
                return Ok(());
            }
            self.wait(terminal)?;
            while let Some((done, took)) = self.worker.done() {
                self.app.take(done, took);
            }
            let is_due = Instant::now() >= self.due && !self.app.is_paused;
            if is_due || self.app.is_stale {
                self.refresh(is_due);
            }
            for task in std::mem::take(&mut self.app.tasks) {
                self.worker.ask(task);
            }
        }
    }

    /// Waits for events until the next refresh, and handles the events.
    fn wait(&mut self, terminal: &mut DefaultTerminal) -> io::Result<()> {
        let longest = match self.worker.is_busy() {
            true => SHORTEST,
            false => LONGEST,
        };
        let left = self.due.saturating_duration_since(Instant::now());
        let mut time = match self.app.is_paused {
            true => longest,
            false => left.min(longest),
        };
        // All events that have arrived are handled before the screen is drawn again.
        while poll(time)? {
            match read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => match is_suspend(&key) {
                    true => suspend(terminal)?,
                    false => self.app.key(key),
                },
                Event::Mouse(event) => self.app.mouse(event),
                Event::Resize(..) => {
                    let size = terminal.size()?;
                    self.app.size = (size.width, size.height);
                    self.app.arrange();
                }
                _ => {}
            }
            if self.app.is_over {
                break;
            }
            time = Duration::ZERO;
        }
        Ok(())
    }

    /// Reads the state of all queues. `is_due` is true for a regular refresh, which --count counts, and false for a refresh in between.
    fn refresh(&mut self, is_due: bool) {
        self.app.is_stale = false;
        self.due = Instant::now() + self.app.interval;
        match self.gatherer.sample() {
            Ok(snapshot) => {
                self.app.failure = None;
                let view = self.refreshes.next(snapshot);
                self.app.refresh(view);
                self.count_ranks();
            }
            // The error is shown, and the command continues, because the namespace may be created again.
            Err(failure) => self.app.failure = Some(failure.line()),
        }
        if is_due && let Some(left) = &mut self.left {
            *left -= 1;
        }
    }

    fn count_ranks(&mut self) {
        let ranks = match &self.app.page {
            Page::Detail(detail) => self
                .app
                .row(&detail.key)
                .and_then(|row| self.gatherer.ranks(&row.figures, MOST)),
            _ => return,
        };
        if let Page::Detail(detail) = &mut self.app.page {
            detail.ranks = ranks;
        }
    }
}

fn with_terminal(go_on: impl FnOnce(&mut DefaultTerminal) -> io::Result<()>) -> io::Result<()> {
    // The panic hook of ratatui restores the terminal, but not the mouse mode, which this command has set.
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let _ = execute!(io::stdout(), DisableMouseCapture);
        hook(info);
    }));
    let mut terminal = ratatui::try_init()?;
    let outcome = execute!(io::stdout(), EnableMouseCapture).and_then(|()| go_on(&mut terminal));
    let restored = execute!(io::stdout(), DisableMouseCapture).and(ratatui::try_restore());
    outcome.and(restored)
}

fn is_suspend(key: &KeyEvent) -> bool {
    key.code == KeyCode::Char('z') && key.modifiers.contains(KeyModifiers::CONTROL)
}

/// Stops the whole process group, as ^Z does for a program without a screen. The group includes processes that wait for this process, such as
/// sudo(8).
fn suspend(terminal: &mut DefaultTerminal) -> io::Result<()> {
    execute!(io::stdout(), DisableMouseCapture)?;
    ratatui::try_restore()?;
    kill_current_process_group(Signal::TSTP)?;
    // The process has been continued.
    *terminal = ratatui::try_init()?;
    execute!(io::stdout(), EnableMouseCapture)?;
    terminal.clear()
}
