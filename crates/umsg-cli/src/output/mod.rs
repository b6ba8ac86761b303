//! Output: text for people, or JSON for programs with `--json`.

pub mod direct;
pub mod json;
pub mod message;
pub mod new_file;
pub mod owner;
pub mod page;
pub mod table;
pub mod text;
pub mod time;

use std::io::{self, BufWriter, StdoutLock};

use crate::streams;

/// Returns standard output with a buffer. The caller must flush it at the end: a failure of the last write would be lost in the drop.
pub fn standard() -> io::Result<BufWriter<StdoutLock<'static>>> {
    streams::check_output()?;
    Ok(BufWriter::new(io::stdout().lock()))
}

/// The option --json of commands that print data.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct Format {
    /// Print JSON, for programs: see "JSON" in umsg(1)
    #[arg(long)]
    pub json: bool,
}

impl Format {
    /// Fails if `--json` is given and standard output is closed. Commands call this function before they change a queue. Commands that also print
    /// text call [`streams::check_output`] themselves.
    pub fn check(self) -> io::Result<()> {
        match self.json {
            true => streams::check_output(),
            false => Ok(()),
        }
    }
}
