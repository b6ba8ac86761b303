//! `umsg man`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Command, CommandFactory};

use crate::cli::{Cli, Nowhere};
use crate::failure::{Code, Failure, Result};
use crate::output::{self, page};

/// Write the manual pages
///
/// A manual page has the text of a command's `--help`: umsg-send(1) has the text of `umsg send --help`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  umsg man | man -l -                    the page of umsg itself
  umsg man /usr/local/share/man/man1     the page of umsg and one per command")]
pub struct Man {
    /// Write a page for each command into this directory, which is created if it is missing [default: write the page of umsg itself to standard
    /// output]
    directory: Option<PathBuf>,
    #[command(flatten)]
    _nowhere: Nowhere,
}

impl Man {
    pub fn perform(&self) -> Result {
        let mut command = Cli::command().disable_help_subcommand(true);
        command.build();
        match &self.directory {
            Some(directory) => write_all(&command, directory),
            None => print(&command),
        }
    }
}

fn write_all(command: &Command, directory: &Path) -> Result {
    let write = |command: &Command| {
        let mut file = BufWriter::new(File::create(directory.join(page::file_name(command)))?);
        page::write(command, &mut file)?;
        file.flush()
    };
    std::fs::create_dir_all(directory)
        .and_then(|()| command.get_subcommands().try_for_each(write))
        .and_then(|()| write(command))
        .map_err(|error: io::Error| {
            Failure::new(
                Code::Failed,
                format_args!("{}: {error}; choose another directory", directory.display()),
            )
        })
}

fn print(command: &Command) -> Result {
    let mut out = output::standard()?;
    page::write(command, &mut out)?;
    Ok(out.flush()?)
}
