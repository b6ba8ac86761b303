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
use super::published::Published;
use super::receiver::ReceiverSide;
use super::run::Run;
use super::sender::SenderSide;
use super::wait_flags::WaitFlags;
use super::{ArenaRoots, LeaseRoots};
use crate::repair::log::{Damage, MENDED, RepairLog};
use crate::sync::{AtomicU32, AtomicU64};

/// First eight bytes of every segment: "umsg-mq" and a zero.
pub const MAGIC: u64 = u64::from_le_bytes(*b"umsg-mq\0");
/// Version of the format; another one is refused.
pub const VERSION: u32 = 2;
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
