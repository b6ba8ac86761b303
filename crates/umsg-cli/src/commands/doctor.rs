//! `umsg doctor`.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use indicatif::ProgressBar;
use umsg::diagnosis::{Diagnosis, Repaired, refused_calls};
use umsg::{Namespace, posix, ring, sysv};

use super::doctor_text;
use crate::address::{Address, Label, Subject, subject};
use crate::cli::Cli;
use crate::elsewhere;
use crate::failure::{Code, Explain, Failure, Result, say};
use crate::names::Name;
use crate::output::{self, Format, json, text};
use crate::{place, progress, rights, streams};

/// Find the problems of queues and rings, and show their remedies
///
/// The report shows: the owners of the locks, and whether the owners are alive, stopped or dead; blocked processes, their waiting times, and the
/// messages that they wait for; leases (messages that a receiver has not acknowledged yet), reservations (messages that a sender is still writing),
/// registrations for notifications, and pollers; past repairs, and the deaths that caused them.
///
/// These are the problems: (1) a process that is stopped in the middle of a call while other processes wait for it; (2) a lock whose recorded owner
/// is an impossible thread id, or a thread of a process that does not use the queue; (3) a lease, reservation, waiter or lock of a dead process; (4)
/// a ring whose receiver is stopped or dead; (5) corruption: byte values that no operation can have written. Calls on a corrupted queue fail with
/// EBADMSG. The report lists the place in the file and the expected value of each corrupted byte.
///
/// A corrupted lock may name a process that never used the queue. A process uses the queue if it has the queue's file mapped. Only root can see the
/// mappings of other users' processes. If the command cannot see the mappings of a process, --repair does not release a lock of that process. If the
/// report says that a lock may name the wrong process, run the command as root before you end that process: root can see whether the process uses the
/// queue.
///
/// Without --repair, the command takes no lock, waits for no process and changes nothing. The exit code is 0 if nothing is wrong, and 5 if there is a
/// problem. If the command can't inspect a queue, such as a queue of another user, it prints the queue's name on standard error, and continues with
/// the other queues. If nothing is wrong with the other queues, the exit code is then 1. With --all, the command also lists links, FIFOs and
/// directories among the files of the queues that umsg has not made.
///
/// If the kernel or a sandbox refuses an optional system call, queues still work, but with weaker guarantees. The report then ends with the name of
/// the call and the consequence. The consequence applies to all programs in the same sandbox. With --json, `refused` lists these calls. Refused calls
/// change neither `healthy` nor the exit code.
///
/// With --json, each queue has `healthy`, which is true if the queue has no problem. The top-level `healthy` is true if the exit code is 0. If a
/// queue is corrupted, `damaged` has the process that found the corruption first, and the time; otherwise `damaged` is null.
///
/// With --repair, the command cleans up after dead processes at once, and releases locks whose recorded owners can't hold them. --repair rebuilds a
/// corrupted queue from its intact messages, in their order; leases and waiters stay. The command prints the number of messages that it kept, and the
/// number of corrupted messages. --repair does not repair a queue while a process is stopped in the middle of a call on that queue.
#[derive(Args, Debug)]
#[command(
    group = clap::ArgGroup::new("which").required(true).args(["queues", "all"]),
    after_help = "\
Examples:
  umsg doctor /orders
  umsg doctor key:0x1234 ring:/jobs
  umsg doctor --all --json | jq '.queues[] | select(.healthy | not)'
  umsg doctor /orders --repair

Exit codes:
  0    nothing is wrong
  1    a queue can't be inspected, and nothing is wrong with the rest
  2    the command line is wrong
  5    a queue or ring has a problem"
)]
pub struct Doctor {
    /// The queues: names, or for System V key:0x1234 or id:32769; rings as ring:/jobs
    #[arg(value_name = "QUEUE", value_parser = subject())]
    queues: Vec<Subject>,
    /// All queues and rings
    #[arg(long)]
    all: bool,
    /// Repair the problems that can be repaired, and show the repairs and the remaining problems
    #[arg(long)]
    pub repair: bool,
    #[command(flatten)]
    format: Format,
}

/// A queue or ring that was inspected.
pub struct Inspected {
    pub name: String,
    /// The diagnosis, or the reason why the queue can't be inspected.
    pub found: Result<Diagnosis, String>,
    /// The result of the repair; None if no repair was requested.
    pub repair: Option<Repair>,
    /// The other namespaces that have a queue of this name, in the form of [`elsewhere::also_in`].
    pub also_in: Vec<String>,
}

/// The result of a repair.
pub struct Repair {
    pub done: Vec<String>,
    pub failed: Option<String>,
    pub kept: Option<u64>,
    pub lost: u64,
}

impl Inspected {
    pub fn is_healthy(&self) -> bool {
        self.found.as_ref().is_ok_and(Diagnosis::is_healthy)
    }
}

impl Doctor {
    pub fn perform(&self, cli: &Cli) -> Result {
        if self.repair {
            // The output is checked before the repair, because the number of lost messages is printed only in this report.
            streams::check_output()?;
        }
        let namespace = place::existing(cli)?;
        let subjects = match self.all {
            true => all(&namespace)?,
            false => self.queues.clone(),
        };
        let what = if self.repair {
            "repairing"
        } else {
            "examining"
        };
        let bar = progress::of_things(what, subjects.len());
        let mut inspected: Vec<Inspected> = subjects
            .iter()
            .map(|subject| {
                let item = self.examine(&namespace, subject, &bar);
                bar.inc(1);
                item
            })
            .collect();
        bar.finish_and_clear();
        if self.all {
            inspected.extend(foreign_files(&namespace)?);
            warn_of_links(HARD_LINKS);
        }
        let mut out = output::standard()?;
        match self.format.json {
            true => {
                let report = json::doctor::Report::new(&inspected, &refused_calls());
                json::print(&mut out, &report)?;
            }
            false => {
                place::tell_passed_over(cli, &namespace, &mut out)?;
                doctor_text::print(&mut out, &inspected)?;
                doctor_text::print_refused(&mut out, &refused_calls())?;
            }
        }
        out.flush()?;
        verdict(&inspected)
    }
}

impl Doctor {
    fn examine(&self, namespace: &Namespace, subject: &Subject, bar: &ProgressBar) -> Inspected {
        let looked = match self.repair {
            true => repair(namespace, subject).map(|repaired| {
                let Repaired {
                    after,
                    done,
                    failed,
                    kept,
                    lost,
                    ..
                } = repaired;
                let repair = Repair {
                    done,
                    failed,
                    kept,
                    lost,
                };
                (after, Some(repair))
            }),
            false => diagnose(namespace, subject).map(|diagnosis| (diagnosis, None)),
        };
        let name = subject.lossy();
        match looked {
            Ok((diagnosis, repair)) => Inspected {
                name,
                also_in: match subject {
                    Subject::Queue(queue) => elsewhere::also_in(namespace, queue),
                    Subject::Ring(_) => Vec::new(),
                },
                found: Ok(diagnosis),
                repair,
            },
            Err(failure) => {
                bar.suspend(|| failure.report());
                Inspected {
                    name,
                    found: Err(failure.line()),
                    repair: None,
                    also_in: Vec::new(),
                }
            }
        }
    }
}

/// Returns the result of the command. A problem takes precedence over a queue that can't be inspected.
fn verdict(inspected: &[Inspected]) -> Result {
    let mut found = inspected.iter().map(|item| &item.found);
    let has_problem = |found: &Result<Diagnosis, String>| {
        let found = found.as_ref();
        found.is_ok_and(|diagnosis| !diagnosis.is_healthy())
    };
    match (found.clone().any(has_problem), found.any(Result::is_err)) {
        (true, _) => Err(Failure::Reported(Code::ProblemFound)),
        (false, true) => Err(Failure::Reported(Code::Failed)),
        (false, false) => Ok(()),
    }
}

/// Returns the entries of the queues' directories that are not queues, such as links and FIFOs.
fn foreign_files(namespace: &Namespace) -> Result<Vec<Inspected>> {
    let all = namespace.intruders()?.into_iter();
    Ok(all
        .map(|found| {
            let name = text::on_one_line(found.path.as_os_str().as_bytes());
            let what = found.what;
            let line = format!("{name}: not a queue, but {what}; remove it");
            say(&line);
            Inspected {
                name,
                found: Err(line),
                repair: None,
                also_in: Vec::new(),
            }
        })
        .collect())
}

/// The file of the setting that decides whether users may create hard links to files that they can't write to. Source: proc_sys_fs(5).
const HARD_LINKS: &str = "/proc/sys/fs/protected_hardlinks";

/// Warns if every user can make a queue unusable with a second hard link to its file.
fn warn_of_links(setting: &str) {
    if std::fs::read_to_string(setting).is_ok_and(|text| text.trim() == "0") {
        say(format!(
            "{setting} is 0, so any user can block a queue with a second hard link to its file; set this sysctl to 1"
        ));
    }
}

/// Lists all queues and rings.
fn all(namespace: &Namespace) -> Result<Vec<Subject>> {
    let named = |name: &std::ffi::OsString| Name::from(name.as_os_str());
    let mut all = Vec::new();
    for listed in posix::list_untouched(namespace)? {
        all.push(Subject::Queue(Address::Posix(named(&listed.name))));
    }
    let listed = sysv::list(namespace);
    for entry in listed.map_err(|error| Failure::new(Code::Failed, error.explain()))? {
        all.push(Subject::Queue(Address::SystemV(Label::Id(entry.id))));
    }
    for listed in ring::list(namespace)? {
        all.push(Subject::Ring(named(&listed.name)));
    }
    Ok(all)
}

pub fn diagnose(namespace: &Namespace, subject: &Subject) -> Result<Diagnosis> {
    match subject {
        Subject::Queue(Address::Posix(name)) => {
            name.check()?;
            posix::diagnose(namespace, name)
                .map_err(|error| rights::refused(namespace, name, error))
        }
        Subject::Queue(Address::SystemV(label)) => {
            let found = match label {
                Label::Key(key, _) => sysv::diagnose(namespace, *key),
                Label::Id(id) => sysv::diagnose_id(namespace, *id),
            };
            found.map_err(|error| rights::refused_labelled(namespace, *label, error))
        }
        Subject::Ring(name) => {
            name.check()?;
            ring::diagnose(namespace, name).map_err(|error| Failure::of(subject.lossy(), error))
        }
    }
}

fn repair(namespace: &Namespace, subject: &Subject) -> Result<Repaired> {
    match subject {
        Subject::Queue(Address::Posix(name)) => {
            name.check()?;
            posix::repair(namespace, name).map_err(|error| rights::refused(namespace, name, error))
        }
        Subject::Queue(Address::SystemV(label)) => {
            let repaired = match label {
                Label::Key(key, _) => sysv::repair(namespace, *key),
                Label::Id(id) => sysv::repair_id(namespace, *id),
            };
            repaired.map_err(|error| rights::refused_labelled(namespace, *label, error))
        }
        Subject::Ring(name) => {
            name.check()?;
            ring::repair(namespace, name).map_err(|error| Failure::of(subject.lossy(), error))
        }
    }
}
