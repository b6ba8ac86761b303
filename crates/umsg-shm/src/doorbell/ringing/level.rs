//! The level of a queue: its messages and room, and the packets in the FIFO that show it.

use super::super::{FULL, LOOK_FOR_MESSAGES, LOOK_FOR_ROOM, MESSAGES, ROOM, Readiness};

/// The bit of a level at which a receive is possible.
pub(super) const IN: u32 = 1;
/// The bit of a level at which a send is possible.
pub(super) const OUT: u32 = 2;
/// A flag beside OUT, also in [`Words::shown`](super::Words::shown) and [`Words::heard`](super::Words::heard): the queue has neither messages nor room. A FIFO shows this level as room, so a
/// poller that tries to send finds no room. When room comes later, pollers need an event for it, because the FIFO does not change.
pub(super) const NEITHER: u32 = 32;

/// The mask in [`Words::shown`](super::Words::shown) for the number of packets in the FIFO, at most [`FULL`].
pub(super) const PACKETS: u32 = 7;

/// The readiness of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    /// The number of messages that can be received.
    pub(crate) messages: u32,
    /// The room for further messages. POSIX: in messages; System V: in bytes.
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

    /// Returns the level after a change of messages and room.
    pub(crate) fn after(self, messages: i64, room: i64) -> Level {
        let add = |count: u32, more: i64| (i64::from(count) + more).max(0) as u64;
        Level::new(add(self.messages, messages), add(self.room, room))
    }

    /// Returns the bits that the FIFO shows. A FIFO can't show a queue with neither messages nor room, for example if all messages are leased. For
    /// such a queue, the FIFO shows room.
    pub(super) fn bits(self) -> u32 {
        match (self.messages != 0, self.room != 0) {
            (true, true) => IN | OUT,
            (true, false) => IN,
            (false, _) => OUT,
        }
    }

    /// Returns [`NEITHER`] if there are neither messages nor room.
    pub(super) fn neither(self) -> u32 {
        match (self.messages, self.room) {
            (0, 0) => NEITHER,
            _ => 0,
        }
    }

    /// Returns whether the queue has room now, and had neither messages nor room when these flags were set.
    pub(super) fn brings_room_to(self, flags: u32) -> bool {
        flags & NEITHER != 0 && self.room != 0
    }

    pub(crate) fn readiness(self) -> Readiness {
        Readiness {
            readable: self.messages != 0,
            writable: self.room != 0,
        }
    }

    /// Returns the edge flags of pollers that get an event for this level.
    pub(super) fn edges(self) -> u32 {
        match self.bits() {
            IN => MESSAGES,
            OUT => ROOM,
            _ => MESSAGES | ROOM,
        }
    }

    pub(super) fn word(self) -> u64 {
        u64::from(self.messages) << 32 | u64::from(self.room)
    }
}

/// Returns the number of packets that [`Words::shown`](super::Words::shown) claims, which a hostile process can forge.
pub(super) fn held(shown: u32) -> u32 {
    (shown & PACKETS).min(FULL)
}

/// Returns the bits that a number of packets shows.
pub(super) fn shows(packets: u32) -> u32 {
    match packets {
        0 => OUT,
        1..FULL => IN | OUT,
        _ => IN,
    }
}

/// Returns the number of packets that shows these bits, with the smallest change from the current number.
pub(super) fn packets(bits: u32, held: u32) -> u32 {
    match bits & (IN | OUT) {
        IN => FULL,
        OUT => 0,
        _ => held.clamp(1, FULL - 1),
    }
}

/// Returns the numbers of messages and of room that these flags of [`Ringer::watched`](super::Ringer::watched) add to the level: 1 or 0.
pub(super) fn looks_for(watched: u32) -> [u32; 2] {
    [LOOK_FOR_MESSAGES, LOOK_FOR_ROOM].map(|flag| (watched & flag != 0).into())
}

/// Returns another number of packets that shows the same level. If no other number does, returns `packets`.
pub(super) fn beside(packets: u32) -> u32 {
    match packets {
        0 | FULL.. => packets,
        1 => 2,
        more => more - 1,
    }
}
