//! unshare, setns and clone: a process that moves to another IPC namespace of the kernel gets other queues of umsg, too ([`umsg::ipc`]).
//!
//! The kernel moves only the calling thread; umsg moves the whole process.

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

    /// Moves the calling thread to the namespace of a descriptor, or to the namespaces of a process.
    fn [setns](fd: c_int, kind: c_int) -> c_int {
        next => match kind {
            0 => moving(false, || next(fd, kind)),
            kind if kind & libc::CLONE_NEWIPC != 0 => moving(false, || next(fd, kind)),
            kind => next(fd, kind),
        }
    }
}

/// Makes a system call that may move the process to another IPC namespace, and then makes this library follow the move.
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

/// Sets an environment variable for the programs that this process starts: it tells them to which IPC namespace the directory of queues belongs. Does
/// nothing if `umsg run` has set the variable.
fn name_home() {
    if let Some((name, value)) =
        ipc::variable().filter(|(name, _)| std::env::var_os(name).is_none())
    {
        // SAFETY: as with setenv(3), the program must ensure that no other thread reads the environment during a move to another namespace.
        unsafe { std::env::set_var(name, value) };
    }
}

/// The function that a child must run, and its argument.
struct Child {
    run: extern "C" fn(*mut c_void) -> c_int,
    argument: *mut c_void,
}

/// Starts a child that runs a function, on a stack of the caller.
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
        // SAFETY: the caller has made the promises that libc's clone requires.
        return unsafe { next::clone(run, stack, flags, argument, parent, tls, child) };
    }
    roomy(name_home);
    // SAFETY: the caller promises a function that takes an address.
    let run =
        unsafe { std::mem::transmute::<*const c_void, extern "C" fn(*mut c_void) -> c_int>(run) };
    let started = Box::new(Child { run, argument });
    let started = std::ptr::from_ref(&*started).cast_mut();
    let start = start as extern "C" fn(*mut c_void) -> c_int;
    // SAFETY: the caller has made the promises that libc's clone requires. The child gets a copy of this memory.
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
    // SAFETY: the address is that of the structure in `clone`, in the child's copy of the memory.
    let Child { run, argument } = unsafe { child.cast::<Child>().read() };
    // The child does not call `ipc::Used::leave`, because the parent is still in the namespace that the child has left. The value is forgotten,
    // because the child must not call free: another thread of the parent may have been in malloc at the fork.
    std::mem::forget(home::after_move(true));
    run(argument)
}
