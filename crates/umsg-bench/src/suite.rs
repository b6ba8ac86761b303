//! The suites. Each suite answers one question.

use clap::ValueEnum;

/// The suites of measurements.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// One thread: an empty queue, a full queue, filling and draining, by order of priorities
    Mqueue,
    /// One thread: does the cost stay flat from 1 to 1,000,000 messages?
    Depth,
    /// Two processes, one direction: messages a second
    Stream,
    /// Two processes, one direction, several messages a call
    Batch,
    /// Two processes, back and forth: time of a round trip
    Pingpong,
    /// The cost of polling: sends and receives of one thread, two processes in epoll_wait
    Poll,
    /// Two processes, messages of a megabyte: copied, and in place
    Copy,
    /// The memory that a queue takes
    Memory,
    /// System V queues: one thread, pairs of threads on one queue, receiving by type, 160 threads
    Msg,
    /// The totals of all System V queues: kept in one place, by CPU or by queue; 1 to 160 threads
    Counters,
    /// Message rings and io_uring's MSG_RING: a post every 10 and 20 us, and the throughput
    Ring,
    /// Two cores: does a heavily used queue slow down a process on the other core?
    Neighbour,
    /// A program's calls around its messages: open, create, notify, fork, totals; through the drop-in
    Everyday,
    /// Threads of SCHED_FIFO: priority inversion, and wake-up latency under load; through the drop-in
    Realtime,
    /// umsg and Boost, iceoryx2, crossbeam, pipe, socket, eventfd, Redis, NATS; and which survivor is stuck when one of two processes is
    /// killed
    Peers,
    /// All of the above
    All,
    /// Does `umsg top` slow down a heavily used queue? Not part of "all", because it measures the command
    Watch,
    /// One or a few rows of each suite, in half a minute: the rows that `cargo xtask bench-check` compares
    Guard,
}

/// All suites, in the order in which they run.
const ALL: [Suite; 15] = [
    Suite::Mqueue,
    Suite::Depth,
    Suite::Stream,
    Suite::Batch,
    Suite::Pingpong,
    Suite::Poll,
    Suite::Copy,
    Suite::Memory,
    Suite::Msg,
    Suite::Counters,
    Suite::Ring,
    Suite::Neighbour,
    Suite::Everyday,
    Suite::Realtime,
    Suite::Peers,
];

impl Suite {
    /// Returns the suites of a group, or the suite itself.
    pub fn expand(self) -> Vec<Suite> {
        match self {
            Suite::All => ALL.to_vec(),
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
            Suite::Msg => "msg",
            Suite::Counters => "counters",
            Suite::Ring => "ring",
            Suite::Neighbour => "neighbour",
            Suite::Everyday => "everyday",
            Suite::Realtime => "realtime",
            Suite::Peers => "peers",
            Suite::All => "all",
            Suite::Watch => "watch",
            Suite::Guard => "guard",
        }
    }

    /// Returns the duration on a machine with two CPUs, from which the remaining time is estimated.
    pub fn seconds(self, quick: bool) -> u32 {
        let (short, full) = match self {
            Suite::Mqueue => (12, 75),
            Suite::Depth => (2, 8),
            Suite::Stream => (11, 100),
            Suite::Batch => (8, 35),
            Suite::Pingpong => (7, 80),
            Suite::Poll => (4, 15),
            Suite::Copy => (1, 3),
            Suite::Memory => (1, 2),
            Suite::Msg => (43, 150),
            Suite::Counters => (12, 45),
            Suite::Ring => (35, 230),
            Suite::Neighbour => (17, 150),
            Suite::Everyday => (16, 130),
            Suite::Realtime => (12, 60),
            Suite::Peers => (15, 45),
            Suite::All => (0, 0),
            Suite::Watch => (6, 185),
            Suite::Guard => (17, 35),
        };
        if quick { short } else { full }
    }

    /// Returns the parts that a quick run omits or shortens, in addition to shorter rounds.
    pub fn left_out(self) -> Option<&'static str> {
        match self {
            Suite::Mqueue => Some("mqueue: the sorted array of 2012 is measured in one round"),
            Suite::Stream => Some(
                "stream: messages of 1,024 and 8,192 bytes in queues of 1,024 only, blocking and adaptive",
            ),
            Suite::Pingpong => Some("pingpong: messages of 1,024 and 8,192 bytes"),
            Suite::Neighbour => {
                Some("neighbour: 3 pairs of runs in place of 30, which resolve little")
            }
            Suite::Everyday => Some("everyday: stress-ng runs in one round, for one second"),
            Suite::Realtime => Some("realtime: 2 seconds a row and side in place of 10"),
            Suite::Watch => Some("watch: 3 seconds a row in place of 42"),
            Suite::Peers => Some("peers: two kills a round of each in place of 40"),
            _ => None,
        }
    }
}
