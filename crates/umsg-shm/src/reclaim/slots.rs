//! Slots for objects, with a count of their users. The slots themselves are never unmapped.
//!
//! | state | count | leaves it |
//! |---|---|---|
//! | free | 0, on the free list | [`Slots::fill`] takes it and fills it |
//! | in use | links that lead here, and calls that could not leave a note ([`notes`]) | the last user that releases it retires it |
//! | retired | 0, on the retired list | [`Slots::reap`] drops its thing once no thread's note names it, and frees it |

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence};

use super::notes;
use super::{Chunks, Zeroed};

const CHUNK: usize = 64;
const MOST: usize = 1 << 20;

/// A slot. Its address is a multiple of 64, so that a word has room for the address and six bits.
#[repr(C, align(64))]
pub struct Slot<T: 'static> {
    users: AtomicU32,
    /// The next slot of this slot's list, as its index plus 1; 0 ends the list.
    next: AtomicU32,
    /// This slot's index, which is set when the slot is first used.
    index: AtomicU32,
    /// The array to which the slot belongs. The field is set when the slot is first used.
    owner: AtomicPtr<Slots<T>>,
    thing: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: only the thread that took the slot off the free list, or retired it, writes `thing`. The lists' compare-and-swap makes sure that this is
// one thread. Between the two writes, threads share `thing` by reference, and `T` is `Send` and `Sync`.
unsafe impl<T: Send + Sync> Sync for Slot<T> {}

// SAFETY: zero is a valid value of numbers, of a pointer and of an uninitialised cell. Threads share a slot as stated above. A slot needs no drop.
unsafe impl<T: Send + Sync> Zeroed for Slot<T> {}

/// All slots for objects of one type. The words that each process writes come first, beside the words of the first chunk, so that all these words
/// share a page.
#[repr(C)]
pub struct Slots<T: 'static> {
    /// The number of slots that were ever used.
    used: AtomicUsize,
    free: List,
    retired: List,
    slots: Chunks<Slot<T>, CHUNK, { MOST / CHUNK }>,
}

impl<T: Send + Sync> Slot<T> {
    /// Returns the object in the slot.
    ///
    /// # Safety
    /// The caller keeps the slot in use: the caller has one of the slot's counts, or a valid hazard pointer.
    #[inline(always)]
    pub(super) unsafe fn thing(&self) -> &T {
        // SAFETY: a slot in use was filled in `fill`, and is not emptied before its last user is gone.
        unsafe { (*self.thing.get()).assume_init_ref() }
    }

    /// Counts one more user of the slot. Returns false if the slot has no user: a thread can then reuse the slot.
    pub fn count(&self) -> bool {
        // Acquire: pairs with the release in `fill`, so the slot is filled.
        let counted = self
            .users
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |users| {
                (users > 0).then_some(users + 1)
            });
        counted.is_ok()
    }

    /// Releases a count of the slot. After the release of the last count, the object is dropped: at once, or when no hazard pointer names the slot.
    pub fn release(&'static self) {
        // Release: this user's accesses come before the drop. Acquire: the accesses of all other users come before the drop, too.
        if self.users.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        if let Some(owner) = self.owner() {
            owner.retired.push(self);
            owner.reap();
        }
    }

    /// Releases a count of the slot, unless it is the last count. Returns whether the count was released.
    pub(super) fn release_unless_last(&self) -> bool {
        // AcqRel: as in `release`. Relaxed on failure: the last user keeps its count, and its later release comes before the drop.
        self.users
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |users| {
                (users > 1).then_some(users - 1)
            })
            .is_ok()
    }

    /// Returns whether the caller's count is the only one, and no hazard pointer names the slot. The caller has made sure that no link leads to the
    /// slot, so a result of true stays true.
    pub(super) fn is_sole_user(&self) -> bool {
        // Acquire: pairs with the release of the other users. The barrier of `see_notes` comes before this load: a call may have noted the slot
        // before the link was emptied, then counted its use, and removed the note.
        notes::see_notes()
            && !notes::is_noted(std::ptr::from_ref(self).addr())
            && self.users.load(Ordering::Acquire) == 1
    }

    fn owner(&self) -> Option<&'static Slots<T>> {
        // SAFETY: a slot that had a user was filled by its owner, which is a static.
        unsafe { self.owner.load(Ordering::Relaxed).as_ref() }
    }

    /// Drops the object if the slot was retired during the call. The caller has removed its hazard pointer, and perhaps no other thread will check
    /// the slot.
    #[inline(always)]
    pub(super) fn drop_if_retired(&self) {
        // Relaxed: the dropper's membarrier orders this load. If the barrier came before the removal of the hazard pointer, this load sees
        // that the slot has no user; see `reap` and `notes`.
        compiler_fence(Ordering::SeqCst);
        if self.users.load(Ordering::Relaxed) == 0 {
            self.drop_retired();
        }
    }

    #[cold]
    fn drop_retired(&self) {
        if let Some(owner) = self.owner() {
            owner.reap();
        }
    }
}

impl<T: Send + Sync> Default for Slots<T> {
    fn default() -> Self {
        Slots::new()
    }
}

impl<T: Send + Sync> Slots<T> {
    /// Makes an empty array of slots.
    pub const fn new() -> Self {
        Slots {
            slots: Chunks::new(),
            used: AtomicUsize::new(0),
            free: List::new(),
            retired: List::new(),
        }
    }

    /// Puts an object into a slot. The caller gets the first count of the slot. Returns `None` if there is no room.
    pub fn fill(&'static self, thing: T) -> Option<&'static Slot<T>> {
        notes::start();
        let slot = self.free.pop(&self.slots).or_else(|| self.unused_slot())?;
        // SAFETY: only this thread has the slot, which comes from the free list or was never used. It contains nothing that needs a drop.
        unsafe { (*slot.thing.get()).write(thing) };
        // Release: a thread that counts the slot, or finds it through a link, sees the slot filled.
        slot.users.store(1, Ordering::Release);
        Some(slot)
    }

    fn unused_slot(&'static self) -> Option<&'static Slot<T>> {
        // Relaxed: the counter only hands out numbers.
        let index = self.used.fetch_add(1, Ordering::Relaxed);
        let slot = self.slots.get_or_grow(index)?;
        slot.index.store(index as u32, Ordering::Relaxed);
        let owner = std::ptr::from_ref(self).cast_mut();
        slot.owner.store(owner, Ordering::Relaxed);
        Some(slot)
    }

    /// Drops the objects in retired slots that no hazard pointer names. The call is cheap if there are no such slots, so callers make it after each
    /// call that has blocked.
    pub fn reap(&'static self) {
        while self.reap_once() {}
    }

    /// Makes one attempt of [`reap`](Self::reap). Returns true if the caller has to try again: a thread removed its hazard pointer, and searched the
    /// list of retired slots while its slot was not on the list.
    fn reap_once(&'static self) -> bool {
        let mut next = self.retired.take_all(&self.slots);
        if next.is_none() {
            return false;
        }
        let notes_are_seen = notes::see_notes();
        let mut kept = 0;
        while let Some(slot) = next {
            next = List::slot(&self.slots, slot.next.load(Ordering::Relaxed));
            if notes_are_seen && !notes::is_noted(std::ptr::from_ref(slot).addr()) {
                // SAFETY: no count and no hazard pointer is left, and this thread removed the slot from the list: no other thread has it.
                unsafe { (*slot.thing.get()).assume_init_drop() };
                self.free.push(slot);
            } else {
                self.retired.push(slot);
                kept += 1;
            }
        }
        // A thread that removes its hazard pointer after this barrier finds its slot on the list.
        kept != 0
            && notes::see_notes()
            && self.retired.has(&self.slots, kept, |slot| {
                !notes::is_noted(std::ptr::from_ref(slot).addr())
            })
    }
}

type Array<T> = Chunks<Slot<T>, CHUNK, { MOST / CHUNK }>;

/// A lock-free stack of slots. The upper half of the word changes with every operation: so the compare-and-swap fails if a slot was removed and
/// added again meanwhile.
struct List {
    head: AtomicU64,
}

impl List {
    const fn new() -> List {
        List {
            head: AtomicU64::new(0),
        }
    }

    fn successor(head: u64, first: u32) -> u64 {
        ((head >> 32).wrapping_add(1) << 32) | u64::from(first)
    }

    fn slot<T: Send + Sync>(slots: &'static Array<T>, link: u32) -> Option<&'static Slot<T>> {
        slots.get(link.checked_sub(1)? as usize)
    }

    fn push<T>(&self, slot: &Slot<T>) {
        let link = slot.index.load(Ordering::Relaxed) + 1;
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            slot.next.store(head as u32, Ordering::Relaxed);
            // Release: the link of the slot was stored before this push. If the list is the free list, the object was also dropped before this push.
            match self.head.compare_exchange_weak(
                head,
                List::successor(head, link),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    fn pop<T: Send + Sync>(&self, slots: &'static Array<T>) -> Option<&'static Slot<T>> {
        // Acquire: pairs with the release in `push`. The read-modify-write stores the value that it read. The caller is about to write to the page,
        // and a load before that write would cost one more page fault.
        let mut head = self
            .head
            .compare_exchange(0, 0, Ordering::Acquire, Ordering::Acquire)
            .unwrap_or_else(|head| head);
        loop {
            let slot = List::slot(slots, head as u32)?;
            // The link is stale if another thread took the slot. The compare-and-swap then fails.
            let next = List::successor(head, slot.next.load(Ordering::Relaxed));
            match self
                .head
                .compare_exchange_weak(head, next, Ordering::Acquire, Ordering::Acquire)
            {
                Ok(_) => return Some(slot),
                Err(now) => head = now,
            }
        }
    }

    /// Returns whether `like` returns true for one of the first `most` slots of the list. The result is a guess if other threads change the list
    /// meanwhile.
    fn has<T: Send + Sync>(
        &self,
        slots: &'static Array<T>,
        most: usize,
        like: impl Fn(&'static Slot<T>) -> bool,
    ) -> bool {
        let first = List::slot(slots, self.head.load(Ordering::Acquire) as u32);
        let next = |slot: &&'static Slot<T>| List::slot(slots, slot.next.load(Ordering::Relaxed));
        std::iter::successors(first, next).take(most).any(like)
    }

    /// Empties the list. Returns its first slot, whose links lead to the other slots.
    fn take_all<T: Send + Sync>(&self, slots: &'static Array<T>) -> Option<&'static Slot<T>> {
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let slot = List::slot(slots, head as u32)?;
            match self.head.compare_exchange_weak(
                head,
                List::successor(head, 0),
                Ordering::Acquire,
                Ordering::Acquire,
            ) {
                Ok(_) => return Some(slot),
                Err(now) => head = now,
            }
        }
    }
}
