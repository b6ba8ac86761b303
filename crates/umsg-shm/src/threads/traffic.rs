//! Distinct messages, and threads that send and receive them.

use std::thread;
use std::time::Instant;

/// The longest message, in bytes. A message of this length does not fit into a cell, so it needs a block of the arena.
pub const LONGEST: usize = 200;

/// The number of messages that a thread sends. Under Miri, a message takes milliseconds.
const MESSAGES: usize = if cfg!(miri) { 4 } else { 2_000 };

/// The number of messages in a batch.
pub const TOGETHER: usize = 2;

/// A function that sends messages.
pub type Sends<'a> = &'a (dyn Fn(&[Vec<u8>]) + Sync);
/// A function that receives at least one message, and at most this number of messages.
pub type Receives<'a> = &'a (dyn Fn(usize) -> Vec<Vec<u8>> + Sync);

/// Makes a distinct message for each number: some are short, some are long.
pub fn message(number: usize) -> Vec<u8> {
    let mut bytes = vec![number as u8; 8 + number * 37 % (LONGEST - 8)];
    bytes[..8].copy_from_slice(&(number as u64).to_ne_bytes());
    bytes
}

/// Returns the number of a message, after a check that it is whole.
pub fn number(bytes: &[u8]) -> usize {
    let number = u64::from_ne_bytes(bytes[..8].try_into().unwrap()) as usize;
    assert_eq!(bytes, message(number));
    number
}

/// Passes messages between threads, one for each sender and each receiver, and checks that each message arrives once. UMSG_THREADS_SECONDS sets the
/// duration in seconds; the default is one round.
pub fn pass(senders: &[Sends<'_>], receivers: &[Receives<'_>]) {
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
