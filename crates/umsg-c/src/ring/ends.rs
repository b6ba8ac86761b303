//! Rings: senders, and freeing rings and senders.

use std::ffi::{c_char, c_int};

use umsg::ring::Sender;

use super::Refusal;
use super::create::namespace;
use super::receiver::{self, umsg_ring};
use crate::error::{Failure, answer, fail};
use crate::pointer::{self, is_bad};

/// A sending end of a ring. Threads may share a sender.
pub struct umsg_ring_sender(Sender);

/// Frees a ring, which closes it.
///
/// From now on, sends to the ring fail with `EPIPE`. Messages that were not received are lost. Another ring may get the name of a named ring at once.
/// If a child made by fork(2) frees its copy, the ring stays open.
///
/// After the call, no thread may use the ring, its descriptor, or the payloads of its messages.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EBADF`: `ring` is NULL, or can't be the address of a ring.
/// - `EBUSY`: a call that receives from the ring has not returned yet: the ring stays.
///
/// # If the process dies
/// The system frees the rings of the dead process; senders get an error that says that the owner is dead.
///
/// # See also
/// umsg_ring_close(3), umsg_ring_create(3), umsg_ring_sender_free(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_ring_free(ring: *mut umsg_ring) -> c_int {
    // SAFETY: the caller promises a ring that no other code uses any more.
    let freed = unsafe { receiver::free(ring) };
    answer(freed.map(|()| 0).map_err(Failure::from))
}

/// Makes a sender of a ring of this process.
///
/// Threads may share a sender, and a child made by fork(2) may use the senders of its parent. The receiver distinguishes senders by their tags
/// (umsg_ring_tag(3)).
///
/// The sender may still be used after the ring was freed, and has to be freed, too.
///
/// # Return value
/// On success, the call returns the sender. On error, NULL is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EBADF`: `ring` is NULL, or can't be the address of a ring.
///
/// # If the process dies
/// The system frees the sender of the dead process.
///
/// # See also
/// umsg_ring_create(3), umsg_ring_open(3), umsg_ring_send(3), umsg_ring_sender_free(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_ring_sender_of(ring: *mut umsg_ring) -> *mut umsg_ring_sender {
    // SAFETY: the caller promises a ring.
    let sender = unsafe { receiver::look(ring) }.map(|ring| ring.sender.clone());
    made(sender.map_err(Failure::from))
}

/// Opens the ring of a name for sending.
///
/// The call looks for the ring in the namespace that umsg_mq_open(3) describes. The ring has its name from umsg_ring_create(3) until
/// umsg_ring_free(3).
///
/// # Return value
/// On success, the call returns a sender. On error, NULL is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EACCES`: the ring's mode does not let the caller send, the name has a second slash, or the namespace is not trusted. umsg_last_error(3) tells
///   the reason.
/// - `EBADMSG`: the ring's file is corrupted.
/// - `EFAULT`: `name` is at an address that can't be read.
/// - `EINVAL`: `name` does not begin with a slash, or the file of this name is not a ring, or belongs to another version of umsg.
/// - `EMFILE`, `ENFILE`: the process or the system has no free descriptor. The call needs one while it opens the ring.
/// - `ENAMETOOLONG`: `name` has more than 255 bytes after its slash.
/// - `ENOENT`: no ring has this name; or `UMSG_DIR` names a directory that does not exist.
/// - `ENOMEM`: there is no memory, or no address space to map the ring.
/// - `ENOTEMPTY`: the directory that `UMSG_DIR` names is not a namespace and holds other files, so that it can't become one.
///
/// # If the process dies
/// The system frees the sender of the dead process.
///
/// # See also
/// umsg_ring_create(3), umsg_ring_open_in(3), umsg_ring_send(3), umsg_ring_sender_free(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_ring_open(name: *const c_char) -> *mut umsg_ring_sender {
    // SAFETY: the caller promises a string.
    made(unsafe { open(std::ptr::null(), name) })
}

/// Opens the ring of a name for sending, in a namespace.
///
/// Does the same as umsg_ring_open(3) in the namespace `directory`, instead of the namespace that the environment selects.
///
/// # Return value
/// On success, the call returns a sender. On error, NULL is returned, and errno is set to indicate the error.
///
/// # Errors
/// The errors of umsg_ring_open(3), and these errors of the directory:
///
/// - `EFAULT`: `directory` is at an address that can't be read.
/// - `ELOOP`, `ENOTDIR`: `directory` is a symbolic link, or not a directory.
/// - `ENOTEMPTY`: `directory` is not a namespace and holds other files, so that it can't become one.
///
/// # If the process dies
/// The system frees the sender of the dead process.
///
/// # See also
/// umsg_ring_open(3), umsg_ring_sender_free(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_ring_open_in(
    directory: *const c_char,
    name: *const c_char,
) -> *mut umsg_ring_sender {
    let opened = pointer::check(directory, "directory").and_then(|()| {
        // SAFETY: the caller promises two strings.
        unsafe { open(directory, name) }
    });
    made(opened)
}

/// Creates another sender of the same ring, with its own tag.
///
/// The receiver distinguishes the two senders (umsg_ring_tag(3)). Both senders have to be freed.
///
/// # Return value
/// On success, the call returns the new sender. On error, NULL is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EBADF`: `sender` is NULL, or can't be the address of a sender.
///
/// # If the process dies
/// The system frees the sender of the dead process.
///
/// # See also
/// umsg_ring_open(3), umsg_ring_sender_of(3), umsg_ring_tag(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_ring_sender_clone(
    sender: *mut umsg_ring_sender,
) -> *mut umsg_ring_sender {
    // SAFETY: the caller promises a sender.
    let sender = unsafe { self::sender(sender) }.cloned();
    made(sender.map_err(Failure::from))
}

/// Frees a sender.
///
/// The messages that it sent stay in the ring. After the call, no thread may use the sender.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EBADF`: `sender` is NULL, or can't be the address of a sender.
///
/// # If the process dies
/// The system frees the sender of the dead process.
///
/// # See also
/// umsg_ring_open(3), umsg_ring_sender_of(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_ring_sender_free(sender: *mut umsg_ring_sender) -> c_int {
    if is_bad(sender) {
        return answer(Err(Refusal::NoSender.into()));
    }
    // SAFETY: `made` has made the pointer with `Box::into_raw`, and the caller promises that no other code uses it any more.
    drop(unsafe { Box::from_raw(sender) });
    0
}

/// # Safety
/// `directory` is NULL or a string, `name` is a string, or they are addresses that a pointer check refuses.
unsafe fn open(directory: *const c_char, name: *const c_char) -> Result<Sender, Failure> {
    // SAFETY: by this function's contract.
    let (name, namespace) = unsafe { (pointer::text(name, "name")?, namespace(directory)?) };
    Ok(Sender::open_in(&namespace, name).map_err(Refusal::from)?)
}

/// Returns the address of a new sender, or NULL after a failure.
fn made(sender: Result<Sender, Failure>) -> *mut umsg_ring_sender {
    match sender {
        Ok(sender) => Box::into_raw(Box::new(umsg_ring_sender(sender))),
        Err(failure) => {
            fail(failure);
            std::ptr::null_mut()
        }
    }
}

/// Returns the sender at an address that the program passed.
///
/// # Safety
/// `sender` comes from one of the functions that make senders and is not freed while the result is used, or is an address that
/// [`is_bad`] refuses.
#[inline]
pub(super) unsafe fn sender<'a>(sender: *const umsg_ring_sender) -> Result<&'a Sender, Refusal> {
    if is_bad(sender) {
        return Err(Refusal::NoSender);
    }
    // SAFETY: by this function's contract.
    Ok(unsafe { &(*sender).0 })
}
