//! From a queue to its doorbell: what the segment says of it, and the steps of ringing. All under the queue's lock.

use super::{Doorbell, LEVELS, MESSAGES, ROOM, Readiness};
use crate::crash::crash_point;
use crate::sync::{Guarded32, Guarded64};

/// [`Words::shown`].
const IN: u32 = 1;
const OUT: u32 = 2;
/// Somebody is ringing, or has died at it: what the FIFO holds has to be counted.
const BUSY: u32 = 4;
/// Who repaired after that could not count it: whoever can does.
const UNKNOWN: u32 = 8;

/// So many operations of a process on a queue that is watched pass before it looks whether it still is.
const LOOK: u32 = 256;

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

    fn word(self) -> u64 {
        u64::from(self.messages) << 32 | u64::from(self.room)
    }
}

/// How many packets show it.
fn packets(bits: u32) -> u32 {
    match bits & (IN | OUT) {
        IN => 2,
        OUT => 0,
        _ => 1,
    }
}

/// What a segment says of its doorbell, apart from whether it is watched: nobody touches it while it is not.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Words {
    /// What the FIFO shows.
    pub(crate) shown: Guarded32,
    /// The level that was told last, to who asked for every edge.
    pub(crate) told: Guarded64,
    /// The FIFO's name is made of this number; 0: there is none.
    pub(crate) name: Guarded64,
}

/// What one operation needs of a doorbell.
pub(crate) struct Chain<'a> {
    /// Who watches: [`LEVELS`], [`MESSAGES`], [`ROOM`]; 0 for nobody. Looked at by each operation.
    pub(crate) watched: &'a Guarded32,
    pub(crate) words: &'a Words,
    pub(crate) bell: &'a Doorbell,
}

impl Chain<'_> {
    /// Shows what becomes possible with the operation's next step, which takes the queue from one level to another.
    pub(crate) fn foretell(&self, now: Level, then: Level) {
        self.count_if_unknown(now);
        let shown = self.words.shown.get();
        if shown & BUSY != 0 {
            // Foretold before, by this operation: it does so for each of its messages.
            return;
        }
        let to = shown | now.bits() | then.bits();
        if to == shown && !self.tells_edges(then) {
            return;
        }
        self.words.shown.set(shown | BUSY);
        crash_point!(BELL_BEGUN);
        if !self.ring(shown, to, then) {
            self.words.shown.set(shown);
            return;
        }
        self.words.shown.set(to | BUSY);
        crash_point!(BELL_FORETOLD);
    }

    /// Shows what is, at the end of an operation.
    pub(crate) fn settle(&self, now: Level) {
        self.count_if_unknown(now);
        let shown = self.words.shown.get();
        let to = now.bits();
        if shown == to && !self.tells_edges(now) {
            return;
        }
        let (from, unknown) = (shown & (IN | OUT), shown & UNKNOWN);
        if from != to || self.tells_edges(now) {
            self.words.shown.set(shown | BUSY);
            if !self.ring(from, to, now) {
                // It shows what it did: the next operation of who can ring makes up for it.
                self.words.shown.set(from | unknown);
                return;
            }
        }
        self.words.shown.set(to | unknown);
        crash_point!(BELL_SETTLED);
    }

    /// Shows what is, whatever the FIFO holds: after a death under the lock.
    pub(crate) fn mend(&self, now: Level) {
        self.hold(now, true);
    }

    /// Has the FIFO show what is, and if asked to, all who poll look again.
    fn hold(&self, now: Level, nudge: bool) {
        if self.watched.get() == 0 {
            return;
        }
        let to = now.bits();
        self.words.shown.set(self.words.shown.get() | BUSY);
        let Some(gong) = self.bell.gong(self.words.name.get()) else {
            self.words.shown.set(to | UNKNOWN);
            return;
        };
        gong.hold(packets(to));
        if nudge {
            gong.nudge();
        }
        self.words.told.set(now.word());
        self.words.shown.set(to);
    }

    /// Before anything is shown: makes up for a repair by a process that had no descriptor left.
    fn count_if_unknown(&self, now: Level) {
        if self.words.shown.get() & UNKNOWN != 0 {
            self.hold(now, true);
        }
    }

    /// Whether who asked for every edge has to be told of this level.
    fn tells_edges(&self, level: Level) -> bool {
        self.watched.get() & (MESSAGES | ROOM) != 0 && self.words.told.get() != level.word()
    }

    /// False if this process can't.
    fn ring(&self, from: u32, to: u32, level: Level) -> bool {
        let Some(gong) = self.bell.gong(self.words.name.get()) else {
            return false;
        };
        let (before, after) = (packets(from), packets(to));
        let mut woken = 0;
        for _ in before..after {
            if !gong.push() {
                gong.hold(after);
            }
            woken |= MESSAGES;
        }
        for held in (after..before).rev() {
            if !gong.pop() {
                gong.hold(after);
            }
            // The kernel tells who waits for room when a full pipe is read.
            if held == 1 {
                woken |= ROOM;
            }
        }
        crash_point!(BELL_RUNG);
        if self.tells_edges(level) {
            self.tell(&gong, level, woken);
        }
        true
    }

    /// Tells who asked for every edge, unless the kernel has.
    fn tell(&self, gong: &Gong<'_>, level: Level, woken: u32) {
        let bits = level.bits();
        let ready =
            if bits & IN != 0 { MESSAGES } else { 0 } | if bits & OUT != 0 { ROOM } else { 0 };
        if self.watched.get() & ready & !woken != 0 {
            gong.nudge();
        }
        self.words.told.set(level.word());
    }

    /// Now and then looks whether somebody still watches. True if nobody does: then nobody is told any more.
    pub(crate) fn forget_if_left(&self) -> bool {
        self.bell.is_time_to_look(LOOK) && self.forget()
    }

    /// Stops telling, if nobody watches.
    pub(crate) fn forget(&self) -> bool {
        let name = self.words.name.get();
        let Some(left) = self.bell.left(name) else {
            return false;
        };
        self.watched.set(0);
        crash_point!(BELL_FORGOTTEN);
        self.words.name.set(0);
        crash_point!(BELL_UNNAMED);
        left.remove();
        true
    }

    /// From now on somebody watches the FIFO of this name, and wants this.
    pub(crate) fn begin(&self, name: u64, wanted: u32, now: Level) {
        self.words.name.set(name);
        crash_point!(BELL_NAMED);
        self.watched.set(self.watched.get() | LEVELS | wanted);
        crash_point!(BELL_WATCHED);
        // Others may poll already: what nobody has changed is no edge for them.
        self.hold(now, self.words.shown.get() & BUSY != 0);
    }
}

#[cfg(not(loom))]
pub(super) use super::descriptor::Gong;
#[cfg(loom)]
pub(super) use crate::model::doorbell::Gong;
