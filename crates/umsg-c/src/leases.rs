//! The common part of leases of messages of POSIX and of System V queues.

use std::ffi::{c_int, c_void};
use std::time::Duration;

use libc::timespec;
use umsg::QueueError;
use umsg::posix::LeaseError;

use crate::error::{Failure, answer};
use crate::handles::Handles;
use crate::{pointer, time};

/// A lease, and the value that keeps its queue open as long as the lease exists.
pub(crate) struct Leased<L, Q> {
    lease: L,
    /// Keeps the queue open. Fields are dropped in order, so the queue is released after the lease.
    _queue: Q,
}

/// The leases of a process.
pub(crate) type Leases<L, Q> = Handles<Leased<L, Q>>;

/// A program's structure that describes a lease.
pub(crate) trait Described: Copy {
    type Lease: Send + Sync + 'static;
    /// A value that keeps the queue open.
    type Queue: Send + Sync + 'static;

    /// Returns the leases that the process has.
    fn all() -> &'static Leases<Self::Lease, Self::Queue>;

    /// Returns two members: the address of the message, and the identifier of the lease.
    fn place(&mut self) -> (&mut *const c_void, &mut u64);
}

const NO_LEASE: Failure = Failure::Invalid("the handle does not belong to a lease of this process");

/// Keeps a lease, and completes its description for the program.
pub(crate) fn keep<D: Described>(
    lease: D::Lease,
    queue: D::Queue,
    mut described: D,
) -> Result<D, Failure> {
    let leased = Leased {
        lease,
        _queue: queue,
    };
    // A lease that can't be kept returns its message when it is dropped.
    let number = D::all().put(leased).ok_or(Failure::TooManyHolds)?;
    *described.place().1 = number.into();
    Ok(described)
}

/// Ends a lease and clears the program's structure. If the queue could not be used, the lease continues.
///
/// # Safety
/// `lease` is readable and writable, or an address that a pointer check refuses.
pub(crate) unsafe fn end<D: Described>(
    lease: *mut D,
    end: impl FnOnce(&D::Lease) -> Result<(), LeaseError>,
) -> c_int {
    let ended = || {
        pointer::check(lease, "lease")?;
        // SAFETY: by this function's contract.
        let mut ended = unsafe { lease.read_unaligned() };
        let (data, id) = ended.place();
        let number = (*id).into();
        let result = end(&D::all().get(number).ok_or(NO_LEASE)?.lease);
        if result != Err(LeaseError::Queue(QueueError::WouldDeadlock)) {
            // If two threads end the lease at the same time, this call fails in the second thread.
            D::all().end(number);
            (*data, *id) = (std::ptr::null(), 0);
            // SAFETY: by this function's contract.
            unsafe { lease.write_unaligned(ended) };
        }
        result?;
        Ok(0)
    };
    answer(ended())
}

/// Calls a function that reads data of a lease.
///
/// # Safety
/// `lease` is readable, or an address that a pointer check refuses.
pub(crate) unsafe fn with<D: Described, T>(
    lease: *const D,
    read: impl FnOnce(&D::Lease) -> Result<T, LeaseError>,
) -> Result<T, Failure> {
    pointer::check(lease, "lease")?;
    // SAFETY: by this function's contract.
    let number = (*unsafe { lease.read_unaligned() }.place().1).into();
    Ok(read(&D::all().get(number).ok_or(NO_LEASE)?.lease)?)
}

/// Lets a lease end by itself after some time.
///
/// # Safety
/// `lease` and `time` are readable, or addresses that a pointer check refuses.
pub(crate) unsafe fn limit<D: Described>(
    lease: *const D,
    time: *const timespec,
    limit: impl FnOnce(&D::Lease, Duration) -> Result<(), LeaseError>,
) -> c_int {
    let limited = || {
        pointer::check(time, "time")?;
        // SAFETY: by this function's contract.
        let time = time::span(unsafe { time.read_unaligned() })?;
        pointer::check(lease, "lease")?;
        // SAFETY: by this function's contract.
        let number = (*unsafe { lease.read_unaligned() }.place().1).into();
        limit(&D::all().get(number).ok_or(NO_LEASE)?.lease, time)?;
        Ok(0)
    };
    answer(limited())
}
