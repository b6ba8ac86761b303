//! `umsg rm`.

use std::io::Write;

use clap::Args;
use serde::Serialize;
use umsg::{Namespace, posix, ring, sysv};

use crate::address::{Address, Label, RING, Subject, subject};
use crate::attached::Attached;
use crate::cli::Cli;
use crate::elsewhere;
use crate::failure::{Code, Failure, Result};
use crate::names::Name;
use crate::opened::is_ring;
use crate::output::{self, Format, json};
use crate::place;

/// Remove queues, and rings whose owners have ended
///
/// The name or key of a queue is free at once. The messages are deleted when the queue ends.
///
/// Programs that have a POSIX queue open can continue to use it without its name. The POSIX queue ends when the last of these programs closes it. A
/// System V queue ends at once for all processes: calls that wait in it fail with EIDRM. Queues of both kinds can be removed even if their files are
/// corrupted. If a stopped process holds the lock of a System V queue, the command waits a tenth of a second and then removes the queue without the
/// lock.
///
/// A ring ends with its owner, the process that receives from the ring. The ring of a killed owner stays until a process creates a ring of the same
/// name, or removes the name. The command refuses to remove a ring whose owner lives. With --force, the command removes only the name of that ring:
/// the owner and its senders continue to use the ring, but no other process finds it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  umsg rm /orders /log key:0x1234 id:32769
  umsg rm ring:/jobs                    a ring whose owner is dead
  umsg ls --null | xargs -0 -r umsg rm  all queues, and all rings of dead owners")]
pub struct Rm {
    /// The queues: names, or for System V key:0x1234 or id:32769; rings as ring:/jobs
    #[arg(required = true, value_name = "QUEUE", value_parser = subject())]
    queues: Vec<Subject>,
    /// Remove the names of rings even if their owners live
    #[arg(long, short)]
    force: bool,
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
                Subject::Queue(Address::Posix(name)) => remove(&namespace, name),
                Subject::Queue(Address::SystemV(label)) => remove_labelled(&namespace, *label),
                Subject::Ring(name) => self.remove_ring(&namespace, name),
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

    fn remove_ring(&self, namespace: &Namespace, name: &Name) -> Result {
        name.check()?;
        let removed = match self.force {
            true => ring::unlink_anyway_in(namespace, name),
            false => ring::unlink_in(namespace, name),
        };
        removed.map_err(|error| Failure::of(format_args!("{RING}{name}"), error))
    }
}

fn remove(namespace: &Namespace, name: &Name) -> Result {
    name.check()?;
    posix::unlink_in(namespace, name).map_err(|error| match error {
        posix::UnlinkError::NotFound if is_ring(namespace, name) => name.is_a_ring(),
        posix::UnlinkError::NotFound => elsewhere::no_name(namespace, name),
        error => Failure::of(name, error),
    })
}

fn remove_labelled(namespace: &Namespace, label: Label) -> Result {
    let id = match label {
        Label::Key(key, _) => id_of(namespace, label, key)?,
        Label::Id(id) => Some(id),
    };
    let removed = match id {
        Some(id) => sysv::remove(namespace, id),
        // The listing has no queue of this key. If the key can't be opened either, the error gives the reason.
        None => Attached::open(namespace, label)?.queue.remove(),
    };
    removed.map_err(|error| match error {
        sysv::ControlError::Open(error @ sysv::OpenError::NoSuchId) => {
            elsewhere::no_label(namespace, label, &error)
        }
        error => Failure::of(label, error),
    })
}

/// Returns the identifier of the queue with a key, even if the queue can't be opened.
fn id_of(namespace: &Namespace, label: Label, key: i32) -> Result<Option<i32>> {
    let queues = sysv::list(namespace);
    let queues = queues.map_err(|error| Failure::of(label, error))?;
    let found = queues.iter().find(|entry| entry.key == key);
    Ok(found.filter(|_| key != sysv::PRIVATE).map(|entry| entry.id))
}
