//! Opening with more than POSIX knows.

use std::ffi::{c_char, c_int};

use libc::{mode_t, size_t};
use umsg::Namespace;
use umsg::posix::OpenOptions;

use crate::error::Failure;
use crate::handle::umsg_mqd_t;
use crate::open::{enter, handle_or_none, options_for};
use crate::pointer;
use crate::waiting;

/// What umsg_mq_open_with is told. Every member that is 0 or NULL has its default.
///
/// Initialise it by `struct umsg_mq_options options = {.size = sizeof options};` and set further members by name: a
/// later version of the library may have more of them.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct umsg_mq_options {
    /// sizeof(struct umsg_mq_options): which members the program knows.
    pub size: size_t,
    /// The directory that is the namespace; NULL for the one that umsg_mq_open uses.
    pub directory: *const c_char,
    /// How many messages a queue that is created may hold; 0 for the namespace's default.
    pub max_messages: u32,
    /// How long a message may be in a queue that is created, in bytes; 0 for the namespace's default.
    pub message_size: u32,
    /// How calls on the handle wait: one of UMSG_WAITING_ADAPTIVE (the default), UMSG_WAITING_BLOCKING and
    /// UMSG_WAITING_SPINNING.
    pub waiting: u32,
    /// 0.
    pub reserved: u32,
}

/// The size of the first version.
const LEAST: size_t = 32;
/// No version will be longer: a page, as for the kernel's structures of this kind.
const MOST: size_t = 4096;

/// Opens a queue, or creates it, with options that POSIX does not have.
///
/// `name` and `oflag` are those of umsg_mq_open(3), and `mode` is its third argument, which counts only with
/// `O_CREAT`. `options` may be NULL, for the defaults.
///
/// A program that was compiled with an older `umsg.h` has a shorter structure, and the members that it does not know
/// have their defaults. One that was compiled with a newer `umsg.h` is refused if it uses a member that this version of
/// the library does not know.
///
/// # Return value
/// A handle, or `(umsg_mqd_t)-1` with errno set.
///
/// # Errors
/// Those of umsg_mq_open(3), and these:
///
/// - `E2BIG`: a member that this version of the library does not know is not 0.
/// - `EFAULT`: `options` or its `directory` is at an address that can't be read.
/// - `EINVAL`: `size` is not that of a version of the structure, `waiting` is none of its values, or
///   `reserved` is not 0.
/// - `ELOOP`, `ENOTDIR`: `directory` is a symbolic link or no directory.
///
/// # If the process dies
/// As with umsg_mq_open(3).
///
/// # See also
/// umsg_mq_close(3), umsg_mq_open(3), umsg_mq_set_waiting(3), umsg_mq_unlink_in(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_mq_open_with(
    name: *const c_char,
    oflag: c_int,
    mode: mode_t,
    options: *const umsg_mq_options,
) -> umsg_mqd_t {
    let open = || {
        // SAFETY: the caller promises a string, and NULL or a structure as long as its first member says.
        let (name, given) = unsafe { (pointer::text(name, "name")?, read(options)?) };
        let mut options = options_for(oflag, mode);
        let Some(given) = given else {
            return enter(options.open(name)?, oflag);
        };
        let waiting = waiting::of(given.waiting.cast_signed())?;
        // SAFETY: the caller promises NULL or a string.
        unsafe { set_directory(&mut options, given.directory)? };
        if given.max_messages != 0 {
            options.max_messages(given.max_messages);
        }
        if given.message_size != 0 {
            options.message_size(given.message_size);
        }
        let queue = options.open(name)?;
        queue.set_waiting(waiting);
        enter(queue, oflag)
    };
    handle_or_none(open())
}

/// # Safety
/// `directory` is NULL, or a string, or an address that a pointer check refuses.
unsafe fn set_directory(
    options: &mut OpenOptions,
    directory: *const c_char,
) -> Result<(), Failure> {
    if !directory.is_null() {
        // SAFETY: by this function's contract.
        let directory = unsafe { pointer::text(directory, "directory")? };
        options.namespace(&Namespace::at(directory)?);
    }
    Ok(())
}

/// The options, as far as the program knows them, with defaults for the rest.
///
/// # Safety
/// `options` is NULL, or a structure as long as its first member says, or an address that a pointer check refuses.
unsafe fn read(options: *const umsg_mq_options) -> Result<Option<umsg_mq_options>, Failure> {
    // SAFETY: by this function's contract; the size is the first member.
    let Some(size) = (unsafe { pointer::read(options.cast::<size_t>(), "options")? }) else {
        return Ok(None);
    };
    if !(LEAST..=MOST).contains(&size) {
        return Err(Failure::Invalid(
            "the member size of the options is not sizeof(struct umsg_mq_options)",
        ));
    }
    // SAFETY: zero is a value of every member.
    let mut known: umsg_mq_options = unsafe { std::mem::zeroed() };
    let common = size.min(size_of::<umsg_mq_options>());
    // SAFETY: the program's structure has `size` bytes, ours has its own; `common` is in both, which do not overlap.
    unsafe {
        std::ptr::copy_nonoverlapping(options.cast::<u8>(), (&raw mut known).cast::<u8>(), common);
    }
    // SAFETY: by this function's contract all bytes up to `size` are readable; bytes have no alignment.
    let unknown =
        unsafe { std::slice::from_raw_parts(options.cast::<u8>().add(common), size - common) };
    if unknown.iter().any(|&byte| byte != 0) {
        return Err(Failure::TooNew);
    }
    if known.reserved != 0 {
        return Err(Failure::Invalid(
            "a reserved member of the options is not 0",
        ));
    }
    Ok(Some(known))
}
