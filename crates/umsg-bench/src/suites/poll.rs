//! The cost of polling. One thread sends and receives while no process polls, and while an epoll set is notified. Two processes that sleep in
//! epoll_wait(2) exchange messages.
//!
//! In a queue that is empty at first, each send and each receive changes the level. With a backlog, no send or receive changes the level, so that
//! only edge-triggered pollers are notified.

use std::ffi::c_int;
use std::os::fd::AsRawFd as _;

use umsg::Edges;

use super::pairs::{self, Extent, MESSAGE_SIZE};
use super::priorities::{Constant, Priorities as _};
use crate::backends::kernel::KernelQueue;
use crate::backends::umsg::UmsgQueue;
use crate::backends::{Errno, MessageQueue, Spec};
use crate::clock;
use crate::duo::{self, Places};
use crate::failure::Failure;
use crate::harness::{Plan, Side};
use crate::row::{Better, Row};
use crate::shared::SharedWords;
use crate::stats;

const SUITE: &str = "poll";

/// The capacity of the queues.
const DEPTH: u32 = 10;
/// The number of messages in a backlog.
const BACKLOG: u32 = 5;

/// The number of round trips before the measurement.
const WARM_UP: u64 = 100;
/// The maximum number of measured round trips that are kept.
const KEPT: usize = 200_000;
/// The message after which both processes stop.
const LAST: u8 = 1;

/// A poller: its events, and the way in which they are reported.
#[derive(Clone, Copy)]
struct Poller {
    name: &'static str,
    events: c_int,
    edges: Edges,
}

const LEVEL: Poller = Poller {
    name: "polled by level",
    events: libc::EPOLLIN,
    edges: Edges::Changes,
};

const POLLERS: [Option<Poller>; 4] = [
    None,
    Some(LEVEL),
    Some(Poller {
        name: "polled by edge for messages",
        events: libc::EPOLLIN | libc::EPOLLET,
        edges: Edges::Messages,
    }),
    Some(Poller {
        name: "polled by edge for both",
        events: libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLET,
        edges: Edges::All,
    }),
];

/// A queue with a descriptor that can be polled.
trait Pollable: MessageQueue {
    fn descriptor(&self, edges: Edges) -> Result<c_int, Failure>;
}

impl Pollable for UmsgQueue {
    fn descriptor(&self, edges: Edges) -> Result<c_int, Failure> {
        let polled = self.queue().pollable_with(edges);
        let polled =
            polled.map_err(|error| Failure::new(format!("umsg is not polled: {error}")))?;
        Ok(polled.as_raw_fd())
    }
}

impl Pollable for KernelQueue {
    fn descriptor(&self, _: Edges) -> Result<c_int, Failure> {
        Ok(self.number())
    }
}

/// An epoll set with one descriptor.
struct Set(c_int);

impl Set {
    fn new(queue: &impl Pollable, poller: Poller) -> Result<Set, Failure> {
        let descriptor = queue.descriptor(poller.edges)?;
        let mut event = libc::epoll_event {
            events: poller.events as u32,
            u64: 0,
        };
        // SAFETY: the descriptors belong to this process, and the event is a local.
        let (set, added) = unsafe {
            let set = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            (
                set,
                libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, descriptor, &raw mut event),
            )
        };
        match added {
            0 => Ok(Set(set)),
            _ => Err(Failure::new(format!("epoll_ctl: {}", Errno::last()))),
        }
    }

    /// Sleeps until an event.
    fn wait(&self) {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: the call writes at most one event, to a local.
        unsafe { libc::epoll_wait(self.0, &raw mut event, 1, -1) };
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        // SAFETY: the descriptor belongs to this value, which closes it once.
        unsafe { libc::close(self.0) };
    }
}

pub fn run(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for backlog in [0, BACKLOG] {
        for poller in POLLERS {
            if plan.only.has(&name_of_one(poller, backlog)) {
                rows.push(one_thread(plan, poller, backlog)?);
            }
        }
    }
    let first = plan.cpus.first;
    let apart = |second| ("two cores", Places::Apart(first, second));
    let places = [
        Some(("one core", Places::Together(first))),
        plan.cpus.second.map(apart),
    ];
    for (cores, places) in places.into_iter().flatten() {
        if plan.only.has(&name_of_two(cores)) {
            rows.push(two_processes(plan, cores, places)?);
        }
    }
    Ok(rows)
}

/// Returns the rows of the suite "guard", with a process that polls: an empty queue, and a queue with a backlog.
pub fn guard(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let row = |backlog| one_thread(plan, Some(LEVEL), backlog);
    Ok(vec![row(0)?, row(BACKLOG)?])
}

fn name_of_one(poller: Option<Poller>, backlog: u32) -> String {
    let whom = poller.map_or("nobody polls", |poller| poller.name);
    let where_to = if backlog == 0 { "empty" } else { "backlog" };
    format!("send + receive, {where_to}, {whom}")
}

fn name_of_two(cores: &str) -> String {
    format!("round trip, {cores}, both in epoll_wait")
}

fn one_thread(plan: &Plan, poller: Option<Poller>, backlog: u32) -> Result<Row, Failure> {
    let name = name_of_one(poller, backlog);
    let (mut umsg, mut kernel) = (Side::new(), Side::new());
    for round in 0..plan.rounds {
        plan.progress(&format!("poll: {name}"), round);
        umsg.round(|| pair::<UmsgQueue>(plan, poller, backlog));
        kernel.round(|| pair::<KernelQueue>(plan, poller, backlog));
    }
    if let Some(failure) = umsg.failure {
        return Err(Failure::new(format!("{name}: {failure}")));
    }
    let (ours, theirs) = (umsg.each(|&time| time), kernel.each(|&time| time));
    let row = Row::compare(SUITE, name, "ns", Better::Less, &ours, &theirs)
        .spreads(&ours, &theirs)
        .reason("kernel", kernel.failure.as_ref());
    Ok(match poller {
        Some(_) => row.goal_ratio(1.0),
        None => row,
    })
}

/// Measures the nanoseconds of a send and a receive.
fn pair<Q: Pollable>(plan: &Plan, poller: Option<Poller>, backlog: u32) -> Result<f64, Failure> {
    let queue = make::<Q>()?;
    let _set = poller.map(|poller| Set::new(&queue, poller)).transpose()?;
    let mut priorities = Constant::FIRST;
    pairs::fill(&queue, backlog, &mut priorities)?;
    pairs::pair(&queue, &mut priorities, Extent::timed(plan.budget))
}

fn make<Q: MessageQueue>() -> Result<Q, Failure> {
    Q::make(&Spec {
        depth: DEPTH,
        message_size: MESSAGE_SIZE as u32,
    })
}

fn two_processes(plan: &Plan, cores: &str, places: Places) -> Result<Row, Failure> {
    let name = name_of_two(cores);
    let (mut umsg, mut kernel) = (Side::new(), Side::new());
    for round in 0..plan.rounds {
        plan.progress(&format!("poll: {name}"), round);
        umsg.round(|| trips::<UmsgQueue>(plan, places));
        kernel.round(|| trips::<KernelQueue>(plan, places));
    }
    if let Some(failure) = umsg.failure {
        return Err(Failure::new(format!("{name}: {failure}")));
    }
    let (ours, theirs) = (umsg.each(|&time| time), kernel.each(|&time| time));
    let row = Row::compare(SUITE, name, "ns", Better::Less, &ours, &theirs)
        .spreads(&ours, &theirs)
        .reason("kernel", kernel.failure.as_ref())
        .note("each sleeps in epoll_wait, by level, and receives until there is nothing");
    Ok(row.goal_ratio(1.0))
}

/// Measures the nanoseconds of a round trip.
fn trips<Q: Pollable>(plan: &Plan, places: Places) -> Result<f64, Failure> {
    let (there, back) = (make::<Q>()?, make::<Q>()?);
    let words = SharedWords::new(1)?;
    let budget = plan.duo_budget.as_nanos() as u64;
    duo::run(
        places,
        |barrier| {
            let set = Set::new(&back, LEVEL)?;
            barrier.meet();
            let time = call(&there, &back, &set, budget)?;
            words.set(0, time);
            Ok(())
        },
        |barrier| {
            let set = Set::new(&there, LEVEL)?;
            barrier.meet();
            while receive(&there, &set)? != LAST {
                send(&back, 0)?;
            }
            Ok(())
        },
    )?;
    Ok(words.get(0) as f64)
}

/// Returns the median time of a round trip.
fn call<Q: MessageQueue>(there: &Q, back: &Q, set: &Set, budget: u64) -> Result<u64, Failure> {
    // The vector is filled once, so that no page fault falls into a round trip.
    let mut times = vec![1.0; KEPT];
    times.clear();
    for _ in 0..WARM_UP {
        send(there, 0)?;
        receive(back, set)?;
    }
    let mut before = clock::now();
    let end = before + budget;
    while before < end && times.len() < KEPT {
        send(there, 0)?;
        receive(back, set)?;
        let after = clock::now();
        times.push((after - before) as f64);
        before = after;
    }
    send(there, LAST)?;
    Ok(stats::median(&times) as u64)
}

fn send<Q: MessageQueue>(queue: &Q, what: u8) -> Result<(), Failure> {
    let sent = queue.try_send(&[what; MESSAGE_SIZE], 0);
    sent.map_err(|errno| Failure::new(format!("a send failed: {errno}")))
}

fn receive<Q: MessageQueue>(queue: &Q, set: &Set) -> Result<u8, Failure> {
    let mut buffer = [0; MESSAGE_SIZE];
    loop {
        set.wait();
        match queue.try_receive(&mut buffer) {
            Ok(_) => return Ok(buffer[0]),
            Err(Errno::AGAIN) => {}
            Err(errno) => return Err(Failure::new(format!("a receive failed: {errno}"))),
        }
    }
}
