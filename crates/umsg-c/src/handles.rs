//! Tables of the objects that the library keeps for a program: open queues, leases, reservations.
//!
//! The identifier of an object, a [`Number`], consists of a place in a table and a generation. The generation comes from a counter of the table and
//! is stored with the object. So a search for an invalid identifier, or for an identifier that has ended, finds nothing until the table has stored
//! 2^32 further objects. One thread may use an object while another thread ends its identifier: the identifier is invalid at once, and the object is
//! dropped after its last use. Hazard pointers record the objects in use (`umsg_shm::reclaim`), so no step takes a lock, and a use costs no locked
//! instruction.

use std::ops::Deref;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use umsg_shm::reclaim::{Chunks, Held, Link, Slots, Word};

const CHUNK: usize = 64;
const CHUNKS: usize = 1024;
/// The capacity of a table.
const PLACES: usize = CHUNK * CHUNKS;

/// A table of objects of one kind.
pub(crate) struct Handles<T: Send + Sync + 'static> {
    links: Chunks<Link<Entry<T>>, CHUNK, CHUNKS>,
    slots: Slots<Entry<T>>,
    /// The place at which the search for a free place begins.
    next: AtomicUsize,
    generation: AtomicU32,
}

struct Entry<T> {
    generation: u32,
    thing: T,
}

/// The identifier of an object in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number {
    /// The place in the table, less than 65,536.
    pub(crate) place: u32,
    pub(crate) generation: u32,
}

/// Encodes the place and the generation in one word. For an identifier of [`Handles::put`], the word is never 0.
impl From<Number> for u64 {
    fn from(number: Number) -> u64 {
        u64::from(number.generation) << 32 | u64::from(number.place)
    }
}

impl From<u64> for Number {
    fn from(bits: u64) -> Number {
        Number {
            place: bits as u32,
            generation: (bits >> 32) as u32,
        }
    }
}

impl<T: Send + Sync> Handles<T> {
    pub(crate) const fn new() -> Self {
        Handles {
            links: Chunks::new(),
            slots: Slots::new(),
            next: AtomicUsize::new(0),
            generation: AtomicU32::new(0),
        }
    }

    /// Stores an object. Returns `None`, and drops the object, if the table already has 65,536 objects or there is no memory.
    pub(crate) fn put(&'static self, thing: T) -> Option<Number> {
        let generation = self.next_generation();
        let slot = self.slots.fill(Entry { generation, thing })?;
        let word = Word::new(slot, 0);
        // Relaxed: the value is only a hint.
        let first = self.next.load(Ordering::Relaxed);
        let place = (first..first + PLACES)
            .map(|place| place % PLACES)
            .map_while(|place| Some((place, self.links.get_or_grow(place)?)))
            .find(|(_, link)| !link.leads() && link.put_if_empty(word));
        let Some((place, _)) = place else {
            word.release();
            return None;
        };
        self.next.store(place + 1, Ordering::Relaxed);
        let place = place as u32;
        Some(Number { place, generation })
    }

    /// Returns the generation of the next object. A generation is never 0, so no encoded identifier is 0.
    fn next_generation(&self) -> u32 {
        loop {
            // Relaxed: the counter publishes no other data.
            let before = self.generation.fetch_add(1, Ordering::Relaxed);
            if before != u32::MAX {
                return before + 1;
            }
        }
    }

    /// Returns an object for use during a call. The object lives until the result is dropped, even if another thread ends the identifier.
    #[inline(always)]
    pub(crate) fn get(&'static self, number: Number) -> Option<Kept<T>> {
        self.checked(number, self.link(number)?.hold()?)
    }

    /// Returns the object as [`get`](Self::get) does. The result may outlive the call, for example in a lease.
    pub(crate) fn get_for_long(&'static self, number: Number) -> Option<Kept<T>> {
        self.checked(number, self.link(number)?.hold_counted()?)
    }

    /// Ends an identifier. Returns false if the identifier is invalid. The object is dropped when its last use ends.
    pub(crate) fn end(&'static self, number: Number) -> bool {
        let (Some(link), Some(kept)) = (self.link(number), self.get(number)) else {
            return false;
        };
        link.forget(kept.0.word())
    }

    #[inline(always)]
    fn link(&'static self, number: Number) -> Option<&'static Link<Entry<T>>> {
        self.links.get(number.place as usize)
    }

    #[inline(always)]
    fn checked(&self, number: Number, held: Held<Entry<T>>) -> Option<Kept<T>> {
        (held.generation == number.generation).then_some(Kept(held))
    }
}

/// An object in use: it is not dropped as long as this value exists.
pub(crate) struct Kept<T: Send + Sync + 'static>(Held<Entry<T>>);

impl<T: Send + Sync> Kept<T> {
    /// Returns the object with a lifetime that the compiler does not check.
    ///
    /// # Safety
    /// The result, and everything derived from it, must not outlive this value.
    pub(crate) unsafe fn unbounded(&self) -> &'static T {
        // SAFETY: an object in use does not move, and the caller keeps it in use.
        unsafe { &*std::ptr::from_ref(&**self) }
    }
}

impl<T: Send + Sync> Deref for Kept<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0.thing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_number_leads_to_what_was_put_there_until_it_ends() {
        static HANDLES: Handles<&str> = Handles::new();
        let one = HANDLES.put("one").unwrap();
        let two = HANDLES.put("two").unwrap();
        assert_ne!(one, two);
        assert_eq!(HANDLES.get(one).as_deref(), Some(&"one"));
        assert_eq!(HANDLES.get_for_long(two).as_deref(), Some(&"two"));
        assert!(HANDLES.end(two) && !HANDLES.end(two));
        assert!(HANDLES.get(two).is_none() && HANDLES.get_for_long(two).is_none());
        assert_eq!(HANDLES.get(one).as_deref(), Some(&"one"));
    }

    #[test]
    fn a_number_that_was_never_given_leads_nowhere() {
        static HANDLES: Handles<u8> = Handles::new();
        let number = u64::from(HANDLES.put(7).unwrap());
        for wrong in [
            0,
            1,
            number - (1 << 32),
            number + 1,
            number + (1 << 32),
            number + (1 << 20),
            u64::MAX,
        ] {
            assert!(HANDLES.get(wrong.into()).is_none(), "{wrong:#x}");
            assert!(!HANDLES.end(wrong.into()), "{wrong:#x}");
        }
        assert!(HANDLES.end(number.into()));
    }

    #[test]
    fn an_ended_number_leads_nowhere_when_its_place_is_used_again() {
        static HANDLES: Handles<usize> = Handles::new();
        let first = HANDLES.put(0).unwrap();
        assert!(HANDLES.end(first));
        let again = (1..=PLACES).map(|thing| {
            let number = HANDLES.put(thing).unwrap();
            assert!(HANDLES.end(number));
            number
        });
        let same = again
            .filter(|number| number.place == first.place)
            .collect::<Vec<_>>();
        assert!(!same.is_empty() && !same.contains(&first));
        assert!(HANDLES.get(first).is_none());
    }

    #[test]
    fn there_are_as_many_as_there_are_places() {
        static HANDLES: Handles<usize> = Handles::new();
        let numbers: Vec<Number> = (0..PLACES).map(|n| HANDLES.put(n).unwrap()).collect();
        assert_eq!(HANDLES.put(0), None);
        assert!(HANDLES.end(numbers[777]));
        assert_eq!(HANDLES.put(1).unwrap().place, numbers[777].place);
    }

    #[test]
    fn a_thing_in_use_stays_and_is_dropped_by_its_last_user() {
        static HANDLES: Handles<Arc<u8>> = Handles::new();
        let thing = Arc::new(7);
        for number in [0; 2].map(|_| HANDLES.put(Arc::clone(&thing)).unwrap()) {
            let before = Arc::strong_count(&thing);
            let users = [
                HANDLES.get(number),
                HANDLES.get(number),
                HANDLES.get_for_long(number),
            ];
            assert!(HANDLES.end(number) && HANDLES.get(number).is_none());
            for user in users {
                assert_eq!((**user.unwrap(), Arc::strong_count(&thing)), (7, before));
            }
            assert_eq!(Arc::strong_count(&thing), before - 1);
        }
    }

    #[test]
    fn threads_that_use_and_end_the_same_thing_drop_it_once() {
        static HANDLES: Handles<Arc<u8>> = Handles::new();
        let thing = Arc::new(7);
        for _ in 0..2_000 {
            let number = HANDLES.put(Arc::clone(&thing)).unwrap();
            std::thread::scope(|scope| {
                let user = scope.spawn(|| HANDLES.get(number).is_none_or(|kept| **kept == 7));
                let ends = [0; 2].map(|_| scope.spawn(|| HANDLES.end(number)));
                let ended = ends.map(|end| end.join().unwrap());
                assert!(ended[0] ^ ended[1], "one of them ends it");
                assert!(user.join().unwrap());
            });
            assert_eq!(Arc::strong_count(&thing), 1);
        }
    }
}
