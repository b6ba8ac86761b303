//! Tests mq_notify: the drop-in must behave as the kernel does.

mod support;

cases_on_both! { "notify":
    a_handler_has_run_when_the_send_returns,
    the_signal_says_who_sent,
    the_signal_of_another_processs_message_is_pending_when_that_has_sent,
    a_signal_is_the_processs_and_not_a_threads,
    it_fires_once,
    it_fires_only_when_the_queue_was_empty,
    a_blocked_receiver_takes_precedence,
    a_blocked_senders_message_does_not_fire_it,
    one_may_be_registered,
    errors_come_in_the_kernels_order,
    signal_0_is_none,
    a_registration_without_a_signal_lasts_until_a_message_comes,
    a_queue_open_for_writing_only_notifies,
    an_unlinked_queue_notifies,
    closing_any_descriptor_of_the_queue_ends_it,
    another_queues_descriptor_or_a_childs_does_not_end_it,
    who_is_killed_is_registered_no_more,
    who_runs_another_program_is_registered_no_more,
    who_ends_is_registered_no_more_as_soon_as_it_has_begun_to,
    a_stopped_process_finds_the_signal_when_it_goes_on,
    a_thread_is_started_for_each_message,
    a_thread_has_the_attributes_asked_for,
    a_thread_may_register_again,
    a_handler_may_register_again,
    a_thread_may_end_itself,
    threads_are_started_in_a_forked_child,
    registering_and_taking_it_back_again_and_again_is_safe,
    many_queues_notify_one_process,
    another_users_message_notifies,
    a_notification_comes_before_its_message_is_received,
    a_process_that_is_told_faster_than_threads_begin_is_never_refused,
    stopped_processes_that_were_told_keep_nobody_from_registering,
    a_handler_receives_the_message_that_it_was_told_of,
}

cases_on_umsg! { "notify":
    threads_are_started_in_a_child_of_a_process_that_had_some,
}
