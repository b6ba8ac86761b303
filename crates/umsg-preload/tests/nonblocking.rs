//! Tests O_NONBLOCK of a queue's descriptor, changed in every way: the drop-in must behave as the kernel does.

mod support;

cases_on_both! { "nonblocking":
    a_change_by_any_call_counts_at_once,
    descriptors_of_their_own_descriptions_do_not_share_the_flag,
    a_child_changes_it_for_its_parent,
    after_a_fork_a_change_of_ones_own_is_not_the_last,
    a_parent_changes_it_for_its_child,
    a_receiver_of_the_descriptor_changes_it,
    a_receiver_of_several_messages_changes_it,
    a_program_that_is_started_with_a_duplicate_changes_it,
    a_program_that_is_started_with_the_descriptor_changes_it,
    a_program_that_a_vfork_child_starts_changes_it,
}
