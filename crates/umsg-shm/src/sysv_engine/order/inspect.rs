//! Looking at the messages without removing one: in order of arrival, by number.

use super::store::{link, target};
use super::{Place, TypeIndexStore, Typed};
use crate::fault::Fault;

impl<'a, S: TypeIndexStore> Typed<'a, S> {
    /// The n-th message in order of arrival, counted from 0. The one found last is remembered together with its number, kept
    /// right by those that add and remove: a process that asks for one after the other walks one step each time.
    pub(crate) fn nth(&self, n: u32) -> Result<Option<u32>, Fault> {
        let roots = self.shelf.kinds();
        let (mut at, mut number) = (target(&roots.cursor), roots.position.get());
        if at.is_none() || n < number / 2 {
            (at, number) = (target(&roots.head), 0);
        }
        let Some(mut slot) = at else {
            return Ok(None);
        };
        for _ in 0..=self.shelf.places() {
            roots.cursor.set(link(slot));
            roots.position.set(number);
            if number == n {
                return Ok(Some(slot));
            }
            let place = self.shelf.place(slot)?;
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

    /// All messages, in order of arrival.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn iter(&self) -> impl Iterator<Item = Result<u32, Fault>> + use<'a, S> {
        let shelf = self.shelf;
        let mut next = target(&shelf.kinds().head);
        let walk = std::iter::from_fn(move || {
            let slot = next.take()?;
            let place = shelf.place(slot);
            next = place.as_ref().ok().and_then(|place| target(&place.next));
            Some(place.map(|_| slot))
        });
        walk.take(self.shelf.places() as usize)
    }

    /// A message is about to be removed: the cursor stays at the message that it is at, or goes on to the next.
    #[inline(always)]
    pub(super) fn look_past(&self, slot: u32, place: &Place) -> Result<(), Fault> {
        match target(&self.shelf.kinds().cursor) {
            Some(cursor) => self.move_cursor(cursor, slot, place),
            None => Ok(()),
        }
    }

    #[cold]
    fn move_cursor(&self, cursor: u32, removed: u32, place: &Place) -> Result<(), Fault> {
        let roots = self.shelf.kinds();
        let position = roots.position.get();
        if cursor == removed {
            // The first of all is found without a cursor.
            let next = if position == 0 { 0 } else { place.next.get() };
            roots.cursor.set(next);
        } else if place.sequence.get() < self.shelf.place(cursor)?.sequence.get() {
            roots.position.set(position.wrapping_sub(1));
        }
        Ok(())
    }

    /// A message came back: the cursor counts it if it is before it.
    pub(super) fn look_again(&self, sequence: u64) -> Result<(), Fault> {
        let roots = self.shelf.kinds();
        if let Some(cursor) = target(&roots.cursor)
            && sequence < self.shelf.place(cursor)?.sequence.get()
        {
            roots.position.set(roots.position.get().wrapping_add(1));
        }
        Ok(())
    }
}
