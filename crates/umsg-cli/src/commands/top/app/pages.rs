//! The pages of one queue: its details, and its messages.

use std::cell::Cell;
use std::time::{Instant, SystemTime};

use ratatui::crossterm::event::KeyCode;
use umsg::diagnosis::Diagnosis;

use super::super::rows::Key;
use super::super::work::Message;
use super::{ABOVE, BELOW};
use crate::address::Subject;

/// The page with the details of one queue.
pub struct Detail {
    pub key: Key,
    pub subject: Subject,
    pub diagnosis: Option<Result<Box<Diagnosis>, String>>,
    pub ranks: Option<Vec<(i64, u64)>>,
    pub scroll: usize,
    /// The largest useful scroll position, as the last drawing found it.
    pub most: Cell<usize>,
    /// The time of the next diagnosis. None while a diagnosis is running.
    pub(super) due: Option<Instant>,
}

/// The messages of one queue.
pub struct Messages {
    pub subject: Subject,
    /// The messages; None until they have been read.
    pub found: Option<Result<Vec<Message>, String>>,
    /// The number of messages in the queue when the messages were read.
    pub all: u64,
    pub at: SystemTime,
    pub search: String,
    pub selected: usize,
    pub offset: usize,
    /// The first visible line of the message that fills the page. None if the page shows the list of messages.
    pub whole: Option<usize>,
    /// The largest useful value of `whole`, as the last drawing found it.
    pub most: Cell<usize>,
    /// The page to which the key "back" returns; None for the list.
    pub(super) below: Option<Detail>,
}

impl Detail {
    pub(super) fn command(&mut self, code: KeyCode) {
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

    /// Returns the number of messages that fit on the screen.
    pub fn room(height: u16) -> usize {
        usize::from(height.saturating_sub(ABOVE + BELOW)).max(1)
    }

    pub(super) fn select(&mut self, at: usize, height: u16) {
        let count = self.shown().len();
        self.selected = at.min(count.saturating_sub(1));
        let room = Messages::room(height);
        self.offset = self.offset.min(self.selected);
        self.offset = self.offset.max((self.selected + 1).saturating_sub(room));
    }

    pub(super) fn command(&mut self, code: KeyCode, height: u16) {
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
