//! The namespace that this process uses, found out once: it stays the same through setuid, chdir and changes of the
//! environment, as an IPC namespace does.

use std::sync::atomic::{AtomicPtr, Ordering};

use umsg::{Namespace, NamespaceError};

/// Not a `OnceLock`: a child forked while another thread fills one would wait for that thread for ever.
static FOUND: AtomicPtr<Namespace> = AtomicPtr::new(std::ptr::null_mut());

/// The namespace, or why there is none; then the next call looks again.
pub(crate) fn namespace() -> Result<&'static Namespace, NamespaceError> {
    // Acquire: pairs with the release below.
    let mut found = FOUND.load(Ordering::Acquire);
    if found.is_null() {
        found = keep(Namespace::resolve()?);
    }
    // SAFETY: not null, so it came from `keep`, which never frees what it published.
    Ok(unsafe { &*found })
}

fn keep(namespace: Namespace) -> *mut Namespace {
    let fresh = Box::into_raw(Box::new(namespace));
    match FOUND.compare_exchange(
        std::ptr::null_mut(),
        fresh,
        Ordering::Release,
        Ordering::Acquire,
    ) {
        Ok(_) => fresh,
        Err(first) => {
            // SAFETY: another thread was first; ours comes from Box::into_raw and was seen by nobody.
            drop(unsafe { Box::from_raw(fresh) });
            first
        }
    }
}
