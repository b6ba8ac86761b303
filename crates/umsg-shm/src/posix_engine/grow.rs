//! Growth: brings more slots into circulation when the free slots do not suffice.
//!
//! The growing thread holds both locks: it has taken the receiver lock, and has borrowed the sender lock. If the thread dies, the next owner of the
//! receiver lock ends the loan and frees the slots that are unused.

use super::recover;
use super::{Engine, Refused};
use crate::crash::crash_point;
use crate::fault::Fault;
use crate::lock::tokens::{BothHeld, ReceiverHeld};
use crate::lock::{Left, LockError, SLICE};
use crate::posix_engine::segment::Ring;
use crate::sync::Ordering;
use crate::sys::clock::Deadline;
use crate::sys::thread::Thread;

/// The least and the greatest number of slots that come into circulation at a time. Within these bounds, the number is a sixteenth of the slots in
/// use. The lower bound is 32, because 32 long cells fill a page.
#[cfg(not(loom))]
const STEP: (usize, usize) = (32, 4096);
#[cfg(loom)]
const STEP: (usize, usize) = (1, 2);

impl Engine {
    /// Brings slots into circulation for a sender that found fewer than `wanted` free slots.
    #[cold]
    pub(super) fn grow(&self, me: &Thread, deadline: Deadline, wanted: u64) -> Result<(), Refused> {
        self.with_receiver_lock(me, deadline, |receiving, _| {
            let both = self.borrow_sender_lock(receiving, me, deadline)?;
            let result = self.grow_until(both, wanted);
            self.segment().fixed().sender.lock.give_back();
            result
        })
    }

    /// Makes sure that `wanted` slots are free. Frees the slots of dead senders first, and then adds new slots.
    pub(super) fn grow_until(&self, both: BothHeld<'_>, wanted: u64) -> Result<(), Refused> {
        let fixed = self.segment().fixed();
        if fixed.free_slots(both) >= wanted {
            return Ok(());
        }
        self.withdraw_dead_senders(both.receiver())?;
        while fixed.free_slots(both) < wanted {
            self.grow_borrowed(both)?;
        }
        Ok(())
    }

    /// Borrows the sender lock, and repairs the senders' side if its last owner died. Waits for at most a slice, because a stopped sender must not
    /// block receivers.
    pub(super) fn borrow_sender_lock<'a>(
        &self,
        receiving: ReceiverHeld<'a>,
        me: &Thread,
        deadline: Deadline,
    ) -> Result<BothHeld<'a>, Refused> {
        let lock = &self.segment().fixed().sender.lock;
        let slice = match deadline {
            passed if passed.has_passed() => Deadline::Never.or_slice(SLICE),
            other => other.or_slice(SLICE),
        };
        match lock.borrow(me, self.segment(), slice) {
            Ok(Left::InOrder | Left::Counted) => {}
            Ok(Left::ByTheDead) => {
                if let Err(fault) =
                    recover::sender_side(receiving.with_loan().sender(), self.segment())
                {
                    lock.give_back_broken();
                    return Err(fault.into());
                }
            }
            Err(LockError::OwnedByCaller) => return Err(Fault::OwnedByCaller.into()),
            Err(_) => return Err(Fault::Busy.into()),
        }
        crash_point!(GROW_LENT);
        Ok(receiving.with_loan())
    }

    /// Brings at least one more slot into circulation.
    fn grow_borrowed(&self, both: BothHeld<'_>) -> Result<(), Refused> {
        let fixed = self.segment().fixed();
        let layout = self.segment().layout();
        let slots = fixed.geometry.slots() as usize;
        let more = (slots / 16)
            .clamp(STEP.0, STEP.1)
            .min(layout.slots.saturating_sub(slots));
        if more == 0 {
            // All slots of the file are in circulation. A slot becomes free when its message is received, or its waiter gives up.
            return Err(Refused::NotNow);
        }
        let segment = self.segment();
        segment.populate(
            layout.cells + slots * layout.cell_len,
            more * layout.cell_len,
        )?;
        // The page of the last link in use has memory already, so the allocation begins at the next page.
        let links = (slots * 4).next_multiple_of(4096);
        segment.populate(
            layout.links + links,
            ((slots + more) * 4).saturating_sub(links),
        )?;
        self.widen_ring(both, slots + more)?;
        let freed = fixed.published.freed(both.receiver());
        for step in 0..more {
            Ring::of(self.segment()).write(freed.wrapping_add(step as u64), (slots + step) as u32);
        }
        crash_point!(GROW_WRITTEN);
        fixed.geometry.set_slots(both, (slots + more) as u32);
        crash_point!(GROW_COUNTED);
        fixed.move_free_end(both, freed.wrapping_add(more as u64));
        Ok(())
    }

    /// Doubles the ring until it has an entry for each slot.
    fn widen_ring(&self, both: BothHeld<'_>, slots: usize) -> Result<(), Fault> {
        let geometry = &self.segment().fixed().geometry;
        loop {
            let len = geometry.ring_mask() as usize + 1;
            if len >= slots {
                return Ok(());
            }
            if len * 2 > self.segment().layout().ring_len {
                return Err(Fault::Damaged);
            }
            self.segment()
                .populate(self.segment().layout().ring + len * 4, len * 4)?;
            for index in 0..len {
                // Relaxed: this thread holds both locks.
                let slot = self.segment().ring_at(index).load(Ordering::Relaxed);
                self.segment()
                    .ring_at(len + index)
                    .store(slot, Ordering::Relaxed);
            }
            crash_point!(GROW_COPIED);
            geometry.widen_ring(both, len * 2);
            crash_point!(GROW_DOUBLED);
        }
    }
}
