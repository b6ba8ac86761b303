//! Proofs that the calling thread holds a lock, for the functions that need it.
//!
//! | token | its thread holds | made by |
//! |---|---|---|
//! | [`SenderHeld`] | the sender lock of a POSIX queue, or the loan of it | [`Held::sender`], [`BothHeld::sender`] |
//! | [`ReceiverHeld`] | the lock under which messages are received: a System V queue has no other | [`Held::receiver`], [`BothHeld::receiver`] |
//! | [`BothHeld`] | the receiver lock, and the loan of the sender lock | [`ReceiverHeld::with_loan`] |
//!
//! A token has no size, and lives no longer than its guard. A function with a token as its argument runs under that lock, and a function
//! without a token can't call it. The types can't express everything: a guard does not name its lock, and [`BothHeld`] does not end with
//! the loan. So the few functions that take or borrow a lock make the right token beside that call.

use super::Held;
use std::marker::PhantomData;

/// The proof that the calling thread holds the sender lock of a POSIX queue, or the loan of it.
#[derive(Clone, Copy, Debug)]
pub struct SenderHeld<'a>(PhantomData<&'a ()>);

/// The proof that the calling thread holds the lock under which messages are received.
#[derive(Clone, Copy, Debug)]
pub struct ReceiverHeld<'a>(PhantomData<&'a ()>);

/// The proof that the calling thread holds the receiver lock, and the loan of the sender lock.
#[derive(Clone, Copy, Debug)]
pub struct BothHeld<'a>(PhantomData<&'a ()>);

impl Held<'_> {
    /// Returns the token of the sender lock, for the function that has just taken this lock.
    #[inline(always)]
    pub(crate) fn sender(&self) -> SenderHeld<'_> {
        SenderHeld(PhantomData)
    }

    /// Returns the token of the lock under which messages are received, for the function that has just taken this lock.
    #[inline(always)]
    pub(crate) fn receiver(&self) -> ReceiverHeld<'_> {
        ReceiverHeld(PhantomData)
    }
}

impl<'a> ReceiverHeld<'a> {
    /// Returns the token of both locks, for a thread that has borrowed the sender lock, too.
    #[inline(always)]
    pub(crate) fn with_loan(self) -> BothHeld<'a> {
        BothHeld(PhantomData)
    }
}

impl<'a> BothHeld<'a> {
    /// Returns the token of the lent sender lock.
    #[inline(always)]
    pub(crate) fn sender(self) -> SenderHeld<'a> {
        SenderHeld(PhantomData)
    }

    /// Returns the token of the receiver lock.
    #[inline(always)]
    pub(crate) fn receiver(self) -> ReceiverHeld<'a> {
        ReceiverHeld(PhantomData)
    }
}

/// Makes tokens for tests that change segments which no other thread uses.
#[cfg(test)]
impl ReceiverHeld<'_> {
    pub(crate) fn in_test() -> ReceiverHeld<'static> {
        ReceiverHeld(PhantomData)
    }
}
