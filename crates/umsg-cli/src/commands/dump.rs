//! `umsg dump`.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::ProgressBar;
use serde::Serialize;
use umsg::posix::{Snapshot, SnapshotError};
use umsg::sysv;

use crate::address::{Address, address};
use crate::attached::Attached;
use crate::cli::Cli;
use crate::failure::{Code, Explain, Failure, Result, say};
use crate::opened::{Opened, Purpose};
use crate::output::new_file::{Bounded, NewFile};
use crate::output::time::utc;
use crate::output::{self, json};
use crate::{place, progress, streams};

/// Save a queue's messages in a file, and leave them in the queue
///
/// The file holds the queue's attributes and policies, and all messages as they were at one instant, with their priorities or types, senders and
/// times. `umsg load` creates a queue from the file. A delayed message is saved with its remaining delay. If the queue is closed for sending, the
/// loaded queue is closed, too.
///
/// The file omits leased messages that are not yet acknowledged, and messages that wait for room in a dead-letter queue. For a System V queue, the
/// file also omits delayed messages. A line on standard error reports the omitted messages. The file of --output appears only when it is complete.
/// Only the user of this command can read the file.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  umsg dump /orders -o orders.umsg
  umsg dump /orders | gzip > orders.gz
  umsg dump key:0x1234 -o jobs.umsg          a System V queue
  umsg dump /orders | ssh host umsg load -   to another machine")]
pub struct Dump {
    /// The queue: a name, or for System V key:0x1234 or id:32769
    #[arg(value_name = "QUEUE", value_parser = address())]
    queue: Address,
    /// Write to this file, which is replaced if it exists [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print JSON about the dump, for programs; only with --output
    #[arg(long)]
    json: bool,
}

impl Dump {
    pub fn perform(&self, cli: &Cli) -> Result {
        let Some(path) = &self.output else {
            return self.print(cli);
        };
        if self.json {
            streams::check_output()?;
        }
        let snapshot = self.take(cli)?;
        write_file(&snapshot, path).map_err(|error| Failure::of(path.display(), error))?;
        if self.json {
            let mut out = output::standard()?;
            json::print(&mut out, &snapshot.summary(self.queue.lossy()))?;
            out.flush()?;
        }
        Ok(())
    }

    fn print(&self, cli: &Cli) -> Result {
        if self.json {
            let line = "--json describes the dump on standard output, so the dump needs a file; give one with --output";
            return Err(Failure::new(Code::Usage, line));
        }
        streams::check_output()?;
        if io::stdout().is_terminal() {
            let line = "standard output is a terminal; give a file with -o, or redirect the output";
            return Err(Failure::new(Code::Usage, line));
        }
        let snapshot = self.take(cli)?;
        let mut out = bar(&snapshot).wrap_write(io::stdout().lock());
        match snapshot.write(&mut out) {
            Ok(_) => Ok(()),
            Err(SnapshotError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                Err(Failure::ReaderGone)
            }
            Err(error) => Err(Failure::of("standard output", error)),
        }
    }

    fn take(&self, cli: &Cli) -> Result<Saved> {
        let namespace = place::existing(cli)?;
        match &self.queue {
            Address::Posix(name) => {
                let opened = Opened::open(&namespace, name, Purpose::See)?;
                let snapshot =
                    Snapshot::of(&opened.queue).map_err(|error| opened.not_seen(&error))?;
                let status = opened.queue.status();
                let held = status.attributes.leased + status.set_aside;
                self.warn("leased and set-aside", held as u64);
                Ok(Saved::Posix(snapshot.named(name)))
            }
            Address::SystemV(label) => {
                let attached = Attached::open(&namespace, *label)?;
                let queue = &attached.queue;
                let snapshot =
                    sysv::Snapshot::of(queue).map_err(|error| attached.not_seen(&error))?;
                let held = queue.status().map(|status| status.leased + status.delayed);
                self.warn("leased and delayed", held.unwrap_or(0));
                Ok(Saved::SystemV(snapshot))
            }
        }
    }

    /// Warns about messages that are not saved in the file: if the user removed the queue, these messages would be lost.
    fn warn(&self, kinds: &str, held: u64) {
        if held != 0 {
            say(format_args!(
                "{}: the file lacks the {kinds} messages ({held}); see `umsg stat {}`",
                self.queue, self.queue
            ));
        }
    }
}

/// Writes the snapshot to the file of --output. A FIFO or device is written directly. A regular file is replaced when the new file is complete.
fn write_file(snapshot: &Saved, path: &Path) -> Result<u64, SnapshotError> {
    let failed = SnapshotError::Write;
    // If the path is a symbolic link, the target of the link is replaced.
    let target = path.canonicalize().unwrap_or(path.to_owned());
    if target.exists() && !target.is_file() {
        let mut file = File::options().write(true).open(&target).map_err(failed)?;
        return snapshot.write(&mut file);
    }
    let new = NewFile::beside(&target, "dump", 0o600).map_err(failed)?;
    let mut file = bar(snapshot).wrap_write(Bounded::new(&new.file));
    let written = snapshot.write(&mut file)?;
    new.replace(&target).map_err(failed)?;
    Ok(written)
}

fn bar(snapshot: &Saved) -> ProgressBar {
    progress::of_bytes("saving", snapshot.bytes())
}

/// A snapshot of a queue of either kind.
pub enum Saved {
    Posix(Snapshot),
    SystemV(sysv::Snapshot),
}

impl Saved {
    fn write(&self, to: impl Write) -> Result<u64, SnapshotError> {
        match self {
            Saved::Posix(snapshot) => snapshot.write(to),
            Saved::SystemV(snapshot) => snapshot.write(to),
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Saved::Posix(snapshot) => snapshot.info().bytes,
            Saved::SystemV(snapshot) => snapshot.info().bytes,
        }
    }

    pub fn summary(&self, queue: String) -> Summary {
        match self {
            Saved::Posix(snapshot) => {
                let info = snapshot.info();
                Summary {
                    queue,
                    messages: info.messages as u64,
                    delayed: Some(info.delayed),
                    bytes: info.bytes,
                    max_messages: Some(info.max_messages),
                    message_size: info.message_size,
                    qbytes: None,
                    mode: format!("{:04o}", info.mode),
                    taken: utc(info.taken),
                }
            }
            Saved::SystemV(snapshot) => {
                let info = snapshot.info();
                Summary {
                    queue,
                    messages: info.messages,
                    delayed: None,
                    bytes: info.bytes,
                    max_messages: None,
                    message_size: info.msgmax as usize,
                    qbytes: Some(info.qbytes),
                    mode: format!("{:04o}", info.mode),
                    taken: utc(info.taken),
                }
            }
        }
    }
}

impl Explain for SnapshotError {
    fn explain(&self) -> String {
        match self {
            SnapshotError::Queue(error) => error.explain(),
            SnapshotError::Write(error) if error.raw_os_error() == Some(libc::EFBIG) => {
                format!("{error}; raise the limit on file sizes (ulimit -f)")
            }
            SnapshotError::Write(error) | SnapshotError::Read(error) => {
                format!("{error}; choose another file")
            }
            SnapshotError::NotASnapshot => format!("{self}; `umsg dump` makes one"),
            SnapshotError::Damaged { .. } => {
                format!("{self}; copy the file again from its source")
            }
            _ => self.to_string(),
        }
    }

    fn code(&self) -> Code {
        match self {
            SnapshotError::Queue(error) => error.code(),
            _ => Code::Failed,
        }
    }
}

/// The result of `umsg dump` or `umsg load`, as --json prints it.
#[derive(Serialize)]
pub struct Summary {
    queue: String,
    messages: u64,
    /// The number of delayed messages, for POSIX queues only.
    #[serde(skip_serializing_if = "Option::is_none")]
    delayed: Option<usize>,
    bytes: u64,
    /// The maximum number of messages, for POSIX queues only.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_messages: Option<usize>,
    message_size: usize,
    /// The maximum number of bytes, for System V queues only.
    #[serde(skip_serializing_if = "Option::is_none")]
    qbytes: Option<u64>,
    mode: String,
    taken: String,
}
