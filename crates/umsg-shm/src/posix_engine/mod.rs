//! The engine of a POSIX queue, which has two sides that do not share cache lines.
//!
//! ```text
//!   senders                                            receivers
//!   sender lock                                        receiver lock
//!      |   fill slot ring[sent], store its stamp            |   take slot ring[drained], write ring[freed]
//!      v                                                    v
//!   [ ring: drained <= sent <= freed ]  ------------->  [ store: messages by priority ]
//!      ^                                                    |
//!      |   parked: a blocked sender's message               |   offered: a blocked receiver's message
//!      +----------------------- nodes ----------------------+
//! ```
//!
//! A send accesses the senders' side and the cell. A receive accesses the receivers' side and the cell. If a receiver waits, the sender *serves* it:
//! the sender also takes the receiver lock, and hands messages over.
//!
//! Lock order: a thread that holds the sender lock never waits for the receiver lock. A thread that needs both locks takes the receiver lock first
//! and borrows the sender lock.

#[cfg(any(loom, feature = "crash-points"))]
mod account;
pub mod batch;
mod delay;
mod end_of_stream;
mod fair;
#[cfg(all(test, not(loom)))]
mod forged;
mod found;
mod glance;
mod grow;
mod held_messages;
mod inspect;
mod lease;
mod notification;
mod owner;
mod policy;
mod prefetch;
mod producers;
mod receive;
mod recover;
mod reserve;
#[cfg(not(loom))]
mod salvage;
mod saved;
pub mod segment;
mod send;
mod serve;
mod spin;
mod tag;
mod trace;
mod transfer;
mod wait;
mod wake_word;
mod watch;

pub use found::Taken;
pub use held_messages::LeaseHandle;
pub use inspect::{Counts, PeekedMessages, Seen, SeenHistory};
pub use notification::{Claim, Outcome, RegisterError, Registered, What};
pub use policy::Chore;
pub(crate) use segment::Priorities;
pub use segment::has_begun;
pub use segment::notice::armed;
#[cfg_attr(
    loom,
    allow(unused_imports, reason = "the face of rings is not modelled")
)]
pub use segment::{CLOSED, DISABLED, ENABLED};
pub use tag::marked;
pub use transfer::{Arrival, DeadLetter, Departure, Origin};
pub use wake_word::Notifier;

use self::policy::Selection;
use self::prefetch::Expected;
use crate::doorbell::Doorbell;
use crate::doorbell::Watched;
use crate::fault::Fault;
use crate::lock::deferred_wakes::DeferredWakes;
use crate::lock::tokens::ReceiverHeld;
use crate::lock::{Held, Left, LockError};
use crate::posix_engine::segment::Segment;
use crate::producers::NextQuery;
use crate::report;
use crate::sys::clock::Deadline;
use crate::sys::futex;
use crate::sys::thread::Thread;
use crate::waiters;
use crate::waiters::pacing::Pacing;
use std::sync::Arc;

/// A bit of the attention word: receivers are blocked. The attention word is one of the wait flags, and every sender reads it.
pub const RECEIVERS: u32 = 1;
/// A bit of the attention word: a process is registered for a notification, and the queue was empty at the last check.
pub(crate) const NOTICE: u32 = 2;
/// A bit of the attention word: a process polls the doorbell. The bit is set under both locks.
pub(crate) const WATCHED: u32 = 4;
/// A bit of the attention word: the queue is closed for sending. The bit changes under both locks.
pub const SEND_CLOSED: u32 = 8;
/// A bit of the attention word: the queue has had producers (processes that count as senders), and is closed for sending when the last producer ends.
/// The bit is never cleared.
pub(crate) const COUNTED: u32 = 16;
/// A bit of the attention word: a message is delayed. The bit changes under the receiver lock.
pub(crate) const DELAYED: u32 = 32;

/// The reason why an attempt did not succeed.
pub type Refused = waiters::wait::Refused<NoSlot>;

/// The error of a queue with room but without a free slot in circulation. The caller grows the queue and tries again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSlot;

/// A queue, as used by one handle of this process. Only the meaning of a message's priority is specific to POSIX queues.
#[derive(Debug)]
pub struct Engine {
    segment: Segment,
    pub pacing: Pacing,
    expected: Expected,
    /// The rule that selects the next message. The rule depends on the queue's policy, which never changes.
    selection: Selection,
    /// The additional work that calls on this handle do, see [`Chore`].
    chore: Option<Chore>,
    /// The function that makes the descriptor of a ring's receiver readable. `None` if the queue is not a ring.
    notifier: Option<wake_word::Notifier>,
    /// The doorbell of this handle, for pollers.
    doorbell: Doorbell,
    /// For receives: the time at which this handle may check again whether a producer lives.
    next_query: NextQuery,
    /// For sends: the time at which this handle may check again whether a producer lives.
    next_query_to_send: NextQuery,
    /// The device and the inode number of the file. `None` if no process can register for a notification of the queue.
    #[cfg(not(loom))]
    identity: Option<(u64, u64)>,
    /// The function that handles this process's fired registrations with the queue.
    #[cfg(not(loom))]
    raise_own: Option<notification::RaiseOwn>,
    /// The name of the queue, with its slash, for reports. The name is empty if no process needs reports.
    name: Arc<[u8]>,
}

/// The number of slices for which a call waits for a sender lock that is lent.
const LOANS: u32 = 5;

impl Engine {
    pub fn new(segment: Segment) -> Engine {
        Engine {
            doorbell: Doorbell::of(&segment),
            next_query: NextQuery::default(),
            next_query_to_send: NextQuery::default(),
            selection: Selection::of(segment.policy()),
            segment,
            pacing: Pacing::default(),
            expected: Expected::default(),
            chore: None,
            notifier: None,
            #[cfg(not(loom))]
            identity: None,
            #[cfg(not(loom))]
            raise_own: None,
            name: Arc::default(),
        }
    }

    /// Creates an engine of the same segment, for a thread that may live longer than this engine. The new engine has no [`Chore`].
    #[cfg(not(loom))]
    pub fn share(&self) -> Engine {
        let mut engine = Engine::new(self.segment.share());
        engine.identity = self.identity;
        engine.raise_own = self.raise_own;
        engine.name = self.name.clone();
        engine
    }

    /// Sets the identity of the queue, and the function that handles this process's fired registrations with the queue.
    #[cfg(not(loom))]
    pub fn set_identity(&mut self, identity: (u64, u64), raise_own: notification::RaiseOwn) {
        self.identity = Some(identity);
        self.raise_own = Some(raise_own);
    }

    /// Returns the device and the inode number of the file. No process can forge them.
    #[cfg(not(loom))]
    pub fn identity(&self) -> Option<(u64, u64)> {
        self.identity
    }

    /// Returns `None`: a model has only one queue, which needs no identity.
    #[cfg(loom)]
    pub(crate) fn identity(&self) -> Option<(u64, u64)> {
        Some((0, 0))
    }

    /// Sets the name of the queue, with its slash, for reports.
    pub fn set_name(&mut self, name: &[u8]) {
        self.name = name.into();
    }

    /// Notes an event for the log of the program, see [`report`]. `pid` is the id of a dead process.
    #[cold]
    fn report(&self, what: report::What, pid: u32) {
        report::note(what, report::Subject::Named(&self.name), pid, 0);
    }

    pub fn set_notifier(&mut self, notifier: Notifier) {
        self.notifier = Some(notifier);
    }

    #[inline(always)]
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Takes the sender lock, and repairs the senders' side if its last owner died.
    #[inline(always)]
    fn lock_sender<'a>(&'a self, me: &'a Thread, deadline: Deadline) -> Result<Held<'a>, Fault> {
        let lock = &self.segment.fixed().sender.lock;
        match lock.lock_if_free(me, &self.segment) {
            Some(held) => Ok(held),
            None => self.lock_sender_slow(me, deadline),
        }
    }

    #[cold]
    fn lock_sender_slow<'a>(
        &'a self,
        me: &'a Thread,
        deadline: Deadline,
    ) -> Result<Held<'a>, Fault> {
        let lock = &self.segment.fixed().sender.lock;
        let mut loans = 0;
        loop {
            match lock.lock_contended(me, &self.segment, deadline, &|| false) {
                Ok((held, Left::InOrder | Left::Counted)) => return Ok(held),
                Ok((held, Left::ByTheDead)) => {
                    recover::sender_side(held.sender(), &self.segment)?;
                    self.report(report::What::Repaired, self.segment.fixed().died_last(0));
                    return Ok(held);
                }
                Err(LockError::TimedOut) => return Err(Fault::Busy),
                Err(LockError::OwnedByCaller) => return Err(Fault::OwnedByCaller),
                // A correct borrower gives the lock back within a few slices.
                Err(LockError::NoThread) if loans == LOANS => return Err(Fault::Busy),
                // The sender lock is lent. The borrower holds the receiver lock, or died with it. If the borrower died, the next owner of the
                // receiver lock repairs both sides.
                Err(LockError::NoThread) => {
                    loans += 1;
                    let mut wakes = DeferredWakes::default();
                    let held = self.lock_receiver(me, deadline, &mut wakes)?;
                    let receiving = held.receiver();
                    if lock.is_left_lent() {
                        // The loan is not genuine: this thread holds the receiver lock and has borrowed nothing, so no living thread is a borrower. A
                        // process has overwritten the word.
                        let both = receiving.with_loan();
                        recover::sender_side(both.sender(), &self.segment)?;
                        lock.give_back();
                    }
                    self.note_change(receiving, &mut wakes);
                    held.unlock();
                    self.wake(&wakes);
                }
            }
        }
    }

    /// Takes the receiver lock. If its last owner died, repairs the receivers' side and serves all waiters.
    #[inline(always)]
    fn lock_receiver<'a>(
        &'a self,
        me: &'a Thread,
        deadline: Deadline,
        wakes: &mut DeferredWakes,
    ) -> Result<Held<'a>, Fault> {
        let lock = &self.segment.fixed().receiver.lock;
        match lock.lock_if_free(me, &self.segment) {
            Some(held) => Ok(held),
            None => self.lock_receiver_slow(me, deadline, wakes),
        }
    }

    #[cold]
    fn lock_receiver_slow<'a>(
        &'a self,
        me: &'a Thread,
        deadline: Deadline,
        wakes: &mut DeferredWakes,
    ) -> Result<Held<'a>, Fault> {
        let lock = &self.segment.fixed().receiver.lock;
        let mut attempt = lock.lock_contended(me, &self.segment, deadline, &|| false);
        if let Err(LockError::NoThread) = attempt {
            attempt = lock.lock_anyway(me, &self.segment, deadline);
        }
        match attempt {
            Ok((held, Left::InOrder | Left::Counted)) => Ok(held),
            Ok((held, Left::ByTheDead)) => {
                let receiving = held.receiver();
                recover::receiver_side(receiving, self)?;
                self.report(report::What::Repaired, self.segment.fixed().died_last(1));
                self.serve(receiving, wakes)?;
                self.update_wait_flags(receiving);
                self.repair_poll_fifo(receiving);
                wakes.add_everybody(waiters::Waiters::of(&self.segment).usable());
                wakes.add_reports();
                Ok(held)
            }
            Err(LockError::TimedOut | LockError::NoThread) => Err(Fault::Busy),
            Err(LockError::OwnedByCaller) => Err(Fault::OwnedByCaller),
        }
    }

    /// Updates the attention word, which shows senders whether they must serve waiters. Callers call this function after each change of the waiters'
    /// lists.
    fn update_wait_flags(&self, receiving: ReceiverHeld<'_>) {
        let waiting = waiters::Waiters::of(&self.segment).len(waiters::List::Receivers) != 0;
        let receivers = if waiting { RECEIVERS } else { 0 };
        self.set_attention(
            receiving,
            RECEIVERS | NOTICE,
            receivers | self.notice_wanted(),
        );
    }

    /// Sets the bits of the attention word that are in `bits` to their values in `flags`.
    fn set_attention(&self, receiving: ReceiverHeld<'_>, bits: u32, flags: u32) {
        let wait_flags = &self.segment.fixed().wait_flags;
        wait_flags.set_attention(receiving, bits, flags);
    }

    /// Wakes the threads whose wait has ended. The caller has released the lock.
    #[inline(always)]
    fn wake(&self, wakes: &DeferredWakes) {
        if !wakes.is_empty() {
            self.wake_slow(wakes);
        }
    }

    #[cold]
    fn wake_slow(&self, wakes: &DeferredWakes) {
        for index in wakes.nodes().iter().copied().chain(wakes.everybody()) {
            if let Ok(node) = self.segment.node(index) {
                futex::wake(waiters::futex(node), 1);
            }
        }
        if let Some(fired) = wakes.fired() {
            self.tell_registered(fired);
        }
        // This call may have admitted the message of a blocked sender. No send wakes the receiver of a ring for this message, so this call does.
        self.ring_anyway();
        #[cfg(not(loom))]
        if wakes.need_timekeeper() {
            crate::doorbell::Polled::keep_time_after_call(self);
        }
        wakes.tell_reports();
    }

    /// Runs `work` under the receiver lock, then wakes the waiters that `work` settled.
    #[inline(always)]
    fn with_receiver_lock<T>(
        &self,
        me: &Thread,
        deadline: Deadline,
        work: impl FnOnce(ReceiverHeld<'_>, &mut DeferredWakes) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        self.with_receiver_lock_and_ring(me, deadline, work, || None::<fn()>)
    }

    /// Runs `work` as [`with_receiver_lock`](Self::with_receiver_lock) does. If `work` has deferred the ring of the doorbell, `take_ring` returns a
    /// function that makes this ring. The function runs right after the unlock, before the wake-ups and reports, which may take time. Without a
    /// deferred ring, the doorbell shows the level to pollers before the unlock.
    #[inline(always)]
    fn with_receiver_lock_and_ring<T, R: FnOnce()>(
        &self,
        me: &Thread,
        deadline: Deadline,
        work: impl FnOnce(ReceiverHeld<'_>, &mut DeferredWakes) -> Result<T, Refused>,
        take_ring: impl FnOnce() -> Option<R>,
    ) -> Result<T, Refused> {
        let mut wakes = DeferredWakes::default();
        let held = self.lock_receiver(me, deadline, &mut wakes)?;
        let receiving = held.receiver();
        let mut result = work(receiving, &mut wakes);
        self.note_change(receiving, &mut wakes);
        if let Err(Refused::NotNow) = result {
            self.look_at_doorbell(receiving);
            result = Err(self.not_now(receiving, me, &mut wakes));
        }
        let ring = take_ring();
        if ring.is_none() {
            self.settle_doorbell(receiving, &mut wakes);
        }
        held.unlock();
        if let Some(ring) = ring {
            ring();
        }
        self.wake(&wakes);
        self.segment.check()?;
        result
    }

    /// Records in the header that the segment is corrupt.
    #[cold]
    pub fn note_damage(&self) {
        self.segment.fixed().header.damage.note();
        self.report(report::What::Corrupted, 0);
    }
}
