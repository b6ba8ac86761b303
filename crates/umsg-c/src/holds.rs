//! Which place of the table each thread is using: so that a close in one thread unmaps nothing under a call in another.
//!
//! Hazard pointers, with all the cost on the rare side. A thread notes the place in a record of its own, with a plain
//! store, and looks then whether the handle still leads there. Who closes the handle first makes its generation even, then
//! has every thread of the process pass a full barrier (membarrier(2)), then reads the records:
//!
//! | caller | closer |
//! |---|---|
//! | `record.place = P` | generation of P += 1 |
//! | (the closer's barrier) | membarrier |
//! | generation still that of the handle? then use P | any `record.place == P`? then leave P to later |
//!
//! Wherever the barrier comes, either the caller sees that the handle is closed, or the closer sees the note. The same
//! goes for the end of a call, which looks whether there is a place to be freed after it has cleared its note. A count does
//! as much at the price of two locked instructions on a line that all threads share; a call has one where it can't have
//! the record: in a signal handler that interrupted another call, while its thread ends, and without membarrier.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering, compiler_fence};

/// One thread's note, alone on its cache line. Never freed: another thread takes it over.
#[repr(C, align(64))]
pub(crate) struct Record {
    /// The address of the place that the thread is using; 0 for none.
    place: AtomicUsize,
    taken: AtomicBool,
    /// The next of all records; never changes once it is in the list.
    next: AtomicPtr<Record>,
}

/// All records.
static FIRST: AtomicPtr<Record> = AtomicPtr::new(std::ptr::null_mut());

/// Whether membarrier works in this process, so that notes are seen.
static NOTES_ARE_SEEN: AtomicU32 = AtomicU32::new(UNKNOWN);
const UNKNOWN: u32 = 0;
const SEEN: u32 = 1;
const NOT_SEEN: u32 = 2;

impl Record {
    /// Notes that the thread is about to use a place. The caller looks afterwards whether the handle still leads there.
    #[inline(always)]
    pub(crate) fn note(&self, place: usize) {
        // Relaxed: the closer's membarrier orders it before the look that follows; see the table above.
        self.place.store(place, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
    }

    /// The call is over.
    #[inline(always)]
    pub(crate) fn clear(&self) {
        // Release: what the call did to the queue comes before its drop (Acquire in `is_noted`).
        self.place.store(0, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
    }
}

/// The calling thread's record, given back when the thread ends.
struct Mine(Cell<Option<&'static Record>>);

impl Drop for Mine {
    fn drop(&mut self) {
        if let Some(record) = self.0.take() {
            // Release: the next owner finds it without a note.
            record.taken.store(false, Ordering::Release);
        }
    }
}

thread_local! {
    static MINE: Mine = const { Mine(Cell::new(None)) };
}

/// The calling thread's record, if it can have one and no call of the thread is using it.
#[inline(always)]
pub(crate) fn my_idle_record() -> Option<&'static Record> {
    let mine = MINE.try_with(|mine| mine.0.get().or_else(|| take_record(mine)));
    // Relaxed: only this thread writes its own record.
    mine.ok()
        .flatten()
        .filter(|record| record.place.load(Ordering::Relaxed) == 0)
}

#[cold]
fn take_record(mine: &Mine) -> Option<&'static Record> {
    if !start() {
        return None;
    }
    let left = all().find(|record| !record.taken.swap(true, Ordering::Acquire));
    let record = left.unwrap_or_else(new_record);
    mine.0.set(Some(record));
    Some(record)
}

fn new_record() -> &'static Record {
    let record: &'static Record = Box::leak(Box::new(Record {
        place: AtomicUsize::new(0),
        taken: AtomicBool::new(true),
        next: AtomicPtr::new(std::ptr::null_mut()),
    }));
    let mut first = FIRST.load(Ordering::Relaxed);
    loop {
        record.next.store(first, Ordering::Relaxed);
        // Release: who finds the record finds it filled.
        match FIRST.compare_exchange_weak(
            first,
            std::ptr::from_ref(record).cast_mut(),
            Ordering::Release,
            Ordering::Relaxed,
        ) {
            Ok(_) => return record,
            Err(now) => first = now,
        }
    }
}

fn all() -> impl Iterator<Item = &'static Record> {
    // SAFETY: null, or a record that `new_record` leaked, filled before it was put into the list (Acquire here, Release
    // there). Nobody has another than a shared reference to it.
    let at = |link: &AtomicPtr<Record>| unsafe { link.load(Ordering::Acquire).as_ref() };
    std::iter::successors(at(&FIRST), move |record| at(&record.next))
}

/// Asks the kernel for membarrier, once, before there is a handle: so whether notes are left is decided before there can
/// be any. Answers whether they are.
pub(crate) fn start() -> bool {
    // Relaxed: whoever does not know yet asks again.
    let known = NOTES_ARE_SEEN.load(Ordering::Relaxed);
    if known != UNKNOWN {
        return known == SEEN;
    }
    let seen = membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
    if seen {
        // SAFETY: the handler is a function of this library, and does nothing but store to atomics.
        unsafe { libc::pthread_atfork(None, None, Some(forget_other_threads)) };
    }
    NOTES_ARE_SEEN.store(if seen { SEEN } else { NOT_SEEN }, Ordering::Relaxed);
    seen
}

/// In a forked child: the parent's other threads do not exist here.
extern "C" fn forget_other_threads() {
    let mine = MINE.try_with(|mine| mine.0.get()).ok().flatten();
    for record in all().filter(|record| !mine.is_some_and(|mine| std::ptr::eq(mine, *record))) {
        // Relaxed: the child has one thread.
        record.place.store(0, Ordering::Relaxed);
        record.taken.store(false, Ordering::Relaxed);
    }
}

/// Whether a thread uses a place whose handle was closed before this call. If the kernel does not say, it may be.
#[cold]
pub(crate) fn is_noted(place: usize) -> bool {
    if !start() {
        return false;
    }
    // Acquire: see `clear`.
    !membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
        || all().any(|record| record.place.load(Ordering::Acquire) == place)
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: libc returns the address of the calling thread's own errno; the system call takes numbers only, and only
    // orders memory.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let done = libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0;
        *errno = before;
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_a_record_of_its_own_and_gives_it_back() {
        let mine = my_idle_record().unwrap();
        assert!(std::ptr::eq(mine, my_idle_record().unwrap()));
        let address = || std::ptr::from_ref(my_idle_record().unwrap()).addr();
        let other = std::thread::spawn(address).join().unwrap();
        assert_ne!(std::ptr::from_ref(mine).addr(), other);
        assert!(all().any(|record| std::ptr::from_ref(record).addr() == other));
    }

    #[test]
    fn a_record_in_use_is_not_given_to_a_nested_call() {
        const PLACE: usize = 64 * 1234;
        let record = my_idle_record().unwrap();
        record.note(PLACE);
        assert!(my_idle_record().is_none());
        assert!(std::thread::spawn(|| is_noted(PLACE)).join().unwrap());
        record.clear();
        assert!(my_idle_record().is_some());
        assert!(!is_noted(PLACE));
    }
}
