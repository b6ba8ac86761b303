//! The account of a queue's slots, for tests. A slot is lost if it is neither free nor used by a message, a waiter or a lease. Only this account
//! shows lost slots, and a repair frees them.

use crate::fault::Fault;
use crate::leases::{LeaseStore, Leases, State};
use crate::repair::survey::Survey;
use crate::waiters::{List, NO_SLOT, WaiterStore, Waiters};

/// The numbers of slots by their use. No slot has two uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// The slots in circulation.
    pub slots: usize,
    pub free: usize,
    /// The slots of queued messages.
    pub queued: usize,
    /// The slots of blocked senders, and of messages that are offered to receivers.
    pub waiting: usize,
    /// The slots of leases and reservations, and of messages that are set aside or delayed.
    pub held: usize,
}

impl Account {
    /// Returns the number of lost slots, which are neither free nor in use.
    pub fn lost(&self) -> usize {
        self.slots - (self.free + self.queued + self.waiting + self.held)
    }
}

/// An account while its slots are being noted.
pub(crate) struct Draft {
    survey: Survey,
    account: Account,
}

impl Draft {
    /// # Errors
    /// No memory is left.
    pub(crate) fn new(slots: usize) -> Result<Draft, Fault> {
        let account = Account {
            slots,
            ..Account::default()
        };
        Ok(Draft {
            survey: Survey::new(slots)?,
            account,
        })
    }

    /// Counts a slot in the field of the account that `place` selects.
    ///
    /// # Errors
    /// [`Fault::Damaged`] if the slot does not exist, or was noted at another place before.
    pub(crate) fn note(
        &mut self,
        slot: u32,
        place: impl FnOnce(&mut Account) -> &mut usize,
    ) -> Result<(), Fault> {
        if !self.survey.note(slot) {
            return Err(Fault::Damaged);
        }
        *place(&mut self.account) += 1;
        Ok(())
    }

    /// Counts the slots of waiters, leases and reservations.
    pub(crate) fn note_users<S: WaiterStore + LeaseStore>(
        &mut self,
        segment: &S,
    ) -> Result<(), Fault> {
        for (_, node) in Waiters::of(segment).all() {
            let slot = node.slot.get();
            let has_slot = match List::of(node) {
                List::Offered => true,
                List::Senders => slot != NO_SLOT,
                List::Receivers | List::None => false,
            };
            if has_slot {
                self.note(slot, |account| &mut account.waiting)?;
            }
        }
        for (_, record) in Leases::of(segment).all() {
            // `Arrived`: the message is already in the store, so its slot is counted as queued.
            if !matches!(State::of(record), State::Free | State::Arrived) {
                self.note(record.slot.get(), |account| &mut account.held)?;
            }
        }
        Ok(())
    }

    /// Returns the slots that were not counted.
    pub(crate) fn rest(&self) -> impl Iterator<Item = u32> + use<> {
        let rest: Vec<u32> = (0..self.survey.slots())
            .filter(|&slot| !self.survey.has(slot))
            .map(|slot| slot as u32)
            .collect();
        rest.into_iter()
    }

    pub(crate) fn close(self) -> Account {
        self.account
    }
}
