//! The expected results of the matrix: the paths that fail if the kernel refuses a system call. The results are the same for each errno.

/// The result of a path where a system call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// The path works without the call, or does not make it.
    Works,
    /// The first library call of the path fails, and the error names the system call.
    Fails,
}

/// A set of paths, by name.
enum Which {
    All,
    AllBut(&'static [&'static str]),
    Only(&'static [&'static str]),
}

use Which::*;

/// The paths of rings.
const RINGS: &[&str] = &["ring_descriptor", "ring_named", "ring_unnamed", "ring_wait"];

/// The system calls that some path needs, each with the paths that need it. In all other cells of the matrix, the path works.
const NEEDS: &[(&str, Which)] = &[
    (
        "bind",
        Only(&["ring_descriptor", "ring_named", "ring_wait"]),
    ),
    ("dup3", Only(&["queue_of_last_user"])),
    (
        "fchmod",
        // A queue's file of mode 0600 is created with this mode, so its path does not need fchmod.
        Only(&["namespace", "shared_form"]),
    ),
    (
        "fchmodat",
        Only(&[
            "poll_queue",
            "queue_of_last_user",
            "ring_descriptor",
            "ring_named",
            "ring_wait",
            "sysv_poll",
        ]),
    ),
    (
        "fcntl",
        Only(&[
            "notify_another_process",
            "notify_by_function",
            "notify_by_signal",
            "poll_queue",
            "posix_open",
            "ring_descriptor",
            "ring_named",
            "ring_wait",
            "send_after_death",
            "send_and_receive",
            "sysv_poll",
            "wait_for_message",
            "wait_for_room",
            "lease",
            "shared_form",
        ]),
    ),
    (
        "flock",
        Only(&[
            "poll_queue",
            "queue_of_last_user",
            "sysv_create",
            "sysv_poll",
            "sysv_private",
        ]),
    ),
    (
        "ftruncate",
        Only(&[
            "many_long_messages",
            "namespace",
            "posix_create",
            "queue_of_last_user",
            "ring_descriptor",
            "ring_named",
            "ring_unnamed",
            "ring_wait",
            "sysv_create",
            "sysv_private",
        ]),
    ),
    (
        "getdents64",
        Only(&[
            "posix_list",
            "sweep",
            "sysv_create",
            "sysv_list",
            "sysv_private",
        ]),
    ),
    ("madvise", Only(&["shared_form"])),
    ("memfd_create", Only(&["ring_unnamed"])),
    ("mkdirat", Only(&["namespace", "queue_of_last_user"])),
    ("mknodat", Only(&["poll_queue", "sysv_poll"])),
    ("pread64", All),
    ("pwrite64", Only(&["sysv_create", "sysv_private"])),
    ("recvmsg", Only(RINGS)),
    (
        "renameat",
        Only(&["poll_queue", "queue_of_last_user", "sysv_poll"]),
    ),
    (
        "rt_sigqueueinfo",
        Only(&["notify_another_process", "notify_by_signal"]),
    ),
    ("sendmsg", Only(&["ring_descriptor"])),
    ("sendto", Only(RINGS)),
    (
        "set_robust_list",
        AllBut(&["posix_unlink", "posix_list", "sysv_list", "sweep"]),
    ),
    (
        "socket",
        Only(&["ring_descriptor", "ring_named", "ring_wait"]),
    ),
    ("socketpair", Only(&["ring_unnamed"])),
    ("statx", Only(&["shared_form"])),
    ("symlinkat", Only(&["sysv_create", "sysv_private"])),
    ("unlinkat", Only(&["posix_unlink"])),
];

/// Returns the expected result of a path where a system call is refused.
pub fn expected(path: &str, call: &str) -> Expected {
    let is_needed = NEEDS.iter().any(|(needed, paths)| {
        *needed == call
            && match paths {
                All => true,
                AllBut(others) => !others.contains(&path),
                Only(paths) => paths.contains(&path),
            }
    });
    match is_needed {
        true => Expected::Fails,
        false => Expected::Works,
    }
}
