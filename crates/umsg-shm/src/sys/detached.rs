//! Detached threads, started by pthread_create(3).
//!
//! A thread that the standard library starts takes a lock of that library first. fork(2) copies this lock as it is. So if a thread of the parent was
//! just starting, each new thread of the child would wait for ever.

use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

/// Starts a thread, which inherits the signal mask of the caller. The thread has this name, of at most 15 bytes, and a stack of this number of bytes.
/// Without a name, the thread has the name of the caller. Without a size, the stack has the program's default size. Returns false if no thread can be
/// started.
///
/// # If the process dies
/// The thread ends with the process. A forked child does not have the thread.
#[must_use]
pub fn start<W: FnOnce() + Send + 'static>(
    name: Option<&'static CStr>,
    stack: Option<usize>,
    work: W,
) -> bool {
    if cfg!(miri) {
        // Miri lets only the standard library set the attributes of a thread, and has no fork.
        return std::thread::Builder::new().spawn(work).is_ok();
    }
    let job = Box::into_raw(Box::new(Job { name, work }));
    // A program with much thread-local memory needs a larger stack, because libc takes this memory from the stack.
    let is_started = create(job, stack) || (stack.is_some() && create(job, None));
    if !is_started {
        // SAFETY: the pointer came from `into_raw`, and no thread has it.
        drop(unsafe { Box::from_raw(job) });
    }
    is_started
}

struct Job<W> {
    name: Option<&'static CStr>,
    work: W,
}

/// Starts a thread that does the job. If the result is true, the thread owns the job, otherwise the caller still owns it.
fn create<W: FnOnce() + Send + 'static>(job: *mut Job<W>, stack: Option<usize>) -> bool {
    let mut attributes = MaybeUninit::uninit();
    let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
    // SAFETY: the attributes are initialised before they are used, and destroyed once. `run::<W>` has the signature that pthread_create calls, and
    // `job` came from `Box::into_raw` with this `W`: the thread owns it if the result is 0.
    unsafe {
        if libc::pthread_attr_init(attributes.as_mut_ptr()) != 0 {
            return false;
        }
        let attributes = attributes.as_mut_ptr();
        let is_set = libc::pthread_attr_setdetachstate(attributes, libc::PTHREAD_CREATE_DETACHED)
            == 0
            && stack.is_none_or(|size| libc::pthread_attr_setstacksize(attributes, size) == 0);
        let is_started = is_set
            && libc::pthread_create(thread.as_mut_ptr(), attributes, run::<W>, job.cast()) == 0;
        libc::pthread_attr_destroy(attributes);
        is_started
    }
}

extern "C" fn run<W: FnOnce() + Send + 'static>(job: *mut c_void) -> *mut c_void {
    // SAFETY: `start` has made the pointer of a box with this type, and has given it to this thread.
    let Job { name, work } = *unsafe { Box::from_raw(job.cast::<Job<W>>()) };
    if let Some(name) = name {
        // SAFETY: the name ends with a zero byte.
        unsafe { libc::pthread_setname_np(libc::pthread_self(), name.as_ptr()) };
    }
    // In a build that unwinds, a panic ends the thread and not the program.
    let _ = catch_unwind(AssertUnwindSafe(work));
    ptr::null_mut()
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_thread_runs_with_its_name_and_a_panic_ends_only_the_thread() {
        let (tell, told) = mpsc::channel();
        let panics = || panic!("as intended");
        assert!(start(None, None, panics));
        let work = move || {
            let comm = std::fs::read_to_string("/proc/thread-self/comm");
            tell.send(comm.unwrap_or_default()).unwrap();
        };
        assert!(start(Some(c"umsg-test"), Some(64 << 10), work));
        let name = told.recv().unwrap();
        assert_eq!(name, "umsg-test\n");
    }

    #[test]
    fn a_stack_of_a_size_that_is_refused_has_the_default_size() {
        let (tell, told) = mpsc::channel();
        assert!(start(None, Some(1), move || tell.send(()).unwrap()));
        told.recv().unwrap();
    }
}
