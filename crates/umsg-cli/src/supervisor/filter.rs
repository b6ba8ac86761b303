//! The filter that passes a program's system calls on queues to the supervisor. Source: seccomp(2).
//!
//! All other system calls pass without a look at their arguments, so that the kernel decides them by a bit map.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter};

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

/// The calls that may change a thread's user. The kernel performs them; afterwards the supervisor reads the thread's user again.
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

/// Returns whether a call only changes the user of its thread.
pub fn changes_identity(number: libc::c_long) -> bool {
    IDENTITY.contains(&number)
}

/// The architecture of this build: AUDIT_ARCH_X86_64 or AUDIT_ARCH_AARCH64 of linux/audit.h.
const MACHINE: u32 = match cfg!(target_arch = "x86_64") {
    true => 0xc000_003e,
    false => 0xc000_00b7,
};

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;

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
        // No filter here has more than 255 instructions.
        jt: jt as u8,
        jf: jf as u8,
        k,
    }
}

fn program() -> Vec<sock_filter> {
    let numbers: Vec<_> = QUEUES.iter().chain(POLLS).chain(IDENTITY).collect();
    let equal = BPF_JMP | BPF_JEQ | BPF_K;
    let mut program = vec![
        load(ARCHITECTURE),
        // Calls of another architecture pass.
        jump(equal, MACHINE, 0, numbers.len() + 1),
        load(NUMBER),
    ];
    for (index, number) in numbers.iter().enumerate() {
        program.push(jump(equal, **number as u32, numbers.len() - index, 0));
    }
    program.push(answer(libc::SECCOMP_RET_ALLOW));
    program.push(answer(libc::SECCOMP_RET_USER_NOTIF));
    program
}

/// Installs the filter in this process and, from then on, in all that it starts. Returns the descriptor through which the supervisor gets the
/// calls.
///
/// From the moment at which the supervisor takes a call, only a deadly signal ends it (Linux 5.19): the answer reaches the program.
///
/// Without CAP_SYS_ADMIN the process gives up privileges that its programs would gain (PR_SET_NO_NEW_PRIVS).
pub fn install() -> io::Result<OwnedFd> {
    match apply() {
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
            rustix::thread::set_no_new_privs(true)?;
            apply()
        }
        other => other,
    }
}

fn apply() -> io::Result<OwnedFd> {
    let mut instructions = program();
    let program = libc::sock_fprog {
        len: instructions.len() as u16,
        filter: instructions.as_mut_ptr(),
    };
    // SAFETY: the program, and the instructions that it names, live during the call, which only reads them.
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
    // Linux 6.6: the supervisor wakes up on the program's processor, and the program on the supervisor's. An older kernel chooses.
    // SAFETY: the kernel reads a number.
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

    /// Interprets the few instructions that the filter has.
    fn action(machine: u32, number: u32) -> u32 {
        let program = program();
        let (mut at, mut accumulator) = (0, 0);
        loop {
            let instruction = program[at];
            at += 1;
            match u32::from(instruction.code) {
                code if code == BPF_RET | BPF_K => return instruction.k,
                code if code == BPF_LD | BPF_W | BPF_ABS => {
                    accumulator = if instruction.k == NUMBER {
                        number
                    } else {
                        machine
                    };
                }
                _ if accumulator == instruction.k => at += usize::from(instruction.jt),
                _ => at += usize::from(instruction.jf),
            }
        }
    }

    #[test]
    fn calls_on_queues_reach_the_supervisor_and_others_pass() {
        for number in QUEUES.iter().chain(POLLS).chain(IDENTITY) {
            assert_eq!(
                action(MACHINE, *number as u32),
                libc::SECCOMP_RET_USER_NOTIF
            );
            assert_eq!(action(MACHINE + 1, *number as u32), libc::SECCOMP_RET_ALLOW);
        }
        for number in [libc::SYS_read, libc::SYS_futex, libc::SYS_close] {
            assert_eq!(action(MACHINE, number as u32), libc::SECCOMP_RET_ALLOW);
        }
        // The numbers of x32 are those of x86-64 with a bit.
        let wide = 0x4000_0000 | libc::SYS_mq_open as u32;
        assert_eq!(action(MACHINE, wide), libc::SECCOMP_RET_ALLOW);
    }
}
