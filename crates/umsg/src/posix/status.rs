//! Status of a queue.

use super::dead_letter::{self, Undelivered};
use super::notify::{self, Registered};
use super::queue::Queue;
use crate::statistics::statistics;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::{Duration, SystemTime};
use umsg_shm::arena;
use umsg_shm::posix_engine::segment::{Fixed, OnFull, Policy};
use umsg_shm::posix_engine::{Counts, Engine};
use umsg_shm::sync::Ordering;
use umsg_shm::sys::clock;
use umsg_shm::sys::liveness::Liveness;
use umsg_shm::sys::thread;
use umsg_shm::waiters::{List, Waiters};

/// The attributes that mq_getattr(3) returns, and the number of queued bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attributes {
    /// Capacity of the queue, in messages.
    pub max_messages: usize,
    /// Length of the longest message, in bytes.
    pub message_size: usize,
    /// Number of queued messages. It can exceed the capacity: if a message was offered to a receiver that died or was stopped, and the queue was full again
    /// when the message came back.
    pub messages: usize,
    /// Number of queued bytes.
    pub bytes: u64,
    /// Number of reserved messages: written in place and not committed. Reserved messages count for the capacity.
    pub reserved: usize,
    /// Number of leased messages: received in place and not acknowledged. Leased messages count for the capacity. A message that is offered to a
    /// thread that waits for a lease counts as leased. If that thread is dead, the message counts until a send or a receive withdraws the offer.
    pub leased: usize,
    /// Number of delayed messages: sent or returned for a later delivery, before their delivery time. Delayed messages count for the capacity.
    pub delayed: usize,
}

/// The complete status of a queue, without its messages.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The attributes.
    pub attributes: Attributes,
    /// Permission bits.
    pub mode: u32,
    /// The owner's user id.
    pub uid: u32,
    /// The owner's group id.
    pub gid: u32,
    /// Process id of the creator. 0 if the queue was created in another PID or time namespace, because the id would name another process in this
    /// namespace.
    pub creator: u32,
    /// Time of the queue's creation.
    pub created: SystemTime,
    /// Number of threads that wait for room. Killed threads are not counted.
    pub blocked_senders: usize,
    /// Number of threads that wait for a message. Killed threads are not counted.
    pub blocked_receivers: usize,
    /// Time of the last send, accurate to a few milliseconds; `None` if there was none.
    pub last_send: Option<SystemTime>,
    /// Time of the last receive, accurate to a few milliseconds; `None` if there was none.
    pub last_receive: Option<SystemTime>,
    /// Number of slots, in use or free. The number is slightly more than the greatest number of messages and blocked senders that the queue ever had
    /// at once.
    pub slots: usize,
    /// Bytes of memory in use by slots and blocks.
    pub memory: u64,
    /// Counts of events since the queue's creation, such as waits and repairs.
    pub statistics: Statistics,
    /// The queue's overflow policy.
    pub on_full: OnFull,
    /// The largest age of a message; `None` for no limit.
    pub time_to_live: Option<Duration>,
    /// The maximum number of leases of a message; `None` for no limit.
    pub max_deliveries: Option<u32>,
    /// The dead-letter queue, which gets the messages that this queue could not keep or deliver.
    pub dead_letter: Option<OsString>,
    /// True if the queue is removed when no process has it open any more.
    pub remove_on_last_close: bool,
    /// Number of messages set aside for the dead-letter queue.
    pub set_aside: usize,
    /// The reason why the caller can't move the messages that are set aside. `None` if the caller can move them as soon as there is room.
    pub undelivered: Option<Undelivered>,
    /// The process that is registered for a notification, if it lives.
    pub registered: Option<Registered>,
    /// True if the queue is closed for sending. Also true if all its producers have died, although only the next send or receive then closes the
    /// queue.
    pub send_closed: bool,
    /// True if the end of the last producer closes the queue for sending.
    pub close_with_last_producer: bool,
    /// The delays before a returned message is delivered again: the delay after the first return, which doubles with each further return, and the
    /// longest delay. `None` for no delay.
    pub retry_delay: Option<(Duration, Duration)>,
    /// The number of deliveries of higher priorities before a lower priority has its turn; `None` for strict order.
    pub fair_priorities: Option<u32>,
    /// True if the queue notes the events of its messages.
    pub trace_messages: bool,
    /// Number of living processes that count as producers.
    pub producers: usize,
    /// True if the queue's memory held a state that no operation leaves behind.
    pub damaged: bool,
}

statistics! {
    events {
        /// Number of messages that were dropped because the queue was full.
        Dropped: dropped,
        /// Number of messages that exceeded the queue's time to live.
        Expired: expired,
        /// Number of messages that were moved to the dead-letter queue.
        DeadLettered: dead_lettered,
    }
    repairs {
        /// Number of repairs of the senders' side after a process's death.
        sender_repairs,
        /// Number of repairs of the receivers' side after a process's death.
        receiver_repairs,
    }
}

/// Returns the attributes without taking the lock. Each number is correct, but the numbers may belong to different instants.
pub(super) fn attributes(engine: &Engine) -> Attributes {
    with_counts(engine, &engine.counts())
}

/// Returns the attributes at one instant, with the restrictions of [`Engine::settled_counts`].
pub(super) fn settled_attributes(engine: &Engine) -> Attributes {
    with_counts(engine, &engine.settled_counts(thread::current()))
}

fn with_counts(engine: &Engine, counts: &Counts) -> Attributes {
    let layout = engine.segment().layout();
    Attributes {
        max_messages: layout.max_messages,
        message_size: layout.message_size,
        messages: counts.messages as usize,
        bytes: counts.bytes,
        reserved: counts.reserved as usize,
        leased: counts.leased as usize,
        delayed: counts.delayed as usize,
    }
}

/// Returns a queue's permission bits, without other bits that a process may have written to the word.
pub(super) fn mode(fixed: &Fixed) -> u32 {
    fixed.header.mode() & 0o7777
}

pub(super) fn status(queue: &Queue) -> Status {
    let (engine, (uid, gid)) = (&queue.engine, queue.owner);
    let fixed = engine.segment().fixed();
    let (waiters, policy) = (Waiters::of(engine.segment()), engine.policy());
    // Relaxed: each number is correct. The numbers belong to one instant only if the queue is idle.
    let slots = fixed.geometry.slots() as usize;
    Status {
        attributes: settled_attributes(engine),
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
        statistics: statistics(fixed),
        on_full: policy.on_full,
        time_to_live: (policy.time_to_live != 0).then(|| Duration::from_nanos(policy.time_to_live)),
        max_deliveries: (policy.max_deliveries != 0).then_some(policy.max_deliveries),
        dead_letter: policy.dead_letter.clone().map(OsString::from_vec),
        remove_on_last_close: policy.remove_on_last_close,
        undelivered: dead_letter::undelivered(queue),
        set_aside: fixed.leases.aside.load(Ordering::Relaxed) as usize,
        registered: notify::registered(engine),
        send_closed: engine.is_send_closed()
            || policy.close_with_producers && engine.has_lost_producers(thread::current()),
        close_with_last_producer: policy.close_with_producers,
        retry_delay: retry_delay(policy),
        fair_priorities: (policy.fair_priorities != 0).then_some(policy.fair_priorities),
        trace_messages: policy.trace_messages,
        producers: match policy.close_with_producers {
            true => engine.producers(thread::current()).unwrap_or_default(),
            false => 0,
        },
        damaged: fixed.header.damage.is_noted(),
    }
}

/// Returns the delays before a returned message is delivered again: the first delay, and the longest delay.
pub(super) fn retry_delay(policy: &Policy) -> Option<(Duration, Duration)> {
    let [first, most] = policy.retry_delay.map(Duration::from_nanos);
    (!first.is_zero()).then(|| (first, most.max(first)))
}

/// Returns the queue's [`Statistics`].
pub(super) fn statistics(fixed: &Fixed) -> Statistics {
    let [sender_repairs, receiver_repairs] = fixed.repairs();
    Statistics::of(&fixed.counters, sender_repairs, receiver_repairs)
}

/// Converts a reading of the machine's clock to a time; 0 means never.
pub(super) fn moment(at: u64) -> Option<SystemTime> {
    (at != 0).then(|| clock::shown(at))
}

/// Converts nanoseconds since 1970 to a time; 0 means never.
pub(super) fn time(nanoseconds: u64) -> Option<SystemTime> {
    (nanoseconds != 0).then(|| SystemTime::UNIX_EPOCH + Duration::from_nanos(nanoseconds))
}
