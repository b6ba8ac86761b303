//! The sender and receiver processes of `umsg bench-queue`.
//!
//! A process writes `ready` to its standard output. A sender then reads the time at which to begin. At the end, each process prints a line of JSON.
//! The receivers end when the last sender has ended and the queue is empty: the queue closes with its last producer.

use std::io::{self, Write};
use std::time::Duration;

use clap::ValueEnum;
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};
use serde::{Deserialize, Serialize};
use umsg::Namespace;
use umsg::posix::{OpenOptions, Queue, ReceiveError, SendError, Waiting};

use super::latency::{Counts, Latencies};
use super::{failed, of_queue};
use crate::failure::{Failure, Result};
use crate::output::{self, json};

/// The size of the timestamps at the beginning of a message: the planned time of the send, and the actual time.
pub const HEAD: usize = 16;

/// Before a message is due, a sender sleeps until this number of nanoseconds is left, and then spins: a sleeping thread wakes up late.
const LEAD: u64 = 60_000;

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Send,
    Receive,
}

/// The settings of a sender or receiver process.
pub struct Load {
    /// The number of messages to send in a second; 0 for as many as possible.
    pub rate: f64,
    pub size: usize,
    pub time: Duration,
    pub waiting: Waiting,
}

/// The result of a sender.
#[derive(Debug, Serialize, Deserialize)]
pub struct Sent {
    pub messages: u64,
    pub seconds: f64,
    pub cpu_seconds: f64,
}

/// The result of a receiver.
#[derive(Debug, Serialize, Deserialize)]
pub struct Received {
    pub messages: u64,
    pub cpu_seconds: f64,
    pub latency: Counts,
    pub from_schedule: Counts,
}

/// Nanoseconds of CLOCK_MONOTONIC, which all processes of the machine share.
pub fn now() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn cpu_seconds() -> f64 {
    nanoseconds(clock_gettime(ClockId::ProcessCPUTime)) as f64 / 1e9
}

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Role::Send => "send",
            Role::Receive => "receive",
        }
    }

    pub fn perform(self, namespace: &Namespace, name: &str, load: &Load) -> Result {
        let queue = OpenOptions::new()
            .read(self == Role::Receive)
            .write(self == Role::Send)
            .namespace(namespace)
            .open(name)
            .map_err(|error| Failure::of(name, error))?;
        queue.set_waiting(load.waiting);
        match self {
            Role::Send => print(&send(&queue, load)?),
            Role::Receive => print(&receive(&queue, load)?),
        }
    }
}

fn print(result: &impl Serialize) -> Result {
    let mut out = output::standard()?;
    json::print(&mut out, result)?;
    Ok(out.flush()?)
}

fn ready() -> Result {
    let mut out = output::standard()?;
    writeln!(out, "ready")?;
    Ok(out.flush()?)
}

fn send(queue: &Queue, load: &Load) -> Result<Sent> {
    let producer = queue.producer().map_err(of_queue)?;
    ready()?;
    let mut line = String::new();
    io::stdin()
        .read_line(&mut line)
        .map_err(|error| failed(&error))?;
    let begin: u64 = line.trim().parse().map_err(|error| failed(&error))?;
    let end = begin + load.time.as_nanos() as u64;
    let mut message = vec![0; load.size];
    let cpu = cpu_seconds();
    wait_until(begin);
    let mut messages = 0;
    loop {
        let due = match load.rate == 0.0 {
            true => now(),
            false => begin + (messages as f64 * 1e9 / load.rate) as u64,
        };
        let at = wait_until(due.min(end));
        // A sender ends at the end of the measurement even if it can't keep the rate.
        if at >= end {
            break;
        }
        message[..8].copy_from_slice(&due.to_le_bytes());
        message[8..HEAD].copy_from_slice(&at.to_le_bytes());
        if !put(queue, &message, end)? {
            break;
        }
        messages += 1;
    }
    drop(producer);
    Ok(Sent {
        messages,
        seconds: now().saturating_sub(begin) as f64 / 1e9,
        cpu_seconds: cpu_seconds() - cpu,
    })
}

/// Sends a message, and waits for room until `end`. Returns false if no room became free.
fn put(queue: &Queue, message: &[u8], end: u64) -> Result<bool> {
    match queue.try_send(message, 0) {
        Err(SendError::Full) => {}
        other => return other.map(|()| true).map_err(of_queue),
    }
    let patience = Duration::from_nanos(end.saturating_sub(now()));
    match queue.send_timeout(message, 0, patience) {
        Err(SendError::TimedOut) => Ok(false),
        other => other.map(|()| true).map_err(of_queue),
    }
}

/// Waits until a time. Returns the actual time after the wait.
fn wait_until(due: u64) -> u64 {
    loop {
        let now = now();
        if now >= due {
            return now;
        }
        match due - now > LEAD {
            true => sleep_until(due - LEAD),
            false => std::hint::spin_loop(),
        }
    }
}

fn sleep_until(at: u64) {
    let at = Timespec {
        tv_sec: (at / 1_000_000_000) as i64,
        tv_nsec: (at % 1_000_000_000) as i64,
    };
    // If a signal interrupts the sleep, the caller reads the clock again.
    let _ = clock_nanosleep_absolute(ClockId::Monotonic, &at);
}

fn receive(queue: &Queue, load: &Load) -> Result<Received> {
    let mut buffer = vec![0; load.size];
    let (mut latency, mut from_schedule) = (Latencies::new(), Latencies::new());
    ready()?;
    let (cpu, mut messages) = (cpu_seconds(), 0);
    loop {
        match queue.receive(&mut buffer) {
            Ok(_) => {}
            Err(ReceiveError::Closed) => break,
            Err(error) => return Err(of_queue(error)),
        }
        let now = now();
        let [due, at] = [0, 8].map(|at| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&buffer[at..at + 8]);
            u64::from_le_bytes(bytes)
        });
        latency.record(now.saturating_sub(at));
        from_schedule.record(now.saturating_sub(due));
        messages += 1;
    }
    Ok(Received {
        messages,
        cpu_seconds: cpu_seconds() - cpu,
        latency: latency.counts(),
        from_schedule: from_schedule.counts(),
    })
}
