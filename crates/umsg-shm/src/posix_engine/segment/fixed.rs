//! The fixed part of a segment, and the writers of each line.
//!
//! Lines that different sides write are 128 bytes apart, because the prefetcher fetches lines in pairs.
//!
//! | part | written by | read by |
//! |---|---|---|
//! | [`Header`] | its creator; `mode` by the process that may change it | all processes, on attaching |
//! | [`WaitFlags`] | receivers that block | every sender, after publishing |
//! | [`Run`] | senders, when the priority changes | every receiver |
//! | [`Geometry`] | the holder of both locks | all processes |
//! | [`SenderSide`] | holder of the sender lock | that holder; `sent` by all processes |
//! | [`Published`] | holder of the receiver lock | senders that find no room |
//! | [`ReceiverSide`] | holder of the receiver lock; `repairs[0]` by that of the sender lock | that holder; `drained` and `stored` by all processes |
//! | [`LeaseRoots`] | holder of the receiver lock | that holder; `reserved` and `aside` by all processes |
//! | [`ArenaRoots`] | holder of the sender lock | that holder |
//! | [`Rules`] | its creator | all processes, on attaching |
//! | [`Notice`] | holder of the receiver lock; `word` by the registered process too | that process, when it registers |
//! | [`RepairLog`] | holder of the lock of its side | people |

use super::geometry::Geometry;
use super::ownership::Ownership;
use super::run::Run;
use super::wait_flags::WaitFlags;
use super::{ArenaRoots, LeaseRoots, Links};
use crate::lock::Lock;
use crate::repair::log::{Damage, MENDED, RepairLog};
use crate::sync::{AtomicU32, AtomicU64, Guarded32, Guarded64};

/// First eight bytes of every segment: "umsg-mq" and a zero.
pub const MAGIC: u64 = u64::from_le_bytes(*b"umsg-mq\0");
/// Version of the format; another one is refused.
pub const VERSION: u32 = 2;
/// Stands for all sizes and offsets below: two builds that differ in one refuse each other's segments.
#[cfg(not(loom))]
pub const LAYOUT_HASH: u32 = layout_hash();

/// Words of the second level of the priority bitmap.
#[cfg(not(loom))]
pub const LEVEL1: usize = super::PRIORITIES / 64 / 64;
#[cfg(loom)]
pub const LEVEL1: usize = 1;

/// What a segment is.
#[repr(C, align(128))]
#[derive(Default)]
pub struct Header {
    pub(crate) magic: AtomicU64,
    pub(crate) version: AtomicU32,
    pub(crate) layout_hash: AtomicU32,
    pub(crate) max_messages: AtomicU32,
    /// Bytes.
    pub(crate) message_size: AtomicU32,
    /// Length of the file, in bytes.
    pub(crate) len: AtomicU64,
    /// Permission bits as the queue's creator or fchmod set them.
    pub mode: AtomicU32,
    /// Process id of the creator.
    pub creator: AtomicU32,
    /// CLOCK_REALTIME, in nanoseconds since 1970.
    pub created_at: AtomicU64,
    /// Whether something was found that makes no sense.
    pub damage: Damage,
    /// The PID namespace of the creator, and above 32 bits its time namespace: inode numbers. 0 for unknown.
    pub(crate) home: AtomicU64,
}

/// The senders' side.
#[repr(C, align(128))]
#[derive(Default)]
pub struct SenderSide {
    pub lock: Lock,
    /// The machine's clock at the last send, in nanoseconds.
    pub last_send: AtomicU64,
    /// Ring position of the next message: how many were ever sent through the ring.
    pub sent: AtomicU64,
    /// Bytes ever sent through the ring; the element `sent & 1` is the one that counts, so that both change with the
    /// one store to `sent`.
    pub(crate) bytes: [AtomicU64; 2],
    /// [`Published::freed`] and [`Published::removed`] as last read.
    pub freed_seen: Guarded64,
    pub removed_seen: Guarded64,
    /// Which pages of the fifo region are real memory, one bit each.
    pub(crate) fifo_pages: Guarded64,
    /// Bytes of the arena in use, in granules.
    pub(crate) arena_len: Guarded32,
    /// 1 while the arena's lists are being changed.
    pub(crate) arena_dirty: Guarded32,
    /// Ring position behind the batch that is being sent, or was sent last: none is under way unless it is beyond `sent`.
    /// Atomic because [`crate::posix_engine::Engine::counts`] asks what a dead sender has sent.
    pub batch_end: AtomicU64,
    /// What counts in `bytes` once that batch is sent.
    pub(crate) batch_bytes: AtomicU64,
}

/// What the receivers' side tells the senders' side.
#[repr(C, align(128))]
#[derive(Default)]
pub struct Published {
    /// Ring position up to which slots may be filled.
    pub freed: AtomicU64,
    /// `sent - removed` messages are queued.
    pub removed: AtomicU64,
    /// `bytes sent - removed_bytes` bytes are queued.
    pub removed_bytes: AtomicU64,
}

/// The receivers' side.
#[repr(C, align(128))]
#[derive(Default)]
pub struct ReceiverSide {
    // -- first line: what each receive writes
    pub lock: Lock,
    /// The machine's clock at the last receive, in nanoseconds.
    pub last_receive: AtomicU64,
    /// Ring position of the next message to be taken from the ring.
    pub drained: AtomicU64,
    /// Bytes ever taken from the ring; the element `drained & 1` counts.
    pub bytes: [AtomicU64; 2],
    /// Messages in the store, and their bytes.
    pub stored: AtomicU64,
    pub stored_bytes: AtomicU64,
    /// [`SenderSide::sent`] as last read: up to there the ring is worth fetching ahead.
    pub(crate) sent_seen: Guarded64,
    // -- second line: what each receive reads, and a sender that finds no room; written when a process blocks or holds
    /// Third level of the priority bitmap.
    pub level2: Guarded64,
    /// Messages that are held beyond a call: they count for the queue's capacity, and are not queued.
    pub held: AtomicU64,
    /// Blocked threads that want a message, want to send, have been offered a message.
    pub(crate) receivers: Links,
    pub(crate) senders: Links,
    pub(crate) offered: Links,
    /// Which levels are watched by pollers, see [`crate::doorbell`]; 0 for nobody.
    pub watched: Guarded32,
    /// Whether a process is registered for a notification, see [`crate::posix_engine::notification`]. Read by spinners as a hint.
    pub registered: AtomicU32,
    // -- blocking and the store
    /// Nodes that are real memory.
    pub(crate) nodes: Guarded32,
    /// Next ticket of a waiter, next sequence number of a stored message.
    pub(crate) ticket: Guarded64,
    pub sequence: Guarded64,
    /// Second level of the priority bitmap.
    pub level1: [Guarded64; LEVEL1],
    /// Repairs since creation: of the sender side, of the receiver side.
    pub repairs: [AtomicU32; 2],
    /// What the doorbell shows, and which it is.
    pub doorbell: crate::doorbell::Words,
    /// Registrations for a notification beyond the fixed ones that are real memory.
    pub notices: AtomicU32,
}

/// Registrations for a notification that a queue has room for from the start: the one that there is, and those that were fired and
/// whose processes have not taken note yet. Further ones lie in a region of their own.
#[cfg(not(loom))]
pub(crate) const NOTICES: usize = 8;
#[cfg(loom)]
pub(crate) const NOTICES: usize = 2;

/// A process's registration for a notification; see [`crate::posix_engine::notification`].
#[repr(C, align(64))]
#[derive(Default)]
pub struct Notice {
    /// The state, and the futex on which the registered process sleeps until it is fired, and the sender that fired it until it is heard.
    pub word: AtomicU32,
    /// How the process is told, and by which signal: for people, and for a process that fires. The process itself knows better.
    pub(crate) what: AtomicU32,
    pub(crate) signal: AtomicU32,
    /// The process, and what tells it from others of that id.
    pub pid: AtomicU32,
    pub(crate) birth: AtomicU64,
    /// Which of its registrations.
    pub ticket: AtomicU64,
    /// The process whose message fired it, and above 32 bits its real user; all ones until a process has asked for that.
    pub(crate) sender: AtomicU64,
}

/// Policies; see [`crate::posix_engine::segment::policy`].
use super::policy::Rules;

/// Counters; see [`crate::counters`].
pub(crate) use crate::counters::Counters;

/// All of it, from the first byte of the file.
#[repr(C)]
#[derive(Default)]
pub struct Fixed {
    pub header: Header,
    pub wait_flags: WaitFlags,
    pub run: Run,
    pub geometry: Geometry,
    pub sender: SenderSide,
    pub published: Published,
    pub receiver: ReceiverSide,
    pub leases: LeaseRoots,
    pub arena: ArenaRoots,
    pub counters: Counters,
    pub rules: Rules,
    pub ownership: Ownership,
    pub notices: [Notice; NOTICES],
    /// The last repairs: of the sender side, of the receiver side.
    pub repair_log: [[RepairLog; MENDED]; 2],
}

#[cfg(not(loom))]
const _: () = {
    use std::mem::{offset_of, size_of};
    assert!(size_of::<Header>() == 128 && size_of::<SenderSide>() == 128);
    assert!(offset_of!(Fixed, wait_flags) == 128);
    assert!(offset_of!(Fixed, run) == 256);
    assert!(offset_of!(Fixed, geometry) == 384);
    assert!(offset_of!(Fixed, sender) == 512);
    assert!(offset_of!(Fixed, published) == 640);
    assert!(offset_of!(Fixed, receiver) == 768);
    assert!(offset_of!(Fixed, leases) == 1024);
    assert!(offset_of!(Fixed, arena) == 1152);
    // The receive path stays within the receiver side's first pair of lines.
    assert!(offset_of!(ReceiverSide, nodes) <= 128);
    assert!(size_of::<Notice>() == 64 && size_of::<Fixed>() <= 8192);
    assert!(offset_of!(ReceiverSide, level2) == 64);
};

/// A hash of sizes and offsets. Most changes of fields change one of them. A change that keeps them all, such as swapping two fields or using
/// spare bytes, needs another [`VERSION`].
#[cfg(not(loom))]
const fn layout_hash() -> u32 {
    use super::{Cell, Fifo, LeaseRecord, Node};
    use std::mem::{offset_of, size_of};
    crate::memory::fnv(&[
        size_of::<Fixed>(),
        size_of::<Cell>(),
        size_of::<Node>(),
        size_of::<Fifo>(),
        size_of::<LeaseRecord>(),
        offset_of!(Fixed, sender),
        offset_of!(Fixed, published),
        offset_of!(Fixed, receiver),
        offset_of!(Fixed, leases),
        offset_of!(Fixed, arena),
        offset_of!(Fixed, counters),
        offset_of!(Fixed, rules),
        offset_of!(Fixed, ownership),
        offset_of!(Fixed, notices),
        offset_of!(Fixed, repair_log),
        offset_of!(Header, damage),
        offset_of!(Header, home),
        offset_of!(SenderSide, sent),
        offset_of!(SenderSide, batch_end),
        offset_of!(ReceiverSide, drained),
        offset_of!(ReceiverSide, watched),
        offset_of!(ReceiverSide, repairs),
        offset_of!(ReceiverSide, doorbell),
        offset_of!(ReceiverSide, notices),
        super::cell::SHORT_CELL,
        super::cell::LONG_CELL,
        offset_of!(Cell, sequence),
        offset_of!(Node, wanted),
        offset_of!(Node, since),
        super::NODES,
        super::MORE_NOTICES,
        super::PRIORITIES,
        super::GRANULE,
        super::layout::ARENA_GAP,
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
