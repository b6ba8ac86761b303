//! What a queue says of itself.

use super::dead_letter::{self, Undelivered};
use super::notify::{self, Registered};
use super::queue::Queue;
use crate::statistics::statistics;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::{Duration, SystemTime};
use umsg_shm::arena;
use umsg_shm::posix_engine::Engine;
use umsg_shm::posix_engine::segment::{Fixed, OnFull};
use umsg_shm::sync::Ordering;
use umsg_shm::sys::clock;
use umsg_shm::sys::liveness::Liveness;
use umsg_shm::waiters::{List, Waiters};

/// The attributes that mq_getattr(3) gives, and the bytes that are queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attributes {
    /// How many messages the queue may hold.
    pub max_messages: usize,
    /// How long a message may be, in bytes.
    pub message_size: usize,
    /// How many messages are queued now.
    pub messages: usize,
    /// How many bytes these have together.
    pub bytes: u64,
    /// How many messages are reserved: written in place and not committed. They count for the capacity.
    pub reserved: usize,
    /// How many messages are leased: received in place and not acknowledged. They count for the capacity.
    pub leased: usize,
}

/// All that can be said about a queue without looking at its messages.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// See [`Attributes`].
    pub attributes: Attributes,
    /// Permission bits.
    pub mode: u32,
    /// The owner's user id.
    pub uid: u32,
    /// The owner's group id.
    pub gid: u32,
    /// Process id of the creator; 0 if the queue was created in another PID or time namespace, where the number means another process.
    pub creator: u32,
    /// When the queue was created.
    pub created: SystemTime,
    /// Threads that wait for room, without those that were killed meanwhile.
    pub blocked_senders: usize,
    /// Threads that wait for a message, without those that were killed meanwhile.
    pub blocked_receivers: usize,
    /// When the last message was sent, to a few milliseconds; None if never.
    pub last_send: Option<SystemTime>,
    /// When the last message was received, to a few milliseconds; None if never.
    pub last_receive: Option<SystemTime>,
    /// Slots in circulation: the most messages that were ever queued at once, and some.
    pub slots: usize,
    /// Bytes of memory in use by slots and blocks.
    pub memory: u64,
    /// How often what happened.
    pub statistics: Statistics,
    /// What a send does that finds the queue full.
    pub on_full: OnFull,
    /// How old a message may get; None for any age.
    pub time_to_live: Option<Duration>,
    /// How often a message may be leased; None for any number.
    pub max_deliveries: Option<u32>,
    /// The queue that gets what this one could not keep or deliver.
    pub dead_letter: Option<OsString>,
    /// Whether the queue is removed when no process has it open any more.
    pub remove_on_last_close: bool,
    /// Messages on their way there.
    pub set_aside: usize,
    /// Why the caller can't move them there. None if it can, as soon as there is room.
    pub undelivered: Option<Undelivered>,
    /// The process that is registered for a notification, if it lives.
    pub registered: Option<Registered>,
    /// Whether something was found in the queue's memory that no operation could have left there.
    pub damaged: bool,
}

statistics! {
    events {
        /// Messages that were dropped because the queue was full.
        Dropped: dropped,
        /// Messages that were older than the queue lets them get.
        Expired: expired,
        /// Messages that were moved to the dead-letter queue.
        DeadLettered: dead_lettered,
    }
    repairs {
        /// Repairs of the senders' side after a death.
        sender_repairs,
        /// Repairs of the receivers' side after a death.
        receiver_repairs,
    }
}

pub(super) fn attributes(engine: &Engine) -> Attributes {
    let layout = engine.segment().layout();
    let counts = engine.counts();
    Attributes {
        max_messages: layout.max_messages,
        message_size: layout.message_size,
        messages: counts.messages as usize,
        bytes: counts.bytes,
        reserved: counts.reserved as usize,
        leased: counts.leased as usize,
    }
}

/// A queue's permission bits, whatever else was scribbled there.
pub(super) fn mode(fixed: &Fixed) -> u32 {
    fixed.header.mode() & 0o7777
}

pub(super) fn status(queue: &Queue) -> Status {
    let (engine, (uid, gid)) = (&queue.engine, queue.owner);
    let fixed = engine.segment().fixed();
    let (waiters, policy) = (Waiters::of(engine.segment()), engine.policy());
    // Relaxed: each figure for itself is right; together they are a snapshot only of a queue at rest.
    let slots = fixed.geometry.slots() as usize;
    let [sender_repairs, receiver_repairs] = fixed.receiver.repairs();
    Status {
        attributes: attributes(engine),
        mode: mode(fixed),
        uid,
        gid,
        creator: match engine.segment().is_home() {
            true => fixed.header.creator(),
            false => 0,
        },
        created: time(fixed.header.created_at()).unwrap_or(SystemTime::UNIX_EPOCH),
        blocked_senders: waiters.living(List::Senders),
        blocked_receivers: waiters.living(List::Receivers) + waiters.living(List::Offered),
        last_send: moment(fixed.sender.last_send()),
        last_receive: moment(fixed.receiver.last_receive()),
        slots,
        memory: engine.segment().memory(slots) + arena::allocated(engine.segment()) as u64,
        statistics: Statistics::of(&fixed.counters, sender_repairs, receiver_repairs),
        on_full: policy.on_full,
        time_to_live: (policy.time_to_live != 0).then(|| Duration::from_nanos(policy.time_to_live)),
        max_deliveries: (policy.max_deliveries != 0).then_some(policy.max_deliveries),
        dead_letter: policy.dead_letter.clone().map(OsString::from_vec),
        remove_on_last_close: policy.remove_on_last_close,
        undelivered: dead_letter::undelivered(queue),
        set_aside: fixed.leases.aside.load(Ordering::Relaxed) as usize,
        registered: notify::registered(engine),
        damaged: fixed.header.damage.is_noted(),
    }
}

/// A reading of the machine's clock as a time; 0 is never.
fn moment(at: u64) -> Option<SystemTime> {
    (at != 0).then(|| clock::shown(at))
}

/// Nanoseconds since 1970 as a time; 0 is never.
pub(super) fn time(nanoseconds: u64) -> Option<SystemTime> {
    (nanoseconds != 0).then(|| SystemTime::UNIX_EPOCH + Duration::from_nanos(nanoseconds))
}
