//! `umsg who`.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use umsg::diagnosis::{Blocked, Diagnosis, HoldKind, Life, Process, Wait};
use umsg::{Namespace, sysv};

use super::doctor::diagnose;
use super::gc_found::{file_name, sysv_file};
use crate::address::{Address, Label, Subject, subject};
use crate::cli::Cli;
use crate::elsewhere;
use crate::failure::{Failure, Result, say};
use crate::output::owner::Owners;
use crate::output::table::{Side, Table};
use crate::output::{self, Format, json, text, time};
use crate::place;
use crate::users::{File, Users};

/// Show the processes that have a queue or ring open, and their waits
///
/// OPEN is "mapped" if the process has the queue in its memory. If the program runs under `umsg run`, OPEN shows the queue's file descriptors
/// instead. WAITS shows how many threads wait to receive or to send, and the time since the longest of these calls began. WAITS is "-" while a
/// process is between two calls, for example in a loop of receives with a time-out. HOLDS counts the leased messages (received, but not yet
/// acknowledged) and the reserved messages (still being written) of the process. HOLDS contains "producer" for a producer of a queue with
/// --close-with-last-producer: the queue stays open for sending while a producer lives.
///
/// Only root can see which queues the processes of other users have open. For other users, OPEN of such a process is "?". The list then contains
/// the process only if it waits in the queue, polls the queue, holds messages, is a producer, or owns the ring.
///
/// For a process of another PID namespace, PID is the process id in that namespace. The user and the command line of such a process are unknown.
///
/// The kernel or another namespace may have a queue of the same name. A line on standard error then names the other place: a program that seems to
/// use this queue may use the other queue.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  umsg who /orders
  umsg who key:0x1234
  umsg who /orders --json | jq '.processes[].pid'")]
pub struct Who {
    /// The queue: a name, or for System V key:0x1234 or id:32769; a ring as ring:/jobs
    #[arg(value_name = "QUEUE", value_parser = subject())]
    queue: Subject,
    #[command(flatten)]
    format: Format,
}

/// The processes of a queue, as --json prints them.
#[derive(Serialize)]
struct Report {
    queue: String,
    processes: Vec<Entry>,
    /// The other places with a queue of this name: "kernel", or the directory of another namespace.
    also_in: Vec<String>,
}

/// A process. Unknown values are null.
#[derive(Serialize, Default)]
struct Entry {
    pid: u32,
    /// True if the process may live in another PID namespace. Then `pid` is a process id of that namespace.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    elsewhere: bool,
    uid: Option<u32>,
    user: Option<String>,
    command: Option<String>,
    mapped: Option<bool>,
    descriptors: Vec<u32>,
    receiving: u32,
    sending: u32,
    /// The duration of the longest wait, in seconds.
    waiting_seconds: Option<f64>,
    polls: bool,
    leased: u32,
    reserved: u32,
    producer: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dead: bool,
}

impl Who {
    pub fn perform(&self, cli: &Cli) -> Result {
        let namespace = place::existing(cli)?;
        let path = path(&namespace, &self.queue)?;
        let diagnosis = match diagnose(&namespace, &self.queue) {
            Ok(diagnosis) => diagnosis,
            Err(failure) if path.symlink_metadata().is_ok() => {
                say(format_args!(
                    "{}; waits and holds are not shown",
                    failure.line()
                ));
                Diagnosis::default()
            }
            Err(failure) => return Err(failure),
        };
        let processes = entries(&path, &diagnosis);
        let also_in = match &self.queue {
            Subject::Queue(queue) => elsewhere::also_in(&namespace, queue),
            Subject::Ring(_) => Vec::new(),
        };
        let mut out = output::standard()?;
        if self.format.json {
            let report = Report {
                queue: self.queue.lossy(),
                processes,
                also_in,
            };
            json::print(&mut out, &report)?;
            return Ok(out.flush()?);
        }
        print(&processes, &mut out)?;
        out.flush()?;
        for place in &also_in {
            say(elsewhere::described(place));
        }
        Ok(())
    }
}

/// Returns the path of the file of a queue or ring.
fn path(namespace: &Namespace, subject: &Subject) -> Result<PathBuf> {
    let directory = namespace.path();
    match subject {
        Subject::Queue(Address::Posix(name)) => {
            name.check()?;
            let path = directory.join("mq").join(file_name(name.as_ref()));
            Ok(match path.is_dir() {
                // A queue with --remove-on-last-close is a directory, with the queue's file in it.
                true => path.join("queue"),
                false => path,
            })
        }
        Subject::Ring(name) => {
            name.check()?;
            Ok(directory.join("ring").join(file_name(name.as_ref())))
        }
        Subject::Queue(Address::SystemV(Label::Id(id))) => Ok(sysv_file(namespace, *id)),
        Subject::Queue(Address::SystemV(label @ Label::Key(key, _))) => {
            let listed = sysv::list(namespace).map_err(|error| Failure::of(label, error))?;
            let found = listed.iter().find(|queue| queue.key == *key);
            match found.filter(|_| *key != sysv::PRIVATE) {
                Some(found) => Ok(sysv_file(namespace, found.id)),
                None => Err(elsewhere::no_label(
                    namespace,
                    *label,
                    &sysv::OpenError::NotFound,
                )),
            }
        }
    }
}

fn entries(path: &std::path::Path, diagnosis: &Diagnosis) -> Vec<Entry> {
    let mut all = Entries::new();
    if let Some(file) = File::at(path) {
        for &pid in Users::read().of(file) {
            here(&mut all, pid).mapped = Some(true);
        }
        for (pid, descriptors) in file.descriptors() {
            let entry = here(&mut all, pid);
            entry.mapped = entry.mapped.or(Some(false));
            entry.descriptors = descriptors;
        }
    }
    for blocked in diagnosis.blocked.iter().filter(|blocked| !blocked.served) {
        entry(&mut all, &blocked.who).wait(blocked);
    }
    for hold in &diagnosis.holds {
        let Some(who) = &hold.who else { continue };
        let entry = entry(&mut all, who);
        match hold.kind {
            HoldKind::Leased => entry.leased += 1,
            HoldKind::Reserved => entry.reserved += 1,
            _ => {}
        }
    }
    for producer in &diagnosis.producers {
        entry(&mut all, producer).producer = true;
    }
    for poller in &diagnosis.pollers {
        entry(&mut all, poller).polls = true;
    }
    if let Some(receiver) = &diagnosis.receiver {
        entry(&mut all, receiver);
    }
    all.into_values().collect()
}

/// The entries of the processes. First come those with process ids of this PID namespace, then those with process ids of another PID namespace.
type Entries = BTreeMap<(bool, u32), Entry>;

fn here(all: &mut Entries, pid: u32) -> &mut Entry {
    all.entry((false, pid)).or_insert_with(|| Entry::of(pid))
}

fn entry<'a>(all: &'a mut Entries, who: &Process) -> &'a mut Entry {
    if !who.elsewhere {
        let entry = here(all, who.pid);
        entry.dead |= who.life == Life::Dead;
        return entry;
    }
    all.entry((true, who.pid)).or_insert_with(|| Entry {
        pid: who.pid,
        elsewhere: true,
        ..Entry::default()
    })
}

impl Entry {
    fn of(pid: u32) -> Entry {
        let uid = std::fs::metadata(format!("/proc/{pid}"))
            .ok()
            .map(|found| found.uid());
        Entry {
            pid,
            uid,
            user: uid.map(|uid| Owners::new().name(uid)),
            command: command(pid),
            ..Entry::default()
        }
    }

    fn wait(&mut self, blocked: &Blocked) {
        match blocked.wait {
            Wait::Room { .. } => self.sending += 1,
            _ => self.receiving += 1,
        }
        let longest = self.waiting_seconds.unwrap_or_default();
        self.waiting_seconds = Some(longest.max(blocked.time.as_secs_f64()));
    }

    fn open(&self) -> String {
        let numbers: Vec<String> = self.descriptors.iter().map(u32::to_string).collect();
        match (self.mapped, numbers.is_empty()) {
            (_, false) => format!("descriptor {}", numbers.join(",")),
            (Some(true), true) => "mapped".to_owned(),
            (_, true) => "?".to_owned(),
        }
    }

    fn waits(&self) -> String {
        let mut parts = Vec::new();
        for (count, what) in [(self.receiving, "to receive"), (self.sending, "to send")] {
            match count {
                0 => {}
                1 => parts.push(what.to_owned()),
                threads => parts.push(format!("{threads} threads {what}")),
            }
        }
        if let (Some(seconds), false) = (self.waiting_seconds, parts.is_empty()) {
            let since = Duration::try_from_secs_f64(seconds).unwrap_or_default();
            parts.push(format!("for {}", time::rough(since)));
        }
        if self.polls {
            parts.push("polls".to_owned());
        }
        or_dash(parts.join(", ").replace(", for ", " for "))
    }

    fn holds(&self) -> String {
        let counts = [(self.leased, "leased"), (self.reserved, "reserved")];
        let mut parts: Vec<String> = counts
            .iter()
            .filter(|(count, _)| *count != 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        if self.producer {
            parts.push("producer".to_owned());
        }
        or_dash(parts.join(", "))
    }
}

fn or_dash(text: String) -> String {
    match text.is_empty() {
        true => "-".to_owned(),
        false => text,
    }
}

/// Returns the command line of a process, or its name if the command line can't be read.
fn command(pid: u32) -> Option<String> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let line: Vec<u8> = line
        .strip_suffix(&[0])
        .unwrap_or(&line)
        .iter()
        .map(|&byte| match byte {
            0 => b' ',
            byte => byte,
        })
        .collect();
    if !line.is_empty() {
        return Some(String::from_utf8_lossy(&line).into_owned());
    }
    let name = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(String::from_utf8_lossy(name.trim_ascii_end()).into_owned())
}

fn print(processes: &[Entry], out: &mut impl Write) -> std::io::Result<()> {
    let mut table = Table::new([
        ("PID", Side::Right),
        ("USER", Side::Left),
        ("OPEN", Side::Left),
        ("WAITS", Side::Left),
        ("HOLDS", Side::Left),
        ("COMMAND", Side::Left),
    ]);
    for entry in processes {
        let command = match (&entry.command, entry.elsewhere) {
            (Some(command), _) => command,
            (None, _) if entry.dead => "dead: the next call on the queue removes this entry",
            (None, true) => "in another PID namespace",
            (None, false) => "?",
        };
        table.push([
            entry.pid.to_string(),
            entry.user.clone().unwrap_or_else(|| "?".to_owned()),
            entry.open(),
            entry.waits(),
            entry.holds(),
            text::preview(command.as_bytes(), LONGEST_COMMAND),
        ]);
    }
    table.print(out)
}

/// The maximum number of characters of a command line that are shown.
const LONGEST_COMMAND: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_described_by_what_is_known() {
        let unknown = Entry::default();
        assert_eq!(
            (unknown.open(), unknown.waits(), unknown.holds()),
            ("?".into(), "-".into(), "-".into())
        );
        let busy = Entry {
            mapped: Some(true),
            descriptors: vec![3, 4],
            receiving: 2,
            waiting_seconds: Some(61.0),
            polls: true,
            leased: 1,
            producer: true,
            ..Entry::default()
        };
        assert_eq!(busy.open(), "descriptor 3,4");
        assert_eq!(busy.waits(), "2 threads to receive for 1m, polls");
        assert_eq!(busy.holds(), "1 leased, producer");
    }
}
