//! The namespace that this process uses.

use umsg::{Namespace, NamespaceError};

use crate::signals;

/// Returns the namespace, or the reason why there is none. After an error, the next call tries again.
pub(crate) fn namespace() -> Result<&'static Namespace, NamespaceError> {
    signals::announce();
    Namespace::of_this_process()
}
