//! `umsg-bench`: umsg and the kernel's own message queues, side by side.
//!
//! Every figure is taken in one run on one machine: rounds of umsg and of the kernel alternate, so
//! that whatever else the machine does meets both alike, and each figure is a median over the
//! rounds. Where anything spins, the CPU time that it took is printed beside the result.
//!
//! The measuring happens in a child of its own (see [`supervisor`]), so that nothing is left in
//! `/dev/shm` even if that child is killed or crashes.

mod backends;
mod child;
mod cli;
mod clock;
mod company;
mod crew;
mod duo;
mod failure;
mod harness;
mod machine;
mod report;
mod shared;
mod stats;
mod suites;
mod supervisor;
mod table;

use std::process::ExitCode;

use clap::Parser as _;

use crate::backends::typed;
use crate::cli::Cli;
use crate::company::Company;
use crate::failure::Failure;
use crate::harness::Plan;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = typed::prepare().and_then(|()| supervisor::run(cli.deadline(), || measure(&cli)));
    match done {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("umsg-bench: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the suites that were asked for and prints what they found.
fn measure(cli: &Cli) -> Result<(), Failure> {
    let plan = Plan::new(cli)?;
    let mut rows = Vec::new();
    for suite in cli.suite.expand() {
        let company = Company::watch();
        let mut found = suites::run(suite, &plan)?;
        if let Some(first) = found.first_mut() {
            first.notes.extend(company.describe());
        }
        if !cli.json {
            table::print(&plan.heading(suite), &found);
        }
        rows.extend(found);
    }
    if cli.json {
        report::print_json(&rows)?;
    }
    Ok(())
}
