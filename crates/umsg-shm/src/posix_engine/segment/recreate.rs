//! Making a new queue of a removed queue's segment, in pages that are real already.
//!
//! | state | what it takes | leaves it |
//! |---|---|---|
//! | removed: its file has lost the queue's name | the process has the only mapping and the only opening of the file | [`Vacant::clear`] |
//! | vacant: all bytes are zero, and the pages of a new segment are real | nothing | [`Vacant::recreate`] |
//! | whole, without a name | nothing | its file gets a queue's name |

use super::create::{fill_in, first_pages};
use super::mapped::Segment;
use super::{Fixed, Layout, Policy};
use crate::memory::Host;
use crate::sys::sole_file::SoleFile;
use rustix::fs::Stat;
use rustix::io::Errno;
use std::mem::offset_of;
use std::sync::Arc;

/// The mapping of a removed queue's file. Nothing is left of the queue.
#[derive(Debug)]
pub struct Vacant(Segment);

impl Vacant {
    /// Clears the segment of a removed queue. Gives the pages back that a new segment does not have.
    ///
    /// The caller has found that `file`, the opening with which the segment was mapped, is the only one. Returns None if the process uses the
    /// mapping, or if the file can't be cleared. `real` is what fstat says of the file.
    pub fn clear(segment: Segment, file: &SoleFile, real: &Stat) -> Option<Vacant> {
        let pages = first_pages(segment.layout());
        if !segment.is_only_handle() || real.st_size != segment.layout().len as i64 {
            return None;
        }
        let sum: usize = pages.iter().map(|(_, len)| len).sum();
        if real.st_blocks as usize * 512 > sum {
            free_between(&pages, segment.layout(), file).ok()?;
        }
        for (offset, len) in pages {
            segment.clear(offset, len);
        }
        Some(Vacant(segment))
    }

    /// Returns the layout of the segment.
    pub fn layout(&self) -> &Layout {
        self.0.layout()
    }

    /// Makes a segment without messages, rules and name. The mapping is shared with the vacant one.
    pub fn recreate(&self, mode: u32, host: Arc<dyn Host>) -> Segment {
        let mut segment = self.0.share();
        fill_in(&segment, mode);
        segment.set_policy(Policy::default());
        segment.count_in(host);
        segment
    }

    /// Returns the mapping.
    pub fn into_segment(self) -> Segment {
        self.0
    }
}

/// Gives back all pages of the file apart from these.
fn free_between(pages: &[(usize, usize)], layout: &Layout, file: &SoleFile) -> Result<(), Errno> {
    let ends = pages.iter().map(|(offset, len)| offset + len);
    let next = pages.iter().skip(1).map(|(offset, _)| *offset);
    for (from, to) in ends.zip(next.chain([layout.len])) {
        if from < to {
            file.free(from..to)?;
        }
    }
    Ok(())
}

impl Segment {
    /// Returns whether nothing outside of the segment refers to its queue: no other handle of this process, no poller's FIFO, no registration
    /// for a notification, no process of another PID namespace, no dead-letter queue. A hint while other processes have the file open.
    pub fn is_unattached(&self) -> bool {
        let fixed = self.fixed();
        let doorbell = offset_of!(Fixed, receiver) + super::receiver::DOORBELL;
        self.is_only_handle()
            && *self.policy() == Policy::default()
            && fixed.receiver.watched.get() == 0
            && !crate::memory::Format::has_shared_lock(fixed)
            && fixed.receiver.more_notices() == 0
            && self.is_zero(doorbell, size_of::<crate::doorbell::Words>())
            && self.is_zero(offset_of!(Fixed, notices), size_of_val(&fixed.notices))
    }
}
