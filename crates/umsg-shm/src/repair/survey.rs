//! Which slots a repair has found somewhere: what is nowhere in the end is free.

use crate::fault::Fault;
use crate::sys::scratch::Scratch;

/// Of so many slots, those that are accounted for.
pub(crate) struct Survey {
    seen: Scratch<u8>,
}

impl Survey {
    /// # Errors
    /// No memory.
    pub(crate) fn new(slots: usize) -> Result<Survey, Fault> {
        Ok(Survey {
            seen: Scratch::new(slots)?,
        })
    }

    /// How many slots there are.
    pub(crate) fn slots(&self) -> usize {
        self.seen.len()
    }

    pub(crate) fn has(&self, slot: usize) -> bool {
        self.seen.get(slot).is_some_and(|&seen| seen != 0)
    }

    /// Notes a slot. False if it was noted before, or does not exist.
    pub(crate) fn note(&mut self, slot: u32) -> bool {
        match self.seen.get_mut(slot as usize) {
            Some(seen) => std::mem::replace(seen, 1) == 0,
            None => false,
        }
    }
}
