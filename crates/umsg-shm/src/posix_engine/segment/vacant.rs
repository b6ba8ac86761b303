//! Removes a queue whose creator keeps the segment, and makes the next queue in the same segment. The pages of the segment already have memory. See
//! [`Presence`](super::Presence).

use super::create::{fill_in, first_pages};
use super::mapped::Segment;
use super::presence::{Presence, Seen, Taken};
use super::{Fixed, Header, MAGIC, Policy};
use crate::crash::crash_point;
use crate::fault::AttachError;
use crate::memory::Format;
use crate::sys::home::here;
use rustix::fd::BorrowedFd;
use std::mem::offset_of;

impl Segment {
    /// Removes the queue and clears the segment, if no other process can have the queue open. Otherwise returns false without a change.
    ///
    /// After the call, the segment has as much memory as a new segment. The calling process has created the queue, has the only handle of the
    /// mapping, and uses the handle in no other thread.
    ///
    /// # If the process dies
    /// Other processes find that the queue either still exists or is removed.
    #[must_use]
    pub fn vacate(&self) -> bool {
        if !self.is_unattached() || !self.fixed().header.presence.remove() {
            return false;
        }
        crash_point!(VACATE_REMOVED);
        // The header is not cleared, because an opener reads the header before it reads the presence word.
        let header = size_of::<Header>();
        for (offset, len) in first_pages(self.layout()) {
            let kept = if offset == 0 { header } else { 0 };
            self.clear(offset + kept, len - kept);
        }
        crash_point!(VACATE_CLEARED);
        true
    }

    /// Makes the next queue of a segment that [`vacate`](Self::vacate) has cleared. Returns false if another process has taken the file's
    /// name.
    ///
    /// # If the process dies
    /// Other processes find either no queue or a complete queue in the file.
    #[must_use]
    pub fn revive(&self, mode: u32) -> bool {
        fill_in(self, mode);
        crash_point!(REVIVE_FILLED);
        self.fixed().header.presence.revive()
    }

    /// Returns whether the process may [`revive`](Self::revive) the segment. The result is a hint.
    pub fn is_vacant(&self) -> bool {
        !self.fixed().header.presence.look().is_queue()
    }

    /// Returns the number of bytes that have memory in a new segment of this layout.
    pub fn first_len(&self) -> usize {
        first_pages(self.layout()).iter().map(|(_, len)| len).sum()
    }

    /// Returns whether nothing outside of the segment refers to the queue. The queue has no other handle in this process, no poller's FIFO, no
    /// registration for a notification, no process of another PID namespace, and no dead-letter queue.
    fn is_unattached(&self) -> bool {
        let fixed = self.fixed();
        let doorbell = offset_of!(Fixed, receiver) + super::receiver::DOORBELL;
        self.is_only_handle()
            && !fixed.header.damage.is_noted()
            && *self.policy() == Policy::default()
            && !fixed.receiver.is_watched()
            && !fixed.has_shared_lock()
            && fixed.receiver.more_notices() == 0
            && fixed.published.deferred_ring.is_none()
            && self.is_zero(doorbell, size_of::<crate::doorbell::Words>())
            && self.is_zero(offset_of!(Fixed, notices), size_of_val(&fixed.notices))
    }
}

/// Returns the presence word of a file that is open for reading. For a file that is not a segment, the result is the value of an ordinary queue.
pub fn presence(file: BorrowedFd<'_>) -> Seen {
    const AT: usize = Header::PRESENCE;
    let mut bytes = [0; AT + size_of::<Presence>()];
    let word = |bytes: &[u8], at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes);
    let is_whole = rustix::io::pread(file, &mut bytes, 0) == Ok(bytes.len());
    match (word(&bytes, 0), word(&bytes, AT)) {
        (Ok(MAGIC), Ok(word)) if is_whole => Seen::of_word(word),
        _ => Seen::of_word(0),
    }
}

/// Reads the capacity and the message size of a queue from a file that is open for reading. Returns `None` if the file is not a segment.
pub fn attributes(file: BorrowedFd<'_>) -> Option<(u32, u32)> {
    let mut bytes = [0; Header::MESSAGE_SIZE + 4];
    let is_whole = rustix::io::pread(file, &mut bytes, 0) == Ok(bytes.len());
    let magic = bytes.first_chunk().map(|word| u64::from_le_bytes(*word));
    let word = |at: usize| {
        bytes[at..]
            .first_chunk()
            .map(|word| u32::from_le_bytes(*word))
    };
    (is_whole && magic == Some(MAGIC))
        .then(|| Some((word(Header::MAX_MESSAGES)?, word(Header::MESSAGE_SIZE)?)))?
}

/// Returns the process id of the creator of a file's segment, if the creator has removed the queue and is in the same namespaces as this process.
/// `file` is open for reading.
pub fn vacated_by(file: BorrowedFd<'_>) -> Option<u32> {
    if presence(file).is_queue() {
        return None;
    }
    let word = |at: usize| {
        let mut bytes = [0; 8];
        let read = rustix::io::pread(file, &mut bytes, at as u64);
        (read == Ok(bytes.len())).then(|| u64::from_le_bytes(bytes))
    };
    let home = word(offset_of!(Fixed, header) + Header::HOME)?;
    let creator = word(offset_of!(Fixed, header) + Header::CREATOR)? as u32;
    (home != 0 && home == here()).then_some(creator)
}

/// Takes the segment of a removed queue from its creator; see [`Presence::take`]. `file` is open for reading and writing.
///
/// # Errors
/// The errors of [`attach`](super::attach).
pub fn take(file: BorrowedFd<'_>) -> Result<Taken, AttachError> {
    let layout = super::check(file)?;
    let segment = Segment::map(file, layout)?;
    Ok(segment.fixed().header.presence.take())
}
