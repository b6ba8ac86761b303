//! The end of leases: by their time limit, or with their holder.

use super::due::Due;
use super::{HolderScan, LeaseHandle, LeaseRecord, LeaseRoots, LeaseStore, Leases, State};
use crate::fault::Fault;
use crate::lock::tokens::ReceiverHeld;
use crate::sync::Ordering;
#[cfg(not(loom))]
use crate::waiters::wait::TICK;

/// The pause between two scans of the holders, as a multiple of the time of a scan.
const PAUSE: u64 = 16;

impl LeaseRoots {
    /// Returns whether a scan of the holders is due: a lease has expired, or the last scan for dead holders was some time ago.
    pub(crate) fn is_look_due(&self, now: u64) -> bool {
        // Relaxed: decides only whether to scan. The same holds for all loads below.
        self.is_due(now) || self.look_after.load(Ordering::Relaxed) < now
    }

    /// Returns whether a lease has expired, or a delayed message is due. It may return true although there is none, because a lease can end early.
    pub(crate) fn is_due(&self, now: u64) -> bool {
        let due = self.due.load(Ordering::Relaxed);
        due != 0 && due <= now
    }

    /// Returns the reading of the monotonic clock, in nanoseconds, at which the next lease ends; [`u64::MAX`] for none.
    #[cfg(not(loom))]
    pub(crate) fn next_look(&self) -> u64 {
        // Relaxed: as above.
        match self.due.load(Ordering::Relaxed) {
            0 => u64::MAX,
            due => due.saturating_add(TICK),
        }
    }

    /// Returns the noted changes that may happen without an operation, by time or by a death.
    pub(crate) fn later(&self) -> u32 {
        // Relaxed: under the lock; elsewhere a hint to read the clock.
        self.later.load(Ordering::Relaxed)
    }

    /// Notes that time or a death alone may bring these changes.
    pub(crate) fn note_later(&self, _: ReceiverHeld<'_>, changes: u32) {
        // Relaxed: as above.
        let later = self.later.load(Ordering::Relaxed) | changes;
        self.later.store(later, Ordering::Relaxed);
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
    /// Ends a lease as if it had expired, without the lock. A signal handler calls this. Either it has interrupted a call of its own thread that
    /// holds the lock, or no thread holds the lock. To the interrupted call, the lease seems to expire at this moment, which is possible at any
    /// time.
    #[cfg(not(loom))]
    pub(crate) fn expire<Key>(&self, handle: &LeaseHandle<Key>) {
        if let Ok(Some(record)) = self.find(handle.index, handle.ticket, State::Leased) {
            record.until.set(1);
            // Relaxed: a hint to scan. If the interrupted call overwrites the hint, the next regular scan finds the lease.
            self.segment
                .roots_of_leases()
                .due
                .store(1, Ordering::Relaxed);
        }
    }

    /// Runs `end` for each lease whose time is up, and for each lease and reservation whose holder is dead; then for each delayed message that is
    /// due, in the order of these messages. `end` may release the record, but must not claim a record: the walk mistakes a list that grows for a
    /// list with a cycle.
    pub(crate) fn end_overdue(
        &self,
        _: ReceiverHeld<'_>,
        now: u64,
        mut end: impl FnMut(u32, &LeaseRecord, State) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut due = u64::MAX;
        let mut ready = Due::default();
        let mut holders = HolderScan::default();
        for record in self.iter() {
            let (index, record) = record?;
            let (state, until) = (State::of(record), record.until.get());
            let is_over = until != 0 && until <= now;
            let ends = match state {
                State::Leased => is_over || holders.is_orphan(self.segment, record),
                State::Reserved => holders.is_orphan(self.segment, record),
                State::Delayed => {
                    holders.pass();
                    if is_over {
                        self.chain(&mut ready, index, record)?;
                        continue;
                    }
                    false
                }
                // The message is on its way to another queue: its end brings neither a message nor room to this queue. The process that moves it
                // knows whether it has arrived.
                State::Free | State::Aside | State::Moving | State::Arrived | State::Redriving => {
                    continue;
                }
            };
            if ends {
                end(index, record, state)?;
            }
            // A lease that has ended may be delayed.
            if matches!(State::of(record), State::Leased | State::Delayed)
                && let until = record.until.get()
                && until != 0
            {
                due = due.min(until);
            }
        }
        self.for_each_due(&ready, |index, record| end(index, record, State::Delayed))?;
        let roots = self.segment.roots_of_leases();
        let due = if due == u64::MAX { 0 } else { due };
        roots.due.store(due, Ordering::Relaxed);
        let look_after = now.saturating_add(PAUSE * holders.cost());
        roots.look_after.store(look_after, Ordering::Relaxed);
        Ok(())
    }
}
