//! Runs random operations on the kernel's and umsg's System V queues in lockstep, and proves that the comparison finds mistakes.

#[macro_use]
mod comparing;

use comparing::{expect_found, expect_no_difference, expect_seen};
use umsg_conformance::backend::Kind;
use umsg_conformance::sys;
use umsg_conformance::sysv::SystemV;
use umsg_conformance::sysv::backend::Flaw;

comparisons! {
    SystemV,
    the_library_does_not_differ_from_the_kernel,
    the_c_library_does_not_differ_from_the_kernel,
    the_drop_in_does_not_differ_from_the_kernel,
    preloaded_processes_do_not_differ_from_the_kernel,
    the_kernel_does_not_differ_from_itself,
}

#[test]
fn the_operations_reach_what_there_is_to_reach() {
    let summary = expect_no_difference::<SystemV>(Kind::Kernel, 50_000);
    let expected = [
        ("msgget", "ok"),
        ("msgget", "ENOENT"),
        ("msgget", "EEXIST"),
        ("msgsnd", "ok"),
        ("msgsnd", "blocks"),
        ("msgsnd", "EAGAIN"),
        ("msgsnd", "EIDRM"),
        ("msgsnd", "EINTR"),
        ("msgsnd", "EINVAL"),
        ("msgrcv", "ok"),
        ("msgrcv", "blocks"),
        ("msgrcv", "E2BIG"),
        ("msgrcv", "EIDRM"),
        ("msgrcv", "EINTR"),
        ("msgrcv", "EINVAL"),
        ("msgrcv", "ENOMSG"),
        ("msgrcv with MSG_COPY", "ok"),
        ("msgrcv with MSG_COPY", "E2BIG"),
        ("msgrcv with MSG_COPY", "EINVAL"),
        ("msgrcv with MSG_COPY", "ENOMSG"),
        ("IPC_STAT", "ok"),
        ("IPC_STAT", "EINVAL"),
        ("IPC_SET", "ok"),
        ("IPC_SET", "EINVAL"),
        ("IPC_RMID", "ok"),
        ("IPC_RMID", "EINVAL"),
        ("msgctl", "EINVAL"),
        ("fork", "ok"),
        ("SIGKILL", "blocked"),
        ("signal", "blocked"),
        ("signal with SA_RESTART", "blocked"),
        ("SIGSTOP and SIGCONT", "blocked"),
    ];
    expect_seen(&summary, &expected);
    let of_other_users = [
        ("msgget", "EACCES"),
        ("msgsnd", "EACCES"),
        ("msgrcv", "EACCES"),
        ("msgrcv with MSG_COPY", "EACCES"),
        ("IPC_STAT", "EACCES"),
        ("IPC_SET", "EPERM"),
        ("IPC_RMID", "EPERM"),
    ];
    if sys::is_root() {
        expect_seen(&summary, &of_other_users);
    }
}

#[test]
fn every_mistake_is_found() {
    let flaws = Flaw::ALL.iter().copied();
    for flaw in flaws.filter(|flaw| sys::is_root() || !flaw.needs_root()) {
        expect_found::<SystemV>(flaw);
    }
}
