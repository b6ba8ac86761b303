//! The fixed part of a segment, and the threads that write each cache line.
//!
//! Lines that different sides write are 128 bytes apart, because the prefetcher fetches pairs of lines.
//!
//! | part | written by | read by |
//! |---|---|---|
//! | [`Header`] | its creator; `mode` by the process that may change it; `presence` by all processes | all processes, on attaching |
//! | [`WaitFlags`] | receivers that block | every sender, after publishing |
//! | [`Run`] | senders, when the priority changes | every receiver |
//! | [`Geometry`] | the holder of both locks | all processes |
//! | [`SenderSide`] | holder of the sender lock | that holder; `sent` by all processes |
//! | [`Published`] | holder of the receiver lock | senders that find no room |
//! | [`ReceiverSide`] | holder of the receiver lock | that holder; `drained` and `stored` by all processes |
//! | [`LeaseRoots`] | holder of the receiver lock | that holder; `reserved` and `aside` by all processes |
//! | [`ArenaRoots`] | holder of the sender lock | that holder |
//! | [`Rules`] | its creator | all processes, on attaching |
//! | [`Notice`] | holder of the receiver lock; `word` by the registered process too | the registered process |
//! | [`Producers`] | holder of the receiver lock | that holder |
//! | [`RepairLog`], `repairs` | holder of the lock of its side | people |

use super::geometry::Geometry;
use super::header::Header;
use super::notice::{NOTICES, Notice};
use super::ownership::Ownership;
use super::policy::Rules;
use super::published::Published;
use super::receiver::ReceiverSide;
use super::run::Run;
use super::sender::SenderSide;
use super::wait_flags::WaitFlags;
use super::{ArenaRoots, LeaseRoots};
use crate::counters::Counters;
use crate::producers::Producers;
use crate::repair::log::{MENDED, RepairLog};
use crate::sync::{AtomicU32, Ordering};

/// The first eight bytes of every segment: "umsg-mq" and a zero byte.
pub const MAGIC: u64 = u64::from_le_bytes(*b"umsg-mq\0");
/// The version of the format. A process refuses segments of other versions.
pub const VERSION: u32 = 3;
/// A hash of all sizes and offsets of the segment's structures. Builds with different hashes refuse each other's segments.
#[cfg(not(loom))]
pub const LAYOUT_HASH: u32 = layout_hash();

/// The fixed part of a segment, at the first byte of the file. The words of each part are private, and its functions change them. A diagnosis reads
/// the words by [`Fixed::words`].
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
    /// The last repairs of the sender side, and the last repairs of the receiver side.
    pub repair_log: [[RepairLog; MENDED]; 2],
    /// The number of repairs of the sender side, and of the receiver side, since the creation of the queue.
    pub(super) repairs: [AtomicU32; 2],
    pub producers: Producers,
}

impl Fixed {
    /// Returns the process whose death caused the last repair of a side of the queue. `side` is 0 for the senders' side, 1 for the receivers' side.
    pub(crate) fn died_last(&self, side: usize) -> u32 {
        // Relaxed: the value is only displayed.
        let last = self.repairs[side].load(Ordering::Relaxed).wrapping_sub(1);
        let record = &self.repair_log[side][last as usize % MENDED];
        record.died.load(Ordering::Relaxed)
    }
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
    // A receive accesses only the first pair of lines of the receiver side.
    assert!(offset_of!(ReceiverSide, nodes) <= 128);
    assert!(size_of::<Notice>() == 64 && size_of::<Fixed>() <= 8192);
    assert!(offset_of!(ReceiverSide, level2) == 64);
};

/// Returns a hash of sizes and offsets. Most changes of fields change a size or an offset. A change without effect on sizes and offsets, such as
/// swapping two fields or using spare bytes, needs another [`VERSION`], unless other builds of this version may leave these bytes 0, as with
/// `Published::entered`.
#[cfg(not(loom))]
const fn layout_hash() -> u32 {
    use super::{Cell, Deliveries, Fifo, HistoryRecord, LeaseRecord, Node, Notice, TraceRecord};
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
        Header::OFFSETS[0],
        Header::OFFSETS[1],
        Header::OFFSETS[2],
        offset_of!(SenderSide, sent),
        offset_of!(SenderSide, batch_end),
        offset_of!(ReceiverSide, drained),
        offset_of!(ReceiverSide, watched),
        offset_of!(Fixed, repairs),
        offset_of!(Fixed, producers),
        offset_of!(ReceiverSide, doorbell),
        offset_of!(LeaseRoots, later),
        offset_of!(ReceiverSide, notices),
        super::receiver::TURN,
        offset_of!(Published, deferred_ring),
        Rules::FAIR_PRIORITIES,
        Notice::CONSENT,
        super::cell::SHORT_CELL,
        super::cell::LONG_CELL,
        offset_of!(Cell, sequence),
        offset_of!(Node, wanted),
        offset_of!(Node, since),
        super::NODES,
        super::MORE_NOTICES,
        super::PRIORITIES,
        super::GRANULE,
        crate::arena::ARENA_GAP,
        size_of::<Deliveries>(),
        size_of::<HistoryRecord>(),
        offset_of!(LeaseRoots, histories),
        size_of::<TraceRecord>(),
        offset_of!(LeaseRoots, traces),
        Rules::TRACE_MESSAGES,
    ])
}
