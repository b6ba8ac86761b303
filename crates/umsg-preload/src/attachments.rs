//! The queues that this process is attached to, each in a slot that is never unmapped, with a count of its users.
//!
//! | state | count | who leaves it |
//! |---|---|---|
//! | free | 0, on the free list | [`attach`] takes it and fills it |
//! | in use | descriptors of the table that lead here, and calls that could not leave a note ([`crate::holds`]) | the last to release it retires it |
//! | retired | 0, on the retired list | [`reap`] detaches it once no thread's note names it, and frees it |
//!
//! No step takes a lock, so each can be interrupted by a signal handler that closes or opens queues, and a forked
//! child finds nothing half done (but may keep a slot for ever that another thread was just moving).

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use umsg::posix::Queue;

use crate::chunks::{Chunks, Zeroed};
use crate::{holds, signals, waiting};

/// What a descriptor of ours leads to.
pub(crate) struct Attached {
    pub(crate) queue: Queue,
    /// Device and inode of the segment's file: what tells whether a descriptor still is what the table says.
    pub(crate) identity: (u64, u64),
    /// Most bytes in a message; never changes.
    pub(crate) message_size: usize,
    /// The name that the queue was opened by, with its slash.
    pub(crate) name: Box<[u8]>,
}

impl Attached {
    pub(crate) fn new(queue: Queue, name: &[u8]) -> Attached {
        let identity = queue.identity();
        let message_size = queue.attributes().message_size;
        waiting::choose(&queue);
        Attached {
            queue,
            identity,
            message_size,
            name: name.into(),
        }
    }
}

/// A slot. Its address is a multiple of 64, so that a word has room for the address and six bits.
#[repr(C, align(64))]
pub(crate) struct Attachment {
    users: AtomicU32,
    /// The next slot of the list that this one is on, as its index + 1; 0 ends the list.
    next: AtomicU32,
    /// This slot's index. Set when the slot is first used.
    index: AtomicU32,
    attached: UnsafeCell<MaybeUninit<Attached>>,
}

// SAFETY: `attached` is written only by who took the slot off the free list or retired it (one thread, by the lists'
// compare-and-swap), and shared by reference in between; `Attached` itself is Send and Sync.
unsafe impl Sync for Attachment {}

// SAFETY: zero is a value of the three numbers and of an uninitialised cell; shared use as above; it needs no drop.
unsafe impl Zeroed for Attachment {}

const CHUNK: usize = 64;
static SLOTS: Chunks<Attachment, CHUNK, { (1 << 20) / CHUNK }> = Chunks::new();
/// How many slots were ever used.
static USED: AtomicUsize = AtomicUsize::new(0);
static FREE: List = List::new();
static RETIRED: List = List::new();

impl Attachment {
    /// What is attached here.
    ///
    /// # Safety
    /// The caller keeps the slot in use: it has one of its counts, or a note that was seen in time.
    #[inline(always)]
    pub(crate) unsafe fn attached(&self) -> &Attached {
        // SAFETY: a slot in use was filled in `attach`, and is not emptied before its last user is gone.
        unsafe { (*self.attached.get()).assume_init_ref() }
    }

    /// Counts one more user, unless there is none.
    pub(crate) fn count(&self) -> bool {
        // Acquire: pairs with the release in `attach`, which filled the slot.
        let counted = self
            .users
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |users| {
                (users > 0).then_some(users + 1)
            });
        counted.is_ok()
    }

    /// Gives back a count. The last one detaches the queue, now or as soon as no thread uses it.
    pub(crate) fn release(&self) {
        // Release: what this user did comes before the detaching. Acquire: and so does what all others did.
        if self.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            RETIRED.push(self);
            reap();
        }
    }
}

/// Attaches; the caller has the first count. `None` if there is no room.
pub(crate) fn attach(attached: Attached) -> Option<&'static Attachment> {
    signals::begin();
    let slot = FREE.pop().or_else(unused_slot)?;
    // SAFETY: a slot off the free list, or never used before, is this thread's alone; nothing in it needs a drop.
    unsafe { (*slot.attached.get()).write(attached) };
    // Release: whoever counts or finds the slot in the table sees it filled.
    slot.users.store(1, Ordering::Release);
    Some(slot)
}

fn unused_slot() -> Option<&'static Attachment> {
    // Relaxed: hands out a number.
    let index = USED.fetch_add(1, Ordering::Relaxed);
    let slot = SLOTS.get_or_grow(index)?;
    slot.index
        .store(u32::try_from(index).ok()?, Ordering::Relaxed);
    Some(slot)
}

/// Detaches what is retired and noted by no thread. Cheap if there is nothing: worth a call after one that blocked.
pub(crate) fn reap() {
    let mut next = RETIRED.take_all();
    if next.is_none() {
        return;
    }
    let notes_are_seen = holds::see_notes();
    while let Some(slot) = next {
        next = List::after(slot);
        if notes_are_seen && !holds::is_held(slot) {
            // SAFETY: no count and no note is left, and this thread took the slot off the list: nobody else has it.
            unsafe { (*slot.attached.get()).assume_init_drop() };
            FREE.push(slot);
        } else {
            RETIRED.push(slot);
        }
    }
}

/// A stack of slots without a lock. The upper half of the word changes with every operation, so that a slot that was
/// taken and put back in between is not mistaken for one that never left.
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

    fn slot(link: u32) -> Option<&'static Attachment> {
        SLOTS.get(link.checked_sub(1)? as usize)
    }

    fn after(slot: &Attachment) -> Option<&'static Attachment> {
        List::slot(slot.next.load(Ordering::Relaxed))
    }

    fn push(&self, slot: &Attachment) {
        let link = slot.index.load(Ordering::Relaxed) + 1;
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            slot.next.store(head as u32, Ordering::Relaxed);
            // Release: the slot's link, and on the free list its emptying, come first.
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

    fn pop(&self) -> Option<&'static Attachment> {
        // Acquire: pairs with the release in `push`.
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let slot = List::slot(head as u32)?;
            // May be stale if another thread took the slot; then the exchange fails.
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

    /// Empties the list and returns its first slot, from which [`List::after`] leads to the others.
    fn take_all(&self) -> Option<&'static Attachment> {
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let slot = List::slot(head as u32)?;
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
