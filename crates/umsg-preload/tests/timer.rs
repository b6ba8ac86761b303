//! Tests a handler that runs 10,000 times a second, and uses the queue that its thread is using: the drop-in must behave as the kernel does.
//!
//! Each case runs for 5 seconds, or for the seconds in `UMSG_SIGNAL_SECONDS`.

mod support;

cases_on_both! { "timer":
    no_message_is_lost_between_a_thread_and_its_handler,
    no_message_is_lost_where_the_handler_interrupts_blocked_calls,
}
