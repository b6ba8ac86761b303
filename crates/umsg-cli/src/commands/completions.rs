//! `umsg completions`.

use std::io::Write;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::cli::{Cli, Nowhere};
use crate::commands::bridge::options;
use crate::failure::Result;
use crate::output;

/// Print completions for a shell
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  source <(umsg completions bash)
  umsg completions zsh > ~/.zfunc/_umsg
  umsg completions fish > ~/.config/fish/completions/umsg.fish")]
pub struct Completions {
    /// The shell
    shell: Shell,
    #[command(flatten)]
    _nowhere: Nowhere,
}

impl Completions {
    pub fn perform(&self) -> Result {
        // The generator panics if its writer fails, so it writes to memory, which can't fail.
        let mut script = Vec::new();
        let mut command = Cli::command().mut_subcommand("bridge", options::complete);
        clap_complete::generate(self.shell, &mut command, "umsg", &mut script);
        let mut out = output::standard()?;
        out.write_all(&script)?;
        Ok(out.flush()?)
    }
}
