//! Sends and receives of one thread, timed.

use std::time::Duration;

use super::priorities::Priorities;
use crate::backends::{Errno, MessageQueue};
use crate::clock;
use crate::failure::Failure;
use crate::stats;

/// The length of a message in bytes, as in the published test.
pub const MESSAGE_SIZE: usize = 16;

/// The minimum time of the operations between two readings of the clock, in nanoseconds: long compared with the reading, short compared with a tick
/// of the scheduler.
const CHUNK: f64 = 20_000.0;

/// The extent of a measurement: a time, or a number of pairs.
#[derive(Clone, Copy)]
pub struct Extent {
    pub budget: Duration,
    pub pairs: u32,
}

impl Extent {
    /// Returns the number of messages that the published test sends through a queue that is not empty. The number matters: with mixed priorities,
    /// more and more of the new messages are received at once. In a longer measurement, fewer of the received messages come from deep in the queue,
    /// and the cost appears lower.
    pub fn published(budget: Duration) -> Self {
        Self {
            budget,
            pairs: 100_000,
        }
    }

    /// Returns an extent of as many pairs as the time allows. In an empty queue, all pairs have the same cost.
    pub fn timed(budget: Duration) -> Self {
        Self {
            budget,
            pairs: u32::MAX,
        }
    }

    /// Returns a quarter of this extent.
    pub fn quarter(self) -> Self {
        Self {
            budget: self.budget / 4,
            pairs: self.pairs / 4,
        }
    }
}

/// Sends `count` messages.
pub fn fill<Q: MessageQueue, P: Priorities>(
    queue: &Q,
    count: u32,
    priorities: &mut P,
) -> Result<(), Failure> {
    let message = [0x5a; MESSAGE_SIZE];
    for _ in 0..count {
        queue
            .try_send(&message, priorities.next())
            .map_err(send_failed)?;
    }
    Ok(())
}

/// Receives until the queue is empty. Returns the number of messages.
pub fn drain<Q: MessageQueue>(queue: &Q) -> Result<u32, Failure> {
    let mut buffer = [0; MESSAGE_SIZE];
    let mut count = 0;
    loop {
        match queue.try_receive(&mut buffer) {
            Ok(_) => count += 1,
            Err(Errno::AGAIN) => return Ok(count),
            Err(errno) => return Err(receive_failed(errno)),
        }
    }
}

/// Measures the nanoseconds of a send and a receive together, at the current depth of the queue. The result is the median over chunks of pairs;
/// between two readings of the clock, the function only sends and receives. The first pair is not counted, because its receive may include deferred
/// work of earlier sends (see [`first_receive`]).
pub fn pair<Q: MessageQueue, P: Priorities>(
    queue: &Q,
    priorities: &mut P,
    extent: Extent,
) -> Result<f64, Failure> {
    chunked(extent, |count| pairs(queue, priorities, count))
}

/// Measures the nanoseconds of one repetition of `run`: the median over chunks, as in [`pair`].
pub fn chunked(
    extent: Extent,
    mut run: impl FnMut(u32) -> Result<(), Failure>,
) -> Result<f64, Failure> {
    run(1)?;
    let end = clock::now() + extent.budget.as_nanos() as u64;
    let mut chunks = Vec::new();
    let (mut size, mut done) = (1, 0);
    while chunks.is_empty() || (clock::now() < end && done < extent.pairs) {
        let start = clock::now();
        run(size)?;
        let taken = (clock::now() - start) as f64 - clock::overhead();
        done += size;
        if taken >= CHUNK {
            chunks.push(taken / f64::from(size));
        } else {
            // The chunk is too short to be timed. Its operations warm up the caches.
            size *= 2;
        }
    }
    Ok(stats::median(&chunks))
}

/// Sends a message and receives a message, `count` times.
#[inline]
pub fn pairs<Q: MessageQueue, P: Priorities>(
    queue: &Q,
    priorities: &mut P,
    count: u32,
) -> Result<(), Failure> {
    let message = [0x5a; MESSAGE_SIZE];
    let mut buffer = [0; MESSAGE_SIZE];
    for _ in 0..count {
        queue
            .try_send(&message, priorities.next())
            .map_err(send_failed)?;
        queue.try_receive(&mut buffer).map_err(receive_failed)?;
    }
    Ok(())
}

/// Measures the nanoseconds of one receive directly after sends, including the work that the sends have deferred to the receive.
pub fn first_receive<Q: MessageQueue>(queue: &Q) -> Result<f64, Failure> {
    let mut buffer = [0; MESSAGE_SIZE];
    let start = clock::now();
    queue.try_receive(&mut buffer).map_err(receive_failed)?;
    Ok((clock::now() - start) as f64 - clock::overhead())
}

/// Measures the send's share of the time of a pair. As in the published test, the function reads the clock around each operation, and subtracts the
/// cost of the reading. The readings also keep the CPU from overlapping the two operations, so only the proportion is used.
pub fn send_share<Q: MessageQueue, P: Priorities>(
    queue: &Q,
    priorities: &mut P,
    extent: Extent,
) -> Result<f64, Failure> {
    let message = [0x5a; MESSAGE_SIZE];
    let mut buffer = [0; MESSAGE_SIZE];
    let end = clock::now() + extent.budget.as_nanos() as u64;
    let (mut sends, mut receives) = (Vec::new(), Vec::new());
    let mut done = clock::now();
    while sends.is_empty() || (done < end && sends.len() < extent.pairs as usize) {
        let priority = priorities.next();
        let start = clock::now();
        queue.try_send(&message, priority).map_err(send_failed)?;
        let sent = clock::now();
        queue.try_receive(&mut buffer).map_err(receive_failed)?;
        done = clock::now();
        sends.push((sent - start) as f64);
        receives.push((done - sent) as f64);
    }
    let net = |samples: &[f64]| (trimmed_mean(samples) - clock::overhead()).max(0.0);
    let (send, receive) = (net(&sends), net(&receives));
    Ok(if send + receive > 0.0 {
        send / (send + receive)
    } else {
        0.5
    })
}

/// Returns the mean without the slowest hundredth, in which the scheduler or the hypervisor took the CPU.
fn trimmed_mean(samples: &[f64]) -> f64 {
    let limit = stats::quantile(samples, 0.99);
    let kept: Vec<f64> = samples
        .iter()
        .copied()
        .filter(|&sample| sample <= limit)
        .collect();
    kept.iter().sum::<f64>() / kept.len() as f64
}

#[cold]
pub fn send_failed(errno: Errno) -> Failure {
    Failure::queue("a send failed in the middle of a measurement", errno)
}

#[cold]
pub fn receive_failed(errno: Errno) -> Failure {
    Failure::queue("a receive failed in the middle of a measurement", errno)
}
