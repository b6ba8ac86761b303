//! Thread cancellation: mq_send, mq_receive and their timed forms are cancellation points, on entry and while they are blocked.
//!
//! pthread_testcancel ends a cancelled thread by unwinding its stack, which must not happen through a frame of Rust. So the
//! exported functions are a few instructions of assembly, made by [`cancellation_point`], that call it before they
//! enter the Rust function proper, and when that returns [`BEGIN_AGAIN`]. Programs that never cancel a thread pay for reading
//! one word.
//!
//! A blocked thread is in the library. pthread_cancel marks it, and then has its call end; the Rust function, which has nothing left to
//! do by then, returns `BEGIN_AGAIN`, and either the thread ends there or, with cancellation disabled, begins again with the arguments that the
//! assembly has kept. What it received or sent is never lost: only a call that has done nothing begins again.
//!
//! | blocking call | pthread_cancel |
//! |---|---|
//! | `tested` := `CALLS`; pthread_testcancel | mark the thread (libc) |
//! | note that it is blocked | `CALLS` += 1 |
//! | `CALLS` not `tested`? then begin again | is it noted? then end its call |
//!
//! Whichever thread comes second sees the other (SeqCst throughout), so no cancellation is slept through.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::pthread_t;
use umsg::reclaim::notes;
use umsg::signals::Caller;

use crate::{errno, next};

/// How often a thread of this process was cancelled.
pub(crate) static CALLS: AtomicU32 = AtomicU32::new(0);

/// What a Rust function behind a [`cancellation_point`] returns to be called again, after a look whether the thread is
/// cancelled; and, among errno values, why.
pub(crate) const BEGIN_AGAIN: c_int = -2;

thread_local! {
    /// `CALLS` before the thread last looked whether it is cancelled.
    static TESTED: Cell<u32> = const { Cell::new(0) };
}

unsafe extern "C" {
    pub(crate) fn pthread_testcancel();
}

/// Cancels a thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_cancel(thread: pthread_t) -> c_int {
    // SAFETY: the caller's promises to libc's pthread_cancel are handed on.
    let outcome = unsafe { next::pthread_cancel(thread) };
    CALLS.fetch_add(1, Ordering::SeqCst);
    match notes::record_of(thread).map_or(0, notes::Record::blocked) {
        0 => {}
        // SAFETY: the caller names a thread that has not been joined.
        caller => unsafe { Caller::at(caller) }.end_call(),
    }
    outcome
}

/// Makes a call that blocks; `Err(BEGIN_AGAIN)` if a cancellation ended it, or is to be looked for first. A thread for which there
/// is no record can't be cancelled meanwhile.
pub(crate) fn while_blocked<T>(call: impl FnOnce() -> Result<T, c_int>) -> Result<T, c_int> {
    let Some(record) = notes::my_record() else {
        return call();
    };
    let me = Caller::current();
    let mut ended = me.take_end();
    let outer = record.note_blocked(me.address());
    let calls = CALLS.load(Ordering::SeqCst);
    let outcome = if TESTED.replace(calls) == calls {
        call()
    } else {
        Err(BEGIN_AGAIN)
    };
    record.note_blocked(outer);
    let was_ended = outcome.as_ref().err() == Some(&libc::EINTR) && me.take_end();
    ended |= was_ended;
    if ended && outer != 0 {
        // The call that this one's handler has interrupted was meant, too.
        me.end_call();
    }
    if was_ended {
        return Err(BEGIN_AGAIN);
    }
    outcome
}

/// What the Rust function returns.
#[inline(always)]
pub(crate) fn answer<T: From<i8>>(outcome: Result<T, c_int>) -> T {
    match outcome {
        Ok(result) => result,
        Err(BEGIN_AGAIN) => T::from(BEGIN_AGAIN as i8),
        Err(errno) => errno::fail(errno),
    }
}

/// Exports a name of libc that is a cancellation point and takes up to five arguments, none of them a floating point
/// number: it goes on in a Rust function with the same arguments, or with 0 (no time-out) as a fifth one.
macro_rules! cancellation_point {
    ($(#[$doc:meta])* $name:ident => $function:ident(0)) => {
        $crate::cancellation::cancellation_point! { @ $(#[$doc])* $name $function "xor r8d, r8d", "mov x4, xzr" }
    };
    ($(#[$doc:meta])* $name:ident => $function:ident) => {
        $crate::cancellation::cancellation_point! { @ $(#[$doc])* $name $function "", "" }
    };
    (@ $(#[$doc:meta])* $name:ident $function:ident $x86_64:literal, $aarch64:literal) => {
        $(#[$doc])*
        #[cfg(target_arch = "x86_64")]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
                ".cfi_startproc",
                $x86_64,
                // Five words, and the stack is aligned for a call.
                "push rdi",
                "push rsi",
                "push rdx",
                "push rcx",
                "push r8",
                ".cfi_adjust_cfa_offset 40",
                "cmp dword ptr [rip + {calls}], 0",
                "jne 3f",
                "2: call {function}",
                "cmp eax, {again}",
                "je 3f",
                ".cfi_remember_state",
                "add rsp, 40",
                ".cfi_adjust_cfa_offset -40",
                "ret",
                ".cfi_restore_state",
                "3: call {test}@PLT",
                "mov r8, [rsp]",
                "mov rcx, [rsp + 8]",
                "mov rdx, [rsp + 16]",
                "mov rsi, [rsp + 24]",
                "mov rdi, [rsp + 32]",
                "jmp 2b",
                ".cfi_endproc",
                calls = sym $crate::cancellation::CALLS,
                again = const $crate::cancellation::BEGIN_AGAIN,
                test = sym $crate::cancellation::pthread_testcancel,
                function = sym $function,
            )
        }

        $(#[$doc])*
        #[cfg(target_arch = "aarch64")]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
                ".cfi_startproc",
                $aarch64,
                "stp x29, x30, [sp, -64]!",
                ".cfi_def_cfa_offset 64",
                ".cfi_offset x29, -64",
                ".cfi_offset x30, -56",
                "stp x0, x1, [sp, 16]",
                "stp x2, x3, [sp, 32]",
                "str x4, [sp, 48]",
                "adrp x16, {calls}",
                "ldr w16, [x16, :lo12:{calls}]",
                "cbnz w16, 3f",
                "2: bl {function}",
                "cmp w0, {again}",
                "b.eq 3f",
                ".cfi_remember_state",
                "ldp x29, x30, [sp], 64",
                ".cfi_def_cfa_offset 0",
                ".cfi_restore x29",
                ".cfi_restore x30",
                "ret",
                ".cfi_restore_state",
                "3: bl {test}",
                "ldr x4, [sp, 48]",
                "ldp x2, x3, [sp, 32]",
                "ldp x0, x1, [sp, 16]",
                "b 2b",
                ".cfi_endproc",
                calls = sym $crate::cancellation::CALLS,
                again = const $crate::cancellation::BEGIN_AGAIN,
                test = sym $crate::cancellation::pthread_testcancel,
                function = sym $function,
            )
        }
    };
}
pub(crate) use cancellation_point;
