//! Threads of one process on one engine, for those who watch memory: Miri and ThreadSanitizer.
//!
//! Messages are written and read as plain bytes. Neither watcher knows what the words of a segment mean: each sees by itself
//! whether whoever reads a message, or writes where one was, comes after who wrote or read there before. The models of loom
//! have eight bytes in place of that memory, and explore more interleavings of less.

mod posix;
mod ring;
mod typed;

use crate::sys::clock::Deadline;
use std::thread;
use std::time::{Duration, Instant};

/// The longest message, in bytes; a cell has room for less.
const LONGEST: usize = 200;

/// So many messages does a thread send. Under Miri one takes milliseconds.
const MESSAGES: usize = if cfg!(miri) { 4 } else { 2_000 };

/// So many are given to a sender at once.
const TOGETHER: usize = 2;

/// Long enough for anybody, and too short while the others are slow.
const PATIENT: Duration = Duration::from_secs(60);
const IMPATIENT: Duration = Duration::from_micros(200);

/// Sends messages.
type Sends<'a> = &'a (dyn Fn(&[Vec<u8>]) + Sync);
/// Receives at most so many, and one at least.
type Receives<'a> = &'a (dyn Fn(usize) -> Vec<Vec<u8>> + Sync);

/// A message of its own for each number: some are short, some are long.
fn message(number: usize) -> Vec<u8> {
    let mut bytes = vec![number as u8; 8 + number * 37 % (LONGEST - 8)];
    bytes[..8].copy_from_slice(&(number as u64).to_ne_bytes());
    bytes
}

/// The number of a message, which came whole.
fn number(bytes: &[u8]) -> usize {
    let number = u64::from_ne_bytes(bytes[..8].try_into().unwrap()) as usize;
    assert_eq!(bytes, message(number));
    number
}

/// Each sender and each receiver is a thread; each message comes once. UMSG_THREADS_SECONDS says for how long, if not for one round.
fn pass(senders: &[Sends<'_>], receivers: &[Receives<'_>]) {
    let seconds = std::env::var("UMSG_THREADS_SECONDS").map_or(0, |text| text.parse().unwrap());
    let begun = Instant::now();
    loop {
        pass_once(senders, receivers);
        if begun.elapsed().as_secs() >= seconds {
            return;
        }
    }
}

fn pass_once(senders: &[Sends<'_>], receivers: &[Receives<'_>]) {
    let all = senders.len() * MESSAGES;
    let share = all / receivers.len();
    let mut received = thread::scope(|scope| {
        for (index, send) in senders.iter().enumerate() {
            let numbers = index * MESSAGES..(index + 1) * MESSAGES;
            scope.spawn(move || {
                let messages: Vec<_> = numbers.map(message).collect();
                messages.chunks(TOGETHER).for_each(send);
            });
        }
        let receive = |receive: Receives<'_>| {
            let mut received = Vec::new();
            while received.len() < share {
                let messages = receive(share - received.len());
                received.extend(messages.iter().map(|bytes| number(bytes)));
            }
            received
        };
        let begin = |&receiver| scope.spawn(move || receive(receiver));
        let receivers: Vec<_> = receivers.iter().map(begin).collect();
        let received = receivers.into_iter().map(|thread| thread.join().unwrap());
        received.flatten().collect::<Vec<_>>()
    });
    received.sort_unstable();
    assert!(received.into_iter().eq(0..all));
}

/// Calls until the call was not in vain, with so much patience each time.
fn insist<T, E>(patience: Duration, mut call: impl FnMut(Deadline) -> Result<T, E>) -> T
where
    E: std::fmt::Debug + PartialEq,
    E: TimedOut,
{
    loop {
        match call(Deadline::after(patience)) {
            Ok(done) => return done,
            Err(error) if error == E::TIMED_OUT => {}
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// An engine's answers.
trait TimedOut {
    const TIMED_OUT: Self;
}

impl TimedOut for crate::queue::Refused {
    const TIMED_OUT: Self = Self::TimedOut;
}

impl TimedOut for crate::typed::Refused {
    const TIMED_OUT: Self = Self::TimedOut;
}

/// Messages that are sent together, and those that are received together.
#[derive(Default)]
struct Several {
    room: Vec<u8>,
    received: Vec<Vec<u8>>,
}

impl Several {
    fn room(&mut self) -> &mut [u8] {
        self.room.resize(LONGEST, 0);
        &mut self.room
    }

    fn take(&mut self, len: usize) {
        self.received.push(self.room[..len].to_vec());
    }
}
