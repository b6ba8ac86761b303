//! What a program keeps under a number beyond a call: leases and reservations.
//!
//! The number is a place and a generation, as a handle is, so a number that was made up or used up leads nowhere. Threads
//! that use a thing are counted, and the last of them drops it if its number has ended meanwhile. Each place has one word
//! of state, its generation and that count:
//!
//! | generation | count | state | who leaves it |
//! |---|---|---|---|
//! | even | 0 | free | `Keep::put` |
//! | even | 1 | being filled | the same, when it has filled it |
//! | odd | 1 + uses | kept | `Keep::end` and `Keep::take` make the generation even, and have the one count |
//! | even | uses | ended | the last of them drops the thing, then frees the place |
//!
//! No step takes a lock: a forked child finds nothing half done (but keeps what another thread was just using), and a
//! signal handler never finds a thing refused because of what it has interrupted.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::table::{Empty, Table};

/// Things of one kind.
pub(crate) struct Keep<T: Send + Sync + 'static>(Table<Place<T>>);

/// A place: its state, and what is kept there.
struct Place<T> {
    state: AtomicU64,
    thing: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: `thing` is written by who claimed the place, and moved out or dropped by its last user, one thread each by
// `state`'s compare-and-swap; in between it is shared by reference.
unsafe impl<T: Send + Sync> Sync for Place<T> {}

impl<T: Send + Sync + 'static> Empty for Place<T> {
    const EMPTY: Self = Place {
        state: AtomicU64::new(0),
        thing: UnsafeCell::new(MaybeUninit::uninit()),
    };
}

const ONE: u64 = 1;
const NEXT_GENERATION: u64 = 1 << 32;

fn generation(state: u64) -> u64 {
    state >> 32
}

fn is_kept(state: u64) -> bool {
    generation(state) % 2 == 1
}

impl<T: Send + Sync + 'static> Keep<T> {
    pub(crate) const fn new() -> Self {
        Keep(Table::new())
    }

    /// Keeps a thing, and says under which number, which is not 0; gives it back if there is no room.
    pub(crate) fn put(&'static self, thing: T) -> Result<u64, T> {
        let Some((index, place)) = self.0.claim(Place::claim) else {
            return Err(thing);
        };
        // SAFETY: the place is claimed: nobody else reads or writes it, and it holds nothing that needs a drop.
        unsafe { (*place.thing.get()).write(thing) };
        // Release: who finds the thing finds it whole.
        let state = place.state.fetch_add(NEXT_GENERATION, Ordering::Release);
        let generation = generation(state.wrapping_add(NEXT_GENERATION));
        Ok(generation << 32 | index as u64)
    }

    /// A thing, which is there until the result is dropped, whoever ends its number meanwhile.
    pub(crate) fn get(&'static self, number: u64) -> Option<Kept<T>> {
        let place = self.place(number)?;
        // Acquire: pairs with the release in `put`.
        place.change(number, Ordering::Acquire, |state| Some(state + ONE))?;
        Some(Kept { place })
    }

    /// Ends a number, once: its thing is dropped when nobody uses it any more.
    pub(crate) fn end(&'static self, number: u64) -> bool {
        let Some(place) = self.place(number) else {
            return false;
        };
        // Relaxed: only the count orders the drop.
        let next = |state: u64| Some(state.wrapping_add(NEXT_GENERATION));
        if place.change(number, Ordering::Relaxed, next).is_none() {
            return false;
        }
        place.release();
        true
    }

    /// Hands a thing out for good, unless a thread is using it at this moment.
    pub(crate) fn take(&'static self, number: u64) -> Option<T> {
        let place = self.place(number)?;
        // Acquire: what all users did comes before what the caller does with the thing.
        place.change(number, Ordering::Acquire, |state| {
            (state as u32 == 1).then(|| state.wrapping_add(NEXT_GENERATION))
        })?;
        // SAFETY: filled in `put`; there is no user, and none can come because the generation is even now.
        let thing = unsafe { (*place.thing.get()).assume_init_read() };
        // Release: the thing is out before the next claim.
        place.state.fetch_sub(ONE, Ordering::Release);
        Some(thing)
    }

    fn place(&'static self, number: u64) -> Option<&'static Place<T>> {
        self.0.get(number as u32 as usize)
    }
}

impl<T> Place<T> {
    fn claim(&'static self) -> Option<&'static Self> {
        let state = self.state.load(Ordering::Relaxed);
        if is_kept(state) || state as u32 != 0 {
            return None;
        }
        // Acquire: pairs with the releases that free a place; the last thing is gone.
        self.state
            .compare_exchange(state, state + ONE, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| self)
    }

    /// Changes the state, if a thing is kept under this number.
    fn change(
        &self,
        number: u64,
        success: Ordering,
        change: impl Fn(u64) -> Option<u64>,
    ) -> Option<()> {
        self.state
            .fetch_update(success, Ordering::Relaxed, |state| {
                let fits = is_kept(state) && generation(state) == number >> 32;
                fits.then(|| change(state)).flatten()
            })
            .ok()
            .map(|_| ())
    }

    /// Gives back a count; the last one drops the thing.
    fn release(&self) {
        let mut state = self.state.load(Ordering::Relaxed);
        while state as u32 != 1 {
            // Release: what this user did comes before the drop (Acquire below).
            let (before, after) = (Ordering::Release, Ordering::Relaxed);
            match self
                .state
                .compare_exchange_weak(state, state - ONE, before, after)
            {
                Ok(_) => return,
                Err(now) => state = now,
            }
        }
        // Acquire: what all other users did comes before the drop.
        self.state.load(Ordering::Acquire);
        // SAFETY: filled in `put`; this is the last user, and the generation is even, so that none can come: the one count
        // of a number that has not ended is nobody's use.
        unsafe { (*self.thing.get()).assume_init_drop() };
        // Release: the drop comes before the next claim.
        self.state.fetch_sub(ONE, Ordering::Release);
    }
}

/// A thing in use.
pub(crate) struct Kept<T: 'static> {
    place: &'static Place<T>,
}

impl<T> Deref for Kept<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: filled before the generation was published, and neither moved nor dropped while this use is counted.
        unsafe { (*self.place.thing.get()).assume_init_ref() }
    }
}

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        self.place.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_number_leads_to_what_was_put_there_once() {
        static KEEP: Keep<&str> = Keep::new();
        let one = KEEP.put("one").unwrap();
        let two = KEEP.put("two").unwrap();
        assert!(one != 0 && two != 0 && one != two);
        assert_eq!(KEEP.get(one).as_deref(), Some(&"one"));
        assert_eq!((KEEP.take(one), KEEP.take(one)), (Some("one"), None));
        assert!(KEEP.end(two) && !KEEP.end(two));
        assert!(KEEP.get(two).is_none() && KEEP.take(two).is_none());
    }

    #[test]
    fn a_number_that_was_never_given_leads_nowhere() {
        static KEEP: Keep<u8> = Keep::new();
        let number = KEEP.put(7).unwrap();
        for wrong in [
            0,
            1,
            number - (1 << 32),
            number + 1,
            number + (1 << 32),
            number + (1 << 20),
            u64::MAX,
        ] {
            assert!(KEEP.get(wrong).is_none(), "{wrong:#x}");
            assert!(!KEEP.end(wrong), "{wrong:#x}");
            assert_eq!(KEEP.take(wrong), None, "{wrong:#x}");
        }
        assert_eq!(KEEP.take(number), Some(7));
    }

    #[test]
    fn a_thing_in_use_can_be_used_and_ended_and_is_dropped_by_its_last_user() {
        static KEEP: Keep<Arc<u8>> = Keep::new();
        let thing = Arc::new(7);
        let number = KEEP.put(Arc::clone(&thing)).unwrap();
        let (first, second) = (KEEP.get(number).unwrap(), KEEP.get(number).unwrap());
        assert_eq!(KEEP.take(number), None);
        assert!(KEEP.end(number) && KEEP.get(number).is_none());
        drop(first);
        assert_eq!((**second, Arc::strong_count(&thing)), (7, 2));
        drop(second);
        assert_eq!(Arc::strong_count(&thing), 1);
    }

    #[test]
    fn threads_that_use_and_end_the_same_thing_drop_it_once() {
        static KEEP: Keep<Arc<u8>> = Keep::new();
        let thing = Arc::new(7);
        for _ in 0..2_000 {
            let number = KEEP.put(Arc::clone(&thing)).unwrap();
            std::thread::scope(|scope| {
                let user = scope.spawn(|| KEEP.get(number).is_none_or(|kept| **kept == 7));
                assert!(KEEP.end(number));
                assert!(user.join().unwrap());
            });
            assert_eq!(Arc::strong_count(&thing), 1);
        }
    }
}
