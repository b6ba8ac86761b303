//! `umsg rm`.

use std::io::Write;

use clap::Args;
use serde::Serialize;
use umsg::Namespace;

use crate::cli::Cli;
use crate::failure::{Code, Failure, Result};
use crate::names::{Name, name};
use crate::output::{self, Format, json};
use crate::place;

/// Remove queues
///
/// The messages in them are lost. A name is free at once. A queue that programs still have open lives on, without a name, until the last of them
/// closes it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  umsg rm /orders /log
  umsg ls --null | xargs -0 -r umsg rm  all queues of the namespace")]
pub struct Rm {
    /// The queues' names
    #[arg(required = true, value_name = "NAME", value_parser = name())]
    names: Vec<Name>,
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
        for name in &self.names {
            match remove(&namespace, name) {
                Ok(()) => removed.push(name.lossy()),
                Err(failure) => {
                    failure.report();
                }
            }
        }
        let complete = removed.len() == self.names.len();
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
    umsg::posix::unlink_in(namespace, name).map_err(|error| Failure::of(name, error))
}
