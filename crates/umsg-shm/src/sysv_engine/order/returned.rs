//! Insertion of a message that comes back, at the place of its sequence number.
//!
//! The place may be anywhere. Mostly it is near the head, beside messages that came back earlier, or between the old neighbours of the message. The
//! walk to the place begins at the nearest of these messages, and goes step by step in both directions.

use super::store::{NONE, link};
use super::{Kind, Order, OrderLinks, TypeIndexStore};
use crate::fault::Fault;
use crate::lock::tokens::ReceiverHeld;
use crate::sync::Guarded32;

impl<'a, S: TypeIndexStore> Order<'a, S> {
    /// Adds a message that was removed before, with the sequence number that it had.
    pub(crate) fn insert(
        &self,
        _: ReceiverHeld<'_>,
        slot: u32,
        mtype: i64,
        sequence: u64,
    ) -> Result<(), Fault> {
        let (index, kind) = self.find_or_create(mtype)?;
        let (roots, place) = (self.store.kinds(), self.store.place(slot)?);
        let (previous, next) = self.gap(place, kind, sequence)?;
        let before = self.before_in_kind((index, kind), previous, sequence)?;
        self.note_return(sequence)?;
        place.sequence.set(sequence);
        place.previous.set(previous);
        place.next.set(next);
        place.kind.set(link(index));
        self.next_after(previous)?.set(link(slot));
        self.previous_before(next)?.set(link(slot));
        roots.returned.set(link(slot));
        kind.count.set(kind.count.get().wrapping_add(1));
        self.insert_in_kind(slot, place, kind, before)
    }

    /// Adds a message to the list of its type, after another message.
    fn insert_in_kind(
        &self,
        slot: u32,
        place: &OrderLinks,
        kind: &'a Kind,
        before: Option<u32>,
    ) -> Result<(), Fault> {
        let naming = match before {
            Some(before) => &self.store.place(before)?.next_of_kind,
            None => &kind.head,
        };
        place.next_of_kind.set(naming.get());
        if naming.get() == 0 {
            kind.tail.set(link(slot));
        }
        naming.set(link(slot));
        if before.is_none() {
            kind.first.set(place.sequence.get());
            self.lower(kind, place.sequence.get())?;
        }
        Ok(())
    }

    /// Returns links to the two messages of the arrival list between which a number belongs.
    fn gap(&self, place: &OrderLinks, kind: &Kind, sequence: u64) -> Result<(u32, u32), Fault> {
        let (mut below, mut above) = self.nearest(place, kind, sequence)?;
        for _ in 0..=self.store.places() {
            let next = self.next_after(below)?.get();
            if next == 0 || !self.is_older(next, sequence)? {
                return Ok((below, next));
            }
            below = next;
            let previous = self.previous_before(above)?.get();
            if previous == 0 || self.is_older(previous, sequence)? {
                return Ok((previous, above));
            }
            above = previous;
        }
        Err(Fault::Damaged)
    }

    /// Returns links to the nearest known messages, an older and a newer one; 0 for an end of the list.
    ///
    /// The known messages are the old neighbours, the message that came back last, and the first message of the type.
    fn nearest(&self, place: &OrderLinks, kind: &Kind, sequence: u64) -> Result<(u32, u32), Fault> {
        let returned = &self.store.kinds().returned;
        let (mut below, mut above) = ((0, 0), (NONE, 0));
        for known in [&place.previous, &place.next, returned, &kind.head] {
            let known = known.get();
            let Some(there) = self.listed(known)? else {
                continue;
            };
            if there < sequence {
                below = below.max((there, known));
            } else {
                above = above.min((there, known));
            }
        }
        Ok((below.1, above.1))
    }

    /// Returns the message of a type after which a number belongs, if there is such a message. `previous` is the neighbour in order of arrival.
    fn before_in_kind(
        &self,
        (index, kind): (u32, &Kind),
        previous: u32,
        sequence: u64,
    ) -> Result<Option<u32>, Fault> {
        let mut before = kind.head.get();
        if before == 0 || !self.is_older(before, sequence)? {
            return Ok(None);
        }
        for known in [previous, self.store.kinds().returned.get()] {
            if self.is_of_kind(known, index)? && self.is_older(known, sequence)? {
                before = known;
                break;
            }
        }
        for _ in 0..=self.store.places() {
            let slot = before.wrapping_sub(1);
            let next = self.store.place(slot)?.next_of_kind.get();
            if next == 0 || !self.is_older(next, sequence)? {
                return Ok(Some(slot));
            }
            before = next;
        }
        Err(Fault::Damaged)
    }

    /// Returns the sequence number of the message that a link names. None if that message is not in the order.
    fn listed(&self, known: u32) -> Result<Option<u64>, Fault> {
        let Some(slot) = known.checked_sub(1) else {
            return Ok(None);
        };
        let place = self.store.place(slot)?;
        Ok((place.kind.get() != 0).then(|| place.sequence.get()))
    }

    fn is_of_kind(&self, known: u32, kind: u32) -> Result<bool, Fault> {
        match known.checked_sub(1) {
            Some(slot) => Ok(self.store.place(slot)?.kind.get() == link(kind)),
            None => Ok(false),
        }
    }

    fn is_older(&self, message: u32, sequence: u64) -> Result<bool, Fault> {
        let place = self.store.place(message.wrapping_sub(1))?;
        Ok(place.sequence.get() < sequence)
    }

    /// Returns the word that names the successor of a message. For 0, returns the word of the head.
    fn next_after(&self, message: u32) -> Result<&'a Guarded32, Fault> {
        match message.checked_sub(1) {
            Some(slot) => Ok(&self.store.place(slot)?.next),
            None => Ok(&self.store.kinds().head),
        }
    }

    /// Returns the word that names the predecessor of a message. For 0, returns the word of the tail.
    fn previous_before(&self, message: u32) -> Result<&'a Guarded32, Fault> {
        match message.checked_sub(1) {
            Some(slot) => Ok(&self.store.place(slot)?.previous),
            None => Ok(&self.store.kinds().tail),
        }
    }
}
