//! The signal SIGBUS, which the kernel raises if a page of a queue's file is not available.
//!
//! | cause | result |
//! |---|---|
//! | a process truncates the file, and the page lies behind its end | handled |
//! | the page is a hole (it was never used, or was punched out), and the file system or its quota has no room for it | handled |
//! | the file system, or swap, can't read or write the page: a disk, FUSE, or a network file system under `UMSG_DIR` | handled |
//! | the page's memory is broken (BUS_MCEERR_AR) | not handled: the machine has failed, and the process ends |
//! | the file lies on hugetlbfs, and its pool is empty | not handled: the kernel can't replace a part of a large page |
//! | the thread blocks SIGBUS | not handled: the kernel ends the process without calling a handler |
//! | a memory control group has no memory left | no SIGBUS: the kernel kills a process of the group, and a repair follows |
//!
//! *Handled* means: in this process, a page of zeroes replaces the page. The call and every later call on this queue fail
//! with `Damaged` (EBADMSG). Other processes are not affected. A system call on such a page fails with EFAULT and raises no
//! signal.
//!
//! The header is read with pread(2) before the file is mapped. The drop-in and the command install their handler of SIGBUS before the first mapping
//! ([`guard_mappings`]). A program that uses the library or the C library has to request that: it calls [`catch_truncation`], or [`mend_truncation`]
//! in its own handler. Without these calls, each of these causes ends the process.

use std::io;
use std::sync::OnceLock;
use umsg_shm::sys::cut;

/// The kernel's code for an access to a page that the file does not have.
const BUS_ADRERR: i32 = 2;

/// Sets a function that runs before each mapping of a queue's file. The function makes sure that a handler of SIGBUS is installed before the first
/// access to a queue's memory. Programs use this if they install handlers only together with queues.
///
/// ```no_run
/// fn guard() {
///     // Installs a handler that calls `mend_truncation` for SIGBUS.
/// }
/// umsg::signals::guard_mappings(guard);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn guard_mappings(guard: fn()) {
    cut::guard_by(guard);
}

/// Handles a SIGBUS that a truncated queue's file has raised. Returns whether the handler has to return at once: the thread accessed a page that
/// the file no longer has. The call on the queue, and every later call of this process on that queue, then fails with
/// `Damaged` (EBADMSG).
///
/// Call this function first in a handler of SIGBUS.
///
/// ```no_run
/// extern "C" fn on_sigbus(signal: i32, info: *const libc::siginfo_t, _: *const libc::c_void) {
///     // SAFETY: a handler with SA_SIGINFO got these from the kernel.
///     if !unsafe { umsg::signals::mend_truncation(signal, info) } {
///         std::process::abort();
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Safety
/// `info` is the argument that the kernel gave to the running handler, which was installed with SA_SIGINFO.
#[must_use]
pub unsafe fn mend_truncation(signal: i32, info: *const libc::siginfo_t) -> bool {
    if signal != libc::SIGBUS {
        return false;
    }
    // SAFETY: by this function's own contract. If the code is BUS_ADRERR, the union holds an address.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    code == BUS_ADRERR && cut::mend(address)
}

static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Turns the truncation of a queue's file into an error (`Damaged`, EBADMSG) of the calls that touch the file. Without this call
/// a truncated file ends the process.
///
/// The function installs a handler of SIGBUS. If a signal does not concern a queue's file, the handler passes it to the handler that was installed
/// before. A handler that is installed later replaces this handler, and should call [`mend_truncation`] first. The drop-in and
/// the command call this function themselves. Call it before the first queue is opened.
///
/// The handler also covers a page that is not available for another reason. The file system or its quota may have no room for a
/// page that was never used or was punched out of the file. Or the file system can't read or write the page.
///
/// A thread that blocks SIGBUS is not protected: the kernel kills the process. A process whose memory is broken (BUS_MCEERR_AR),
/// or whose queue lies on hugetlbfs, is not protected either.
///
/// ```no_run
/// // Once, before other threads install handlers for SIGBUS.
/// umsg::signals::catch_truncation()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The error of sigaction(2).
pub fn catch_truncation() -> io::Result<()> {
    if BEFORE.get().is_some() {
        return Ok(());
    }
    // SAFETY: `sigaction` consists of numbers and pointers, for which zero is a value.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: `before` is writable; nothing is installed yet.
    if unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut before) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if BEFORE.set(before).is_err() {
        return Ok(());
    }
    let mut ours = before;
    ours.sa_sigaction = on_sigbus as *const () as usize;
    ours.sa_flags |= libc::SA_SIGINFO | libc::SA_ONSTACK;
    // A previous handler with SA_RESETHAND is reset to the default at its first signal; see `on_sigbus`.
    ours.sa_flags &= !libc::SA_RESETHAND;
    // SAFETY: the handler has the signature that SA_SIGINFO asks for, and touches nothing that a signal could interrupt.
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    cut::note_handler();
    Ok(())
}

extern "C" fn on_sigbus(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the arguments come from the kernel.
    if unsafe { mend_truncation(signal, info) } {
        return;
    }
    let Some(before) = BEFORE.get() else { return };
    match before.sa_sigaction {
        // SAFETY: the arguments come from the kernel.
        libc::SIG_DFL | libc::SIG_IGN => unsafe { pass_to_default(before.sa_sigaction, info) },
        handler => {
            if before.sa_flags & libc::SA_RESETHAND != 0 {
                install_default();
            }
            // SAFETY: the program installed a handler with this signature, or with only the first argument; the calling convention treats both
            // alike.
            unsafe {
                let handler = std::mem::transmute::<
                    usize,
                    extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void),
                >(handler);
                handler(signal, info, context);
            }
        }
    }
}

/// Acts as the kernel does without a handler: ignores a signal from a process if the disposition is to ignore it; otherwise ends the
/// process.
///
/// # Safety
/// The caller meets the conditions of [`mend_truncation`].
unsafe fn pass_to_default(before: usize, info: *const libc::siginfo_t) {
    // SAFETY: by this function's contract.
    let was_sent = unsafe { (*info).si_code } <= 0;
    if was_sent && before == libc::SIG_IGN {
        return;
    }
    install_default();
    if was_sent {
        // The signal is blocked until this handler returns, and then takes effect. An instruction that raised the signal raises it again by itself.
        // SAFETY: the system call takes only numbers.
        unsafe { libc::raise(libc::SIGBUS) };
    }
}

fn install_default() {
    // SAFETY: the structure consists of numbers and pointers, for which zero is valid: the default action.
    let default: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: the action is valid.
    unsafe { libc::sigaction(libc::SIGBUS, &raw const default, std::ptr::null_mut()) };
}
