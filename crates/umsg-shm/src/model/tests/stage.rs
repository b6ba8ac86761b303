//! The parts of the models: a queue, threads that use it, and the account at the end.

use super::subject::Subject;
use crate::leases::Leases;
use crate::lock::SLICE;
use crate::model::crash::step;
use crate::model::segment::Segment;
use crate::model::thread::{self, Thread};
use crate::model::world;
use crate::posix_engine::{Engine, LeaseHandle, NoSlot, Refused};
use crate::sync::Ordering;
use crate::sys::clock::Deadline;
use crate::waiters::{List, Waiters};
use loom::thread::JoinHandle;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

/// Says whether a sleep ends with its slice.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Slices {
    /// A sleep has no slices: a thread that has lost its wake-up sleeps without end, which loom reports as a deadlock.
    Endless,
    /// A sleep ends when no process is awake.
    End,
}

/// Explores a model in all its interleavings with up to this number of preemptions.
pub(super) fn explore(
    name: &str,
    preemptions: usize,
    slices: Slices,
    model: impl Fn() + Send + Sync + 'static,
) {
    let executions = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&executions);
    let begin = Instant::now();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 20_000;
    builder.check(move || {
        counter.fetch_add(1, Relaxed);
        world::begin(slices == Slices::End);
        model();
    });
    println!(
        "{name}: {} executions in {:.1?}",
        executions.load(Relaxed),
        begin.elapsed()
    );
}

/// The thread that prepares a model and settles the account.
pub(super) const DIRECTOR: u32 = 9;

/// A deadline that has not passed at first and passes in the first sleep: a time-out that may come at any moment.
pub(super) const SOON: Deadline = Deadline::Monotonic(2);

/// A deadline that passes after three slices.
pub(super) const LATER: Deadline = Deadline::Monotonic(3 * SLICE);

/// A queue that threads share.
#[derive(Clone)]
pub(super) struct Queue(Arc<Engine>);

/// A message: its number and its priority.
pub(super) type Message = (u64, usize);

impl Queue {
    /// Makes a queue. For the numbers, see [`Segment::new`].
    pub(super) fn new(max_messages: usize, slots: usize) -> Queue {
        Queue::of(Engine::new(Segment::new(max_messages, slots)))
    }

    /// Returns a queue with this engine.
    pub(super) fn of(engine: Engine) -> Queue {
        Queue(Arc::new(engine))
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.0
    }

    pub(super) fn send(&self, me: &Thread, message: Message, by: Deadline) -> Result<(), Refused> {
        step();
        self.0.send(me, &message.0.to_ne_bytes(), message.1, by)
    }

    pub(super) fn receive(&self, me: &Thread, by: Deadline) -> Result<Message, Refused> {
        step();
        let mut buffer = [0; 8];
        let taken = self.0.receive(me, &mut buffer, by)?;
        assert_eq!(taken.len, 8);
        Ok((u64::from_ne_bytes(buffer), taken.key))
    }

    /// Leases a message, and reads it in place.
    pub(super) fn lease(
        &self,
        me: &Thread,
        by: Deadline,
    ) -> Result<(Message, LeaseHandle), Refused> {
        step();
        let handle = self.0.lease(me, by)?;
        let (segment, mut buffer) = (self.0.segment(), [0; 8]);
        let cell = segment.cell(handle.slot)?;
        segment.copy_out(cell, handle.len, &mut buffer)?;
        Ok(((u64::from_ne_bytes(buffer), handle.key), handle))
    }

    /// Reserves room, and writes a message into this room.
    pub(super) fn reserve(
        &self,
        me: &Thread,
        number: u64,
        by: Deadline,
    ) -> Result<LeaseHandle, Refused> {
        step();
        let handle = match by {
            Deadline::Passed => self.0.try_reserve(me, 8, by)?,
            _ => self.0.reserve(me, 8, by)?,
        };
        let segment = self.0.segment();
        segment.copy_in(segment.cell(handle.slot)?, &number.to_ne_bytes())?;
        Ok(handle)
    }

    /// Returns the number of slots in circulation.
    pub(super) fn slots(&self) -> u32 {
        self.0.segment().fixed().geometry.slots()
    }
}

impl Subject for Queue {
    type Message = Message;
    type Want = ();
    type Own = NoSlot;

    const ANY: () = ();

    fn send_one(&self, me: &Thread, message: Message, by: Deadline) -> Result<(), Refused> {
        self.send(me, message, by)
    }

    fn receive_one(&self, me: &Thread, (): (), by: Deadline) -> Result<Message, Refused> {
        self.receive(me, by)
    }

    fn let_holders_be_looked_at(&self) {
        let roots = &self.0.segment().fixed().leases;
        roots.look_after.store(0, Ordering::Relaxed);
    }

    fn audit(&self) {
        // This send takes both locks, so it repairs the data of dead owners.
        let message = (u64::MAX, 0);
        self.let_holders_be_looked_at();
        self.direct(|queue, me| queue.send(me, message, Deadline::Passed).unwrap());
        assert_eq!(self.empty(), [message]);
        let segment = self.0.segment();
        let fixed = segment.fixed();
        let drained = fixed.receiver.drained_hint();
        let sent = fixed.sender.sent_hint();
        let freed = fixed.published.freed_so_far();
        assert!(drained <= sent && sent <= freed, "{drained} {sent} {freed}");
        let account = self.direct(|queue, me| queue.0.account(me, Deadline::Passed).unwrap());
        assert_eq!(account.free, account.slots, "{account:?}");
        let stored = fixed.receiver.stored_hint();
        let removed = fixed.published.removed();
        let held = fixed.receiver.held();
        assert_eq!(sent - drained + stored + held, sent.wrapping_sub(removed));
        let reserved = fixed.leases.reserved.load(Ordering::Relaxed);
        let held = (held, reserved, Leases::of(segment).len());
        assert_eq!(held, (0, 0, 0), "held for good");
        for list in [List::Receivers, List::Offered, List::Senders] {
            assert_eq!(Waiters::of(segment).len(list), 0, "{list:?}");
        }
    }
}

/// Waits for the end of a thread that must not die, and returns its result.
pub(super) fn alive<T>(thread: JoinHandle<Option<T>>) -> T {
    thread::join(thread).expect("nobody killed this thread")
}

/// Repeats an attempt until it succeeds.
pub(super) fn polled<T>(mut attempt: impl FnMut() -> Result<T, Refused>) -> T {
    loop {
        match attempt() {
            Ok(result) => return result,
            Err(Refused::NotNow) => crate::sync::spin_hint(),
            Err(other) => panic!("{other:?}"),
        }
    }
}
