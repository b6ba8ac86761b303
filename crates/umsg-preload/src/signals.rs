//! The program's handlers may use queues. The drop-in installs its own handler, which calls the program's handlers. If a signal arrives inside a
//! critical section of the library, the drop-in's handler defers it (`umsg::signals::defer`).
//!
//! The drop-in remembers the program's handlers (`wanted`), and installs its own handler in the kernel instead. A query for a handler returns the
//! program's handler. The drop-in installs its handler before the process first maps a queue, in place of the handlers that the program has installed
//! by a function of libc until then. The drop-in does not replace the handlers of signals that an instruction raises, because these signals can't be
//! deferred. The exception is SIGBUS, which a truncated queue file raises. For a truncated file, the drop-in's handler restores the memory, whether
//! or not the program has a handler. It passes other signals on.
//!
//! Runtimes that make system calls without libc, such as Go's, handle SIGBUS, too. If SIGBUS has a handler that no function of libc has installed,
//! the program has such a runtime. Then the drop-in asks the kernel for the handler of each signal.
//!
//! The drop-in's handler tells the library that a handler runs, and whether the program's handler has SA_RESTART. So a blocking call ends with EINTR
//! even if it did not sleep when the handler ran.
//!
//! While the drop-in's handler decides what to do, all signals are masked. Otherwise the kernel would put the frames of several signals on the stack
//! at once, and only one signal can be deferred. Before the drop-in's handler calls the program's handler, it sets the mask that the program has
//! requested.
//!
//! The drop-in does not see libc's own handlers, or handlers that a bare system call installs. If such a handler interrupts a critical section of a
//! queue and uses the same queue, its call fails with EDEADLK.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use libc::{sighandler_t, siginfo_t, sigset_t, ucontext_t};

use umsg_shm::sys::mask;

use crate::wanted::{ALL, Before, SIGNALS, Turn, before, settled, wanted};
use crate::{errno, next, process, start};

/// A handler that the program installed, called with the three arguments of SA_SIGINFO. A handler without SA_SIGINFO ignores the last two.
type Handler = unsafe extern "C" fn(c_int, *mut siginfo_t, *mut ucontext_t);

/// True once the process has begun to map its first queue.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// True if the library calls [`begin`] before it maps a queue.
static ANNOUNCED: AtomicBool = AtomicBool::new(false);

/// True if the drop-in's handler of SIGBUS is installed.
static GUARDED: AtomicBool = AtomicBool::new(false);

/// The signals for which the program may have installed a handler by a function of libc. Each signal has a bit; the lowest bit is signal 1.
#[unsafe(link_section = ".data.umsg")]
static INSTALLED: AtomicU64 = AtomicU64::new(0);

/// True if the kernel's flags of a handler may differ from the flags that the drop-in remembers.
static FLAGS_CHANGE: AtomicBool = AtomicBool::new(false);

/// Notes that siginterrupt is about to change the flags of a handler in the kernel.
pub(crate) fn flags_change() {
    // Relaxed: a handler that another thread runs at the same time has either the old or the new flags.
    FLAGS_CHANGE.store(true, Ordering::Relaxed);
}

/// Returns the current flags of the handler of a signal.
fn flags_of(signal: c_int) -> c_int {
    match FLAGS_CHANGE.load(Ordering::Relaxed) {
        false => before(signal).flags,
        true => installed(signal).map_or(libc::SA_RESTART, |installed| installed.sa_flags),
    }
}

/// The flags in which the program's action and the kernel's action differ.
const OURS: c_int = libc::SA_SIGINFO | libc::SA_RESETHAND;

/// Makes the library call [`begin`] before each mapping of a queue.
#[inline(always)]
pub(crate) fn announce() {
    // Acquire, paired with a release: a thread that skips the announcement sees its effect. Otherwise the thread might map a queue without the
    // handler.
    if !ANNOUNCED.load(Ordering::Acquire) {
        announce_slow();
    }
}

#[cold]
fn announce_slow() {
    umsg::signals::guard_mappings(begin);
    ANNOUNCED.store(true, Ordering::Release);
}

/// Replaces the program's handlers: those that are installed now, and those that are installed later.
fn begin() {
    // Acquire: pairs with the release store in `begin_slow`, which follows the installation of the handler.
    if !GUARDED.load(Ordering::Acquire) {
        begin_slow();
    }
}

#[cold]
fn begin_slow() {
    if !process::owns_table() {
        // A vfork child has its own handlers, so it installs this one for itself. The parent's handlers are replaced when the parent maps a queue.
        take_place(libc::SIGBUS);
        return;
    }
    // SeqCst: pairs with `note_installation`.
    let is_first = !BEGUN.swap(true, Ordering::SeqCst);
    // Each thread that maps a queue while another thread installs the handler also installs it: no thread may touch a mapping without the
    // handler.
    take_place(libc::SIGBUS);
    GUARDED.store(true, Ordering::Release);
    if is_first {
        let signals = candidates();
        if signals != 0 {
            // All signals are masked once here, which saves three system calls for each signal.
            let mask = mask::set(ALL);
            for signal in (1..SIGNALS as c_int).filter(|signal| signals & bit(*signal) != 0) {
                let _turn = Turn::take_while_masked(signal);
                replace(signal);
            }
            mask::set(mask);
        }
        umsg::signals::all_handlers_defer();
    }
}

/// Returns the signals that may have a handler. Must be called after the handler of SIGBUS was replaced.
fn candidates() -> u64 {
    let installed = INSTALLED.load(Ordering::SeqCst);
    let is_bus_unknown =
        installed & bit(libc::SIGBUS) == 0 && before(libc::SIGBUS).handler != libc::SIG_DFL;
    match is_bus_unknown || !start::saw_all() {
        true => u64::MAX,
        false => installed,
    }
}

fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// Notes that the program is about to install a handler by a function of libc. Either the first thread that maps a queue sees this note, or the
/// caller then sees that a queue is mapped ([`has_begun`]).
pub(crate) fn note_installation(signal: c_int) {
    if (1..SIGNALS as c_int).contains(&signal) {
        INSTALLED.fetch_or(bit(signal), Ordering::SeqCst);
    }
}

/// Returns whether the drop-in replaces the program's handlers by its own: true once the process has begun to map its first queue.
pub(crate) fn has_begun() -> bool {
    // SeqCst: see `note_installation`.
    BEGUN.load(Ordering::SeqCst)
}

/// Returns whether the drop-in's handler must replace the handler `handler`.
fn gives_way(signal: c_int, handler: sighandler_t) -> bool {
    let is_function = ![libc::SIG_DFL, libc::SIG_IGN, libc::SIG_ERR].contains(&handler);
    let is_bus_error = signal == libc::SIGBUS && handler == libc::SIG_DFL;
    (is_function || is_bus_error) && handler != entrance()
}

fn entrance() -> sighandler_t {
    enter as *const () as sighandler_t
}

/// Installs the drop-in's handler in the kernel, in place of the program's.
pub(crate) fn take_place(signal: c_int) {
    let _turn = Turn::take(signal);
    replace(signal);
}

/// Installs the drop-in's handler as [`take_place`] does, for a caller that already has the [`Turn`] of the signal.
fn replace(signal: c_int) {
    let mut found = installed(signal);
    while let Some(theirs) = found.filter(|theirs| gives_way(signal, theirs.sa_sigaction)) {
        let mut ours = theirs;
        if stand_in(signal, &mut ours).is_none() {
            return;
        }
        // libc's signal and similar functions take no turn, so they may have installed another handler meanwhile.
        found = swap(signal, &ours).filter(|replaced| replaced.sa_sigaction != theirs.sa_sigaction);
        if let Some(none) = found.filter(|found| !gives_way(signal, found.sa_sigaction)) {
            found = swap(signal, &none);
        }
    }
}

/// Installs an action, and returns the previous one.
fn swap(signal: c_int, action: &libc::sigaction) -> Option<libc::sigaction> {
    // SAFETY: the structure consists of numbers and a pointer, for which zero is valid.
    let mut replaced: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: the arguments are a signal's number, an action from libc with another handler, and a writable action.
    let outcome = unsafe { next::sigaction(signal, action, &raw mut replaced) };
    (outcome == 0).then_some(replaced)
}

fn installed(signal: c_int) -> Option<libc::sigaction> {
    let errno = errno::get();
    // SAFETY: the structure consists of numbers and a pointer, for which zero is valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: `action` is writable; nothing is installed.
    let found = unsafe { next::sigaction(signal, std::ptr::null(), &raw mut action) } == 0;
    errno::set(errno);
    found.then_some(action)
}

/// Replaces the program's handler in an action by the drop-in's, and remembers the program's handler. `None` if the action has no handler, or if the
/// drop-in does not replace the signal's handlers.
pub(crate) fn stand_in(signal: c_int, action: &mut libc::sigaction) -> Option<Before> {
    let wanted = wanted(signal).filter(|_| gives_way(signal, action.sa_sigaction))?;
    let before = before(signal);
    // Relaxed: a handler may run in any thread. The kernel stores the handler before the handler first runs, which orders this store before that
    // run.
    wanted.handler.store(action.sa_sigaction, Ordering::Relaxed);
    wanted.flags.store(action.sa_flags, Ordering::Relaxed);
    wanted
        .mask
        .store(*kernels(&mut action.sa_mask), Ordering::Relaxed);
    action.sa_sigaction = entrance();
    action.sa_flags = action.sa_flags & !OURS | libc::SA_SIGINFO;
    *kernels(&mut action.sa_mask) = ALL;
    Some(before)
}

impl Before {
    /// Returns the handler that the caller must see in place of `handler`, which the kernel returned.
    pub(crate) fn name(&self, handler: sighandler_t) -> sighandler_t {
        if handler == entrance() {
            self.handler
        } else {
            handler
        }
    }

    /// Restores the program's handler and flags in an action from the kernel.
    pub(crate) fn show(&self, action: &mut libc::sigaction) {
        if action.sa_sigaction == entrance() {
            action.sa_sigaction = self.handler;
            action.sa_flags = action.sa_flags & !OURS | self.flags & OURS;
            *kernels(&mut action.sa_mask) = self.mask;
        }
    }
}

/// The handler that the drop-in installs in the kernel.
unsafe extern "C" fn enter(signal: c_int, info: *mut siginfo_t, context: *mut ucontext_t) {
    let errno = errno::get();
    // SAFETY: the kernel passed these arguments to a handler that was installed with SA_SIGINFO.
    if unsafe { umsg::signals::mend_truncation(signal, info) } {
        errno::set(errno);
        return;
    }
    // SAFETY: the kernel passed these arguments to a handler that was installed with SA_SIGINFO.
    let put_off =
        unsafe { umsg::signals::defer_with_flags(signal, info, context, flags_of(signal)) };
    errno::set(errno);
    let Before {
        version,
        handler,
        flags,
        mask,
    } = settled(signal);
    if put_off {
        return;
    }
    if handler == libc::SIG_DFL {
        // SAFETY: the kernel passed these arguments to a handler that was installed with SA_SIGINFO.
        unsafe { end_by(signal, version, info) };
        return;
    }
    if flags & libc::SA_RESETHAND != 0 {
        reset(signal, version);
    }
    // SAFETY: the kernel made the context, and reads it again only when this handler returns.
    let interrupted = *kernels(unsafe { &mut (*context).uc_sigmask });
    let itself = if flags & libc::SA_NODEFER == 0 {
        1 << (signal - 1)
    } else {
        0
    };
    mask::set(interrupted | mask | itself);
    // SAFETY: the program installed a handler that takes these arguments, or only the first one. The calling convention treats both alike.
    unsafe {
        let handler = std::mem::transmute::<usize, Handler>(handler);
        handler(signal, info, context);
    }
}

/// Returns the part of a set of signals that the kernel knows: 64 bits, the lowest for signal 1.
fn kernels(set: &mut sigset_t) -> &mut u64 {
    // SAFETY: libc's set is an array of unsigned longs, of which the kernel uses the first 64 bits. The array is larger than 64 bits, and has the
    // same alignment.
    unsafe { &mut *std::ptr::from_mut(set).cast() }
}

/// Handles a signal for which the drop-in remembers no handler. A SIGBUS ends the process, as in the kernel. For other signals, the function does
/// nothing: the current action applies to the next signal.
///
/// # Safety
/// `info` comes from the kernel.
unsafe fn end_by(signal: c_int, version: u32, info: *const siginfo_t) {
    if signal != libc::SIGBUS {
        return;
    }
    reset(signal, version);
    // If an instruction raised the signal, the instruction raises it again. If a process sent the signal, it is sent again, and arrives when this
    // handler returns. SAFETY: by this function's contract; the system call takes no pointers.
    unsafe {
        if (*info).si_code <= 0 {
            libc::raise(signal);
        }
    }
}

/// Resets the handler (SA_RESETHAND) when it is about to run: the kernel would also reset it for a deferred signal. If a handler was installed after
/// `version` was read, that handler stays.
fn reset(signal: c_int, version: u32) {
    let turn = Turn::take(signal);
    if turn.as_ref().is_some_and(|turn| turn.version != version) {
        return;
    }
    // SAFETY: the structure consists of numbers and a pointer, for which zero is a valid value: SIG_DFL, no flags, an empty mask.
    let default: libc::sigaction = unsafe { std::mem::zeroed() };
    let errno = errno::get();
    // SAFETY: the call gets the number of a signal and an action.
    unsafe { next::sigaction(signal, &raw const default, std::ptr::null_mut()) };
    errno::set(errno);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wanted::restore;

    extern "C" fn handler(_: c_int) {}

    fn action(handler: sighandler_t, sa_flags: c_int) -> libc::sigaction {
        // SAFETY: the structure consists of numbers and a pointer, for which zero is valid.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handler;
        action.sa_flags = sa_flags;
        action
    }

    #[test]
    fn what_the_program_asked_for_is_shown_to_it() {
        let asked = handler as *const () as sighandler_t;
        let mut given = action(asked, libc::SA_RESETHAND | libc::SA_RESTART);
        assert!(stand_in(libc::SIGUSR2, &mut given).is_some());
        assert_eq!(given.sa_sigaction, entrance());
        assert_eq!(given.sa_flags, libc::SA_SIGINFO | libc::SA_RESTART);
        assert_eq!(*kernels(&mut given.sa_mask), ALL);
        before(libc::SIGUSR2).show(&mut given);
        assert_eq!(given.sa_sigaction, asked);
        assert_eq!(given.sa_flags, libc::SA_RESETHAND | libc::SA_RESTART);
        assert_eq!(*kernels(&mut given.sa_mask), 0);
    }

    #[test]
    fn what_is_no_handler_or_can_not_wait_is_left_alone() {
        for none in [libc::SIG_DFL, libc::SIG_IGN] {
            assert!(stand_in(libc::SIGUSR1, &mut action(none, 0)).is_none());
        }
        let asked = handler as *const () as sighandler_t;
        for signal in [libc::SIGSEGV, libc::SIGFPE, -1, 65] {
            assert!(stand_in(signal, &mut action(asked, 0)).is_none());
        }
    }

    #[test]
    fn a_refused_action_leaves_what_was_remembered() {
        let first = handler as *const () as sighandler_t;
        stand_in(libc::SIGWINCH, &mut action(first, 0));
        let before_second = stand_in(libc::SIGWINCH, &mut action(first + 16, libc::SA_SIGINFO));
        restore(libc::SIGWINCH, &before_second.unwrap());
        assert_eq!(before(libc::SIGWINCH).name(entrance()), first);
    }
}
