//! Thread cancellation. mq_send, mq_receive and their timed forms are cancellation points, on entry and while they are blocked. poll and select are
//! cancellation points, too: their hooks call libc's function, which ends the thread. The hooks of poll and select never begin again.
//!
//! pthread_testcancel ends a cancelled thread by unwinding its stack, which must not happen through a frame of Rust. So the exported functions are a
//! few instructions of assembly, made by [`cancellation_point`]. They call pthread_testcancel before they enter the Rust function, and again if the
//! Rust function returns [`BEGIN_AGAIN`]. A program that never cancels a thread only reads one additional word for each call.
//!
//! A blocked thread is inside the library. pthread_cancel marks the thread, and then makes the thread's call end. The Rust function, which has done
//! nothing so far, returns `BEGIN_AGAIN`, and pthread_testcancel ends the thread. If cancellation is disabled, the thread begins the call again with
//! the arguments that the assembly has kept. No message is lost: only a call that has done nothing begins again. A call that a handler with
//! SA_RESTART has interrupted begins again in the same way.
//!
//! | blocking call | pthread_cancel |
//! |---|---|
//! | `tested` := [`calls`]; pthread_testcancel | mark the thread (libc) |
//! | note that it is blocked | [`calls`] += 1 |
//! | is [`calls`] different from `tested`? then begin again | is the thread noted as blocked? then end its call |
//!
//! All accesses in the table are SeqCst: the thread that acts second sees the step of the thread that acted first. So no thread sleeps through its
//! cancellation.
//!
//! A thread may permit a cancellation at any instruction (PTHREAD_CANCEL_ASYNCHRONOUS). But while it is in an exported function, the thread ends only
//! at cancellation points: the assembly sets the type PTHREAD_CANCEL_DEFERRED, and restores the thread's type after the call. Before the assembly
//! sets the type, and after it restores the type, only this assembly and libc run. The unwinding ends the program if it meets a frame of Rust at an
//! instruction that is not a call. Therefore the assembly describes the place of the caller's frame after each instruction.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use libc::pthread_t;
use umsg::signals::Caller;
use umsg_shm::reclaim::notes;

use crate::trace::REQUEST;
use crate::{errno, next};

/// Returns the counter of cancellations: how often a thread of this process was cancelled, or enabled cancellation at any instruction. The assembly
/// reads the counter together with the request for records of calls.
fn calls() -> &'static AtomicU32 {
    &REQUEST.cancellations
}

/// The value by which a Rust function behind a [`cancellation_point`] requests another call after a check for cancellation. A function that returns
/// an errno on failure returns this value instead of the errno.
pub(crate) const BEGIN_AGAIN: c_int = -2;

thread_local! {
    /// The value of [`calls`] before this thread last checked whether it is cancelled.
    static TESTED: Cell<u32> = const { Cell::new(0) };
}

unsafe extern "C" {
    pub(crate) fn pthread_testcancel();
}

/// Cancels a thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_cancel(thread: pthread_t) -> c_int {
    // SAFETY: the caller makes the promises that libc's pthread_cancel requires.
    let outcome = unsafe { next::pthread_cancel(thread) };
    calls().fetch_add(1, Ordering::SeqCst);
    match notes::record_of(thread).map_or(0, notes::Record::blocked) {
        0 => {}
        // SAFETY: the caller names a thread that has not been joined.
        caller => unsafe { Caller::at(caller) }.end_call(),
    }
    outcome
}

/// The type of cancellation of a thread that ends only at cancellation points.
pub(crate) const DEFERRED: c_int = 0;

/// The address of libc's pthread_setcanceltype, once the program has called it. While it is null, every thread of the process ends only at
/// cancellation points.
pub(crate) static SET_TYPE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Chooses whether the thread may end at any instruction, as libc's function of this name does. If the thread is already cancelled, permitting this
/// ends it at once, so no frame of Rust may be on the stack below this function. Once a thread has permitted this, all calls check the cancellation
/// type of their thread.
#[cfg(target_arch = "x86_64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn pthread_setcanceltype(wanted: c_int, before: *mut c_int) -> c_int {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "cmp edi, {deferred}",
        "je 2f",
        "lock inc dword ptr [rip + {calls}]",
        "2: mov rax, qword ptr [rip + {set_type}]",
        "test rax, rax",
        "je 3f",
        "jmp rax",
        "3: push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {find}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "jmp rax",
        ".cfi_endproc",
        deferred = const DEFERRED,
        calls = sym REQUEST,
        set_type = sym SET_TYPE,
        find = sym find_set_type,
    )
}

/// Chooses whether the thread may end at any instruction, as libc's function of this name does. If the thread is already cancelled, permitting this
/// ends it at once, so no frame of Rust may be on the stack below this function. Once a thread has permitted this, all calls check the cancellation
/// type of their thread.
#[cfg(target_arch = "aarch64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn pthread_setcanceltype(wanted: c_int, before: *mut c_int) -> c_int {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "cmp w0, {deferred}",
        "b.eq 2f",
        "adrp x16, {calls}",
        "add x16, x16, :lo12:{calls}",
        "1: ldaxr w17, [x16]",
        "add w17, w17, 1",
        "stlxr w15, w17, [x16]",
        "cbnz w15, 1b",
        "2: adrp x16, {set_type}",
        "ldr x16, [x16, :lo12:{set_type}]",
        "cbz x16, 3f",
        "br x16",
        "3: stp x29, x30, [sp, -32]!",
        ".cfi_def_cfa_offset 32",
        ".cfi_offset x29, -32",
        ".cfi_offset x30, -24",
        "stp x0, x1, [sp, 16]",
        "bl {find}",
        "mov x16, x0",
        "ldp x0, x1, [sp, 16]",
        "ldp x29, x30, [sp], 32",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "br x16",
        ".cfi_endproc",
        deferred = const DEFERRED,
        calls = sym REQUEST,
        set_type = sym SET_TYPE,
        find = sym find_set_type,
    )
}

/// Finds libc's pthread_setcanceltype. The thread can't be ended at any instruction during the search, because it has not set that type yet.
extern "C" fn find_set_type() -> *mut c_void {
    let found = next::pthread_setcanceltype().unwrap_or(no_such_type as *mut c_void);
    // Relaxed: the address is that of code that was loaded before the program began.
    SET_TYPE.store(found, Ordering::Relaxed);
    found
}

extern "C" fn no_such_type(_: c_int, _: *mut c_int) -> c_int {
    libc::EINVAL
}

/// Waits for the signal by which libc ends a thread at any instruction. The signal may still be pending when the thread changes its cancellation
/// type: a system call makes the kernel deliver the signal. If the signal is sent later, [`calls`] shows the cancellation.
pub(crate) extern "C" fn await_signal() {
    rustix::thread::sched_yield();
}

/// Makes a call that blocks. Returns `Err(BEGIN_AGAIN)` if a cancellation has ended the call, or if the thread must check for a cancellation first. A
/// thread without a record in `notes` can't be cancelled during the call.
pub(crate) fn while_blocked<T>(call: impl FnOnce() -> Result<T, c_int>) -> Result<T, c_int> {
    let Some(record) = notes::my_record() else {
        return call();
    };
    let me = Caller::current();
    let mut ended = me.take_end();
    let outer = record.note_blocked(me.address());
    let now = calls().load(Ordering::SeqCst);
    let outcome = if TESTED.replace(now) == now {
        call()
    } else {
        Err(BEGIN_AGAIN)
    };
    record.note_blocked(outer);
    let was_ended = outcome.as_ref().err() == Some(&libc::EINTR) && me.take_end();
    ended |= was_ended;
    if ended && outer != 0 {
        // This call was made by a handler that interrupted another call: the cancellation ends that call, too.
        me.end_call();
    }
    if was_ended {
        return Err(BEGIN_AGAIN);
    }
    outcome
}

/// Makes a blocking call as [`while_blocked`] does. If handlers with SA_RESTART have interrupted the call, also returns `Err(BEGIN_AGAIN)`, because
/// the kernel would restart the call. The restarted call waits after the other waiters, and reads O_NONBLOCK again.
pub(crate) fn while_blocked_or_begun_anew<T>(
    call: impl FnOnce() -> Result<T, c_int>,
) -> Result<T, c_int> {
    let handlers = Caller::current().handlers();
    match while_blocked(call) {
        Err(libc::EINTR) if handlers.are_followed_by_restarts() => Err(BEGIN_AGAIN),
        outcome => outcome,
    }
}

/// Converts an outcome to the value that a function behind a [`cancellation_point`] returns. For an errno, also sets errno.
#[inline(always)]
pub(crate) fn answer<T: From<i8>>(outcome: Result<T, c_int>) -> T {
    match outcome {
        Ok(result) => result,
        Err(BEGIN_AGAIN) => T::from(BEGIN_AGAIN as i8),
        Err(errno) => errno::fail(errno),
    }
}

/// Exports a cancellation point of libc. The exported function takes up to five arguments, or six if it never returns [`BEGIN_AGAIN`], and no
/// floating point number. It calls a Rust function with the same arguments. With `(0)` after that function's name, the exported function takes four
/// arguments, and passes 0 as the fifth (no time-out).
macro_rules! cancellation_point {
    ($(#[$doc:meta])* $name:ident => $function:ident(0), $traced:ident) => {
        $crate::cancellation::cancellation_point! { @ $(#[$doc])* $name $function $traced "xor r8d, r8d", "mov x4, xzr" }
    };
    ($(#[$doc:meta])* $name:ident => $function:ident, $traced:ident) => {
        $crate::cancellation::cancellation_point! { @ $(#[$doc])* $name $function $traced "", "" }
    };
    ($(#[$doc:meta])* $name:ident => $function:ident) => {
        $crate::cancellation::cancellation_point! { @ $(#[$doc])* $name $function $function "", "" }
    };
    (@ $(#[$doc:meta])* $name:ident $function:ident $traced:ident $x86_64:literal, $aarch64:literal) => {
        $(#[$doc])*
        #[cfg(target_arch = "x86_64")]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
                ".cfi_startproc",
                $x86_64,
                // From here on, the five arguments are on the stack, and the stack is aligned for a call.
                "push rdi",
                ".cfi_adjust_cfa_offset 8",
                "push rsi",
                ".cfi_adjust_cfa_offset 8",
                "push rdx",
                ".cfi_adjust_cfa_offset 8",
                "push rcx",
                ".cfi_adjust_cfa_offset 8",
                "push r8",
                ".cfi_adjust_cfa_offset 8",
                "cmp qword ptr [rip + {calls}], 0",
                "jne 3f",
                "call {function}",
                "cmp eax, {again}",
                "je 3f",
                ".cfi_remember_state",
                "add rsp, 40",
                ".cfi_def_cfa_offset 8",
                "ret",
                ".cfi_restore_state",
                // From here on, the stack has four more words: the type of cancellation, the result, a sixth argument, and an unused word. Only calls
                // that never begin again have a sixth argument.
                "3: sub rsp, 32",
                ".cfi_def_cfa_offset 80",
                "mov [rsp + 16], r9",
                "4: mov dword ptr [rsp], {deferred}",
                "mov rax, qword ptr [rip + {type_setter}]",
                "test rax, rax",
                "je 6f",
                "mov edi, {deferred}",
                "mov rsi, rsp",
                "call rax",
                "cmp dword ptr [rsp], {deferred}",
                "je 6f",
                "call {await_signal}",
                "6: call {test}@PLT",
                "mov r9, [rsp + 16]",
                "mov r8, [rsp + 32]",
                "mov rcx, [rsp + 40]",
                "mov rdx, [rsp + 48]",
                "mov rsi, [rsp + 56]",
                "mov rdi, [rsp + 64]",
                "call {traced}",
                "mov [rsp + 8], rax",
                "mov edi, [rsp]",
                "cmp edi, {deferred}",
                "je 5f",
                "xor esi, esi",
                "call {set_type}@PLT",
                "5: mov rax, [rsp + 8]",
                "cmp eax, {again}",
                "je 4b",
                "add rsp, 72",
                ".cfi_def_cfa_offset 8",
                "ret",
                ".cfi_endproc",
                calls = sym $crate::trace::REQUEST,
                again = const $crate::cancellation::BEGIN_AGAIN,
                deferred = const $crate::cancellation::DEFERRED,
                type_setter = sym $crate::cancellation::SET_TYPE,
                await_signal = sym $crate::cancellation::await_signal,
                test = sym $crate::cancellation::pthread_testcancel,
                set_type = sym $crate::cancellation::pthread_setcanceltype,
                function = sym $function,
                traced = sym $traced,
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
                "stp x29, x30, [sp, -80]!",
                ".cfi_def_cfa_offset 80",
                ".cfi_offset x29, -80",
                ".cfi_offset x30, -72",
                "stp x0, x1, [sp, 16]",
                "stp x2, x3, [sp, 32]",
                "str x4, [sp, 48]",
                "str x5, [sp, 72]",
                "adrp x16, {calls}",
                "ldr x16, [x16, :lo12:{calls}]",
                "cbnz x16, 3f",
                "bl {function}",
                "cmp w0, {again}",
                "b.eq 3f",
                ".cfi_remember_state",
                "ldp x29, x30, [sp], 80",
                ".cfi_def_cfa_offset 0",
                ".cfi_restore x29",
                ".cfi_restore x30",
                "ret",
                ".cfi_restore_state",
                // From here on, the type of cancellation is at offset 56 of the stack, and the result at offset 64.
                "3: mov w0, {deferred}",
                "str w0, [sp, 56]",
                "adrp x16, {type_setter}",
                "ldr x16, [x16, :lo12:{type_setter}]",
                "cbz x16, 6f",
                "add x1, sp, 56",
                "blr x16",
                "ldr w0, [sp, 56]",
                "cmp w0, {deferred}",
                "b.eq 6f",
                "bl {await_signal}",
                "6: bl {test}",
                "ldr x5, [sp, 72]",
                "ldr x4, [sp, 48]",
                "ldp x2, x3, [sp, 32]",
                "ldp x0, x1, [sp, 16]",
                "bl {traced}",
                "str x0, [sp, 64]",
                "ldr w0, [sp, 56]",
                "cmp w0, {deferred}",
                "b.eq 5f",
                "mov x1, xzr",
                "bl {set_type}",
                "5: ldr x0, [sp, 64]",
                "cmp w0, {again}",
                "b.eq 3b",
                "ldp x29, x30, [sp], 80",
                ".cfi_def_cfa_offset 0",
                ".cfi_restore x29",
                ".cfi_restore x30",
                "ret",
                ".cfi_endproc",
                calls = sym $crate::trace::REQUEST,
                again = const $crate::cancellation::BEGIN_AGAIN,
                deferred = const $crate::cancellation::DEFERRED,
                type_setter = sym $crate::cancellation::SET_TYPE,
                await_signal = sym $crate::cancellation::await_signal,
                test = sym $crate::cancellation::pthread_testcancel,
                set_type = sym $crate::cancellation::pthread_setcanceltype,
                function = sym $function,
                traced = sym $traced,
            )
        }
    };
}
pub(crate) use cancellation_point;
