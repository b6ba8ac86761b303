//! The fixed part of a System V queue's segment, and the writers and readers of each part.
//!
//! | part | written by | read by |
//! |---|---|---|
//! | [`Header`] | its creator | all processes, on attaching |
//! | [`Rights`] | a process that changes or removes the queue | all processes |
//! | [`ControlBlock`] | the lock's owner | the lock's owner; counts by all processes |
//! | [`TypeRoots`] | the lock's owner | the lock's owner |
//! | [`LeaseRoots`] | the lock's owner | the lock's owner |
//! | [`ArenaRoots`] | the lock's owner | the lock's owner |
//! | [`Delivery`] | its creator; the producers by the lock's owner | all processes, on attaching |
//! | [`Counters`] | all processes, each on the line of its processor | all processes |

use super::{ControlBlock, Delivery, Rights};
use crate::arena::ArenaRoots;
use crate::counters::Counters;
use crate::leases::LeaseRoots;
use crate::lock::tokens::ReceiverHeld;
use crate::repair::log::{self, Damage, MENDED, RepairLog};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::sysv_engine::order::TypeRoots;

/// The first eight bytes of every segment of a System V queue: "umsg-sv" and a zero.
pub const MAGIC: u64 = u64::from_le_bytes(*b"umsg-sv\0");
/// The version of the format. Segments of other versions are refused.
pub const VERSION: u32 = 2;
/// A hash of the sizes and offsets below. Two builds with different hashes refuse each other's segments.
#[cfg(not(loom))]
pub const LAYOUT_HASH: u32 = layout_hash();

/// The format and the identity of a segment. The creator writes it; all processes read it on attaching.
#[repr(C, align(128))]
#[derive(Default)]
pub struct Header {
    pub(super) magic: AtomicU64,
    pub(super) version: AtomicU32,
    pub(super) layout_hash: AtomicU32,
    /// The greatest possible value of `qbytes`.
    pub(super) capacity: AtomicU64,
    /// The length of the file, in bytes.
    pub(super) len: AtomicU64,
    /// The longest message, in bytes: the namespace's msgmax at the creation of the queue.
    pub(super) msgmax: AtomicU32,
    /// The identifier of the queue and its key (0: IPC_PRIVATE), each as the bits of an i32.
    pub(super) id: AtomicU32,
    pub(super) key: AtomicU32,
    /// The process id of the creator, and the time of the creation: CLOCK_REALTIME in nanoseconds since 1970.
    pub(super) creator: AtomicU32,
    pub(super) created_at: AtomicU64,
    /// The record of corruption, and of a salvage.
    pub damage: Damage,
    /// The inode numbers of the creator's PID namespace and, above 32 bits, its time namespace; 0 for unknown.
    pub(super) home: AtomicU64,
    /// The turn of the identifier, which grows with each further use of an index. The sequence number of the identifier is the turn modulo 65,535.
    pub(super) turn: AtomicU64,
    /// The last turn that the namespace has noted for the file's index: see `next.rs` of the namespace.
    pub(super) turns: AtomicU64,
}

// All accesses are relaxed: the words never change once the segment's file has its names. There is one exception: the next queue of a segment
// ([`Rights`]) changes the identifier, the creator, the time and the turn, under the lock. A reader without the lock therefore compares the state
// before and after its reads.
impl Header {
    /// The offsets of the identifier and of the key in the file, in bytes.
    #[cfg(not(loom))]
    pub const ID_AT: u64 = std::mem::offset_of!(Header, id) as u64;
    #[cfg(not(loom))]
    pub const KEY_AT: u64 = std::mem::offset_of!(Header, key) as u64;

    /// Returns the queue's identifier.
    pub fn id(&self) -> i32 {
        self.id.load(Ordering::Relaxed) as i32
    }

    /// Sets the identifier of a queue whose file has no names yet.
    pub fn set_id(&self, id: i32) {
        self.id.store(id as u32, Ordering::Relaxed);
    }

    /// Sets the turn of the identifier, for a queue whose file has no names yet.
    pub fn set_turn(&self, turn: u64) {
        self.turn.store(turn, Ordering::Relaxed);
        self.turns.store(turn, Ordering::Relaxed);
    }

    /// Returns the turn of the identifier.
    pub fn turn(&self) -> u64 {
        self.turn.load(Ordering::Relaxed)
    }

    /// Returns the turn after that of this queue, if the namespace has noted it already.
    pub fn next_turn(&self) -> Option<u64> {
        let next = self.turn().checked_add(1)?;
        (next <= self.turns.load(Ordering::Relaxed)).then_some(next)
    }

    /// Records that the namespace has noted all turns up to `turns` for the file's index.
    pub fn note_turns(&self, turns: u64) {
        self.turns.fetch_max(turns, Ordering::Relaxed);
    }

    /// Makes the header that of the next queue of the segment. The caller holds the lock.
    pub(crate) fn begin_next(&self, id: i32, turn: u64, creator: u32, now: u64) {
        self.set_id(id);
        self.turn.store(turn, Ordering::Relaxed);
        self.creator.store(creator, Ordering::Relaxed);
        self.created_at.store(now, Ordering::Relaxed);
    }

    /// Returns the queue's key; 0 for IPC_PRIVATE.
    pub fn key(&self) -> i32 {
        self.key.load(Ordering::Relaxed) as i32
    }

    /// Returns the process id of the creator, in the creator's PID namespace.
    pub fn creator(&self) -> u32 {
        self.creator.load(Ordering::Relaxed)
    }

    /// Returns the time of the creation: CLOCK_REALTIME, in nanoseconds since 1970.
    pub fn created_at(&self) -> u64 {
        self.created_at.load(Ordering::Relaxed)
    }
}

/// The fixed part of a segment, from the first byte of the file.
#[repr(C)]
#[derive(Default)]
pub struct Fixed {
    pub header: Header,
    pub rights: Rights,
    pub control: ControlBlock,
    pub(crate) kinds: TypeRoots,
    pub leases: LeaseRoots,
    pub arena: ArenaRoots,
    pub counters: Counters,
    /// The log of the last repairs.
    pub repair_log: [RepairLog; MENDED],
    pub delivery: Delivery,
}

impl Fixed {
    /// The offset of the permission bits in the file, in bytes.
    #[cfg(not(loom))]
    pub const MODE_AT: u64 = std::mem::offset_of!(Fixed, rights.mode) as u64;

    /// Counts and logs a repair. The caller holds the lock, whose last owner died.
    pub(crate) fn log_repair(&self, _: ReceiverHeld<'_>) {
        log::note(&self.control.lock, &self.control.repairs, &self.repair_log);
    }

    /// Returns the process whose death made the last repair necessary.
    pub(crate) fn died_last(&self) -> u32 {
        // Relaxed: the value is only displayed.
        let last = self.control.repairs.load(Ordering::Relaxed).wrapping_sub(1);
        self.repair_log[last as usize % MENDED]
            .died
            .load(Ordering::Relaxed)
    }
}

#[cfg(not(loom))]
const _: () = {
    use std::mem::{offset_of, size_of};
    assert!(size_of::<Header>() == 128 && size_of::<Rights>() == 128);
    // A send or a receive without waiters writes the first line of the control block, and reads the second line and the third line. A wait and its
    // end write the first two lines.
    assert!(offset_of!(ControlBlock, held) == 64 && offset_of!(ControlBlock, capacity) == 128);
};

/// Returns a hash of this layout, computed as [`crate::posix_engine::segment::LAYOUT_HASH`].
#[cfg(not(loom))]
const fn layout_hash() -> u32 {
    use super::{Cell, WaiterRecord};
    use crate::arena::GRANULE;
    use crate::leases::LeaseRecord;
    use crate::memory::fnv;
    use crate::sysv_engine::order::{Kind, OrderLinks};
    use crate::waiters::{NODES, Node};
    use std::mem::{offset_of, size_of};
    fnv(&[
        size_of::<Fixed>(),
        size_of::<Cell>(),
        size_of::<WaiterRecord>(),
        size_of::<OrderLinks>(),
        size_of::<Kind>(),
        size_of::<LeaseRecord>(),
        offset_of!(Fixed, control),
        offset_of!(Fixed, kinds),
        offset_of!(Fixed, leases),
        offset_of!(Fixed, arena),
        offset_of!(Fixed, counters),
        offset_of!(Rights, watched),
        offset_of!(Rights, changed_at),
        offset_of!(Fixed, repair_log),
        offset_of!(Fixed, delivery),
        offset_of!(LeaseRoots, later),
        offset_of!(Header, damage),
        offset_of!(Header, home),
        offset_of!(Header, turns),
        offset_of!(ControlBlock, free),
        offset_of!(ControlBlock, messages),
        offset_of!(ControlBlock, held),
        offset_of!(ControlBlock, arena_len),
        offset_of!(ControlBlock, doorbell),
        offset_of!(Cell, mtype),
        offset_of!(Node, since),
        offset_of!(WaiterRecord, size),
        super::layout::CELL,
        super::layout::MOST_SLOTS,
        NODES,
        GRANULE,
    ])
}
