//! Tests queues of one name that are created and removed one after the other: the drop-in must behave as the kernel does.

mod support;

use std::os::unix::process::ExitStatusExt;
use support::{Namespace, compile, finish, succeed};

cases_on_both! { "recycle":
    each_queue_is_new,
    each_queue_has_its_own_attributes_mode_and_access,
    a_forked_child_goes_on_with_its_queue,
    a_forked_child_makes_queues_of_its_own,
    a_duplicate_goes_on_with_its_queue,
    a_descriptor_in_a_socket_goes_on_with_its_queue,
    a_spawned_program_goes_on_with_its_queue,
    a_process_that_opens_meanwhile_finds_a_whole_queue_or_none,
    several_processes_that_create_one_name_have_it_in_turn,
    several_threads_that_create_one_name_have_it_in_turn,
    a_process_that_forks_meanwhile_has_whole_queues,
    a_blocked_call_goes_on_with_its_queue,
    a_descriptor_that_a_handler_passes_on_during_the_removal_goes_on_with_its_queue,
    a_queue_that_was_polled_or_had_a_registration_leaves_nothing,
}

/// Returns the names in the directory of queues.
fn names(namespace: &Namespace) -> Vec<std::ffi::OsString> {
    let entries = std::fs::read_dir(namespace.path().join("mq")).unwrap();
    entries.map(|entry| entry.unwrap().file_name()).collect()
}

#[test]
fn the_segment_is_used_again() {
    let namespace = Namespace::new();
    // A process remembers the record of limits only if the record's file was last changed some clock ticks ago. So the test waits before the second
    // program.
    succeed(
        namespace
            .command(compile("recycle"))
            .arg("each_queue_is_new"),
    );
    std::thread::sleep(std::time::Duration::from_millis(40));
    succeed(
        namespace
            .command(compile("recycle"))
            .arg("the_segment_is_used_again"),
    );
    assert!(names(&namespace).is_empty(), "the exit removes the file");
}

#[test]
fn the_segment_of_a_killed_process_is_removed_by_the_next() {
    let namespace = Namespace::new();
    let ended = finish(
        namespace
            .command(compile("recycle"))
            .arg("a_process_is_killed_between_two_queues"),
    );
    assert_eq!(ended.status.signal(), Some(libc::SIGKILL));
    assert_eq!(names(&namespace).len(), 1);
    succeed(
        namespace
            .command(compile("recycle"))
            .arg("each_queue_is_new"),
    );
    assert!(names(&namespace).is_empty());
}
