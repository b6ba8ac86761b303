//! Tests opening, creating and unlinking: the drop-in must behave as the kernel does.

mod support;

use std::os::unix::fs::PermissionsExt;

use support::{Namespace, compile, succeed};

cases_on_both! { "open":
    bad_names_are_refused_as_by_the_kernel,
    a_name_without_its_slash_is_refused_by_glibc_and_the_same_queue_for_musl,
    a_name_of_255_bytes_is_fine,
    flags_without_a_meaning_are_kept,
    o_direct_is_refused_once_the_queue_exists,
    o_path_opens_no_queue,
    opening_tells_missing_existing_and_wrong_access_apart,
    access_mode_3_creates_a_queue_that_can_only_be_closed,
    attributes_count_only_when_a_queue_is_created,
    without_attributes_a_queue_takes_10_messages_of_8192_bytes,
    mq_flags_given_at_creation_are_ignored,
    a_bad_address_of_attributes_is_efault_before_the_name_is_judged,
    an_unlinked_queue_lives_until_its_last_close_and_its_name_is_free,
    messages_persist_with_no_opener,
    the_mode_is_masked_by_the_umask,
    a_queue_for_which_a_program_waits_is_found_as_soon_as_it_is_there,
    a_queue_that_is_opened_again_is_the_one_that_has_the_name,
    a_queue_that_is_opened_again_has_the_access_and_the_flags_of_this_opening,
}

#[test]
fn a_program_that_changed_its_user_finds_the_same_queues() {
    among_users("a_program_that_changed_its_user_finds_the_same_queues");
}

#[test]
fn a_queue_that_is_opened_again_asks_for_the_permissions_of_then() {
    among_users("a_queue_that_is_opened_again_asks_for_the_permissions_of_then");
}

/// Runs a case in a namespace that all users may use, and on the kernel's queues.
fn among_users(case: &str) {
    let namespace = Namespace::new();
    let for_all = std::fs::Permissions::from_mode(0o1777);
    std::fs::set_permissions(namespace.path(), for_all).unwrap();
    succeed(namespace.command(compile("open")).arg(case));
    if support::kernel_has_queues() {
        succeed(std::process::Command::new(compile("open")).arg(case));
    }
}
