//! Status of a ring.

use super::message::HEAD;
use super::receiver::Ring;
use super::sender::Sender;
use super::shared::Shared;
use std::time::{Duration, SystemTime};
use umsg_shm::arena;
use umsg_shm::counters::Event;
use umsg_shm::posix_engine::{CLOSED, ENABLED, Engine};
use umsg_shm::sys::clock;
use umsg_shm::sys::liveness;
use umsg_shm::sys::process;
use umsg_shm::waiters::{List, Waiters};

/// The state of a ring at a recent moment. The counts begin when the ring was made.
///
/// # CPU time
/// A receiver's CPU time of waiting has three parts: [`time_spun`](Status::time_spun), some microseconds for each time that the receiver
/// [`slept`](Status::slept), and less than a microsecond for each yield. A receiver yields up to four times before a sleep; yields are not counted.
/// While the receiver is [asleep](Status::time_asleep), it takes no CPU time.
///
/// The times of spinning and sleeping are measured while the receiver waits. Measuring costs nothing if a message is already in the ring. Other
/// processes see the time of a successful spin when the next wait begins. A wait on the ring's descriptor is not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// Number of messages for which the ring has room without the overflow.
    pub entries: u32,
    /// Number of messages for which the overflow has room.
    pub overflow: u32,
    /// The longest payload, in bytes.
    pub longest: usize,
    /// Number of messages that wait for the receiver.
    pub messages: u64,
    /// Number of messages in the overflow: those beyond the [`entries`](Status::entries).
    pub overflowing: u64,
    /// Number of messages that were ever sent.
    pub sent: u64,
    /// Number of messages that were ever received.
    pub received: u64,
    /// The time at which the oldest message in the ring was sent, accurate to a few milliseconds; `None` without a message. While messages are
    /// received, this may be the time of a later message.
    pub oldest: Option<SystemTime>,
    /// True if the ring accepts senders.
    pub enabled: bool,
    /// True if the ring was closed.
    pub closed: bool,
    /// Process id of the receiver.
    pub owner: u32,
    /// True if the receiver lives, as far as this process can find out.
    pub owner_alive: bool,
    /// Permission bits: a user with write permission may send.
    pub mode: u32,
    /// Time of the ring's creation.
    pub created: SystemTime,
    /// Bytes of memory in use.
    pub memory: u64,
    /// Number of senders that were made.
    pub senders: u32,
    /// Number of threads that wait for room. Killed threads are not counted.
    pub blocked_senders: usize,
    /// Number of sends that found no room and waited.
    pub sends_blocked: u64,
    /// Number of messages that senders dropped.
    pub dropped: u64,
    /// The number of times that the receiver went to sleep.
    pub slept: u64,
    /// The number of waits in which the receiver did not sleep, because a message came while it spun.
    pub spun: u64,
    /// The time for which the receiver spun, which is CPU time, unless other threads ran instead. The part of a successful spin after its last
    /// reading of the clock, less than a microsecond, is not counted.
    pub time_spun: Duration,
    /// Time that the receiver slept.
    pub time_asleep: Duration,
    /// Number of repairs after a process died in the middle of a call.
    pub repairs: u32,
    /// True if the ring's memory held a state that no operation leaves behind.
    pub damaged: bool,
}

impl Shared {
    fn status(&self) -> Status {
        let mut status = status(&self.engine);
        // Adds the time that this process's receiver has not counted yet. Other processes see this time at the next wait.
        status.time_spun += Duration::from_nanos(self.engine.pacing.uncounted());
        status
    }
}

/// Returns the status of a ring. Takes no lock.
pub(super) fn status(engine: &Engine) -> Status {
    let (segment, messages) = (engine.segment(), engine.available());
    let (fixed, layout) = (segment.fixed(), segment.layout());
    let sent = engine.totals().sent;
    let (ownership, header) = (&fixed.ownership, &fixed.header);
    let sum = |event| fixed.counters.sum(event);
    // Relaxed: the numbers are only displayed.
    let (entries, state) = (ownership.entries(), ownership.state());
    let (owner, birth) = ownership.owner();
    let slots = fixed.geometry.slots() as usize;
    let created = Duration::from_nanos(header.created_at());
    let repairs = fixed.repairs().into_iter();
    Status {
        entries,
        overflow: (layout.max_messages as u32).saturating_sub(entries),
        longest: layout.message_size.saturating_sub(HEAD),
        messages,
        overflowing: messages.saturating_sub(entries.into()),
        sent,
        received: sent.saturating_sub(messages),
        oldest: engine.oldest_hint().map(clock::shown),
        enabled: state == ENABLED,
        closed: state == CLOSED,
        owner,
        owner_alive: owner != 0
            && !liveness::is_dead(segment, birth, |birth| process::is_dead(owner, birth)),
        mode: header.mode(),
        created: SystemTime::UNIX_EPOCH + created,
        memory: segment.memory(slots) + arena::allocated(segment) as u64,
        senders: ownership.senders(),
        blocked_senders: Waiters::of(segment).living(List::Senders),
        sends_blocked: sum(Event::SendBlocked),
        dropped: ownership.dropped(),
        slept: sum(Event::ReceiveBlocked),
        spun: sum(Event::SpinPaid),
        time_spun: Duration::from_nanos(sum(Event::Spun)),
        time_asleep: Duration::from_nanos(sum(Event::Asleep)),
        repairs: repairs.fold(0, u32::wrapping_add),
        damaged: header.damage.is_noted(),
    }
}

impl Ring {
    /// Returns the state of the ring.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// assert_eq!(ring.status().blocked_senders, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn status(&self) -> Status {
        self.shared.status()
    }
}

impl Sender {
    /// Returns the state of the ring.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// assert_eq!(sender.status().blocked_senders, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn status(&self) -> Status {
        self.shared.status()
    }
}

#[cfg(test)]
mod tests {
    use crate::ring::{Options, Post, ReceiveError, Ring, Status, Waiting};
    use std::time::Duration;

    const WAIT: Duration = Duration::from_millis(30);
    const NONE: Duration = Duration::ZERO;

    /// Returns the state of a ring whose receiver has waited, once the time `of` the state is more than half of the wait. On a busy machine, other
    /// threads may run for most of a wait, for example when the receiver yields before it sleeps. The function then repeats the wait. Each wait is
    /// twice as long as the one before.
    fn waited(waiting: Waiting, of: impl Fn(&Status) -> Duration) -> Status {
        let wait = |time: Duration| {
            let mut ring = Options::new().entries(4).create().unwrap();
            ring.set_waiting(waiting);
            assert_eq!(
                ring.receive_timeout(time).unwrap_err(),
                ReceiveError::TimedOut
            );
            let status = ring.status();
            (of(&status) > time / 2).then_some(status)
        };
        (0..10)
            .find_map(|doublings| wait(WAIT * (1 << doublings)))
            .expect("one of many waits has time enough")
    }

    #[test]
    fn the_spinning_time_of_a_receiver_is_reported() {
        let status = waited(Waiting::Spinning, |status| status.time_spun);
        assert_eq!(status.spun, 0, "{status:?}");
    }

    #[test]
    fn a_receiver_that_sleeps_takes_no_time_but_that_of_its_sleep() {
        let status = waited(Waiting::Blocking, |status| status.time_asleep);
        assert_eq!((status.time_spun, status.slept), (NONE, 1));
    }

    #[test]
    fn a_spin_that_paid_is_counted_when_the_next_one_begins_and_known_before() {
        let mut ring = Options::new().entries(4).create().unwrap();
        ring.set_waiting(Waiting::Spinning);
        // On a busy machine, the message may arrive before the receiver spins. The loop then repeats the attempt.
        while ring.status().spun == 0 {
            let sender = ring.sender();
            let late = std::thread::spawn(move || {
                std::thread::sleep(WAIT);
                sender.send(&Post::new(1)).unwrap();
            });
            ring.receive().unwrap();
            late.join().unwrap();
        }
        let counted = |ring: &Ring| super::status(&ring.shared.engine).time_spun;
        let known = ring.status().time_spun;
        assert!(counted(&ring) < known, "{:?}", ring.status());
        // On a busy machine, the time of a wait may be over before the receiver spins. The test then repeats the wait.
        let next_begins = |ring: &mut Ring| {
            let _ = ring.receive_timeout(Duration::from_millis(1));
            counted(ring) > known
        };
        let is_counted = (0..100).any(|_| next_begins(&mut ring));
        assert!(is_counted, "{:?}", ring.status());
    }

    #[test]
    fn messages_that_are_there_cost_no_waiting() {
        let mut ring = Options::new().entries(4).overflow(4).create().unwrap();
        let sender = ring.sender();
        (0..6).for_each(|n| sender.send(&Post::new(n)).unwrap());
        assert_eq!((ring.status().messages, ring.status().overflowing), (6, 2));
        assert_eq!(ring.drain_some(2, |_| {}).unwrap(), 2);
        (2..6).for_each(|n| assert_eq!(ring.receive().unwrap().user_data, n));
        let status = ring.status();
        assert_eq!((status.time_spun, status.time_asleep), (NONE, NONE));
        assert!(status.owner_alive && status.owner == std::process::id());
    }
}
