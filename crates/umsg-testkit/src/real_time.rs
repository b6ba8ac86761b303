//! Threads with a real-time policy.

/// Gives the calling thread a priority of SCHED_FIFO, which the threads that it starts inherit. Returns false if the system refuses.
pub fn become_urgent(priority: i32) -> bool {
    let parameter = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: the call changes a setting of this thread, and reads a local variable.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) == 0 }
}

/// Returns whether threads may have a real-time policy on this machine. If they may not, prints that the test is left out.
pub fn is_permitted() -> bool {
    let may = std::thread::spawn(|| become_urgent(1)).join().unwrap();
    if !may {
        eprintln!("left out: takes CAP_SYS_NICE");
    }
    may
}

/// Returns the real-time priority with which a thread runs: its own, or one that priority inheritance lends it; 0 for none. `stat` is the path of the
/// thread's `stat` file. Source: field 18 of proc_pid_stat(5).
pub fn priority(stat: &str) -> i64 {
    let stat = std::fs::read_to_string(stat).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let shown: i64 = fields.split(' ').nth(15).unwrap().parse().unwrap();
    if shown < 0 { -1 - shown } else { 0 }
}
