//! Links: words that lead to slots, and that threads share.

use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::notes::{self, Record};
use super::{Slot, Zeroed};

/// The bits that are 0 in the address of a slot.
const FLAGS: usize = 63;

/// The value of a link: the address of a slot, and up to six flags.
pub struct Word<T: 'static>(NonZeroUsize, PhantomData<&'static Slot<T>>);

impl<T> Clone for Word<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Word<T> {}

impl<T: Send + Sync> Word<T> {
    /// Makes a word from a slot and from flags below 64. The word takes over one count of the slot.
    pub fn new(slot: &'static Slot<T>, flags: usize) -> Word<T> {
        let address = std::ptr::from_ref(slot).expose_provenance();
        // SAFETY: the address of a reference is not 0.
        let address = unsafe { NonZeroUsize::new_unchecked(address) };
        Word(address | flags & FLAGS, PhantomData)
    }

    /// Decodes the value of a link; `None` if the link is empty.
    #[inline(always)]
    fn from_bits(bits: usize) -> Option<Word<T>> {
        NonZeroUsize::new(bits).map(|bits| Word(bits, PhantomData))
    }

    #[inline(always)]
    fn bits(self) -> usize {
        self.0.get()
    }

    #[inline(always)]
    fn slot(self) -> &'static Slot<T> {
        // SAFETY: words have the address of a slot of this type, and slots live for ever.
        unsafe { &*std::ptr::with_exposed_provenance(self.bits() & !FLAGS) }
    }

    /// Releases the count that this word has.
    pub fn release(self) {
        self.slot().release();
    }

    /// Returns the object in the slot. The count of this word keeps the object in use.
    pub fn hold(self) -> Held<T> {
        Held {
            word: self,
            note: None,
        }
    }

    /// Returns whether no other count and no hazard pointer uses the slot. If so, no call uses the object. The caller has made sure that no link
    /// leads to the slot.
    #[must_use]
    pub fn is_sole_user(&self) -> bool {
        self.slot().is_sole_user()
    }

    /// Releases the count that this word has, unless it is the last count. If it is the last count, returns the word, which keeps the count.
    pub fn release_unless_last(self) -> Option<Word<T>> {
        (!self.slot().release_unless_last()).then_some(self)
    }
}

/// A word that threads share. While the word leads to a slot, it has one count of that slot.
pub struct Link<T: 'static>(AtomicUsize, PhantomData<&'static Slot<T>>);

// SAFETY: zero is a valid number (an empty link), threads may share the number and the slots, and a link needs no drop.
unsafe impl<T: Send + Sync> Zeroed for Link<T> {}

impl<T: Send + Sync> Link<T> {
    /// Makes an empty link.
    pub const fn nowhere() -> Link<T> {
        Link(AtomicUsize::new(0), PhantomData)
    }

    /// Returns whether the link leads to a slot.
    #[inline(always)]
    pub fn leads(&self) -> bool {
        // Relaxed: a hint; a caller that acts on it checks again.
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Returns the object to which the link leads, and keeps it in use.
    #[inline(always)]
    pub fn hold(&'static self) -> Option<Held<T>> {
        // Acquire: pairs with the release in `put`, so the slot is filled.
        let word = Word::from_bits(self.0.load(Ordering::Acquire))?;
        if let Some(record) = notes::my_idle_record() {
            record.note(std::ptr::from_ref(word.slot()).addr());
            if self.0.load(Ordering::Acquire) == word.bits() {
                return Some(Held {
                    word,
                    note: Some(record),
                });
            }
            return self.hold_again(word, record);
        }
        self.hold_counted()
    }

    /// Returns the object as [`hold`](Link::hold) does, after the link has changed since this thread noted the slot.
    #[cold]
    fn hold_again(&'static self, word: Word<T>, record: &Record) -> Option<Held<T>> {
        record.clear();
        // The thread that retired the slot may have seen the hazard pointer, and left the drop to this thread.
        word.slot().drop_if_retired();
        self.hold_counted()
    }

    /// Returns the object as [`hold`](Link::hold) does, for a long use. The use is counted, so the thread's hazard pointer stays free for short uses.
    #[cold]
    pub fn hold_counted(&'static self) -> Option<Held<T>> {
        loop {
            let word = Word::from_bits(self.0.load(Ordering::Acquire))?;
            if !word.slot().count() {
                // The slot has no user, so the link no longer leads to it.
                continue;
            }
            let held = Held { word, note: None };
            // Before the use was counted, the slot may have got another object. If the link still leads to the slot, it leads to the object in use.
            if self.0.load(Ordering::Acquire) == word.bits() {
                return Some(held);
            }
        }
    }

    /// Sets the link to a word, and takes over the word's count. Releases the count of the link's previous value.
    pub fn put(&self, word: Word<T>) {
        // AcqRel: the slot is filled before a reader finds it through the link; see `hold`.
        let before = self.0.swap(word.bits(), Ordering::AcqRel);
        Word::<T>::from_bits(before)
            .into_iter()
            .for_each(Word::release);
    }

    /// Sets the link to a word if the link is empty, and takes over the word's count. Returns false if the link is not empty: the caller then keeps
    /// the count.
    pub fn put_if_empty(&self, word: Word<T>) -> bool {
        // AcqRel: as in `put`.
        self.0
            .compare_exchange(0, word.bits(), Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Empties the link, and returns its word. The caller gets the word's count.
    pub fn take(&self) -> Option<Word<T>> {
        Word::from_bits(self.0.swap(0, Ordering::AcqRel))
    }

    /// Empties the link if its value still is `word`. Returns whether the link was emptied. If so, the caller gets the word's count.
    pub fn take_if(&self, word: Word<T>) -> bool {
        // AcqRel: as in `put`. Relaxed on failure: the caller uses nothing that the link leads to.
        self.0
            .compare_exchange(word.bits(), 0, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Empties the link if its value still is `word`, as [`take_if`](Link::take_if) does, and releases the word's count.
    pub fn forget(&self, word: Word<T>) -> bool {
        let forgotten = self.take_if(word);
        if forgotten {
            word.release();
        }
        forgotten
    }
}

/// An object that a call is using. The object stays until this value is dropped, even if another thread empties the link meanwhile. The type has the
/// size of two machine words, so it is passed in registers.
pub struct Held<T: Send + Sync + 'static> {
    word: Word<T>,
    /// The hazard pointer that keeps the object; `None` if the use is counted.
    note: Option<&'static Record>,
}

impl<T: Send + Sync> Held<T> {
    /// Makes a `Held` of a slot to which no link leads. The `Held` takes over one count of the slot.
    pub fn counted(slot: &'static Slot<T>, flags: usize) -> Held<T> {
        Held {
            word: Word::new(slot, flags),
            note: None,
        }
    }

    /// Returns the value that the link had when it was read.
    #[inline(always)]
    pub fn word(&self) -> Word<T> {
        self.word
    }

    /// Returns the flags in the value of the link.
    #[inline(always)]
    pub fn flags(&self) -> usize {
        self.word.bits() & FLAGS
    }

    /// Ends a counted use. Returns the word with its count; `None` if a hazard pointer keeps the object.
    pub fn into_word(self) -> Option<Word<T>> {
        let word = self.word;
        self.note.is_none().then(|| {
            std::mem::forget(self);
            word
        })
    }

    /// Adds a count of the slot, and returns a word with this count, for another link.
    pub fn another(&self) -> Option<Word<T>> {
        self.word.slot().count().then_some(self.word)
    }

    /// Returns whether a hazard pointer, not a count, keeps the object.
    pub fn is_noted(&self) -> bool {
        self.note.is_some()
    }
}

impl<T: Send + Sync> Deref for Held<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the hazard pointer or the count keeps the slot in use.
        unsafe { self.word.slot().thing() }
    }
}

impl<T: Send + Sync> Drop for Held<T> {
    #[inline(always)]
    fn drop(&mut self) {
        match self.note {
            Some(record) => {
                record.clear();
                self.word.slot().drop_if_retired();
            }
            None => self.word.release(),
        }
    }
}
