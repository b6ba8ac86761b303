//! Tracks the place of each slot. A slot has exactly one place.

use super::findings::Findings;
use std::fmt;

/// The place of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotPlace {
    Ring,
    Free,
    Store,
    Waiter,
    Hold,
}

impl fmt::Display for SlotPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SlotPlace::Ring => "in the ring",
            SlotPlace::Free => "free",
            SlotPlace::Store => "in the store",
            SlotPlace::Waiter => "a blocked thread's",
            SlotPlace::Hold => "leased, reserved or set aside",
        })
    }
}

/// The places in which slots were found.
pub(super) struct Survey {
    places: Vec<Option<SlotPlace>>,
}

impl Survey {
    /// Returns the table for a number of slots in circulation. Returns None if there is no memory for the table.
    pub(super) fn new(slots: usize) -> Option<Survey> {
        let mut places = Vec::new();
        places.try_reserve_exact(slots).ok()?;
        places.resize(slots, None);
        Some(Survey { places })
    }

    /// Notes that the slot that `word` names is in `place`. Adds a finding and returns false if the slot does not exist, or was already found in a
    /// place.
    pub(super) fn note<T>(
        &mut self,
        findings: &mut Findings,
        word: &T,
        slot: u32,
        place: SlotPlace,
    ) -> bool {
        let slots = self.places.len();
        match self.places.get_mut(slot as usize) {
            None => findings.add(
                "a slot's number is below the number of slots in circulation",
                word,
                format_args!("below {slots}"),
                slot,
            ),
            Some(Some(other)) => findings.add(
                "a slot is in one place only",
                word,
                format_args!("a slot that is {place} and nowhere else"),
                format_args!("slot {slot}, which is also {other}"),
            ),
            Some(free) => {
                *free = Some(place);
                return true;
            }
        }
        false
    }

    pub(super) fn place(&self, slot: u32) -> Option<SlotPlace> {
        self.places.get(slot as usize).copied().flatten()
    }

    /// Checks that each slot was found in a place; `word` holds the number of slots.
    pub(super) fn check_lost<T>(&self, word: &T, findings: &mut Findings) {
        if let Some(slot) = self.places.iter().position(Option::is_none) {
            findings.add(
                "no slot is lost",
                word,
                "a slot that is free, or has a message",
                format_args!("slot {slot}, which is neither"),
            );
        }
    }
}
