//! The hook of msgctl.
//!
//! The order of the checks is the kernel's: identifier and command; for IPC_SET, the address; the queue; the permissions; and at last the address of
//! the result.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::msqid_ds;
use umsg::sysv::{Change, raw};
use umsg_shm::sys::stack::roomy;
use umsg_trace::Function;

use crate::trace::{self, Copied, Described, Target};
use crate::{errno, home, pointer, signals};

/// Inspects, changes and removes System V queues.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn msgctl(id: c_int, command: c_int, data: *mut msqid_ds) -> c_int {
    home::notice_child();
    signals::announce();
    trace::recorded(
        // SAFETY: the caller makes the promises that libc's msgctl requires.
        || unsafe { control(id, command, data) }.unwrap_or_else(errno::fail),
        Function::Msgctl,
        |_| Described {
            arguments: [id.into(), command.into(), 0, 0, 0],
            queue: match command {
                libc::IPC_RMID | libc::IPC_SET | libc::IPC_STAT => Target::SystemV(id),
                // For the other commands, `id` is an index, or is not used.
                _ => Target::None,
            },
            data: Copied::default(),
        },
    )
}

/// # Safety
/// `data` is the structure that the command requires, or an address that a pointer check refuses.
unsafe fn control(id: c_int, command: c_int, data: *mut msqid_ds) -> Result<c_int, c_int> {
    if id < 0 || command < 0 {
        return Err(libc::EINVAL);
    }
    match command {
        libc::IPC_RMID if raw::remove_and_keep(id) => {
            tidy_at_exit();
            Ok(0)
        }
        libc::IPC_RMID => roomy(|| raw::msgctl_remove_own(id)).map(|()| 0),
        libc::IPC_SET => {
            // SAFETY: by this function's contract.
            let change = unsafe { read_change(data)? };
            roomy(|| raw::msgctl_set(id, &change)).map(|()| 0)
        }
        libc::IPC_STAT | libc::MSG_STAT | raw::MSG_STAT_ANY => {
            let (answer, entry) = match command {
                libc::IPC_STAT => raw::msgctl_stat(id, command)?,
                // MSG_STAT and MSG_STAT_ANY take an index. The search for the file of the queue with this index needs more stack than a small thread
                // has.
                _ => roomy(|| raw::msgctl_stat(id, command))?,
            };
            // SAFETY: the structure consists of numbers and padding, for which zero is valid.
            let mut filled: msqid_ds = unsafe { std::mem::zeroed() };
            entry.fill(&mut filled);
            // SAFETY: by this function's contract.
            unsafe { write(data, filled)? };
            Ok(answer)
        }
        libc::IPC_INFO | libc::MSG_INFO => {
            let info = match raw::kept_msgctl_info(command) {
                Some(info) => info,
                None => roomy(|| raw::msgctl_info(command))?,
            };
            // SAFETY: the caller promises a valid address; for these commands it is the address of another structure.
            unsafe { write(data.cast(), info.in_c())? };
            Ok(info.highest_index)
        }
        _ => Err(libc::EINVAL),
    }
}

/// Makes the exit of the process remove the files of the segments that the process keeps.
fn tidy_at_exit() {
    static IS_REGISTERED: AtomicBool = AtomicBool::new(false);
    if !IS_REGISTERED.load(Ordering::Relaxed) && !IS_REGISTERED.swap(true, Ordering::Relaxed) {
        // SAFETY: the handler is a function of this library, which is never unloaded.
        unsafe { libc::atexit(tidy) };
    }
}

extern "C" fn tidy() {
    roomy(raw::give_up_kept);
}

/// # Safety
/// `data` is readable, or an address that a pointer check refuses.
unsafe fn read_change(data: *const msqid_ds) -> Result<Change, c_int> {
    if pointer::is_bad(data) {
        return Err(libc::EFAULT);
    }
    // SAFETY: by this function's contract. The address need not be aligned, as in the kernel.
    let wanted = unsafe { data.read_unaligned() };
    Ok(Change::of(&wanted))
}

/// # Safety
/// `to` is writable, or an address that a pointer check refuses.
unsafe fn write<T>(to: *mut T, value: T) -> Result<(), c_int> {
    if pointer::is_bad(to) {
        return Err(libc::EFAULT);
    }
    // SAFETY: by this function's contract. The address need not be aligned, as in the kernel.
    unsafe { to.write_unaligned(value) };
    Ok(())
}
