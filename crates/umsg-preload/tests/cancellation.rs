//! Tests cancelled threads: the drop-in must behave as the kernel does.

mod support;

cases_on_both! { "cancellation":
    a_cancelled_thread_ends_on_entry,
    cancelled_threads_end_in_a_blocked_receive,
    cancelled_threads_end_in_a_blocked_timed_receive,
    cancelled_threads_end_in_a_blocked_send,
    cancelled_threads_end_in_a_blocked_msgrcv,
    cancelled_threads_end_in_a_blocked_msgsnd,
    threads_that_may_be_ended_anywhere_end_in_a_blocked_call,
    threads_ended_anywhere_leave_queues_that_can_be_used,
    where_cancellation_is_disabled_a_blocked_receive_goes_on,
    the_type_of_cancellation_is_the_programs,
    a_thread_that_reads_another_file_can_be_cancelled,
    opening_and_closing_a_queue_are_no_cancellation_points,
}
