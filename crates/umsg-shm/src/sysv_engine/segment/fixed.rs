//! The fixed part of a System V queue's segment, and the writers of each line.
//!
//! | part | written by | read by |
//! |---|---|---|
//! | [`Header`] | its creator | all processes, on attaching |
//! | [`Rights`] | a process that changes or removes the queue | all processes |
//! | [`ControlBlock`] | holder of the lock | that holder; counts by all processes |
//! | [`TypeRoots`] | holder of the lock | that holder |
//! | [`LeaseRoots`] | holder of the lock | that holder |
//! | [`ArenaRoots`] | holder of the lock | that holder |
//! | [`Counters`] | all processes, a line a processor | all processes |

use crate::arena::ArenaRoots;
use crate::counters::Counters;
use crate::leases::LeaseRoots;
use crate::lock::Lock;
use crate::repair::log::{Damage, MENDED, RepairLog};
use crate::sync::{AtomicU32, AtomicU64, Guarded32, Guarded64};
use crate::sysv_engine::order::TypeRoots;
use crate::waiters::Links;

/// First eight bytes of every segment of a System V queue: "umsg-sv" and a zero.
pub const MAGIC: u64 = u64::from_le_bytes(*b"umsg-sv\0");
/// Version of the format; another one is refused.
pub const VERSION: u32 = 1;
/// Stands for all sizes and offsets below: two builds that differ in one refuse each other's segments.
#[cfg(not(loom))]
pub const LAYOUT_HASH: u32 = layout_hash();

/// What a segment is.
#[repr(C, align(128))]
#[derive(Default)]
pub struct Header {
    pub(crate) magic: AtomicU64,
    pub(crate) version: AtomicU32,
    pub(crate) layout_hash: AtomicU32,
    /// The most that `qbytes` can ever be, in bytes.
    pub(crate) capacity: AtomicU64,
    /// Length of the file, in bytes.
    pub(crate) len: AtomicU64,
    /// The longest message, in bytes: the namespace's msgmax when the queue was made.
    pub(crate) msgmax: AtomicU32,
    /// The queue's identifier, its key (0: IPC_PRIVATE), both an i32's bits.
    pub id: AtomicU32,
    pub key: AtomicU32,
    /// Process id of the creator, and CLOCK_REALTIME in nanoseconds since 1970.
    pub creator: AtomicU32,
    pub created_at: AtomicU64,
    /// Whether something was found that makes no sense.
    pub damage: Damage,
    /// The PID namespace of the creator, and above 32 bits its time namespace: inode numbers. 0 for unknown.
    pub(crate) home: AtomicU64,
}

/// [`Rights::state`] of a queue that there is.
pub const LIVE: u32 = 1;
/// [`Rights::state`] of a queue that was removed, for ever.
pub const REMOVED: u32 = 2;

/// Permissions. Written under the lock.
#[repr(C, align(128))]
#[derive(Default)]
pub struct Rights {
    /// [`LIVE`] or [`REMOVED`].
    pub state: AtomicU32,
    /// Grows with each change of the fields below: what was judged before is judged again.
    pub version: AtomicU32,
    pub uid: AtomicU32,
    pub gid: AtomicU32,
    pub cuid: AtomicU32,
    pub cgid: AtomicU32,
    /// Permission bits.
    pub mode: AtomicU32,
    /// Which levels are watched by pollers, see [`crate::doorbell`]; 0 for none. Here, because every operation looks at this line.
    pub watched: Guarded32,
    /// CLOCK_REALTIME of the last change, in seconds since 1970.
    pub changed_at: AtomicU64,
}

/// What every operation reads and writes.
#[repr(C, align(128))]
#[derive(Default)]
pub struct ControlBlock {
    // -- first line: what each send and receive writes
    pub lock: Lock,
    /// First free slot, as slot + 1; 0 for none.
    pub free: Guarded32,
    /// Messages that are queued: msg_qnum.
    pub messages: AtomicU32,
    /// Sequence number of the last message that was sent: the store that sends one.
    pub sequence: Guarded64,
    /// Bytes of the messages that are queued: msg_cbytes.
    pub bytes: AtomicU64,
    /// CLOCK_REALTIME of the last send and receive, in seconds since 1970.
    pub(crate) sent_at: AtomicU64,
    pub(crate) received_at: AtomicU64,
    /// Process ids of the last sender and receiver.
    pub(crate) sender: AtomicU32,
    pub(crate) receiver: AtomicU32,
    /// The most bytes that may be queued: msg_qbytes.
    pub capacity: AtomicU64,
    // -- second line: what each operation reads; written when a thread waits or holds
    /// Messages that are leased, and their bytes: they take room, and are not queued.
    pub held: AtomicU64,
    pub(crate) held_bytes: AtomicU64,
    /// Blocked threads that want a message, want to send, have been offered a message.
    pub(crate) receivers: Links,
    pub(crate) offered: Links,
    pub(crate) senders: Links,
    /// Nodes that are real memory; the last ticket.
    pub(crate) nodes: Guarded32,
    pub(crate) ticket: Guarded64,
    // -- memory
    /// Slots that were ever used, and slots that are real memory.
    pub used: Guarded32,
    pub usable: Guarded32,
    /// Granules of the arena in use; 1 while its lists are being changed.
    pub(crate) arena_len: Guarded32,
    pub(crate) arena_dirty: Guarded32,
    /// Repairs since creation.
    pub repairs: AtomicU32,
    /// What the doorbell shows, and which it is.
    pub doorbell: crate::doorbell::Words,
}

/// All of it, from the first byte of the file.
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
    /// The last repairs.
    pub repair_log: [RepairLog; MENDED],
}

#[cfg(not(loom))]
const _: () = {
    use std::mem::{offset_of, size_of};
    assert!(size_of::<Header>() == 128 && size_of::<Rights>() == 128);
    // A send or a receive for which no thread waits writes one line of the control block, and reads another. To wait and to be served
    // takes no third.
    assert!(offset_of!(ControlBlock, held) == 64 && offset_of!(ControlBlock, used) == 128);
};

/// As [`crate::posix_engine::segment::LAYOUT_HASH`], for this layout.
#[cfg(not(loom))]
const fn layout_hash() -> u32 {
    use super::{Cell, Seat};
    use crate::arena::GRANULE;
    use crate::leases::LeaseRecord;
    use crate::memory::fnv;
    use crate::sysv_engine::order::{Kind, Place};
    use crate::waiters::{NODES, Node};
    use std::mem::{offset_of, size_of};
    fnv(&[
        size_of::<Fixed>(),
        size_of::<Cell>(),
        size_of::<Seat>(),
        size_of::<Place>(),
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
        offset_of!(Header, damage),
        offset_of!(Header, home),
        offset_of!(ControlBlock, free),
        offset_of!(ControlBlock, messages),
        offset_of!(ControlBlock, held),
        offset_of!(ControlBlock, arena_len),
        offset_of!(ControlBlock, doorbell),
        offset_of!(Cell, mtype),
        offset_of!(Node, since),
        offset_of!(Seat, size),
        super::layout::CELL,
        super::layout::MOST_SLOTS,
        NODES,
        GRANULE,
    ])
}

#[cfg(all(test, not(loom)))]
mod tests {
    #[test]
    fn the_specification_names_this_layout() {
        let specification = include_str!("../../../../../docs/format.md");
        let hash = format!("{:#010x}", super::LAYOUT_HASH);
        assert!(specification.contains(&hash), "docs/format.md: {hash}");
    }
}
