//! The `umsg` command: message queues from the shell, and existing programs on them.
//!
//! | what | where |
//! |---|---|
//! | what is asked for: the one definition behind `--help`, manual pages and completions | [`cli`], and a file a command in [`commands`] |
//! | how it is written on a command line: sizes, modes, seconds, names | [`values`], [`names`] |
//! | what is printed, for people and for programs | [`output`] |
//! | errors, hints and exit codes | [`failure`] |
//! | can a program be intercepted, and how | [`program`], [`preload`] |
#![forbid(unsafe_code)]

mod cli;
mod commands;
mod failure;
mod names;
mod output;
mod place;
mod preload;
mod program;
mod values;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    match commands::perform(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
