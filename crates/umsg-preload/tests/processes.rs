//! Tests descriptors that are passed from one process to another: the drop-in must behave as the kernel does.

mod support;

cases_on_both! { "processes":
    a_forked_child_shares_the_descriptor,
    a_grandchild_of_a_bare_fork_shares_the_descriptor,
    exec_drops_the_descriptor,
    without_close_on_exec_the_descriptor_survives_exec,
    a_duplicate_survives_exec,
    a_duplicate_of_a_high_number_survives_exec,
    a_queue_that_survives_exec_is_polled_after_a_receive,
    a_queue_that_survives_exec_is_selected_by_a_child,
    a_queue_that_survives_exec_is_known_beside_another,
    a_queue_that_survives_exec_is_known_after_it_was_marked,
    the_close_of_an_inherited_descriptor_ends_a_registration,
    several_descriptors_survive_exec,
    a_descriptor_sent_over_a_socket_shares_the_open_file_description,
    a_vfork_child_closes_only_its_own_descriptors,
    a_vfork_child_of_a_forked_child_closes_only_its_own_descriptors,
}
