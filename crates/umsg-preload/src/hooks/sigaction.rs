//! sigaction, signal and similar functions: the drop-in's handler calls the handlers of the program, see [`signals`].

use std::ffi::c_int;

use libc::sighandler_t;

use crate::{next, process, signals, wanted};

/// Installs a handler, and returns the previous one.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: the caller makes the promises that libc's sigaction requires.
    unsafe { exchange(signal, new, old) }
}

/// Installs a handler, as `sigaction` does.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn __sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: the caller makes the promises that libc's sigaction requires.
    unsafe { exchange(signal, new, old) }
}

/// # Safety
/// The conditions of libc's sigaction.
unsafe fn exchange(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    if !is_ours_to_change() {
        // SAFETY: by this function's contract.
        return unsafe { exchange_as_it_is(signal, new, old) };
    }
    let _turn = wanted::Turn::take(signal);
    let before = wanted::before(signal);
    // SAFETY: by this function's contract. libc, too, reads `new` without a check.
    let mut action = unsafe { new.as_ref() }.copied();
    let replaced = match &mut action {
        Some(action) => signals::stand_in(signal, action),
        None => None,
    };
    let new = action.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: by this function's contract.
    let outcome = unsafe { next::sigaction(signal, new, old) };
    if outcome != 0 {
        replaced
            .iter()
            .for_each(|replaced| wanted::restore(signal, replaced));
    // SAFETY: by this function's contract. The call has filled `old`.
    } else if let Some(old) = unsafe { old.as_mut() } {
        before.show(old);
    }
    outcome
}

/// Makes the call in libc without a change. Used before the process opens its first queue, and in a vfork child.
///
/// # Safety
/// The conditions of libc's sigaction.
unsafe fn exchange_as_it_is(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    if !new.is_null() {
        signals::note_installation(signal);
    }
    // SAFETY: by this function's contract.
    let outcome = unsafe { next::sigaction(signal, new, old) };
    // SAFETY: by this function's contract. The call has filled `old`.
    if let Some(old) = unsafe { old.as_mut() }.filter(|_| outcome == 0) {
        wanted::before(signal).show(old);
    }
    // If another thread has opened the process's first queue during the call, the drop-in's handler must replace this handler, too.
    if !new.is_null() && is_ours_to_change() {
        signals::take_place(signal);
    }
    outcome
}

/// Returns whether the drop-in replaces the program's handlers. In a vfork child, it does not: the child has its own handlers in the kernel, but its
/// parent's memory.
fn is_ours_to_change() -> bool {
    signals::has_begun() && process::owns_table()
}

/// Installs a handler by a function that takes only the handler, and returns the previous handler.
fn install(signal: c_int, call: impl FnOnce() -> sighandler_t) -> sighandler_t {
    signals::note_installation(signal);
    let before = wanted::before(signal);
    let old = call();
    if old != libc::SIG_ERR && is_ours_to_change() {
        signals::take_place(signal);
    }
    before.name(old)
}

hooks! {
    /// Installs a handler with the flags of BSD.
    fn [signal, bsd_signal, ssignal](signal: c_int, handler: sighandler_t) -> sighandler_t {
        next => install(signal, || next(signal, handler))
    }

    /// Installs a handler with the flags of System V.
    fn [sysv_signal, __sysv_signal](signal: c_int, handler: sighandler_t) -> sighandler_t {
        next => install(signal, || next(signal, handler))
    }

    /// Installs a handler or blocks the signal, like System V's function of this name.
    fn [sigset](signal: c_int, handler: sighandler_t) -> sighandler_t {
        next => install(signal, || next(signal, handler))
    }
}

/// Changes SA_RESTART of the installed handler.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn siginterrupt(signal: c_int, interrupts: c_int) -> c_int {
    signals::flags_change();
    // SAFETY: the caller makes the promises that libc's siginterrupt requires.
    unsafe { next::siginterrupt(signal, interrupts) }
}
