//! What can be said of a ring.

use super::message::HEAD;
use super::receiver::Ring;
use super::sender::Sender;
use super::shared::Shared;
use std::time::{Duration, SystemTime};
use umsg_shm::arena;
use umsg_shm::counters::Event;
use umsg_shm::posix_engine::segment::Segment;
use umsg_shm::posix_engine::{CLOSED, ENABLED};
use umsg_shm::sys::liveness;
use umsg_shm::sys::process;
use umsg_shm::waiters::{List, Waiters};

/// The state of a ring, as of a moment ago. What is counted, is since the ring was made.
///
/// # CPU time
/// What a receiver spends on waiting is [`time_spun`](Status::time_spun), some microseconds for each time that it
/// [`slept`](Status::slept), and less than a microsecond for each time that it gave way to others, of which there are up to four
/// before it sleeps, and which are not counted; while it is [asleep](Status::time_asleep) it takes none. Both times are measured where it waits,
/// and cost nothing where a message is there. Other processes see a spin that paid when the next wait begins. A process that waits by the ring's
/// descriptor, waits elsewhere: that is not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// Messages that the ring was made for, and how many more overflow.
    pub entries: u32,
    /// See [`entries`](Status::entries).
    pub overflow: u32,
    /// The longest payload, in bytes.
    pub longest: usize,
    /// Messages that wait.
    pub messages: u64,
    /// How many of them are beyond the [`entries`](Status::entries).
    pub overflowing: u64,
    /// Whether senders are let in.
    pub enabled: bool,
    /// Whether it was closed.
    pub closed: bool,
    /// The process that receives.
    pub owner: u32,
    /// Whether that process lives, as far as can be told.
    pub owner_alive: bool,
    /// Permission bits: a user that may write may send.
    pub mode: u32,
    /// When the ring was made.
    pub created: SystemTime,
    /// Bytes of memory in use.
    pub memory: u64,
    /// How many senders were made.
    pub senders: u32,
    /// Threads that wait for room, without those that were killed meanwhile.
    pub blocked_senders: usize,
    /// Sends that found no room and waited.
    pub sends_blocked: u64,
    /// Messages that senders have dropped.
    pub dropped: u64,
    /// How often the receiver went to sleep, and how often it did not need to because a message came while it looked.
    pub slept: u64,
    /// See [`slept`](Status::slept).
    pub spun: u64,
    /// How long the receiver spun, looking for messages: CPU time, unless others ran in its place. Of a spin that paid, what
    /// came after its last look at the clock (less than a microsecond) is not counted: the message is not kept back for it.
    pub time_spun: Duration,
    /// How long the receiver slept.
    pub time_asleep: Duration,
    /// Repairs after a process died in the middle of a call.
    pub repairs: u32,
    /// Something was found in the ring's memory that no operation could have left there.
    pub damaged: bool,
}

impl Shared {
    fn status(&self) -> Status {
        let mut status = status(self.engine.segment(), self.engine.available());
        // Of this process's receiver; others learn of it at the next wait.
        status.time_spun += Duration::from_nanos(self.engine.pacing.uncounted());
        status
    }
}

/// Of the ring in a segment, with so many messages.
pub(super) fn status(segment: &Segment, messages: u64) -> Status {
    let (fixed, layout) = (segment.fixed(), segment.layout());
    let (ownership, header) = (&fixed.ownership, &fixed.header);
    let sum = |event| fixed.counters.sum(event);
    // Relaxed: for people.
    let (entries, state) = (ownership.entries(), ownership.state());
    let (owner, birth) = ownership.owner();
    let slots = fixed.geometry.slots() as usize;
    let created = Duration::from_nanos(header.created_at());
    let repairs = fixed.receiver.repairs().into_iter();
    Status {
        entries,
        overflow: (layout.max_messages as u32).saturating_sub(entries),
        longest: layout.message_size.saturating_sub(HEAD),
        messages,
        overflowing: messages.saturating_sub(entries.into()),
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
    /// The state of the ring.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// assert_eq!(ring.status().blocked_senders, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn status(&self) -> Status {
        self.shared.status()
    }
}

impl Sender {
    /// The state of the ring.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// assert_eq!(sender.status().blocked_senders, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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

    /// The state of a ring whose receiver has waited, once it `shows` what it has to: on a busy machine others may run for
    /// most of a wait, before the receiver spins or sleeps at all.
    fn waited(waiting: Waiting, shows: impl Fn(&Status) -> bool) -> Status {
        let wait = || {
            let mut ring = Options::new().entries(4).create().unwrap();
            ring.set_waiting(waiting);
            assert_eq!(
                ring.receive_timeout(WAIT).unwrap_err(),
                ReceiveError::TimedOut
            );
            ring.status()
        };
        let mut waits = std::iter::repeat_with(wait).take(100);
        waits
            .find(shows)
            .expect("one of many waits has time enough")
    }

    #[test]
    fn a_receiver_that_spins_is_told_the_time_that_it_took() {
        let status = waited(Waiting::Spinning, |status| status.time_spun > WAIT / 2);
        assert_eq!(status.spun, 0, "{status:?}");
    }

    #[test]
    fn a_receiver_that_sleeps_takes_no_time_but_that_of_its_sleep() {
        let status = waited(Waiting::Blocking, |status| status.time_asleep > WAIT / 2);
        assert_eq!((status.time_spun, status.slept), (NONE, 1));
    }

    #[test]
    fn a_spin_that_paid_is_counted_when_the_next_one_begins_and_known_before() {
        let mut ring = Options::new().entries(4).create().unwrap();
        ring.set_waiting(Waiting::Spinning);
        // On a busy machine a message may be there before the receiver looks for it.
        while ring.status().spun == 0 {
            let sender = ring.sender();
            let late = std::thread::spawn(move || {
                std::thread::sleep(WAIT);
                sender.send(&Post::new(1)).unwrap();
            });
            ring.receive().unwrap();
            late.join().unwrap();
        }
        let counted = |ring: &Ring| {
            let segment = ring.shared.engine.segment();
            super::status(segment, 0).time_spun
        };
        let known = ring.status().time_spun;
        assert!(counted(&ring) < known, "{:?}", ring.status());
        let _ = ring.receive_timeout(Duration::from_millis(1));
        assert!(counted(&ring) > known, "{:?}", ring.status());
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
