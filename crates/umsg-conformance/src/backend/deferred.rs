//! Signal handlers that tell the library at their start that they run. The library has no other way to learn that a handler runs.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Answer, Failure};
use crate::sys;

/// The function `umsg_defer_signal` of the C library, or the function of the native backend with the same declaration.
pub(crate) type Defer = unsafe extern "C" fn(c_int, *const c_void, *mut c_void) -> c_int;

/// The functions of the installed handlers, by signal.
static HANDLERS: [Functions; 65] = [const { Functions::none() }; 65];

struct Functions {
    /// The address of a [`Defer`] function.
    defer: AtomicUsize,
    /// The address of the case's handler.
    handler: AtomicUsize,
}

impl Functions {
    const fn none() -> Functions {
        Functions {
            defer: AtomicUsize::new(0),
            handler: AtomicUsize::new(0),
        }
    }
}

/// If the library must not be interrupted now, makes it defer the signal. Otherwise calls the handler of the case.
extern "C" fn enter(signal: c_int, info: *const c_void, context: *mut c_void) {
    let Functions { defer, handler } = &HANDLERS[signal as usize];
    let defer = defer.load(Ordering::Acquire);
    // SAFETY: `handle_deferred` stored this function before it installed this handler for the signal.
    let defer = unsafe { std::mem::transmute::<usize, Defer>(defer) };
    // SAFETY: these are the arguments that the kernel gave to this handler.
    if unsafe { defer(signal, info, context) } != 0 {
        return;
    }
    let handler = handler.load(Ordering::Acquire);
    // SAFETY: `handle_deferred` stored this function before it installed this handler for the signal.
    let handler = unsafe { std::mem::transmute::<usize, extern "C" fn(i32)>(handler) };
    handler(signal);
}

/// Calls `sigaction` to install a handler. The handler is deferred while the library must not be interrupted.
pub(crate) fn handle_deferred(
    defer: Defer,
    signal: i32,
    handler: extern "C" fn(i32),
    flags: i32,
) -> Answer<()> {
    let functions = &HANDLERS[signal as usize];
    functions.defer.store(defer as usize, Ordering::Release);
    functions.handler.store(handler as usize, Ordering::Release);
    // SAFETY: because the handler is installed with SA_SIGINFO, the kernel passes all three parameters of `enter`.
    let entrance =
        unsafe { std::mem::transmute::<*const (), extern "C" fn(i32)>(enter as *const ()) };
    let flags = flags | libc::SA_SIGINFO;
    sys::handle_signal(libc::sigaction, signal, entrance, flags).map_err(Failure::from)
}
