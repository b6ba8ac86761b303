//! The filter that passes a program's system calls on queues to the supervisor. Source: seccomp(2).
//!
//! The filter lets all other system calls pass by their number alone. The kernel caches these decisions in a bit map, so such calls stay fast. The
//! filter also inspects one argument of the calls in [`FLAGGED`]: they pass if they have no path.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter};

use super::Settings;
use super::listener::Call;

/// The calls on queues, which the supervisor answers.
const QUEUES: &[libc::c_long] = &[
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    libc::SYS_mq_timedsend,
    libc::SYS_mq_timedreceive,
    libc::SYS_mq_notify,
    libc::SYS_mq_getsetattr,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
];

/// The calls that wait for descriptors, of which some may be queues.
const POLLS: &[libc::c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_ppoll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_select,
    libc::SYS_pselect6,
    libc::SYS_epoll_ctl,
];

/// The calls that may change a thread's user or group. The kernel performs these calls. At the thread's next call, the supervisor reads the user
/// again.
const IDENTITY: &[libc::c_long] = &[
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setgroups,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_execve,
    libc::SYS_execveat,
];

/// The calls that may change a thread's IPC namespace. The kernel performs these calls.
const MOVES: &[libc::c_long] = &[libc::SYS_unshare, libc::SYS_setns];

/// Returns whether a call waits for descriptors.
pub fn waits_for_descriptors(number: libc::c_long) -> bool {
    POLLS.contains(&number)
}

/// The operation of a call with a path. The comment of each operation lists the arguments after the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Opens a file. Arguments after the path: flags, mode.
    Open,
    /// Reads the attributes of a file. Argument after the path: the address of `struct stat`.
    Stat,
    /// Reads the attributes of a file. Arguments after the path: flags, mask, the address of `struct statx`.
    Statx,
    /// Checks permissions. Arguments after the path: permissions, flags.
    Access,
    /// Removes a file, or with AT_REMOVEDIR a directory. Argument after the path: flags.
    Unlink,
    /// Changes the mode of a file. Argument after the path: the mode.
    Mode,
    /// Changes the owner of a file. Arguments after the path: user, group.
    Owner,
    Rename,
    /// inotify_add_watch(2). Its first argument is not the descriptor of a directory, but that of an inotify instance. Argument after the path: the
    /// events.
    Watch,
}

/// The calls with paths. The supervisor answers such a call if a path leads to one of the kernel's files about queues.
const PATHS: &[libc::c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_creat,
    libc::SYS_openat,
    libc::SYS_openat2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rmdir,
    libc::SYS_unlinkat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_inotify_add_watch,
];

/// The calls that have either a path or, with AT_EMPTY_PATH, only a descriptor (as fstat(3) of glibc). Each entry has the number of the call, and the
/// index of the argument that contains AT_EMPTY_PATH.
const FLAGGED: &[(libc::c_long, u32)] = &[
    (libc::SYS_newfstatat, 3),
    (libc::SYS_statx, 2),
    (libc::SYS_fchownat, 4),
];

/// The number of fchmodat2(2). Source: asm-generic/unistd.h.
const FCHMODAT2: libc::c_long = 452;

/// The arguments of a call with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    pub kind: Kind,
    /// The descriptor of the directory to which a relative path refers.
    pub directory: i32,
    /// The address of the path.
    pub path: u64,
    /// The directory and the address of the second path.
    pub second: Option<(i32, u64)>,
    /// The address of `struct open_how`.
    pub how: Option<u64>,
    /// The arguments after the path.
    pub rest: [u64; 3],
}

impl Numbers {
    /// Finds the arguments of a call. Returns None if the call has no path.
    pub fn of(call: &Call) -> Option<Numbers> {
        let [a, b, c, d, e, _] = call.arguments;
        let from = |directory: u64, kind, path, rest| Numbers {
            kind,
            directory: directory as i32,
            path,
            second: None,
            how: None,
            rest,
        };
        #[cfg(target_arch = "x86_64")]
        {
            let create = (libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC) as u64;
            let here = i64::from(libc::AT_FDCWD).cast_unsigned();
            let plain = |kind, rest| from(here, kind, a, rest);
            match call.number {
                libc::SYS_open => return Some(plain(Kind::Open, [b, c, 0])),
                libc::SYS_creat => return Some(plain(Kind::Open, [create, b, 0])),
                libc::SYS_stat | libc::SYS_lstat => return Some(plain(Kind::Stat, [b, 0, 0])),
                libc::SYS_access => return Some(plain(Kind::Access, [b, 0, 0])),
                libc::SYS_unlink => return Some(plain(Kind::Unlink, [0; 3])),
                libc::SYS_rmdir => {
                    return Some(plain(Kind::Unlink, [libc::AT_REMOVEDIR as u64, 0, 0]));
                }
                libc::SYS_chmod => return Some(plain(Kind::Mode, [b, 0, 0])),
                libc::SYS_chown | libc::SYS_lchown => return Some(plain(Kind::Owner, [b, c, 0])),
                libc::SYS_rename => {
                    return Some(Numbers {
                        second: Some((libc::AT_FDCWD, b)),
                        ..plain(Kind::Rename, [0; 3])
                    });
                }
                libc::SYS_renameat => {
                    return Some(Numbers {
                        second: Some((c as i32, d)),
                        ..from(a, Kind::Rename, b, [0; 3])
                    });
                }
                _ => {}
            }
        }
        Some(match call.number {
            libc::SYS_openat => from(a, Kind::Open, b, [c, d, 0]),
            libc::SYS_openat2 => Numbers {
                how: Some(c),
                ..from(a, Kind::Open, b, [0; 3])
            },
            libc::SYS_newfstatat => from(a, Kind::Stat, b, [c, d, 0]),
            libc::SYS_statx => from(a, Kind::Statx, b, [c, d, e]),
            libc::SYS_faccessat => from(a, Kind::Access, b, [c, 0, 0]),
            libc::SYS_faccessat2 => from(a, Kind::Access, b, [c, d, 0]),
            libc::SYS_unlinkat => from(a, Kind::Unlink, b, [c, 0, 0]),
            libc::SYS_fchmodat | FCHMODAT2 => from(a, Kind::Mode, b, [c, 0, 0]),
            libc::SYS_fchownat => from(a, Kind::Owner, b, [c, d, 0]),
            libc::SYS_renameat2 => Numbers {
                second: Some((c as i32, d)),
                ..from(a, Kind::Rename, b, [e, 0, 0])
            },
            libc::SYS_inotify_add_watch => from(a, Kind::Watch, b, [c, 0, 0]),
            _ => return None,
        })
    }
}

/// Returns whether a call may move its thread to another IPC namespace.
pub fn may_move(call: &Call) -> bool {
    let has_ipc = |kinds: u64| kinds & libc::CLONE_NEWIPC as u64 != 0;
    match (call.number, call.arguments) {
        (libc::SYS_unshare, [kinds, ..]) => has_ipc(kinds),
        // With 0, setns(2) accepts a descriptor of any kind of namespace, so it may be an IPC namespace.
        (libc::SYS_setns, [_, kinds, ..]) => kinds == 0 || has_ipc(kinds),
        _ => false,
    }
}

/// Returns whether a call only changes the user or the namespaces of its thread, or the program of its process. The kernel performs such a call.
pub fn changes_identity(number: libc::c_long) -> bool {
    IDENTITY.contains(&number) || MOVES.contains(&number)
}

/// Returns whether a call replaces the program of its thread's process.
pub fn replaces_program(number: libc::c_long) -> bool {
    [libc::SYS_execve, libc::SYS_execveat].contains(&number)
}

/// The architecture of this build: AUDIT_ARCH_X86_64 or AUDIT_ARCH_AARCH64 of linux/audit.h.
const MACHINE: u32 = match cfg!(target_arch = "x86_64") {
    true => 0xc000_003e,
    false => 0xc000_00b7,
};

/// The offsets of fields in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
/// The lower half of the first argument, on a little-endian machine.
const ARGUMENTS: u32 = 16;

fn load(offset: u32) -> sock_filter {
    statement(BPF_LD | BPF_W | BPF_ABS, offset)
}

fn answer(action: u32) -> sock_filter {
    statement(BPF_RET | BPF_K, action)
}

fn statement(code: u32, k: u32) -> sock_filter {
    jump(code, k, 0, 0)
}

fn jump(code: u32, k: u32, jt: usize, jf: usize) -> sock_filter {
    sock_filter {
        code: code as u16,
        // A jump skips at most 255 instructions. The filter has fewer than 255.
        jt: jt as u8,
        jf: jf as u8,
        k,
    }
}

fn program(settings: Settings) -> Vec<sock_filter> {
    let (paths, flagged) = if settings.files {
        (PATHS, FLAGGED)
    } else {
        (&[][..], &[][..])
    };
    let moves = if settings.ipc_namespaces { MOVES } else { &[] };
    let numbers: Vec<_> = QUEUES
        .iter()
        .chain(POLLS)
        .chain(IDENTITY)
        .chain(moves)
        .chain(paths)
        .collect();
    let equal = BPF_JMP | BPF_JEQ | BPF_K;
    // Returns the number of instructions between the comparison with number `index` and the final "notify": the later comparisons, four instructions
    // for each flagged call, and the final "pass".
    let behind = |index: usize| numbers.len() - index - 1 + 4 * flagged.len() + 1;
    let mut program = vec![
        load(ARCHITECTURE),
        // Calls of another architecture pass.
        jump(equal, MACHINE, 0, behind(0) + 1),
        load(NUMBER),
    ];
    for (index, number) in numbers.iter().enumerate() {
        program.push(jump(equal, **number as u32, behind(index), 0));
    }
    for (index, (number, argument)) in flagged.iter().enumerate() {
        // The number of instructions between the third of these four instructions and the final "notify".
        let notify = 4 * (flagged.len() - index) - 3 + 1;
        program.push(jump(equal, *number as u32, 0, 3));
        program.push(load(ARGUMENTS + 8 * argument));
        let set = BPF_JMP | BPF_JSET | BPF_K;
        program.push(jump(set, libc::AT_EMPTY_PATH as u32, 0, notify));
        program.push(answer(libc::SECCOMP_RET_ALLOW));
    }
    program.push(answer(libc::SECCOMP_RET_ALLOW));
    program.push(answer(libc::SECCOMP_RET_USER_NOTIF));
    program
}

/// Installs the filter in this process. All programs and threads that this process starts later inherit the filter. Returns the descriptor through
/// which the supervisor receives the calls.
///
/// After the supervisor has received a call, only a fatal signal can end the call (Linux 5.19). So the program gets the answer.
///
/// Without CAP_SYS_ADMIN, the process sets PR_SET_NO_NEW_PRIVS: its programs can no longer gain privileges.
pub fn install(settings: Settings) -> io::Result<OwnedFd> {
    match apply(settings) {
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
            rustix::thread::set_no_new_privs(true)?;
            apply(settings)
        }
        other => other,
    }
}

fn apply(settings: Settings) -> io::Result<OwnedFd> {
    let mut instructions = program(settings);
    let program = libc::sock_fprog {
        len: instructions.len() as u16,
        filter: instructions.as_mut_ptr(),
    };
    // SAFETY: the program, and the instructions to which it points, live during the call, which only reads them.
    let listener = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV,
            &raw const program,
        )
    };
    if listener < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and has no other owner.
    let listener = unsafe { OwnedFd::from_raw_fd(listener as i32) };
    // Linux 6.6 and later: with this flag, the supervisor and the program wake each other on the same processor. An older kernel refuses the call,
    // and chooses the processor itself. SAFETY: the third argument is a number, not a pointer.
    unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS,
            WAKE_NEARBY,
        );
    }
    Ok(listener)
}

/// The flag SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP of linux/seccomp.h.
const WAKE_NEARBY: libc::c_ulong = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(files: bool, ipc_namespaces: bool) -> Settings {
        Settings {
            files,
            dev_mqueue: files,
            ipc_namespaces,
        }
    }

    /// Simulates the filter for one call, in which all arguments have the value `argument`.
    fn action(settings: Settings, machine: u32, number: u32, argument: u32) -> u32 {
        let program = program(settings);
        let (mut at, mut accumulator) = (0, 0);
        loop {
            let instruction = program[at];
            at += 1;
            let is_met = match u32::from(instruction.code) {
                code if code == BPF_RET | BPF_K => return instruction.k,
                code if code == BPF_LD | BPF_W | BPF_ABS => {
                    accumulator = match instruction.k {
                        NUMBER => number,
                        ARCHITECTURE => machine,
                        _ => argument,
                    };
                    continue;
                }
                code if code == BPF_JMP | BPF_JSET | BPF_K => accumulator & instruction.k != 0,
                _ => accumulator == instruction.k,
            };
            at += usize::from(if is_met {
                instruction.jt
            } else {
                instruction.jf
            });
        }
    }

    #[test]
    fn calls_on_queues_reach_the_supervisor_and_others_pass() {
        let calls = QUEUES.iter().chain(POLLS).chain(IDENTITY);
        for files in [false, true] {
            let action = |machine, number| action(settings(files, false), machine, number, 0);
            for number in calls.clone() {
                let number = *number as u32;
                assert_eq!(action(MACHINE, number), libc::SECCOMP_RET_USER_NOTIF);
                assert_eq!(action(MACHINE + 1, number), libc::SECCOMP_RET_ALLOW);
            }
            for number in [libc::SYS_read, libc::SYS_futex, libc::SYS_close] {
                assert_eq!(action(MACHINE, number as u32), libc::SECCOMP_RET_ALLOW);
            }
            // A call number of x32 is that of x86-64 with one additional bit.
            let wide = 0x4000_0000 | libc::SYS_mq_open as u32;
            assert_eq!(action(MACHINE, wide), libc::SECCOMP_RET_ALLOW);
        }
    }

    #[test]
    fn calls_that_move_to_another_namespace_pass_if_all_have_the_same_queues() {
        for number in MOVES {
            let action = |ipc_namespaces| {
                let settings = settings(true, ipc_namespaces);
                action(settings, MACHINE, *number as u32, 0)
            };
            assert_eq!(action(true), libc::SECCOMP_RET_USER_NOTIF);
            assert_eq!(action(false), libc::SECCOMP_RET_ALLOW);
        }
    }

    #[test]
    fn calls_with_paths_reach_the_supervisor_if_it_is_to_answer_them() {
        let flagged = FLAGGED.iter().map(|(number, _)| number);
        for number in PATHS.iter().chain(flagged.clone()) {
            let action = |files| action(settings(files, true), MACHINE, *number as u32, 0);
            assert_eq!(action(true), libc::SECCOMP_RET_USER_NOTIF, "{number}");
            assert_eq!(action(false), libc::SECCOMP_RET_ALLOW, "{number}");
            let arguments = [0; 6];
            let call = Call::new(0, *number, arguments);
            assert!(Numbers::of(&call).is_some(), "{number}");
        }
        for number in flagged {
            let empty = libc::AT_EMPTY_PATH as u32;
            let action = action(settings(true, true), MACHINE, *number as u32, empty);
            assert_eq!(action, libc::SECCOMP_RET_ALLOW, "{number}");
        }
    }
}
