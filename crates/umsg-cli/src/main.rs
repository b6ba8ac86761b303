//! The `umsg` command: message queues from the shell, and existing programs on them.
//!
//! | what | where |
//! |---|---|
//! | the command line: the one definition behind `--help`, manual pages and completions | [`cli`], and a file a command in [`commands`] |
//! | how it is written on a command line: sizes, modes, seconds, names | [`values`], [`address`], [`names`] |
//! | what is printed, for people and for programs | [`output`] |
//! | closed standard streams and signals, which the runtime changes | [`streams`], [`inherited`] |
//! | which processes have a queue open | [`users`] |
//! | the queue that a command works with | [`opened`], of System V [`attached`] |
//! | sending and receiving, whatever the kind of queue | [`outlet`], [`inlet`] |
//! | errors, hints and exit codes | [`failure`]; of a queue whose lock a stopped process has, [`held_up`] |
//! | can a program be intercepted, and how | [`program`], [`preload`] |
#![deny(unsafe_code)]

mod address;
mod attached;
mod cli;
mod commands;
mod failure;
mod held_up;
#[allow(
    unsafe_code,
    reason = "what is done about a signal is asked and set by calls of libc"
)]
mod inherited;
mod inlet;
mod names;
mod opened;
mod outlet;
mod output;
mod place;
mod preload;
mod program;
mod progress;
#[allow(
    unsafe_code,
    reason = "a function that runs before main is named in a section of the file"
)]
mod streams;
mod users;
mod values;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => error.exit(),
        Err(help) => return tell(&help),
    };
    inherited::take_large_files_for_errors();
    // Without it, a queue whose file is cut short ends the command by SIGBUS.
    let _ = umsg::signals::catch_truncation();
    match commands::perform(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => place::advise(&cli, failure).report(),
    }
}

/// Prints help, or the version, which is no success unless it could be.
fn tell(help: &clap::Error) -> ExitCode {
    use std::io::Write;
    let told = streams::check_output()
        .and_then(|()| help.print())
        .and_then(|()| std::io::stdout().flush());
    match told {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::Failure::from(error).report(),
    }
}
