//! `umsg load`.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use umsg::posix::{OpenError, OpenOptions, RestoreError, Snapshot, SnapshotError};
use umsg::{Namespace, sysv};

use super::create_sysv::Wanted;
use super::dump::Saved;
use crate::address::{Address, Label, Notation, address};
use crate::attached::Attached;
use crate::cli::Cli;
use crate::failure::{Code, Explain, Failure, Result, with_command, with_hint};
use crate::names::Name;
use crate::opened::{Opened, Purpose};
use crate::output::{self, Format, json};
use crate::values::RetryDelay;
use crate::{place, progress, streams};

/// Create a queue from a file that `umsg dump` wrote
///
/// A POSIX queue gets the saved attributes, regardless of the umask, and the messages in their order, with their priorities, senders and times. Other
/// processes see a POSIX queue only when the queue is complete. The command refuses a truncated or altered file.
///
/// A System V queue gets its saved key, mode, size (qbytes), retry delay and messages with their types. The messages show this command as their
/// sender. Other processes see the empty queue first, and then all messages at once. If the saved queue was closed for sending, the command closes
/// the new queue after it has sent the messages.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  umsg load orders.umsg                  under its saved name
  umsg load orders.umsg /copy            under another name
  umsg load orders.umsg /orders --into-existing
  umsg load jobs.umsg key:0x77           a System V queue, with another key
  zcat orders.gz | umsg load -")]
pub struct Load {
    /// The file; `-` is standard input
    file: PathBuf,
    /// The queue: a name, or for System V a key; with --into-existing also id:32769 [default: the name or key of the saved queue]
    #[arg(value_name = "QUEUE", value_parser = address())]
    queue: Option<Address>,
    /// Send the messages to an existing queue, behind its messages of the same priority. If the queue has no room for all messages, the command sends
    /// none
    #[arg(long)]
    into_existing: bool,
    #[command(flatten)]
    format: Format,
}

impl Load {
    pub fn perform(&self, cli: &Cli) -> Result {
        self.format.check()?;
        let namespace = match self.into_existing {
            true => place::existing(cli)?,
            false => place::namespace(cli)?,
        };
        let saved = self.read()?;
        let queue = match &saved {
            Saved::Posix(snapshot) => {
                let name = self.name_for(snapshot)?;
                self.load(&namespace, snapshot, &name)?;
                name.lossy()
            }
            Saved::SystemV(snapshot) => {
                let label = self.label_for(snapshot)?;
                self.load_labelled(&namespace, snapshot, label)?
            }
        };
        if self.format.json {
            let mut out = output::standard()?;
            json::print(&mut out, &saved.summary(queue))?;
            out.flush()?;
        }
        Ok(())
    }

    fn load(&self, namespace: &Namespace, snapshot: &Snapshot, name: &Name) -> Result {
        name.check()?;
        let outcome = match self.into_existing {
            true => snapshot.send_all(&Opened::open(namespace, name, Purpose::Send)?.queue),
            false => snapshot
                .restore(
                    name,
                    OpenOptions::new()
                        .write(true)
                        .counted(false)
                        .namespace(namespace),
                )
                .map(drop),
        };
        outcome.map_err(|error| Failure::of(name, error))
    }

    /// Loads a System V queue. Returns the name of the queue for JSON.
    fn load_labelled(
        &self,
        namespace: &Namespace,
        snapshot: &sysv::Snapshot,
        label: Label,
    ) -> Result<String> {
        let attached = match self.into_existing {
            true => Attached::open(namespace, label)?,
            false => create(namespace, &snapshot.info(), label)?,
        };
        let name = match label.key() {
            Some(sysv::PRIVATE) => Label::Id(attached.queue.id()).to_string(),
            _ => label.canonical(),
        };
        let closes = snapshot.info().send_closed && !self.into_existing;
        let sent = snapshot.send_all(&attached.queue);
        let done = sent.and_then(|()| match closes {
            true => attached.queue.close_send().map(drop),
            false => Ok(()),
        });
        if let Err(error) = done {
            let why = attached.explain_send(&error);
            let code = error.code();
            if !self.into_existing {
                // The new queue is useless without its messages. An error of the removal is ignored: the failure below names the queue, so that the
                // user can remove it.
                let _ = attached.queue.remove();
            }
            return Err(Failure::new(
                code,
                format_args!("{label}: {why}; nothing was sent"),
            ));
        }
        Ok(name)
    }

    fn read(&self) -> Result<Saved> {
        let read = if self.file == Path::new("-") {
            streams::check_input().map_err(|error| self.failure(Code::Failed, error))?;
            read(&mut io::stdin().lock())
        } else {
            let file = File::open(&self.file).map_err(SnapshotError::Read);
            file.and_then(|file| {
                let bar = progress::of_file("reading", &file);
                read(bar.wrap_read(file))
            })
        };
        read.map_err(|error| Failure::of(self.subject(), error))
    }

    fn name_for(&self, snapshot: &Snapshot) -> Result<Name> {
        match &self.queue {
            Some(Address::Posix(name)) => Ok(name.clone()),
            Some(Address::SystemV(label)) => {
                let why = format!(
                    "the file holds a POSIX queue, and {label} names a System V queue; give a name, such as /orders"
                );
                Err(self.failure(Code::Usage, why))
            }
            None => {
                let saved = snapshot.info().name.map(Name::from);
                saved.ok_or_else(|| {
                    let why = "the snapshot holds no queue name; give a name after the file";
                    self.failure(Code::Usage, why)
                })
            }
        }
    }

    fn label_for(&self, snapshot: &sysv::Snapshot) -> Result<Label> {
        match &self.queue {
            Some(Address::SystemV(label)) => Ok(*label),
            Some(Address::Posix(name)) => {
                let why = format!(
                    "the file holds a System V queue, and {name} names a POSIX queue; give a key, such as key:0x1234"
                );
                Err(self.failure(Code::Usage, why))
            }
            None => match snapshot.info().key {
                sysv::PRIVATE => {
                    let why = "the saved queue has no key; give a key after the file, or key:0 for a queue without a key";
                    Err(self.failure(Code::Usage, why))
                }
                key => Ok(Label::Key(key, Notation::Hex(8))),
            },
        }
    }

    fn failure(&self, code: Code, why: impl Display) -> Failure {
        Failure::new(code, format_args!("{}: {why}", self.subject()))
    }

    fn subject(&self) -> String {
        match self.file == Path::new("-") {
            true => "standard input".to_owned(),
            false => self.file.display().to_string(),
        }
    }
}

/// Reads a snapshot of a POSIX or System V queue. The major version of the snapshot tells the kind of the queue.
fn read(mut from: impl Read) -> Result<Saved, SnapshotError> {
    let mut start = Vec::new();
    from.by_ref()
        .take(VERSION_END)
        .read_to_end(&mut start)
        .map_err(SnapshotError::Read)?;
    let version = start.get(8..10);
    let is_system_v = SYSTEM_V.iter().any(|of| version == Some(&of[..]));
    let whole = io::Cursor::new(start).chain(from);
    match is_system_v {
        true => sysv::Snapshot::read(whole).map(Saved::SystemV),
        false => Snapshot::read(whole).map(Saved::Posix),
    }
}

/// The offset in a snapshot at which the major version ends. Source: docs/snapshot.md.
const VERSION_END: u64 = 10;
/// The major versions of snapshots of System V queues.
const SYSTEM_V: [[u8; 2]; 2] = [2_u16.to_le_bytes(), 4_u16.to_le_bytes()];

/// Creates the queue for a snapshot.
fn create(namespace: &Namespace, info: &sysv::SnapshotInfo, label: Label) -> Result<Attached> {
    // If the limit was lowered after the messages were sent, the saved queue holds more than its limit. The new queue needs room for all messages.
    let qbytes = info.qbytes.max(info.bytes).max(info.messages);
    let wanted = Wanted {
        retry_delay: info.retry_delay.map(RetryDelay::from),
        close_with_last_producer: info.close_with_last_producer,
        qbytes: Some(u32::try_from(qbytes).unwrap_or(u32::MAX)),
        mode: Some(info.mode),
        exclusive: true,
    };
    wanted
        .create(namespace, label)
        .map(|(attached, _)| attached)
}

const ELSEWHERE: &str = "nothing was sent; load the snapshot under another name";

impl Explain for RestoreError {
    fn explain(&self) -> String {
        let hint = match self {
            RestoreError::Open(OpenError::AlreadyExists) => {
                "choose another name, remove the queue first with `umsg rm`, or add the messages with --into-existing"
            }
            RestoreError::Open(error) => return error.explain(),
            RestoreError::TooLong { .. } => return with_hint(self, ELSEWHERE),
            RestoreError::NoRoom { .. } => ELSEWHERE,
            RestoreError::Send(error) => return error.explain(),
            _ => return self.to_string(),
        };
        with_command(self, hint)
    }

    fn code(&self) -> Code {
        match self {
            RestoreError::NoRoom { .. } => Code::NotInTime,
            RestoreError::Send(error) => error.code(),
            _ => Code::Failed,
        }
    }
}
