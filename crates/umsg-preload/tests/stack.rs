//! Tests the stack that the calls need: threads may have as little as 16 KiB (PTHREAD_STACK_MIN).

mod support;

use support::{Namespace, compile_with, library, succeed};

/// The maximum number of bytes of stack that a call of the drop-in may use.
const LIMIT: usize = 4096;

/// Only an optimised build must keep to the limit: its frames are a third as long as those of a debug build.
#[test]
fn no_call_takes_more_than_four_kilobytes_of_stack() {
    let program = compile_with("stack", "stack", &["-Wl,-z,now", "-Wno-format-truncation"]);
    let is_optimised = library().parent().is_some_and(|at| at.ends_with("release"));
    let limit = if is_optimised { LIMIT } else { 0 };
    let namespace = Namespace::new();
    let mut command = namespace.command(program);
    print!("{}", succeed(command.arg(limit.to_string())));
}

/// PTHREAD_STACK_MIN is enough for a thread that opens, uses and removes a queue.
#[test]
fn a_thread_with_the_smallest_stack_uses_queues() {
    if !library().parent().is_some_and(|at| at.ends_with("release")) {
        return;
    }
    let namespace = Namespace::new();
    succeed(&mut namespace.command(compile_with("small_stack", "small_stack", &[])));
}
