//! The variadic functions of exec: their arguments are strings in registers and on the stack.

use std::ffi::{c_char, c_int};

use super::{Strings, execv, execve, execvp, map, unmap};
use crate::errno;

/// The number of pointers in the array on the stack. One of them is the null pointer at the end.
const FEW: usize = 64;

/// Collects the arguments of a variadic call from the registers and from the stack, up to the null pointer that ends them.
///
/// # Safety
/// `registers` and `stack` are the addresses at which the caller's arguments begin.
unsafe fn listed(
    (registers, stack): (Strings, Strings),
    call: impl FnOnce(Strings, Strings) -> c_int,
) -> c_int {
    // SAFETY: by this function's contract.
    let at = |index: usize| unsafe {
        match index < REGISTERS {
            true => *registers.add(index),
            false => *stack.add(index - REGISTERS),
        }
    };
    let mut count = 0;
    while !at(count).is_null() {
        count += 1;
    }
    // The pointers are copied to one array, up to the null pointer. The argument at `count + 1` is not copied: execle has its environment there.
    let mut few = [std::ptr::null(); FEW];
    let room: *mut *const c_char = match count < FEW {
        true => few.as_mut_ptr(),
        false => map((count + 1) * size_of::<*const c_char>()).cast(),
    };
    if room.is_null() {
        return errno::fail(libc::ENOMEM);
    }
    for index in 0..=count {
        // SAFETY: the room has a place for each argument and for the null pointer.
        unsafe { room.add(index).write(at(index)) };
    }
    let outcome = call(room, at(count + 1).cast());
    if count >= FEW {
        let errno = errno::get();
        unmap(room.cast(), (count + 1) * size_of::<*const c_char>());
        errno::set(errno);
    }
    outcome
}

/// The number of registers that hold arguments after the first argument.
const REGISTERS: usize = match cfg!(target_arch = "x86_64") {
    true => 5,
    false => 7,
};

/// # Safety
/// The conditions of libc's execl.
unsafe extern "C" fn list(path: *const c_char, registers: Strings, stack: Strings) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { listed((registers, stack), |arguments, _| execv(path, arguments)) }
}

/// # Safety
/// The conditions of libc's execlp.
unsafe extern "C" fn list_in_path(
    name: *const c_char,
    registers: Strings,
    stack: Strings,
) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { listed((registers, stack), |arguments, _| execvp(name, arguments)) }
}

/// # Safety
/// The conditions of libc's execle.
unsafe extern "C" fn list_with_environment(
    path: *const c_char,
    registers: Strings,
    stack: Strings,
) -> c_int {
    // SAFETY: by this function's contract.
    unsafe {
        listed((registers, stack), |arguments, environment| {
            execve(path, arguments, environment)
        })
    }
}

/// Exports a variadic function, which passes the addresses of its arguments to a function of Rust.
macro_rules! variadic {
    ($(#[doc = $doc:literal] fn $name:ident => $function:ident;)*) => {
        $(
            #[doc = $doc]
            #[cfg_attr(not(test), unsafe(no_mangle))]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() {
                #[cfg(target_arch = "x86_64")]
                std::arch::naked_asm!(
                    ".cfi_startproc",
                    "sub rsp, 56",
                    ".cfi_def_cfa_offset 64",
                    "mov [rsp], rsi",
                    "mov [rsp + 8], rdx",
                    "mov [rsp + 16], rcx",
                    "mov [rsp + 24], r8",
                    "mov [rsp + 32], r9",
                    "mov rsi, rsp",
                    "lea rdx, [rsp + 64]",
                    "call {function}",
                    "add rsp, 56",
                    ".cfi_def_cfa_offset 8",
                    "ret",
                    ".cfi_endproc",
                    function = sym $function,
                );
                #[cfg(target_arch = "aarch64")]
                std::arch::naked_asm!(
                    ".cfi_startproc",
                    "stp x29, x30, [sp, -80]!",
                    ".cfi_def_cfa_offset 80",
                    ".cfi_offset x29, -80",
                    ".cfi_offset x30, -72",
                    "stp x1, x2, [sp, 16]",
                    "stp x3, x4, [sp, 32]",
                    "stp x5, x6, [sp, 48]",
                    "str x7, [sp, 64]",
                    "add x1, sp, 16",
                    "add x2, sp, 80",
                    "bl {function}",
                    "ldp x29, x30, [sp], 80",
                    ".cfi_def_cfa_offset 0",
                    ".cfi_restore x29",
                    ".cfi_restore x30",
                    "ret",
                    ".cfi_endproc",
                    function = sym $function,
                );
            }
        )*
    };
}

variadic! {
    /// Replaces the program. The arguments of the program are the further arguments of the call.
    fn execl => list;
    /// Replaces the program as execl does. The program is looked up in PATH.
    fn execlp => list_in_path;
    /// Replaces the program as execl does. The environment follows the arguments.
    fn execle => list_with_environment;
}
