//! Tests a queue's descriptor in functions that know nothing of queues: the drop-in must behave as the kernel does.

mod support;

cases_on_both! { "descriptor":
    the_descriptor_is_the_lowest_free_number_and_close_on_exec,
    close_equals_mq_close_and_a_second_one_is_ebadf,
    mq_functions_refuse_what_is_no_queue,
    fstat_says_a_regular_file_of_80_bytes,
    fchmod_is_seen_by_fstat,
    read_tells_how_many_bytes_are_queued,
    a_duplicate_shares_the_position,
    lseek_moves_in_80_bytes,
    writing_syncing_and_mapping_are_refused,
    getattr_and_setattr_know_one_flag,
    o_nonblock_belongs_to_the_open_file_description,
    proc_self_fd_leads_to_the_name,
}
