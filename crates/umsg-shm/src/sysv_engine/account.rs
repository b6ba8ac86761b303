//! The account of the slots, for tests.

use super::segment::Cell;
use super::{Call, Engine, Refused};
use crate::account::{Account, Draft};
use crate::fault::Fault;
use crate::lock::tokens::ReceiverHeld;
use crate::sysv_engine::order::TypeIndexStore;

impl Engine {
    /// Finds the place of each slot that was ever used, under the lock. Returns [`Fault::Damaged`] if a count or a mark contradicts the places.
    pub fn account(&self, call: &Call<'_>) -> Result<Account, Refused> {
        self.with_lock(call.me, call.deadline, |receiving, _| {
            Ok(self.account_locked(receiving)?)
        })
    }

    fn account_locked(&self, _: ReceiverHeld<'_>) -> Result<Account, Fault> {
        let (segment, control) = (self.segment(), &self.fixed().control);
        let mut draft = Draft::new(control.used() as usize)?;
        let mut free = control.first_free();
        while let Some(slot) = free {
            if segment.cell(slot)?.is_queued() {
                return Err(Fault::Damaged);
            }
            draft.note(slot, |account| &mut account.free)?;
            free = segment.place(slot)?.next_free().checked_sub(1);
        }
        draft.note_users(segment)?;
        let mut queued = 0;
        for slot in draft.rest() {
            if segment.cell(slot).is_ok_and(Cell::is_queued) {
                draft.note(slot, |account| &mut account.queued)?;
                queued += 1;
            }
        }
        match queued == control.messages() {
            true => Ok(draft.close()),
            false => Err(Fault::Damaged),
        }
    }
}
