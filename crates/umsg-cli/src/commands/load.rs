//! `umsg load`.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use umsg::posix::{OpenError, OpenOptions, RestoreError, Snapshot, SnapshotError};

use super::dump::Summary;
use crate::address::name;
use crate::cli::Cli;
use crate::failure::{Code, Explain, Failure, Result, with_command, with_hint};
use crate::names::Name;
use crate::opened::{Opened, Purpose};
use crate::output::{self, Format, json};
use crate::{place, progress, streams};

/// Create a queue from a file that `umsg dump` wrote
///
/// The queue gets the saved attributes, regardless of the umask, and the messages in their order, with their priorities, senders and times. The
/// queue appears when it is complete. The command refuses a file that was cut short or altered.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  umsg load orders.umsg                  under its saved name
  umsg load orders.umsg /copy            under another name
  umsg load orders.umsg /orders --into-existing
  zcat orders.gz | umsg load -")]
pub struct Load {
    /// The file; `-` is standard input
    file: PathBuf,
    /// The queue's name [default: the name of the saved queue]
    #[arg(value_parser = name())]
    name: Option<Name>,
    /// Send the messages to an existing queue, behind its messages of the same priority: all, or none if they do not fit
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
        let snapshot = self.read()?;
        let name = self.name_for(&snapshot)?;
        name.check()?;
        let outcome = match self.into_existing {
            true => snapshot.send_all(&Opened::open(&namespace, &name, Purpose::Send)?.queue),
            false => snapshot
                .restore(
                    &name,
                    OpenOptions::new()
                        .write(true)
                        .counted(false)
                        .namespace(&namespace),
                )
                .map(drop),
        };
        outcome.map_err(|error| Failure::of(&name, error))?;
        if self.format.json {
            let mut out = output::standard()?;
            json::print(&mut out, &Summary::new(&name, &snapshot.info()))?;
            out.flush()?;
        }
        Ok(())
    }

    fn read(&self) -> Result<Snapshot> {
        let read = if self.file == Path::new("-") {
            streams::check_input().map_err(|error| self.failure(Code::Failed, error))?;
            Snapshot::read(&mut io::stdin().lock())
        } else {
            let file = File::open(&self.file).map_err(SnapshotError::Read);
            file.and_then(|file| {
                let bar = progress::of_file("reading", &file);
                Snapshot::read(&mut bar.wrap_read(file))
            })
        };
        read.map_err(|error| Failure::of(self.subject(), error))
    }

    fn name_for(&self, snapshot: &Snapshot) -> Result<Name> {
        if let Some(name) = &self.name {
            return Ok(name.clone());
        }
        let saved = snapshot.info().name.map(Name::from);
        saved.ok_or_else(|| {
            let why = "the snapshot holds no queue name; give a name after the file";
            self.failure(Code::Usage, why)
        })
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
