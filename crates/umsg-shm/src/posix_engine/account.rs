//! The account of all slots, for tests: the numbers of free slots, and of slots with queued messages, waiters and leases.

use super::{Engine, Refused};
use crate::account::{Account, Draft};
use crate::fault::Fault;
use crate::lock::tokens::BothHeld;
use crate::posix_engine::segment::Ring;
use crate::sys::clock::Deadline;
use crate::sys::thread::Thread;

impl Engine {
    /// Finds the use of each slot, under both locks. Returns [`Fault::Damaged`] if a count or a mark contradicts the uses.
    pub fn account(&self, me: &Thread, deadline: Deadline) -> Result<Account, Refused> {
        self.with_receiver_lock(me, deadline, |receiving, _| {
            let both = self.borrow_sender_lock(receiving, me, deadline)?;
            let account = self.account_borrowed(both);
            self.segment().fixed().sender.lock.give_back();
            Ok(account?)
        })
    }

    fn account_borrowed(&self, both: BothHeld<'_>) -> Result<Account, Fault> {
        let (segment, receiving) = (self.segment(), both.receiver());
        let fixed = segment.fixed();
        let mut draft = Draft::new(fixed.geometry.slots() as usize)?;
        let drained = fixed.receiver.drained(receiving);
        let sent = fixed.sender.next_position(both.sender());
        let freed = fixed.published.freed(receiving);
        for step in 0..freed.wrapping_sub(drained) {
            let (slot, cell) = Ring::of(segment).slot(drained.wrapping_add(step))?;
            if cell.is_stored() {
                return Err(Fault::Damaged);
            }
            match step < sent.wrapping_sub(drained) {
                true => draft.note(slot, |account| &mut account.queued)?,
                false => draft.note(slot, |account| &mut account.free)?,
            }
        }
        draft.note_users(segment)?;
        let mut stored = 0;
        for slot in draft.rest() {
            if segment.cell(slot)?.is_stored() {
                draft.note(slot, |account| &mut account.queued)?;
                stored += 1;
            }
        }
        match stored == fixed.receiver.stored(receiving) {
            true => Ok(draft.close()),
            false => Err(Fault::Damaged),
        }
    }
}
