//! The action of each key, and of the mouse.

use std::cell::Cell;
use std::time::{Instant, SystemTime};

use ratatui::crossterm::event::{
    KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};

use super::super::columns::Column;
use super::super::draw;
use super::super::rows::{Key, Line};
use super::super::work::Task;
use super::{ABOVE, App, Detail, Input, Messages, Page, Question, What};
use crate::address::Subject;
use crate::output::text;

impl App {
    pub fn key(&mut self, event: KeyEvent) {
        let control = event.modifiers.contains(KeyModifiers::CONTROL);
        let code = match event.code {
            // An Enter that was typed before the terminal was in raw mode arrives as a line feed, which is ^J in raw mode.
            KeyCode::Char('j') if control => KeyCode::Enter,
            // A letter with Ctrl or Alt is another key than the letter. So ^Y does not confirm a question.
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

    /// Applies the text of the filter or search while the user types it.
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
            KeyCode::Char('q') => self.leave(),
            KeyCode::Esc => {
                if !self.show_all() {
                    self.leave();
                }
            }
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

    /// Ends the filter or the search of the current page. Returns false if the page has none.
    fn show_all(&mut self) -> bool {
        match &mut self.page {
            Page::List if !self.order.filter.is_empty() => {
                self.order.filter.clear();
                self.arrange();
                true
            }
            Page::Messages(messages) if messages.whole.is_none() && !messages.search.is_empty() => {
                messages.search.clear();
                messages.select(0, self.size.1);
                true
            }
            _ => false,
        }
    }

    /// Returns to the previous page. From the list, ends the command.
    fn leave(&mut self) {
        match &mut self.page {
            Page::Messages(Messages { whole, .. }) if whole.is_some() => *whole = None,
            Page::Messages(messages) => {
                self.page = match messages.below.take() {
                    // If the diagnosis ended while the page of messages was shown, its result was dropped. So a new diagnosis starts at once.
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

    fn ask(
        &mut self,
        sentence: impl FnOnce(&str) -> String,
        task: impl FnOnce(Subject, Option<(u64, u64)>) -> Task,
    ) {
        if self.read_only {
            self.told = Some(Err("--read-only: no queue is changed".to_owned()));
        } else if let Some((key, subject)) = self.subject() {
            let name = match &key {
                Key::Queue(_, name) | Key::Refused(_, name) | Key::Group(name) => name.clone(),
            };
            let name = text::on_one_line(name.as_bytes());
            let file = self.row(&key).and_then(|row| row.figures.file);
            self.question = Some(Question {
                text: sentence(&name),
                task: task(subject, file),
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
        self.ask(text, |subject, _| Task::Requeue(subject, id));
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
