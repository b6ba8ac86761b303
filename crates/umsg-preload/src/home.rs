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
        found = keep(find()?);
    }
    // SAFETY: not null, so it came from `keep`, which never frees what it published.
    Ok(unsafe { &*found })
}

/// The directory that the environment names, also for a program that has changed its user since it was started: what
/// the library asks, whether the user ids differ now, is meant for setuid programs, and these preload nothing.
fn find() -> Result<Namespace, NamespaceError> {
    match std::env::var_os("UMSG_DIR").filter(|directory| !directory.is_empty()) {
        Some(directory) if !was_started_setuid() => Namespace::at(directory),
        _ => Namespace::resolve(),
    }
}

fn was_started_setuid() -> bool {
    // SAFETY: reads what the kernel told the program at its start.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
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
