//! `umsg ls`.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;

use clap::{Args, ValueEnum};
use serde::Serialize;
use umsg::Namespace;
use umsg::posix::{self, Listed, OpenError, OpenOptions, Status};

use super::ls_typed;
use crate::address::Label;
use crate::cli::Cli;
use crate::failure::{self, Explain};
use crate::output::json_typed::TypedQueue;
use crate::output::owner::Owners;
use crate::output::table::{Side, Table};
use crate::output::{self, Format, json, text, time};
use crate::place;

/// List the queues, and say which directory they are in
///
/// POSIX queues come first, then those of System V, if there are any.
///
/// DEPTH is how many messages a queue may hold, SIZE how long a message may be, in bytes. WAIT-SEND and WAIT-RECV count
/// the threads that are blocked because the queue is full or empty. ACTIVITY is when a message was last sent or
/// received. Behind it stands how many messages processes have in their hands, see umsg-stat(1), if any, and `damaged`.
///
/// KEY and ID are what a System V queue is named by: key:0x1234, id:32769. QBYTES is how many bytes its messages may have together.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  umsg ls
  umsg ls --kind sysv
  umsg ls --null | xargs -0 -r umsg rm  remove all queues
  umsg ls --json | jq '.queues[] | select(.blocked_senders > 0) | .name'
  umsg --dir /dev/shm/umsg-1000 ls      those of user 1000")]
pub struct Ls {
    /// Queues of one kind only
    #[arg(long, short, value_enum, value_name = "KIND")]
    kind: Option<Kind>,
    /// Names only, id:32769 of System V, one a line; on a terminal, what could control it is escaped
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
    /// Names only, each as it is and ended by a NUL byte in place of a line feed: for xargs -0
    #[arg(long, short = '0', conflicts_with = "json")]
    null: bool,
    #[command(flatten)]
    format: Format,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Of POSIX, with names
    Mq,
    /// Of System V, with keys and identifiers
    Sysv,
}

/// A queue of the list, or why it can't be looked at.
struct Row {
    name: OsString,
    status: Result<Status, OpenError>,
}

impl Ls {
    pub fn perform(&self, cli: &Cli) -> failure::Result {
        let namespace = place::existing(cli)?;
        let rows = self.rows(&namespace)?;
        let typed = match self.kind {
            Some(Kind::Mq) => Vec::new(),
            _ => ls_typed::rows(&namespace)?,
        };
        let mut out = output::standard()?;
        if self.format.json {
            json::print(&mut out, &listing(&namespace, &rows, &typed))?;
        } else if self.quiet || self.null {
            self.print_names(&mut out, &rows, &typed)?;
        } else {
            let origin = place::origin(cli, namespace.kind());
            writeln!(out, "namespace {} ({origin})", namespace.path().display())?;
            self.print_tables(&mut out, &rows, &typed)?;
        }
        Ok(out.flush()?)
    }

    fn rows(&self, namespace: &Namespace) -> failure::Result<Vec<Row>> {
        if self.kind == Some(Kind::Sysv) {
            return Ok(Vec::new());
        }
        let listed = posix::list(namespace)?.into_iter();
        Ok(listed.map(|listed| row(namespace, listed)).collect())
    }

    fn print_tables(
        &self,
        out: &mut impl Write,
        rows: &[Row],
        typed: &[ls_typed::Row],
    ) -> io::Result<()> {
        if self.kind != Some(Kind::Sysv) {
            table(rows).print(out)?;
        }
        if self.kind.is_none() && !typed.is_empty() {
            writeln!(out)?;
        }
        if self.kind == Some(Kind::Sysv) || !typed.is_empty() {
            ls_typed::table(typed).print(out)?;
        }
        Ok(())
    }

    /// What reads a pipe wants the name that it can open.
    fn print_names(
        &self,
        out: &mut impl Write,
        rows: &[Row],
        typed: &[ls_typed::Row],
    ) -> io::Result<()> {
        let escape = !self.null && io::stdout().is_terminal();
        let end = if self.null { b"\0" } else { b"\n" };
        for row in rows {
            match escape {
                true => out.write_all(shown(&row.name).as_bytes())?,
                false => out.write_all(row.name.as_bytes())?,
            }
            out.write_all(end)?;
        }
        for row in typed {
            write!(out, "{}", Label::Id(row.entry.id))?;
            out.write_all(end)?;
        }
        Ok(())
    }
}

/// Who may only send may look at a queue's status, too.
fn row(namespace: &Namespace, listed: Listed) -> Row {
    let queue = match listed.queue {
        Err(OpenError::PermissionDenied) => OpenOptions::new()
            .write(true)
            .namespace(namespace)
            .open(&listed.name),
        other => other,
    };
    Row {
        name: listed.name,
        status: queue.map(|queue| queue.status()),
    }
}

fn shown(name: &OsStr) -> String {
    text::on_one_line(name.as_bytes())
}

fn table(rows: &[Row]) -> Table<11> {
    let owners = Owners::read();
    let mut table = Table::new([
        ("NAME", Side::Left),
        ("MESSAGES", Side::Right),
        ("BYTES", Side::Right),
        ("DEPTH", Side::Right),
        ("SIZE", Side::Right),
        ("MODE", Side::Left),
        ("OWNER", Side::Left),
        ("WAIT-SEND", Side::Right),
        ("WAIT-RECV", Side::Right),
        ("ACTIVITY", Side::Left),
        ("", Side::Left),
    ]);
    for row in rows {
        table.push(match &row.status {
            Ok(status) => cells(&row.name, status, &owners),
            Err(error) => unknown(&row.name, error),
        });
    }
    table
}

fn cells(name: &OsStr, status: &Status, owners: &Owners) -> [String; 11] {
    let attributes = status.attributes;
    [
        shown(name),
        attributes.messages.to_string(),
        attributes.bytes.to_string(),
        attributes.max_messages.to_string(),
        attributes.message_size.to_string(),
        format!("{:04o}", status.mode),
        owners.name(status.uid),
        status.blocked_senders.to_string(),
        status.blocked_receivers.to_string(),
        time::ago(json::last_activity(status)),
        remarks(status),
    ]
}

/// What makes a queue seem full without being full of messages, and what is wrong with it.
fn remarks(status: &Status) -> String {
    let attributes = status.attributes;
    let held = [
        (attributes.leased, "leased"),
        (attributes.reserved, "reserved"),
        (status.set_aside, "set aside"),
    ];
    let held = held.into_iter().filter(|(count, _)| *count != 0);
    let held = held.map(|(count, how)| format!("{count} {how}"));
    let damaged = status.damaged.then(|| "damaged".to_owned());
    held.chain(damaged).collect::<Vec<_>>().join(", ")
}

fn unknown(name: &OsStr, error: &OpenError) -> [String; 11] {
    let mut cells: [String; 11] = std::array::from_fn(|_| "-".to_owned());
    cells[0] = shown(name);
    cells[10] = match error {
        OpenError::PermissionDenied => "permission denied".to_owned(),
        error => error.explain(),
    };
    cells
}

#[derive(Serialize)]
struct Listing {
    namespace: Place,
    queues: Vec<Entry>,
    sysv: Vec<TypedQueue>,
}

#[derive(Serialize)]
struct Place {
    path: String,
    kind: &'static str,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Entry {
    Known(Box<json::Queue>),
    Unknown { name: String, error: String },
}

fn listing(namespace: &Namespace, rows: &[Row], typed: &[ls_typed::Row]) -> Listing {
    let entry = |row: &Row| match &row.status {
        Ok(status) => Entry::Known(Box::new(json::Queue::new(
            &row.name.to_string_lossy(),
            status,
        ))),
        Err(error) => Entry::Unknown {
            name: row.name.to_string_lossy().into_owned(),
            error: error.explain(),
        },
    };
    Listing {
        namespace: Place {
            path: place::path(namespace.path()),
            kind: place::kind(namespace.kind()),
        },
        queues: rows.iter().map(entry).collect(),
        sysv: ls_typed::json(typed),
    }
}
