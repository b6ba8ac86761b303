//! The namespace of a process, for faces whose calls don't name one.

use super::{Namespace, NamespaceError};
use umsg_shm::reclaim::Published;

static FOUND: Published<Namespace> = Published::nothing();

impl Namespace {
    /// The namespace that this process uses, found out once: it stays the same through setuid, chdir and changes of the
    /// environment, as an IPC namespace does.
    ///
    /// # Errors
    /// Those of [`Namespace::resolve`]; then the next call looks again.
    #[doc(hidden)]
    #[inline]
    pub fn of_this_process() -> Result<&'static Namespace, NamespaceError> {
        FOUND.get_or_find(Namespace::resolve)
    }

    /// The namespace that this process uses, if it was found out before.
    #[doc(hidden)]
    #[inline]
    #[must_use]
    pub fn known_of_this_process() -> Option<&'static Namespace> {
        FOUND.get_or_find(|| Err(())).ok()
    }
}
