//! The common parts of the suites of two processes: the ways to wait, and messages by which the receiver can check that they arrived whole and in
//! order.

use std::hint;

use crate::backends::{Errno, MessageQueue, Waiting};
use crate::clock;
use crate::failure::Failure;

/// The sizes of the messages in the rows, in bytes.
pub const SIZES: [usize; 3] = [64, 1024, 8192];

/// The time for which a receiver of [`Mode::Pausing`] leaves the sender's cache lines alone, in nanoseconds.
const PAUSE: u64 = 500;

/// The note below the table that explains the column "line".
pub const LINE_NOTE: &str = "line: what one cache line takes from CPU to CPU, in ns, measured along with \
                             the row; it bounds what two processes can do, and on a virtual machine \
                             it changes with where the host puts the CPUs";

/// The behaviour of a process while it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The process tries again, with a spin hint.
    Polling,
    /// The process behaves as in `Polling`, but a receiver that finds no message pauses for about 500 ns before it checks again.
    Pausing,
    /// The library's default: umsg spins while spinning pays, then sleeps.
    Adaptive,
    /// The process sleeps at once.
    Blocking,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Self::Polling => "polling",
            Self::Pausing => "polling, 500 ns apart",
            Self::Adaptive => "adaptive",
            Self::Blocking => "blocking",
        }
    }

    /// Sets how the calling process waits.
    pub fn prepare<Q: MessageQueue>(self, queue: &Q) {
        match self {
            Self::Polling | Self::Pausing => {}
            Self::Adaptive => queue.set_waiting(Waiting::Adaptive),
            Self::Blocking => queue.set_waiting(Waiting::Blocking),
        }
    }

    #[inline]
    pub fn send<Q: MessageQueue>(self, queue: &Q, message: &[u8]) -> Result<(), Failure> {
        let sent = match self {
            Self::Polling | Self::Pausing => loop {
                match queue.try_send(message, 0) {
                    Err(Errno::AGAIN) => hint::spin_loop(),
                    other => break other,
                }
            },
            Self::Adaptive | Self::Blocking => queue.send(message, 0),
        };
        sent.map_err(|errno| Failure::queue("a send between two processes failed", errno))
    }

    #[inline]
    pub fn receive<Q: MessageQueue>(self, queue: &Q, buffer: &mut [u8]) -> Result<(), Failure> {
        let received = match self {
            Self::Polling => loop {
                match queue.try_receive(buffer) {
                    Err(Errno::AGAIN) => hint::spin_loop(),
                    other => break other,
                }
            },
            Self::Pausing => loop {
                match queue.try_receive(buffer) {
                    Err(Errno::AGAIN) => clock::spin(PAUSE),
                    other => break other,
                }
            },
            Self::Adaptive | Self::Blocking => queue.receive(buffer),
        };
        match received {
            Ok(length) if length == buffer.len() => Ok(()),
            Ok(length) => Err(Failure::new(format!(
                "a message of {} bytes arrived with {length}",
                buffer.len()
            ))),
            Err(errno) => Err(Failure::queue(
                "a receive between two processes failed",
                errno,
            )),
        }
    }
}

/// The message: its number, a stamp, filler, and its number again at the end.
pub struct Letter {
    bytes: Vec<u8>,
}

/// The stamp of the last message.
pub const LAST: u64 = u64::MAX;

const WORD: usize = size_of::<u64>();

impl Letter {
    pub fn new(size: usize) -> Self {
        Self {
            bytes: vec![0x5a; size],
        }
    }

    /// Returns the message of this number; the suite defines the meaning of the stamp.
    #[inline]
    pub fn write(&mut self, number: u64, stamp: u64) -> &[u8] {
        let end = self.bytes.len() - WORD;
        self.bytes[..WORD].copy_from_slice(&number.to_ne_bytes());
        self.bytes[WORD..2 * WORD].copy_from_slice(&stamp.to_ne_bytes());
        self.bytes[end..].copy_from_slice(&number.to_ne_bytes());
        &self.bytes
    }

    pub fn buffer(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Returns the stamp of the received message.
    ///
    /// # Errors
    /// Fails if the message is not the complete message with this number.
    #[inline]
    pub fn read(&self, number: u64) -> Result<u64, Failure> {
        let end = self.bytes.len() - WORD;
        if self.word(0) != number || self.word(end) != number {
            return Err(self.mixed_up(number));
        }
        Ok(self.word(WORD))
    }

    /// Returns the number of the received message. [`Self::read`] checks whether the message is complete.
    pub fn number(&self) -> u64 {
        self.word(0)
    }

    #[inline]
    fn word(&self, at: usize) -> u64 {
        let mut word = [0; WORD];
        word.copy_from_slice(&self.bytes[at..at + WORD]);
        u64::from_ne_bytes(word)
    }

    #[cold]
    fn mixed_up(&self, number: u64) -> Failure {
        let (first, last) = (self.word(0), self.word(self.bytes.len() - WORD));
        Failure::new(format!(
            "message {number} was expected; one arrived that begins as {first} and ends as {last}"
        ))
    }
}

/// Makes round trips, numbered from `first` on, for this number of nanoseconds. Adds the time of each trip to `times` while it has capacity.
/// Returns the number of the next trip.
pub(super) fn time_trips(
    times: &mut Vec<f64>,
    budget: u64,
    first: u64,
    mut trip: impl FnMut(u64) -> Result<(), Failure>,
) -> Result<u64, Failure> {
    let most = times.capacity();
    let mut number = first;
    let mut before = clock::now();
    let end = before + budget;
    while before < end && times.len() < most {
        trip(number)?;
        let after = clock::now();
        times.push((after - before) as f64);
        before = after;
        number += 1;
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_is_known_by_both_ends() {
        let mut letter = Letter::new(64);
        letter.write(7, 3);
        assert_eq!(letter.read(7).unwrap(), 3);
        assert!(letter.read(8).is_err());
        letter.buffer()[63] ^= 1;
        assert!(letter.read(7).is_err());
    }
}
