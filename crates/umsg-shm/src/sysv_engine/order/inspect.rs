//! Inspection of the messages in order of arrival, by position.

use super::store::{link, target};
use super::{Order, OrderLinks, TypeIndexStore};
use crate::fault::Fault;

impl<'a, S: TypeIndexStore> Order<'a, S> {
    /// Returns the n-th message in order of arrival. Message 0 is the oldest.
    ///
    /// A cursor remembers the last message that was found, and its position. Insertions and removals correct the position. So if a process asks for
    /// one message after the other, each call walks one step.
    pub(crate) fn nth(&self, n: u32) -> Result<Option<u32>, Fault> {
        let roots = self.store.kinds();
        let (mut at, mut number) = (target(&roots.cursor), roots.position.get());
        if at.is_none() || n < number / 2 {
            (at, number) = (target(&roots.head), 0);
        }
        let Some(mut slot) = at else {
            return Ok(None);
        };
        for _ in 0..=self.store.places() {
            roots.cursor.set(link(slot));
            roots.position.set(number);
            if number == n {
                return Ok(Some(slot));
            }
            let place = self.store.place(slot)?;
            let (towards, step) = match number < n {
                true => (&place.next, 1),
                false => (&place.previous, u32::MAX),
            };
            match target(towards) {
                Some(next) => (slot, number) = (next, number.wrapping_add(step)),
                None if number < n => return Ok(None),
                None => break,
            }
        }
        Err(Fault::Damaged)
    }

    /// Returns all messages in order of arrival.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn iter(&self) -> impl Iterator<Item = Result<u32, Fault>> + use<'a, S> {
        let store = self.store;
        let mut next = target(&store.kinds().head);
        let walk = std::iter::from_fn(move || {
            let slot = next.take()?;
            let place = store.place(slot);
            next = place.as_ref().ok().and_then(|place| target(&place.next));
            Some(place.map(|_| slot))
        });
        walk.take(self.store.places() as usize)
    }

    /// Adapts the cursor before a message is removed: if the cursor points to that message, the cursor moves to the next message.
    #[inline(always)]
    pub(super) fn note_removal(&self, slot: u32, place: &OrderLinks) -> Result<(), Fault> {
        match target(&self.store.kinds().cursor) {
            Some(cursor) => self.move_cursor(cursor, slot, place),
            None => Ok(()),
        }
    }

    #[cold]
    fn move_cursor(&self, cursor: u32, removed: u32, place: &OrderLinks) -> Result<(), Fault> {
        let roots = self.store.kinds();
        let position = roots.position.get();
        if cursor == removed {
            // The removal of the first message clears the cursor: without a cursor, a search begins at the first message.
            let next = if position == 0 { 0 } else { place.next.get() };
            roots.cursor.set(next);
        } else if place.sequence.get() < self.store.place(cursor)?.sequence.get() {
            roots.position.set(position.wrapping_sub(1));
        }
        Ok(())
    }

    /// Corrects the cursor's position after a message came back to a place before the cursor.
    pub(super) fn note_return(&self, sequence: u64) -> Result<(), Fault> {
        let roots = self.store.kinds();
        if let Some(cursor) = target(&roots.cursor)
            && sequence < self.store.place(cursor)?.sequence.get()
        {
            roots.position.set(roots.position.get().wrapping_add(1));
        }
        Ok(())
    }
}
