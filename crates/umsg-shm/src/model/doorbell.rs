//! The FIFO of a polled queue in a model: a number of packets. The kernel changes a FIFO under a lock, so each change is one step of the model. The
//! earlier writes of the thread are ordered before the step.

use super::thread;
use crate::doorbell::{FULL, Lookup, MESSAGES, ROOM};
use crate::sync::{AtomicU32, Ordering};
use std::sync::atomic::{AtomicBool, AtomicU32 as Plain, Ordering::Relaxed};

/// The doorbell of a queue in a model.
#[derive(Debug, Default)]
pub struct Doorbell {
    packets: AtomicU32,
    /// The number of times that a poller was woken.
    nudges: Plain,
    /// The number of packets that were added, each of which is an event for pollers of messages.
    added: Plain,
    /// The number of times that the FIFO became no longer full, which is an event for pollers of room.
    emptied: Plain,
    /// True if no process polls any more. Operations check this word from time to time.
    left: Plain,
    /// True if another process has removed the doorbell in a sweep.
    is_gone: AtomicBool,
    /// A bit for each thread that belongs to another user, and so can't ring the doorbell.
    strangers: Plain,
    /// True if a process polls without a helper for deadlines.
    lacks_helpers: AtomicBool,
}

/// A FIFO that a helper feeds: the private FIFO of its process, or the shared FIFO.
#[derive(Debug)]
pub struct Feed {
    own: Option<Doorbell>,
    pub name: u64,
    pub wanted: u32,
}

/// The FIFO of a doorbell, while a thread uses it.
pub struct PollFifo<'a>(&'a Doorbell);

/// A doorbell that no process polls any more.
pub struct Left;

impl Left {
    pub fn remove(self) {}
}

impl Doorbell {
    pub(crate) fn of<S>(_: &S) -> Doorbell {
        Doorbell::default()
    }

    pub fn fifo(&self, _: u64) -> Lookup<PollFifo<'_>> {
        match self.is_gone.load(Relaxed) {
            _ if self.is_anothers() => Lookup::Unavailable,
            false => Lookup::Found(PollFifo(self)),
            true => Lookup::Missing,
        }
    }

    /// Returns whether the FIFO belongs to another user than the calling thread.
    fn is_anothers(&self) -> bool {
        let strangers = self.strangers.load(Relaxed);
        thread::with_current(|me| me.is_some_and(|me| strangers >> me.tid() & 1 != 0))
    }

    /// Adds a thread of another user, which can't ring the doorbell.
    pub fn add_stranger(&self, tid: u32) {
        self.strangers.fetch_or(1 << tid, Relaxed);
    }

    pub fn is_time_to_look(&self) -> bool {
        self.left.load(Relaxed) != 0
    }

    pub fn is_in_vain_again(&self) -> bool {
        false
    }

    pub fn note_progress(&self) {}

    /// Returns false: the threads of a model start no helper.
    pub fn polls_without_time(&self) -> bool {
        false
    }

    pub fn polls_privately(&self) -> bool {
        false
    }

    pub fn left(&self, _: u64) -> Option<Left> {
        (self.left.load(Relaxed) != 0).then_some(Left)
    }

    /// Returns the answer of poll(2): whether there is a message, and whether there is room.
    pub fn shows(&self) -> (bool, bool) {
        let packets = self.packets.fetch_add(0, Ordering::AcqRel);
        (packets != 0, packets != FULL)
    }

    pub fn nudges(&self) -> u32 {
        self.nudges.load(Relaxed)
    }

    /// Returns the number of events that an edge-triggered poller of messages has got.
    pub fn message_events(&self) -> u32 {
        self.packets.fetch_add(0, Ordering::AcqRel);
        self.nudges() + self.added.load(Relaxed)
    }

    /// Returns the number of events that an edge-triggered poller of room has got.
    pub fn room_events(&self) -> u32 {
        self.packets.fetch_add(0, Ordering::AcqRel);
        self.nudges() + self.emptied.load(Relaxed)
    }

    /// Sets whether a process polls without a helper for deadlines.
    pub fn set_lack_of_helpers(&self, lacks: bool) {
        self.lacks_helpers.store(lacks, Relaxed);
    }

    /// Sets whether the doorbell was removed in a sweep, or replaced by another.
    pub fn set_gone(&self, is_gone: bool) {
        self.is_gone.store(is_gone, Relaxed);
    }

    /// Makes all processes stop polling.
    pub fn leave(&self) {
        self.left.store(1, Relaxed);
    }
}

impl Feed {
    /// Returns a FIFO without a name.
    pub fn private() -> Feed {
        Feed {
            own: Some(Doorbell::default()),
            name: 0,
            wanted: 0,
        }
    }

    /// Returns the shared FIFO of this name.
    pub fn shared(name: u64) -> Feed {
        Feed {
            own: None,
            name,
            wanted: 0,
        }
    }

    pub fn fifo<'a>(&'a self, bell: &'a Doorbell) -> Option<PollFifo<'a>> {
        Some(PollFifo(self.own.as_ref().unwrap_or(bell)))
    }

    pub fn wants_edges(&self) -> bool {
        self.wanted & (MESSAGES | ROOM) != 0
    }

    /// Returns the answer of poll(2) for this FIFO: see [`Doorbell::shows`].
    pub fn shows(&self, bell: &Doorbell) -> (bool, bool) {
        self.own.as_ref().unwrap_or(bell).shows()
    }
}

impl PollFifo<'_> {
    pub fn change(&self, from: u32, to: u32, loudly: bool) {
        let held = self
            .0
            .packets
            .fetch_add(to.wrapping_sub(from), Ordering::AcqRel);
        assert_eq!(held, from, "the FIFO does not hold what is said of it");
        self.note_change(from, to);
        if loudly {
            self.nudge();
        }
    }

    pub fn nudge(&self) {
        self.0.nudges.fetch_add(1, Relaxed);
    }

    /// Adds a packet.
    pub fn add(&self, loudly: bool) -> bool {
        self.step(|packets| (packets < FULL).then_some(packets + 1), loudly)
    }

    /// Removes a packet.
    pub fn remove(&self, loudly: bool) -> bool {
        self.step(|packets| packets.checked_sub(1), loudly)
    }

    fn step(&self, to: impl Fn(u32) -> Option<u32>, loudly: bool) -> bool {
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        let packets = &self.0.packets;
        let Ok(from) = packets.fetch_update(success, failure, &to) else {
            return false;
        };
        self.note_change(from, to(from).unwrap_or(from));
        if loudly {
            self.nudge();
        }
        true
    }

    /// Returns whether the FIFO shows the level of this number of packets.
    pub fn shows(&self, packets: u32) -> bool {
        self.0.shows() == (packets != 0, packets != FULL)
    }

    pub fn lacks_helpers(&self) -> bool {
        self.0.lacks_helpers.load(Relaxed)
    }

    pub fn hold(&self, packets: u32) {
        let before = self.0.packets.swap(packets, Ordering::AcqRel);
        self.note_change(before, packets);
    }

    fn note_change(&self, from: u32, to: u32) {
        if to > from {
            self.0.added.fetch_add(1, Relaxed);
        }
        if from == FULL && to != FULL {
            self.0.emptied.fetch_add(1, Relaxed);
        }
    }
}
