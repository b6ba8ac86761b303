//! Waiting: spinning as long as it pays, then a node and a sleep.

use super::{Engine, Refused, Taken, Wakes};
use crate::counters::Event;
use crate::crash::crash_point;
use crate::error::Trouble;
use crate::lock::{Held, SLICE};
use crate::segment::Node;
use crate::sync::{Ordering, fence, spin_hint};
use crate::sys::clock::{self, Deadline};
use crate::sys::cpu;
use crate::sys::futex::{self, Slept};
use crate::sys::thread::Thread;
use crate::waiters::{self, List, State, Waiters};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// How a call on this handle waits for a message or for room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Waiting {
    /// Spins for some microseconds as long as that has paid lately and there is another processor, then sleeps.
    #[default]
    Adaptive,
    /// Sleeps at once: the least CPU time.
    Blocking,
    /// Spins until the deadline: the least latency, and a processor's whole time.
    Spinning,
}

/// The longest spin, and the first one, in nanoseconds.
const LONGEST: u32 = 50_000;
const FIRST: u32 = 20_000;
/// A spin shorter than this is not worth its while.
const SHORTEST: u32 = 2_000;
/// After spinning has not paid, so many waits sleep at once before it is tried again.
const PAUSE: u32 = 64;
/// Looks between two readings of the clock.
const LOOKS: u32 = 16;

/// How long a call spins that finds no node free, or that has been told to look again, in nanoseconds.
const NAP: Duration = Duration::from_millis(1);

/// How long the end of a timed wait waits for the lock.
const GRACE: Duration = Duration::from_millis(10);

/// What a handle remembers of its waits. Private to the process; races between its threads cost a wrong guess.
#[derive(Debug)]
pub(crate) struct Pacing {
    mode: AtomicU32,
    /// How long the next wait spins, in nanoseconds; below [`SHORTEST`]: not at all, so many waits are left of the pause.
    budget: AtomicU32,
}

impl Default for Pacing {
    fn default() -> Self {
        Pacing {
            mode: AtomicU32::new(0),
            budget: AtomicU32::new(FIRST),
        }
    }
}

// Relaxed throughout: heuristics.
impl Pacing {
    pub(crate) fn set(&self, waiting: Waiting) {
        self.mode.store(waiting as u32, Relaxed);
    }

    fn mode(&self) -> Waiting {
        match self.mode.load(Relaxed) {
            1 => Waiting::Blocking,
            2 => Waiting::Spinning,
            _ => Waiting::Adaptive,
        }
    }

    /// How long to spin now, in nanoseconds; 0 for not at all.
    fn allowance(&self) -> u32 {
        if cpu::available() < 2 {
            return 0;
        }
        match self.budget.load(Relaxed) {
            0 => {
                self.budget.store(SHORTEST, Relaxed);
                0
            }
            pause if pause < SHORTEST => {
                self.budget.store(pause - 1, Relaxed);
                0
            }
            budget => budget,
        }
    }

    fn paid(&self, budget: u32) {
        if budget < LONGEST {
            self.budget
                .store((budget + budget / 4).min(LONGEST), Relaxed);
        }
    }

    fn lost(&self, budget: u32) {
        let half = budget / 2;
        self.budget
            .store(if half < SHORTEST { PAUSE } else { half }, Relaxed);
    }
}

/// Why a sleep is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The node's word has changed.
    Settled,
    TimedOut,
    Interrupted,
}

impl From<End> for Refused {
    fn from(end: End) -> Self {
        match end {
            End::Interrupted => Refused::Interrupted,
            End::TimedOut => Refused::TimedOut,
            // The outcome was withdrawn, or its node says otherwise than its list.
            End::Settled => Refused::NotNow,
        }
    }
}

/// What became of an attempt to begin waiting.
enum Enlisted<'a, T> {
    /// There was no need to.
    Done(T),
    /// All nodes are taken.
    NoNode,
    /// The node is in its list.
    Waiting(u32, &'a Node),
}

impl Engine {
    /// Looks until `ready`, as long as the handle's pacing says. True if it is worth another attempt.
    pub(super) fn spin(&self, deadline: Deadline, ready: impl Fn() -> bool) -> bool {
        let budget = match self.pacing.mode() {
            Waiting::Blocking => return false,
            Waiting::Spinning => u32::MAX,
            Waiting::Adaptive => self.pacing.allowance(),
        };
        if budget == 0 {
            return false;
        }
        let paid = spin_until(budget, deadline, ready);
        if budget != u32::MAX {
            if paid {
                self.pacing.paid(budget)
            } else {
                self.pacing.lost(budget)
            }
        }
        if paid {
            self.segment().fixed().counters.count(Event::SpinPaid);
        }
        // A handle that only spins goes back to the attempt, which finds the deadline passed.
        paid || budget == u32::MAX
    }

    /// Waits for a message with a node. None: try again.
    pub(super) fn block_receiver(
        &self,
        me: &Thread,
        buffer: &mut [u8],
        deadline: Deadline,
    ) -> Result<Option<Taken>, Refused> {
        let mut wakes = Wakes::default();
        let held = self.lock_receiver(me, deadline, &mut wakes)?;
        let enlisted = self.enlist_receiver(me, buffer, &mut wakes);
        let Some((index, node, outer)) = self.begin(held, &wakes, &enlisted) else {
            return finish_early(enlisted);
        };
        crash_point!(WAIT_NAMED);
        let end = self.sleep(me, node, index, List::Receivers, deadline);
        crash_point!(WAIT_WOKEN);
        let result = self.end_receiver(me, node, buffer, end, deadline);
        me.unname(outer);
        match result {
            // The offer was withdrawn before we got the lock.
            Err(Refused::NotNow) => Ok(None),
            other => other.map(Some),
        }
    }

    /// Drops the lock. If the caller is enlisted, names its node to the kernel and wakes whom it served on the way.
    fn begin<'a, T>(
        &self,
        held: Held<'a>,
        wakes: &Wakes,
        enlisted: &Result<Enlisted<'a, T>, Refused>,
    ) -> Option<(u32, &'a Node, crate::sys::thread::Outer)> {
        let begun = match enlisted {
            Ok(Enlisted::Waiting(index, node)) => {
                Some((*index, *node, held.unlock_and_name(&node.word)))
            }
            _ => {
                held.unlock();
                None
            }
        };
        self.wake(wakes);
        begun
    }

    /// Serves those who came before, then the caller, or enlists it. Under the receiver lock.
    fn enlist_receiver(
        &self,
        me: &Thread,
        buffer: &mut [u8],
        wakes: &mut Wakes,
    ) -> Result<Enlisted<'_, Taken>, Refused> {
        match self.receive_locked(buffer, wakes) {
            Err(Refused::NotNow) => {}
            other => return other.map(Enlisted::Done),
        }
        let waiters = Waiters::of(self.segment());
        let Some((index, node)) = waiters.claim(me, 0)? else {
            return Ok(Enlisted::NoNode);
        };
        crash_point!(WAIT_NODE_FILLED);
        waiters.insert(List::Receivers, index)?;
        crash_point!(WAIT_LISTED);
        self.update_board();
        // ATTENTION: the flag, then the stamps; pairs with the barrier between stamp and flag in `try_send`.
        // Whichever comes second sees the other: the sender serves, or we find its message here.
        fence(Ordering::SeqCst);
        self.serve(wakes)?;
        self.update_board();
        Ok(Enlisted::Waiting(index, node))
    }

    /// Takes the outcome of a wait. The lock is needed: to free the slot, or to leave the list.
    fn end_receiver(
        &self,
        me: &Thread,
        node: &Node,
        buffer: &mut [u8],
        end: End,
        deadline: Deadline,
    ) -> Result<Taken, Refused> {
        let result = self.with_receiver_lock(me, last_patience(end, deadline), |_| {
            let result = self.take_offer(node, buffer, end);
            waiters::give_up(node);
            self.update_board();
            result
        });
        if result == Err(Refused::Trouble(Trouble::Busy)) {
            // The lock's owner is stopped. What was offered meanwhile goes back to the queue.
            waiters::give_up(node);
            return Err(if end == End::Settled {
                Refused::TimedOut
            } else {
                end.into()
            });
        }
        result
    }

    /// Under the receiver lock.
    fn take_offer(&self, node: &Node, buffer: &mut [u8], end: End) -> Result<Taken, Refused> {
        let waiters = Waiters::of(self.segment());
        let settled = waiters::state(node) == State::Settled;
        let slot = node.slot.get();
        if !settled {
            waiters.remove(node)?;
            self.segment().fixed().counters.count(Event::GivenUp);
            return Err(end.into());
        }
        let found = self.in_hand(slot)?;
        self.segment().copy_out(found.cell, found.len, buffer)?;
        // Off the list before the slot is free: a node in the list of the offered owns its slot.
        waiters.remove(node)?;
        self.free_slot(slot);
        self.note_receive();
        Ok(Taken {
            len: found.len,
            key: found.key,
        })
    }

    /// Waits for room with a node. True if the message was sent, false: try again.
    pub(super) fn block_sender(
        &self,
        me: &Thread,
        message: &[u8],
        key: usize,
        deadline: Deadline,
    ) -> Result<bool, Refused> {
        let mut wakes = Wakes::default();
        let held = self.lock_receiver(me, deadline, &mut wakes)?;
        let enlisted = self.enlist_sender(me, message, key, deadline, &mut wakes);
        let Some((index, node, outer)) = self.begin(held, &wakes, &enlisted) else {
            return finish_early(enlisted).map(|_| false);
        };
        crash_point!(WAIT_NAMED);
        let end = self.sleep(me, node, index, List::Senders, deadline);
        crash_point!(WAIT_WOKEN);
        let result = self.end_sender(me, node, end, deadline);
        me.unname(outer);
        result.map(|()| true)
    }

    /// Writes the message into a slot and enlists the caller, unless there is room after all. Under the receiver lock.
    fn enlist_sender(
        &self,
        me: &Thread,
        message: &[u8],
        key: usize,
        deadline: Deadline,
        wakes: &mut Wakes,
    ) -> Result<Enlisted<'_, ()>, Refused> {
        self.serve(wakes)?;
        self.update_board();
        let Some(slot) = self.park(me, message, key, deadline)? else {
            return Ok(Enlisted::Done(()));
        };
        let waiters = Waiters::of(self.segment());
        let Some((index, node)) = waiters.claim(me, slot)? else {
            self.free_slot(slot);
            return Ok(Enlisted::NoNode);
        };
        crash_point!(WAIT_NODE_FILLED);
        waiters.insert(List::Senders, index)?;
        crash_point!(WAIT_LISTED);
        Ok(Enlisted::Waiting(index, node))
    }

    /// Takes the outcome of a wait for room.
    fn end_sender(
        &self,
        me: &Thread,
        node: &Node,
        end: End,
        deadline: Deadline,
    ) -> Result<(), Refused> {
        let result = self.with_receiver_lock(me, last_patience(end, deadline), |_| {
            let result = if waiters::state(node) == State::Settled {
                // Whoever accepted it has stored it, or has died and the repair has.
                Ok(())
            } else {
                self.segment().fixed().counters.count(Event::GivenUp);
                self.withdraw_sender(node)
                    .map_err(Refused::from)
                    .and(Err(end.into()))
            };
            waiters::give_up(node);
            result
        });
        if result == Err(Refused::Trouble(Trouble::Busy)) {
            // The lock's owner is stopped. A node that can't be given up was accepted; it stays until its thread ends.
            return if waiters::give_up_waiting(node) {
                Err(end.into())
            } else {
                Ok(())
            };
        }
        result
    }

    /// Sleeps until the node's word changes, in slices: wake-ups can be lost with their waker.
    fn sleep(&self, me: &Thread, node: &Node, index: u32, list: List, deadline: Deadline) -> End {
        loop {
            if waiters::state(node) != State::Waiting {
                return End::Settled;
            }
            match futex::wait(&node.word, me.tid(), deadline.or_slice(SLICE)) {
                Slept::Interrupted => return End::Interrupted,
                Slept::TimedOut if deadline.has_passed() => return End::TimedOut,
                Slept::TimedOut => self.look_around(me, node, index, list),
                Slept::Awake => {}
            }
        }
    }

    /// At the end of a slice: does what a waker that died might have left undone, and what nobody else may ever do.
    fn look_around(&self, me: &Thread, node: &Node, index: u32, list: List) {
        let _ = self.with_receiver_lock(me, Deadline::Passed, |wakes| {
            let waiters = Waiters::of(self.segment());
            // An offer that we did not take up in time was taken back: we are here again.
            if waiters::state(node) == State::Waiting && List::of(node) == List::None {
                waiters.insert(list, index)?;
            }
            self.update_board();
            fence(Ordering::SeqCst); // ATTENTION, as in `enlist_receiver`
            self.serve(wakes)?;
            self.update_board();
            Ok(())
        });
    }
}

/// The result of a call that need not wait.
fn finish_early<T>(enlisted: Result<Enlisted<'_, T>, Refused>) -> Result<Option<T>, Refused> {
    match enlisted {
        Ok(Enlisted::Done(outcome)) => Ok(Some(outcome)),
        Ok(Enlisted::NoNode) => {
            nap();
            Ok(None)
        }
        Ok(Enlisted::Waiting(..)) => Ok(None),
        Err(refused) => Err(refused),
    }
}

/// Sleeps a millisecond.
fn nap() {
    let word = crate::sync::AtomicU32::new(0);
    let _ = futex::wait(&word, 0, Deadline::after(NAP));
}

/// How long the end of a wait waits for the lock: what was settled is worth waiting for until the deadline.
fn last_patience(end: End, deadline: Deadline) -> Deadline {
    let is_far = deadline.or_slice(GRACE.as_nanos() as u64) != deadline;
    if end == End::Settled && is_far {
        deadline
    } else {
        Deadline::after(GRACE)
    }
}

/// Looks until `ready`, at most `budget` nanoseconds (u32::MAX: until the deadline).
fn spin_until(budget: u32, deadline: Deadline, ready: impl Fn() -> bool) -> bool {
    let end = clock::monotonic().saturating_add(u64::from(budget));
    loop {
        for _ in 0..LOOKS {
            if ready() {
                return true;
            }
            spin_hint();
        }
        if deadline.has_passed() || (budget != u32::MAX && clock::monotonic() >= end) {
            return false;
        }
    }
}
