//! A message where it lies in the queue's memory.

use crate::sys::thread;

/// The bytes of a message that this process holds.
#[derive(Debug)]
pub struct InPlace {
    start: *mut u8,
    len: usize,
    /// The process that holds it: a forked child does not.
    pid: u32,
}

// SAFETY: the pointer leads into a shared mapping that outlives the handle which it was made from; which thread may touch the bytes
// is not a matter of threads.
unsafe impl Send for InPlace {}
// SAFETY: as above; writing asks for `&mut`.
unsafe impl Sync for InPlace {}

impl InPlace {
    pub fn new(start: *mut u8, len: usize) -> InPlace {
        InPlace {
            start,
            len,
            pid: thread::current().pid(),
        }
    }

    pub fn start(&self) -> *mut u8 {
        self.start
    }

    #[allow(clippy::len_without_is_empty, reason = "no loop needs it")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// From now on the message has `len` bytes, if it was longer.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Whether the calling process is the one that holds it.
    pub fn is_ours(&self) -> bool {
        self.pid == thread::current().pid()
    }

    /// Copies bytes from `offset` on; answers how many there were.
    pub fn read_at(&self, offset: usize, buffer: &mut [u8]) -> usize {
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
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        self.read_at(0, &mut bytes);
        bytes
    }

    /// Copies bytes to `offset`; answers how many had room: none if the message is another process's.
    pub fn write_at(&mut self, offset: usize, bytes: &[u8]) -> usize {
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
    /// No process writes them as long as the slice is in use.
    pub unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: `len` bytes from `start` on lie inside the mapping and are initialised, as all shared memory is; that
        // no process writes them is our caller's promise.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    /// The bytes as a slice that can be written.
    ///
    /// # Safety
    /// No other process reads or writes them as long as the slice is in use.
    pub unsafe fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; that no other process touches them is our caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}
