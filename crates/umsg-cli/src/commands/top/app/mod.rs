//! The state of the screen, and the action of each key. This module does not access the terminal.

use std::cell::Cell;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::time::{Duration, Instant, SystemTime};

use ratatui::crossterm::event::{
    KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};
use umsg::diagnosis::Diagnosis;

use super::columns::Column;
use super::draw;
use super::rates::{Row, View};
use super::rows::{Key, Line, Order};
use super::style::Look;
use super::work::{Done, Message, Task};
use crate::address::{Address, Label, Notation, RING, Subject};
use crate::commands::sample::figures::Kind;
use crate::names::Name;
use crate::output::owner::Owners;
use crate::output::text;

/// The shortest time between two diagnoses of a queue, and their largest share of the time: one part in this many.
const EXAMINE: Duration = Duration::from_secs(1);
const SHARE: u32 = 20;

/// The state of the screen.
pub struct App {
    pub view: View,
    pub directory: String,
    pub interval: Duration,
    pub read_only: bool,
    pub look: Look,
    pub order: Order,
    pub lines: Vec<Line>,
    pub selected: usize,
    /// The first line of the list on the screen.
    pub offset: usize,
    /// The number of columns that are out of sight at the left.
    pub shifted: usize,
    pub page: Page,
    pub input: Option<Input>,
    pub question: Option<Question>,
    pub has_help: bool,
    /// The result of the last action, or the last failure.
    pub told: Option<Result<String, String>>,
    /// The reason why the last refresh failed.
    pub failure: Option<String>,
    pub is_paused: bool,
    pub is_over: bool,
    /// The work that is asked for.
    pub tasks: Vec<Task>,
    /// True if the list must be read again at once.
    pub is_stale: bool,
    /// The width and the height of the screen.
    pub size: (u16, u16),
    owners: Owners,
}

/// The page above the list.
pub enum Page {
    List,
    Detail(Detail),
    Messages(Messages),
}

/// The page with the details of one queue.
pub struct Detail {
    pub key: Key,
    pub subject: Subject,
    pub diagnosis: Option<Result<Box<Diagnosis>, String>>,
    pub ranks: Option<Vec<(i64, u64)>>,
    pub scroll: usize,
    /// The largest useful scroll, set when the page was last drawn.
    pub most: Cell<usize>,
    /// The time of the next diagnosis. None while one is going on.
    due: Option<Instant>,
}

/// The messages of one queue.
pub struct Messages {
    pub subject: Subject,
    /// None while the messages are being read.
    pub found: Option<Result<Vec<Message>, String>>,
    /// The number of messages that the queue had then.
    pub all: u64,
    pub at: SystemTime,
    pub search: String,
    pub selected: usize,
    pub offset: usize,
    /// The first visible line of the message that is shown as a whole. None if the list of messages is shown.
    pub whole: Option<usize>,
    /// The largest useful value of `whole`, set when the page was last drawn.
    pub most: Cell<usize>,
    /// The page to which "back" leads; None for the list.
    below: Option<Detail>,
}

/// A line that is being typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    pub what: What,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Filter,
    Search,
}

/// A change that waits for a confirmation.
#[derive(Clone, Debug)]
pub struct Question {
    pub text: String,
    task: Task,
}

/// The lines above the list, and below it.
pub const ABOVE: u16 = 3;
pub const BELOW: u16 = 1;

impl App {
    pub fn new(view: View, look: Look, order: (Column, bool, bool)) -> App {
        let (sort, reverse, tree) = order;
        App {
            view,
            directory: String::new(),
            interval: Duration::from_secs(1),
            read_only: false,
            look,
            order: Order {
                sort,
                reverse,
                tree,
                filter: String::new(),
                folded: HashSet::new(),
            },
            lines: Vec::new(),
            selected: 0,
            offset: 0,
            shifted: 0,
            page: Page::List,
            input: None,
            question: None,
            has_help: false,
            told: None,
            failure: None,
            is_paused: false,
            is_over: false,
            tasks: Vec::new(),
            is_stale: false,
            size: (80, 24),
            owners: Owners::new(),
        }
    }

    /// Takes the figures of a new refresh.
    pub fn refresh(&mut self, view: View) {
        self.view = view;
        self.arrange();
        if let Page::Detail(detail) = &mut self.page
            && detail.due.is_some_and(|due| due <= Instant::now())
        {
            detail.due = None;
            self.tasks.push(Task::Examine(detail.subject.clone()));
        }
    }

    /// Sorts the list. The selection stays on its queue.
    pub fn arrange(&mut self) {
        let key = self.lines.get(self.selected).map(|line| line.key.clone());
        self.lines = self.order.lines(&self.view, &self.owners);
        if let Some(key) = key
            && let Some(at) = self.lines.iter().position(|line| line.key == key)
        {
            self.selected = at;
        }
        self.select(self.selected);
    }

    /// Returns the number of lines of the list that the screen has room for.
    pub fn room(&self) -> usize {
        usize::from(self.size.1.saturating_sub(ABOVE + BELOW)).max(1)
    }

    fn select(&mut self, at: usize) {
        self.selected = at.min(self.lines.len().saturating_sub(1));
        let room = self.room();
        let last = self.lines.len().saturating_sub(room);
        self.offset = self.offset.min(last).min(self.selected);
        self.offset = self.offset.max((self.selected + 1).saturating_sub(room));
    }

    /// Returns the queue of the page, or of the selection.
    fn subject(&self) -> Option<(Key, Subject)> {
        match &self.page {
            Page::Detail(detail) => Some((detail.key.clone(), detail.subject.clone())),
            Page::Messages(messages) => {
                let key = self.key_of(&messages.subject)?;
                Some((key, messages.subject.clone()))
            }
            Page::List => {
                let key = self.lines.get(self.selected)?.key.clone();
                let subject = self.subject_of(&key)?;
                Some((key, subject))
            }
        }
    }

    fn key_of(&self, subject: &Subject) -> Option<Key> {
        let mut keys = self.lines.iter().map(|line| &line.key);
        let found = keys.find(|key| self.subject_of(key).as_ref() == Some(subject));
        found.cloned()
    }

    /// Returns the row of a queue with figures.
    pub fn row(&self, key: &Key) -> Option<&Row> {
        let Key::Queue(kind, name) = key else {
            return None;
        };
        let mut rows = self.view.rows.iter();
        rows.find(|row| row.figures.kind == *kind && *row.figures.queue == **name)
    }

    fn subject_of(&self, key: &Key) -> Option<Subject> {
        let (kind, name) = match key {
            // The bytes of a name that is not UTF-8 are not known here.
            Key::Refused(_, name) if name.contains(char::REPLACEMENT_CHARACTER) => return None,
            Key::Queue(kind, name) | Key::Refused(kind, name) => (*kind, name.as_str()),
            Key::Group(_) => return None,
        };
        Some(match kind {
            Kind::Posix => Subject::Queue(Address::Posix(Name::from(OsStr::new(name)))),
            Kind::Ring => {
                let name = name.strip_prefix(RING).unwrap_or(name);
                Subject::Ring(Name::from(OsStr::new(name)))
            }
            Kind::Sysv => {
                let known = self.row(key).and_then(|row| row.figures.id);
                let label = match known {
                    Some(id) => Label::Id(id),
                    None => label(name)?,
                };
                Subject::Queue(Address::SystemV(label))
            }
        })
    }

    /// Takes the result of a task.
    pub fn take(&mut self, done: Done, took: Duration) {
        match done {
            Done::Examined(subject, found) => {
                if let Page::Detail(detail) = &mut self.page
                    && detail.subject == subject
                {
                    detail.diagnosis = Some(found);
                    detail.due = Some(Instant::now() + EXAMINE.max(took * SHARE));
                }
            }
            Done::Read(subject, found) => {
                if let Page::Messages(messages) = &mut self.page
                    && messages.subject == subject
                {
                    messages.all = found.as_ref().map_or(0, |found| found.1);
                    messages.found = Some(found.map(|found| found.0));
                    messages.at = SystemTime::now();
                    messages.select(messages.selected, self.size.1);
                }
            }
            Done::Told(told) => {
                self.told = Some(told);
                self.is_stale = true;
                if let Page::Messages(messages) = &mut self.page {
                    messages.found = None;
                    self.tasks.push(Task::Read(messages.subject.clone()));
                }
            }
        }
    }

    pub fn key(&mut self, event: KeyEvent) {
        let control = event.modifiers.contains(KeyModifiers::CONTROL);
        let code = match event.code {
            // A letter with Ctrl or Alt is not the letter: ^Y does not confirm.
            KeyCode::Char(_) if control || event.modifiers.contains(KeyModifiers::ALT) => {
                KeyCode::Null
            }
            code => code,
        };
        if control && matches!(event.code, KeyCode::Char('c')) {
            self.is_over = true;
        } else if let Some(question) = self.question.take() {
            match code {
                KeyCode::Char('y' | 'Y') => self.tasks.push(question.task),
                _ => self.told = Some(Ok("nothing was changed".to_owned())),
            }
        } else if self.input.is_some() {
            self.type_in(code);
        } else if self.has_help {
            self.has_help = false;
        } else {
            self.told = None;
            self.command(code);
        }
    }

    fn type_in(&mut self, code: KeyCode) {
        let Some(input) = &mut self.input else {
            return;
        };
        match code {
            KeyCode::Enter => self.input = None,
            KeyCode::Esc => {
                input.text.clear();
                self.narrow();
                self.input = None;
            }
            KeyCode::Backspace => {
                input.text.pop();
                self.narrow();
            }
            KeyCode::Char(c) => {
                input.text.push(c);
                self.narrow();
            }
            _ => {}
        }
    }

    /// Applies the text that is being typed.
    fn narrow(&mut self) {
        let Some(input) = &self.input else {
            return;
        };
        match (input.what, &mut self.page) {
            (What::Filter, _) => {
                self.order.filter.clone_from(&input.text);
                self.arrange();
            }
            (What::Search, Page::Messages(messages)) => {
                messages.search.clone_from(&input.text);
                messages.select(0, self.size.1);
            }
            (What::Search, _) => {}
        }
    }

    fn command(&mut self, code: KeyCode) {
        match code {
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.has_help = true,
            KeyCode::Char('c') => self.look.next_colours(),
            KeyCode::Char('p') => self.is_paused = !self.is_paused,
            KeyCode::Char('P') => self.ask_to_purge(),
            KeyCode::Char('X') | KeyCode::Delete => self.ask_to_remove(),
            KeyCode::Char('R') => self.ask_to_requeue(),
            KeyCode::Char('m') => self.open_messages(),
            KeyCode::Char('q') | KeyCode::Esc => self.leave(),
            _ => match &mut self.page {
                Page::List => self.list_command(code),
                Page::Detail(detail) => detail.command(code),
                Page::Messages(messages) => match code {
                    KeyCode::Char('r') => {
                        messages.found = None;
                        self.tasks.push(Task::Read(messages.subject.clone()));
                    }
                    KeyCode::Char('/') => {
                        let text = messages.search.clone();
                        let what = What::Search;
                        self.input = Some(Input { what, text });
                    }
                    _ => messages.command(code, self.size.1),
                },
            },
        }
    }

    /// Goes back a page; from the list, ends.
    fn leave(&mut self) {
        match &mut self.page {
            Page::Messages(Messages { whole, .. }) if whole.is_some() => *whole = None,
            Page::Messages(messages) => {
                self.page = match messages.below.take() {
                    // The result of a diagnosis may have come meanwhile, and was dropped.
                    Some(mut detail) => {
                        detail.due = detail.due.or_else(|| Some(Instant::now()));
                        Page::Detail(detail)
                    }
                    None => Page::List,
                };
            }
            Page::Detail(_) => self.page = Page::List,
            Page::List => self.is_over = true,
        }
    }

    fn list_command(&mut self, code: KeyCode) {
        let room = self.room();
        match code {
            KeyCode::Up | KeyCode::Char('k') => self.select(self.selected.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.select(self.selected + 1),
            KeyCode::PageUp => self.select(self.selected.saturating_sub(room)),
            KeyCode::PageDown => self.select(self.selected + room),
            KeyCode::Home | KeyCode::Char('g') => self.select(0),
            KeyCode::End | KeyCode::Char('G') => self.select(usize::MAX),
            KeyCode::Left => self.shifted = self.shifted.saturating_sub(1),
            KeyCode::Right => self.shifted = (self.shifted + 1).min(draw::most_shifted(self.size)),
            KeyCode::Char('<') => self.sort_beside(-1),
            KeyCode::Char('>') => self.sort_beside(1),
            KeyCode::Char('r') => self.sort_by(self.order.sort),
            KeyCode::Char('t') => {
                self.order.tree = !self.order.tree;
                self.arrange();
            }
            KeyCode::Char(' ') => self.fold(),
            KeyCode::Char('/') => {
                let text = self.order.filter.clone();
                let what = What::Filter;
                self.input = Some(Input { what, text });
            }
            KeyCode::Enter => self.open_detail(),
            _ => {}
        }
    }

    fn sort_beside(&mut self, step: isize) {
        let all = Column::ALL;
        let at = all.iter().position(|column| *column == self.order.sort);
        let next = at.unwrap_or_default().saturating_add_signed(step);
        self.order.sort = all[next.min(all.len() - 1)];
        self.order.reverse = false;
        self.arrange();
    }

    /// Sorts by a column. If the list is already sorted by this column, reverses the order.
    fn sort_by(&mut self, column: Column) {
        self.order.reverse = self.order.sort == column && !self.order.reverse;
        self.order.sort = column;
        self.arrange();
    }

    fn fold(&mut self) {
        if let Some(Line {
            key: Key::Group(name),
            ..
        }) = self.lines.get(self.selected)
        {
            let name = name.clone();
            if !self.order.folded.remove(&name) {
                self.order.folded.insert(name);
            }
            self.arrange();
        }
    }

    fn open_detail(&mut self) {
        if self
            .lines
            .get(self.selected)
            .is_some_and(|line| line.folded.is_some())
        {
            return self.fold();
        }
        if let Some((key, subject)) = self.subject() {
            self.tasks.push(Task::Examine(subject.clone()));
            self.page = Page::Detail(Detail {
                key,
                subject,
                diagnosis: None,
                ranks: None,
                scroll: 0,
                most: Cell::new(usize::MAX),
                due: None,
            });
        }
    }

    fn open_messages(&mut self) {
        if matches!(self.page, Page::Messages(_)) {
            return;
        }
        if let Some((_, subject)) = self.subject() {
            self.tasks.push(Task::Read(subject.clone()));
            let below = match std::mem::replace(&mut self.page, Page::List) {
                Page::Detail(detail) => Some(detail),
                _ => None,
            };
            self.page = Page::Messages(Messages {
                subject,
                found: None,
                all: 0,
                at: SystemTime::now(),
                search: String::new(),
                selected: 0,
                offset: 0,
                whole: None,
                most: Cell::new(usize::MAX),
                below,
            });
        }
    }

    fn ask(&mut self, sentence: impl FnOnce(&str) -> String, task: impl FnOnce(Subject) -> Task) {
        if self.read_only {
            self.told = Some(Err("--read-only: no queue is changed".to_owned()));
        } else if let Some((key, subject)) = self.subject() {
            let name = match &key {
                Key::Queue(_, name) | Key::Refused(_, name) | Key::Group(name) => name.clone(),
            };
            let name = text::on_one_line(name.as_bytes());
            self.question = Some(Question {
                text: sentence(&name),
                task: task(subject),
            });
        }
    }

    fn ask_to_purge(&mut self) {
        let count = self.subject().and_then(|(key, _)| {
            let row = self.row(&key)?;
            Some(row.figures.messages)
        });
        let messages = count.map_or_else(
            || "the messages".to_owned(),
            |count| text::counted(count, "message"),
        );
        let text = |name: &str| format!("Receive and drop {messages} of {name}?");
        self.ask(text, Task::Purge);
    }

    fn ask_to_remove(&mut self) {
        let text = |name: &str| format!("Remove {name} with its messages?");
        self.ask(text, Task::Remove);
    }

    fn ask_to_requeue(&mut self) {
        let id = match &self.page {
            Page::Messages(messages) => match messages.current() {
                Some(message) if message.dead.is_some() => message.id,
                _ => {
                    self.told = Some(Err("this message is no dead letter".to_owned()));
                    return;
                }
            },
            _ => None,
        };
        let text = |name: &str| match id {
            Some(id) => format!("Send dead letter {id} of {name} back to its queue?"),
            None => format!("Send all dead letters of {name} back to their queues?"),
        };
        self.ask(text, |subject| Task::Requeue(subject, id));
    }

    pub fn mouse(&mut self, event: MouseEvent) {
        let steps = match event.kind {
            MouseEventKind::ScrollDown => 3,
            MouseEventKind::ScrollUp => -3,
            MouseEventKind::Down(MouseButton::Left) => return self.click(event.column, event.row),
            _ => return,
        };
        let height = self.size.1;
        match &mut self.page {
            Page::List => self.select(self.selected.saturating_add_signed(steps)),
            Page::Detail(detail) => {
                let from = detail.scroll.min(detail.most.get());
                detail.scroll = from.saturating_add_signed(steps);
            }
            Page::Messages(messages) => match &mut messages.whole {
                Some(line) => {
                    *line = (*line)
                        .min(messages.most.get())
                        .saturating_add_signed(steps);
                }
                None => messages.select(messages.selected.saturating_add_signed(steps), height),
            },
        }
    }

    fn click(&mut self, column: u16, row: u16) {
        let is_covered = self.question.is_some() || self.input.is_some() || self.has_help;
        if is_covered || !matches!(self.page, Page::List) {
            return;
        }
        if row + 1 == ABOVE {
            if let Some(column) = draw::column_at(column, self.size, self.shifted) {
                self.sort_by(column);
            }
        } else if row >= ABOVE && usize::from(row - ABOVE) < self.room() {
            let line = self.offset + usize::from(row - ABOVE);
            match line == self.selected {
                true => self.open_detail(),
                false if line < self.lines.len() => self.select(line),
                false => {}
            }
        }
    }
}

impl Detail {
    fn command(&mut self, code: KeyCode) {
        let from = self.scroll.min(self.most.get());
        self.scroll = match code {
            KeyCode::Up | KeyCode::Char('k') => from.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => from.saturating_add(1),
            KeyCode::PageUp => from.saturating_sub(10),
            KeyCode::PageDown => from.saturating_add(10),
            KeyCode::Home | KeyCode::Char('g') => 0,
            KeyCode::End | KeyCode::Char('G') => usize::MAX,
            _ => from,
        };
    }
}

impl Messages {
    /// Returns the messages that contain the text of the search, with their positions.
    pub fn shown(&self) -> Vec<(usize, &Message)> {
        let all = self.found.iter().flatten().flatten().enumerate();
        all.filter(|(_, message)| message.contains(&self.search))
            .collect()
    }

    pub fn current(&self) -> Option<&Message> {
        self.shown().get(self.selected).map(|(_, message)| *message)
    }

    /// Returns the number of messages that the screen has room for.
    pub fn room(height: u16) -> usize {
        usize::from(height.saturating_sub(ABOVE + BELOW)).max(1)
    }

    fn select(&mut self, at: usize, height: u16) {
        let count = self.shown().len();
        self.selected = at.min(count.saturating_sub(1));
        let room = Messages::room(height);
        self.offset = self.offset.min(self.selected);
        self.offset = self.offset.max((self.selected + 1).saturating_sub(room));
    }

    fn command(&mut self, code: KeyCode, height: u16) {
        let room = Messages::room(height);
        let towards = |at: usize| match code {
            KeyCode::Up | KeyCode::Char('k') => Some(at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => Some(at.saturating_add(1)),
            KeyCode::PageUp => Some(at.saturating_sub(room)),
            KeyCode::PageDown => Some(at.saturating_add(room)),
            KeyCode::Home | KeyCode::Char('g') => Some(0),
            KeyCode::End | KeyCode::Char('G') => Some(usize::MAX),
            _ => None,
        };
        match (&mut self.whole, code) {
            (None, KeyCode::Enter) => self.whole = self.current().is_some().then_some(0),
            (Some(line), _) => {
                let from = (*line).min(self.most.get());
                *line = towards(from).unwrap_or(from);
            }
            (None, _) => {
                if let Some(at) = towards(self.selected) {
                    self.select(at, height);
                }
            }
        }
    }
}

impl Message {
    /// Returns whether the message has this text in it, without regard to the case of ASCII letters.
    pub fn contains(&self, text: &str) -> bool {
        let wanted = text.as_bytes();
        wanted.is_empty()
            || self
                .data
                .windows(wanted.len())
                .any(|part| part.eq_ignore_ascii_case(wanted))
    }
}

/// Returns the System V queue of a name in the list.
fn label(name: &str) -> Option<Label> {
    if let Some(key) = name.strip_prefix("key:0x") {
        let key = u32::from_str_radix(key, 16).ok()?;
        return Some(Label::Key(key as i32, Notation::Hex(8)));
    }
    let id = name.strip_prefix("id:")?.parse().ok()?;
    Some(Label::Id(id))
}
