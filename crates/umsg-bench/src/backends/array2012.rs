//! Re-creates the sorted array in which the kernel kept its POSIX queues until version 3.5 (2012).
//!
//! Each message is a separate allocation. An array of pointers to the messages is sorted by priority: the next message to be received is at the end.
//! A receive takes the last message. A send reads every message of the same or a higher priority, and moves the pointer to each of them up by one
//! place. The kernel's change to a tree ended this walk and its cache misses.
//!
//! The array is in the memory of the benchmark's process, and its functions make no system calls, so its figures are lower bounds. The kernel of 2012
//! also needed time for the entry, for the descriptor look-up, and for the copies to and from user space.

use std::sync::{Mutex, MutexGuard};

use super::{Errno, MessageQueue, Spec};
use crate::failure::Failure;

/// The maximum length of a message, in bytes. The measurements send messages of 16 bytes.
const CAPACITY: usize = 16;

/// The header of a message: 48 bytes, as many as the kernel's `struct msg_msg` has before the data.
#[repr(C)]
struct Message {
    /// The list links of the kernel's structure. The kernel's sorted array did not use them.
    _links: [usize; 2],
    priority: i64,
    length: usize,
    /// The pointer to the next part of a long message, and the pointer of the security module.
    _rest: [usize; 2],
    /// The bytes of the message.
    data: [u8; CAPACITY],
}

/// The messages, sorted by ascending priority; those of one priority are sorted from the newest to the oldest. The message at the end of the array is
/// the next to be received.
struct Sorted {
    messages: Vec<*mut Message>,
    depth: usize,
}

/// A queue that stores its messages as the kernel did until 2012.
pub struct ArrayQueue(Mutex<Sorted>);

impl Sorted {
    fn insert(&mut self, message: *mut Message) {
        // SAFETY: the caller allocated the message, and no other thread has seen it yet.
        let priority = unsafe { (*message).priority };
        let mut place = self.messages.len();
        self.messages.push(message);
        // SAFETY: the pointers in the array lead to messages that live until a thread takes them out. Only a thread with the lock takes out messages,
        // and the caller holds the lock.
        while place > 0 && unsafe { (*self.messages[place - 1]).priority } >= priority {
            self.messages[place] = self.messages[place - 1];
            place -= 1;
        }
        self.messages[place] = message;
    }
}

impl ArrayQueue {
    fn lock(&self) -> Result<MutexGuard<'_, Sorted>, Errno> {
        self.0.lock().map_err(|_| Errno(libc::EBADMSG))
    }
}

impl MessageQueue for ArrayQueue {
    fn make(spec: &Spec) -> Result<Self, Failure> {
        let depth = spec.depth as usize;
        if spec.message_size as usize > CAPACITY {
            return Err(Failure::new(
                "the array of 2012 is measured with short messages only",
            ));
        }
        Ok(Self(Mutex::new(Sorted {
            messages: Vec::with_capacity(depth),
            depth,
        })))
    }

    fn try_send(&self, message: &[u8], priority: u32) -> Result<(), Errno> {
        let mut data = [0; CAPACITY];
        let room = data.get_mut(..message.len()).ok_or(Errno(libc::EMSGSIZE))?;
        room.copy_from_slice(message);
        // The message is allocated before the lock is taken, as in the kernel.
        let message = Box::new(Message {
            _links: [0; 2],
            priority: priority.into(),
            length: message.len(),
            _rest: [0; 2],
            data,
        });
        let mut sorted = self.lock()?;
        if sorted.messages.len() == sorted.depth {
            return Err(Errno::AGAIN);
        }
        sorted.insert(Box::into_raw(message));
        Ok(())
    }

    fn try_receive(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        let last = self.lock()?.messages.pop().ok_or(Errno::AGAIN)?;
        // SAFETY: Box::into_raw made the pointer, and this function has just taken it out of the array, the only place that had it.
        let message = unsafe { Box::from_raw(last) };
        let room = buffer
            .get_mut(..message.length)
            .ok_or(Errno(libc::EMSGSIZE))?;
        room.copy_from_slice(&message.data[..message.length]);
        Ok(message.length)
    }

    /// Sends without waiting: in the suites that use this queue, no thread waits.
    fn send(&self, message: &[u8], priority: u32) -> Result<(), Errno> {
        self.try_send(message, priority)
    }

    /// Receives without waiting: in the suites that use this queue, no thread waits.
    fn receive(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        self.try_receive(buffer)
    }
}

impl Drop for ArrayQueue {
    fn drop(&mut self) {
        let Ok(sorted) = self.0.get_mut() else {
            return;
        };
        for message in sorted.messages.drain(..) {
            // SAFETY: Box::into_raw made each message, and each is in the array once.
            drop(unsafe { Box::from_raw(message) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn highest_priority_first_and_first_come_first_served_within_one() {
        let spec = Spec {
            depth: 5,
            message_size: 16,
        };
        let queue = ArrayQueue::make(&spec).unwrap();
        for (text, priority) in [("b1", 2), ("a", 1), ("c1", 3), ("b2", 2), ("c2", 3)] {
            queue.try_send(text.as_bytes(), priority).unwrap();
        }
        assert_eq!(queue.try_send(b"x", 9), Err(Errno::AGAIN));
        let mut buffer = [0; 16];
        let mut order = Vec::new();
        while let Ok(length) = queue.try_receive(&mut buffer) {
            order.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
        }
        assert_eq!(order, ["c1", "c2", "b1", "b2", "a"]);
    }
}
