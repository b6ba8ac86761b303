//! `umsg-bench`: umsg and the kernel's own message queues, side by side.
//!
//! Every figure is taken in one run on one machine, and is a median over rounds. Rounds of umsg and of the kernel alternate, so that other load on
//! the machine affects both sides alike. If a side spins, its CPU time is printed next to the result.
//!
//! The measurement runs in a child process (see [`supervisor`]), so that nothing is left in `/dev/shm` even if that child is killed or
//! crashes.
//!
//! ```text
//!  suites ──▶ rows ──▶ tables on standard output
//!               │
//!               ▼
//!           document ──▶ JSON ──▶ page (HTML with plots), Markdown
//! ```

mod backends;
mod child;
mod cli;
mod clock;
mod columns;
mod company;
mod crew;
mod directory;
mod document;
mod duo;
mod failure;
mod found;
mod harness;
mod machine;
mod markdown;
mod only;
mod page;
mod peers;
mod plot;
mod progress;
mod published;
mod row;
mod shared;
mod stats;
mod suite;
mod suites;
mod supervisor;
mod table;
mod trial;

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use clap::Parser as _;

use crate::backends::typed;
use crate::cli::{Cli, Pages, Task};
use crate::company::Company;
use crate::document::Document;
use crate::failure::Failure;
use crate::harness::Plan;
use crate::peers::scratch::Scratch;
use crate::suite::Suite;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match &cli.task {
        Some(Task::Report { figures, pages }) => Document::read(figures)
            .and_then(|document| write_pages(&document, pages))
            .map(|()| ExitCode::SUCCESS),
        Some(Task::Bridge { messages, rounds }) => bridge(*messages, *rounds),
        Some(Task::Trial(trial)) => trial.answer().map(|()| ExitCode::SUCCESS),
        None => typed::prepare().and_then(|()| {
            supervisor::run(cli.deadline(), |scratch| measure(&cli, scratch.clone()))
        }),
    };
    match done {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("umsg-bench: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the example that measures the bridge. The example is a separate program, so that this program does not depend on a NATS client.
fn bridge(messages: u64, rounds: u32) -> Result<ExitCode, Failure> {
    let run = |arguments: &[&str]| {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        cargo
            .args(arguments)
            .args(["--release", "-p", "umsg-bridge"]);
        cargo
    };
    let mut build = run(&["build", "--bins"]);
    let mut speed = run(&["run", "--example", "speed"]);
    speed.args(["--", &messages.to_string(), &rounds.to_string()]);
    for command in [&mut build, &mut speed] {
        let status = command.status();
        let status = status.map_err(|error| Failure::new(format!("cargo: {error}")))?;
        if !status.success() {
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs the requested suites, prints their results, and writes the requested files.
fn measure(cli: &Cli, scratch: Scratch) -> Result<(), Failure> {
    let plan = Plan::new(cli, scratch)?;
    let mut document = Document::new(&plan);
    let suites = cli.suites();
    let mut failed = Vec::new();
    for (number, &suite) in suites.iter().enumerate() {
        plan.progress.begin(number);
        if let Err(failure) = measure_one(suite, &plan, &mut document) {
            // The other suites are measured nevertheless.
            eprintln!("umsg-bench: {}: {failure}", suite.name());
            failed.push(suite.name());
        }
    }
    if failed.is_empty() {
        plan.only.check()?;
    }
    if suites.len() > 1 {
        for left_out in &document.left_out {
            eprintln!("--quick left out: {left_out}");
        }
    }
    if let Some(file) = &cli.json {
        let text = document.text()?;
        match plan.tables {
            true => write(file, &text)?,
            false => print!("{text}"),
        }
    }
    write_pages(&document, &cli.pages)?;
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(format!("failed: {}", failed.join(", ")))),
    }
}

fn measure_one(suite: Suite, plan: &Plan, document: &mut Document) -> Result<(), Failure> {
    let company = Company::watch();
    let found = suites::run(suite, plan);
    let load = company.load();
    let found = found.map(|mut found| {
        found.settle(&load);
        if plan.tables {
            table::print(&plan.heading(suite), &found.rows);
        }
        found
    });
    let failure = found.as_ref().err().cloned();
    document.add(suite, load, found);
    failure.map_or(Ok(()), Err)
}

fn write_pages(document: &Document, pages: &Pages) -> Result<(), Failure> {
    if let Some(file) = &pages.html {
        write(file, &page::html(document))?;
    }
    if let Some(file) = &pages.markdown {
        let attempts = match &pages.attempts {
            Some(file) => fs::read_to_string(file)
                .map_err(|error| Failure::new(format!("{}: {error}", file.display())))?,
            None => String::new(),
        };
        write(file, &markdown::text(document, &attempts))?;
    }
    Ok(())
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    fs::write(file, text)
        .map_err(|error| Failure::new(format!("cannot write {}: {error}", file.display())))
}
