//! The order in which a receiver got messages, if no other process competes with this receiver and it did not die.

use super::harass::is_thread;
use super::journal::{Author, Journal};
use std::collections::HashMap;
use std::sync::atomic::Ordering::SeqCst;

/// The last message of each sender. If priorities matter, the last message of each sender and priority.
#[derive(Default)]
pub struct Turns(HashMap<(Author, u16), usize>);

impl Turns {
    /// Fails unless these messages, which were received next, come after the earlier messages of the same senders. Checks only senders that are
    /// threads, whose calls come one after the other.
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
