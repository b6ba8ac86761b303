//! Hazard pointers: each thread names the slot that it uses, so that no other thread drops the object in the slot.
//!
//! Only the rare step, the drop of an object, is expensive. A thread that uses a slot notes it in its own record with a plain store, and then checks
//! again that the link leads to the slot. A thread that wants to drop the object first empties the link. Then it makes every thread of the process
//! pass a full barrier (membarrier(2)), and reads the records:
//!
//! | caller | dropper |
//! |---|---|
//! | `record.holds = S` | link = none |
//! | (the dropper's barrier) | membarrier |
//! | link still leads to S? then use it | any `record.holds == S`? then keep it |
//!
//! In each order of the two barriers, one thread sees the other thread's step: the caller sees the empty link, or the dropper sees the note. A
//! counted reference has the same effect, at the price of two locked instructions on a shared line.
//!
//! A call counts its use if it can't have the record. There are three cases: the call runs in a signal handler that interrupted another call, all
//! records are taken, or the kernel refuses membarrier.
//!
//! A record belongs to a thread pointer, the address of a thread's local storage. If a new thread gets the address of a dead thread, it also gets the
//! record of that thread. So records are never released. A thread keeps the address of its record in a thread-local word ([`local`]). If a thread
//! leaves a call by longjmp, its note stays, and from then on the thread counts its uses.

use super::local::{self, RECORD};
use crate::kernel;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence};

const RECORDS: usize = 1024;
/// The number of places in which a thread's record may lie.
const PROBES: usize = 16;

/// The record of one thread, alone on its cache line.
#[repr(C, align(64))]
pub struct Record {
    /// The thread pointer of the owner; 0 for none. A thread pointer that is set changes only in a forked child.
    thread: AtomicUsize,
    /// The address of the slot that the thread is using; 0 for none.
    holds: AtomicUsize,
    /// The address of the thread's caller record (`umsg::signals::Caller`), while the thread is blocked in a call that another thread can end. 0
    /// otherwise.
    blocked: AtomicUsize,
}

static ALL: [Record; RECORDS] = [const { Record::unused() }; RECORDS];

/// The record of the first thread that needs one. This record and the bits of [`USED`] lie in a page that the parent and the child of a fork
/// write anyway.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".data.umsg"))]
static FIRST: Record = Record::unused();

/// A bit for each of the other records, set if a thread has or had the record. A thread that drops an object, and a forked child, read only the
/// records with a bit, not all 64 KiB.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".data.umsg"))]
static USED: [AtomicU64; RECORDS / 64] = [const { AtomicU64::new(0) }; RECORDS / 64];

/// Says whether membarrier works in this process. No thread notes a slot before the answer is known. The word lies in initialised memory: the drop-in
/// writes it at the start of each process, and the dynamic linker writes these pages anyway.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".data.umsg"))]
static NOTES_ARE_SEEN: AtomicU32 = AtomicU32::new(UNKNOWN);
const UNKNOWN: u32 = 0;
const SEEN: u32 = 1;
const NOT_SEEN: u32 = 2;

impl Record {
    const fn unused() -> Record {
        Record {
            thread: AtomicUsize::new(0),
            holds: AtomicUsize::new(0),
            blocked: AtomicUsize::new(0),
        }
    }

    /// Takes the record for a thread, if the record is free. Returns whether the thread has the record.
    fn claim(&self, thread: usize) -> bool {
        // Relaxed: only this thread stores its own thread pointer. No load precedes the compare-and-swap: in a new process, the page would then cause
        // two faults, one for the read and one for the write.
        let taken = self
            .thread
            .compare_exchange(0, thread, Ordering::Relaxed, Ordering::Relaxed);
        taken.is_ok() || taken == Err(thread)
    }

    /// Notes that the thread is about to use a slot. The caller then checks that the link still leads to the slot.
    #[inline(always)]
    pub(super) fn note(&self, slot: usize) {
        // Relaxed: the dropper's membarrier orders this store before the check that follows; see the table of the module.
        self.holds.store(slot, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
    }

    /// Notes the caller record of a blocked call. Returns the record that was noted before.
    pub fn note_blocked(&self, caller: usize) -> usize {
        // SeqCst: this store comes before the thread reads the count of cancellations; see `cancellation`.
        self.blocked.swap(caller, Ordering::SeqCst)
    }

    /// Returns the address of the caller record; 0 while the thread is not blocked.
    pub fn blocked(&self) -> usize {
        // SeqCst: the count of cancellations was changed before this load.
        self.blocked.load(Ordering::SeqCst)
    }

    /// Removes the note at the end of the call.
    #[inline(always)]
    pub(super) fn clear(&self) {
        // Release: the call's accesses to the object come before its drop (Acquire in `is_noted`).
        self.holds.store(0, Ordering::Release);
    }
}

/// Returns the record of the calling thread, if it has one.
pub fn my_record() -> Option<&'static Record> {
    let thread = thread_pointer();
    find_or_claim(thread, home_of(thread))
}

/// Returns the record of the thread with this pthread_t, if the thread has a record. The thread pointer follows from the pthread_t: their distance is
/// the same in all threads.
pub fn record_of(thread: libc::pthread_t) -> Option<&'static Record> {
    // SAFETY: the call has no preconditions.
    let me = unsafe { libc::pthread_self() } as usize;
    let pointer = (thread as usize).wrapping_add(thread_pointer().wrapping_sub(me));
    let home = home_of(pointer);
    std::iter::once(&FIRST)
        .chain((home..home + PROBES).map(|place| &ALL[place % RECORDS]))
        .find(|record| record.thread.load(Ordering::Relaxed) == pointer && pointer != 0)
}

/// Returns the record of the calling thread, if it has one and no call of the thread uses it.
#[inline(always)]
pub(super) fn my_idle_record() -> Option<&'static Record> {
    let record = match local::get::<RECORD>() {
        0 => my_first_record()?,
        // SAFETY: `my_first_record` stored the address of a static record.
        address => unsafe { &*std::ptr::with_exposed_provenance::<Record>(address) },
    };
    // Relaxed: only this thread writes its own record.
    (record.holds.load(Ordering::Relaxed) == 0).then_some(record)
}

/// Finds the record of the calling thread. If droppers see the notes in this record, stores the address of the record for the next calls. From then
/// on droppers always see these notes, also in a forked child.
#[cold]
fn my_first_record() -> Option<&'static Record> {
    let record = my_record()?;
    if NOTES_ARE_SEEN.load(Ordering::Relaxed) != SEEN {
        return None;
    }
    local::set::<RECORD>(std::ptr::from_ref(record).expose_provenance());
    Some(record)
}

#[cold]
fn find_or_claim(thread: usize, home: usize) -> Option<&'static Record> {
    if thread == 0 {
        return None;
    }
    if FIRST.claim(thread) {
        return Some(&FIRST);
    }
    (home..home + PROBES)
        .map(|place| place % RECORDS)
        .find(|&place| claim(place, thread))
        .map(|place| &ALL[place])
}

fn claim(place: usize, thread: usize) -> bool {
    // The bit is set before the first note: a dropper whose membarrier comes after the note also finds the bit.
    USED[place / 64].fetch_or(1 << (place % 64), Ordering::Relaxed);
    ALL[place].claim(thread)
}

/// Returns the records that a thread has or had.
fn used() -> impl Iterator<Item = &'static Record> {
    let others = USED.iter().enumerate().flat_map(|(index, word)| {
        // Relaxed: a dropper has passed the barrier of `see_notes`. A forked child has only one thread.
        let mut bits = word.load(Ordering::Relaxed);
        std::iter::from_fn(move || {
            let lowest = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
            bits &= bits - 1;
            Some(&ALL[64 * index + lowest])
        })
    });
    std::iter::once(&FIRST).chain(others)
}

fn home_of(thread: usize) -> usize {
    // Fibonacci hashing: thread pointers differ in the middle bits.
    thread.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (usize::BITS - RECORDS.trailing_zeros())
}

fn thread_pointer() -> usize {
    if cfg!(miri) {
        // This thread has no record.
        return 0;
    }
    let pointer: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: by the psABI the word at fs:0 holds the thread pointer itself; nothing is written.
    unsafe {
        std::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, preserves_flags, readonly));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the instruction only reads a register that user space may read.
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, preserves_flags, nomem));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        // The code for this processor does not read the thread pointer, so a thread has no record, and every use is counted.
        pointer = 0;
    }
    pointer
}

/// Registers the process for membarrier, and a fork handler, once. The registration costs nothing while the process has one thread.
pub fn start() {
    // Relaxed: a thread that does not see the result registers again, without effect.
    if NOTES_ARE_SEEN.load(Ordering::Relaxed) != UNKNOWN {
        return;
    }
    let registered = !cfg!(miri) && membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
    let known = if registered { SEEN } else { NOT_SEEN };
    let first =
        NOTES_ARE_SEEN.compare_exchange(UNKNOWN, known, Ordering::Relaxed, Ordering::Relaxed);
    if first.is_ok() && !cfg!(miri) {
        // SAFETY: the handler is a function of this library, and does nothing but store to atomics.
        unsafe { libc::pthread_atfork(None, None, Some(forget_other_threads)) };
    }
}

/// Makes all earlier notes of other threads visible to [`is_noted`]. Returns false if the kernel refuses.
pub(super) fn see_notes() -> bool {
    NOTES_ARE_SEEN.load(Ordering::Relaxed) != SEEN
        || membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
}

fn membarrier(command: libc::c_int) -> bool {
    let arguments = [command as usize, 0, 0, 0, 0, 0];
    // SAFETY: the system call takes numbers only, and only orders memory.
    unsafe { kernel::call(libc::SYS_membarrier, arguments) }.is_ok()
}

/// Returns whether a thread has noted the slot. The caller has called [`see_notes`].
pub(super) fn is_noted(slot: usize) -> bool {
    // Acquire: pairs with the release in `clear`.
    used().any(|record| record.holds.load(Ordering::Acquire) == slot)
}

/// Clears the notes of the parent's other threads in a forked child.
extern "C" fn forget_other_threads() {
    let me = thread_pointer();
    for record in used() {
        if record.thread.load(Ordering::Relaxed) != me {
            record.thread.store(0, Ordering::Relaxed);
            record.holds.store(0, Ordering::Relaxed);
            record.blocked.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "there is no membarrier, and no note")]
    fn each_thread_has_a_record_of_its_own_and_keeps_it() {
        start();
        let mine = my_idle_record().expect("records are left");
        let again = my_idle_record().unwrap();
        assert!(std::ptr::eq(mine, again));
        let others = std::thread::spawn(|| std::ptr::from_ref(my_idle_record().unwrap()).addr())
            .join()
            .unwrap();
        assert_ne!(std::ptr::from_ref(mine).addr(), others);
    }

    #[test]
    #[cfg_attr(miri, ignore = "there is no membarrier, and no note")]
    fn a_record_in_use_is_not_given_to_a_nested_call() {
        start();
        let record = my_idle_record().unwrap();
        const SLOT: usize = 64 * 1234;
        record.note(SLOT);
        assert!(my_idle_record().is_none());
        assert!(see_notes());
        assert!(is_noted(SLOT));
        record.clear();
        assert!(my_idle_record().is_some());
        assert!(!is_noted(SLOT));
    }

    #[test]
    #[cfg_attr(miri, ignore = "there is no membarrier, and no note")]
    fn the_notes_of_all_threads_are_found() {
        const THREADS: usize = 200;
        start();
        let slot = |thread| 64 * (5678 + thread);
        let noted = std::sync::Barrier::new(THREADS + 1);
        let seen = std::sync::Barrier::new(THREADS + 1);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (noted, seen) = (&noted, &seen);
                scope.spawn(move || {
                    let record = my_idle_record().expect("records are left");
                    record.note(slot(thread));
                    noted.wait();
                    seen.wait();
                    record.clear();
                });
            }
            noted.wait();
            assert!(see_notes());
            let missing: Vec<_> = (0..THREADS)
                .filter(|&thread| !is_noted(slot(thread)))
                .collect();
            // The test waits before the assertion, because the other threads wait for the calling thread.
            seen.wait();
            assert_eq!(missing, [0; 0]);
        });
        assert!((0..THREADS).all(|thread| !is_noted(slot(thread))));
    }
}
