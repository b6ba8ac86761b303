//! The kernel's POSIX queues: mq_overview(7).

use super::call;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

/// The direction of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Receive messages.
    Receive,
    /// Send messages.
    Send,
}

/// The attributes of a queue to create if it is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct New {
    /// The maximum number of messages and the maximum length of a message, in bytes. None: the system's defaults.
    pub limits: Option<(u64, u64)>,
    /// The permission bits; the umask applies.
    pub mode: u32,
    /// If true, an existing queue is an error: EEXIST.
    pub must_be_new: bool,
}

/// An open queue of the kernel.
#[derive(Debug)]
pub struct Queue {
    descriptor: OwnedFd,
    name: CString,
    access: Access,
    message_size: usize,
    max_messages: u64,
}

/// Opens a queue by its name, which begins with a slash.
fn open(name: &CString, flags: OFlags, new: Option<New>) -> Result<OwnedFd, Errno> {
    let file = name.as_bytes_with_nul();
    // The system call takes the name without its slash.
    let file = file.strip_prefix(b"/").ok_or(Errno::INVAL)?;
    // SAFETY: all zeros are valid attributes.
    let mut attributes: libc::mq_attr = unsafe { std::mem::zeroed() };
    let mut pointer = ptr::null();
    if let Some((most, size)) = new.and_then(|new| new.limits) {
        attributes.mq_maxmsg = most as _;
        attributes.mq_msgsize = size as _;
        pointer = &raw const attributes;
    }
    let flags = match new {
        Some(new) if new.must_be_new => flags | OFlags::CREATE | OFlags::EXCL,
        Some(_) => flags | OFlags::CREATE,
        None => flags,
    };
    let mode = new.map_or(0, |new| new.mode as usize);
    // SAFETY: the string and the attributes outlive the call, which only reads them.
    let descriptor = unsafe {
        let arguments = [
            file.as_ptr().expose_provenance(),
            flags.bits() as usize,
            mode,
            pointer.expose_provenance(),
            0,
            0,
        ];
        call(libc::SYS_mq_open, arguments)?
    };
    // SAFETY: the kernel returned a new descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
}

impl Queue {
    /// Opens a queue. Calls do not wait if `waits` is false.
    ///
    /// # Errors
    /// The errors of mq_open(3).
    pub fn open(
        name: &[u8],
        (access, waits): (Access, bool),
        new: Option<New>,
    ) -> Result<Queue, Errno> {
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        let mut flags = access.flags();
        if !waits {
            flags |= OFlags::NONBLOCK;
        }
        let descriptor = open(&name, flags, new)?;
        let mut queue = Queue {
            descriptor,
            name,
            access,
            message_size: 0,
            max_messages: 0,
        };
        let attributes = queue.attributes()?;
        queue.message_size = attributes.mq_msgsize as usize;
        queue.max_messages = attributes.mq_maxmsg as u64;
        Ok(queue)
    }

    fn attributes(&self) -> Result<libc::mq_attr, Errno> {
        // SAFETY: all zeros are valid attributes.
        let mut attributes: libc::mq_attr = unsafe { std::mem::zeroed() };
        let number = self.descriptor.as_raw_fd() as usize;
        let pointer = (&raw mut attributes).expose_provenance();
        // SAFETY: the kernel writes the attributes of the queue to `attributes`, which is live.
        unsafe { call(libc::SYS_mq_getsetattr, [number, 0, pointer, 0, 0, 0])? };
        Ok(attributes)
    }

    /// Returns the maximum length of a message, in bytes.
    #[must_use]
    pub fn message_size(&self) -> usize {
        self.message_size
    }

    /// Returns the maximum number of messages in the queue.
    #[must_use]
    pub fn max_messages(&self) -> u64 {
        self.max_messages
    }

    /// Returns the number of messages in the queue.
    ///
    /// # Errors
    /// The errors of mq_getattr(3).
    pub fn messages(&self) -> Result<u64, Errno> {
        Ok(self.attributes()?.mq_curmsgs as u64)
    }

    /// Returns the permission bits of the queue.
    ///
    /// # Errors
    /// The errors of fstat(2).
    pub fn mode(&self) -> Result<u32, Errno> {
        Ok(rustix::fs::fstat(&self.descriptor)?.st_mode & 0o777)
    }

    /// Sets the permission bits of the queue.
    ///
    /// # Errors
    /// The errors of fchmod(2).
    pub fn set_mode(&self, mode: u32) -> Result<(), Errno> {
        rustix::fs::fchmod(&self.descriptor, Mode::from_bits_truncate(mode))
    }

    /// Returns whether the name still refers to this queue. If the name can't be opened for another reason than its removal, the result is true.
    #[must_use]
    pub fn is_current(&self) -> bool {
        let number = |descriptor: &OwnedFd| {
            let file = rustix::fs::fstat(descriptor);
            file.map(|file| (file.st_dev, file.st_ino)).ok()
        };
        let now = open(&self.name, self.access.flags(), None);
        match now {
            Ok(now) => number(&self.descriptor) == number(&now),
            Err(error) => error != Errno::NOENT,
        }
    }

    /// Receives a message and its priority. The buffer must have room for the longest message.
    ///
    /// # Errors
    /// The errors of mq_receive(3).
    pub fn receive(&self, buffer: &mut [u8]) -> Result<(usize, u32), Errno> {
        // SAFETY: the buffer is live, and only this thread uses it.
        unsafe { self.receive_at(buffer.as_mut_ptr(), buffer.len()) }
    }

    /// Receives a message into memory that other processes may see.
    ///
    /// # Safety
    /// The kernel may write `len` bytes at `start`.
    ///
    /// # Errors
    /// The errors of mq_receive(3).
    pub unsafe fn receive_at(&self, start: *mut u8, len: usize) -> Result<(usize, u32), Errno> {
        let mut priority = 0_u32;
        let arguments = [
            self.descriptor.as_raw_fd() as usize,
            start.expose_provenance(),
            len,
            (&raw mut priority).expose_provenance(),
            0,
            0,
        ];
        // SAFETY: by this function's contract; the priority is live.
        let len = unsafe { call(libc::SYS_mq_timedreceive, arguments)? };
        Ok((len, priority))
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The errors of mq_send(3).
    pub fn send(&self, message: &[u8], priority: u32) -> Result<(), Errno> {
        // SAFETY: the message is live, and is only read.
        unsafe { self.send_from(message.as_ptr(), message.len(), priority) }
    }

    /// Sends a message from memory that other processes may see.
    ///
    /// # Safety
    /// The kernel may read `len` bytes at `start`.
    ///
    /// # Errors
    /// The errors of mq_send(3).
    pub unsafe fn send_from(
        &self,
        start: *const u8,
        len: usize,
        priority: u32,
    ) -> Result<(), Errno> {
        let arguments = [
            self.descriptor.as_raw_fd() as usize,
            start.expose_provenance(),
            len,
            priority as usize,
            0,
            0,
        ];
        // SAFETY: by this function's contract.
        unsafe { call(libc::SYS_mq_timedsend, arguments).map(drop) }
    }
}

impl Access {
    fn flags(self) -> OFlags {
        let access = match self {
            Access::Receive => OFlags::RDONLY,
            Access::Send => OFlags::WRONLY,
        };
        access | OFlags::CLOEXEC
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Removes a queue.
///
/// # Errors
/// The errors of mq_unlink(3).
pub fn unlink(name: &[u8]) -> Result<(), Errno> {
    let name = CString::new(name).map_err(|_| Errno::INVAL)?;
    let file = name.as_bytes_with_nul();
    let file = file.strip_prefix(b"/").ok_or(Errno::INVAL)?;
    let arguments = [file.as_ptr().expose_provenance(), 0, 0, 0, 0, 0];
    // SAFETY: the string outlives the call.
    unsafe { call(libc::SYS_mq_unlink, arguments).map(drop) }
}
