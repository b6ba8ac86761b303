//! A message where it lies in the queue's memory.

use crate::error::LeaseError;
use crate::sys::clock;
use crate::sys::thread;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The bytes of a message that this process holds.
#[derive(Debug)]
pub(crate) struct InPlace {
    start: *mut u8,
    len: usize,
    /// The process that holds it: a forked child does not.
    pid: u32,
}

// SAFETY: the pointer leads into a shared mapping that outlives the handle which it was made from; who may touch the bytes
// is not a matter of threads.
unsafe impl Send for InPlace {}
// SAFETY: as above; writing asks for `&mut`.
unsafe impl Sync for InPlace {}

impl InPlace {
    pub(crate) fn new(start: *mut u8, len: usize) -> InPlace {
        InPlace {
            start,
            len,
            pid: thread::current().pid(),
        }
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// From now on the message has `len` bytes, if it was longer.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Whether the calling process is the one that holds it.
    pub(crate) fn is_ours(&self) -> bool {
        self.pid == thread::current().pid()
    }

    /// Copies bytes from `offset` on; answers how many there were.
    pub(crate) fn read_at(&self, offset: usize, buffer: &mut [u8]) -> usize {
        let len = self.len.saturating_sub(offset).min(buffer.len());
        if len != 0 {
            // SAFETY: offset + len lies within the message, which lies inside the mapping; the buffer is our caller's own
            // memory. A peer that breaks the protocol may write meanwhile: then the bytes are arbitrary.
            unsafe {
                let from = self.start.add(offset);
                std::ptr::copy_nonoverlapping(from, buffer.as_mut_ptr(), len);
            }
        }
        len
    }

    /// A copy of the bytes.
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        self.read_at(0, &mut bytes);
        bytes
    }

    /// Copies bytes to `offset`; answers how many had room: none if the message is another process's.
    pub(crate) fn write_at(&mut self, offset: usize, bytes: &[u8]) -> usize {
        if !self.is_ours() {
            return 0;
        }
        let len = self.len.saturating_sub(offset).min(bytes.len());
        if len != 0 {
            // SAFETY: as in `read_at`, the other way round.
            unsafe {
                let to = self.start.add(offset);
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, len);
            }
        }
        len
    }

    /// The bytes as a slice.
    ///
    /// # Safety
    /// Nobody writes them as long as the slice is in use.
    pub(crate) unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: `len` bytes from `start` on lie inside the mapping and are initialised, as all shared memory is; that
        // nobody writes them is our caller's promise.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    /// The bytes as a slice that can be written.
    ///
    /// # Safety
    /// Nobody else reads or writes them as long as the slice is in use.
    pub(crate) unsafe fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; that nobody else touches them is our caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

/// A message that is leased, until it is acknowledged or back in its queue.
#[derive(Debug)]
pub(crate) struct Leased {
    pub(crate) place: InPlace,
    /// Whether it is still to be returned.
    is_open: AtomicBool,
}

impl Leased {
    pub(crate) fn new(place: InPlace) -> Leased {
        Leased {
            place,
            is_open: AtomicBool::new(true),
        }
    }

    /// The end of a time limit that begins now, as the record of a lease has it: nanoseconds of the monotonic clock, never 0.
    pub(crate) fn until(limit: Duration) -> u64 {
        let nanoseconds = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        clock::monotonic().saturating_add(nanoseconds).max(1)
    }

    /// Does something with the lease, if it is this process's.
    pub(crate) fn with(
        &self,
        work: impl FnOnce() -> Result<(), LeaseError>,
    ) -> Result<(), LeaseError> {
        match self.place.is_ours() {
            true => work(),
            false => Err(LeaseError::Ended),
        }
    }

    /// Ends the lease, and notes that there is nothing more to be returned, unless the queue's lock could not be had.
    pub(crate) fn end(
        &self,
        end: impl FnOnce() -> Result<(), LeaseError>,
    ) -> Result<(), LeaseError> {
        self.with(|| {
            let ended = end();
            if ended != Err(LeaseError::WouldDeadlock) {
                // Relaxed: spares the drop a second attempt, which would be in vain.
                self.is_open.store(false, Ordering::Relaxed);
            }
            ended
        })
    }

    pub(crate) fn is_open(&mut self) -> bool {
        *self.is_open.get_mut()
    }
}
