//! Time, in nanoseconds of CLOCK_MONOTONIC.

use std::hint;
use std::sync::OnceLock;

/// Returns the nanoseconds since an arbitrary start, which all processes of the machine share.
#[inline]
pub fn now() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

#[inline]
fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a timespec of this function that the call may write. If the clock does not exist, `time` stays zero.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    // Seconds and nanoseconds are non-negative for these clocks.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns the CPU time (user and system) of all threads of the calling process so far, in nanoseconds.
pub fn cpu() -> u64 {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Returns the time of [`cpu`] plus the CPU time of all children and grandchildren that have ended and been waited for.
pub fn cpu_with_children() -> u64 {
    // SAFETY: an all-zero rusage is valid, and the call fills it. RUSAGE_CHILDREN exists on every Linux.
    let children = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let nanoseconds =
        |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
    cpu() + nanoseconds(children.ru_utime) + nanoseconds(children.ru_stime)
}

/// Returns the CPU time of the calling thread so far, user and system, in nanoseconds.
pub fn thread_cpu() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the CPU time of all threads of another process so far, in nanoseconds; 0 if there is no such process.
pub fn cpu_of(process: u32) -> u64 {
    let mut clock = 0;
    // SAFETY: the call writes the id of a clock to a local of this function.
    match unsafe { libc::clock_getcpuclockid(process as libc::pid_t, &raw mut clock) } {
        0 => read(clock),
        _ => 0,
    }
}

/// Returns the cost of one [`now`], in nanoseconds. Callers subtract this cost from a timed part that includes a reading of the clock.
pub fn overhead() -> f64 {
    static OVERHEAD: OnceLock<f64> = OnceLock::new();
    *OVERHEAD.get_or_init(|| {
        let mut best = f64::INFINITY;
        for _ in 0..50 {
            let start = now();
            for _ in 0..999 {
                hint::black_box(now());
            }
            // Between the first and the last reading lies the time of 1,000 readings: 999 whole readings, half of the first and half of the last.
            best = best.min((now() - start) as f64 / 1000.0);
        }
        best
    })
}

/// Spins for about `nanoseconds`.
#[inline]
pub fn spin(nanoseconds: u64) {
    let end = now() + nanoseconds;
    while now() < end {
        hint::spin_loop();
    }
}
