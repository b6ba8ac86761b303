//! What a program keeps under a number beyond a call: leases and reservations.
//!
//! The number is a place and a generation, as a handle is, so a number that was made up or used up leads nowhere. A place is
//! locked only for a moment and never waited for: a number that another thread is using at this moment is refused, and so
//! a forked child is not stopped by a lock that its parent's other threads held.

use std::sync::Mutex;

use crate::table::{Empty, Table};

/// Things of one kind.
pub(crate) struct Keep<T: Send + 'static>(Table<Place<T>>);

/// A place: what is kept there, and how many things were before.
struct Place<T>(Mutex<(u32, Option<T>)>);

impl<T: Send + 'static> Empty for Place<T> {
    const EMPTY: Self = Place(Mutex::new((0, None)));
}

impl<T: Send + 'static> Keep<T> {
    pub(crate) const fn new() -> Self {
        Keep(Table::new())
    }

    /// Keeps a thing, and says under which number, which is not 0; gives it back if there is no room.
    pub(crate) fn put(&'static self, thing: T) -> Result<u64, T> {
        let mut thing = Some(thing);
        let put = self.0.claim(|place| {
            let mut place = place.0.try_lock().ok()?;
            if place.1.is_some() {
                return None;
            }
            place.0 = place.0.wrapping_add(1).max(1);
            place.1 = thing.take();
            Some(place.0)
        });
        match (put, thing) {
            (Some((index, generation)), _) => Ok(u64::from(generation) << 32 | index as u64),
            (None, Some(thing)) => Err(thing),
            (None, None) => unreachable!("it is taken only for a place"),
        }
    }

    /// Hands a thing out for good.
    pub(crate) fn take(&'static self, number: u64) -> Option<T> {
        self.find(number, Option::take)
    }

    /// Looks at a thing.
    pub(crate) fn with<R>(&'static self, number: u64, look: impl FnOnce(&T) -> R) -> Option<R> {
        self.find(number, |thing| thing.as_ref().map(look))
    }

    fn find<R>(
        &'static self,
        number: u64,
        found: impl FnOnce(&mut Option<T>) -> Option<R>,
    ) -> Option<R> {
        let mut place = self.0.get(number as u32 as usize)?.0.try_lock().ok()?;
        let (generation, thing) = &mut *place;
        if u64::from(*generation) != number >> 32 {
            return None;
        }
        found(thing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_leads_to_what_was_put_there_once() {
        static KEEP: Keep<&str> = Keep::new();
        let one = KEEP.put("one").unwrap();
        let two = KEEP.put("two").unwrap();
        assert!(one != 0 && two != 0 && one != two);
        assert_eq!(KEEP.with(one, |thing| thing.len()), Some(3));
        assert_eq!((KEEP.take(one), KEEP.take(one)), (Some("one"), None));
        assert_eq!(
            (KEEP.take(two), KEEP.with(two, |_| ())),
            (Some("two"), None)
        );
    }

    #[test]
    fn a_number_that_was_never_given_leads_nowhere() {
        static KEEP: Keep<u8> = Keep::new();
        let number = KEEP.put(7).unwrap();
        for wrong in [
            0,
            1,
            number + 1,
            number + (1 << 32),
            number + (1 << 20),
            u64::MAX,
        ] {
            assert_eq!(KEEP.take(wrong), None, "{wrong:#x}");
        }
        assert_eq!(KEEP.take(number), Some(7));
    }

    #[test]
    fn a_number_in_use_is_refused_and_not_waited_for() {
        static KEEP: Keep<u8> = Keep::new();
        let number = KEEP.put(7).unwrap();
        assert_eq!(KEEP.with(number, |_| KEEP.take(number)), Some(None));
        assert_eq!(KEEP.take(number), Some(7));
    }
}
