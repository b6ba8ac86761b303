//! The function that gets reports: one word of the process leads to it.
//!
//! With one exception, no function of this module takes a lock or allocates from the program's heap. The exception is the first call in a process
//! that fills a slot ([`Slots::fill`]): it registers a fork handler with pthread_atfork(3), where libc takes a lock and may allocate. After such a
//! call outside of a signal handler, signal handlers may call all functions of this module, and a forked child finds no lock that a thread of its
//! parent held. A replaced function stays in memory until the last thread that calls it has returned ([`crate::reclaim`]).

use super::Report;
use crate::reclaim::{Held, Link, Slots, Word};
use std::mem::MaybeUninit;

/// The most words that a function captures.
const WORDS: usize = 3;

/// A function that gets reports, with the few words that it captures. The function needs no drop, because its last user may be a signal handler.
///
/// The function runs in the thread of a call on a queue, while the thread holds no lock. The thread may be in a signal handler that calls the
/// library. The function is not called within itself: see [`super::tell`].
#[derive(Clone, Copy)]
pub struct Receiver {
    call: unsafe fn(&Captured, &Report),
    captured: Captured,
}

type Captured = [MaybeUninit<usize>; WORDS];

/// Calls the function of type `F` that lies in `captured`.
///
/// # Safety
/// The words of `captured` hold an `F`.
unsafe fn call<F: Fn(&Report)>(captured: &Captured, report: &Report) {
    // SAFETY: by this function's contract. `Receiver::new` has checked the alignment.
    let receive = unsafe { &*captured.as_ptr().cast::<F>() };
    receive(report);
}

impl Receiver {
    /// Makes a receiver of a function. The compilation fails if the function captures more than three words.
    pub fn new<F: Fn(&Report) + Copy + Send + Sync + 'static>(receive: F) -> Receiver {
        const {
            assert!(
                size_of::<F>() <= size_of::<Captured>(),
                "the function captures too much"
            );
            assert!(align_of::<F>() <= align_of::<Captured>());
        }
        let mut captured = [MaybeUninit::uninit(); WORDS];
        // SAFETY: the words have the size and the alignment for an `F`, as the assertions above say.
        unsafe { captured.as_mut_ptr().cast::<F>().write(receive) };
        Receiver {
            call: call::<F>,
            captured,
        }
    }

    /// Gives the function a report.
    pub(super) fn give(&self, report: &Report) {
        // SAFETY: `new` has written the function whose type belongs to `call`.
        unsafe { (self.call)(&self.captured, report) };
    }
}

static ALL: Slots<Receiver> = Slots::new();
static PRESENT: Link<Receiver> = Link::nowhere();

/// Sets the function that gets the reports of this process, or none. After the call, other threads may still be in the earlier function.
pub fn set_receiver(receiver: Option<Receiver>) {
    match receiver.and_then(|receiver| ALL.fill(receiver)) {
        Some(slot) => PRESENT.put(Word::new(slot, 0)),
        // The earlier function is also removed if there is no memory for the new function: the program may be about to release the data of the
        // earlier function.
        None => PRESENT.take().into_iter().for_each(Word::release),
    }
}

/// Sets the function that gets the reports, if there is none.
pub fn set_first_receiver(receiver: Receiver) {
    if is_on() {
        return;
    }
    if let Some(slot) = ALL.fill(receiver) {
        let word = Word::new(slot, 0);
        if !PRESENT.put_if_empty(word) {
            word.release();
        }
    }
}

/// Returns whether a function gets reports.
#[inline]
pub fn is_on() -> bool {
    PRESENT.leads()
}

/// Returns the function, and keeps it in memory by a count. The thread's hazard pointer stays free for the queues that the function may use.
pub(super) fn hold() -> Option<Held<Receiver>> {
    PRESENT.hold_counted()
}
