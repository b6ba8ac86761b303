//! A handler that runs 10,000 times a second and uses the queue that its thread is using: the drop-in against the kernel.
//!
//! 5 seconds a case, or as many as `UMSG_SIGNAL_SECONDS` says.

mod support;

cases_on_both! { "timer":
    no_message_is_lost_between_a_thread_and_its_handler,
    no_message_is_lost_where_the_handler_interrupts_blocked_calls,
}
