//! Runs test programs in parallel, at most a given number at a time. The output of a program is printed in one piece.

use std::collections::VecDeque;
use std::io::Read as _;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{self, Sender};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitId, WaitIdOptions};

use super::spawn;
use crate::failure::{Context as _, Result};
use crate::interrupt;

/// A test program, or another command that runs tests.
pub struct Job {
    /// The name, such as `umsg/ring`.
    pub name: String,
    pub command: Command,
    pub again: Again,
    /// At most one job of a group runs at a time.
    pub group: Option<&'static str>,
}

/// How a job is repeated.
pub enum Again {
    /// By `cargo test` with these options.
    Options(String),
    /// By `cargo test` with the options that cargo has printed for the failed test: the job runs cargo itself.
    Printed,
    /// By its own command.
    Whole,
}

/// A job that has ended.
pub struct Ended {
    pub name: String,
    pub again: Again,
    pub command: Command,
    pub output: Vec<u8>,
    pub status: ExitStatus,
    pub took: Duration,
    /// The CPU time of the job and of the children that it waited for. None if the time could not be read.
    pub computed: Option<Duration>,
}

/// The jobs that have not begun.
struct Queue {
    state: Mutex<State>,
    /// Signalled when a job of a group has ended.
    freed: Condvar,
}

struct State {
    waiting: VecDeque<Job>,
    /// The groups of the jobs that run.
    busy: Vec<&'static str>,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the first job whose group has no running job. If there is no such job, waits for one. Returns None if no job is left.
    fn take(&self) -> Option<Job> {
        let mut state = self.state();
        while !state.waiting.is_empty() {
            let State { waiting, busy } = &mut *state;
            let is_free = |job: &Job| job.group.is_none_or(|group| !busy.contains(&group));
            if let Some(job) = waiting
                .iter()
                .position(is_free)
                .and_then(|place| waiting.remove(place))
            {
                busy.extend(job.group);
                return Some(job);
            }
            state = self
                .freed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    fn free(&self, group: Option<&'static str>) {
        self.state().busy.retain(|busy| Some(*busy) != group);
        self.freed.notify_all();
    }

    /// Runs jobs until none is left or a signal came.
    fn work(&self, ended: &Sender<Result<Ended>>) {
        while let Some(job) = self.take() {
            let group = job.group;
            let result = interrupt::check().and_then(|()| job.run());
            self.free(group);
            // The receiver is gone after an error.
            if result.is_err() | ended.send(result).is_err() {
                self.state().waiting.clear();
            }
        }
    }
}

impl Job {
    fn run(mut self) -> Result<Ended> {
        let start = Instant::now();
        let (mut child, mut printed) = spawn(&mut self.command)?;
        let mut output = Vec::new();
        printed.read_to_end(&mut output).context(&self.name)?;
        let computed = computed(&child);
        let status = child.wait().context(&self.name)?;
        Ok(Ended {
            name: self.name,
            again: self.again,
            command: self.command,
            output,
            status,
            took: start.elapsed(),
            computed,
        })
    }
}

/// Waits until a process has ended, and returns the CPU time of the process and of the children that it waited for.
fn computed(child: &Child) -> Option<Duration> {
    let pid = Pid::from_child(child);
    rustix::process::waitid(
        WaitId::Pid(pid),
        WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
    )
    .ok()?;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // utime, stime, cutime and cstime of proc_pid_stat(5) are the fields 14 to 17. Fields 1 and 2 end with the last parenthesis.
    let fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let ticks: u64 = fields
        .skip(11)
        .take(4)
        .map_while(|field| field.parse::<u64>().ok())
        .sum();
    Some(Duration::from_secs(ticks) / rustix::param::clock_ticks_per_second() as u32)
}

/// Runs the jobs in their order, `places` at a time, and reports each job that has ended. After a signal, waits for the running jobs and fails.
pub fn run(jobs: Vec<Job>, places: usize, mut report: impl FnMut(Ended)) -> Result<()> {
    let state = State {
        waiting: jobs.into(),
        busy: Vec::new(),
    };
    let queue = Queue {
        state: Mutex::new(state),
        freed: Condvar::new(),
    };
    std::thread::scope(|scope| {
        let (sender, ended) = mpsc::channel();
        for _ in 0..places.max(1) {
            let sender = sender.clone();
            let queue = &queue;
            scope.spawn(move || queue.work(&sender));
        }
        drop(sender);
        ended.into_iter().try_for_each(|ended| {
            report(ended?);
            interrupt::check()
        })
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn job(name: usize, group: Option<&'static str>, script: &str) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Job {
            name: name.to_string(),
            command,
            again: Again::Whole,
            group,
        }
    }

    #[test]
    fn each_job_runs_once_and_its_output_is_whole() {
        let jobs = (0..20).map(|n| job(n, None, &format!("echo {n}; echo {n} >&2; exit {n}")));
        let mut ended = Vec::new();
        run(jobs.collect(), 4, |job| {
            assert_eq!(job.output, format!("{0}\n{0}\n", job.name).as_bytes());
            assert_eq!(job.status.code(), job.name.parse().ok());
            ended.push(job.name.parse::<usize>().unwrap());
        })
        .unwrap();
        ended.sort_unstable();
        assert_eq!(ended, (0..20).collect::<Vec<_>>());
    }

    #[test]
    fn the_time_of_the_processors_has_that_of_children_and_none_of_sleep() {
        let script = "sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'; sleep 0.2";
        run(vec![job(0, None, script)], 1, |job| {
            let computed = job.computed.unwrap();
            assert!(computed > Duration::ZERO);
            assert!(computed < job.took);
        })
        .unwrap();
    }

    #[test]
    fn jobs_of_a_group_run_one_after_another_beside_the_others() {
        let directory = tempfile::tempdir().unwrap();
        // The directory is there while a job of the group runs.
        let script = format!(
            "cd {} && mkdir group && sleep 0.05 && rmdir group",
            directory.path().display()
        );
        let mut jobs: Vec<_> = (0..5).map(|n| job(n, Some("one"), &script)).collect();
        jobs.extend((5..10).map(|n| job(n, None, "true")));
        let ended = AtomicUsize::new(0);
        run(jobs, 4, |job| {
            assert!(job.status.success(), "{}", job.name);
            ended.fetch_add(1, Ordering::Relaxed);
        })
        .unwrap();
        assert_eq!(ended.into_inner(), 10);
    }

    #[test]
    fn jobs_run_beside_each_other() {
        let directory = tempfile::tempdir().unwrap();
        // Each of the two jobs ends only after the other has begun. The bound ends the wait of a failed test.
        let wait = |n: usize| {
            format!(
                "cd {} && touch {n} && timeout 60 sh -c 'until [ -e {} ]; do sleep 0.01; done'",
                directory.path().display(),
                1 - n
            )
        };
        let jobs = vec![job(0, None, &wait(0)), job(1, None, &wait(1))];
        run(jobs, 2, |job| assert!(job.status.success(), "{}", job.name)).unwrap();
    }
}
