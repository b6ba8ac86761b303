//! The functions of the unwinder that std uses for panics, backtraces and its personality routine. They are defined in this module to avoid a
//! dependency on libgcc_s.
//!
//! A preloaded library loads its dependencies in each process, although almost no process unwinds a stack. So this module defines the names, hidden
//! from other libraries. At its first call, each name finds its function in the shared libgcc_s. A static unwinder can't replace the shared one: libc
//! uses the shared unwinder to end a cancelled thread, and no other unwinder can read its contexts. When a thread is cancelled, libc has already
//! loaded the shared unwinder.
//!
//! The unwinder reads the return address and the stack of its caller. So each name jumps to its function, and leaves the stack unchanged.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Declares names of the unwinder, each with its index in the list. In tests, the names have a prefix, because the test program has its own unwinder.
macro_rules! unwinder {
    ($($place:literal $name:literal)*) => {
        const NAMES: &[&CStr] = &[$( match CStr::from_bytes_with_nul(concat!($name, "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => panic!("a name has no zero byte"),
        } ),*];

        $( entrance! { $name, $place } )*
    };
}

#[cfg(not(test))]
macro_rules! symbol {
    ($name:literal) => {
        $name
    };
}

#[cfg(test)]
macro_rules! symbol {
    ($name:literal) => {
        concat!("umsg_test", $name)
    };
}

/// Jumps to the function at an index of the list. The first call looks the function up.
#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        concat!(
            "mov rax, [rip + {functions} + 8 * {place}]\n",
            "test rax, rax\n",
            "jz 2f\n",
            "jmp rax\n",
            // The functions have up to three arguments. At entry, the stack pointer is a multiple of 16, plus 8.
            "2: push rdi\n",
            ".cfi_adjust_cfa_offset 8\n",
            "push rsi\n",
            ".cfi_adjust_cfa_offset 8\n",
            "push rdx\n",
            ".cfi_adjust_cfa_offset 8\n",
            "mov edi, {place}\n",
            "call {find}\n",
            "pop rdx\n",
            ".cfi_adjust_cfa_offset -8\n",
            "pop rsi\n",
            ".cfi_adjust_cfa_offset -8\n",
            "pop rdi\n",
            ".cfi_adjust_cfa_offset -8\n",
            "jmp rax"
        )
    };
}

/// Jumps to the function at an index of the list. The first call looks the function up.
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        concat!(
            "adrp x16, {functions} + 8 * {place}\n",
            "ldr x16, [x16, :lo12:({functions} + 8 * {place})]\n",
            "cbz x16, 2f\n",
            "br x16\n",
            // The functions have up to three arguments.
            "2: stp x29, x30, [sp, -48]!\n",
            ".cfi_def_cfa_offset 48\n",
            ".cfi_offset x29, -48\n",
            ".cfi_offset x30, -40\n",
            "stp x0, x1, [sp, 16]\n",
            "str x2, [sp, 32]\n",
            "mov w0, {place}\n",
            "bl {find}\n",
            "mov x16, x0\n",
            "ldr x2, [sp, 32]\n",
            "ldp x0, x1, [sp, 16]\n",
            "ldp x29, x30, [sp], 48\n",
            ".cfi_def_cfa_offset 0\n",
            ".cfi_restore x29\n",
            ".cfi_restore x30\n",
            "br x16"
        )
    };
}

macro_rules! entrance {
    ($name:literal, $place:literal) => {
        std::arch::global_asm!(
            ".pushsection .text.umsg_unwinder, \"ax\", @progbits",
            concat!(".globl ", symbol!($name)),
            concat!(".hidden ", symbol!($name)),
            concat!(".type ", symbol!($name), ", @function"),
            ".p2align 4",
            concat!(symbol!($name), ":"),
            ".cfi_startproc",
            jump!(),
            ".cfi_endproc",
            concat!(".size ", symbol!($name), ", . - ", symbol!($name)),
            ".popsection",
            functions = sym FUNCTIONS,
            place = const $place,
            find = sym find,
        );
    };
}

unwinder! {
    0 "_Unwind_Backtrace"
    1 "_Unwind_DeleteException"
    2 "_Unwind_GetDataRelBase"
    3 "_Unwind_GetIP"
    4 "_Unwind_GetIPInfo"
    5 "_Unwind_GetLanguageSpecificData"
    6 "_Unwind_GetRegionStart"
    7 "_Unwind_GetTextRelBase"
    8 "_Unwind_RaiseException"
    9 "_Unwind_Resume"
    10 "_Unwind_SetGR"
    11 "_Unwind_SetIP"
    12 "_Unwind_GetCFA"
    13 "_Unwind_FindEnclosingFunction"
}

/// The addresses to which the names jump. Null before the first call.
static FUNCTIONS: [AtomicPtr<c_void>; NAMES.len()] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; NAMES.len()];

/// Looks up a function in the shared library, and remembers its address. Without the library, the process ends. Nothing is lost by this: a panic was
/// already reported, and libc would end the process in the same way when a thread is cancelled.
extern "C" fn find(place: u32) -> *mut c_void {
    let (name, function) = (NAMES[place as usize], &FUNCTIONS[place as usize]);
    // SAFETY: both names end with a zero byte. The library is loaded once more and never unloaded, so the address stays valid.
    let address = unsafe {
        let library = libc::dlopen(c"libgcc_s.so.1".as_ptr(), libc::RTLD_NOW);
        if library.is_null() {
            libc::abort();
        }
        libc::dlsym(library, name.as_ptr())
    };
    if address.is_null() {
        // SAFETY: the call ends the process.
        unsafe { libc::abort() };
    }
    // Relaxed: the address publishes no other data. If two threads look it up, both find the same address.
    function.store(address, Ordering::Relaxed);
    address
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::c_int;

    type Context = *mut c_void;
    type Visit = extern "C" fn(Context, *mut c_void) -> c_int;

    unsafe extern "C" {
        fn umsg_test_Unwind_Backtrace(visit: Visit, argument: *mut c_void) -> c_int;
        fn umsg_test_Unwind_GetIP(context: Context) -> usize;
        fn umsg_test_Unwind_FindEnclosingFunction(address: *const c_void) -> *const c_void;
        fn _Unwind_Backtrace(visit: Visit, argument: *mut c_void) -> c_int;
        fn _Unwind_GetIP(context: Context) -> usize;
    }

    extern "C" fn through_our_names(context: Context, frames: *mut c_void) -> c_int {
        // SAFETY: the unwinder calls this function with its context, and with the list of `frames_by`.
        unsafe { (*frames.cast::<Vec<usize>>()).push(umsg_test_Unwind_GetIP(context)) };
        0
    }

    extern "C" fn directly(context: Context, frames: *mut c_void) -> c_int {
        // SAFETY: the unwinder calls this function with its context, and with the list of `frames_by`.
        unsafe { (*frames.cast::<Vec<usize>>()).push(_Unwind_GetIP(context)) };
        0
    }

    /// Returns the return addresses of the frames above the call.
    #[inline(never)]
    fn frames_by(
        walk: unsafe extern "C" fn(Visit, *mut c_void) -> c_int,
        visit: Visit,
    ) -> Vec<usize> {
        let mut frames = Vec::new();
        // SAFETY: the callback fits the list, which outlives the call.
        unsafe { walk(visit, (&raw mut frames).cast()) };
        frames
    }

    #[test]
    fn a_stack_is_walked_as_by_the_unwinder_itself() {
        let mut walks = Vec::new();
        // The first walk looks the functions up. The second walk finds them in the list.
        for _ in 0..2 {
            walks.push(frames_by(umsg_test_Unwind_Backtrace, through_our_names));
        }
        let direct = frames_by(_Unwind_Backtrace, directly);
        assert!(direct.len() > 3, "{direct:x?}");
        for walk in walks {
            // The second frame is this function, which calls `frames_by` from two places. So only the other frames are compared.
            assert_eq!((walk[0], &walk[2..]), (direct[0], &direct[2..]));
        }
    }

    #[test]
    fn each_name_is_one_of_the_shared_library() {
        for (place, function) in (0..).zip(&FUNCTIONS) {
            let found = find(place);
            assert_eq!(function.load(Ordering::Relaxed), found);
            assert!(!found.is_null());
        }
        let here = frames_by as *const () as *const c_void;
        // The unwinder looks up the byte before the address, as for a return address.
        let within = here.wrapping_byte_add(1);
        // SAFETY: the call takes any address.
        let found = unsafe { umsg_test_Unwind_FindEnclosingFunction(within) };
        assert_eq!(found, here);
    }
}
