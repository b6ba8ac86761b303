//! The library's own stack, for calls that need more stack than a thread with a small stack has.
//!
//! POSIX permits threads with stacks of 16 KiB (PTHREAD_STACK_MIN), and a call of the kernel takes almost none of it. Paths and errors take
//! several kilobytes. So slow calls (opening, removing, attaching) run on this stack.
//!
//! While a call runs on the library's stack, all signals are masked, except those that an instruction raises. There are three reasons: a handler of
//! the program may need any amount of stack, may leave by siglongjmp, or may pass the end of the thread's stack to a garbage collector. The thread
//! also can't be cancelled, because a cancellation unwinds the stack.
//!
//! Work that waits leaves the stack for the wait, by [`away`]. The thread sleeps on its own stack with its previous mask, and handlers run on that
//! stack as in any other call. A thread that holds a lock, or has masked signals for another reason, stays on the library's stack.
//!
//! During the wait, too, the thread can't be cancelled. If a handler leaves a wait by siglongjmp, the call's descriptors and the stack leak, and
//! cancellation stays disabled.
//!
//! Work runs on the thread's own stack in two cases: there is no memory for the library's stack, or the thread is in a handler on an alternate stack.
//! In the second case the kernel would assume that the thread has left the alternate stack, and the next handler would overwrite the frames of the
//! first handler.

use super::map::PAGE;
use super::mask::{self, Masked};
use super::thread;
use super::valgrind::{StackId, deregister_stack, register_stack};
use crate::kernel;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use std::any::Any;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

/// The length of the library's stack in bytes, with the guard page.
const LEN: usize = 256 * 1024;

/// The number of bytes at the end of a stack that no call uses, a multiple of the alignment. These bytes hold the id that valgrind gives to the
/// stack.
const LABEL: usize = 16;

/// The stack that is kept for the next call; null if there is none. A forked child has a copy of it.
static SPARE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    /// The state for the return to the thread's own stack; None if the thread does not run on the library's stack. While the thread runs on the
    /// library's stack, no signal handler of the program runs.
    static WAY_BACK: Cell<Option<WayBack>> = const { Cell::new(None) };
}

/// Runs `work` on the library's stack, which is large enough. Uses the thread's own stack in the cases that the module lists.
pub fn roomy<T>(work: impl FnOnce() -> T) -> T {
    if cfg!(miri) || WAY_BACK.get().is_some() || is_on_alternate() {
        return here(work);
    }
    let _uncancelled = Uncancelled::begin();
    let masked = Masked::all();
    match Stack::take() {
        Some(stack) => stack.run(masked.before(), work),
        None => here(work),
    }
}

/// Runs `work` on the current stack. This function is not inlined: otherwise the frame of its caller would be as large as that of `work`, even if
/// `work` runs on another stack.
#[inline(never)]
fn here<T>(work: impl FnOnce() -> T) -> T {
    work()
}

/// Waits on the thread's own stack, with the signal mask from before [`roomy`]. The function changes neither stack nor mask if the thread runs on its
/// own stack, is in a critical section, or has masked signals for another reason.
pub(crate) fn away<T>(wait: impl FnOnce() -> T) -> T {
    match WAY_BACK.get() {
        Some(back) if mask::depth() == 1 && !thread::current().critical.is_open() => {
            back.take(wait)
        }
        _ => wait(),
    }
}

/// Sleeps for `time`, on the thread's own stack ([`away`]).
pub fn nap(time: Duration) {
    away(|| std::thread::sleep(time));
}

/// The state of a thread before it changed to the library's stack.
#[derive(Clone, Copy)]
struct WayBack {
    /// The lowest used address of the thread's own stack.
    home: *mut c_void,
    mask: u64,
}

impl WayBack {
    fn take<T>(self, wait: impl FnOnce() -> T) -> T {
        // This store comes first: if a handler leaves the wait by siglongjmp, the thread is on its own stack from then on.
        WAY_BACK.set(None);
        let job = Job::new(|_| mask::lifted_to(self.mask, wait));
        // SAFETY: `home` is the place at which the thread has left its own stack, and is aligned to 16 bytes. All memory above it belongs to frames
        // that wait for this call.
        let done = unsafe { job.run_on(self.home) };
        WAY_BACK.set(Some(self));
        done.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// Runs `work`. Meanwhile the thread can't be cancelled: a cancellation would unwind Rust's frames.
pub fn uncancelled<T>(work: impl FnOnce() -> T) -> T {
    let _uncancelled = Uncancelled::begin();
    work()
}

/// Keeps the thread from being cancelled until this value is dropped.
struct Uncancelled {
    before: c_int,
}

const PTHREAD_CANCEL_DISABLE: c_int = 1;

unsafe extern "C" {
    /// The function of libc; the libc crate does not declare it.
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

impl Uncancelled {
    fn begin() -> Uncancelled {
        let mut before = 0;
        // SAFETY: the arguments are a valid state and a local to which the call writes.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut before) };
        Uncancelled { before }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        let mut disabled = 0;
        // SAFETY: the arguments are the state that the thread had and a local to which the call writes.
        unsafe { pthread_setcancelstate(self.before, &raw mut disabled) };
    }
}

fn is_on_alternate() -> bool {
    // SAFETY: the structure consists of numbers and a pointer, for which zero is valid.
    let mut alternate: libc::stack_t = unsafe { std::mem::zeroed() };
    let arguments = [0, (&raw mut alternate).expose_provenance(), 0, 0, 0, 0];
    // SAFETY: the kernel fills a local of this function, and installs nothing.
    let done = unsafe { kernel::call(libc::SYS_sigaltstack, arguments) }.is_ok();
    !done || alternate.ss_flags & libc::SS_ONSTACK != 0
}

/// A stack that only the caller uses: the address of its lowest byte.
struct Stack(*mut c_void);

impl Stack {
    fn take() -> Option<Stack> {
        // Acquire: the thread that put the stack back has finished its use.
        let spare = SPARE.swap(std::ptr::null_mut(), Ordering::Acquire);
        match spare.is_null() {
            true => Stack::map(),
            false => Some(Stack(spare)),
        }
    }

    fn map() -> Option<Stack> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::STACK;
        // SAFETY: the kernel chooses the address, so no existing mapping is replaced.
        let base =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), LEN, access, flags) }.ok()?;
        let stack = Stack(base);
        // SAFETY: nothing uses the first page of the new mapping.
        unsafe { rustix::mm::mprotect(base, PAGE, MprotectFlags::empty()) }.ok()?;
        let id = register_stack(base, base.wrapping_byte_add(LEN - 1));
        // SAFETY: the label lies within the new mapping, whose address only this function has, and is aligned to a page.
        unsafe { stack.label().write(id) };
        Some(stack)
    }

    fn label(&self) -> *mut StackId {
        self.0.wrapping_byte_add(LEN - LABEL).cast()
    }

    /// Runs `work` on this stack. `mask` is the signal mask of the waits in `work`.
    fn run<T>(&self, mask: u64, work: impl FnOnce() -> T) -> T {
        let job = Job::new(|home| {
            WAY_BACK.set(Some(WayBack { home, mask }));
            work()
        });
        // SAFETY: the stack is mapped, only this job uses it, and its end is aligned to 16 bytes.
        let done = unsafe { job.run_on(self.label().cast()) };
        WAY_BACK.set(None);
        done.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // Release: pairs with the acquire in `take`.
        let kept = SPARE.compare_exchange(
            std::ptr::null_mut(),
            self.0,
            Ordering::Release,
            Ordering::Relaxed,
        );
        if kept.is_err() {
            // SAFETY: `map` wrote the label, and no thread uses the stack any more.
            deregister_stack(unsafe { self.label().read() });
            // SAFETY: `map` has made the mapping.
            let _ = unsafe { rustix::mm::munmap(self.0, LEN) };
        }
    }
}

/// Work for another stack. `work` gets the lowest used address of the caller's stack.
struct Job<F, T> {
    work: Option<F>,
    outcome: Option<Result<T, Box<dyn Any + Send>>>,
}

impl<T, F: FnOnce(*mut c_void) -> T> Job<F, T> {
    fn new(work: F) -> Job<F, T> {
        Job {
            work: Some(work),
            outcome: None,
        }
    }

    /// # Safety
    /// `end` is an address in a stack, aligned to 16 bytes; no other code uses the stack below it meanwhile.
    unsafe fn run_on(mut self, end: *mut c_void) -> std::thread::Result<T> {
        // SAFETY: this function's contract covers the stack. `perform` gets a job with its own types, which outlives the call. `perform` does not
        // unwind.
        unsafe { switch((&raw mut self).cast(), end, perform::<F, T>) };
        self.outcome.expect("the job was done")
    }
}

/// # Safety
/// `job` is a `Job<F, T>`, which no other code uses meanwhile.
unsafe extern "C" fn perform<F: FnOnce(*mut c_void) -> T, T>(job: *mut c_void, from: *mut c_void) {
    // SAFETY: by this function's contract.
    let job = unsafe { &mut *job.cast::<Job<F, T>>() };
    if let Some(work) = job.work.take() {
        job.outcome = Some(catch_unwind(AssertUnwindSafe(|| work(from))));
    }
}

/// Calls `perform` with `job` and the end of this stack, on the stack that ends at `end`, and returns to this stack.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn switch(
    job: *mut c_void,
    end: *mut c_void,
    perform: unsafe extern "C" fn(*mut c_void, *mut c_void),
) {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, rsi",
        "mov rsi, rbp",
        "call rdx",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}

/// Calls `perform` with `job` and the end of this stack, on the stack that ends at `end`, and returns to this stack.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn switch(
    job: *mut c_void,
    end: *mut c_void,
    perform: unsafe extern "C" fn(*mut c_void, *mut c_void),
) {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, -16]!",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset x29, -16",
        ".cfi_offset x30, -8",
        "mov x29, sp",
        ".cfi_def_cfa_register x29",
        "mov sp, x1",
        "mov x1, x29",
        "blr x2",
        "mov sp, x29",
        ".cfi_def_cfa_register sp",
        "ldp x29, x30, [sp], 16",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "ret",
        ".cfi_endproc",
    )
}

/// Calls `perform` on the current stack: for other processors, the code that changes the stack does not exist.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe extern "C" fn switch(
    job: *mut c_void,
    _end: *mut c_void,
    perform: unsafe extern "C" fn(*mut c_void, *mut c_void),
) {
    // SAFETY: by this function's contract.
    unsafe { perform(job, std::ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an address on the stack.
    #[inline(never)]
    fn here() -> usize {
        let local = std::hint::black_box(0_u8);
        std::ptr::from_ref(&local).addr()
    }

    #[test]
    #[cfg_attr(miri, ignore = "it has no assembly")]
    fn work_runs_on_another_stack_and_its_answer_comes_back() {
        let own = here();
        let (there, within) = roomy(|| (here(), roomy(here)));
        assert!(there.abs_diff(own) > LEN / 2 && there.abs_diff(within) < LEN);
        assert!(here().abs_diff(own) < LEN / 2);
        let text = roomy(|| (0..100).map(|n| n.to_string()).collect::<String>());
        assert_eq!(text.len(), 190);
    }

    #[test]
    fn a_panic_goes_on_where_the_work_was_wanted() {
        let panic = std::panic::catch_unwind(|| roomy(|| panic!("of the work")));
        assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"of the work"));
        assert!(WAY_BACK.get().is_none());
    }

    /// The stack address of the last handler, 0 for none.
    static HANDLED_AT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

    extern "C" fn note_where(_: c_int) {
        HANDLED_AT.store(here(), Ordering::Relaxed);
    }

    fn is_handled() -> bool {
        HANDLED_AT.load(Ordering::Relaxed) != 0
    }

    /// Sends `signal` to this thread, whose handler runs as soon as the mask permits it.
    fn interrupt() {
        let handler = note_where as extern "C" fn(c_int);
        HANDLED_AT.store(0, Ordering::Relaxed);
        // SAFETY: the handler only stores a number. The test has no other use for the signal, and sends it to this thread.
        unsafe {
            libc::signal(libc::SIGWINCH, handler as libc::sighandler_t);
            libc::pthread_kill(libc::pthread_self(), libc::SIGWINCH);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "it has no signals")]
    fn a_handler_runs_on_the_threads_own_stack_while_work_waits() {
        let word = std::sync::atomic::AtomicU32::new(0);
        let own = here();
        let waits: [&dyn Fn(); 2] = [&|| nap(Duration::from_millis(1)), &|| {
            let soon = crate::sys::clock::Deadline::after(Duration::from_millis(1));
            crate::sys::futex::wait(&word, 0, soon);
        }];
        for wait in waits {
            roomy(|| {
                interrupt();
                assert!(!is_handled(), "no handler runs on this stack");
                {
                    let _masked = Masked::all();
                    wait();
                    assert!(!is_handled(), "the work has masked it, too");
                }
                let me = thread::current();
                me.critical.enter();
                wait();
                assert!(!is_handled(), "the work is in a critical section");
                me.critical.leave();
                wait();
                assert!(is_handled());
                assert!(HANDLED_AT.load(Ordering::Relaxed).abs_diff(own) < LEN / 2);
                assert!(here().abs_diff(own) > LEN / 2, "back on the other stack");
                interrupt();
                assert!(!is_handled(), "masked again");
            });
            assert!(is_handled());
        }
    }

    #[test]
    fn a_panic_of_a_wait_goes_on_in_the_work() {
        let outcome = roomy(|| {
            let waited = std::panic::catch_unwind(|| away(|| panic!("of the wait")));
            (waited.is_err(), mask::depth(), away(|| roomy(|| 7)))
        });
        let depth = if cfg!(miri) { 0 } else { 1 };
        assert_eq!(outcome, (true, depth, 7));
        assert!(WAY_BACK.get().is_none() && mask::depth() == 0);
    }

    #[test]
    fn threads_at_once_have_a_stack_each() {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for round in 0..200_u32 {
                        let numbers = roomy(|| std::hint::black_box([round; 1000]));
                        assert!(numbers.iter().all(|&number| number == round));
                    }
                });
            }
        });
    }
}
