//! Words that lead to slots.

use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::notes::{self, Record};
use super::{Slot, Zeroed};

/// Bits that the address of a slot leaves free.
const FLAGS: usize = 63;

/// What a link says: a slot and up to six flags.
pub struct Word<T: 'static>(NonZeroUsize, PhantomData<&'static Slot<T>>);

impl<T> Clone for Word<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Word<T> {}

impl<T: Send + Sync> Word<T> {
    /// A slot, of which the word has one count, and flags below 64.
    pub fn new(slot: &'static Slot<T>, flags: usize) -> Word<T> {
        let address = std::ptr::from_ref(slot).expose_provenance();
        // SAFETY: the address of a reference is not 0.
        let address = unsafe { NonZeroUsize::new_unchecked(address) };
        Word(address | flags & FLAGS, PhantomData)
    }

    /// What a link says; `None` if it leads nowhere.
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

    /// Gives back the word's count.
    pub fn release(self) {
        self.slot().release();
    }
}

/// A word that threads share. While it leads to a slot it has one count of it.
pub struct Link<T: 'static>(AtomicUsize, PhantomData<&'static Slot<T>>);

// SAFETY: zero is a number (and stands for "nowhere"), the number is for sharing, as are slots, and it needs no drop.
unsafe impl<T: Send + Sync> Zeroed for Link<T> {}

impl<T: Send + Sync> Link<T> {
    /// A link that leads nowhere.
    pub const fn nowhere() -> Link<T> {
        Link(AtomicUsize::new(0), PhantomData)
    }

    /// Whether it leads anywhere.
    #[inline(always)]
    pub fn leads(&self) -> bool {
        // Relaxed: a hint; a process that acts on it looks again.
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Uses what the link leads to.
    #[inline(always)]
    pub fn hold(&'static self) -> Option<Held<T>> {
        // Acquire: pairs with the release in `put`; the slot is filled.
        let word = Word::from_bits(self.0.load(Ordering::Acquire))?;
        if let Some(record) = notes::my_idle_record() {
            record.note(std::ptr::from_ref(word.slot()).addr());
            if self.0.load(Ordering::Acquire) == word.bits() {
                return Some(Held {
                    word,
                    note: Some(record),
                });
            }
            record.clear();
            // The thread that retired the slot may have seen the note, and left the drop to this thread.
            word.slot().drop_if_retired();
        }
        self.hold_counted()
    }

    /// As [`hold`](Link::hold), for a long time: the use is counted, and the thread's note is left for shorter ones.
    #[cold]
    pub fn hold_counted(&'static self) -> Option<Held<T>> {
        loop {
            let word = Word::from_bits(self.0.load(Ordering::Acquire))?;
            if !word.slot().count() {
                // Emptied since, and so is the link.
                continue;
            }
            let held = Held { word, note: None };
            // The slot may have held another thing by the time it was counted.
            if self.0.load(Ordering::Acquire) == word.bits() {
                return Some(held);
            }
        }
    }

    /// Has the link lead elsewhere; it takes over the word's count, and gives back that of what was there before.
    pub fn put(&self, word: Word<T>) {
        // AcqRel: the slot is filled before it is found here; see `hold`.
        let before = self.0.swap(word.bits(), Ordering::AcqRel);
        Word::<T>::from_bits(before)
            .into_iter()
            .for_each(Word::release);
    }

    /// Has an empty link lead somewhere; it takes over the word's count. False if the link is not empty: the caller keeps the count.
    pub fn put_if_empty(&self, word: Word<T>) -> bool {
        // AcqRel: as in `put`.
        self.0
            .compare_exchange(0, word.bits(), Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Empties the link; the caller has its count.
    pub fn take(&self) -> Option<Word<T>> {
        Word::from_bits(self.0.swap(0, Ordering::AcqRel))
    }

    /// Empties the link if it still says `word`; answers whether it did.
    pub fn forget(&self, word: Word<T>) -> bool {
        let forgotten =
            self.0
                .compare_exchange(word.bits(), 0, Ordering::AcqRel, Ordering::Relaxed);
        if forgotten.is_ok() {
            word.release();
        }
        forgotten.is_ok()
    }
}

/// A thing that a call is using: it stays until this is dropped, even if another thread empties the link meanwhile. Two words: it is passed in
/// registers.
pub struct Held<T: Send + Sync + 'static> {
    word: Word<T>,
    /// `None` if the use is counted.
    note: Option<&'static Record>,
}

impl<T: Send + Sync> Held<T> {
    /// Takes over one count of a slot that no link leads to.
    pub fn counted(slot: &'static Slot<T>, flags: usize) -> Held<T> {
        Held {
            word: Word::new(slot, flags),
            note: None,
        }
    }

    /// What the link said.
    #[inline(always)]
    pub fn word(&self) -> Word<T> {
        self.word
    }

    /// The flags of what the link said.
    #[inline(always)]
    pub fn flags(&self) -> usize {
        self.word.bits() & FLAGS
    }

    /// A further count of the slot, for a link.
    pub fn another(&self) -> Option<Word<T>> {
        self.word.slot().count().then_some(self.word)
    }

    /// Whether the use is noted, not counted.
    pub fn is_noted(&self) -> bool {
        self.note.is_some()
    }
}

impl<T: Send + Sync> Deref for Held<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the note or the count keeps the slot in use.
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
