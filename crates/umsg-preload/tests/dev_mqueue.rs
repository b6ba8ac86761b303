//! Tests /dev/mqueue: the drop-in must behave as the kernel's file system does.

mod support;

cases_on_both! { "dev_mqueue":
    a_queue_is_a_file_of_eighty_bytes,
    a_path_opens_the_queue,
    streams_read_the_line,
    the_directory_lists_the_queues_that_there_are,
    walks_and_patterns_find_the_queues,
    a_queue_is_removed_by_its_path,
    a_queue_has_one_name_for_ever,
    mode_and_owner_change_by_the_path,
    another_user_is_held_to_the_mode,
    inotify_tells_of_queues,
    shells_and_commands_list_read_and_remove,
}
