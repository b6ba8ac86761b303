//! Proofs that the calling thread holds a lock, for the functions that need it.
//!
//! | token | its thread holds | made by |
//! |---|---|---|
//! | [`SenderHeld`] | the sender lock of a POSIX queue, or the loan of it | [`Held::sender`], [`BothHeld::sender`] |
//! | [`ReceiverHeld`] | the lock under which messages are received: a System V queue has no other | [`Held::receiver`], [`BothHeld::receiver`] |
//! | [`BothHeld`] | the receiver lock, and the loan of the sender lock | [`ReceiverHeld::with_loan`] |
//!
//! A token has no size, and lives no longer than the guard that it is made of. A function that takes one is called under that lock, and a function
//! without a token can't call it. The type of a guard does not say which lock it is of, and that of [`BothHeld`] not when the loan ends:
//! the few functions that take a lock, or borrow one, make the right token beside that call.

use super::Held;
use std::marker::PhantomData;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct SenderHeld<'a>(PhantomData<&'a ()>);

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct ReceiverHeld<'a>(PhantomData<&'a ()>);

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct BothHeld<'a>(PhantomData<&'a ()>);

impl Held<'_> {
    /// Of the sender lock: for the function that has just taken it.
    #[inline(always)]
    pub(crate) fn sender(&self) -> SenderHeld<'_> {
        SenderHeld(PhantomData)
    }

    /// Of the lock under which messages are received: for the function that has just taken it.
    #[inline(always)]
    pub(crate) fn receiver(&self) -> ReceiverHeld<'_> {
        ReceiverHeld(PhantomData)
    }
}

impl<'a> ReceiverHeld<'a> {
    /// The thread has borrowed the sender lock, too.
    #[inline(always)]
    pub(crate) fn with_loan(self) -> BothHeld<'a> {
        BothHeld(PhantomData)
    }
}

impl<'a> BothHeld<'a> {
    /// The loan of the sender lock.
    #[inline(always)]
    pub(crate) fn sender(self) -> SenderHeld<'a> {
        SenderHeld(PhantomData)
    }

    /// The receiver lock.
    #[inline(always)]
    pub(crate) fn receiver(self) -> ReceiverHeld<'a> {
        ReceiverHeld(PhantomData)
    }
}

/// Tests change segments that no other thread uses.
#[cfg(test)]
impl ReceiverHeld<'_> {
    pub(crate) fn in_test() -> ReceiverHeld<'static> {
        ReceiverHeld(PhantomData)
    }
}
