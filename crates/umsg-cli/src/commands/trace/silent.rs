//! Finds processes of a traced program that can't send records because they run as another user. The ring belongs to the user of the command.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use crate::failure::say;

/// The time between two searches for processes that can't send records.
const PAUSE: Duration = Duration::from_millis(500);

/// The processes that have sent records, and the processes that were reported to the user.
pub struct Silent {
    root: u32,
    heard: BTreeSet<u32>,
    told: BTreeSet<u32>,
    next: Instant,
}

impl Silent {
    /// Watches a process and its descendants.
    pub fn below(root: u32) -> Silent {
        Silent {
            root,
            heard: BTreeSet::new(),
            told: BTreeSet::new(),
            next: Instant::now(),
        }
    }

    /// Records that a process has sent a record. The process can use the ring even if it later runs as another user.
    pub fn heard(&mut self, pid: u32) {
        self.heard.insert(pid);
    }

    /// Reports each process that can't send records, once.
    pub fn look(&mut self) {
        if Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + PAUSE;
        let own = rustix::process::geteuid().as_raw();
        for pid in family(self.root) {
            let Some(user) = user_of(pid).filter(|&user| user != own && user != 0) else {
                continue;
            };
            if !self.heard.contains(&pid) && self.told.insert(pid) {
                say(format_args!(
                    "process {pid} runs as user {user} and can't send records: its calls are not shown"
                ));
            }
        }
    }
}

/// Returns a process and its descendants.
fn family(root: u32) -> BTreeSet<u32> {
    let (mut found, mut open) = (BTreeSet::new(), vec![root]);
    while let Some(pid) = open.pop() {
        if !found.insert(pid) {
            continue;
        }
        let tasks = fs::read_dir(format!("/proc/{pid}/task"));
        for task in tasks.into_iter().flatten().flatten() {
            // The file is missing in a kernel without CONFIG_PROC_CHILDREN.
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            let children = children.split_whitespace();
            open.extend(children.filter_map(|pid| pid.parse::<u32>().ok()));
        }
    }
    found
}

/// Returns the effective user of a process, from its status file. The owner of /proc/PID would be root for a process that has changed its user.
fn user_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_whitespace().nth(1)?.parse().ok()
}
