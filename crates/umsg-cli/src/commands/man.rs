//! `umsg man`.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory};

use crate::cli::Cli;
use crate::failure::{Code, Failure, Result};
use crate::output;

/// Write the manual pages
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  umsg man | man -l -                    the page of umsg itself
  umsg man /usr/local/share/man/man1     that and one for each command")]
pub struct Man {
    /// Write a page for each command into this directory; otherwise the page of umsg itself goes to standard output
    directory: Option<PathBuf>,
}

impl Man {
    pub fn perform(&self) -> Result {
        match &self.directory {
            Some(directory) => write_all(directory),
            None => print(),
        }
    }
}

fn write_all(directory: &Path) -> Result {
    std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), directory))
        .map_err(|error| {
            Failure::new(
                Code::Failed,
                format_args!("{}: {error}; choose another directory", directory.display()),
            )
        })
}

fn print() -> Result {
    let mut out = output::standard()?;
    clap_mangen::Man::new(Cli::command()).render(&mut out)?;
    Ok(out.flush()?)
}
