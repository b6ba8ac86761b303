//! Tests sending and receiving: the drop-in must behave as the kernel does.

mod support;

cases_on_both! { "messages":
    the_highest_priority_comes_first_and_equals_in_order,
    errors_come_in_the_kernels_order,
    bad_addresses_are_efault_and_a_receive_consumes_the_message,
    a_message_of_no_bytes_needs_no_address,
    a_buffer_said_to_be_huge_is_fine,
    a_blocked_receiver_gets_what_another_process_sends,
    a_blocked_sender_goes_on_when_there_is_room,
    a_handler_without_sa_restart_ends_a_blocked_call_with_eintr,
    under_sa_restart_a_blocked_call_goes_on,
    a_signal_handler_may_send,
    a_queue_of_the_kernels_still_works,
}

cases_on_umsg! { "messages":
    a_timed_send_beside_a_stopped_process_returns_in_time,
    a_timed_receive_beside_a_stopped_process_returns_in_time,
}
