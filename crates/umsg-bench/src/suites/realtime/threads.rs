//! Threads of SCHED_FIFO.

use crate::failure::Failure;
use crate::machine;

/// Puts the calling thread on a CPU, under SCHED_FIFO with this priority.
pub fn become_fifo(cpu: usize, priority: i32) -> Result<(), Failure> {
    machine::pin(cpu)?;
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: 0 is the calling thread; the call only reads the parameters, a local.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(Failure::new(format!(
            "the system refuses SCHED_FIFO: {}. Run umsg-bench as root, or with CAP_SYS_NICE",
            std::io::Error::last_os_error()
        ))),
    }
}
