//! `umsg doctor`.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use indicatif::ProgressBar;
use umsg::diagnosis::{Diagnosis, Repaired};
use umsg::{Namespace, posix, ring, sysv};

use super::doctor_text;
use crate::address::{Address, Label, Subject, subject};
use crate::cli::Cli;
use crate::failure::{Code, Explain, Failure, Result, say};
use crate::names::Name;
use crate::output::{self, Format, json, json_doctor, text};
use crate::{place, progress, streams};

/// Say what is the matter with a queue or ring, and what to do about it
///
/// Shown are who holds its locks, and whether he lives, is stopped or has died; who is blocked, for how long and waits for what; what
/// processes hold on lease or have reserved; who is registered to be told of a message, and who polls; what was repaired after which
/// deaths. And what is wrong: a process that is stopped in the middle of a call, which others wait for; a lock that names nobody, or a
/// process that does not use the queue; what the dead have left, their places among those who wait among it; bytes
/// that no operation could have left there, for which calls fail (EBADMSG), each with its place in the file, and what was expected
/// there.
///
/// Whether a process uses the queue is seen by whether it has the queue's file mapped. Of other users' processes only root can tell: where it
/// is not known, no lock is taken from a process, and whoever asks should do so again as root before ending one.
///
/// A look takes no lock, waits for nobody and changes nothing. Nothing is wrong if the exit code is 0; it is 5 if something is. What can't be looked at, such
/// as the queue of another user or a file that is none, is named on standard error, and the others are looked at; with --all also a link, a FIFO or a
/// directory that lies where a queue could be.
///
/// With --json, `healthy` is true if the exit code is 0, of a queue if nothing is wrong with it; `damaged` is null unless one of its problems is
/// damage, and says who met that first, and when, if a process has.
///
/// With --repair, what the dead have left is taken up at once, and locks are taken from whoever can't have them; and a queue whose bytes make no sense is made anew of the messages that are whole, in
/// their order. Leases and those who wait stay. It says how many messages are kept, and how many made no sense. A queue is left alone
/// while a process is stopped in the middle of a call on it.
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
  1    something can't be looked at, and with the others nothing is wrong
  2    the command line makes no sense
  5    something is wrong with a queue or ring"
)]
pub struct Doctor {
    /// The queues: names, or of System V key:0x1234 or id:32769; rings as ring:/jobs
    #[arg(value_name = "QUEUE", value_parser = subject())]
    queues: Vec<Subject>,
    /// All queues and rings
    #[arg(long)]
    all: bool,
    /// Repair what can be repaired, and show what was done and what is the matter then
    #[arg(long)]
    repair: bool,
    #[command(flatten)]
    format: Format,
}

/// One that was looked at.
pub struct Patient {
    pub name: String,
    /// Or why it can't be looked at.
    pub found: Result<Diagnosis, String>,
    /// What was repaired.
    pub repair: Option<Repair>,
}

/// What a repair has done.
pub struct Repair {
    pub done: Vec<String>,
    pub failed: Option<String>,
    pub kept: Option<u64>,
    pub lost: u64,
}

impl Patient {
    pub fn is_healthy(&self) -> bool {
        self.found.as_ref().is_ok_and(Diagnosis::is_healthy)
    }
}

impl Doctor {
    pub fn perform(&self, cli: &Cli) -> Result {
        if self.repair {
            // What was lost is told once, and here only.
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
        let mut patients: Vec<Patient> = subjects
            .iter()
            .map(|subject| {
                let patient = self.examine(&namespace, subject, &bar);
                bar.inc(1);
                patient
            })
            .collect();
        bar.finish_and_clear();
        if self.all {
            patients.extend(intruders(&namespace)?);
            warn_of_links(HARD_LINKS);
        }
        let mut out = output::standard()?;
        match self.format.json {
            true => json::print(&mut out, &json_doctor::Report::new(&patients))?,
            false => {
                place::tell_passed_over(cli, &namespace, &mut out)?;
                doctor_text::print(&mut out, &patients)?;
            }
        }
        out.flush()?;
        verdict(&patients)
    }
}

impl Doctor {
    fn examine(&self, namespace: &Namespace, subject: &Subject, bar: &ProgressBar) -> Patient {
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
            Ok((diagnosis, repair)) => Patient {
                name,
                found: Ok(diagnosis),
                repair,
            },
            Err(failure) => {
                bar.suspend(|| failure.report());
                Patient {
                    name,
                    found: Err(failure.line()),
                    repair: None,
                }
            }
        }
    }
}

/// That something is wrong is more than that something can't be looked at.
fn verdict(patients: &[Patient]) -> Result {
    let mut found = patients.iter().map(|patient| &patient.found);
    let is_ill = |found: &Result<Diagnosis, String>| {
        let found = found.as_ref();
        found.is_ok_and(|diagnosis| !diagnosis.is_healthy())
    };
    match (found.clone().any(is_ill), found.any(Result::is_err)) {
        (true, _) => Err(Failure::Reported(Code::Unwell)),
        (false, true) => Err(Failure::Reported(Code::Failed)),
        (false, false) => Ok(()),
    }
}

/// What stands where a queue could be, and is none.
fn intruders(namespace: &Namespace) -> Result<Vec<Patient>> {
    let all = namespace.intruders()?.into_iter();
    Ok(all
        .map(|found| {
            let name = text::on_one_line(found.path.as_os_str().as_bytes());
            let what = found.what;
            let line =
                format!("{name}: {what}, and no queue: remove it, then a queue can have its name");
            say(&line);
            Patient {
                name,
                found: Err(line),
                repair: None,
            }
        })
        .collect())
}

/// Whether users may give names to files that they may not write to. Source: proc_sys_fs(5).
const HARD_LINKS: &str = "/proc/sys/fs/protected_hardlinks";

/// Says where every user can make a queue's file unusable, by giving it a second name.
fn warn_of_links(setting: &str) {
    if std::fs::read_to_string(setting).is_ok_and(|text| text.trim() == "0") {
        say(format!(
            "{setting} is 0: every user can give any queue's file a second name, which keeps the queue from being opened; set it to 1"
        ));
    }
}

/// All that there are.
fn all(namespace: &Namespace) -> Result<Vec<Subject>> {
    let named = |name: &std::ffi::OsString| Name::from(name.as_os_str());
    let mut all = Vec::new();
    for listed in posix::list_untouched(namespace)? {
        all.push(Subject::Queue(Address::Posix(named(&listed.name))));
    }
    let typed = sysv::list(namespace);
    for entry in typed.map_err(|error| Failure::new(Code::Failed, error.explain()))? {
        all.push(Subject::Queue(Address::SystemV(Label::Id(entry.id))));
    }
    for listed in ring::list(namespace)? {
        all.push(Subject::Ring(named(&listed.name)));
    }
    Ok(all)
}

fn diagnose(namespace: &Namespace, subject: &Subject) -> Result<Diagnosis> {
    match subject {
        Subject::Queue(Address::Posix(name)) => {
            name.check()?;
            posix::diagnose(namespace, name).map_err(|error| Failure::of(name, error))
        }
        Subject::Queue(Address::SystemV(label)) => {
            let found = match label {
                Label::Key(key) => sysv::diagnose(namespace, *key),
                Label::Id(id) => sysv::diagnose_id(namespace, *id),
            };
            found.map_err(|error| Failure::of(label, error))
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
            posix::repair(namespace, name).map_err(|error| Failure::of(name, error))
        }
        Subject::Queue(Address::SystemV(label)) => {
            let repaired = match label {
                Label::Key(key) => sysv::repair(namespace, *key),
                Label::Id(id) => sysv::repair_id(namespace, *id),
            };
            repaired.map_err(|error| Failure::of(label, error))
        }
        Subject::Ring(name) => {
            name.check()?;
            ring::repair(namespace, name).map_err(|error| Failure::of(subject.lossy(), error))
        }
    }
}
