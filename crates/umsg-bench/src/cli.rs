//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

/// umsg and the kernel's own message queues, side by side
#[derive(Parser, Debug)]
#[command(
    version,
    after_help = "\
Examples:
  umsg-bench mqueue                 the table published in 2012, on this machine
  umsg-bench stream --json          throughput between two processes, for a program to read
  umsg-bench msg                    System V queues: pairs of threads on one queue, receiving by type
  umsg-bench all --quick            everything, in a few minutes, with less certain figures

The kernel allows an unprivileged process queues of 10 messages; its column is measured at the
deepest queue that it allows the caller (RLIMIT_MSGQUEUE and /proc/sys/fs/mqueue, which are never
changed), and the output says how deep that was. A System V queue of more than 16,384 bytes it makes for
root only: then in an IPC namespace that belongs to the measurement.

A ratio says how many times better umsg is than the kernel in the same run: above 1, umsg is faster.
Progress goes to standard error."
)]
pub struct Cli {
    /// What to measure
    pub suite: Suite,
    /// Print an array of rows in JSON instead of tables
    #[arg(long)]
    pub json: bool,
    /// Shorter rounds, and fewer of the slow cases
    #[arg(long)]
    pub quick: bool,
    /// Rounds to take medians over [default: 7, with --quick 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// The drop-in library to measure [default: libumsg_preload.so beside this program]
    #[arg(long, value_name = "FILE")]
    pub dropin: Option<PathBuf>,
    /// Give the kernel's queues no more than this many messages, even if it allows more
    #[arg(long, value_name = "N", default_value_t = u32::MAX, hide_default_value = true,
          value_parser = clap::value_parser!(u32).range(2..))]
    pub kernel_depth: u32,
    /// Give up, and clean up, after this many minutes
    #[arg(long, value_name = "N", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(1..=1440))]
    minutes: u64,
}

/// The suites, each a question.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// One thread: an empty queue, a full one, filling and draining, by order of priorities
    Mqueue,
    /// One thread: does the cost stay flat from 1 to 1,000,000 messages?
    Depth,
    /// Two processes, one direction: messages a second
    Stream,
    /// Two processes, one direction, several messages a call
    Batch,
    /// Two processes, back and forth: time of a round trip
    Pingpong,
    /// What it costs that somebody polls: sends and receives of one thread, two processes in epoll_wait
    Poll,
    /// Two processes, messages of a megabyte: copied, and in place
    Copy,
    /// What a queue takes in memory
    Memory,
    /// Two cores: does a hammered queue slow down who works beside it?
    Neighbour,
    /// System V queues: one thread, pairs of threads on one queue, receiving by type, 160 threads
    Msg,
    /// The totals of all System V queues: kept in one place, by CPU or by queue; 1 to 160 threads
    Counters,
    /// Message rings beside io_uring's MSG_RING: a post every 10 and 20 us, and how much goes through
    Ring,
    /// All of the above
    All,
}

impl Suite {
    /// The single suites that this one stands for.
    pub fn expand(self) -> Vec<Suite> {
        match self {
            Suite::All => vec![
                Suite::Mqueue,
                Suite::Depth,
                Suite::Stream,
                Suite::Batch,
                Suite::Pingpong,
                Suite::Poll,
                Suite::Copy,
                Suite::Memory,
                Suite::Neighbour,
                Suite::Msg,
                Suite::Counters,
                Suite::Ring,
            ],
            single => vec![single],
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Suite::Mqueue => "mqueue",
            Suite::Depth => "depth",
            Suite::Stream => "stream",
            Suite::Batch => "batch",
            Suite::Pingpong => "pingpong",
            Suite::Poll => "poll",
            Suite::Copy => "copy",
            Suite::Memory => "memory",
            Suite::Neighbour => "neighbour",
            Suite::Msg => "msg",
            Suite::Counters => "counters",
            Suite::Ring => "ring",
            Suite::All => "all",
        }
    }
}

impl Cli {
    pub fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.quick { 5 } else { 7 })
    }

    /// How long the whole run may take.
    pub fn deadline(&self) -> Duration {
        Duration::from_secs(self.minutes * 60)
    }
}
