//! The namespace that this process uses.

use umsg::{Namespace, NamespaceError, ipc};
use umsg_shm::sys::stack::roomy;

use crate::hooks::stream;
use crate::{kept, mqueue, process, signals, vacated};

/// Returns the namespace of this process, or the reason why there is none. After an error, the next call tries again.
pub(crate) fn namespace() -> Result<&'static Namespace, NamespaceError> {
    signals::announce();
    Namespace::of_this_process()
}

/// If a system call that libc does not make created this process in another IPC namespace, makes the next call determine the namespace again.
#[inline(always)]
pub(crate) fn notice_child() {
    if process::is_unnoticed_child() {
        look_at_child();
    }
}

#[cold]
fn look_at_child() {
    if process::owns_table() && ipc::has_moved() {
        // This function does not call `ipc::Used::leave`, because the parent is still in the old IPC namespace. The value is forgotten, because a
        // forked child must not call free.
        std::mem::forget(after_move(true));
    }
}

/// Gives up the files that the process keeps for its next queues. The caller is about to move to another IPC namespace.
pub(crate) fn before_move() {
    roomy(|| {
        kept::for_each(vacated::give_up);
        umsg::sysv::raw::give_up_kept();
    });
}

/// Makes the next call determine the namespace again, because the process has moved to another IPC namespace. Open descriptors still refer to their
/// queues. Identifiers of System V queues now refer to queues of the new namespace. Returns the directory of the IPC namespace that the process has
/// left.
pub(crate) fn after_move(is_new: bool) -> Option<ipc::Used> {
    let used = ipc::note_move(is_new);
    umsg::sysv::raw::forget_all();
    kept::forget_all();
    mqueue::forget_directory();
    used
}

/// The dynamic linker runs this function at the end of the process, after the functions of atexit(3), which may use queues.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = leave;

#[cfg_attr(test, expect(dead_code, reason = "the test program has no destructor"))]
extern "C" fn leave() {
    stream::settle_at_exit();
    if ipc::has_followed() && process::owns_table() {
        roomy(ipc::leave_at_exit);
    }
}
