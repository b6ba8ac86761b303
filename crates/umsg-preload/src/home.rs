//! The namespace that this process uses.

use umsg::{Namespace, NamespaceError};

use crate::signals;

/// The namespace, or why there is none; then the next call looks again.
pub(crate) fn namespace() -> Result<&'static Namespace, NamespaceError> {
    signals::announce();
    Namespace::of_this_process()
}
