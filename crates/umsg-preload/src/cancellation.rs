//! Thread cancellation: mq_send, mq_receive and their timed forms are cancellation points.
//!
//! pthread_testcancel ends a cancelled thread by unwinding its stack, which must not happen through a frame of Rust. So the
//! exported functions are a few instructions of assembly, made by [`cancellation_point`], that call it before they
//! enter the Rust function proper. Programs that never cancel a thread pay for reading one flag.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::pthread_t;

use crate::next;

/// Whether a thread of this process was ever cancelled.
pub(crate) static USED: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    pub(crate) fn pthread_testcancel();
}

/// Cancels a thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_cancel(thread: pthread_t) -> c_int {
    USED.store(true, Ordering::Relaxed);
    // SAFETY: the caller's promises to libc's pthread_cancel are handed on.
    unsafe { next::pthread_cancel(thread) }
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
                "cmp byte ptr [rip + {used}], 0",
                "jne 3f",
                "2: jmp {function}",
                // Five words, and the stack is aligned for a call.
                "3: push rdi",
                "push rsi",
                "push rdx",
                "push rcx",
                "push r8",
                ".cfi_adjust_cfa_offset 40",
                "call {test}@PLT",
                "pop r8",
                "pop rcx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                ".cfi_adjust_cfa_offset -40",
                "jmp 2b",
                ".cfi_endproc",
                used = sym $crate::cancellation::USED,
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
                "adrp x16, {used}",
                "ldrb w16, [x16, :lo12:{used}]",
                "cbnz w16, 3f",
                "2: b {function}",
                "3: stp x29, x30, [sp, -64]!",
                ".cfi_def_cfa_offset 64",
                ".cfi_offset x29, -64",
                ".cfi_offset x30, -56",
                "stp x0, x1, [sp, 16]",
                "stp x2, x3, [sp, 32]",
                "str x4, [sp, 48]",
                "bl {test}",
                "ldr x4, [sp, 48]",
                "ldp x2, x3, [sp, 32]",
                "ldp x0, x1, [sp, 16]",
                "ldp x29, x30, [sp], 64",
                ".cfi_def_cfa_offset 0",
                ".cfi_restore x29",
                ".cfi_restore x30",
                "b 2b",
                ".cfi_endproc",
                used = sym $crate::cancellation::USED,
                test = sym $crate::cancellation::pthread_testcancel,
                function = sym $function,
            )
        }
    };
}
pub(crate) use cancellation_point;
