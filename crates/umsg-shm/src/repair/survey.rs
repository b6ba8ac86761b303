//! The survey of a repair: the slots that it has found in use. All other slots are free.

use crate::fault::Fault;
use crate::sys::scratch::Scratch;

/// A queued message: its sequence number and its slot.
pub(crate) type Queued = (u64, u32);

/// The set of the slots that were found in use.
pub(crate) struct Survey {
    seen: Scratch<u8>,
}

impl Survey {
    /// # Errors
    /// Fails if no memory is left.
    pub(crate) fn new(slots: usize) -> Result<Survey, Fault> {
        Ok(Survey {
            seen: Scratch::new(slots)?,
        })
    }

    /// Returns the number of slots.
    pub(crate) fn slots(&self) -> usize {
        self.seen.len()
    }

    pub(crate) fn has(&self, slot: usize) -> bool {
        self.seen.get(slot).is_some_and(|&seen| seen != 0)
    }

    /// Adds a slot. Returns false if the slot was added before, or does not exist.
    pub(crate) fn note(&mut self, slot: u32) -> bool {
        match self.seen.get_mut(slot as usize) {
            Some(seen) => std::mem::replace(seen, 1) == 0,
            None => false,
        }
    }

    /// Adds the slots of queued messages that were not added before, and returns them. For a slot with a queued message, `number` returns the
    /// sequence number of the message.
    pub(crate) fn list_queued(
        &mut self,
        number: impl Fn(u32) -> Result<Option<u64>, Fault>,
    ) -> Result<Scratch<Queued>, Fault> {
        let mut count = 0;
        let mut queued = Scratch::<Queued>::new(self.slots())?;
        for slot in 0..self.slots() as u32 {
            if !self.has(slot as usize)
                && let Some(number) = number(slot)?
            {
                self.note(slot);
                queued[count] = (number, slot);
                count += 1;
            }
        }
        queued.truncate(count);
        Ok(queued)
    }
}
