//! POSIX queues: opening with options that POSIX lacks.

use std::ffi::{c_char, c_int};
use std::time::Duration;

use libc::{mode_t, size_t};
use umsg::Namespace;
use umsg::posix::{Existing, OnFull, OpenOptions, Waiting};

use crate::error::Failure;
use crate::handle::umsg_mqd_t;
use crate::open::{enter, handle_or_none, options_for};
use crate::pointer;
use crate::waiting;

/// The options of umsg_mq_open_with. A member of 0 or NULL means the default.
///
/// Initialise the structure by `struct umsg_mq_options options = {.size = sizeof options};` and set further members by name, because a later version
/// of the library may have more members.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct umsg_mq_options {
    /// sizeof(struct umsg_mq_options). The library learns from this size which members the program knows.
    pub size: size_t,
    /// The directory that is the namespace; NULL for the namespace that umsg_mq_open uses.
    pub directory: *const c_char,
    /// The maximum number of messages in a created queue; 0 for the namespace's default.
    pub max_messages: u32,
    /// The maximum length of a message in a created queue, in bytes; 0 for the namespace's default.
    pub message_size: u32,
    /// The way in which calls on the handle wait: one of UMSG_WAITING_ADAPTIVE (the default), UMSG_WAITING_BLOCKING and
    /// UMSG_WAITING_SPINNING.
    pub waiting: u32,
    /// The overflow policy of a created queue, the behaviour of a send that finds the queue full: UMSG_ON_FULL_BLOCK (the default),
    /// UMSG_ON_FULL_FAIL or UMSG_ON_FULL_DROP_OLDEST.
    pub on_full: u32,
    /// The time to live of messages in a created queue, in nanoseconds; 0 for no limit. A receiver that finds an older message drops it, or
    /// moves it to the dead-letter queue.
    pub time_to_live: u64,
    /// The name of the dead-letter queue of a created queue; NULL for none. The dead-letter queue gets the messages that the queue could not keep or
    /// deliver, with the same priority and with their history (umsg_mq_dead_letter(3)). Both queues belong to the same namespace. A missing
    /// dead-letter queue is created together with the queue, with the same attributes and mode. The process that finds an undeliverable message moves
    /// the message, and needs permission to send to the dead-letter queue. If the move fails, the message stays set aside: it takes memory, but does
    /// not count towards the capacity of its queue. At most 1,024 messages are set aside. If a process dies while it moves a message, the next
    /// process that moves a message completes the move, so that the message is in exactly one queue.
    pub dead_letter: *const c_char,
    /// The maximum number of leases of a message in a created queue; 0 for no limit. A message that has had so many leases without an acknowledgement
    /// moves to the dead-letter queue, so `dead_letter` must be set, too.
    pub max_deliveries: u32,
    /// Flags of a created queue: 0, or any of UMSG_REMOVE_ON_LAST_CLOSE, UMSG_CLOSE_WITH_LAST_PRODUCER and UMSG_TRACE_MESSAGES.
    pub flags: u32,
    /// The rule if a queue of this name exists and differs from a member that is not 0 or NULL: UMSG_EXISTING_MATCH_POLICY (the
    /// default), UMSG_EXISTING_MATCH or UMSG_EXISTING_ANY.
    pub existing: u32,
    /// Fair priorities in a created queue, at most 65,535; 0 for strict order. After this number of deliveries during which messages of lower
    /// priorities waited, one message of a lower priority is delivered. The lower priorities take turns, and get one of `fair_priorities` + 1
    /// deliveries.
    pub fair_priorities: u32,
    /// The delay before a message of a created queue is delivered again after its lease was returned or lost, in nanoseconds; 0 for no delay. The
    /// delay doubles after each further delivery.
    pub retry_delay: u64,
    /// The maximum of the growing retry delay, in nanoseconds. A value below retry_delay means retry_delay: the delay does not grow.
    pub retry_delay_max: u64,
}

/// An existing queue is opened if its policy (on_full, time_to_live, dead_letter, max_deliveries, flags, fair_priorities, retry_delay,
/// retry_delay_max) equals the given policy. The queue's max_messages and message_size may differ.
pub const UMSG_EXISTING_MATCH_POLICY: c_int = 0;
/// An existing queue is opened if its max_messages, its message_size and its policy equal the given values.
pub const UMSG_EXISTING_MATCH: c_int = 1;
/// An existing queue is opened with its own attributes and policy.
pub const UMSG_EXISTING_ANY: c_int = 2;

/// The queue and its messages are removed when no process has an open handle of the queue. The process that closes the last handle removes the queue.
/// If the last process was killed, or ended without closing its handle, a later call removes the queue: a call that opens or creates a queue of the
/// same name, or a call that creates a queue with this flag. umsg(1) also removes the queue when it lists the namespace. A child made by fork(2) has
/// the queue open like its parent, until the child closes its handle, ends or executes a program. Without this flag the queue stays until
/// umsg_mq_unlink(3).
pub const UMSG_REMOVE_ON_LAST_CLOSE: c_int = 1;

/// The queue is closed for sending, as by umsg_mq_close_send(3), when the last process that called umsg_mq_begin_to_produce(3) has ended its count,
/// or has died.
pub const UMSG_CLOSE_WITH_LAST_PRODUCER: c_int = 2;

/// The queue records each lease of a message and the end of the lease, and each move to a dead-letter queue and back, with time and process id.
/// `umsg peek --long` shows the records (umsg(1)). Sends, and receives without a lease, cost the same as without the flag.
pub const UMSG_TRACE_MESSAGES: c_int = 4;

/// The send waits for room, as in the kernel's queues. A send that must not block fails.
pub const UMSG_ON_FULL_BLOCK: c_int = 0;
/// The send fails with EAGAIN, like a send that must not block.
pub const UMSG_ON_FULL_FAIL: c_int = 1;
/// The send drops the oldest message of the lowest priority, or moves it to the dead-letter queue if there is one. If all queued messages
/// have a higher priority than the new message, the new message is dropped.
pub const UMSG_ON_FULL_DROP_OLDEST: c_int = 2;

/// The size of `umsg_mq_options` in its first version.
const LEAST: size_t = 56;
/// The maximum size of `umsg_mq_options` in any version: a page, as for the kernel's structures of this kind.
const MOST: size_t = 4096;

/// Opens a queue, or creates it, with options that POSIX does not have.
///
/// `name` and `oflag` are those of umsg_mq_open(3), and `mode` is its third argument, which is used only with `O_CREAT`. `options` may be
/// NULL, for the defaults.
///
/// A program that was compiled with an older `umsg.h` has a shorter structure; the missing members have their defaults. If a program was
/// compiled with a newer `umsg.h` and uses a member that this version of the library does not know, the call fails.
///
/// # Return value
/// On success, the call returns a handle. On error, `(umsg_mqd_t)-1` is returned, and errno is set to indicate the error.
///
/// # Errors
/// The errors of umsg_mq_open(3), and these:
///
/// - `E2BIG`: a member that this version of the library does not know is not 0.
/// - `EFAULT`: `options` or one of its texts is at an address that can't be read.
/// - `EINVAL`: `size` is not the size of any version of the structure; `waiting`, `on_full` or `existing` has no valid value; the queue exists and
///   differs in a way that `existing` does not permit; `dead_letter` can't be a name, is `name` itself, or names a queue that has a smaller message
///   size;
///   `max_deliveries` is not 0 and `dead_letter` is NULL; `fair_priorities` is greater than 65,535; or `flags` has a bit that this version
///   of the library does not know.
/// - `ELOOP`, `ENOTDIR`: `directory` is a symbolic link, or not a directory.
/// - `ENOTEMPTY`: `directory` is not a namespace and holds other files, so that it can't become one.
/// - `EPERM`: `dead_letter` names a queue of another user.
///
/// # If the process dies
/// The same as for umsg_mq_open(3).
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
        let (name, prepared) = unsafe {
            let name = pointer::text(name, "name")?;
            (name, Prepared::new(oflag, mode, options)?)
        };
        let queue = prepared.options.open(name)?;
        queue.set_waiting(prepared.waiting);
        enter(queue, name, oflag)
    };
    handle_or_none(open())
}

/// The options that the program passed, converted to the library's types.
pub(crate) struct Prepared {
    pub(crate) options: OpenOptions,
    pub(crate) waiting: Waiting,
}

impl Prepared {
    /// # Safety
    /// `options` is NULL, or a structure whose first member is its length and whose texts are NULL or strings, or an address that a pointer
    /// check refuses.
    pub(crate) unsafe fn new(
        oflag: c_int,
        mode: mode_t,
        options: *const umsg_mq_options,
    ) -> Result<Prepared, Failure> {
        // SAFETY: by this function's contract.
        let given = unsafe { read(options)? };
        let mut options = options_for(oflag, mode);
        let Some(given) = given else {
            let waiting = Waiting::default();
            return Ok(Prepared { options, waiting });
        };
        let waiting = waiting::of(given.waiting.cast_signed())?;
        options.existing(existing(given.existing.cast_signed())?);
        // SAFETY: by this function's contract.
        unsafe { set_names(&mut options, &given)? };
        // A field that is 0 sets no option. The call then opens an existing queue with any value of that option.
        if given.on_full != 0 {
            options.on_full(on_full(given.on_full.cast_signed())?);
        }
        if given.time_to_live != 0 {
            options.time_to_live(Duration::from_nanos(given.time_to_live));
        }
        if given.max_deliveries != 0 {
            options.max_deliveries(given.max_deliveries);
        }
        if given.flags & UMSG_REMOVE_ON_LAST_CLOSE.cast_unsigned() != 0 {
            options.remove_on_last_close(true);
        }
        if given.flags & UMSG_CLOSE_WITH_LAST_PRODUCER.cast_unsigned() != 0 {
            options.close_with_last_producer(true);
        }
        if given.flags & UMSG_TRACE_MESSAGES.cast_unsigned() != 0 {
            options.trace_messages(true);
        }
        if given.fair_priorities != 0 {
            options.fair_priorities(given.fair_priorities);
        }
        if given.retry_delay != 0 {
            let [first, most] =
                [given.retry_delay, given.retry_delay_max].map(Duration::from_nanos);
            options.retry_delay(first, most);
        }
        if given.max_messages != 0 {
            options.max_messages(given.max_messages);
        }
        if given.message_size != 0 {
            options.message_size(given.message_size);
        }
        Ok(Prepared { options, waiting })
    }
}

/// # Safety
/// `directory` and `dead_letter` are NULL, or strings, or addresses that a pointer check refuses.
unsafe fn set_names(options: &mut OpenOptions, given: &umsg_mq_options) -> Result<(), Failure> {
    if !given.directory.is_null() {
        // SAFETY: by this function's contract.
        let directory = unsafe { pointer::text(given.directory, "directory")? };
        options.namespace(&Namespace::at(directory)?);
    }
    if !given.dead_letter.is_null() {
        // SAFETY: by this function's contract.
        options.dead_letter(unsafe { pointer::text(given.dead_letter, "dead_letter")? });
    }
    Ok(())
}

/// Converts a value of `on_full`, one of UMSG_ON_FULL_BLOCK, UMSG_ON_FULL_FAIL and UMSG_ON_FULL_DROP_OLDEST.
fn on_full(number: c_int) -> Result<OnFull, Failure> {
    match number {
        UMSG_ON_FULL_BLOCK => Ok(OnFull::Block),
        UMSG_ON_FULL_FAIL => Ok(OnFull::Fail),
        UMSG_ON_FULL_DROP_OLDEST => Ok(OnFull::DropOldest),
        _ => Err(Failure::Invalid(
            "on_full must be UMSG_ON_FULL_BLOCK, UMSG_ON_FULL_FAIL or UMSG_ON_FULL_DROP_OLDEST",
        )),
    }
}

/// Converts a value of `existing`, one of UMSG_EXISTING_MATCH_POLICY, UMSG_EXISTING_MATCH and UMSG_EXISTING_ANY.
fn existing(number: c_int) -> Result<Existing, Failure> {
    match number {
        UMSG_EXISTING_MATCH_POLICY => Ok(Existing::MatchPolicy),
        UMSG_EXISTING_MATCH => Ok(Existing::Match),
        UMSG_EXISTING_ANY => Ok(Existing::Any),
        _ => Err(Failure::Invalid(
            "existing must be UMSG_EXISTING_MATCH_POLICY, UMSG_EXISTING_MATCH or UMSG_EXISTING_ANY",
        )),
    }
}

/// Reads the program's options. Options that the program does not know get their defaults.
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
            "the member `size` of the options must be sizeof(struct umsg_mq_options)",
        ));
    }
    // SAFETY: by this function's contract, the structure has `size` readable bytes; zero is a valid value of every member.
    let known = unsafe { pointer::read_as_far_as_known(options, size)? };
    let flags = UMSG_REMOVE_ON_LAST_CLOSE | UMSG_CLOSE_WITH_LAST_PRODUCER | UMSG_TRACE_MESSAGES;
    if known.flags & !flags.cast_unsigned() != 0 {
        return Err(Failure::Invalid(
            "flags may have UMSG_REMOVE_ON_LAST_CLOSE, UMSG_CLOSE_WITH_LAST_PRODUCER and UMSG_TRACE_MESSAGES, and no other bit",
        ));
    }
    Ok(Some(known))
}
