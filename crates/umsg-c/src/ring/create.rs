//! Rings: creating a ring.

use std::ffi::c_char;

use libc::size_t;
use umsg::Namespace;
use umsg::ring::{Options, Waiting};

use super::Refusal;
use super::receiver::umsg_ring;
use crate::error::{Failure, fail};
use crate::pointer;
use crate::waiting;

/// The options of umsg_ring_create. A member of 0 or NULL means the default.
///
/// Initialise the structure by `struct umsg_ring_options options = {.size = sizeof options};` and set further members by name, because a later
/// version of the library may have more members.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct umsg_ring_options {
    /// sizeof(struct umsg_ring_options). The library learns from this size which members the program knows.
    pub size: size_t,
    /// The name by which other processes find the ring, a slash and up to 255 bytes; NULL for a ring without a name.
    pub name: *const c_char,
    /// The directory that is the namespace of the ring. NULL for the namespace that umsg_mq_open uses, and for a ring without a name.
    pub directory: *const c_char,
    /// The number of messages that the ring holds without overflow; 0 for 1,024.
    pub entries: u32,
    /// The capacity of the overflow, in messages; 0 for 65,536, UMSG_RING_NO_OVERFLOW for no overflow. The overflow uses memory only for messages
    /// that it holds.
    pub overflow: u32,
    /// The longest payload, in bytes; 0 for 64, which is also the minimum.
    pub longest: u32,
    /// Permission bits of a ring with a name, before the umask: write permission allows sending; 0 for 0600.
    pub mode: u32,
    /// UMSG_RING_DISABLED or 0.
    pub flags: u32,
    /// The way in which the receiver waits: one of UMSG_WAITING_ADAPTIVE (the default), UMSG_WAITING_BLOCKING and
    /// UMSG_WAITING_SPINNING.
    pub waiting: u32,
}

/// The value of `overflow` for a ring without overflow.
pub const UMSG_RING_NO_OVERFLOW: u32 = 4_294_967_295;
/// The value of `flags` for a ring that refuses senders until umsg_ring_enable.
pub const UMSG_RING_DISABLED: u32 = 1;

/// The size of `umsg_ring_options` in its first version, and its maximum size in any version.
const SIZES: std::ops::RangeInclusive<size_t> = 48..=4096;

/// Creates a ring. The caller is its only receiver.
///
/// Any number of threads and processes post messages to a ring. The owner of the ring, the process that created it, receives them in order of
/// arrival. `options` may be NULL, for the defaults.
///
/// A ring without a name is for the threads of the process and the children that it makes by fork(2). A ring with a name belongs to a
/// namespace, as umsg_mq_open(3) describes; umsg_ring_free(3) removes the name. A new ring replaces a ring of that name whose owner has
/// died.
///
/// Only one thread at a time may receive. The ring is not a descriptor; umsg_ring_descriptor(3) returns a descriptor on which a program can wait. A
/// program that was compiled with an older `umsg.h` has a shorter structure; the missing members have their defaults. If a program was compiled with
/// a newer `umsg.h` and uses a member that this version of the library does not know, the call fails.
///
/// # Return value
/// On success, the call returns the ring. On error, NULL is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `E2BIG`: a member that this version of the library does not know is not 0.
/// - `EACCES`: the name has a second slash, or the namespace is not trusted, or the caller may not write to it. umsg_last_error(3) tells the reason.
/// - `EBUSY`: a ring has this name, and its owner lives.
/// - `EFAULT`: `options` or one of its texts is at an address that can't be read.
/// - `EFBIG`: the ring's file would be longer than the process's limit for files (`RLIMIT_FSIZE`).
/// - `EINVAL`: `size` is not the size of any version of the structure; `entries` and `overflow` are together more than 1,048,576; `flags` or
///   `waiting` has no valid value; `name` does not begin with a slash, or is only a slash; or `directory` is set and `name` is not.
/// - `ELOOP`, `ENOTDIR`: `directory` is a symbolic link, or not a directory.
/// - `EMFILE`, `ENFILE`: the process or the system has no descriptor left. A ring keeps one or two.
/// - `ENAMETOOLONG`: `name` has more than 255 bytes after its slash.
/// - `ENOENT`: `UMSG_DIR` names a directory that does not exist.
/// - `ENOMEM`: there is no memory, or no address space to map the ring.
/// - `ENOSPC`: the namespace has as many bytes as its limits allow, or its file system is full.
/// - `ENOTEMPTY`: `directory` is not a namespace and holds other files, so that it can't become one.
///
/// # If the process dies
/// If the process dies during the creation, there is either no ring or a complete ring. After the creation, the senders of the ring get an error that
/// says that the owner is dead. A send gets the error within ten milliseconds, and a sender that waits for room within a tenth of a second. The name
/// stays until another ring takes it, or umsg_ring_unlink(3) removes it.
///
/// # See also
/// umsg_ring_free(3), umsg_ring_open(3), umsg_ring_receive(3), umsg_ring_sender_of(3), umsg_ring_wait(3), umsg(1)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_ring_create(options: *const umsg_ring_options) -> *mut umsg_ring {
    // SAFETY: the caller promises NULL or a structure as long as its first member says.
    unsafe { create(options) }.unwrap_or_else(|failure| {
        fail(failure);
        std::ptr::null_mut()
    })
}

/// # Safety
/// `options` is NULL, or a structure whose first member is its length and whose texts are NULL or strings, or an address that a pointer
/// check refuses.
unsafe fn create(options: *const umsg_ring_options) -> Result<*mut umsg_ring, Failure> {
    // SAFETY: by this function's contract.
    let Some(given) = (unsafe { read(options)? }) else {
        let ring = Options::new().create().map_err(Refusal::from)?;
        return Ok(umsg_ring::new(ring));
    };
    let waiting = waiting::of(given.waiting.cast_signed())?;
    let options = prepared(&given)?;
    let ring = match given.name.is_null() {
        true if !given.directory.is_null() => {
            return Err(Failure::Invalid(
                "the member `directory` is set, but the ring has no name: set the member `name`, or leave `directory` NULL",
            ));
        }
        true => options.create(),
        false => {
            // SAFETY: by this function's contract.
            let (name, namespace) = unsafe {
                let name = pointer::text(given.name, "name")?;
                (name, namespace(given.directory)?)
            };
            options.create_in(&namespace, name)
        }
    };
    let ring = ring.map_err(Refusal::from)?;
    set(&ring, waiting);
    Ok(umsg_ring::new(ring))
}

fn set(ring: &umsg::ring::Ring, waiting: Waiting) {
    if waiting != Waiting::default() {
        ring.set_waiting(waiting);
    }
}

fn prepared(given: &umsg_ring_options) -> Result<Options, Failure> {
    if given.flags & !UMSG_RING_DISABLED != 0 {
        return Err(Failure::Invalid("flags must be 0 or UMSG_RING_DISABLED"));
    }
    let mut options = Options::new();
    options.disabled(given.flags & UMSG_RING_DISABLED != 0);
    if given.entries != 0 {
        options.entries(given.entries);
    }
    match given.overflow {
        0 => {}
        UMSG_RING_NO_OVERFLOW => drop(options.overflow(0)),
        overflow => drop(options.overflow(overflow)),
    }
    options.longest(given.longest);
    if given.mode != 0 {
        options.mode(given.mode);
    }
    Ok(options)
}

/// Returns the namespace in `directory`, or, if `directory` is NULL, the namespace that the environment selects.
///
/// # Safety
/// `directory` is NULL, or a string, or an address that a pointer check refuses.
pub(super) unsafe fn namespace(directory: *const c_char) -> Result<Namespace, Failure> {
    if directory.is_null() {
        return Ok(Namespace::resolve()?);
    }
    // SAFETY: by this function's contract.
    let directory = unsafe { pointer::text(directory, "directory")? };
    Ok(Namespace::at(directory)?)
}

/// Reads the program's options. Options that the program does not know become 0.
///
/// # Safety
/// `options` is NULL, or a structure as long as its first member says, or an address that a pointer check refuses.
unsafe fn read(options: *const umsg_ring_options) -> Result<Option<umsg_ring_options>, Failure> {
    // SAFETY: by this function's contract; the size is the first member.
    let Some(size) = (unsafe { pointer::read(options.cast::<size_t>(), "options")? }) else {
        return Ok(None);
    };
    if !SIZES.contains(&size) {
        return Err(Failure::Invalid(
            "the member `size` of the options must be sizeof(struct umsg_ring_options)",
        ));
    }
    // SAFETY: by this function's contract, the structure has `size` readable bytes; zero is a valid value of every member.
    unsafe { pointer::read_as_far_as_known(options, size) }.map(Some)
}
