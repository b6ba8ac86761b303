//! Creates, reads and closes epoll sets by direct system calls, which no preloaded library intercepts.
//! [`Backend::control_epoll`](crate::backend::Backend::control_epoll) changes the members of sets.

use std::os::fd::RawFd;

use crate::errno::Errno;

/// The lowest descriptor number for sets. Lower numbers belong to descriptors whose numbers are compared.
const ABOVE: RawFd = 150;

/// The maximum number of events that a set reports.
const MOST: usize = 64;

/// The descriptor of a set, or an invalid descriptor.
pub type Set = RawFd;

fn answer(returned: i64) -> Result<i64, Errno> {
    if returned == -1 {
        Err(Errno::last())
    } else {
        Ok(returned)
    }
}

/// Makes a set with a high descriptor number.
///
/// # Errors
/// The errors of `epoll_create1` and `fcntl`.
pub fn make() -> Result<Set, Errno> {
    // SAFETY: the call takes flags.
    let low = answer(unsafe { libc::syscall(libc::SYS_epoll_create1, libc::EPOLL_CLOEXEC) })?;
    // SAFETY: the call takes numbers.
    let high = unsafe { libc::syscall(libc::SYS_fcntl, low, libc::F_DUPFD_CLOEXEC, ABOVE) };
    let high = answer(high);
    close(low as Set)?;
    Ok(high? as Set)
}

/// Makes a set at the lowest free number. The set stays open on exec.
///
/// # Errors
/// The errors of `epoll_create1`.
pub fn make_low() -> Result<Set, Errno> {
    // SAFETY: the call takes flags.
    answer(unsafe { libc::syscall(libc::SYS_epoll_create1, 0) }).map(|set| set as Set)
}

/// Closes a set.
///
/// # Errors
/// The errors of `close`.
pub fn close(set: Set) -> Result<(), Errno> {
    // SAFETY: the number belongs to a set, and no other code uses it.
    answer(unsafe { libc::syscall(libc::SYS_close, set) }).map(drop)
}

/// Returns the current events of a set: the data and the events of each ready member, sorted by the data.
///
/// # Errors
/// The errors of `epoll_wait`.
pub fn told(set: Set) -> Result<Vec<(u64, u32)>, Errno> {
    wait(set, 0)
}

/// Waits up to this many milliseconds for events of a set, and returns them like [`told`]. With -1, the wait has no limit.
///
/// # Errors
/// The errors of `epoll_wait`.
pub fn wait(set: Set, milliseconds: i32) -> Result<Vec<(u64, u32)>, Errno> {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; MOST];
    // SAFETY: the call writes at most as many events as the array has.
    let count = unsafe { libc::epoll_wait(set, events.as_mut_ptr(), MOST as i32, milliseconds) };
    let count = answer(count.into())? as usize;
    let told = events[..count].iter();
    let mut told: Vec<(u64, u32)> = told.map(|event| (event.u64, event.events)).collect();
    told.sort_unstable();
    Ok(told)
}
