//! The memory of a queue, compared with the largest number of messages that the queue held at once.
//!
//! The figure is the memory that the file system has allocated for the queue's file, which is the whole queue. The kernel's column is the number of
//! bytes that such a queue counts against RLIMIT_MSGQUEUE (getrlimit(2)), whatever the queue contains. The number is computed, because the queue may
//! exceed the limit.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use crate::backends::umsg::{self, UmsgQueue};
use crate::backends::{Errno, MessageQueue as _, Spec};
use crate::failure::Failure;
use crate::harness::{Plan, Samples};
use crate::row::{Better, Row, Verdict};

const SUITE: &str = "memory";

/// The goal: the maximum bookkeeping for each message, in bytes.
const PER_MESSAGE: u64 = 96;

/// The goal: the maximum overhead of a queue, in bytes.
const PER_QUEUE: f64 = 1024.0 * 1024.0;

/// The goal: the maximum memory, as a multiple of the bytes and the bookkeeping.
const FACTOR: f64 = 1.3;

/// The number of priorities in the mixed cases: enough to exercise the store, which sorts by priority.
const PRIORITIES: u32 = 1_000;

/// A queue under test, with the largest number of messages that it held at once.
struct Watched {
    queue: UmsgQueue,
    file: PathBuf,
    spec: Spec,
    buffer: Vec<u8>,
    now: Load,
    peak: Load,
}

/// A number of messages, and the number of their bytes.
#[derive(Clone, Copy, Default)]
struct Load {
    messages: u64,
    bytes: u64,
}

impl Load {
    /// Returns the bytes of the messages with their bookkeeping. The goal is a multiple of this number.
    fn weight(self) -> u64 {
        self.bytes + PER_MESSAGE * self.messages
    }
}

pub fn run(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let long = if plan.quick { 200_000 } else { 3_000_000 };
    Ok(vec![
        nothing()?,
        filled("65,536 of 16 B in a queue for 8 KB", 65_536, 16)?,
        filled("10,000 of 1 KB in a queue for 8 KB", 10_000, 1024)?,
        filled("2,000 of 8 KB in a queue for 8 KB", 2_000, 8192)?,
        phases(
            "16 B, then 1 KB, then 8 KB, drained between",
            &[(65_536, 16), (10_000, 1024), (2_000, 8192)],
        )?,
        phases(
            "8 KB, then 1 KB, then 16 B, drained between",
            &[(2_000, 8192), (10_000, 1024), (65_536, 16)],
        )?,
        mixed()?,
        one_at_a_time(long)?,
    ])
}

/// A queue with room for 65,536 messages of 8 KB, which take 512 MB if the queue is full.
const DECLARED: Spec = Spec {
    depth: 65_536,
    message_size: 8_192,
};

fn nothing() -> Result<Row, Failure> {
    Watched::new(DECLARED)?.row("nothing in a queue for 65,536 of 8 KB")
}

fn filled(name: &str, messages: u32, size: usize) -> Result<Row, Failure> {
    let mut watched = Watched::new(DECLARED)?;
    for _ in 0..messages {
        watched.send(size, 0)?;
    }
    watched.row(name)
}

/// Measures phases with different message sizes: the memory of successive phases must not add up.
fn phases(name: &str, phases: &[(u32, usize)]) -> Result<Row, Failure> {
    let mut watched = Watched::new(DECLARED)?;
    for &(messages, size) in phases {
        for number in 0..messages {
            watched.send(size, number % PRIORITIES)?;
        }
        watched.drain()?;
    }
    watched.row(name)
}

/// Measures messages of sizes from nothing to 8 KB, sent and received in no particular order.
fn mixed() -> Result<Row, Failure> {
    let mut watched = Watched::new(DECLARED)?;
    let mut state = 0x9e37_79b9_u32;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state
    };
    for _ in 0..100_000 {
        // Three sends to two receives: the queue grows all the time.
        if random() % 5 < 3 {
            // The sizes are spread evenly over the orders of magnitude.
            let size = (random() % 8193) >> (random() % 14);
            watched.send(size as usize, random() % PRIORITIES)?;
        } else {
            watched.receive()?;
        }
    }
    watched.row("0 B to 8 KB, sent and received at random")
}

/// Measures a queue that is declared deep, but never holds more than one message.
fn one_at_a_time(times: u32) -> Result<Row, Failure> {
    let mut watched = Watched::new(Spec {
        depth: 1_000_000,
        message_size: 1_024,
    })?;
    for number in 0..times {
        watched.send(1_024, number % PRIORITIES)?;
        watched.receive()?;
    }
    watched.row("one of 1 KB at a time, in a queue for 1,000,000")
}

impl Watched {
    fn new(spec: Spec) -> Result<Self, Failure> {
        let (queue, file) = umsg::make_with_file(&spec)?;
        Ok(Self {
            queue,
            file,
            spec,
            buffer: vec![0x5a; spec.message_size as usize],
            now: Load::default(),
            peak: Load::default(),
        })
    }

    fn send(&mut self, size: usize, priority: u32) -> Result<(), Failure> {
        let sent = self.queue.try_send(&self.buffer[..size], priority);
        sent.map_err(|errno| Failure::queue("a send failed while memory was measured", errno))?;
        self.now.messages += 1;
        self.now.bytes += size as u64;
        if self.now.weight() > self.peak.weight() {
            self.peak = self.now;
        }
        Ok(())
    }

    /// Receives a message, if there is one. Returns whether there was one.
    fn receive(&mut self) -> Result<bool, Failure> {
        match self.queue.try_receive(&mut self.buffer) {
            Ok(length) => {
                self.now.messages -= 1;
                self.now.bytes -= length as u64;
                Ok(true)
            }
            Err(Errno::AGAIN) => Ok(false),
            Err(errno) => Err(Failure::queue(
                "a receive failed while memory was measured",
                errno,
            )),
        }
    }

    fn drain(&mut self) -> Result<(), Failure> {
        while self.receive()? {}
        if self.now.messages == 0 {
            Ok(())
        } else {
            Err(Failure::new(format!(
                "{} messages are missing",
                self.now.messages
            )))
        }
    }

    fn row(self, name: &str) -> Result<Row, Failure> {
        // st_blocks counts blocks of 512 bytes, regardless of the file system's block size.
        let resident = std::fs::metadata(&self.file)?.blocks() as f64 * 512.0;
        let goal = FACTOR * self.peak.weight() as f64 + PER_QUEUE;
        let (umsg, kernel) = (Samples(vec![resident]), Samples(vec![charge(self.spec)]));
        Ok(
            Row::compare(SUITE, name, "bytes", Better::Less, &umsg, &kernel)
                .column("messages_at_once", Some(self.peak.messages as f64))
                .column("bytes_at_once", Some(self.peak.bytes as f64))
                .column("goal_bytes", Some(goal))
                .note("kernel: what it charges to RLIMIT_MSGQUEUE for such a queue, used or not")
                .goal(
                    "<= 1.3 x (bytes + 96 each) + 1 MB",
                    Verdict::of(Some(resident <= goal)),
                ),
        )
    }
}

/// Computes the charge as in getrlimit(2), with the sizes of the kernel's structures on 64-bit machines.
fn charge(spec: Spec) -> f64 {
    const MSG_MSG: f64 = 48.0;
    const TREE_NODE: f64 = 48.0;
    const PRIORITIES: f64 = 32_768.0;
    let depth = f64::from(spec.depth);
    depth * (MSG_MSG + f64::from(spec.message_size)) + depth.min(PRIORITIES) * TREE_NODE
}
