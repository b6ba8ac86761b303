//! The doorbell of a polled queue: a descriptor that has the same events as the queue.
//!
//! poll and select use the doorbell itself. epoll identifies a registration by number and open file. So for each registered descriptor of a queue,
//! the doorbell has another descriptor number. The doorbell keeps this number until the last descriptor of the queue is closed, which also ends the
//! registration in the kernel:
//!
//! ```text
//!   program's number      doorbell's number           epoll
//!   5 (mq_open)      ->   1019 (the queue's own) ->   registration of 5
//!   8 (dup of 5)     ->   1021 (a duplicate)     ->   registration of 8, stays when 8 is closed and 5 is not
//! ```

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd};
use std::sync::atomic::{AtomicPtr, Ordering};

use umsg::Edges;
use umsg_shm::sys::reserved_descriptors;

use crate::attachments::Attached;
use crate::fd;

/// A list of those descriptor numbers of the queue that were registered. Entries are only added, at the front.
pub(crate) struct Doorbells(AtomicPtr<Registered>);

struct Registered {
    number: c_int,
    doorbell: c_int,
    /// True if the doorbell is a duplicate, which the drop-in closes. The queue closes its own doorbell.
    is_duplicate: bool,
    next: *mut Registered,
}

impl Doorbells {
    pub(crate) const fn new() -> Doorbells {
        Doorbells(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Returns the doorbell's descriptor number that is registered in epoll for one of the queue's numbers. None if that number was never registered.
    pub(crate) fn registered(&self, number: c_int) -> Option<c_int> {
        self.find(self.0.load(Ordering::Acquire), number)
    }

    fn find(&self, mut at: *mut Registered, number: c_int) -> Option<c_int> {
        // SAFETY: entries are never changed and live as long as the list.
        while let Some(entry) = unsafe { at.as_ref() } {
            if entry.number == number {
                return Some(entry.doorbell);
            }
            at = entry.next;
        }
        None
    }

    /// Returns the doorbell's descriptor number that must be registered in epoll for one of the queue's numbers.
    pub(crate) fn register(
        &self,
        attached: &Attached,
        number: c_int,
        edges: Edges,
    ) -> Result<Option<c_int>, c_int> {
        let first_bell = doorbell(attached, edges)?;
        loop {
            let first = self.0.load(Ordering::Acquire);
            if let Some(doorbell) = self.find(first, number) {
                return Ok(Some(doorbell));
            }
            let is_duplicate = !first.is_null();
            let doorbell = match is_duplicate {
                true => duplicate(first_bell)?,
                false => first_bell,
            };
            // The doorbell must keep its number: if another file got the number, the registration could no longer be changed.
            reserved_descriptors::pin(doorbell);
            let entry = Box::into_raw(Box::new(Registered {
                number,
                doorbell,
                is_duplicate,
                next: first,
            }));
            // Release: publishes the contents of the entry. If another thread was first, the acquire load at the beginning of the loop makes that
            // thread's entry visible.
            let outcome =
                self.0
                    .compare_exchange(first, entry, Ordering::Release, Ordering::Relaxed);
            if outcome.is_ok() {
                return Ok(Some(doorbell));
            }
            // SAFETY: the entry was not published.
            drop(unsafe { Box::from_raw(entry) });
            if is_duplicate {
                close(doorbell);
            }
        }
    }
}

/// Returns the queue's doorbell, which shows the current state of the queue. An error is an errno.
pub(crate) fn doorbell(attached: &Attached, edges: Edges) -> Result<c_int, c_int> {
    attached.unmap_at_last_close();
    attached
        .queue
        .pollable_with(edges)
        .map(|doorbell| doorbell.as_raw_fd())
        .map_err(|error| error.raw_os_error().unwrap_or(libc::ENOMEM))
}

impl Drop for Doorbells {
    fn drop(&mut self) {
        let mut at = *self.0.get_mut();
        while !at.is_null() {
            // SAFETY: made by `Box::into_raw`; no other code uses the list any more.
            let entry = unsafe { Box::from_raw(at) };
            at = entry.next;
            if entry.is_duplicate {
                close(entry.doorbell);
            }
        }
    }
}

/// Duplicates a doorbell to a new number. The number is not lower than `doorbell`, if possible.
fn duplicate(doorbell: c_int) -> Result<c_int, c_int> {
    let borrowed: BorrowedFd<'_> = fd::borrow(doorbell).ok_or(libc::EBADF)?;
    let copy = rustix::io::fcntl_dupfd_cloexec(borrowed, doorbell)
        .or_else(|_| rustix::io::fcntl_dupfd_cloexec(borrowed, 0));
    let number = copy.map_err(|error| error.raw_os_error())?.into_raw_fd();
    reserved_descriptors::mark(number);
    Ok(number)
}

fn close(doorbell: c_int) {
    reserved_descriptors::unmark(doorbell);
    // SAFETY: opened by `duplicate`, and no longer in use.
    unsafe { rustix::io::close(doorbell) };
}
