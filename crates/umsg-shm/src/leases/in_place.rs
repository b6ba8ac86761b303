//! Access to a message in the queue's memory.

use crate::sys::thread;

/// The bytes of a message that this process has leased or reserved.
#[derive(Debug)]
pub struct InPlace {
    start: *mut u8,
    len: usize,
    /// The process that holds the message. A child that this process forks does not hold the message.
    pid: u32,
}

// SAFETY: the pointer leads into a shared mapping that outlives this value. Any thread of the process may access the bytes.
unsafe impl Send for InPlace {}
// SAFETY: as for `Send`. A write requires `&mut`.
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

    /// Shortens the message to `len` bytes, if it is longer.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Returns whether the calling process holds the message.
    pub fn is_ours(&self) -> bool {
        self.pid == thread::current().pid()
    }

    /// Copies bytes of the message from `offset` on into `buffer`, and returns their number.
    pub fn read_at(&self, offset: usize, buffer: &mut [u8]) -> usize {
        let len = self.len.saturating_sub(offset).min(buffer.len());
        if len != 0 {
            // SAFETY: offset + len lies within the message, which lies inside the mapping; the buffer is the caller's own memory. A peer that breaks
            // the protocol may write at the same time: then the bytes are arbitrary.
            unsafe {
                let from = self.start.add(offset);
                std::ptr::copy_nonoverlapping(from, buffer.as_mut_ptr(), len);
            }
        }
        len
    }

    /// Returns a copy of the message.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        self.read_at(0, &mut bytes);
        bytes
    }

    /// Copies `bytes` into the message at `offset`. Returns the number of copied bytes; 0 if another process holds the message.
    pub fn write_at(&mut self, offset: usize, bytes: &[u8]) -> usize {
        if !self.is_ours() {
            return 0;
        }
        let len = self.len.saturating_sub(offset).min(bytes.len());
        if len != 0 {
            // SAFETY: as in `read_at`, with source and target exchanged.
            unsafe {
                let to = self.start.add(offset);
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, len);
            }
        }
        len
    }

    /// Returns the message as a slice.
    ///
    /// # Safety
    /// No process writes the bytes while the slice is in use.
    pub unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: `len` bytes from `start` on lie inside the mapping and are initialised, like all shared memory. The caller promises that no process
        // writes them.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    /// Returns the message as a slice that can be written.
    ///
    /// # Safety
    /// No other process reads or writes the bytes while the slice is in use.
    pub unsafe fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`. The caller promises that no other process accesses the bytes.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}
