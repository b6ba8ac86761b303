//! System V queues: inspecting, changing and removing.
//!
//! The order of the checks, as in the kernel:
//!
//! 1. the identifier and the command
//! 2. for IPC_SET, the address of the new values
//! 3. the queue
//! 4. the permissions
//! 5. the address of the result

use std::ffi::c_int;

use libc::msqid_ds;
use umsg::sysv::{Change, ControlError, OpenError, raw};

use super::Refusal;
use crate::error::{Failure, answer};
use crate::pointer;

/// Inspects, changes and removes System V queues.
///
/// `cmd` is one of these commands of `<sys/msg.h>`:
///
/// - `IPC_STAT`: write the queue's status to `buf`: key, owner, creator, mode, times, counts, last sender and receiver.
/// - `IPC_SET`: set owner, group, mode and `msg_qbytes` to those in `buf`. Waiting calls check their permission and the
///   room again.
/// - `IPC_RMID`: remove the queue with its messages. Waiting calls fail with `EIDRM`.
/// - `IPC_INFO`: write the limits to `buf`, which points to a `struct msginfo` for this command.
/// - `MSG_INFO`: write the limits and the numbers of queues, messages and bytes to `buf`, as for `IPC_INFO`.
/// - `MSG_STAT`: do the same as `IPC_STAT` for the queue whose index is `msqid`. To list all queues, use the indices from 0 to the result of
///   `MSG_INFO`.
/// - `MSG_STAT_ANY`: do the same as `MSG_STAT`, without a check of the read permission.
///
/// An owner may raise `msg_qbytes` up to the namespace's `max_qbytes` (`umsg limits`), which is 1 GiB by default; the kernel's limit is `msgmnb`. If
/// the caller may not read a queue, the status shows the rights of the queue's file, and counts of 0. umsg_msg_status(3) returns more than
/// `IPC_STAT`.
///
/// # Return value
/// For `IPC_INFO` and `MSG_INFO`, the call returns the highest index of a queue, or 0 if there is no queue. For `MSG_STAT` and `MSG_STAT_ANY`, the
/// call returns the queue's identifier. For other commands, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EACCES`: the command reads the status of a queue whose mode does not let the caller read.
/// - `EAGAIN`: a process was stopped inside an operation on this queue.
/// - `EBADMSG`: the queue's memory is corrupted: it holds values that no operation writes.
/// - `EBUSY`: a process was stopped while it made or removed a queue.
/// - `EDEADLK`: the call was made by a signal handler that interrupted a call on the same queue; see umsg_defer_signal(3).
/// - `EFAULT`: `buf` is at an address that can't be read or written.
/// - `EINVAL`: no queue has the identifier or index `msqid`, `cmd` is not one of the commands, or a new user or group is -1.
/// - `EPERM`: for `IPC_SET` and `IPC_RMID`, the caller is neither owner nor creator and lacks CAP_SYS_ADMIN; `msg_qbytes` is more than
///   the namespace's limit and the caller lacks CAP_SYS_RESOURCE; the new mode lets some users only send or only receive, in a namespace
///   that refuses such modes (umsg-limits(1)); or the file system can't give the queue's file such rights.
///
/// # If the process dies
/// The change was either made or not made. A removed queue is removed for all processes.
///
/// # See also
/// umsg_msg_status(3), umsg_msgget(3), umsg(1), msgctl(2)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_msgctl(msqid: c_int, cmd: c_int, buf: *mut msqid_ds) -> c_int {
    // SAFETY: the caller guarantees what the command requires.
    answer(unsafe { control(msqid, cmd, buf) })
}

/// # Safety
/// `buf` is the structure that the command requires, or an address that a pointer check refuses.
unsafe fn control(id: c_int, command: c_int, buf: *mut msqid_ds) -> Result<c_int, Failure> {
    if id < 0 || command < 0 {
        return Err(Refusal::of_id(libc::EINVAL, id).into());
    }
    let refused = |errno| Refusal::of_control(errno, id);
    match command {
        libc::IPC_RMID => raw::msgctl_remove(id).map_err(refused)?,
        libc::IPC_SET => {
            // SAFETY: by this function's contract.
            set(id, &unsafe { change(buf)? })?;
        }
        libc::IPC_STAT | libc::MSG_STAT | raw::MSG_STAT_ANY => {
            let (answer, entry) = raw::msgctl_stat(id, command).map_err(refused)?;
            // SAFETY: the structure consists of numbers and padding, for which zero is valid.
            let mut told: msqid_ds = unsafe { std::mem::zeroed() };
            entry.fill(&mut told);
            // SAFETY: by this function's contract.
            unsafe { pointer::write(buf, told, "buf")? };
            return Ok(answer);
        }
        libc::IPC_INFO | libc::MSG_INFO => {
            let info = raw::msgctl_info(command).map_err(refused)?;
            // SAFETY: the caller promises a valid address; for these commands, the address is that of a `struct msginfo`.
            unsafe { pointer::write(buf.cast(), info.in_c(), "buf")? };
            return Ok(info.highest_index);
        }
        _ => return Err(Failure::Invalid("cmd is none of the commands of msgctl(2)")),
    }
    Ok(0)
}

fn set(id: c_int, change: &Change) -> Result<(), Refusal> {
    let queue = raw::find(id).map_err(|errno| match errno {
        // A caller that may not open the queue is not its owner.
        libc::EACCES => ControlError::NotOwner.into(),
        errno => Refusal::of_id(errno, id),
    })?;
    queue.set(change).map_err(|error| match error {
        ControlError::Removed => OpenError::NoSuchId.into(),
        error => error.into(),
    })
}

/// # Safety
/// `buf` is readable, or an address that a pointer check refuses.
unsafe fn change(buf: *const msqid_ds) -> Result<Change, Failure> {
    pointer::check(buf, "buf")?;
    // SAFETY: by this function's contract. The address need not be aligned, as in the kernel.
    let wanted = unsafe { buf.read_unaligned() };
    Ok(Change::of(&wanted))
}
