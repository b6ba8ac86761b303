//! Tests threads that use and close descriptors at the same time: the drop-in must behave as the kernel does.

mod support;

cases_on_both! { "threads":
    closing_the_descriptor_neither_wakes_nor_breaks_a_blocked_receiver,
    closing_and_opening_under_senders_loses_no_memory_access,
    a_closed_queue_is_unmapped,
    threads_that_come_and_go_leave_nothing_mapped,
    few_closed_queues_stay_mapped,
}
