//! The dead-letter queue of a bridge: the queue for messages that can't be placed.

use super::opened;
use std::cell::RefCell;
use umsg::Namespace;
use umsg::posix::{OpenError, OpenOptions, Queue};

/// The maximum number of sends of one message, if the queue is removed during each send.
const ATTEMPTS: usize = 3;

/// An open dead-letter queue.
#[derive(Debug)]
pub struct DeadLetter {
    namespace: Namespace,
    name: String,
    queue: RefCell<Queue>,
}

impl DeadLetter {
    /// Opens the queue. Makes the queue if it is missing: each message must have a place.
    ///
    /// # Errors
    /// The error is a sentence that names the setting.
    pub fn open(namespace: &Namespace, name: &str) -> Result<DeadLetter, String> {
        let queue = open(namespace, name);
        let queue = queue.map_err(|error| format!("`dead_letter` {name}: {error}"))?;
        Ok(DeadLetter {
            namespace: namespace.clone(),
            name: name.to_owned(),
            queue: RefCell::new(queue),
        })
    }

    /// Sends a message to the queue. If the queue was removed, makes it again, and sends the message again: the message then leaves its source, so it
    /// must be in the queue of the name.
    ///
    /// # Errors
    /// The error is the sentence of the library, or says that the queue was removed again and again.
    pub fn try_send(&self, data: &[u8], priority: u32) -> Result<(), String> {
        let mut queue = self.queue.borrow_mut();
        for _ in 0..ATTEMPTS {
            let sent = queue.try_send(data, priority);
            if opened::is_named(&self.namespace, &self.name, &queue) {
                return sent.map_err(|error| error.to_string());
            }
            *queue = open(&self.namespace, &self.name).map_err(|error| error.to_string())?;
        }
        Err(super::GONE.to_owned())
    }
}

fn open(namespace: &Namespace, name: &str) -> Result<Queue, OpenError> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .namespace(namespace);
    options.max_messages(65_536).message_size(16 << 20);
    options.open(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_dead_letter_queue_is_made_again_and_gets_the_message() {
        let home = tempfile::tempdir_in("/dev/shm").unwrap();
        let namespace = Namespace::at(home.path()).unwrap();
        let dead = DeadLetter::open(&namespace, "/failed").unwrap();
        for n in 0..2 {
            umsg::posix::unlink_in(&namespace, "/failed").unwrap();
            dead.try_send(&[n], 0).unwrap();
            let now = open(&namespace, "/failed").unwrap();
            assert_eq!(now.try_receive_vec().unwrap().data, [n]);
        }
    }
}
