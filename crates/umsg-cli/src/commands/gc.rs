//! `umsg gc`.

use std::io::Write;
use std::time::{Duration, SystemTime};

use clap::Args;
use glob::Pattern;
use serde::Serialize;
use umsg::{Namespace, StaleFiles, posix, ring, sysv};

use super::gc_found::{Found, Removal, found};
use super::ls::{Kind, shown};
use crate::cli::Cli;
use crate::failure::{Code, Failure, Result};
use crate::output::table::{Side, Table};
use crate::output::{self, Format, json, time};
use crate::users::Users;
use crate::{place, streams, values};

/// Find unused queues and rings, and remove them with --remove
///
/// A queue and its messages stay until a process removes the queue, even after the end of the programs that used it. The
/// command lists the queues that meet all given conditions; at least one condition is required. With --remove, the command
/// removes the listed queues. The command ignores queues that a process has open, except with --in-use. Only root can see which
/// queues the processes of other users have open: without root, a queue that only such processes have open counts as unused.
///
/// The command also lists stale files, regardless of the conditions. Killed processes leave these files. Stale files are: queues with
/// --remove-on-last-close that no process has open; FIFOs for polling a queue that no process polls now; sockets of removed
/// rings whose owners were killed; files of a creation that was interrupted. Other commands, such as `umsg ls`, also remove stale queues.
///
/// LAST USED is the time of the last send or receive. For a queue that was never used, and for a ring, LAST USED is the time of creation. CREATOR is
/// the id of the process that created the queue, followed by `dead` if that process has ended. A new process can get the id of an ended process. So
/// the command reports the creator as dead if the process with this id started more than an hour after the creation. The hour allows for changes of
/// the system clock.
#[derive(Args, Debug)]
#[command(
    group = clap::ArgGroup::new("condition").required(true).multiple(true).args(["patterns", "older_than", "dead_creator", "empty", "leftovers"]),
    override_usage = "\
umsg gc [OPTIONS] <PATTERN|--older-than <TIME>|--dead-creator|--empty>
       umsg gc [OPTIONS] --leftovers",
    after_help = "\
Examples:
  umsg gc --older-than 7d                   list queues unused for a week
  umsg gc --older-than 7d --remove          list and remove these queues
  umsg gc '/test-*' 'ring:/test-*' --remove leftovers of tests
  umsg gc --dead-creator --empty
  umsg gc --leftovers --remove              only stale files"
)]
pub struct Gc {
    /// Only queues and rings whose names match a pattern with * and ?. The names are those that `umsg ls --quiet` prints: /orders, id:32769,
    /// ring:/jobs
    #[arg(value_name = "PATTERN", value_parser = values::pattern)]
    patterns: Vec<Pattern>,
    /// Only queues and rings that were unused for at least this time: 30m, 12h, 7d
    #[arg(long, value_name = "TIME", value_parser = values::duration, allow_hyphen_values = true)]
    older_than: Option<Duration>,
    /// Only queues whose creator has ended, and rings whose owner has ended
    #[arg(long)]
    dead_creator: bool,
    /// Only queues and rings without messages: none to receive, and none that is leased, reserved, delayed or set aside
    #[arg(long)]
    empty: bool,
    /// List only stale files
    #[arg(long, conflicts_with_all = ["patterns", "older_than", "dead_creator", "empty"])]
    leftovers: bool,
    /// Only queues of one kind
    #[arg(long, short, value_enum, value_name = "KIND")]
    kind: Option<Kind>,
    /// Include queues and rings that processes have open
    #[arg(long)]
    in_use: bool,
    /// Remove the listed queues, rings and files
    #[arg(long)]
    remove: bool,
    #[command(flatten)]
    format: Format,
}

/// The outcome for a queue or ring. Without --remove, the outcome that a removal would have.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Fate {
    /// The item would be removed with --remove.
    Stale,
    /// A process has the item open, or another item has replaced it meanwhile.
    Kept,
    Removed,
    Failed,
}

struct Row<'a> {
    found: &'a Found,
    used_by: Vec<u32>,
    fate: Fate,
}

impl Gc {
    pub fn perform(&self, cli: &Cli) -> Result {
        // The output is checked before files are removed, because the removed files are listed only in this report.
        streams::check_output()?;
        let namespace = place::existing(cli)?;
        let left = match self.remove {
            true => namespace.sweep()?,
            false => namespace.stale_files()?,
        };
        let mut all = match self.leftovers {
            true => Vec::new(),
            false => found(&namespace, self.kind)?,
        };
        all.retain(|found| !found.is_one_of(&left.queues));
        let users = Users::read();
        let now = SystemTime::now();
        let stale = all.iter().filter(|found| self.is_meant(found, now));
        let rows: Vec<Row<'_>> = stale
            .map(|found| self.judge(&namespace, found, &users))
            .collect();
        let mut out = output::standard()?;
        if self.format.json {
            json::print(&mut out, &Report::new(&rows, &left, self.remove))?;
        } else {
            if !left.is_empty() || self.leftovers {
                self.print_stale_files(&left, &mut out)?;
            }
            if !self.leftovers {
                table(&rows).print(&mut out)?;
                self.summarize(&rows, &mut out)?;
            }
        }
        out.flush()?;
        match rows.iter().any(|row| row.fate == Fate::Failed) {
            true => Err(Failure::Reported(Code::Failed)),
            false => Ok(()),
        }
    }

    /// Returns whether the item meets all conditions. A condition on an unknown value is not met.
    fn is_meant(&self, found: &Found, now: SystemTime) -> bool {
        let mut names = self.patterns.iter();
        let is_named = self.patterns.is_empty() || names.any(|name| name.matches(&found.name));
        let is_old = |least: Duration| {
            let age = found
                .last_used
                .and_then(|time| now.duration_since(time).ok());
            age.is_some_and(|age| age >= least)
        };
        is_named
            && self.older_than.is_none_or(is_old)
            && (!self.dead_creator || found.creator.is_some_and(|creator| !creator.lives))
            && (!self.empty || found.is_empty == Some(true))
    }

    fn judge<'a>(&self, namespace: &Namespace, found: &'a Found, users: &Users) -> Row<'a> {
        let mut used_by = found.users(users);
        if self.remove && used_by.is_empty() {
            // Another program may have opened or replaced the item since `users` was read.
            used_by = found.users(&Users::read());
        }
        let is_kept = !self.in_use && !used_by.is_empty() || found.is_another_by_now();
        let fate = match (is_kept, self.remove) {
            (true, _) => Fate::Kept,
            (false, false) => Fate::Stale,
            (false, true) => match self.remove(namespace, found) {
                Ok(()) => Fate::Removed,
                Err(failure) => {
                    failure.report();
                    Fate::Failed
                }
            },
        };
        Row {
            found,
            used_by,
            fate,
        }
    }

    fn remove(&self, namespace: &Namespace, found: &Found) -> Result {
        let name = &found.shown;
        match &found.removal {
            Removal::Posix(queue) => {
                posix::unlink_in(namespace, queue).map_err(|error| Failure::of(name, error))
            }
            Removal::SystemV(id) => {
                sysv::remove(namespace, *id).map_err(|error| Failure::of(name, error))
            }
            Removal::Ring(ring) if self.in_use => {
                ring::unlink_anyway_in(namespace, ring).map_err(|error| Failure::of(name, error))
            }
            Removal::Ring(ring) => {
                ring::unlink_in(namespace, ring).map_err(|error| Failure::of(name, error))
            }
        }
    }

    fn print_stale_files(&self, left: &StaleFiles, out: &mut impl Write) -> std::io::Result<()> {
        if left.is_empty() {
            return writeln!(out, "no stale files");
        }
        let names: String = left
            .queues
            .iter()
            .map(|name| format!(" {}", shown(name)))
            .collect();
        let queues = match names.as_str() {
            "" => " no queues",
            names => names,
        };
        let (fifos, incomplete) = (left.poll_fifos, left.incomplete);
        let fate = match self.remove {
            true => "removed",
            false => "would be removed with --remove",
        };
        writeln!(
            out,
            "stale files:{queues}, {fifos} poll FIFOs, {incomplete} other files; {fate}"
        )
    }

    fn summarize(&self, rows: &[Row<'_>], out: &mut impl Write) -> std::io::Result<()> {
        let count = |fate| rows.iter().filter(|row| row.fate == fate).count();
        let what = match (self.remove, count(Fate::Stale)) {
            (true, _) => format!("{} removed", count(Fate::Removed)),
            (false, 0) => "nothing would be removed".to_owned(),
            (false, stale) => format!("{stale} would be removed with --remove"),
        };
        match count(Fate::Kept) {
            0 => writeln!(out, "{what}"),
            kept => writeln!(out, "{what}; {kept} in use, kept"),
        }
    }
}

fn table(rows: &[Row<'_>]) -> Table<5> {
    let mut table = Table::new([
        ("NAME", Side::Left),
        ("MESSAGES", Side::Right),
        ("LAST USED", Side::Left),
        ("CREATOR", Side::Left),
        ("", Side::Left),
    ]);
    for row in rows {
        let found = row.found;
        let unknown = || "-".to_owned();
        table.push([
            found.shown.clone(),
            found
                .messages
                .map_or_else(unknown, |count| count.to_string()),
            found
                .last_used
                .map_or_else(unknown, |time| time::ago(Some(time))),
            found.creator.map_or_else(unknown, |creator| {
                let dead = if creator.lives { "" } else { ", dead" };
                format!("{}{dead}", creator.pid)
            }),
            remark(row),
        ]);
    }
    table
}

fn remark(row: &Row<'_>) -> String {
    match (row.fate, row.used_by.as_slice()) {
        (Fate::Failed, _) => "not removed".to_owned(),
        (Fate::Kept, []) => "replaced meanwhile".to_owned(),
        (_, []) => String::new(),
        (_, [pid]) => format!("in use by process {pid}"),
        (_, [pid, others @ ..]) => format!("in use by process {pid} and {} more", others.len()),
    }
}

#[derive(Serialize)]
struct Report<'a> {
    queues: Vec<Entry<'a>>,
    stale_files: Stale,
}

/// The names of stale queues, and the numbers of other stale files.
#[derive(Serialize)]
struct Stale {
    queues: Vec<String>,
    poll_fifos: usize,
    incomplete: usize,
    /// `stale` or `removed`.
    fate: Fate,
}

/// A field keeps its name and meaning in later versions. Unknown values are null.
#[derive(Serialize)]
struct Entry<'a> {
    name: &'a str,
    messages: Option<u64>,
    last_used: Option<String>,
    creator_pid: Option<u32>,
    creator_alive: Option<bool>,
    used_by: &'a [u32],
    /// `stale`, `kept`, `removed` or `failed`.
    fate: Fate,
}

impl<'a> Report<'a> {
    fn new(rows: &'a [Row<'a>], left: &StaleFiles, removed: bool) -> Report<'a> {
        let entry = |row: &'a Row<'a>| Entry {
            name: &row.found.name,
            messages: row.found.messages,
            last_used: row.found.last_used.map(time::utc),
            creator_pid: row.found.creator.map(|creator| creator.pid),
            creator_alive: row.found.creator.map(|creator| creator.lives),
            used_by: &row.used_by,
            fate: row.fate,
        };
        Report {
            queues: rows.iter().map(entry).collect(),
            stale_files: Stale {
                queues: left
                    .queues
                    .iter()
                    .map(|name| name.to_string_lossy().into_owned())
                    .collect(),
                poll_fifos: left.poll_fifos,
                incomplete: left.incomplete,
                fate: match removed {
                    true => Fate::Removed,
                    false => Fate::Stale,
                },
            },
        }
    }
}
