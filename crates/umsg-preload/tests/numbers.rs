//! Tests descriptor numbers duplicated, closed in bulk and used again: the drop-in must behave as the kernel does.

mod support;

cases_on_both! { "numbers":
    every_kind_of_duplicate_is_a_queue,
    a_number_given_to_another_file_is_no_queue,
    a_failed_dup2_leaves_the_queue,
    close_range_and_closefrom_close_queues,
    a_daemon_that_closes_everything_can_go_on,
    a_queue_closed_by_a_bare_system_call_is_forgotten,
    thousands_of_descriptors_are_kept_apart,
}
