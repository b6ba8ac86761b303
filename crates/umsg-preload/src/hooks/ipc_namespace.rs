//! unshare, setns and clone: a process that moves to another IPC namespace of the kernel has other queues of umsg, too ([`umsg::ipc`]).
//!
//! The kernel moves a thread, and umsg the process.

use std::ffi::{c_int, c_void};

use umsg::ipc;
use umsg_shm::sys::stack::roomy;

use crate::{errno, home, next};

hooks! {
    /// Moves the calling thread to new namespaces.
    fn [unshare](flags: c_int) -> c_int {
        next => match flags & libc::CLONE_NEWIPC {
            0 => next(flags),
            _ => moving(true, || next(flags)),
        }
    }

    /// Moves the calling thread to the namespace of a descriptor, or to those of a process.
    fn [setns](fd: c_int, kind: c_int) -> c_int {
        next => match kind {
            0 => moving(false, || next(fd, kind)),
            kind if kind & libc::CLONE_NEWIPC != 0 => moving(false, || next(fd, kind)),
            kind => next(fd, kind),
        }
    }
}

/// Makes a call that may move the process to another IPC namespace.
#[cold]
fn moving(is_new: bool, call: impl FnOnce() -> c_int) -> c_int {
    if !roomy(ipc::is_followed) {
        return call();
    }
    let before = ipc::present();
    roomy(name_home);
    home::before_move();
    let outcome = call();
    let errno = errno::get();
    if outcome == 0 && ipc::present() != before {
        roomy(|| home::after_move(is_new).map(ipc::Used::leave));
    }
    errno::set(errno);
    outcome
}

/// Tells the programs that this one starts to which IPC namespace its directory belongs, unless `umsg run` has told it.
fn name_home() {
    if let Some((name, value)) =
        ipc::variable().filter(|(name, _)| std::env::var_os(name).is_none())
    {
        // SAFETY: programs that move are not reading the environment in another thread, as with setenv(3).
        unsafe { std::env::set_var(name, value) };
    }
}

/// The function that a child runs, with its argument.
struct Child {
    run: extern "C" fn(*mut c_void) -> c_int,
    argument: *mut c_void,
}

/// Starts a child that runs a function, on a stack of the caller's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn clone(
    run: *const c_void,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent: usize,
    tls: usize,
    child: usize,
) -> c_int {
    let moves = flags & libc::CLONE_NEWIPC != 0 && flags & libc::CLONE_VM == 0;
    if !moves || run.is_null() || !roomy(ipc::is_followed) {
        // SAFETY: the caller's promises to libc's clone are handed on.
        return unsafe { next::clone(run, stack, flags, argument, parent, tls, child) };
    }
    roomy(name_home);
    // SAFETY: the caller promises a function that takes an address.
    let run =
        unsafe { std::mem::transmute::<*const c_void, extern "C" fn(*mut c_void) -> c_int>(run) };
    let started = Box::new(Child { run, argument });
    let started = std::ptr::from_ref(&*started).cast_mut();
    let start = start as extern "C" fn(*mut c_void) -> c_int;
    // SAFETY: as above. The child has a copy of this memory.
    unsafe {
        next::clone(
            start as *const c_void,
            stack,
            flags,
            started.cast(),
            parent,
            tls,
            child,
        )
    }
}

extern "C" fn start(child: *mut c_void) -> c_int {
    // SAFETY: the structure of `clone`, in the child's copy of its memory.
    let Child { run, argument } = unsafe { child.cast::<Child>().read() };
    // The parent is in that namespace. Nothing is freed: another thread of the parent may have been in malloc.
    std::mem::forget(home::after_move(true));
    run(argument)
}
