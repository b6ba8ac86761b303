//! Tests poll and select on queues' descriptors: the drop-in must behave as the kernel does.

mod support;

cases_on_both! { "poll":
    a_descriptor_is_readable_while_there_is_a_message_and_writable_while_there_is_room,
    only_what_was_asked_for_is_told,
    the_access_mode_does_not_matter,
    a_closed_descriptor_is_invalid,
    poll_times_out,
    a_blocked_poll_ends_when_another_process_sends,
    a_blocked_poll_ends_when_another_process_receives,
    a_sender_that_opened_the_queue_itself_ends_a_blocked_poll,
    a_sender_that_closes_what_it_does_not_know_still_ends_polls,
    a_queue_without_a_name_is_polled_too,
    queues_are_polled_among_pipes_and_sockets,
    a_blocked_poll_of_queues_ends_when_a_pipe_is_written,
    hundreds_of_queues_are_polled_at_once,
    a_program_without_a_free_descriptor_polls,
    a_message_that_goes_to_a_blocked_receiver_is_never_shown,
    a_handler_ends_a_blocked_poll_even_under_sa_restart,
    the_mask_of_ppoll_and_pselect_counts_while_they_wait,
    select_tells_what_is_readable_and_writable,
    select_waits_and_tells_the_time_that_is_left,
    select_refuses_closed_descriptors_and_bad_times,
    select_leaves_what_is_behind_a_set,
    a_thread_that_polls_can_be_cancelled,
    a_poll_that_does_not_wait_is_a_cancellation_point_too,
    a_thread_that_may_be_ended_at_any_instruction_is_cancelled_while_it_polls,
    a_cancelled_poll_of_many_descriptors_keeps_no_memory,
    many_processes_poll_and_nothing_is_missed,
    a_forked_child_and_its_parent_poll_the_same_descriptor,
    a_program_may_use_any_number_for_a_file_of_its_own,
}

cases_on_umsg! { "poll":
    a_queue_that_nobody_waits_for_takes_no_system_call,
}
