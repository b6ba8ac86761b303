//! Tests the limits of the process, and very many queues: the drop-in must behave as the kernel does, in the cases that the kernel supports.

mod support;

cases_on_both! { "exhaustion":
    without_a_descriptor_no_queue_is_opened_and_open_ones_are_used,
    queues_without_number_leave_no_descriptor_and_no_mapping,
}

cases_on_umsg! { "exhaustion":
    a_limit_on_the_size_of_files_is_an_error_and_no_signal,
    a_limit_on_address_space_is_an_error,
    identifiers_without_number_leave_no_descriptor_and_no_mapping,
}
