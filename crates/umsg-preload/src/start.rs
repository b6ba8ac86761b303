//! The constructor, which runs when the library is loaded, before the program's main.
//!
//! No other code relies on the constructor: another library's constructor may call the drop-in earlier. The constructor only does some work early,
//! while the process has one thread and holds no locks.

use std::sync::atomic::{AtomicBool, Ordering};

/// True once the constructor has run. Like the other words that each process writes at its start, this word lies in pages that the linker writes
/// anyway.
#[unsafe(link_section = ".data.umsg")]
static DONE: AtomicBool = AtomicBool::new(false);

/// Returns whether the constructor has run. Before that, `malloc` itself may be starting.
pub(crate) fn is_done() -> bool {
    // Relaxed: the results of the constructor are read through atomics that need no ordering here.
    DONE.load(Ordering::Relaxed)
}

/// Returns whether the drop-in has seen the program's calls of hooked functions from the start. False if the program has loaded the drop-in by
/// dlopen.
pub(crate) fn saw_all() -> bool {
    // Relaxed: the results of the constructor are read through atomics that need no ordering here.
    SAW_ALL.load(Ordering::Relaxed)
}

#[unsafe(link_section = ".data.umsg")]
static SAW_ALL: AtomicBool = AtomicBool::new(false);

/// The dynamic linker runs this function when it loads the library.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = start;

#[cfg_attr(
    test,
    expect(dead_code, reason = "the test program has no constructor")
)]
extern "C" fn start() {
    match crate::chain::start() {
        true => SAW_ALL.store(true, Ordering::Relaxed),
        false => {
            crate::next::resolve_all();
            crate::hooks::dlopen::resolve();
        }
    }
    umsg_shm::reclaim::notes::start();
    crate::trace::start();
    crate::process::start();
    DONE.store(true, Ordering::Relaxed);
}
