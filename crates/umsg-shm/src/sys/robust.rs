//! The calling thread's robust list head in the kernel.
//!
//! A thread has one head. libc registers its own head for robust mutexes, and this library must never replace it: the program's mutexes would lose
//! their marks.
//!
//! If a sandbox refuses get_robust_list(2), the library finds libc's head through a robust mutex that the thread holds, which points to the head. The
//! library then registers the same head again. This registration has no effect, but shows whether set_robust_list(2) is permitted. musl registers its
//! head with a thread's first robust mutex, so the search makes musl register it.
//!
//! | get_robust_list | libc's head | set_robust_list | the head |
//! |---|---|---|---|
//! | a head | - | - | that one |
//! | none, or refused | found | allowed | libc's |
//! | none | not found | allowed | the library's own |
//! | refused | not found | - | none |
//! | none, or refused | - | refused | none |

use crate::kernel;
use rustix::io::Errno;
use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

/// `struct robust_list_head` of linux/futex.h.
#[repr(C)]
pub(crate) struct Head {
    list: Cell<*mut Head>,
    pub(crate) futex_offset: Cell<libc::c_long>,
    pub(crate) list_op_pending: Cell<*mut u8>,
}

impl Head {
    /// Makes a head that is not a list yet: an empty list points to itself.
    pub(crate) const fn new() -> Head {
        Head {
            list: Cell::new(null_mut()),
            futex_offset: Cell::new(0),
            list_op_pending: Cell::new(null_mut()),
        }
    }
}

/// Returns the calling thread's registered head: libc's, or else `own`, which must live as long as the thread.
///
/// # Errors
/// The errno of set_robust_list(2). If libc's head could not be found, the errno of get_robust_list(2).
pub(crate) fn registered(own: &Head) -> Result<*const Head, Errno> {
    if cfg!(miri) {
        return Ok(own);
    }
    let asked = ask();
    if let Ok(head) = asked
        && !head.is_null()
    {
        return Ok(head);
    }
    let head = match (of_libc(), asked) {
        (Some(head), _) => head,
        (None, Ok(_)) => {
            own.list.set((&raw const *own).cast_mut());
            own
        }
        (None, Err(errno)) => return Err(errno),
    };
    register(head).map(|()| head)
}

/// Returns the head that get_robust_list(2) reports for the calling thread; null if no head is registered.
fn ask() -> Result<*const Head, Errno> {
    let mut head: *const Head = std::ptr::null();
    let mut length = 0_usize;
    let pointers = [
        (&raw mut head).expose_provenance(),
        (&raw mut length).expose_provenance(),
    ];
    let arguments = [0, pointers[0], pointers[1], 0, 0, 0];
    // SAFETY: pid 0 is the calling thread; both pointers are to locals that the kernel fills.
    match unsafe { kernel::call(libc::SYS_get_robust_list, arguments) } {
        Ok(_) if length == size_of::<Head>() => Ok(head),
        Ok(_) => Ok(std::ptr::null()),
        Err(errno) => Err(Errno::from_raw_os_error(errno)),
    }
}

/// Registers the current head again, which changes nothing. Returns an error if the call is refused.
///
/// # Safety
/// `head` is the calling thread's head in the kernel.
pub(crate) unsafe fn register_again(head: *const Head) -> Result<(), Errno> {
    match cfg!(miri) {
        true => Ok(()),
        false => register(head),
    }
}

/// Registers a head for the calling thread. `head` is a well-formed list in storage that lives as long as the thread.
fn register(head: *const Head) -> Result<(), Errno> {
    let arguments = [head.expose_provenance(), size_of::<Head>(), 0, 0, 0, 0];
    // SAFETY: the kernel keeps the address as long as the thread lives. The caller promises that the list lives as long as the thread.
    match unsafe { kernel::call(libc::SYS_set_robust_list, arguments) } {
        Ok(_) => Ok(()),
        Err(errno) => Err(Errno::from_raw_os_error(errno)),
    }
}

/// Returns libc's head of the calling thread. The head is in libc's descriptor of the thread, at the same offset for all threads.
fn of_libc() -> Option<*const Head> {
    /// The distance from pthread_self(3) to the head, in bytes; 0 until it is known.
    static DISTANCE: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: the call has no preconditions.
    let this = unsafe { libc::pthread_self() } as usize;
    // Relaxed: the number publishes no other data. Two threads, or a thread and its signal handler, may compute the number at once, with the same
    // result.
    let mut distance = DISTANCE.load(Ordering::Relaxed);
    if distance == 0 {
        distance = head_of_held_mutex()?.wrapping_sub(this);
        DISTANCE.store(distance, Ordering::Relaxed);
    }
    Some(std::ptr::with_exposed_provenance(
        this.wrapping_add(distance),
    ))
}

/// Returns the address of the head, which libc writes into a robust mutex while the calling thread holds the mutex. Returns None if libc has no
/// robust mutexes: glibc has none if its own set_robust_list(2) was refused. The function allocates nothing, and makes a system call only in musl.
fn head_of_held_mutex() -> Option<usize> {
    if cfg!(not(target_pointer_width = "64")) {
        return None;
    }
    let mutex = UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER);
    let mut attributes = MaybeUninit::uninit();
    let attributes = attributes.as_mut_ptr();
    // SAFETY: the attributes are initialised before they are used and destroyed after it. The mutex is initialised where it stays,
    // is known to no other thread, is locked once and unlocked once, and is destroyed before its memory is released.
    unsafe {
        let is_robust = libc::pthread_mutexattr_init(attributes) == 0
            && libc::pthread_mutexattr_setrobust(attributes, libc::PTHREAD_MUTEX_ROBUST) == 0
            && libc::pthread_mutex_init(mutex.get(), attributes) == 0
            && libc::pthread_mutexattr_destroy(attributes) == 0;
        if !is_robust || libc::pthread_mutex_trylock(mutex.get()) != 0 {
            return None;
        }
        let head = head_in(&mutex);
        libc::pthread_mutex_unlock(mutex.get());
        libc::pthread_mutex_destroy(mutex.get());
        head
    }
}

/// Returns the field `__prev` of the robust mutex that was locked last, if it is a head that leads to the mutex.
///
/// In glibc and in musl a mutex has `__prev` at byte 24 and `__next` at byte 32, and the list leads to `__next`.
/// Sources: glibc, nptl/descr.h, ENQUEUE_MUTEX; musl, src/thread/pthread_mutex_trylock.c.
fn head_in(mutex: &UnsafeCell<libc::pthread_mutex_t>) -> Option<usize> {
    const PREVIOUS: usize = 24;
    const NEXT: usize = 32;
    let base = mutex.get().cast::<u8>();
    // SAFETY: the read is inside the mutex and aligned for a pointer, because in both libcs a mutex has at least 40 bytes and is aligned to 8.
    let previous = unsafe { base.add(PREVIOUS).cast::<*const Head>().read() };
    if previous.is_null() || !previous.is_aligned() {
        return None;
    }
    // SAFETY: libc has just linked the mutex after the entry to which `previous` points. That entry is aligned and begins with a pointer.
    let first = unsafe { previous.cast::<*const u8>().read() };
    // The lowest bit marks a mutex with priority inheritance.
    let leads_here = first.addr() & !1 == base.addr() + NEXT;
    leads_here.then(|| previous.expose_provenance())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "there is no robust list")]
    fn the_head_that_a_held_mutex_leads_to_is_the_one_that_the_kernel_has() {
        let of_this_thread = || assert_eq!(of_libc(), ask().ok());
        of_this_thread();
        std::thread::spawn(of_this_thread).join().unwrap();
    }
}
