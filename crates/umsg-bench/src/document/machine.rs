//! Describes the machine on which the figures were measured, for the document.

use std::collections::BTreeMap;
use std::fs;

use serde::{Deserialize, Serialize};

use crate::clock;
use crate::harness::Plan;
use crate::machine;

/// A machine, and the permissions that the measurement had on the machine.
#[derive(Debug, Serialize, Deserialize)]
pub struct Machine {
    pub cpu: String,
    pub architecture: String,
    /// The number of CPUs.
    pub cpus: usize,
    /// The CPUs on which the measurement ran.
    pub cpus_used: Vec<usize>,
    /// True if the processor reports a hypervisor: the CPUs may then move from core to core.
    pub virtual_machine: bool,
    pub memory_mib: u64,
    pub kernel: String,
    pub clock_source: String,
    /// The time that one reading of the clock takes, in nanoseconds.
    pub clock_ns: f64,
    /// True if the measurement had precedence over other processes, at nice -20.
    pub hurried: bool,
    /// The mitigations of the processor's vulnerabilities, as in /sys/devices/system/cpu/vulnerabilities.
    pub mitigations: BTreeMap<String, String>,
    /// The limits of message queues that applied to the kernel's side.
    pub limits: BTreeMap<String, String>,
}

impl Machine {
    pub fn describe(plan: &Plan) -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self {
            cpu: machine::model(),
            architecture: std::env::consts::ARCH.to_owned(),
            cpus: online(),
            cpus_used: plan.cpus.both(),
            virtual_machine: cpuinfo.lines().any(|line| {
                line.starts_with("flags") && line.split(' ').any(|flag| flag == "hypervisor")
            }),
            memory_mib: memory(),
            kernel: read("/proc/sys/kernel/osrelease"),
            clock_source: read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            clock_ns: clock::overhead(),
            hurried: plan.hurried,
            mitigations: mitigations(),
            limits: limits(),
        }
    }

    /// Describes the machine in one line.
    pub fn summary(&self) -> String {
        let kind = if self.virtual_machine {
            "virtual CPUs"
        } else {
            "CPUs"
        };
        format!("{}, {} {kind}, Linux {}", self.cpu, self.cpus, self.kernel)
    }
}

/// Returns the number of CPUs that are online. The measurement is bound to one CPU, so the list of its permitted CPUs would be too short.
fn online() -> usize {
    // SAFETY: sysconf has no conditions.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(online).unwrap_or(1)
}

fn memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("MemTotal:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

fn mitigations() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let Ok(entries) = fs::read_dir("/sys/devices/system/cpu/vulnerabilities") else {
        return found;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        if let (Some(name), Ok(text)) = (path.file_name(), fs::read_to_string(&path)) {
            found.insert(name.to_string_lossy().into_owned(), text.trim().to_owned());
        }
    }
    found
}

fn limits() -> BTreeMap<String, String> {
    let files = [
        ("fs.mqueue.msg_max", "/proc/sys/fs/mqueue/msg_max"),
        ("fs.mqueue.msgsize_max", "/proc/sys/fs/mqueue/msgsize_max"),
        ("fs.mqueue.queues_max", "/proc/sys/fs/mqueue/queues_max"),
        ("kernel.msgmnb", "/proc/sys/kernel/msgmnb"),
        ("kernel.msgmax", "/proc/sys/kernel/msgmax"),
        ("kernel.msgmni", "/proc/sys/kernel/msgmni"),
    ];
    let mut limits: BTreeMap<_, _> = files
        .into_iter()
        .map(|(name, path)| (name.to_owned(), read(path)))
        .collect();
    limits.insert(
        "RLIMIT_MSGQUEUE".to_owned(),
        crate::backends::kernel::bytes_allowed(),
    );
    limits
}

fn read(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| "?".to_owned(), |text| text.trim().to_owned())
}
