//! A leased message, of either kind of queue.

use crate::error::LeaseError;
use crate::error::QueueError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use umsg_shm::leases::InPlace;
use umsg_shm::sys::clock;

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
            if ended != Err(LeaseError::Queue(QueueError::WouldDeadlock)) {
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
