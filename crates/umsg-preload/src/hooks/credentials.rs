//! setuid and its relatives: System V queues check the process's permissions again. The kernel checks at each call, with the current
//! ids.

use std::ffi::{c_char, c_int, c_void};

use libc::{gid_t, size_t, uid_t};
use umsg::sysv::forget_caller;

use crate::next;

/// A function of libc that changes the rights of the process.
macro_rules! changes_rights {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),*) -> c_int;)*) => {
        $(
            $(#[$doc])*
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
                // SAFETY: the caller's promises to libc's function are handed on.
                let outcome = unsafe { next::$name($($argument),*) };
                forget_caller();
                outcome
            }
        )*
    };
}

changes_rights! {
    /// Sets the user.
    fn setuid(user: uid_t) -> c_int;
    /// Sets the effective user.
    fn seteuid(user: uid_t) -> c_int;
    /// Sets the real and the effective user.
    fn setreuid(real: uid_t, effective: uid_t) -> c_int;
    /// Sets the real, the effective and the saved user.
    fn setresuid(real: uid_t, effective: uid_t, saved: uid_t) -> c_int;
    /// Sets the user for the file system.
    fn setfsuid(user: uid_t) -> c_int;
    /// Sets the group.
    fn setgid(group: gid_t) -> c_int;
    /// Sets the effective group.
    fn setegid(group: gid_t) -> c_int;
    /// Sets the real and the effective group.
    fn setregid(real: gid_t, effective: gid_t) -> c_int;
    /// Sets the real, the effective and the saved group.
    fn setresgid(real: gid_t, effective: gid_t, saved: gid_t) -> c_int;
    /// Sets the group for the file system.
    fn setfsgid(group: gid_t) -> c_int;
    /// Sets the further groups.
    fn setgroups(count: size_t, groups: *const gid_t) -> c_int;
    /// Sets the further groups to those of a user.
    fn initgroups(user: *const c_char, group: gid_t) -> c_int;
    /// Sets the capabilities.
    fn capset(header: *mut c_void, data: *const c_void) -> c_int;
}
