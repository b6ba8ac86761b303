//! Tests calls by number, with syscall(2): the drop-in must behave as the kernel does.

mod support;

cases_on_both! { "by_number":
    names_have_no_slash_and_errors_are_the_kernels,
    both_ways_lead_to_one_queue,
    a_registration_by_number_is_notified,
    system_v_queues_are_used_by_number,
    a_descriptor_is_duplicated_and_closed_by_number,
    a_descriptor_is_read_and_polled_by_number,
    other_calls_have_all_their_arguments,
    a_blocked_call_is_no_cancellation_point,
    a_blocked_thread_that_may_be_ended_at_any_instruction_is_ended,
    a_signal_handler_may_call_by_number,
    who_gives_up_his_user_by_number_gives_up_its_rights,
}
