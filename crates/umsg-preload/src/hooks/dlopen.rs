//! dlopen without RTLD_DEEPBIND.
//!
//! With RTLD_DEEPBIND, the loader resolves the names of the loaded library first in the library itself and its dependencies, and only then in the
//! preloaded library. So mq_open would be libc's function. PHP loads its extensions in this way. The hook only clears the flag. dlopen finds the
//! calling library, with its RUNPATH and namespace, by the return address. So the hook jumps to dlopen, and keeps the caller's return address.

use std::arch::naked_asm;
use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::next::Symbol;

/// The flag RTLD_DEEPBIND of glibc, the only libc that has this flag.
const DEEPBIND: i32 = 8;

static DLOPEN: Symbol = Symbol::new();

/// The address of the next library's dlopen, to which the hook jumps. Null before [`resolve`].
static TARGET: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Looks up the next library's dlopen.
pub(crate) extern "C" fn resolve() {
    let target = DLOPEN
        .address(c"dlopen")
        .unwrap_or(std::ptr::without_provenance_mut(
            refuse as *const () as usize,
        ));
    TARGET.store(target, Ordering::Relaxed);
}

/// Returns null in place of dlopen, if no later library has dlopen.
extern "C" fn refuse() -> *mut c_void {
    std::ptr::null_mut()
}

/// Loads a library, without RTLD_DEEPBIND.
#[cfg(target_arch = "x86_64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn dlopen() {
    naked_asm!(
        "and esi, {keep}",
        "mov rax, [rip + {target}]",
        "test rax, rax",
        "jnz 2f",
        // This is the first call, so the address must be looked up. At entry, the stack pointer is off by 8 from a multiple of 16.
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {resolve}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "mov rax, [rip + {target}]",
        "2: jmp rax",
        keep = const !DEEPBIND,
        target = sym TARGET,
        resolve = sym resolve,
    )
}

/// Loads a library, without RTLD_DEEPBIND.
#[cfg(target_arch = "aarch64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn dlopen() {
    naked_asm!(
        "and w1, w1, {keep}",
        "adrp x16, {target}",
        "ldr x16, [x16, :lo12:{target}]",
        "cbnz x16, 2f",
        // This is the first call, so the address must be looked up.
        "stp x29, x30, [sp, -32]!",
        "stp x0, x1, [sp, 16]",
        "bl {resolve}",
        "ldp x0, x1, [sp, 16]",
        "ldp x29, x30, [sp], 32",
        "adrp x16, {target}",
        "ldr x16, [x16, :lo12:{target}]",
        "2: br x16",
        keep = const !DEEPBIND,
        target = sym TARGET,
        resolve = sym resolve,
    )
}
