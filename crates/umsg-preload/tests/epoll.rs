//! Tests queues' descriptors in epoll sets: the drop-in must behave as the kernel does.

mod support;

cases_on_both! { "epoll":
    a_registered_queue_is_told_as_long_as_it_is_ready,
    all_events_are_told_by_their_names,
    registrations_are_changed_and_removed,
    epoll_ctl_refuses_what_it_refuses_of_any_file,
    a_blocked_epoll_wait_ends_when_another_process_sends_or_receives,
    each_send_and_each_receive_is_an_edge,
    an_edge_is_told_with_all_that_is_ready,
    edges_of_room_alone,
    edges_cross_processes,
    of_a_message_that_fills_the_queue_other_processes_are_told,
    a_changed_registration_is_told_anew,
    of_exclusive_waiters_at_least_one_is_told,
    queues_stand_beside_other_files,
    a_set_with_a_ready_queue_is_ready_itself,
    the_last_close_ends_a_registration,
    a_duplicate_keeps_a_registration,
    duplicates_are_registered_apart,
    a_queue_is_registered_in_several_sets,
    a_forked_child_keeps_a_registration,
    a_childs_close_leaves_its_parents_registration,
    a_child_that_starts_a_program_leaves_its_parents_registration,
    a_program_that_closes_everything_else_keeps_polling,
    a_daemon_that_closes_everything_can_poll_again,
    queues_come_and_go_and_leave_no_descriptors,
    a_thread_in_epoll_wait_can_be_cancelled,
    descriptors_come_and_go_while_threads_poll_and_register_them,
    a_receiver_driven_by_edges_misses_nothing,
    a_sender_driven_by_edges_misses_nothing,
}
