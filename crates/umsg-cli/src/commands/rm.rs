//! `umsg rm`.

use std::io::Write;

use clap::Args;
use serde::Serialize;
use umsg::{Namespace, posix, sysv};

use crate::address::{Address, Label, address};
use crate::attached::Attached;
use crate::cli::Cli;
use crate::failure::{Code, Failure, Result};
use crate::names::Name;
use crate::output::{self, Format, json};
use crate::place;

/// Remove queues
///
/// The messages in them are lost. A name or a key is free at once. A POSIX queue that programs still have open lives on, without a
/// name, until the last of them closes it; a System V queue is gone for everybody, and who waits in it is told so.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  umsg rm /orders /log key:0x1234 id:32769
  umsg ls --null | xargs -0 -r umsg rm  all queues of the namespace")]
pub struct Rm {
    /// The queues: names, or of System V key:0x1234 or id:32769
    #[arg(required = true, value_name = "QUEUE", value_parser = address())]
    queues: Vec<Address>,
    #[command(flatten)]
    format: Format,
}

#[derive(Serialize)]
struct Removed {
    removed: Vec<String>,
}

impl Rm {
    pub fn perform(&self, cli: &Cli) -> Result {
        self.format.check()?;
        let namespace = place::existing(cli)?;
        let mut removed = Vec::new();
        for queue in &self.queues {
            let outcome = match queue {
                Address::Posix(name) => remove(&namespace, name),
                Address::SystemV(label) => remove_labelled(&namespace, *label),
            };
            match outcome {
                Ok(()) => removed.push(queue.lossy()),
                Err(failure) => {
                    failure.report();
                }
            }
        }
        let complete = removed.len() == self.queues.len();
        if self.format.json {
            let mut out = output::standard()?;
            json::print(&mut out, &Removed { removed })?;
            out.flush()?;
        }
        match complete {
            true => Ok(()),
            false => Err(Failure::Reported(Code::Failed)),
        }
    }
}

fn remove(namespace: &Namespace, name: &Name) -> Result {
    name.check()?;
    posix::unlink_in(namespace, name).map_err(|error| Failure::of(name, error))
}

fn remove_labelled(namespace: &Namespace, label: Label) -> Result {
    let id = match label {
        Label::Key(key) => id_of(namespace, key)?,
        Label::Id(id) => Some(id),
    };
    let removed = match id {
        Some(id) => sysv::remove(namespace, id),
        // Says why.
        None => Attached::open(namespace, label)?.queue.remove(),
    };
    removed.map_err(|error| Failure::of(label, error))
}

/// The identifier of a key's queue, whether it can be opened or not.
fn id_of(namespace: &Namespace, key: i32) -> Result<Option<i32>> {
    let queues = sysv::list(namespace);
    let queues = queues.map_err(|error| Failure::of(Label::Key(key), error))?;
    let found = queues.iter().find(|entry| entry.key == key);
    Ok(found.filter(|_| key != sysv::PRIVATE).map(|entry| entry.id))
}
