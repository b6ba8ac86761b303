//! The machine on which the figures are measured.

use std::fs;
use std::mem;

use crate::failure::Failure;

/// The CPUs that the measurements run on.
#[derive(Clone, Copy, Debug)]
pub struct Cpus {
    /// The CPU for work that runs alone.
    pub first: usize,
    /// The CPU for the second of two processes, on another core if possible.
    pub second: Option<usize>,
}

impl Cpus {
    /// Returns two CPUs, for a suite that needs two.
    ///
    /// # Errors
    /// Fails if the process has only one CPU.
    pub fn two(&self, suite: &str) -> Result<[usize; 2], Failure> {
        let missing = || format!("{suite} needs two CPUs, and this process may use only one");
        let second = self.second.ok_or_else(|| Failure::new(missing()))?;
        Ok([self.first, second])
    }

    /// Chooses two CPUs. The first is the last CPU that this process may use, as in the kernel's mq_perf_tests. The second is on another core if the
    /// machine has several cores.
    pub fn choose() -> Result<Self, Failure> {
        let allowed = allowed()?;
        let Some(&first) = allowed.last() else {
            return Err(Failure::new("this process may run on no CPU"));
        };
        let others = || allowed.iter().rev().copied().filter(|&cpu| cpu != first);
        let second = others()
            .find(|&cpu| siblings(cpu) != siblings(first))
            .or_else(|| others().next());
        Ok(Self { first, second })
    }

    /// Returns the CPUs: one or two.
    pub fn both(self) -> Vec<usize> {
        [Some(self.first), self.second]
            .into_iter()
            .flatten()
            .collect()
    }
}

/// Binds the calling process to one CPU.
pub fn pin(cpu: usize) -> Result<(), Failure> {
    pin_to(&[cpu])
}

/// Lets the calling process run on these CPUs and no others.
pub fn pin_to(cpus: &[usize]) -> Result<(), Failure> {
    // SAFETY: an all-zero cpu_set_t is an empty set. CPU_SET checks the index against the size of the set. The call gets the set with its size, and
    // only reads it.
    let result = unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        for &cpu in cpus {
            libc::CPU_SET(cpu, &mut set);
        }
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    if result == 0 {
        Ok(())
    } else {
        Err(Failure::system(format_args!("cannot run on CPUs {cpus:?}")))
    }
}

/// Gives the calling process and its children the highest nice priority, as the kernel's mq_perf_tests does. Returns whether the system permits the
/// priority. With autogroup, the scheduler first shares the CPU among sessions, so the process also begins its own session and raises the session's
/// priority.
pub fn hurry() -> bool {
    // SAFETY: neither call touches memory. If this process already leads a session, setsid fails without an effect. 0 is the calling process.
    let hurried = unsafe {
        libc::setsid();
        libc::setpriority(libc::PRIO_PROCESS, 0, -20) == 0
    };
    if hurried {
        // Without autogroup, the file does not exist and is not needed.
        let _ = fs::write("/proc/self/autogroup", "-20");
    }
    hurried
}

/// Gives the calling thread priority over all ordinary threads, if permitted.
pub fn come_first() {
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: 0 is the calling thread; the parameters are a local that the call only reads.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const lowest) };
}

fn allowed() -> Result<Vec<usize>, Failure> {
    // SAFETY: an all-zero cpu_set_t is an empty set, which the call fills up to the size given.
    let set = unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) != 0 {
            return Err(Failure::system("sched_getaffinity"));
        }
        set
    };
    let all = 0..libc::CPU_SETSIZE as usize;
    // SAFETY: the index is below CPU_SETSIZE.
    Ok(all
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) })
        .collect())
}

fn siblings(cpu: usize) -> Option<String> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    fs::read_to_string(path).ok()
}

/// Returns the processor's name, as the processor reports it.
pub fn model() -> String {
    fs::read_to_string("/proc/cpuinfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("model name"))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        })
        .unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// Returns one line: processor, CPUs used, kernel.
pub fn describe(cpus: Cpus) -> String {
    let model = model();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let used = match cpus.second {
        Some(second) => format!("CPUs {} and {second}", cpus.first),
        None => format!("CPU {}", cpus.first),
    };
    format!("{model}, {used}, Linux {}", kernel.trim())
}
