//! The limits of queues in /proc/sys: the drop-in against the kernel.

mod support;

cases_on_both! { "limits":
    a_written_limit_is_read_from_then_on,
    a_descriptor_counts_what_is_written_at_its_beginning,
    queues_obey_written_limits,
    the_next_queue_has_the_identifier_that_was_written,
    another_user_takes_the_next_identifier_and_does_not_choose_it,
    streams_write_limits,
    shells_and_other_programs_write_limits,
    another_user_reads_limits_and_does_not_write_them,
}
