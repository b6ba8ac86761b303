//! `cargo xtask python`: the Python package, built as a source distribution and from that as a wheel, installed in an environment of its own and
//! tested from there.
//!
//! ```text
//! target/python/files/umsg-V.tar.gz     the source distribution
//!               files/umsg-V-*.whl      the wheel, with the command and the drop-in
//!               source/                 the files of the source distribution, from which the wheel is built
//!               build/                  the build
//!               venv-V/                 the environment
//! ```

mod environment;
mod free_threaded;
mod import_time;
mod memory;
mod others;
mod outside;
mod sdist;
mod wheel;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use self::environment::Environment;
use self::others::{SYSTEMS, System};
use self::outside::Files;
use self::wheel::Added;
use crate::failure::{Context as _, Failure, Result};
use crate::interrupt;
use crate::package::{Build, VERSION};
use crate::steps::Steps;
use crate::workspace::Workspace;

/// The arguments of the program that compares the stubs with the module. The layouts that classes share are not part of the interface.
const STUBS: [&str; 6] = [
    "umsg",
    "--ignore-missing-stub",
    "--ignore-disjoint-bases",
    "--ignore-unused-allowlist",
    "--allowlist",
    "tests/stubtest.txt",
];

/// The directories for pyright; the benchmarks import packages that only --bench installs.
const PLACES: [&str; 3] = ["src", "tests", "examples"];

#[derive(clap::Args)]
pub struct Options {
    /// The interpreter, Python 3.9 or later
    #[arg(long, value_name = "PATH", default_value = "/usr/bin/python3")]
    python: PathBuf,
    /// Build with less optimisation, in a fifth of the time, and take the command from target/release
    #[arg(long)]
    quick: bool,
    /// Leave the command and the drop-in out of the wheel
    #[arg(long)]
    bare: bool,
    /// Also install the source distribution, run tests under valgrind, see that free-threaded Python is refused, and measure the import: minutes
    #[arg(long)]
    full: bool,
    /// Build the wheels for other systems instead of this machine, for glibc 2.17 or later and for musl, and run the tests there
    #[arg(
        long,
        value_name = "SYSTEM",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "all",
        value_parser = ["all", "glibc", "musl", "aarch64"],
        conflicts_with_all = ["quick", "bare", "full", "bench"]
    )]
    wheels: Option<String>,
    /// Also compare the times of a send and a receive with those of other packages
    #[arg(long)]
    bench: bool,
}

/// The directories of the package.
struct Package<'a> {
    workspace: &'a Workspace,
    /// The directory `python` of the checkout.
    source: PathBuf,
    /// The directory of everything that this task makes.
    directory: PathBuf,
}

pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    interrupt::install();
    let package = Package {
        workspace,
        source: workspace.root.join("python"),
        directory: workspace.target.join("python"),
    };
    let mut steps = Steps::new(workspace.root.clone());
    let environment = Environment::make(&package, &options.python, &mut steps)?;
    let files = package.directory.join("files");
    empty(&files)?;
    let source = sdist::make(&package, &environment, &files, &mut steps)?;
    if let Some(which) = &options.wheels {
        make_wheels(&package, &environment, (&source, &files), which, &mut steps)?;
        print_sizes(&files)?;
        return steps.finish();
    }
    let profile = if options.quick { "quick" } else { "release" };
    let mut wheel = wheel::build(&package, &environment, &source, profile, &mut steps)?;
    let originals = environment.fetch_originals(&mut steps)?;
    let mut tests = environment.module("pytest", &["tests"]);
    tests.env("UMSG_TEST_ORIGINALS", originals);
    if !options.bare {
        let (build, mut command) = programs(workspace, options.quick)?;
        steps.need("command and drop-in", &mut command)?;
        println!("\n==> wheel: command and drop-in");
        let added = Added::of(&build);
        wheel = wheel::complete(&package, &environment, &wheel, &added, "", &files)?;
        tests.env("UMSG_TEST_COMMAND", environment.program("umsg"));
        print_sizes(&files)?;
    }
    environment.install_wheel(&wheel, &mut steps)?;
    steps.run("tests and examples", &mut tests)?;
    if environment.has_types() {
        let check = ["--strict", "--python-version", "3.10", "-p", "umsg"];
        let mut check = environment.module("mypy", &check);
        steps.run("types of the package", &mut check)?;
        let check = ["--strict", "tests", "bench", "examples"];
        let mut check = environment.module("mypy", &check);
        steps.run("types of the tests", &mut check)?;
        let mut check = environment.module("mypy.stubtest", &STUBS);
        steps.run("stubs", &mut check)?;
        steps.run("types, by pyright", &mut environment.pyright(&PLACES)?)?;
        // Checks the types that a program sees when it imports the package.
        let check = ["--verifytypes", "umsg", "--ignoreexternal"];
        let mut check = environment.pyright(&check)?;
        check.current_dir(&package.directory);
        steps.run("completeness of the types", &mut check)?;
    }
    if options.full {
        sdist::install(&package, &options.python, &files, &mut steps)?;
        memory::check(&package, &environment, &mut steps)?;
        free_threaded::check(&package)?;
        import_time::check(&environment)?;
    }
    if options.bench {
        environment.pip(&mut steps, &["faster-fifo==1.5.2"])?;
        let mut bench = environment.command("python");
        steps.run("times", bench.arg("bench/roundtrip.py"))?;
        let mut bench = environment.command("python");
        steps.run("times of objects", bench.arg("bench/objects.py"))?;
    }
    steps.finish()
}

/// Builds the wheels for other systems, all or one, and tests each.
fn make_wheels(
    package: &Package,
    environment: &Environment,
    (source, files): (&Path, &Path),
    which: &str,
    steps: &mut Steps,
) -> Result<()> {
    let outside = Files::collect(package, environment, steps)?;
    let make = |system: &System, steps: &mut Steps| {
        system.make(package, environment, source, files, steps)
    };
    let is_wanted = |name: &str| which == "all" || which == name;
    let [glibc, musl, aarch64] = &SYSTEMS;
    if is_wanted("glibc") {
        let wheel = make(glibc, steps)?;
        outside.test_old_debian(package, &wheel, steps)?;
    }
    if is_wanted("musl") {
        let wheel = make(musl, steps)?;
        outside.test_alpine(package, &wheel, steps)?;
    }
    if is_wanted("aarch64") {
        let wheel = make(aarch64, steps)?;
        outside.test_aarch64(package, &wheel)?;
    }
    Ok(())
}

/// Returns the build of the command and the drop-in, and the command that makes the build. The Debian packages use the same build, so it is made only
/// once.
fn programs(workspace: &Workspace, quick: bool) -> Result<(Build<'_>, Command)> {
    if quick {
        return Ok((Build::usual(workspace)?, workspace.build_release()));
    }
    let build = Build::of_this_machine(workspace)?;
    let command = build.of(&crate::package::OF_DEBIAN);
    Ok((build, command))
}

/// Makes a directory, and removes the files that it has.
fn empty(directory: &Path) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => fs::create_dir_all(directory),
    }
    .context(directory.display())
}

/// Returns the only file of a directory with this ending.
fn only(directory: &Path, ending: &str) -> Result<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).context(directory.display())? {
        let path = entry.context(directory.display())?.path();
        if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
    match (found.pop(), found.pop()) {
        (Some(path), None) => Ok(path),
        (one, _) => Err(Failure::new(format!(
            "{} has {} of *{ending}",
            directory.display(),
            if one.is_some() {
                "more than one"
            } else {
                "none"
            },
        ))),
    }
}

fn print_sizes(directory: &Path) -> Result<()> {
    println!("\n{}:", directory.display());
    for entry in fs::read_dir(directory).context(directory.display())? {
        let entry = entry.context(directory.display())?;
        let size = entry.metadata().context(entry.path().display())?.len();
        println!("{size:>10}  {}", entry.file_name().to_string_lossy());
    }
    Ok(())
}
