//! The state of the screen. This module does not access the terminal.

mod keys;
mod pages;

use std::collections::HashSet;
use std::ffi::OsStr;
use std::time::{Duration, Instant, SystemTime};

use super::columns::Column;
use super::rates::{Row, View};
use super::rows::{Key, Line, Order};
use super::style::Look;
use super::work::{Done, Task};
use crate::address::{Address, Label, Notation, RING, Subject};
use crate::commands::sample::figures::Kind;
use crate::names::Name;
use crate::output::owner::Owners;
pub use pages::{Detail, Messages};

/// The shortest time between two diagnoses of a queue. If a diagnosis takes long, the next one waits `SHARE` times as long as the diagnosis took.
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
    /// The index of the first line of the list that the screen shows.
    pub offset: usize,
    /// The number of columns that are scrolled out at the left.
    pub shifted: usize,
    pub page: Page,
    pub input: Option<Input>,
    pub question: Option<Question>,
    pub has_help: bool,
    /// The result of the last action: a text, or a failure.
    pub told: Option<Result<String, String>>,
    /// The reason why the last refresh failed.
    pub failure: Option<String>,
    pub is_paused: bool,
    pub is_over: bool,
    /// The tasks that the worker has not got yet.
    pub tasks: Vec<Task>,
    /// True if the list must be read again before the next regular refresh.
    pub is_stale: bool,
    /// The width and the height of the screen.
    pub size: (u16, u16),
    pub owners: Owners,
}

/// The page that is shown.
pub enum Page {
    List,
    Detail(Detail),
    Messages(Messages),
}

/// A line that the user is typing.
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

/// The numbers of screen lines above and below the list.
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

    /// Shows the figures of a new refresh, and requests the next diagnosis if it is due.
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

    /// Returns the number of lines of the list that fit on the screen.
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

    /// Returns the queue of the current page, or in the list the selected queue.
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

    /// Returns the row of a queue; None if the queue has no figures.
    pub fn row(&self, key: &Key) -> Option<&Row> {
        let Key::Queue(kind, name) = key else {
            return None;
        };
        let mut rows = self.view.rows.iter();
        rows.find(|row| row.figures.kind == *kind && *row.figures.queue == **name)
    }

    fn subject_of(&self, key: &Key) -> Option<Subject> {
        let (kind, name) = match key {
            // A name that is not UTF-8 was changed for the display, so its bytes are unknown.
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

    /// Shows the result of a task. A result for a page that is no longer shown is dropped.
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
}

/// Parses the name that the list shows for a System V queue.
fn label(name: &str) -> Option<Label> {
    if let Some(key) = name.strip_prefix("key:0x") {
        let key = u32::from_str_radix(key, 16).ok()?;
        return Some(Label::Key(key as i32, Notation::Hex(8)));
    }
    let id = name.strip_prefix("id:")?.parse().ok()?;
    Some(Label::Id(id))
}
