//! Tests signal handlers that run while a thread uses queues, or that use queues: the drop-in must behave as the kernel does.

mod support;

use support::{Namespace, compile, compile_with, library, succeed};

cases_on_both! { "handlers":
    a_program_is_told_its_own_handlers,
    a_handler_runs_with_the_mask_that_was_asked_for,
    handlers_installed_before_and_after_the_first_queue_run,
    a_handler_gets_what_was_sent_with_the_signal,
    a_handler_that_resets_itself_runs_once,
    a_call_ends_or_goes_on_as_siginterrupt_says,
    a_program_is_told_what_it_has_installed_for_bus_errors,
    a_bus_error_that_is_the_programs_own_reaches_its_handler,
    a_bus_error_without_a_handler_ends_the_program,
    a_vfork_child_changes_only_its_own_handlers,
    each_of_two_threads_handlers_is_told_once,
    a_handler_installed_beside_the_first_queue_stays,
    a_handler_uses_the_queue_that_its_thread_is_using,
    of_several_signals_that_come_at_once_none_is_lost,
}

// These cases look for the file of their queue in the namespace, so they do not run on the kernel's queues.
cases_on_umsg! { "handlers":
    handlers_of_each_function_of_libc_are_entered_through_the_drop_ins,
    handlers_of_a_runtime_without_libc_are_entered_through_the_drop_ins,
    a_queue_whose_file_is_cut_short_is_an_error,
    a_queue_that_is_cut_short_during_the_first_open_kills_no_program,
    a_vfork_child_that_opens_a_queue_leaves_its_parent_guarded,
    a_handler_runs_while_a_call_waits_for_a_posix_queue,
    a_handler_runs_while_a_call_waits_for_a_system_v_queue,
    a_handler_may_leave_a_call_that_waits_for_the_lock_of_its_user,
}

/// The test's allocator ends the program if a call of the allocator interrupts another call of the allocator.
#[test]
fn a_handler_that_interrupted_malloc_opens_and_closes_queues() {
    let namespace = Namespace::new();
    let allocator = compile_with("allocator", "liballocator.so", &["-shared", "-fPIC"]);
    let both = format!("{}:{}", library().display(), allocator.display());
    let mut command = namespace.command(compile("handlers"));
    command.arg("a_handler_that_interrupted_malloc_opens_and_closes_queues");
    succeed(command.env("LD_PRELOAD", both));
}
