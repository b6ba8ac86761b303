//! The order in which one receiver, which no other process competes with and which did not die, got messages.

use super::harass::is_thread;
use super::journal::{Author, Journal};
use std::collections::HashMap;
use std::sync::atomic::Ordering::SeqCst;

/// The last message of each sender; where priorities matter, of each of its priorities.
#[derive(Default)]
pub struct Turns(HashMap<(Author, u16), usize>);

impl Turns {
    /// Fails unless these, which were received next, come after those that the same sender sent before. Of senders that do one thing
    /// after the other: threads.
    pub fn expect(&mut self, journal: &Journal, numbers: &[usize], by_priority: bool) {
        for &number in numbers {
            let message = &journal.messages[number];
            let author = message.author();
            let priority = message.priority.load(SeqCst);
            let key = (author, if by_priority { priority } else { 0 });
            if !is_thread(author.role) {
                continue;
            }
            if let Some(before) = self.0.insert(key, number) {
                assert!(
                    before < number,
                    "message {before} was received before {number}, both of role {} and priority {priority}",
                    author.role
                );
            }
        }
    }
}
