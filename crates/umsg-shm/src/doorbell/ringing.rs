//! From a queue to its doorbell: what the segment says of it, and the steps of ringing. All under the queue's lock.

use super::{Doorbell, FULL, HELPED, LEVELS, Lookup, MESSAGES, PRIVATE, ROOM, Readiness};
use crate::crash::crash_point;
use crate::lock::tokens::ReceiverHeld;
use crate::sync::{AtomicU32, Guarded32, Guarded64, Loose32, Ordering};
use crate::sys::{cpu, futex};
#[cfg(not(loom))]
use rustix::io;

#[cfg(not(loom))]
use super::descriptor::PollFifo;
#[cfg(not(loom))]
use super::helper::Feed;
#[cfg(loom)]
use crate::model::doorbell::{Feed, PollFifo};

/// What there is: messages, and room.
const IN: u32 = 1;
const OUT: u32 = 2;

/// [`Words::shown`]: how many packets the FIFO holds, at most [`FULL`].
const PACKETS: u32 = 7;
/// And: a process is ringing, or has died at it: what the FIFO holds has to be counted.
const BUSY: u32 = 8;
/// And: the process that repaired after that could not count it: one that can does.
const UNKNOWN: u32 = 16;

/// [`Words::heard`], beside IN and OUT: a helper wants to be called by each send and receive.
const EDGES: u32 = 4;
/// And: a process that may not ring the FIFO has used the queue while no helper stood by: the next poller needs one.
const FOREIGN: u32 = 8;

/// How ready a queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    /// Messages that can be received.
    pub(crate) messages: u32,
    /// For how many more there is room; or for how many bytes.
    pub(crate) room: u32,
}

impl Level {
    pub(crate) fn new(messages: u64, room: u64) -> Level {
        let word = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        Level {
            messages: word(messages),
            room: word(room),
        }
    }

    /// As it will be when so many messages have come, and so much room.
    pub(crate) fn after(self, messages: i64, room: i64) -> Level {
        let add = |count: u32, more: i64| (i64::from(count) + more).max(0) as u64;
        Level::new(add(self.messages, messages), add(self.room, room))
    }

    /// What is shown. A FIFO can't show that there is neither a message nor room (all is leased): then it shows room.
    fn bits(self) -> u32 {
        match (self.messages != 0, self.room != 0) {
            (true, true) => IN | OUT,
            (true, false) => IN,
            (false, _) => OUT,
        }
    }

    pub(crate) fn readiness(self) -> Readiness {
        Readiness {
            readable: self.messages != 0,
            writable: self.room != 0,
        }
    }

    /// Which pollers that asked for every edge are told of it.
    fn edges(self) -> u32 {
        match self.bits() {
            IN => MESSAGES,
            OUT => ROOM,
            _ => MESSAGES | ROOM,
        }
    }

    fn word(self) -> u64 {
        u64::from(self.messages) << 32 | u64::from(self.room)
    }
}

/// How many packets the FIFO holds, as far as [`Words::shown`] says, where a peer can scribble.
fn held(shown: u32) -> u32 {
    (shown & PACKETS).min(FULL)
}

/// What so many packets show.
fn shows(packets: u32) -> u32 {
    match packets {
        0 => OUT,
        1..FULL => IN | OUT,
        _ => IN,
    }
}

/// How many packets show it, of a FIFO that holds so many: as few as possible are put there, or taken.
fn packets(bits: u32, held: u32) -> u32 {
    match bits & (IN | OUT) {
        IN => FULL,
        OUT => 0,
        _ => held.clamp(1, FULL - 1),
    }
}

/// Another number that shows the same, if there is one.
fn beside(packets: u32) -> u32 {
    match packets {
        0 | FULL.. => packets,
        1 => 2,
        more => more - 1,
    }
}

/// What a segment says of its doorbell, apart from whether it is watched: nobody touches it while it is not.
#[repr(C)]
#[derive(Default)]
pub struct Words {
    /// What the FIFO holds.
    pub(crate) shown: Guarded32,
    /// On which processor a process rings at the moment, plus one; 0: no process does. A hint.
    pub(crate) rung_on: Loose32,
    /// The level that was told last to pollers that asked for every edge.
    pub(crate) told: Guarded64,
    /// The FIFO's name ends with this number; 0: there is none.
    pub name: Guarded64,
    /// Grows with each call to the helpers, which sleep on it.
    pub(crate) calls: AtomicU32,
    /// The level that private FIFOs show while [`PRIVATE`] is set.
    pub(crate) heard: Guarded32,
}

/// What one operation needs of a doorbell.
pub(crate) struct Ringer<'a> {
    /// What pollers watch: [`LEVELS`], [`MESSAGES`], [`ROOM`]; 0 for none. Looked at by each operation.
    pub(crate) watched: &'a Guarded32,
    pub(crate) words: &'a Words,
    pub(crate) doorbell: &'a Doorbell,
}

impl Ringer<'_> {
    /// Shows the level `then`, which the operation's next step brings about, while the queue is still at `now`. A poller of edges
    /// (EPOLLET) is also told of a message before it is sent; of one that is received, afterwards (`settle`).
    pub(crate) fn foretell(&self, _: ReceiverHeld<'_>, now: Level, then: Level) {
        self.doorbell.note_progress();
        let heard = self.words.heard.get();
        if self.watched.get() & PRIVATE != 0
            && (heard & EDGES != 0 || (now.bits() | then.bits()) & !heard != 0)
        {
            self.call(PRIVATE);
        }
        if self.watched.get() & LEVELS == 0 {
            return;
        }
        self.count_if_unknown(now);
        let shown = self.words.shown.get();
        if shown & BUSY != 0 {
            // Foretold before, by this operation: it does so for each of its messages.
            return;
        }
        let held = held(shown);
        let bits = shows(held) | now.bits() | then.bits();
        let comes = then.messages > now.messages;
        if bits == shows(held) && !(comes && self.tells_edges(then)) {
            return;
        }
        self.words.shown.set(shown | BUSY);
        crash_point!(BELL_BEGUN);
        let Some(to) = self.ring(held, bits, then) else {
            return self.words.shown.set(shown);
        };
        self.words.shown.set(to | BUSY);
        crash_point!(BELL_FORETOLD);
    }

    /// Shows what is, at the end of an operation.
    #[cfg_attr(
        loom,
        allow(unused_variables, reason = "no model has a FIFO of its own")
    )]
    pub(crate) fn settle(&self, receiving: ReceiverHeld<'_>, now: Level) {
        if self.watched.get() & PRIVATE != 0 {
            let heard = self.words.heard.get();
            if heard & (IN | OUT) != now.bits() {
                self.call(PRIVATE);
            }
            #[cfg(not(loom))]
            if heard & (EDGES | IN | OUT) != now.bits() {
                self.show_own(receiving, now);
            }
        }
        if self.watched.get() & LEVELS == 0 {
            return;
        }
        self.count_if_unknown(now);
        let shown = self.words.shown.get();
        let (held, bits) = (held(shown), now.bits());
        let is_right = shows(held) == bits && !self.tells_edges(now);
        if is_right && shown & BUSY == 0 {
            return;
        }
        let (mut to, unknown) = (held, shown & UNKNOWN);
        if !is_right {
            self.words.shown.set(shown | BUSY);
            match self.ring(held, bits, now) {
                Some(rung) => to = rung,
                // It shows what it did: the next operation of a process that can ring makes up for it.
                None => return self.words.shown.set(held | unknown),
            }
        }
        self.words.shown.set(to | unknown);
        crash_point!(BELL_SETTLED);
    }

    /// Whether a process rings on the caller's processor. So it was interrupted, maybe by whom it woke, and goes on when that one sleeps.
    pub(crate) fn is_rung_here(&self) -> bool {
        self.words.rung_on.get() == cpu::current() as u32 + 1
    }

    /// Shows what is, whatever the FIFO holds: after a death under the lock.
    pub(crate) fn mend(&self, _: ReceiverHeld<'_>, now: Level) {
        self.hold(now, true);
    }

    /// Has the FIFO show what is, and if asked to, all pollers look again.
    fn hold(&self, now: Level, nudge: bool) {
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
        if nudge {
            fifo.nudge();
        }
        self.words.told.set(now.word());
        self.words.shown.set(to);
    }

    /// Has the FIFO show this, and all pollers look again, without the queue's lock: nothing is noted in the segment, so that a process that has the lock
    /// and is in the middle of ringing ends as it would.
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

    /// Before anything is shown: makes up for a repair by a process that had no descriptor left.
    fn count_if_unknown(&self, now: Level) {
        if self.words.shown.get() & UNKNOWN != 0 {
            self.hold(now, true);
        }
    }

    /// Whether pollers that asked for every edge have to be told of this level.
    fn tells_edges(&self, level: Level) -> bool {
        self.watched.get() & (MESSAGES | ROOM) != 0 && self.words.told.get() != level.word()
    }

    /// Has a FIFO that holds so many packets show this, and tells pollers that asked for every edge of the level. Answers how many it holds then;
    /// nothing if this process can't ring.
    fn ring(&self, from: u32, bits: u32, level: Level) -> Option<u32> {
        let Some(fifo) = self.fifo() else {
            self.call_for_help();
            return None;
        };
        let mut to = packets(bits, from);
        let tells = self.tells_edges(level);
        let wanted = if tells {
            self.watched.get() & level.edges()
        } else {
            0
        };
        // The kernel itself wakes pollers for messages at each write, and pollers for room when a full pipe is read.
        let told = match from {
            _ if to > from => MESSAGES,
            FULL.. if to < from => ROOM,
            _ => 0,
        };
        if wanted != 0 && to == from {
            to = beside(from);
        }
        self.words.rung_on.set(cpu::current() as u32 + 1);
        fifo.change(from, to, wanted & !told != 0);
        self.words.rung_on.set(0);
        crash_point!(BELL_RUNG);
        if tells {
            self.words.told.set(level.word());
        }
        Some(to)
    }

    /// The FIFO, if this process can ring it. A FIFO that is gone ends the watch: the next poller makes another and shows what
    /// there is by then.
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

    /// Has all helpers look what there is, and takes flags down that they set again. So the caller pays once, whether they live or not.
    /// A process with a private FIFO leaves the flag of those up: at the end of its operation it shows its own what there is.
    fn call(&self, flags: u32) {
        let kept = if self.doorbell.polls_privately() {
            PRIVATE
        } else {
            0
        };
        self.watched.set(self.watched.get() & !(flags & !kept));
        // Release: a helper that sees the new number finds the flags taken down. It looks at the queue under the lock.
        self.words.calls.fetch_add(1, Ordering::Release);
        crash_point!(BELL_CALLED);
        futex::wake(&self.words.calls, i32::MAX);
    }

    /// Used where this process can't ring. Calls the helper of a living poller, which shows the level itself. All of `watched` is cleared,
    /// and each living helper sets its flag again: a watch whose pollers are all dead ends here.
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

    /// After an operation that found no message, or no room. The second in a row was probably woken by a FIFO that shows what is not there:
    /// then the FIFO is compared with the queue, and made to show what is.
    pub(crate) fn look_after_vain_call(&self, _: ReceiverHeld<'_>, now: Level) {
        let is_shown = self.watched.get() & LEVELS != 0 && self.words.shown.get() & BUSY == 0;
        if !self.doorbell.is_in_vain_again() || !is_shown {
            return;
        }
        let to = packets(now.bits(), held(self.words.shown.get()));
        if let Some(fifo) = self.fifo()
            && !fifo.shows(to)
        {
            fifo.hold(to);
            self.words.shown.set(to);
        }
    }

    /// Now and then looks whether a process still watches. True if no process does: then no process is told any more.
    pub(crate) fn forget_if_left(&self, _: ReceiverHeld<'_>) -> bool {
        if self.watched.get() & LEVELS != 0 && self.doorbell.is_time_to_look() {
            self.forget();
        }
        self.watched.get() == 0
    }

    /// Stops ringing, if no process polls the FIFO. True if nobody watches any more.
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
        self.words.name.set(0);
        crash_point!(BELL_UNNAMED);
    }

    /// From now on a process watches the FIFO of this name, and wants this.
    pub(crate) fn begin(&self, name: u64, wanted: u32, now: Level) {
        self.words.name.set(name);
        crash_point!(BELL_NAMED);
        self.watched.set(self.watched.get() | LEVELS | wanted);
        crash_point!(BELL_WATCHED);
        // Others may poll already: what no process has changed is no edge for them.
        self.hold(now, self.words.shown.get() & BUSY != 0);
    }

    /// Has a helper's FIFO show what there is, and has the helper called when that changes: the number on which it sleeps.
    pub(crate) fn hear(&self, _: ReceiverHeld<'_>, feed: &Feed, now: Level) -> u32 {
        let is_shared = feed.name != 0 && feed.name == self.words.name.get();
        let to = packets(now.bits(), held(self.words.shown.get()));
        // An unchanged level is no edge for processes that poll already.
        let is_edge = !is_shared || self.words.told.get() != now.word();
        if let Some(fifo) = feed.fifo(self.doorbell) {
            fifo.hold(to);
            if feed.wants_edges() && is_edge {
                fifo.nudge();
            }
        }
        let watched = self.watched.get();
        if is_shared {
            self.words.told.set(now.word());
            self.words.shown.set(to);
            self.watched.set(watched | LEVELS | HELPED | feed.wanted);
        } else {
            let heard = self.words.heard.get();
            let others = if watched & PRIVATE != 0 { EDGES } else { 0 };
            let edges = if feed.wants_edges() { EDGES } else { 0 };
            let kept = heard & (FOREIGN | others);
            self.words.heard.set(kept | edges | now.bits());
            self.watched.set(watched | PRIVATE);
        }
        // Relaxed: changed under the lock.
        self.words.calls.load(Ordering::Relaxed)
    }
}

#[cfg(not(loom))]
impl Ringer<'_> {
    /// From now on this process polls, too, and wants this. Opens the doorbell, or makes one.
    /// `mode` is the queue's: its maker has mapped the file before the file got it.
    pub(crate) fn begin_here(
        &self,
        receiving: ReceiverHeld<'_>,
        wanted: u32,
        now: Level,
        mode: u32,
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
            .feed_first(wanted, |feed| self.hear(receiving, feed, now));
        self.doorbell.has_asked(wanted);
        Ok(())
    }

    /// Has this process's private FIFO, if it has one, show what there is: what it has done itself is shown when the operation ends.
    fn show_own(&self, receiving: ReceiverHeld<'_>, now: Level) {
        if let Some(feed) = self.doorbell.private_feed() {
            let _ = self.hear(receiving, &feed, now);
        }
    }

    /// Has a helper's FIFO show everything, as a queue can't be used any more: a poller finds out. The number to sleep on.
    pub(crate) fn show_damage(&self, feed: &Feed) -> u32 {
        if let Some(fifo) = feed.fifo(self.doorbell) {
            fifo.hold(packets(IN | OUT, 1));
            fifo.nudge();
        }
        self.words.calls.load(Ordering::Relaxed)
    }
}
