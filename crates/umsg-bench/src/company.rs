//! The load of other programs on the machine. This load takes time from the measured programs, so the report shows the load.

use std::fs;
use std::mem;

use serde::{Deserialize, Serialize};

use crate::clock;
use crate::row::rounded;

/// A load below this share of a CPU is not reported.
const QUIET: f64 = 0.05;

/// If the load is above this share of a CPU, the figures are useless.
const LOUD: f64 = 0.25;

/// The CPU times of the machine and of this process when a suite began.
pub struct Company {
    began: u64,
    /// The seconds that the CPUs were busy, summed over all CPUs.
    busy: f64,
    /// The seconds that the hypervisor gave to other virtual machines, summed over all CPUs.
    stolen: f64,
    /// The CPU seconds of this process and of its children that have ended.
    ours: f64,
}

impl Company {
    pub fn watch() -> Self {
        let (busy, stolen) = machine().unwrap_or_default();
        Self {
            began: clock::now(),
            busy,
            stolen,
            ours: ours(),
        }
    }

    /// Returns the load by other processes and by other virtual machines since the suite began.
    pub fn load(&self) -> Load {
        let seconds = (clock::now() - self.began) as f64 / 1e9;
        let (busy, stolen) = machine().unwrap_or((self.busy, self.stolen));
        let others = ((busy - self.busy) - (ours() - self.ours)) / seconds;
        Load {
            seconds: rounded(seconds),
            others: rounded(others.max(0.0)),
            stolen: rounded((stolen - self.stolen) / seconds),
        }
    }
}

/// The load on the machine while a suite ran.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Load {
    /// The duration of the suite.
    pub seconds: f64,
    /// The average number of CPUs that other processes took.
    pub others: f64,
    /// The average number of CPUs that the hypervisor gave to other virtual machines.
    pub stolen: f64,
}

impl Load {
    /// Returns a sentence about the load if the machine was not quiet.
    pub fn describe(&self) -> Option<String> {
        let Self { others, stolen, .. } = self;
        (others.max(*stolen) >= QUIET).then(|| {
            format!(
                "the machine was not quiet: other processes took {others:.2} CPUs meanwhile, \
                 other machines {stolen:.2}"
            )
        })
    }

    /// Returns whether other processes took so much CPU time that the figures mean nothing.
    pub fn is_loud(&self) -> bool {
        self.others + self.stolen > LOUD
    }
}

/// Returns the CPU seconds of this process and of its children that have ended.
fn ours() -> f64 {
    let of = |who| {
        // SAFETY: all-zero is a valid rusage, which the call fills.
        let usage = unsafe {
            let mut usage: libc::rusage = mem::zeroed();
            libc::getrusage(who, &raw mut usage);
            usage
        };
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        seconds(usage.ru_utime) + seconds(usage.ru_stime)
    };
    of(libc::RUSAGE_SELF) + of(libc::RUSAGE_CHILDREN)
}

/// Returns the busy and the stolen seconds of the machine, from the first line of /proc/stat: user, nice, system,
/// idle, iowait, irq, softirq, steal, in ticks.
fn machine() -> Option<(f64, f64)> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let ticks: Vec<f64> = text
        .lines()
        .next()?
        .split_whitespace()
        .skip(1)
        .filter_map(|field| field.parse().ok())
        .collect();
    // SAFETY: sysconf has no conditions.
    let a_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    let busy: f64 = [0, 1, 2, 5, 6]
        .iter()
        .filter_map(|&field| ticks.get(field))
        .sum();
    Some((busy / a_second, ticks.get(7)? / a_second))
}
