//! The wait of both engines: a call whose attempt fails waits, and attempts again. Its thread sleeps in slices.

use super::{List, Node, State, state};
use crate::fault::Fault;
use crate::lock::SLICE;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::sys::clock::{self, Deadline};
use crate::sys::futex::{self, Slept};
use crate::sys::thread::{Calm, Thread};
use std::time::Duration;

/// The length of the sleep of a call that finds no free node, in nanoseconds.
const NAP: u64 = 1_000_000;

/// The greatest lag of the coarse clock behind the exact clock, in nanoseconds, on a kernel with 250 ticks a second. The coarse clock decides when
/// leases end.
pub(crate) const TICK: u64 = 4_000_000;

/// The time for which a thread waits for the lock at the end of a timed wait.
pub(crate) const GRACE: Duration = Duration::from_millis(10);

/// The reason why an attempt failed. `Own` has the reasons of one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused<Own> {
    /// The queue has no room, or no message that the caller selects.
    NotNow,
    /// The deadline passed.
    TimedOut,
    /// A signal handler ran.
    Interrupted,
    /// The queue is closed for sending. A receiver gets this only if the queue is empty, too.
    Closed,
    /// A fault of the queue or of the system.
    Fault(Fault),
    /// A reason that only one engine has.
    Own(Own),
}

impl<Own> Refused<Own> {
    /// Turns a time-out into `NotNow` if the call must not block.
    #[cold]
    pub(crate) fn by(self, deadline: Deadline) -> Self {
        match (self, deadline) {
            (
                Refused::NotNow | Refused::TimedOut | Refused::Fault(Fault::Busy),
                Deadline::Passed,
            ) => Refused::NotNow,
            (Refused::NotNow | Refused::Fault(Fault::Busy), _) => Refused::TimedOut,
            (other, _) => other,
        }
    }

    /// Returns the fault that made an attempt to take a lock fail. A refusal without a fault means that the lock's owner does not release the lock.
    #[cfg(not(loom))]
    pub(crate) fn fault(self) -> Fault {
        match self {
            Refused::Fault(fault) => fault,
            _ => Fault::Busy,
        }
    }
}

impl<Own> From<Fault> for Refused<Own> {
    fn from(fault: Fault) -> Self {
        Refused::Fault(fault)
    }
}

/// The result of an attempt to put the thread's node into a list.
pub(crate) enum Enlisted<Waiting, T> {
    /// The operation succeeded without a wait.
    Done(T),
    /// All nodes or all slots are in use, so the thread can't wait in a list.
    NoNode,
    /// The node is in its list.
    Waiting(Waiting),
}

/// The reason why a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The node's word has changed.
    Settled,
    TimedOut,
    Interrupted,
    /// No other thread will end the wait, for example because the queue was closed.
    Abandoned,
}

impl End {
    /// Returns the refusal of a call whose wait failed. `abandoned` is the engine's refusal for [`End::Abandoned`].
    pub(crate) fn refused<Own>(self, abandoned: Refused<Own>) -> Refused<Own> {
        match self {
            End::Interrupted => Refused::Interrupted,
            End::TimedOut => Refused::TimedOut,
            End::Abandoned => abandoned,
            // The outcome was withdrawn, or the node contradicts its list.
            End::Settled => Refused::NotNow,
        }
    }
}

/// Alternates waits and attempts until an attempt succeeds or the deadline passes. If `wait` returns None, the function makes the next attempt.
pub(crate) fn wait_and_attempt<T, Own, C: ?Sized>(
    call: &mut C,
    deadline: Deadline,
    mut wait: impl FnMut(&mut C) -> Result<Option<T>, Refused<Own>>,
    mut attempt: impl FnMut(&mut C) -> Result<T, Refused<Own>>,
) -> Result<T, Refused<Own>> {
    while !deadline.has_passed() {
        match wait(call) {
            Ok(Some(outcome)) => return Ok(outcome),
            Ok(None) => {}
            Err(Refused::Fault(Fault::Busy)) if !deadline.has_passed() => {}
            Err(refused) => return Err(refused.by(deadline)),
        }
        match attempt(call) {
            Err(Refused::NotNow) => {}
            other => return other.map_err(|refused| refused.by(deadline)),
        }
    }
    Err(Refused::NotNow.by(deadline))
}

/// A thread that waits with its node.
pub(crate) struct Sleeper<'a> {
    pub(crate) me: &'a Thread,
    pub(crate) node: &'a Node,
    pub(crate) list: List,
    pub(crate) calm: Calm<'a>,
    pub(crate) deadline: Deadline,
}

impl Sleeper<'_> {
    pub(crate) fn is_settled(&self) -> bool {
        state(self.node) != State::Waiting
    }

    /// Sleeps in slices until the node's word changes. A wake-up can be lost if the thread that should send it dies.
    ///
    /// `announce` runs before each sleep, `look_around` after each slice. Each of these functions returns true if the wait is abandoned. `lease_end`
    /// is the time at which the first lease expires; 0 for never.
    pub(crate) fn sleep(
        &self,
        lease_end: &AtomicU64,
        announce: impl Fn() -> bool,
        mut look_around: impl FnMut() -> bool,
    ) -> End {
        loop {
            if announce() {
                return End::Abandoned;
            }
            if self.is_settled() {
                return End::Settled;
            }
            let slice = self.deadline.or_slice(self.slice(lease_end));
            match super::sleep(self.node, self.me, self.calm, slice) {
                Slept::Interrupted => return End::Interrupted,
                Slept::TimedOut if self.deadline.has_passed() => return End::TimedOut,
                Slept::TimedOut if look_around() => return End::Abandoned,
                Slept::Awake if self.is_settled() => return End::Settled,
                // The deadline is checked after each wake-up, because a hostile process could wake this thread endlessly.
                Slept::Awake if self.deadline.has_passed() => return End::TimedOut,
                Slept::Awake | Slept::TimedOut => {}
            }
        }
    }

    /// Returns the longest sleep, in nanoseconds. A receiver wakes up when a lease expires, because the leased message may return to the queue.
    fn slice(&self, lease_end: &AtomicU64) -> u64 {
        // Relaxed: the next slice sees a later change.
        match (self.list, lease_end.load(Ordering::Relaxed)) {
            (List::Receivers, end) if end != 0 => {
                let rest = end.saturating_sub(clock::monotonic());
                rest.saturating_add(TICK).min(SLICE)
            }
            _ => SLICE,
        }
    }
}

/// Sleeps a millisecond, or until the deadline.
pub(crate) fn nap<Own>(calm: Calm<'_>, deadline: Deadline) -> Result<(), Refused<Own>> {
    let word = AtomicU32::new(0);
    match futex::wait_in_calm(&word, 0, calm, deadline.or_slice(NAP)) {
        Slept::Interrupted => Err(Refused::Interrupted),
        Slept::Awake | Slept::TimedOut => Ok(()),
    }
}
