//! The namespace of a process, for calls that don't name a namespace.

use super::{Namespace, NamespaceError};
use umsg_shm::reclaim::Published;

static FOUND: Published<Namespace> = Published::nothing();

impl Namespace {
    /// Returns the namespace that this process uses. The first call determines the namespace. Like an IPC namespace, it stays the same after setuid,
    /// chdir and changes of the environment. When the process moves to another IPC namespace, its namespace is determined again, see `ipc.rs`.
    ///
    /// # Errors
    /// The errors of [`Namespace::resolve`]. After an error, the next call tries again.
    #[doc(hidden)]
    #[inline]
    pub fn of_this_process() -> Result<&'static Namespace, NamespaceError> {
        FOUND.get_or_find(Namespace::resolve)
    }

    /// Makes the next call determine the namespace again, because the process has moved to another IPC namespace.
    pub(super) fn forget_of_this_process() {
        FOUND.forget();
    }

    /// Returns the namespace that this process uses, if it was determined before.
    #[doc(hidden)]
    #[inline]
    #[must_use]
    pub fn known_of_this_process() -> Option<&'static Namespace> {
        FOUND.get_or_find(|| Err(())).ok()
    }
}
