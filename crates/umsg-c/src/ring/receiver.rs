//! The receiving end of a ring for C, which one call at a time uses.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

use umsg::ring::{ReceiveError, Ring, Sender};

use super::Refusal;
use crate::pointer::is_bad;

/// The receiving end of a ring.
pub struct umsg_ring {
    /// True while a call uses `inner`.
    busy: AtomicBool,
    /// A sender for the calls that may run beside a receiving call: they read the state of the ring, or make further senders.
    pub(super) sender: Sender,
    inner: UnsafeCell<Inner>,
}

/// The fields that only the call with the right to receive uses.
pub(super) struct Inner {
    pub(super) ring: Ring,
    /// The payloads of the last batch, which the program may still read.
    pub(super) payloads: Vec<u8>,
}

/// Checks at compile time what C programs may do: receive in any thread, and share a sender between threads.
const _: () = {
    const fn goes_from_thread_to_thread<T: Send>() {}
    const fn is_shared_by_threads<T: Sync>() {}
    goes_from_thread_to_thread::<Inner>();
    is_shared_by_threads::<Sender>();
};

// SAFETY: only the call that has set `busy` uses `inner`. Any thread may receive from a ring, but only one at a time.
unsafe impl Sync for umsg_ring {}

impl umsg_ring {
    pub(super) fn new(ring: Ring) -> *mut umsg_ring {
        let sender = ring.sender();
        let payloads = Vec::new();
        Box::into_raw(Box::new(umsg_ring {
            busy: AtomicBool::new(false),
            sender,
            inner: UnsafeCell::new(Inner { ring, payloads }),
        }))
    }
}

/// Returns the ring at an address that the program passed, without the right to receive.
///
/// # Safety
/// `ring` comes from umsg_ring_create and is not freed while the result is used, or is an address that [`is_bad`] refuses.
pub(super) unsafe fn look<'a>(ring: *const umsg_ring) -> Result<&'a umsg_ring, Refusal> {
    if is_bad(ring) {
        return Err(Refusal::NoRing);
    }
    // SAFETY: by this function's contract; made by `umsg_ring::new`.
    Ok(unsafe { &*ring })
}

/// Returns the right to receive from a ring. Only the process that created the ring gets this right.
///
/// # Errors
/// `Busy` if another call has the right to receive: a call of another thread, or a call of this thread further down the stack. `NotOwner` in a forked
/// child.
///
/// # Safety
/// The conditions of [`look`].
#[inline]
pub(super) unsafe fn enter<'a>(ring: *mut umsg_ring) -> Result<Turn<'a>, Refusal> {
    // SAFETY: by this function's contract.
    let turn = unsafe { take_turn(ring)? };
    match turn.ring.is_own() {
        true => Ok(turn),
        false => Err(ReceiveError::NotOwner.into()),
    }
}

/// Takes the right to receive without the check of ownership, because a forked child may free its copy of the ring.
///
/// # Safety
/// The conditions of [`look`].
#[inline]
unsafe fn take_turn<'a>(ring: *mut umsg_ring) -> Result<Turn<'a>, Refusal> {
    // SAFETY: by this function's contract.
    let ring = unsafe { look(ring)? };
    // Acquire: makes the changes of the last call visible.
    match ring.busy.swap(true, Ordering::Acquire) {
        true => Err(Refusal::Busy),
        false => Ok(Turn(ring)),
    }
}

/// Frees a ring.
///
/// # Safety
/// The conditions of [`look`], and no other code uses the ring any more.
pub(super) unsafe fn free(ring: *mut umsg_ring) -> Result<(), Refusal> {
    // SAFETY: by this function's contract.
    std::mem::forget(unsafe { take_turn(ring)? });
    // SAFETY: `Box::into_raw` made the pointer in `new`, and only this line frees it. No call has the right to receive.
    drop(unsafe { Box::from_raw(ring) });
    Ok(())
}

/// The right to receive, held by one call at a time.
pub(super) struct Turn<'a>(&'a umsg_ring);

impl Deref for Turn<'_> {
    type Target = Inner;

    #[inline]
    fn deref(&self) -> &Inner {
        // SAFETY: only one `Turn` exists at a time.
        unsafe { &*self.0.inner.get() }
    }
}

impl DerefMut for Turn<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Inner {
        // SAFETY: only one `Turn` exists at a time.
        unsafe { &mut *self.0.inner.get() }
    }
}

impl Drop for Turn<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the acquire in `take_turn`.
        self.0.busy.store(false, Ordering::Release);
    }
}
