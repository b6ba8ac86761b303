//! Tests IPC namespaces of the kernel: the drop-in must behave as the kernel does, and must remove what remains of the namespaces.

mod support;

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use support::{Namespace, compile, finish, succeed};
use umsg_testkit::ipc_directories;

cases_on_both! { "ipc_namespaces":
    a_new_namespace_has_queues_of_its_own,
    a_process_comes_back_to_the_queues_of_a_namespace,
    queues_that_are_made_again_and_again_stay_in_their_namespace,
    a_child_of_clone_has_queues_of_its_own,
    a_child_of_a_bare_clone_has_queues_of_its_own,
    programs_of_a_namespace_share_its_queues,
    a_namespace_outlives_the_process_that_has_made_queues_in_it,
    a_new_namespace_has_the_default_limits,
}

/// Returns a command that runs a case as `umsg run` would: an environment variable says that the directory belongs to the IPC namespace of this test.
fn command(namespace: &Namespace, case: &str) -> Command {
    let mut command = namespace.command(compile("ipc_namespaces"));
    let (name, value) = umsg::ipc::variable().unwrap();
    command.arg(case).env(name, value);
    command
}

#[test]
fn the_last_process_removes_the_directories() {
    for case in [
        "a_new_namespace_has_queues_of_its_own",
        "a_process_comes_back_to_the_queues_of_a_namespace",
        "a_child_of_clone_has_queues_of_its_own",
        "a_new_namespace_has_the_default_limits",
        "programs_of_a_namespace_share_its_queues",
        "a_namespace_outlives_the_process_that_has_made_queues_in_it",
    ] {
        let namespace = Namespace::new();
        succeed(&mut command(&namespace, case));
        assert_eq!(ipc_directories(namespace.path()), [""; 0], "{case}");
    }
}

#[test]
fn the_directory_of_a_killed_process_is_removed_by_the_next_and_by_a_sweep() {
    umsg_testkit::needs_root!();
    let namespace = Namespace::new();
    let mut before = Vec::new();
    for _ in 0..3 {
        let killed = finish(&mut command(
            &namespace,
            "a_process_is_killed_in_its_namespace",
        ));
        assert_eq!(killed.status.signal(), Some(libc::SIGKILL));
        let after = ipc_directories(namespace.path());
        assert!(after.len() == 1 && after != before, "{before:?}, {after:?}");
        before = after;
    }
    let at = umsg::Namespace::at(namespace.path()).unwrap();
    assert_eq!(at.stale_files().unwrap().incomplete, 1);
    at.sweep().unwrap();
    assert_eq!(ipc_directories(namespace.path()), [""; 0]);
}

#[test]
fn a_program_that_a_bare_call_has_moved_finds_its_namespace() {
    umsg_testkit::needs_root!();
    let namespace = Namespace::new();
    succeed(&mut command(
        &namespace,
        "a_bare_call_moves_the_next_program",
    ));
}

#[test]
fn all_namespaces_share_the_queues_if_the_environment_says_so() {
    let namespace = Namespace::new();
    let (name, value) = umsg::ipc::shared();
    succeed(command(&namespace, "queues_are_shared").env(name, value));
    assert_eq!(ipc_directories(namespace.path()), [""; 0]);
}
