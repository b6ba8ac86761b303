//! SIGBUS: a page of a queue's file can't be had.
//!
//! | cause | result |
//! |---|---|
//! | a process cuts the file short, and the page lies behind its end | mended |
//! | the page is a hole, never used or punched, and the file system or its quota has no room for it | mended |
//! | the file system, or swap, can't read or write the page: a disk, FUSE, or a network file system under `UMSG_DIR` | mended |
//! | the page's memory is broken (BUS_MCEERR_AR) | not mended: the machine has failed, and the process ends |
//! | the file lies on hugetlbfs, and its pool is empty | not mended: the kernel replaces no part of a large page |
//! | the thread blocks SIGBUS | not mended: the kernel ends the process without asking a handler |
//! | a memory control group has no memory left | no SIGBUS: the kernel kills a process of the group, and a repair follows |
//!
//! *Mended* means: in this process a page of zeroes takes the page's place, the call fails with `Damaged` (EBADMSG), and so does
//! every later call on this queue. Other processes are not affected. A system call on such a page fails with EFAULT and raises no
//! signal.
//!
//! The header is read with pread(2) before the file is mapped. The drop-in and the command mend from before the first mapping
//! on ([`guard_mappings`]). A program that uses the library or the C library decides for itself: without [`catch_truncation`],
//! or a call of [`mend_truncation`] in its own handler, each of these causes ends the process.

use std::io;
use std::sync::OnceLock;
use umsg_shm::sys::cut;

/// The kernel's word for "the file has no such page".
const BUS_ADRERR: i32 = 2;

/// From now on `guard` is called before each mapping of a queue's file: it makes sure that a handler of SIGBUS is installed, so that no
/// access to a queue's memory comes before its handler. For programs that install handlers only if they use queues at all.
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

/// To be called first in a handler of SIGBUS: answers whether the handler has to return at once, because a queue's file was cut
/// short and what was touched was a page that it does not have any more. The call on the queue then fails with
/// `Damaged` (EBADMSG), and so does every later one in this process.
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
/// `info` is what the kernel gave to the running handler, which was installed with SA_SIGINFO.
pub unsafe fn mend_truncation(signal: i32, info: *const libc::siginfo_t) -> bool {
    if signal != libc::SIGBUS {
        return false;
    }
    // SAFETY: by this function's own contract. With this code, the union holds an address.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    code == BUS_ADRERR && cut::mend(address)
}

static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// From now on a queue's file that is cut short is an error of the calls that touch it (`Damaged`, EBADMSG), and does not
/// kill the process. Installs a handler of SIGBUS, which passes on what is not umsg's to the handler that was installed
/// before. One that is installed later takes its place, and should call [`mend_truncation`] first. The drop-in and
/// the command do this by themselves. Call it before the first queue is opened.
///
/// The same is done where a page can't be had for another reason: the file system or its quota has no room for a page that was never used or
/// was punched out of the file, or can't read or write it.
///
/// A thread that blocks SIGBUS is not protected: the kernel kills the process. Neither is a process whose memory is broken (BUS_MCEERR_AR),
/// or whose queue lies on hugetlbfs.
///
/// ```no_run
/// // Once, before other threads install handlers for SIGBUS.
/// umsg::signals::catch_truncation()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// What sigaction(2) says.
pub fn catch_truncation() -> io::Result<()> {
    if BEFORE.get().is_some() {
        return Ok(());
    }
    // SAFETY: numbers and pointers, for which zero is a value.
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
    // One that ends with its first signal is put back when that comes.
    ours.sa_flags &= !libc::SA_RESETHAND;
    // SAFETY: the handler has the signature that SA_SIGINFO asks for, and touches nothing that a signal could interrupt.
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

extern "C" fn on_sigbus(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: what the kernel gave to this handler.
    if unsafe { mend_truncation(signal, info) } {
        return;
    }
    let Some(before) = BEFORE.get() else { return };
    match before.sa_sigaction {
        // SAFETY: what the kernel gave to this handler.
        libc::SIG_DFL | libc::SIG_IGN => unsafe { pass_to_default(before.sa_sigaction, info) },
        handler => {
            if before.sa_flags & libc::SA_RESETHAND != 0 {
                install_default();
            }
            // SAFETY: the program installed a handler of this signature, or of its first argument only, which the
            // calling convention makes the same.
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

/// What the kernel does without a handler: a signal that a process sent is ignored if it was to be; else the process ends.
///
/// # Safety
/// As for [`mend_truncation`].
unsafe fn pass_to_default(before: usize, info: *const libc::siginfo_t) {
    // SAFETY: by this function's contract.
    let was_sent = unsafe { (*info).si_code } <= 0;
    if was_sent && before == libc::SIG_IGN {
        return;
    }
    install_default();
    if was_sent {
        // It is blocked until this handler returns. An instruction that raised it does so again.
        // SAFETY: a system call on numbers.
        unsafe { libc::raise(libc::SIGBUS) };
    }
}

fn install_default() {
    // SAFETY: numbers and pointers, for which zero is a value: the default action.
    let default: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a valid action.
    unsafe { libc::sigaction(libc::SIGBUS, &raw const default, std::ptr::null_mut()) };
}
