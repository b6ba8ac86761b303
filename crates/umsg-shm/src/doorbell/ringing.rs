//! Ringing: the doorbell's words in the segment, and the steps that change the FIFO under the queue's lock.

mod deferral;
mod level;

use super::{
    DeferredRing, Doorbell, FULL, HELPED, LEVELS, LOOK_FOR_MESSAGES, LOOK_FOR_ROOM, Lookup,
    MESSAGES, PRIVATE, PollFifo, ROOM, SLICES,
};
use crate::crash::crash_point;
use crate::lock::tokens::ReceiverHeld;
use crate::sync::{AtomicU32, Guarded32, Guarded64, Loose32, Ordering};
use crate::sys::{cpu, futex};
use level::{IN, NEITHER, OUT, beside, held, looks_for, packets, shows};
#[cfg(not(loom))]
use rustix::io;

pub(crate) use level::Level;

#[cfg(not(loom))]
use super::helper::Feed;
#[cfg(loom)]
use crate::model::doorbell::Feed;

/// A flag of [`Words::shown`]: a process is ringing, or has died while it rang. In the second case, the packets in the FIFO have to be counted.
const BUSY: u32 = 8;
/// A flag of [`Words::shown`]: the process that repaired the queue could not count the packets in the FIFO. The next process that can open the FIFO
/// counts them.
const UNKNOWN: u32 = 16;

/// A flag of [`Words::heard`], in addition to IN and OUT: a helper wants a call at each send and receive, even if the level does not change.
const EDGES: u32 = 4;
/// A flag of [`Words::heard`]: a process that must not ring the FIFO has used the queue, and found no helper to call. The next poller needs a helper.
const FOREIGN: u32 = 8;

/// The doorbell's words in a segment, without the flags of pollers. No process uses them while no process polls.
#[repr(C)]
#[derive(Default)]
pub struct Words {
    /// The number of packets in the FIFO ([`PACKETS`](level::PACKETS)), and flags.
    pub(crate) shown: Guarded32,
    /// The processor on which a process is ringing, plus one; 0 for none. The number is a hint.
    pub(crate) rung_on: Loose32,
    /// The level of the last event for pollers that want every edge.
    pub(crate) told: Guarded64,
    /// The number in the FIFO's name; 0 if there is no FIFO.
    pub name: Guarded64,
    /// A number that grows with each call of the helpers, which sleep on this word.
    pub(crate) calls: AtomicU32,
    /// The level that helpers with private FIFOs have shown, and their flags, while [`PRIVATE`] is set.
    pub(crate) heard: Guarded32,
}

impl Words {
    /// Returns whether no process has ever polled the queue.
    pub(crate) fn is_unused(&self) -> bool {
        let Words {
            shown,
            rung_on,
            told,
            name,
            calls,
            heard,
        } = self;
        // Relaxed: the caller holds the lock, under which a poller begins.
        [
            shown.get(),
            rung_on.get(),
            heard.get(),
            calls.load(Ordering::Relaxed),
        ] == [0; 4]
            && [told.get(), name.get()] == [0; 2]
    }
}

/// A queue's doorbell, for the steps of one operation.
pub(crate) struct Ringer<'a> {
    /// The flags of pollers, such as [`LEVELS`]; 0 if no process polls. Each operation reads them.
    pub(crate) watched: &'a Guarded32,
    pub(crate) words: &'a Words,
    pub(crate) doorbell: &'a Doorbell,
    /// The deferred ring, in a queue whose senders defer rings.
    pub(crate) deferred: Option<&'a DeferredRing>,
}

impl<'a> Ringer<'a> {
    /// Shows the level `then`, which the next step of the operation produces, while the queue is still at level `now`. An edge-triggered poller gets
    /// the event of a sent message before the send. It gets the event of a received message after the receive, by [`settle`](Self::settle).
    pub(crate) fn foretell(&self, _: ReceiverHeld<'_>, now: Level, then: Level) {
        self.doorbell.note_progress();
        let heard = self.words.heard.get();
        if self.watched.get() & PRIVATE != 0
            && (heard & EDGES != 0
                || (now.bits() | then.bits()) & !heard != 0
                || then.brings_room_to(heard))
        {
            self.call(PRIVATE);
        }
        if self.watched.get() & LEVELS == 0 {
            return;
        }
        self.count_if_unknown(now);
        if then.messages > now.messages {
            self.show_deferred(now);
        }
        let shown = self.words.shown.get();
        if shown & BUSY != 0 {
            // This operation has already shown the level: it calls this function for each of its messages.
            return;
        }
        let held = held(shown);
        let bits = shows(held) | now.bits() | then.bits();
        let comes = then.messages > now.messages;
        let tells = comes && self.reports_edges(then) || then.brings_room_to(shown);
        if bits == shows(held) && !tells {
            return;
        }
        self.words.shown.set(shown | BUSY);
        crash_point!(BELL_BEGUN);
        let Some(to) = self.ring(shown, bits, then) else {
            return self.words.shown.set(shown);
        };
        // If this operation makes room, the flag `NEITHER` stays set until an event has reported the room.
        let kept = if then.room == 0 { shown & NEITHER } else { 0 };
        self.words.shown.set(to | kept | BUSY);
        crash_point!(BELL_FORETOLD);
    }

    /// Shows the current level, at the end of an operation.
    #[cfg_attr(
        loom,
        allow(unused_variables, reason = "no model has a FIFO of its own")
    )]
    pub(crate) fn settle(&self, receiving: ReceiverHeld<'_>, now: Level) {
        if self.watched.get() & PRIVATE != 0 {
            let heard = self.words.heard.get();
            let is_shown = heard & (IN | OUT) == now.bits() && !now.brings_room_to(heard);
            if is_shown {
                self.words.heard.set(heard & !NEITHER | now.neither());
            } else {
                self.call(PRIVATE);
            }
            #[cfg(not(loom))]
            if !is_shown || heard & EDGES != 0 {
                self.show_own(receiving, now);
            }
        }
        if self.watched.get() & LEVELS == 0 {
            return;
        }
        self.count_if_unknown(now);
        if now.messages != 0 {
            self.show_deferred(now);
        }
        let shown = self.words.shown.get();
        let (held, bits) = (held(shown), now.bits());
        let is_right =
            shows(held) == bits && !self.reports_edges(now) && !now.brings_room_to(shown);
        if is_right && shown & (BUSY | NEITHER) == now.neither() {
            return;
        }
        let (mut to, unknown) = (held, shown & UNKNOWN);
        if !is_right {
            self.words.shown.set(shown | BUSY);
            match self.ring(shown, bits, now) {
                Some(rung) => to = rung,
                // The FIFO keeps its level: the next operation of a process that can ring corrects it.
                None => {
                    let neither = shown & NEITHER | now.neither();
                    return self.words.shown.set(held | unknown | neither);
                }
            }
        }
        self.words.shown.set(to | unknown | now.neither());
        crash_point!(BELL_SETTLED);
    }

    /// Returns whether a process was interrupted on the caller's processor while it rang. The cause may be the caller itself, which the ringing woke.
    /// The interrupted process continues when the caller sleeps.
    pub(crate) fn is_rung_here(&self) -> bool {
        self.words.rung_on.get() == cpu::current() as u32 + 1
    }

    /// Shows the current level after the death of a process that held the lock. The FIFO may hold any number of packets before this call.
    pub(crate) fn mend(&self, _: ReceiverHeld<'_>, now: Level) {
        self.hold(now, true);
    }

    /// Makes the FIFO show the current level. Wakes all pollers if `nudge` is set, or if they would not learn of room otherwise.
    fn hold(&self, now: Level, nudge: bool) {
        // The FIFO may not have the packet of a pending ring, so the number of packets does not show whether pollers were woken.
        let was_late = self
            .pending()
            .is_some_and(|(word, ticket)| word.note_late(ticket));
        if self.watched.get() & PRIVATE != 0 {
            self.call(PRIVATE);
        }
        if self.watched.get() & LEVELS == 0 {
            return;
        }
        let shown = self.words.shown.get();
        let to = packets(now.bits(), held(shown));
        self.words.shown.set(shown | BUSY);
        let Some(fifo) = self.fifo() else {
            self.words.shown.set(to | UNKNOWN);
            return self.call_for_help();
        };
        fifo.hold(to);
        if nudge || was_late || now.brings_room_to(shown) {
            fifo.nudge();
        }
        self.words.told.set(now.word());
        self.words.shown.set(to | now.neither());
    }

    /// Makes the FIFO show this level, and wakes all pollers, without the queue's lock. The call changes nothing in the segment, so it does not
    /// disturb a process that is ringing under the lock.
    #[cfg(not(loom))]
    pub(crate) fn show_unlocked(&self, level: Level) {
        if self.watched.get() & (PRIVATE | HELPED) != 0 {
            self.call(0);
        }
        if self.watched.get() & LEVELS != 0
            && let Lookup::Found(fifo) = self.doorbell.fifo(self.words.name.get())
        {
            fifo.hold(packets(level.bits(), held(self.words.shown.get())));
            fifo.nudge();
        }
    }

    /// Counts the packets if a repair could not count them, because its process had no free descriptor.
    fn count_if_unknown(&self, now: Level) {
        if self.words.shown.get() & UNKNOWN != 0 {
            self.hold(now, true);
        }
    }

    /// Returns whether pollers that want every edge need an event for this level.
    fn reports_edges(&self, level: Level) -> bool {
        self.watched.get() & (MESSAGES | ROOM) != 0 && self.words.told.get() != level.word()
    }

    /// Makes the FIFO show `bits`. Pollers that want every edge get an event, and all pollers get an event for room of which they would not learn
    /// otherwise. `shown` is the value of [`Words::shown`]. Returns the new number of packets; None if this process can't ring.
    fn ring(&self, shown: u32, bits: u32, level: Level) -> Option<u32> {
        let Some(fifo) = self.fifo() else {
            self.call_for_help();
            return None;
        };
        let from = held(shown);
        let mut to = packets(bits, from);
        let tells = self.reports_edges(level);
        let wanted = if tells {
            self.watched.get() & level.edges()
        } else {
            0
        };
        // The kernel wakes pollers for messages at each write, and pollers for room when a full pipe is read.
        let told = match from {
            _ if to > from => MESSAGES,
            FULL.. if to < from => ROOM,
            _ => 0,
        };
        if wanted != 0 && to == from {
            to = beside(from);
        }
        self.words.rung_on.set(cpu::current() as u32 + 1);
        let loudly = wanted & !told != 0 || level.brings_room_to(shown);
        if !self.change_beside_deferred(&fifo, to, loudly) {
            fifo.change(from, to, loudly);
        }
        self.words.rung_on.set(0);
        crash_point!(BELL_RUNG);
        if tells {
            self.words.told.set(level.word());
        }
        Some(to)
    }

    /// Returns the FIFO, if this process can ring it. If the FIFO does not exist, the watch ends: the next poller creates another FIFO, and shows the
    /// level of that time.
    fn fifo(&self) -> Option<PollFifo<'_>> {
        match self.doorbell.fifo(self.words.name.get()) {
            Lookup::Found(fifo) => Some(fifo),
            Lookup::Missing => {
                if self.watched.get() & (PRIVATE | HELPED) != 0 {
                    self.call(PRIVATE | HELPED);
                }
                self.unwatch();
                None
            }
            Lookup::Unavailable => None,
        }
    }

    /// Calls all helpers, and clears these flags. A living helper sets its flag again, so a dead helper costs only one call. A process with a private
    /// FIFO keeps the flag [`PRIVATE`]: it shows the level in its own FIFO at the end of its operation.
    fn call(&self, flags: u32) {
        let kept = if self.doorbell.polls_privately() {
            PRIVATE
        } else {
            0
        };
        self.watched.set(self.watched.get() & !(flags & !kept));
        // Release: a helper that sees the new number finds its flag cleared. The helper reads the level under the lock.
        self.words.calls.fetch_add(1, Ordering::Release);
        crash_point!(BELL_CALLED);
        futex::wake(&self.words.calls, i32::MAX);
    }

    /// Calls the helpers of the shared FIFO, because this process can't ring: a helper then shows the level. The call clears all flags of `watched`,
    /// and each living helper sets its flag again. If all pollers are dead, the watch therefore ends here. If there is no helper to call, notes that
    /// the next poller needs a helper.
    fn call_for_help(&self) {
        match self.watched.get() {
            0 => {}
            watched if watched & HELPED != 0 => self.call(watched),
            _ => {
                let heard = self.words.heard.get();
                self.words.heard.set(heard | FOREIGN);
            }
        }
    }

    /// Calls the helpers for deadlines, because the time of their next check may have changed.
    pub(crate) fn call_timekeepers(&self, _: ReceiverHeld<'_>) {
        if self.watched.get() != 0 {
            self.call(0);
        }
    }

    /// Makes the helpers for deadlines check the queue once a slice, from now on.
    pub(crate) fn ask_for_slices(&self, receiving: ReceiverHeld<'_>) {
        if self.watched.get() & SLICES == 0 {
            // The helpers are called first: if this process dies before it sets the flag, a helper that checks the queue sets the flag.
            self.call_timekeepers(receiving);
            self.note_slices(receiving, true);
        }
    }

    /// Notes whether the helpers for deadlines check the queue once a slice.
    pub(crate) fn note_slices(&self, _: ReceiverHeld<'_>, are: bool) {
        match self.watched.get() {
            0 => {}
            watched if are => self.watched.set(watched | SLICES),
            watched => self.watched.set(watched & !SLICES),
        }
    }

    /// Returns whether processes poll the shared FIFO without a helper for deadlines. Returns true if this process can't find out.
    pub(crate) fn seems_to_lack_helpers(&self) -> bool {
        self.watched.get() & LEVELS != 0
            && match self.doorbell.fifo(self.words.name.get()) {
                Lookup::Found(fifo) => fifo.lacks_helpers(),
                Lookup::Missing => false,
                Lookup::Unavailable => true,
            }
    }

    /// Shows events to processes that poll without a helper: the events that time or a death may bring. `now` is the level before these events.
    pub(crate) fn ask_to_look(&self, receiving: ReceiverHeld<'_>, later: u32, now: Level) {
        let flags = later * LOOK_FOR_MESSAGES;
        let [messages, room] = looks_for(flags);
        self.foretell(receiving, now, now.after(messages.into(), room.into()));
        self.watched.set(self.watched.get() | flags);
    }

    /// Returns the level of a queue with these numbers of messages and of free slots. The level includes the events that are shown to processes
    /// without a helper.
    pub(crate) fn with_looks(&self, messages: u64, room: u64) -> Level {
        let looks = looks_for(self.watched.get()).map(u64::from);
        Level::new(messages.max(looks[0]), room.max(looks[1]))
    }

    /// Ends the events that are shown to processes without a helper, because a call has checked the queue.
    pub(crate) fn has_looked(&self, _: ReceiverHeld<'_>) {
        let flags = LOOK_FOR_MESSAGES | LOOK_FOR_ROOM;
        self.watched.set(self.watched.get() & !flags);
    }

    /// Checks the FIFO after an operation that found no message or no room. After the second such operation in a row, the FIFO probably shows a wrong
    /// level. So the FIFO is compared with the queue, and corrected.
    pub(crate) fn look_after_vain_call(&self, _: ReceiverHeld<'_>, now: Level) {
        let is_shown = self.watched.get() & LEVELS != 0
            && self.words.shown.get() & BUSY == 0
            && self.pending().is_none();
        if !self.doorbell.is_in_vain_again() || !is_shown {
            return;
        }
        let to = packets(now.bits(), held(self.words.shown.get()));
        if let Some(fifo) = self.fifo()
            && !fifo.shows(to)
        {
            fifo.hold(to);
            self.words.shown.set(to | now.neither());
        }
    }

    /// Checks from time to time whether a process still polls, and stops ringing if no process polls any more. Returns true if no process polls any
    /// more.
    pub(crate) fn forget_if_left(&self, _: ReceiverHeld<'_>) -> bool {
        if self.watched.get() & LEVELS != 0 && self.doorbell.is_time_to_look() {
            self.forget();
        }
        self.watched.get() == 0
    }

    /// Stops ringing if no process polls the FIFO. Returns true if no process polls any more.
    pub(crate) fn forget(&self) -> bool {
        if let Some(left) = self.doorbell.left(self.words.name.get()) {
            self.unwatch();
            left.remove();
        }
        self.watched.get() == 0
    }

    fn unwatch(&self) {
        self.watched.set(self.watched.get() & PRIVATE);
        crash_point!(BELL_FORGOTTEN);
        if let Some(deferred) = self.deferred {
            deferred.forget();
        }
        self.words.name.set(0);
        crash_point!(BELL_UNNAMED);
    }

    /// Begins the watch of a process that polls the FIFO of this name with these flags.
    pub(crate) fn begin(&self, name: u64, wanted: u32, now: Level) {
        self.words.name.set(name);
        crash_point!(BELL_NAMED);
        let watched = self.watched.get();
        self.watched.set(watched | LEVELS | wanted);
        crash_point!(BELL_WATCHED);
        // Other processes may already poll: for them, an unchanged level must not be an edge. There is one exception: after a call for help, the FIFO
        // does not show the operations since that call.
        self.hold(
            now,
            self.words.shown.get() & BUSY != 0 || watched & LEVELS == 0,
        );
    }

    /// Shows the level in a helper's FIFO, and sets the helper's flag, so that a process calls the helper when the level changes. Returns the number
    /// on which the helper sleeps.
    ///
    /// `is_called` says that a process has called the helper. The FIFO does not show the operations since that call, during which the queue may have
    /// had neither messages nor room.
    pub(crate) fn hear(
        &self,
        _: ReceiverHeld<'_>,
        feed: &Feed,
        now: Level,
        is_called: bool,
    ) -> u32 {
        self.show_deferred(now);
        let is_shared = feed.name != 0 && feed.name == self.words.name.get();
        let (watched, shown) = (self.watched.get(), self.words.shown.get());
        let heard = self.words.heard.get();
        let to = packets(now.bits(), held(shown));
        let brings_room = match is_shared {
            true => now.brings_room_to(shown) || is_called && watched & LEVELS == 0,
            // After the call, another helper may have set the flag again, so `heard` alone is not enough.
            false => now.brings_room_to(heard) || is_called,
        };
        // An unchanged level must not be an edge for processes that already poll.
        let is_edge = !is_shared || self.words.told.get() != now.word();
        if let Some(fifo) = feed.fifo(self.doorbell) {
            fifo.hold(to);
            // A packet that came late may already show a message of which pollers were not told.
            let is_late = self.deferred.is_some_and(DeferredRing::is_late);
            if feed.wants_edges() && is_edge || brings_room && now.room != 0 || is_late {
                fifo.nudge();
            }
        }
        if is_shared {
            self.words.told.set(now.word());
            self.words.shown.set(to | now.neither());
            self.watched.set(watched | LEVELS | HELPED | feed.wanted);
        } else {
            let others = if watched & PRIVATE != 0 { EDGES } else { 0 };
            let edges = if feed.wants_edges() { EDGES } else { 0 };
            let kept = heard & (FOREIGN | others);
            self.words
                .heard
                .set(kept | edges | now.bits() | now.neither());
            self.watched.set(watched | PRIVATE);
        }
        // Relaxed: the number changes only under the lock.
        self.words.calls.load(Ordering::Relaxed)
    }
}

#[cfg(not(loom))]
impl Ringer<'_> {
    /// Begins the watch of this process with these flags, and opens or creates the FIFO. `mode` is the mode of the queue. The mode of its mapped file
    /// may differ, because the creator maps the file before it sets the mode. With `needs_time`, the caller then starts a helper for deadlines.
    pub(crate) fn begin_here(
        &self,
        receiving: ReceiverHeld<'_>,
        wanted: u32,
        now: Level,
        (mode, needs_time): (u32, bool),
    ) -> io::Result<()> {
        let name = self.doorbell.open(self.words.name.get())?;
        if mode & 0o077 != 0 {
            self.doorbell.need_help();
        }
        crash_point!(BELL_MADE);
        if name != 0 {
            self.begin(name, wanted, now);
        }
        if self.words.heard.get() & FOREIGN != 0 {
            self.doorbell.need_help();
        }
        self.doorbell
            .feed_first(wanted, |feed| self.hear(receiving, feed, now, false));
        self.doorbell.has_asked(wanted);
        if !needs_time {
            self.doorbell.note_lack_of_helper();
        }
        Ok(())
    }

    /// Shows the level in this process's private FIFO at the end of the process's operation, if the process polls such a FIFO.
    fn show_own(&self, receiving: ReceiverHeld<'_>, now: Level) {
        if let Some(feed) = self.doorbell.private_feed() {
            let _ = self.hear(receiving, &feed, now, false);
        }
    }

    /// Makes a helper's FIFO show messages and room, because the queue was removed or is corrupted: a poller then tries the queue and gets the error.
    /// Returns the number on which the helper sleeps.
    pub(crate) fn show_damage(&self, feed: &Feed) -> u32 {
        if let Some(fifo) = feed.fifo(self.doorbell) {
            fifo.hold(packets(IN | OUT, 1));
            fifo.nudge();
        }
        self.words.calls.load(Ordering::Relaxed)
    }
}
