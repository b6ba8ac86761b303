//! Tests System V queues: the drop-in must behave as the kernel does.

mod support;

cases_on_both! { "sysv":
    messages_are_picked_by_type,
    errors_come_in_the_kernels_order,
    bad_addresses_are_efault_and_a_receive_consumes_the_message,
    a_buffer_said_to_be_huge_is_fine,
    keys_lead_to_queues,
    a_key_leads_to_the_queue_that_took_the_place_of_an_attached_one,
    a_blocked_receiver_gets_what_another_process_sends,
    a_blocked_sender_goes_on_when_there_is_room,
    who_waits_in_a_removed_queue_is_told_so,
    a_handler_ends_a_blocked_call,
    a_handler_with_sa_restart_ends_a_blocked_call,
    a_signal_handler_may_send_and_receive,
    blocked_threads_can_be_cancelled,
    a_cancelled_thread_ends_before_it_takes_a_message,
    who_gives_up_his_user_gives_up_its_rights,
    a_strangers_queue_can_be_named_but_not_used,
    a_child_of_vfork_may_send,
    the_last_sender_and_receiver_are_named,
    each_queue_in_a_row_is_new_and_has_another_identifier,
    who_waits_in_one_of_many_queues_in_a_row_is_told_of_its_removal,
    a_child_keeps_away_from_the_queues_that_its_parent_makes_later,
}

cases_on_umsg! { "sysv":
    a_handler_that_runs_as_the_call_begins_ends_it,
    removed_queues_are_unmapped,
    a_queue_in_a_row_takes_no_file,
}
