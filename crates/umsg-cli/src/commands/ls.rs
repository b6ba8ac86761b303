//! `umsg ls`.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;

use clap::{Args, ValueEnum};
use serde::Serialize;
use umsg::posix::{self, OpenError, OpenOptions, Status};
use umsg::ring::Listed;
use umsg::{Namespace, ring};

use super::{ls_ring, ls_sysv};
use crate::address::{Label, RING};
use crate::cli::Cli;
use crate::failure::{self, Explain};
use crate::output::json::sysv::SysvQueue;
use crate::output::owner::Owners;
use crate::output::table::{Side, Table};
use crate::output::{self, Format, json, text, time};
use crate::place;

/// List the queues and rings of the namespace
///
/// The first line names the namespace's directory. POSIX queues come first, then System V queues, then rings, if there are any.
///
/// DEPTH is the maximum number of messages, and SIZE the maximum size of a message in bytes. WAIT-SEND counts the living threads that wait for room,
/// and WAIT-RECV those that wait for a message. ACTIVITY is the time since the last send or receive. After ACTIVITY, a column without a heading
/// counts messages that can't be received now: leased (received, but not yet acknowledged), reserved (still being written), set aside (for the
/// dead-letter queue) and delayed messages. The column also shows the word `corrupted` for a corrupted queue or ring.
///
/// Other commands take a System V queue by its KEY, as key:0x1234, or by its ID, as id:32769. QBYTES is the maximum number of bytes of all messages
/// in the queue.
///
/// Other commands take a ring by its name in the column RING, as ring:/jobs. PID is the ring's owner: the process that receives from the ring. STATE
/// is open, disabled (the owner does not accept messages yet), closed, or dead if the owner has died. ENTRIES is the capacity of the ring. OVERFLOW
/// is the current number of messages beyond that capacity.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  umsg ls
  umsg ls --kind sysv
  umsg ls --kind mq --null | xargs -0 -r umsg rm    remove all POSIX queues
  umsg ls --json | jq '.queues[] | select(.blocked_senders > 0) | .name'
  umsg --dir /dev/shm/umsg-1000 ls      the queues of user 1000")]
pub struct Ls {
    /// Only queues of one kind
    #[arg(long, short, value_enum, value_name = "KIND")]
    kind: Option<Kind>,
    /// Print only names, one per line: /orders, id:32769, ring:/jobs; on a terminal, control characters are escaped
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
    /// Print only names, unescaped, each followed by a NUL byte instead of a line feed, for xargs -0
    #[arg(long, short = '0', conflicts_with = "json")]
    null: bool,
    #[command(flatten)]
    format: Format,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// POSIX queues, with names
    Mq,
    /// System V queues, with keys and identifiers
    Sysv,
    /// Rings
    Ring,
}

/// The list of queues and rings.
struct Rows {
    posix: Vec<Row>,
    sysv: Vec<ls_sysv::Row>,
    rings: Vec<Listed>,
}

/// A queue of the list, or the reason why it can't be inspected.
struct Row {
    name: OsString,
    status: Result<Status, OpenError>,
}

impl Ls {
    pub fn perform(&self, cli: &Cli) -> failure::Result {
        let namespace = place::existing(cli)?;
        let rows = self.rows(&namespace)?;
        let mut out = output::standard()?;
        if self.format.json {
            json::print(&mut out, &listing(&namespace, &rows))?;
        } else if self.quiet || self.null {
            self.print_names(&mut out, &rows)?;
        } else {
            let origin = place::origin(cli, namespace.kind());
            writeln!(out, "namespace {} ({origin})", namespace.path().display())?;
            place::tell_passed_over(cli, &namespace, &mut out)?;
            self.print_tables(&mut out, &rows)?;
        }
        Ok(out.flush()?)
    }

    fn wants(&self, kind: Kind) -> bool {
        self.kind.is_none_or(|wanted| wanted == kind)
    }

    fn rows(&self, namespace: &Namespace) -> failure::Result<Rows> {
        let mut rows = Rows {
            posix: Vec::new(),
            sysv: Vec::new(),
            rings: Vec::new(),
        };
        if self.wants(Kind::Mq) {
            let listed = posix::list(namespace)?.into_iter();
            rows.posix = listed.map(|listed| row(namespace, listed)).collect();
        }
        if self.wants(Kind::Sysv) {
            rows.sysv = ls_sysv::rows(namespace)?;
        }
        if self.wants(Kind::Ring) {
            rows.rings = ring::list(namespace)?;
        }
        Ok(rows)
    }

    /// Prints the tables. The table of POSIX queues, and a table that the user has requested, are printed even if they are empty.
    fn print_tables(&self, out: &mut impl Write, rows: &Rows) -> io::Result<()> {
        if self.wants(Kind::Mq) {
            table(&rows.posix).print(out)?;
        }
        if self.kind == Some(Kind::Sysv) || !rows.sysv.is_empty() {
            self.gap(out)?;
            ls_sysv::table(&rows.sysv).print(out)?;
        }
        if self.kind == Some(Kind::Ring) || !rows.rings.is_empty() {
            self.gap(out)?;
            ls_ring::table(&rows.rings).print(out)?;
        }
        Ok(())
    }

    /// Writes an empty line between tables.
    fn gap(&self, out: &mut impl Write) -> io::Result<()> {
        match self.kind {
            None => writeln!(out),
            Some(_) => Ok(()),
        }
    }

    /// Prints the names, escaped only on a terminal: a program that reads a pipe needs the unescaped names.
    fn print_names(&self, out: &mut impl Write, rows: &Rows) -> io::Result<()> {
        let escape = !self.null && io::stdout().is_terminal();
        let end = if self.null { b"\0" } else { b"\n" };
        let mut print = |kind: &str, name: &OsStr| {
            out.write_all(kind.as_bytes())?;
            match escape {
                true => out.write_all(shown(name).as_bytes())?,
                false => out.write_all(name.as_bytes())?,
            }
            out.write_all(end)
        };
        for row in &rows.posix {
            print("", &row.name)?;
        }
        for row in &rows.sysv {
            print("", Label::Id(row.entry.id).to_string().as_ref())?;
        }
        for ring in &rows.rings {
            print(RING, &ring.name)?;
        }
        Ok(())
    }
}

/// Returns the row of a queue. Opens the queue for receiving, or else for sending, because either permission is enough to read the status.
fn row(namespace: &Namespace, listed: posix::Listed) -> Row {
    let queue = match listed.queue {
        Err(OpenError::PermissionDenied) => OpenOptions::new()
            .write(true)
            .counted(false)
            .namespace(namespace)
            .open(&listed.name),
        other => other,
    };
    Row {
        name: listed.name,
        status: queue.map(|queue| queue.status()),
    }
}

pub fn shown(name: &OsStr) -> String {
    text::on_one_line(name.as_bytes())
}

fn table(rows: &[Row]) -> Table<11> {
    let owners = Owners::new();
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

/// Returns the text of the last column: the numbers of leased, reserved, set-aside and delayed messages, and `corrupted`.
fn remarks(status: &Status) -> String {
    let attributes = status.attributes;
    let held = [
        (attributes.leased, "leased"),
        (attributes.reserved, "reserved"),
        (status.set_aside, "set aside"),
        (attributes.delayed, "delayed"),
    ];
    let held = held.into_iter().filter(|(count, _)| *count != 0);
    let held = held.map(|(count, how)| format!("{count} {how}"));
    let damaged = status.damaged.then(|| "corrupted".to_owned());
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
    sysv: Vec<SysvQueue>,
    rings: Vec<json::ring::Entry>,
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

fn listing(namespace: &Namespace, rows: &Rows) -> Listing {
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
        queues: rows.posix.iter().map(entry).collect(),
        sysv: ls_sysv::json(&rows.sysv),
        rings: rows.rings.iter().map(json::ring::Entry::new).collect(),
    }
}
