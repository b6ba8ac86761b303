//! POSIX queues: saving a queue in a file, and creating a queue from such a file.

use std::ffi::{OsStr, OsString, c_char, c_int};
use std::io::{self, Read, Write};

use umsg::posix::Snapshot;

use crate::error::{Failure, answer};
use crate::handle::{self, umsg_mqd_t};
use crate::open::{enter, handle_or_none};
use crate::options::{Prepared, umsg_mq_options};
use crate::pointer;

/// Saves a queue in a file, as it is at one instant.
///
/// Writes the queue's name, attributes, policy and messages to the descriptor `fd` of a file, a pipe or a socket, from the current offset. The
/// queue is not changed. `umsg load` and umsg_mq_restore(3) create a queue from the snapshot. Checksums cover the whole snapshot, so a truncated or
/// altered snapshot is refused. A message for a later delivery is saved with the remaining delay. If the queue is closed
/// for sending, the restored queue is closed, too. Leased messages are not saved.
///
/// Other receivers wait while the call copies the messages, but not while it writes them. The process needs memory for all messages.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error; an incomplete snapshot is refused when it is
/// read.
///
/// # Errors
/// - `EBADF`: `mqdes` is not the handle of an open queue, or was not opened for receiving; or `fd` is not a descriptor that is open for writing.
/// - `EBADMSG`: the queue's memory is corrupted: it holds values that no operation writes.
/// - `EDEADLK`: the call was made by a signal handler that interrupted a call on the same queue.
/// - `ENOMEM`: there is no memory for the messages.
/// - `ETIMEDOUT`: a stopped process has held a lock of this queue for more than a second.
///
/// The errors of write(2) are possible, too.
///
/// # If the process dies
/// The queue keeps all its messages.
///
/// # See also
/// umsg(1), umsg_mq_peek(3), umsg_mq_restore(3), umsg_mq_restore_into(3)
#[unsafe(no_mangle)]
pub extern "C" fn umsg_mq_snapshot(mqdes: umsg_mqd_t, fd: c_int) -> c_int {
    let save = || {
        let held = handle::hold(mqdes)?;
        let snapshot = Snapshot::of(&held.queue)?.named(&held.name);
        snapshot.write(&mut Descriptor(fd))?;
        Ok(0)
    };
    answer(save())
}

/// Creates a queue from a snapshot that umsg_mq_snapshot(3) wrote.
///
/// Reads a snapshot from the descriptor `fd`, from the current offset, and creates the queue `name`. If `name` is NULL, the queue gets the saved
/// name. `oflag` is the access mode of the handle: `O_RDONLY`, `O_WRONLY` or `O_RDWR`, with or without `O_NONBLOCK`.
///
/// The queue gets the attributes, the policy and the mode that were saved. The umask does not change the mode. Each message keeps its priority, its
/// place in the order of delivery, its sender's process id, the time of its send, and the number of its returns from leases. `options` are those of
/// umsg_mq_open_with(3), or NULL; only the members `directory` and `waiting` are used.
///
/// # Return value
/// On success, the call returns a handle. On error, `(umsg_mqd_t)-1` is returned, and errno is set to indicate the error; then there is no new queue.
///
/// # Errors
/// The errors of umsg_mq_open(3), umsg_mq_open_with(3) and read(2), and these:
///
/// - `EBADF`: `fd` is not a descriptor that is open for reading.
/// - `EBADMSG`: the snapshot was truncated or altered.
/// - `EEXIST`: a queue has this name.
/// - `EINVAL`: the input is not a saved queue, or was saved by another version; or `name` is NULL and no name was saved.
///
/// # If the process dies
/// There is either no queue or a complete queue, because the queue gets its name when all messages are in it.
///
/// # See also
/// umsg(1), umsg_mq_open_with(3), umsg_mq_restore_into(3), umsg_mq_snapshot(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_mq_restore(
    name: *const c_char,
    fd: c_int,
    oflag: c_int,
    options: *const umsg_mq_options,
) -> umsg_mqd_t {
    let restore = || {
        // SAFETY: the caller promises NULL or a string, and NULL or a structure as long as its first member says.
        let (name, prepared) = unsafe { (given(name)?, Prepared::new(oflag, 0, options)?) };
        let snapshot = Snapshot::read(&mut Descriptor(fd))?;
        let name = name.or_else(|| snapshot.info().name);
        let name = name.ok_or(Failure::Invalid(
            "the snapshot holds no queue name: pass a name",
        ))?;
        let queue = snapshot.restore(&name, &prepared.options)?;
        queue.set_waiting(prepared.waiting);
        enter(queue, &name, oflag)
    };
    handle_or_none(restore())
}

/// Sends the messages of a snapshot to a queue.
///
/// Reads a snapshot from the descriptor `fd`, from the current offset, and sends all its messages to an existing queue as one batch. The messages of
/// the snapshot follow the queue's messages of the same priority. The queue keeps its attributes. The caller becomes the sender of the messages, and
/// the time of the call becomes their time. The call does not wait for room.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error; nothing was sent.
///
/// # Errors
/// The errors of umsg_mq_send_batch(3) and read(2), and these:
///
/// - `EAGAIN`: the queue has no room for all messages.
/// - `EBADF`: `mqdes` is not the handle of an open queue, or was not opened for sending; or `fd` is not a descriptor that is open for reading.
/// - `EBADMSG`: the snapshot was truncated or altered.
/// - `EINVAL`: the input is not a saved queue, or was saved by another version.
/// - `EMSGSIZE`: a message is longer than the queue's message size.
///
/// # If the process dies
/// Before the call returns, either all messages were sent or none.
///
/// # See also
/// umsg_mq_restore(3), umsg_mq_snapshot(3)
#[unsafe(no_mangle)]
pub extern "C" fn umsg_mq_restore_into(mqdes: umsg_mqd_t, fd: c_int) -> c_int {
    let restore = || {
        let held = handle::hold(mqdes)?;
        Snapshot::read(&mut Descriptor(fd))?.send_all(&held.queue)?;
        Ok(0)
    };
    answer(restore())
}

/// # Safety
/// `name` is NULL or a string, or an address that a pointer check refuses.
unsafe fn given(name: *const c_char) -> Result<Option<OsString>, Failure> {
    if name.is_null() {
        return Ok(None);
    }
    // SAFETY: by this function's contract.
    let name = unsafe { pointer::text(name, "name")? };
    Ok(Some(OsStr::to_owned(name)))
}

/// A descriptor number of the program, which may be invalid.
struct Descriptor(c_int);

impl Read for Descriptor {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // SAFETY: the buffer has `buffer.len()` writable bytes. If `self.0` is not a descriptor, the call fails.
        let read = unsafe { libc::read(self.0, buffer.as_mut_ptr().cast(), buffer.len()) };
        usize::try_from(read).map_err(|_| io::Error::last_os_error())
    }
}

impl Write for Descriptor {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // SAFETY: the slice has `bytes.len()` readable bytes. If `self.0` is not a descriptor, the call fails.
        let written = unsafe { libc::write(self.0, bytes.as_ptr().cast(), bytes.len()) };
        usize::try_from(written).map_err(|_| io::Error::last_os_error())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
