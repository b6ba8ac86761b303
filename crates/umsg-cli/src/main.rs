//! The `umsg` command: sends and receives messages from the shell, manages queues, and runs existing programs on umsg's queues.
//!
//! | what | where |
//! |---|---|
//! | the command line: the one definition behind `--help`, manual pages and completions | [`cli`], and one file for each command in [`commands`] |
//! | forms of sizes, modes, times and names on the command line | [`values`], [`address`], [`names`] |
//! | output for people and for programs | [`output`] |
//! | closed standard streams and ignored signals, which Rust's runtime changes | [`streams`], [`inherited`] |
//! | which processes have a queue open | [`users`] |
//! | a queue that is in another place | [`elsewhere`] |
//! | root in the namespace of another user | [`owner`] |
//! | the queue with which a command works | [`opened`]; System V: [`attached`] |
//! | signals that end the work gracefully | [`ending`] |
//! | waits that have become pointless | [`lookout`] |
//! | sending and receiving for both kinds of queues | [`outlet`], [`inlet`] |
//! | errors, hints and exit codes | [`failure`]; for a stopped owner of a lock, [`held_up`] |
//! | whether a program can be intercepted, and how | [`program`], [`preload`]; static programs and raw system calls, [`supervisor`] |
//! | the memory of another process | [`remote`] |
#![deny(unsafe_code)]

mod address;
mod attached;
mod cli;
mod commands;
#[allow(
    unsafe_code,
    reason = "the kernel is asked for its own queues by system calls"
)]
mod elsewhere;
#[allow(unsafe_code, reason = "signals are blocked and read by calls of libc")]
mod ending;
mod failure;
mod held_up;
#[allow(
    unsafe_code,
    reason = "calls of libc query and set the handling of signals"
)]
mod inherited;
mod inlet;
#[allow(
    unsafe_code,
    reason = "a thread is interrupted by a signal, whose handler is set by a call of libc"
)]
mod lookout;
mod names;
mod opened;
mod outlet;
mod output;
mod owner;
mod place;
mod preload;
mod program;
mod progress;
#[allow(
    unsafe_code,
    reason = "calls of libc read and write the memory of another process"
)]
mod remote;
mod rights;
#[allow(
    unsafe_code,
    reason = "a section of the file (.init_array) names a function that runs before main"
)]
mod streams;
mod supervisor;
mod users;
mod values;
mod waiting;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => cli::advised(error).exit(),
        Err(help) => return tell(&help),
    };
    inherited::ignore_sigxfsz();
    // Without this handler, a truncated queue file ends the command by SIGBUS.
    let _ = umsg::signals::catch_truncation();
    let outcome = owner::act_as(&cli).and_then(|()| commands::perform(&cli));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => place::advise(&cli, failure).report(),
    }
}

/// Prints the help or the version. Fails if standard output can't be written to.
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
