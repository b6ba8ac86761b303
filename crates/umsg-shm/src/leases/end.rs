//! The end of leases: at their time limit, or after the death of their holder.

use super::due::Due;
use super::{HolderScan, LeaseHandle, LeaseRecord, LeaseRoots, LeaseStore, Leases, State};
use crate::fault::Fault;
use crate::lock::tokens::ReceiverHeld;
use crate::sync::Ordering;
#[cfg(not(loom))]
use crate::waiters::wait::TICK;

/// The pause between two scans for dead holders, as a multiple of the duration of a scan.
const PAUSE: u64 = 16;

impl LeaseRoots {
    /// Returns whether the records are to be scanned: a lease has expired, the delivery time of a message has come, or the pause since the last scan
    /// is over.
    pub(crate) fn is_look_due(&self, now: u64) -> bool {
        // Relaxed: the value only decides whether to scan. The same holds for all loads below.
        self.is_due(now) || self.look_after.load(Ordering::Relaxed) < now
    }

    /// Returns whether a lease has expired, or the delivery time of a message has come. The call may return true without reason, because a lease can
    /// end early.
    pub(crate) fn is_due(&self, now: u64) -> bool {
        let due = self.due.load(Ordering::Relaxed);
        due != 0 && due <= now
    }

    /// Returns the reading of the monotonic clock, in nanoseconds, at which the next lease expires or the next delayed message is delivered;
    /// [`u64::MAX`] for never.
    #[cfg(not(loom))]
    pub(crate) fn next_look(&self) -> u64 {
        // Relaxed: the value only decides whether to scan.
        match self.due.load(Ordering::Relaxed) {
            0 => u64::MAX,
            due => due.saturating_add(TICK),
        }
    }

    /// Returns the kinds of changes that time or a death may bring without an operation, as far as they were noted.
    pub(crate) fn later(&self) -> u32 {
        // Relaxed: the caller holds the lock, or takes the value as a hint to read the clock.
        self.later.load(Ordering::Relaxed)
    }

    /// Notes kinds of changes that time or a death alone may bring.
    pub(crate) fn note_later(&self, _: ReceiverHeld<'_>, changes: u32) {
        // Relaxed: the caller holds the lock.
        let later = self.later.load(Ordering::Relaxed) | changes;
        self.later.store(later, Ordering::Relaxed);
    }

    /// Gives a lease a time limit: the reading of the monotonic clock at which the lease expires, in nanoseconds; 0 for none.
    pub(crate) fn limit(&self, record: &LeaseRecord, until: u64) {
        record.until.set(until);
        let earliest = self.due.load(Ordering::Relaxed);
        if until != 0 && (earliest == 0 || until < earliest) {
            self.due.store(until, Ordering::Relaxed);
        }
    }
}

impl<S: LeaseStore> Leases<'_, S> {
    /// Ends a lease as if it had expired, without the lock of the queue. For example, a signal handler calls this function if the handler has
    /// interrupted a call of its own thread that holds the lock. The lease then seems to expire during that call, which is possible at any time.
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

    /// Runs `end` for each lease whose time is up, and for each lease and reservation whose holder is dead. Then runs `end` for each message whose
    /// delivery time has come, in the order of delivery. `end` may release the record, but must not claim a record: the walk mistakes a list that
    /// grows for a list with a cycle.
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
                // A record in one of these states is free, or a process moves its message to another queue: the end of the record brings neither a
                // message nor room to this queue. Only the process that moves the message can tell whether it has arrived.
                State::Free | State::Aside | State::Moving | State::Arrived | State::Redriving => {
                    continue;
                }
            };
            if ends {
                end(index, record, state)?;
            }
            // `end` may have turned a lease into a delayed message.
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
