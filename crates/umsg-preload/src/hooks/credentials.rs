//! setuid and its relatives: after such a call, umsg checks the process's permissions to System V queues again. The kernel checks the permissions to
//! its queues at each call, with the current ids.

use std::ffi::{c_char, c_int, c_void};

use libc::{gid_t, size_t, uid_t};
use umsg::sysv::forget_caller;

/// Returns the outcome of a call that may have changed the rights of the process, and makes the next calls check permissions again.
fn after(outcome: c_int) -> c_int {
    forget_caller();
    outcome
}

hooks! {
    /// Sets the user: all of the process's user ids, only the effective id, or only the id for the file system.
    fn [setuid, seteuid, setfsuid](user: uid_t) -> c_int { next => after(next(user)) }

    /// Sets the real and the effective user.
    fn [setreuid](real: uid_t, effective: uid_t) -> c_int { next => after(next(real, effective)) }

    /// Sets the real, the effective and the saved user.
    fn [setresuid](real: uid_t, effective: uid_t, saved: uid_t) -> c_int { next => after(next(real, effective, saved)) }

    /// Sets the group: all of the process's group ids, only the effective id, or only the id for the file system.
    fn [setgid, setegid, setfsgid](group: gid_t) -> c_int { next => after(next(group)) }

    /// Sets the real and the effective group.
    fn [setregid](real: gid_t, effective: gid_t) -> c_int { next => after(next(real, effective)) }

    /// Sets the real, the effective and the saved group.
    fn [setresgid](real: gid_t, effective: gid_t, saved: gid_t) -> c_int { next => after(next(real, effective, saved)) }

    /// Sets the supplementary groups.
    fn [setgroups](count: size_t, groups: *const gid_t) -> c_int { next => after(next(count, groups)) }

    /// Sets the supplementary groups to those of a user.
    fn [initgroups](user: *const c_char, group: gid_t) -> c_int { next => after(next(user, group)) }

    /// Sets the capabilities.
    fn [capset](header: *mut c_void, data: *const c_void) -> c_int { next => after(next(header, data)) }
}
