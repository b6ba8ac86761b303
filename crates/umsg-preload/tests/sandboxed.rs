//! Tests the drop-in in a sandbox: with each system call refused in turn, and under the profiles of container engines.
#![allow(
    dead_code,
    reason = "the lists and filters are those of the library's tests, of which these use some"
)]

mod support;

#[path = "../../umsg/tests/sandbox/calls.rs"]
mod calls;
#[path = "../../umsg/tests/sandbox/containers.rs"]
mod containers;
#[path = "../../umsg/tests/support/seccomp.rs"]
mod seccomp;

use calls::CALLS;
use containers::{DOCKER, PODMAN, Profile};
use seccomp::{allow_only, refuse};
use std::os::unix::process::CommandExt;
use std::process::Output;
use support::{Namespace, compile, finish};

const CASES: [&str; 6] = [
    "messages_pass_and_receivers_wake",
    "a_child_sends_to_its_parent",
    "poll_and_epoll_tell_of_messages",
    "a_signal_tells_of_a_message",
    "a_thread_tells_of_a_message",
    "typed_messages_pass_between_processes",
];

/// The test that refuses each system call in turn leaves out these calls: the dynamic linker and libc need them before the drop-in is loaded.
const OF_THE_LOADER: [&str; 2] = ["pread64", "fcntl"];

/// The exit status of a program whose first call failed with the errno of the sandbox.
const REFUSED: i32 = 3;

/// Runs a case in a sandbox that `enter` makes.
fn run(case: &str, errno: i32, user: u32, enter: impl Fn() + Send + Sync + 'static) -> Output {
    let namespace = Namespace::new();
    if user != 0 {
        // A failure is ignored: only root can change the owner and the user.
        let _ = std::os::unix::fs::chown(namespace.path(), Some(user), Some(user));
    }
    let mut command = namespace.command(compile("sandbox"));
    command
        .arg(case)
        .env("UMSG_TEST_REFUSED", errno.to_string());
    let enter = move || {
        // SAFETY: the calls change settings of this process. Its user changes only if it is root.
        unsafe {
            if user != 0 && libc::geteuid() == 0 {
                libc::setgroups(0, std::ptr::null());
                libc::setgid(user);
                libc::setuid(user);
            }
        }
        enter();
        Ok(())
    };
    // SAFETY: the closure calls only malloc, which glibc keeps usable in the child of a multi-threaded process, and system calls.
    unsafe { command.pre_exec(enter) };
    finish(&mut command)
}

fn complaint(what: &str, output: &Output, may_be_refused: bool) -> Option<String> {
    match output.status.code() {
        Some(0) => None,
        Some(REFUSED) if may_be_refused => None,
        _ => {
            let text = String::from_utf8_lossy(&output.stderr);
            Some(format!("{what}: {}: {text}", output.status))
        }
    }
}

fn all_cases_with_each_call_refused(errno: i32) {
    let mut wrong = vec![];
    for (name, number) in CALLS
        .iter()
        .filter(|(name, _)| !OF_THE_LOADER.contains(name))
    {
        for case in CASES {
            let output = run(case, errno, 0, move || refuse(&[(*number).into()], errno));
            wrong.extend(complaint(&format!("{case}, {name} refused"), &output, true));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_call_refused_with_enosys_is_done_without_or_the_first_call_fails_with_it() {
    all_cases_with_each_call_refused(libc::ENOSYS);
}

#[test]
fn a_call_refused_with_eperm_is_done_without_or_the_first_call_fails_with_it() {
    all_cases_with_each_call_refused(libc::EPERM);
}

fn all_cases_in_a_container(profile: &'static Profile) {
    for user in [0, 61001] {
        for case in CASES {
            let output = run(case, 0, user, || {
                for (call, errno) in profile.answers {
                    refuse(&[(*call).into()], *errno);
                }
                allow_only(&profile.lets_pass(), profile.others);
            });
            let complaint = complaint(&format!("{case}, user {user}"), &output, false);
            assert_eq!(complaint, None);
        }
    }
}

#[test]
fn programs_work_under_the_default_profile_of_docker_also_without_capabilities() {
    all_cases_in_a_container(&DOCKER);
}

#[test]
fn programs_work_under_the_default_profile_of_podman_also_without_capabilities() {
    all_cases_in_a_container(&PODMAN);
}
