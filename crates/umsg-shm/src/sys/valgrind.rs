//! Registers the library's own stacks with valgrind.
//!
//! If the stack pointer changes by less than two million bytes, valgrind assumes a call or a return, and treats the memory between the two addresses
//! as unused. For a change to a registered stack, valgrind assumes neither a call nor a return. A request to valgrind is a sequence of instructions
//! without effect, which valgrind recognises. Source: the macros of valgrind.h.

use std::ffi::c_void;

const STACK_REGISTER: usize = 0x1501;
const STACK_DEREGISTER: usize = 0x1502;

/// valgrind's id of a stack; 0 outside of valgrind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StackId(usize);

/// Registers the stack between two addresses, the higher one included.
pub(super) fn register_stack(lowest: *mut c_void, highest: *mut c_void) -> StackId {
    StackId(answer(&[
        STACK_REGISTER,
        lowest.addr(),
        highest.addr(),
        0,
        0,
        0,
    ]))
}

/// Removes the registration of a stack, before its memory is unmapped.
pub(super) fn deregister_stack(StackId(id): StackId) {
    let _ = answer(&[STACK_DEREGISTER, id, 0, 0, 0, 0]);
}

/// Makes a request to valgrind with a number and five arguments. Returns valgrind's answer, 0 outside of valgrind.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn answer(arguments: &[usize; 6]) -> usize {
    let mut answer = 0;
    // SAFETY: the rotations add up to 128 bits, so the register keeps its value. The exchange swaps a register with itself. valgrind reads the
    // arguments, and writes the answer's register.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") arguments.as_ptr(),
            inout("rdx") answer,
            options(nostack),
        );
    }
    answer
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
fn answer(arguments: &[usize; 6]) -> usize {
    let mut answer = 0;
    // SAFETY: the rotations add up to whole words, and a register is combined with itself. valgrind reads the arguments, and writes the
    // answer's register.
    unsafe {
        std::arch::asm!(
            "ror x12, x12, 3",
            "ror x12, x12, 13",
            "ror x12, x12, 51",
            "ror x12, x12, 61",
            "orr x10, x10, x10",
            in("x4") arguments.as_ptr(),
            inout("x3") answer,
            options(nostack),
        );
    }
    answer
}

/// Returns 0: for other processors, the request is not implemented, and Miri can't run the instructions.
#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn answer(_arguments: &[usize; 6]) -> usize {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_answers_where_there_is_no_valgrind() {
        let mut bytes = [0_u8; 64];
        let lowest: *mut c_void = bytes.as_mut_ptr().cast();
        let id = register_stack(lowest, lowest.wrapping_byte_add(63));
        deregister_stack(id);
        assert_eq!(id, StackId(0));
    }
}
