//! A segment: the file of a queue, and its mapping.
//!
//! ```text
//! Fixed     header · wait flags · run · geometry · sender side · published · receiver side · arena roots   (fixed.rs)
//! levels    which of the 32,768 priorities have messages: 512 words of 64 bits
//! fifos     head and tail of each priority's list
//! nodes     one for each blocked thread
//! ring      slot numbers: free slots for senders, filled slots for receivers
//! links     one for each slot: the next stored message of the same priority
//! leases    one record for each message that is reserved or leased
//! cells     one for each slot: the message's header, and a short message's bytes
//! arena     blocks for longer messages
//! notices   registrations beyond those in the fixed part, of processes that were notified and have not run since
//! deliveries, histories   of dead letters, one for each slot: history.rs
//! traces    of messages, one for each slot, in queues that note them: trace.rs
//! ```
//!
//! The offsets of the regions follow from two numbers: the maximum number of messages, and the message size. A process computes the offsets itself,
//! and trusts no other word of the file for them. The file is sparse and has its full length from the start. The used part of a region grows from the
//! region's start, after calls of [`Segment::populate`].
//!
//! Each part of a segment is a structure whose words are private to this module. Other modules change the words by the functions of the structure.

#[cfg(not(loom))]
mod attach;
mod cell;
#[cfg(not(loom))]
mod create;
mod cursors;
mod fixed;
mod geometry;
mod header;
pub mod history;
mod layout;
#[cfg(not(loom))]
#[allow(unsafe_code, reason = "references into the mapping, copies in and out")]
mod mapped;
pub(crate) mod notice;
mod ownership;
mod policy;
mod presence;
mod priorities;
mod published;
mod receiver;
mod ring;
mod run;
mod sender;
mod tables;
pub mod trace;
#[cfg(not(loom))]
mod vacant;
mod wait_flags;
#[cfg(not(loom))]
mod words;

pub use crate::producers::PRODUCERS;
#[cfg(not(loom))]
pub use attach::{LARGEST_MESSAGE, MOST_MESSAGES, attach, check};
pub use cell::Cell;
#[cfg(not(loom))]
pub use create::create;
pub use fixed::Fixed;
#[cfg(not(loom))]
pub use fixed::{LAYOUT_HASH, MAGIC, VERSION};
pub use header::Header;
pub use history::{Deliveries, History, HistoryRecord, Reason};
pub use layout::{Layout, MORE_NOTICES, PRIORITIES};
#[cfg(not(loom))]
pub use mapped::Segment;
pub use notice::Notice;
#[cfg_attr(
    loom,
    allow(unused_imports, reason = "the face of rings is not modelled")
)]
pub use ownership::{CLOSED, DISABLED, ENABLED, Ownership};
pub use policy::OnFull;
pub use policy::{MOST_PASSED, Policy, Rules};
pub use presence::{Presence, Seen, Taken};
pub(crate) use priorities::Priorities;
pub use receiver::LEVEL1;
pub use ring::Ring;
pub use run::has_begun;
pub use trace::{Trace, TraceEvent, TraceKind, TraceRecord};
#[cfg(not(loom))]
pub use vacant::{attributes, presence, take, vacated_by};
pub(crate) use wait_flags::{ARMED, POLLED};
#[cfg(not(loom))]
pub use words::{CellWords, Words};

#[cfg(loom)]
pub(crate) use crate::model::segment::Segment;

use crate::arena::{ArenaRoots, GRANULE};
use crate::leases::{LeaseRecord, LeaseRoots};
use crate::sync::Guarded32;
use crate::waiters::{Links, NODES, Node};

/// The head and the tail of the list of one priority. The two words are valid only while the priority's bit in the bitmap is set.
#[repr(C)]
#[derive(Default)]
pub struct Fifo {
    head: Guarded32,
    tail: Guarded32,
}

impl Fifo {
    /// Returns the word with the slot of the first message.
    pub fn head(&self) -> &Guarded32 {
        &self.head
    }

    /// Returns the slot of the last message.
    pub fn tail(&self) -> u32 {
        self.tail.get()
    }
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Fifo>() == 8);
};

/// Segments for unit tests, in files without a name.
#[cfg(all(any(test, feature = "testing"), not(loom)))]
pub mod testing {
    use super::{Layout, Policy, Segment, create};
    use std::os::fd::AsFd;

    /// Creates an empty segment. As many slots as messages are in circulation, and all of them have memory.
    pub fn segment(max_messages: usize, message_size: usize) -> Segment {
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
