//! A stack of the library's own, for calls that need more than a small thread has left.
//!
//! POSIX lets a thread have a stack of 16 KiB (PTHREAD_STACK_MIN), and a call of the kernel's takes next to none of it. Paths and
//! errors take several kilobytes. Calls that are not in a hurry (opening, removing, attaching) therefore run here.
//!
//! All signals are masked meanwhile, apart from those that an instruction raises: a handler of the program's may need any amount of stack,
//! may leave by siglongjmp, or may tell a garbage collector where the thread's stack ends. The thread can't be cancelled either: that
//! unwinds the stack. So `work` must not wait for long.
//!
//! Nothing changes, and `work` runs on the thread's own stack, where no memory can be had, or where the thread is in a handler on an
//! alternate stack: for the kernel the thread would have left that stack, and the next handler would overwrite the first one's.

use super::map::PAGE;
use super::mask::Masked;
use super::valgrind::{StackId, deregister_stack, register_stack};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use std::any::Any;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Bytes, with the page below that nothing may touch.
const LEN: usize = 256 * 1024;

/// Bytes at a stack's end that no call uses, as many as keep the stack aligned. valgrind's number of the stack lies there.
const LABEL: usize = 16;

/// One stack is kept for the next call. A forked child has it as a copy.
static SPARE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    /// Whether the thread is on a stack of ours. No signal handler of the program's runs meanwhile.
    static IS_HERE: Cell<bool> = const { Cell::new(false) };
}

/// Does `work`, which takes a moment at most, where there is enough stack for it.
pub fn roomy<T>(work: impl FnOnce() -> T) -> T {
    if cfg!(miri) || IS_HERE.get() || is_on_alternate() {
        return work();
    }
    let _uncancelled = Uncancelled::begin();
    let _masked = Masked::all();
    match Stack::take() {
        Some(stack) => stack.run(work),
        None => work(),
    }
}

/// The thread can't be cancelled until this is dropped.
struct Uncancelled {
    before: c_int,
}

const PTHREAD_CANCEL_DISABLE: c_int = 1;

unsafe extern "C" {
    /// Not in the libc crate.
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

impl Uncancelled {
    fn begin() -> Uncancelled {
        let mut before = 0;
        // SAFETY: a state that there is, and a local to write to.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut before) };
        Uncancelled { before }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        let mut disabled = 0;
        // SAFETY: the state that the thread had, and a local to write to.
        unsafe { pthread_setcancelstate(self.before, &raw mut disabled) };
    }
}

fn is_on_alternate() -> bool {
    // SAFETY: numbers and a pointer, for which zero is a value.
    let mut alternate: libc::stack_t = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills a local; nothing is installed.
    let done = unsafe { libc::sigaltstack(std::ptr::null(), &raw mut alternate) } == 0;
    !done || alternate.ss_flags & libc::SS_ONSTACK != 0
}

/// The lowest byte of a stack that is the caller's alone.
struct Stack(*mut c_void);

impl Stack {
    fn take() -> Option<Stack> {
        // Acquire: whoever put it back is done with it.
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
        // SAFETY: the first page of what was mapped just now, which nothing uses.
        unsafe { rustix::mm::mprotect(base, PAGE, MprotectFlags::empty()) }.ok()?;
        let id = register_stack(base, base.wrapping_byte_add(LEN - 1));
        // SAFETY: within what was mapped just now, aligned as a page is, and nobody else's.
        unsafe { stack.label().write(id) };
        Some(stack)
    }

    fn label(&self) -> *mut StackId {
        self.0.wrapping_byte_add(LEN - LABEL).cast()
    }

    fn run<T, F: FnOnce() -> T>(&self, work: F) -> T {
        let mut job = Job {
            work: Some(work),
            outcome: None,
        };
        IS_HERE.set(true);
        // SAFETY: the stack is mapped, ours alone, and its end is aligned to 16 bytes; `perform` is given the job of its types, which
        // outlives the call, and does not unwind.
        unsafe {
            switch((&raw mut job).cast(), self.label().cast(), perform::<F, T>);
        }
        IS_HERE.set(false);
        match job.outcome {
            Some(Ok(done)) => done,
            Some(Err(panic)) => resume_unwind(panic),
            None => unreachable!("the job was done"),
        }
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
            // SAFETY: written by `map`; nobody uses the stack any more.
            deregister_stack(unsafe { self.label().read() });
            // SAFETY: what `map` has mapped.
            let _ = unsafe { rustix::mm::munmap(self.0, LEN) };
        }
    }
}

struct Job<F, T> {
    work: Option<F>,
    outcome: Option<Result<T, Box<dyn Any + Send>>>,
}

/// # Safety
/// `job` is a `Job<F, T>`, which nothing else uses meanwhile.
unsafe extern "C" fn perform<F: FnOnce() -> T, T>(job: *mut c_void) {
    // SAFETY: by this function's contract.
    let job = unsafe { &mut *job.cast::<Job<F, T>>() };
    if let Some(work) = job.work.take() {
        job.outcome = Some(catch_unwind(AssertUnwindSafe(work)));
    }
}

/// Calls `perform` with `job` on the stack that ends at `end`, and comes back to this one.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn switch(
    job: *mut c_void,
    end: *mut c_void,
    perform: unsafe extern "C" fn(*mut c_void),
) {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, rsi",
        "call rdx",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}

/// Calls `perform` with `job` on the stack that ends at `end`, and comes back to this one.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn switch(
    job: *mut c_void,
    end: *mut c_void,
    perform: unsafe extern "C" fn(*mut c_void),
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

/// Calls `perform` with `job`, on the same stack: of other processors nothing is known.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe extern "C" fn switch(
    job: *mut c_void,
    _end: *mut c_void,
    perform: unsafe extern "C" fn(*mut c_void),
) {
    // SAFETY: by this function's contract.
    unsafe { perform(job) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The address of something on the stack.
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
        assert!(!IS_HERE.get());
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
