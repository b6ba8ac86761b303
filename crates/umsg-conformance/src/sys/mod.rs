//! The system calls for running cases and histories in separate processes.

mod descriptor;
mod memory;
mod process;
mod signal;
mod surroundings;
mod user;

pub use descriptor::{
    close_all, forget, is_in, memory_file, pipe, place, read_record, readable, set_of, sockets,
    take, through_a_socket, write_record,
};
pub use memory::{shared_words, unmap_words, words_of};
pub use process::{
    End, Forked, Pause, Pid, die_with_parent, fork, is_asleep, is_gone, kill, lead_group, leave,
    pid, start_thread, state, tid, wait, wait_until_gone,
};
pub use signal::{Sigaction, handle_signal, set_disposition, start_timer};
pub use surroundings::{
    enter_ipc_namespace, enter_private_ipc_namespace, from_now, give_up_raised_limits,
    limit_descriptors, limit_kernel_queues, limit_kernel_system_v_queues, set_environment,
    set_nice, set_realtime_priority, time, umask,
};
pub use user::{Credentials, User, is_root, user};

use crate::errno::Errno;

/// Returns the result of a C call that returns -1 for a failure.
fn check(returned: i32) -> Result<i32, Errno> {
    if returned == -1 {
        Err(Errno::last())
    } else {
        Ok(returned)
    }
}
