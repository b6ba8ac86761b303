//! A segment: the file that is a queue, and the map of it.
//!
//! ```text
//! Fixed     header · board · run · geometry · sender side · published · receiver side · arena roots   (fixed.rs)
//! levels    which of the 32,768 priorities have messages: 512 words of 64 bits
//! fifos     head and tail of each priority's list
//! nodes     one a blocked thread
//! ring      slot numbers: received ones waiting to be filled, filled ones waiting to be received
//! links     one a slot: the next stored message of the same priority
//! holds     one a message that is reserved or leased
//! cells     one a slot: the message's header, and a short message's bytes
//! arena     blocks for longer messages
//! notices   registrations beyond those in the fixed part, of processes that were notified and have not run since
//! ```
//!
//! Where each region starts follows from two numbers, how many messages of which size the queue may hold; a reader
//! computes it and believes nothing else. The file has its full length from the start and is sparse: regions come
//! into use from their beginning on, always by [`Segment::populate`] first.

#[cfg(not(loom))]
mod attach;
#[allow(unsafe_code, reason = "shared memory is Sync by protocol")]
mod cell;
#[cfg(not(loom))]
mod create;
mod fixed;
#[cfg(not(loom))]
pub(crate) mod last_close;
mod layout;
#[cfg(not(loom))]
#[allow(unsafe_code, reason = "references into the mapping, copies in and out")]
mod mapped;
#[cfg(not(loom))]
#[allow(unsafe_code, reason = "references into a mapping")]
mod memory;
mod policy;
#[cfg(not(loom))]
mod quota;
mod tables;

#[cfg(not(loom))]
pub(crate) use attach::{LARGEST_MESSAGE, MOST_MESSAGES, OUT_OF_RANGE, attach, attach_by, check};
pub(crate) use cell::Cell;
#[cfg(not(loom))]
pub(crate) use create::{create, set_length};
pub(crate) use fixed::NOTICES;
pub(crate) use fixed::{
    ARENA_CLASSES, ARENA_SUBCLASSES, ArenaRoots, Fixed, Holding, LEVEL1, Links, Notice, Ownership,
    SenderSide,
};
#[cfg(not(loom))]
pub(crate) use fixed::{LAYOUT_HASH, MAGIC, VERSION, fnv};
#[cfg(not(loom))]
pub(crate) use last_close::{dead_letter_label, set_dead_letter_label};
pub(crate) use layout::{GRANULE, Layout, MORE_NOTICES, NODES, PRIORITIES};
#[cfg(not(loom))]
pub(crate) use mapped::Segment;
#[cfg(not(loom))]
pub(crate) use memory::Memory;
pub use policy::OnFull;
pub(crate) use policy::{Policy, Rules};
#[cfg(not(loom))]
pub(crate) use quota::Quota;

#[cfg(loom)]
pub(crate) use crate::model::segment::Segment;

use crate::sync::{AtomicU32, Guarded32, Guarded64};

/// Head and tail of the list of one priority's messages. Meaningful only while the priority's bit is set.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Fifo {
    pub(crate) head: Guarded32,
    pub(crate) tail: Guarded32,
}

/// What a blocked thread leaves for those who may end its waiting; see [`crate::waiters`].
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct Node {
    /// The state, and the futex that the thread sleeps on; see the table in [`crate::waiters`].
    pub(crate) word: AtomicU32,
    /// Which list the node is in.
    pub(crate) list: Guarded32,
    /// Neighbours in that list, as index + 1; 0 for none.
    pub(crate) next: Guarded32,
    pub(crate) previous: Guarded32,
    /// A blocked sender's own message, [`NO_SLOT`] of a batch; the message offered to a receiver.
    pub(crate) slot: Guarded32,
    /// The thread's scheduling rank, once somebody waits beside it: lower is served first.
    pub(crate) rank: Guarded32,
    /// The thread, its process and its start time in clock ticks since boot: proof of its death where the kernel
    /// could not mark the word.
    pub(crate) tid: Guarded32,
    pub(crate) pid: Guarded32,
    pub(crate) birth: Guarded64,
    /// Order of arrival among equal ranks.
    pub(crate) ticket: Guarded64,
    /// The machine's clock, in nanoseconds, at the offer; of a batch, since when it is its
    /// turn, before that when somebody last asked whether its thread lives.
    pub(crate) offered_at: Guarded64,
    /// Of a batch: how many messages it waits to send at once.
    pub(crate) wanted: Guarded32,
    /// Since when it waits: the machine's clock in milliseconds, modulo 2^32. For people.
    pub(crate) since: Guarded32,
}

/// In place of a slot: the node of a sender that waits for room for a whole batch. Its messages are nowhere but in its
/// own memory.
pub(crate) const NO_SLOT: u32 = u32::MAX;

/// A message that is held beyond a call; see [`crate::holds`].
#[repr(C, align(16))]
#[derive(Default)]
pub(crate) struct Hold {
    /// See the table in [`crate::holds`].
    pub(crate) state: Guarded32,
    pub(crate) slot: Guarded32,
    /// Neighbours in the list of holds, as index + 1; 0 for none. A free record: the next free one.
    pub(crate) next: Guarded32,
    pub(crate) previous: Guarded32,
    /// The process that holds it, and what tells it from others of that id; see [`crate::sys::process::birth`].
    pub(crate) pid: Guarded32,
    /// How often the message has been delivered, this time included.
    pub(crate) deliveries: Guarded32,
    pub(crate) birth: Guarded64,
    /// Unlike that of any other hold, ever.
    pub(crate) ticket: Guarded64,
    /// The machine's clock, in nanoseconds, at which a lease ends by itself; 0 for never.
    pub(crate) until: Guarded64,
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Node>() == 64 && size_of::<Fifo>() == 8);
    assert!(size_of::<Hold>() == 48);
};

/// Segments for unit tests, in memory that has no name.
#[cfg(all(test, not(loom)))]
pub(crate) mod testing {
    use super::{Layout, Policy, Segment, create};
    use std::os::fd::AsFd;

    /// An empty segment whose slots are all in circulation and real memory, as many as messages.
    pub(crate) fn segment(max_messages: usize, message_size: usize) -> Segment {
        let file = crate::sys::file::nameless("umsg-test").unwrap();
        let layout = Layout::new(max_messages, message_size);
        let segment = create(file.as_fd(), layout, 0o600, &Policy::default()).unwrap();
        segment.populate(layout.cells, max_messages * 128).unwrap();
        segment.populate(layout.links, max_messages * 4).unwrap();
        segment
            .populate(layout.fifos, super::PRIORITIES * 8)
            .unwrap();
        segment
    }
}
