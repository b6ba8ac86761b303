//! System V queues: creating a queue with options that System V lacks.

use std::time::Duration;

use libc::{c_int, size_t};
use umsg::sysv::{OpenOptions, raw};

use super::Refusal;
use crate::error::{Failure, answer};
use crate::options::UMSG_CLOSE_WITH_LAST_PRODUCER;
use crate::pointer;

/// The options of umsg_msgget_with. A member of 0 means the default.
///
/// Initialise the structure by `struct umsg_msg_options options = {.size = sizeof options};` and set further members by name, because a later version
/// of the library may have more members.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct umsg_msg_options {
    /// sizeof(struct umsg_msg_options). The library learns from this size which members the program knows.
    pub size: size_t,
    /// The delay before a message of a created queue is delivered again after its lease was returned or lost, in nanoseconds; 0 for no delay. The
    /// delay doubles after each further delivery.
    pub retry_delay: u64,
    /// The maximum of the growing retry delay, in nanoseconds. A value below retry_delay means retry_delay: the delay does not grow.
    pub retry_delay_max: u64,
    /// Flags of a created queue: 0 or UMSG_CLOSE_WITH_LAST_PRODUCER.
    pub flags: u32,
    /// The program sets this field to 0.
    pub reserved: u32,
}

/// The size of the first version of the structure.
const LEAST: size_t = 32;
/// The maximum size of any version of the structure.
const MOST: size_t = 4096;

/// Finds the System V queue of a key, or creates one, with options that System V does not have.
///
/// `key` and `msgflg` are those of umsg_msgget(3). `options` may be NULL, for the defaults. If the queue exists and has another value of a member
/// that is not 0, the call fails.
///
/// # Return value
/// On success, the call returns the queue's identifier, a non-negative integer that is not a descriptor. On error, -1 is returned, and errno is set
/// to indicate the error.
///
/// # Errors
/// The errors of umsg_msgget(3), and these:
///
/// - `E2BIG`: a member that this version of the library does not know is not 0.
/// - `EACCES`: the queue exists, and the caller may not open it.
/// - `EFAULT`: `options` is at an address that can't be read.
/// - `EINVAL`: `size` is not the size of any version of the structure; `flags` has a bit that this version of the library does not know; `reserved`
///   is not 0; or the queue exists and has another value of a member that is not 0.
///
/// # If the process dies
/// The same as for umsg_msgget(3).
///
/// # See also
/// umsg_msg_begin_to_produce(3), umsg_msg_lease(3), umsg_msgget(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_msgget_with(
    key: c_int,
    msgflg: c_int,
    options: *const umsg_msg_options,
) -> c_int {
    let get = || {
        // SAFETY: the caller promises NULL or a structure as long as its first member says.
        let options = unsafe { read(options)? };
        raw::get_with(key, msgflg, &options).map_err(|error| Refusal::from(error).into())
    };
    answer(get())
}

/// Reads the options from the program's structure.
///
/// # Safety
/// `options` is NULL, or a structure as long as its first member says, or an address that a pointer check refuses.
unsafe fn read(options: *const umsg_msg_options) -> Result<OpenOptions, Failure> {
    let mut wanted = OpenOptions::new();
    // SAFETY: by this function's contract; the size is the first member.
    let Some(size) = (unsafe { pointer::read(options.cast::<size_t>(), "options")? }) else {
        return Ok(wanted);
    };
    if !(LEAST..=MOST).contains(&size) {
        return Err(Failure::Invalid(
            "the member `size` of the options must be sizeof(struct umsg_msg_options)",
        ));
    }
    // SAFETY: by this function's contract, the structure has `size` readable bytes; zero is a valid value of every member.
    let known = unsafe { pointer::read_as_far_as_known(options, size)? };
    if known.flags & !UMSG_CLOSE_WITH_LAST_PRODUCER.cast_unsigned() != 0 {
        return Err(Failure::Invalid(
            "flags may have UMSG_CLOSE_WITH_LAST_PRODUCER, and no other bit",
        ));
    }
    if known.reserved != 0 {
        return Err(Failure::Invalid("the member `reserved` must be 0"));
    }
    if known.retry_delay != 0 {
        let [first, most] = [known.retry_delay, known.retry_delay_max].map(Duration::from_nanos);
        wanted.retry_delay(first, most);
    }
    if known.flags != 0 {
        wanted.close_with_last_producer(true);
    }
    Ok(wanted)
}
