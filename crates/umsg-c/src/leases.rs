//! What leases of messages of POSIX and of System V queues have in common.

use std::ffi::c_int;
use std::time::Duration;
use umsg::QueueError;

use libc::timespec;
use umsg::posix::LeaseError;

use crate::error::Failure;
use crate::handles::Handles;
use crate::{pointer, time};

/// A program's structure that describes a lease.
pub(crate) trait Described: Copy {
    /// The number by which the lease is kept.
    fn id(&self) -> u64;

    /// From now on it describes none.
    fn forget(&mut self);
}

const NO_LEASE: Failure = Failure::Invalid("this is no lease that the process has");

/// Ends a lease and clears the program's structure. If the queue could not be used, the lease continues.
///
/// # Safety
/// `lease` is readable and writable, or an address that a pointer check refuses.
pub(crate) unsafe fn end<L: Send + Sync + 'static>(
    leases: &'static Handles<L>,
    lease: *mut impl Described,
    end: impl FnOnce(&L) -> Result<(), LeaseError>,
) -> Result<c_int, Failure> {
    pointer::check(lease, "lease")?;
    // SAFETY: by this function's contract.
    let mut ended = unsafe { lease.read_unaligned() };
    let result = end(&*leases.get(ended.id().into()).ok_or(NO_LEASE)?);
    if result != Err(LeaseError::Queue(QueueError::WouldDeadlock)) {
        // In vain for the second of two threads that end it at the same time.
        leases.end(ended.id().into());
        ended.forget();
        // SAFETY: by this function's contract.
        unsafe { lease.write_unaligned(ended) };
    }
    result?;
    Ok(0)
}

/// Lets a lease end by itself after some time.
///
/// # Safety
/// `lease` and `time` are readable, or addresses that a pointer check refuses.
pub(crate) unsafe fn limit<L: Send + Sync + 'static>(
    leases: &'static Handles<L>,
    lease: *const impl Described,
    time: *const timespec,
    limit: impl FnOnce(&L, Duration) -> Result<(), LeaseError>,
) -> Result<c_int, Failure> {
    pointer::check(time, "time")?;
    // SAFETY: by this function's contract.
    let time = time::span(unsafe { time.read_unaligned() })?;
    pointer::check(lease, "lease")?;
    // SAFETY: by this function's contract.
    let lease = unsafe { lease.read_unaligned() };
    limit(&*leases.get(lease.id().into()).ok_or(NO_LEASE)?, time)?;
    Ok(0)
}
