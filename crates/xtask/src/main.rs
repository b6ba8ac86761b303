//! `cargo xtask`: the demo, the tests, and all other tasks that take more than one command.

mod aarch64;
mod bench;
mod built;
mod c;
mod defects;
mod demo;
mod dist;
mod examples;
mod failure;
mod fuzz;
mod guide;
mod hostile;
mod instructions;
mod interrupt;
mod layers;
mod miri;
mod musl;
mod package;
mod programs;
#[cfg(test)]
mod promises;
mod python;
mod release;
mod shell;
mod soak;
mod steps;
mod suite;
mod test;
mod toolchain;
mod tsan;
mod workspace;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::failure::Result;
use crate::workspace::Workspace;

/// Tasks of the umsg workspace
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Build, and run programs that know nothing of umsg: first on the kernel's queues, then on umsg's
    Demo {
        /// Take the programs of `target/release` if they are there, and measure in one round: less certain figures, in a third of the time
        #[arg(long)]
        quick: bool,
        /// Show the bridge instead: two machines, a cluster of three servers of NATS, and deaths
        #[arg(long, conflicts_with = "quick")]
        bridge: bool,
    },
    /// Run the tests of all crates and a short comparison with the kernel, in a few minutes
    Test {
        /// Also run the models, the soak, Miri and the whole comparison, in a release build: half an hour
        #[arg(long)]
        full: bool,
    },
    /// Compare umsg with the kernel by random operations
    Compare {
        /// The number of operations
        #[arg(long, value_name = "N", default_value_t = test::OPERATIONS)]
        ops: u64,
        /// Let processes fork, run other programs, pass descriptors on and end, instead of only making calls
        #[arg(long)]
        lives: bool,
        /// Repeat the histories of this seed, which each run prints
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Disturb senders and receivers at random (kill, stop, fork, exec, flood with signals), and account for every message
    Soak {
        /// The time in minutes, for each face
        #[arg(long, value_name = "N", default_value_t = 1.0)]
        minutes: f64,
        /// Only this face [default: all, at the same time]
        #[arg(long)]
        face: Option<soak::Face>,
        /// The seed of an earlier run, to repeat its choices; the timing always differs
        #[arg(long, value_name = "N")]
        seed: Option<u64>,
        /// Print the figures as JSON, a line for each soak, and nothing else on standard output
        #[arg(long)]
        json: bool,
    },
    /// Plant defects into a copy of the library, one at a time, and see that the soak, or a test, notices each
    Defects {
        /// Plant only the defects whose names contain one of these words
        words: Vec<String>,
        /// The time in minutes that a soak may look for one defect
        #[arg(long, value_name = "N", default_value_t = 1.0)]
        minutes: f64,
    },
    /// Overwrite queues while processes use them, and see that none of them crashes or hangs
    Hostile {
        /// The time in seconds
        #[arg(long, value_name = "N", default_value_t = hostile::SECONDS)]
        seconds: u64,
        /// With AddressSanitizer, which needs Rust's nightly toolchain
        #[arg(long)]
        asan: bool,
    },
    /// Feed the fuzz targets, with Rust's nightly toolchain
    Fuzz {
        /// The targets, if not all: attach, namespace, snapshot, posix, sysv, ring
        targets: Vec<String>,
        /// The time in seconds for each
        #[arg(long, value_name = "N", default_value_t = fuzz::SECONDS)]
        seconds: u64,
    },
    /// Run the library's tests in Miri, with Rust's nightly toolchain: it reports undefined behaviour, such as data races
    Miri {
        /// Run only tests whose names contain this text
        filter: Option<String>,
        /// The number of schedules of the tests with threads
        #[arg(long, value_name = "N", default_value_t = miri::SEEDS)]
        seeds: u32,
    },
    /// Run the C programs of the drop-in's tests with musl: the drop-in for musl, musl's dynamic linker
    Musl,
    /// Run the library's tests with threads under ThreadSanitizer, with Rust's nightly toolchain
    Tsan {
        /// The time in minutes for which threads pass messages on, after one round of all tests
        #[arg(long, value_name = "N", default_value_t = 0.0)]
        minutes: f64,
    },
    /// Run tests on an emulated aarch64 machine, by QEMU with a kernel of Debian
    Aarch64 {
        #[command(flatten)]
        options: aarch64::Options,
    },
    /// Measure umsg and the kernel
    Bench {
        /// Suites of umsg-bench
        #[arg(default_values_t = ["mqueue", "stream", "pingpong"].map(String::from))]
        suites: Vec<String>,
        /// Shorter rounds, less certain figures
        #[arg(long)]
        quick: bool,
    },
    /// Measure everything and write docs/benchmarks.json, .html and .md; takes a quarter of an hour of a quiet machine
    BenchPublish {
        /// Measure nothing: write the page and the document again from docs/benchmarks.json
        #[arg(long)]
        again: bool,
    },
    /// Compare the ratios of a few rows with those of docs/benchmarks.json; fails if one is more than 15 % lower in each of three runs
    BenchCheck {
        /// Make one run of the existing build, report the findings, and never fail because of them
        #[arg(long)]
        advise: bool,
    },
    /// Count the instructions of sends and receives with valgrind; fails if a count is more than 3 % above docs/instructions.json
    Instructions {
        #[command(flatten)]
        options: instructions::Options,
    },
    /// Check that no module imports a module of a higher floor; ARCHITECTURE.md declares the floors
    Layers {
        #[command(flatten)]
        options: layers::Options,
    },
    /// Check that each public function of the library has an example in its documentation
    Examples,
    /// Check the links of all documents, run the commands of the guide, and build the book if mdbook is installed
    Guide {
        #[command(flatten)]
        options: guide::Options,
    },
    /// Collect the files of an installation in target/dist: umsg, the drop-in, the C library, manual pages, completions
    Dist,
    /// Build the packages that users install: for Debian, an archive for any Linux, and the crates
    Package {
        #[command(flatten)]
        options: package::Options,
    },
    /// Build the Python package as a wheel, install it in an environment of its own, and test it there
    Python {
        #[command(flatten)]
        options: python::Options,
    },
    /// Check that a release can be made, and tag it
    Release {
        #[command(flatten)]
        options: release::Options,
    },
    /// Write the header of the C library again from its source
    CHeader {
        /// Only check whether the header is up to date
        #[arg(long)]
        check: bool,
    },
    /// Write the manual pages of the C library
    CMan {
        /// The directory, if not target/dist/share/man/man3
        directory: Option<PathBuf>,
    },
    /// Build the C library and install it with its header, pkg-config file and manual
    CInstall {
        /// The directory below which the files are installed
        prefix: PathBuf,
        /// Install the library of a debug build, with checks and without optimisation
        #[arg(long)]
        debug: bool,
        /// Build nothing: install the library that a build of the whole workspace has made
        #[arg(long)]
        built: bool,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli.task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("\ncargo xtask: {failure}");
            failure.exit_code()
        }
    }
}

fn run(task: &Task) -> Result<()> {
    let workspace = Workspace::find()?;
    match task {
        Task::Demo { bridge: true, .. } => demo::bridge(&workspace),
        Task::Demo { quick, .. } => demo::run(&workspace, *quick),
        Task::Test { full: false } => test::run(&workspace, test::Extent::Default),
        Task::Test { full: true } => test::run(&workspace, test::Extent::Full),
        Task::Compare { ops, seed, lives } => test::compare(&workspace, *ops, *seed, *lives),
        Task::Defects { words, minutes } => defects::run(&workspace, words, *minutes),
        Task::Hostile { seconds, asan } => hostile::run(&workspace, *seconds, *asan),
        Task::Fuzz { targets, seconds } => fuzz::run(&workspace, targets, *seconds),
        Task::Miri { filter, seeds } => miri::run(&workspace, filter.as_deref(), *seeds),
        Task::Musl => musl::run(&workspace),
        Task::Aarch64 { options } => aarch64::run(&workspace, options),
        Task::Tsan { minutes } => tsan::run(&workspace, *minutes),
        Task::Soak {
            minutes,
            face,
            seed,
            json,
        } => soak::run(&workspace, &soak::Wish::new(*minutes, *seed), *face, *json),
        Task::Bench { suites, quick } => bench::run(&workspace, suites, *quick),
        Task::BenchPublish { again } => bench::publish(&workspace, *again),
        Task::BenchCheck { advise: false } => bench::check(&workspace),
        Task::BenchCheck { advise: true } => {
            bench::advise(&workspace);
            Ok(())
        }
        Task::Instructions { options } => instructions::run(&workspace, *options),
        Task::Layers { options } => layers::run(&workspace, *options),
        Task::Examples => examples::run(&workspace),
        Task::Guide { options } => guide::run(&workspace, options),
        Task::Dist => dist::run(&workspace),
        Task::Package { options } => package::run(&workspace, options),
        Task::Python { options } => python::run(&workspace, options),
        Task::Release { options } => release::run(&workspace, *options),
        Task::CHeader { check } => c::header(&workspace, *check),
        Task::CMan { directory } => c::manual(&workspace, directory.as_deref()),
        Task::CInstall {
            prefix,
            debug,
            built: false,
        } => c::install(&workspace, prefix, !debug),
        Task::CInstall { prefix, debug, .. } => c::install_built(&workspace, prefix, !debug),
    }
}
