//! The end of leases: by their time limit, or with their holder.

use super::{HolderScan, LeaseHandle, LeaseRecord, LeaseRoots, LeaseStore, Leases, State};
use crate::fault::Fault;
use crate::lock::tokens::ReceiverHeld;
use crate::sync::Ordering;

/// So many times what a look at the holders cost passes before the next.
const PAUSE: u64 = 16;

impl LeaseRoots {
    /// Whether a look at the holders is due: a lease's time is up, or the last look which of them lives was some time ago.
    pub(crate) fn is_look_due(&self, now: u64) -> bool {
        // Relaxed: whether to look, not what is found. The same for all below.
        let due = self.due.load(Ordering::Relaxed);
        (due != 0 && due <= now) || self.look_after.load(Ordering::Relaxed) < now
    }

    /// Gives a lease a time limit: the reading of the monotonic clock at which it ends by itself, in nanoseconds; 0 for none.
    pub(crate) fn limit(&self, record: &LeaseRecord, until: u64) {
        record.until.set(until);
        let earliest = self.due.load(Ordering::Relaxed);
        if until != 0 && (earliest == 0 || until < earliest) {
            self.due.store(until, Ordering::Relaxed);
        }
    }
}

impl<S: LeaseStore> Leases<'_, S> {
    /// Ends a lease as if its time were up, without the lock: it is the calling thread's own, which a handler has interrupted inside of the
    /// queue, or nobody's. What was interrupted finds a lease whose time is up, as it may at any moment.
    #[cfg(not(loom))]
    pub(crate) fn expire<Key>(&self, handle: &LeaseHandle<Key>) {
        if let Ok(Some(record)) = self.find(handle.index, handle.ticket, State::Leased) {
            record.until.set(1);
            // Relaxed: a hint to look. Should the interrupted call overwrite it, the next regular look finds the lease.
            self.segment
                .roots_of_leases()
                .due
                .store(1, Ordering::Relaxed);
        }
    }

    /// Runs `end` for each lease whose time is up, and for each lease and reservation whose holder is dead.
    pub(crate) fn end_overdue(
        &self,
        _: ReceiverHeld<'_>,
        now: u64,
        mut end: impl FnMut(u32, &LeaseRecord, State) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut due = u64::MAX;
        let mut holders = HolderScan::default();
        for record in self.iter() {
            let (index, record) = record?;
            let (state, until) = (State::of(record), record.until.get());
            let is_leased = state == State::Leased;
            // Nobody's, or of no use to a process that looks for messages and room.
            if !is_leased && state != State::Reserved {
                continue;
            }
            let is_over = is_leased && until != 0 && until <= now;
            if holders.is_orphan(self.segment, record) || is_over {
                end(index, record, state)?;
            } else if is_leased && until != 0 {
                due = due.min(until);
            }
        }
        let roots = self.segment.roots_of_leases();
        let due = if due == u64::MAX { 0 } else { due };
        roots.due.store(due, Ordering::Relaxed);
        let look_after = now.saturating_add(PAUSE * holders.cost());
        roots.look_after.store(look_after, Ordering::Relaxed);
        Ok(())
    }
}
