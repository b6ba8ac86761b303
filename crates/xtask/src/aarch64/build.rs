//! Builds the programs that run on the machine.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use umsg_testkit::compile::{COMPILED, Compile};
use umsg_testkit::programs::{flags, of_c_library, of_drop_in, run_path};
use umsg_testkit::run::PART;

use super::programs::{CRATES, OF_C_LIBRARY, OF_DROP_IN, Program, Selection, UNIT, target_name};
use super::{COMPILER, TARGET, directory};
use crate::built;
use crate::c;
use crate::failure::{Context as _, Failure, Result};
use crate::interrupt;
use crate::steps::Steps;
use crate::suite::FEATURES;
use crate::workspace::Workspace;

/// The name of the build's profile in Cargo.toml.
const PROFILE: &str = "aarch64";
const DROP_IN: &str = "libumsg_preload.so";

/// The contents of the machine's file system, with their paths on the host.
pub struct Built {
    pub programs: Vec<Program>,
    pub files: Vec<PathBuf>,
    /// Files and directories that have another path on the machine than on the host, each with the path on the machine.
    pub others: Vec<(PathBuf, String)>,
    /// Directories that the programs expect.
    pub directories: Vec<PathBuf>,
    /// The variables of the programs' environment.
    pub variables: Vec<(&'static str, PathBuf)>,
}

impl Built {
    pub fn make(workspace: &Workspace, selection: &Selection, steps: &mut Steps) -> Result<Self> {
        let target = workspace.target.join(TARGET);
        let mut built = Self {
            programs: Vec::new(),
            files: Vec::new(),
            others: Vec::new(),
            directories: vec![workspace.target.join("tmp"), target.join("tmp")],
            variables: vec![
                (COMPILED, "yes".into()),
                (PART, "20".into()),
                // Reduces the tests with random input, as PART reduces the repeating tests.
                ("PROPTEST_CASES", "16".into()),
            ],
        };
        for mut command in commands(workspace, selection) {
            let what = match command.get_args().next() {
                Some(word) if word == "build" => "libraries, programs and integration tests",
                _ => "unit tests",
            };
            steps.need(&format!("build of {what}"), &mut command)?;
            built.add_tests(&mut command, selection)?;
        }
        let library = target.join(PROFILE).join(DROP_IN);
        built.files.push(library.clone());
        built.variables.push(("UMSG_PRELOAD_LIBRARY", library));
        built.add_programs_of_drop_in(&target, selection)?;
        built.add_c_library(workspace, &target, selection)?;
        Ok(built)
    }

    /// Adds the programs that cargo has built. This second run of cargo builds nothing, and only lists them.
    fn add_tests(&mut self, list: &mut Command, selection: &Selection) -> Result<()> {
        let mut programs = Vec::new();
        let mut files = BTreeSet::new();
        for message in built::messages(list)? {
            let Some(artefact) = Artefact::of(&message) else {
                continue;
            };
            if !artefact.is_test {
                files.insert(artefact.executable);
            } else if let Some(place) = selection.place(&artefact.name) {
                files.insert(artefact.executable.clone());
                let Artefact {
                    name,
                    directory,
                    executable,
                    ..
                } = artefact;
                let program = Program::new(name, directory, executable, selection);
                programs.push((place, program));
            }
        }
        programs.sort_by_key(|(place, _)| *place);
        self.programs
            .extend(programs.into_iter().map(|(_, program)| program));
        self.directories.extend(
            self.programs
                .iter()
                .map(|program| program.directory.clone()),
        );
        self.files.extend(files);
        Ok(())
    }

    fn add_programs_of_drop_in(&mut self, target: &Path, selection: &Selection) -> Result<()> {
        let workshop = workshop(target, "umsg-preload")?;
        let selected = selection.of_crate("umsg-preload");
        let mut all = Vec::new();
        for test in selected.into_iter().filter(|test| *test != UNIT) {
            let others = OF_DROP_IN.iter().find(|(name, _)| *name == test);
            let others = others.map_or(&[][..], |(_, programs)| *programs);
            if !others.iter().any(|(_, output, _)| *output == test) && test != "sandboxed" {
                all.push(of_drop_in::<&str>(compiler(), test, &workshop, test, &[]));
            }
            let others = others.iter();
            all.extend(others.map(|(name, output, flags)| {
                of_drop_in(compiler(), name, &workshop, output, flags)
            }));
        }
        self.compile(all)
    }

    /// Installs the C library below a prefix, and compiles the programs of its tests.
    fn add_c_library(
        &mut self,
        workspace: &Workspace,
        target: &Path,
        selection: &Selection,
    ) -> Result<()> {
        let prefix = directory(workspace).join("prefix");
        let layout = c::Layout {
            root: &prefix,
            libraries: "lib",
            prefix: "${pcfiledir}/../..",
            compiler: COMPILER.into(),
        };
        c::lay_out(
            workspace,
            &target.join(PROFILE).join("libumsg_c.a"),
            &layout,
        )?;
        let library = prefix.join("lib");
        for entry in fs::read_dir(&library).context(library.display())? {
            let file = entry.context(library.display())?.path();
            if file.to_string_lossy().contains(".so") {
                self.files.push(file);
            }
        }
        self.variables.push(("UMSG_C_PREFIX", prefix.clone()));
        if !selection.has("umsg-c/programs") {
            return Ok(());
        }
        let mut linking = flags(&prefix);
        linking.push(run_path(&prefix));
        let workshop = workshop(target, "umsg-c")?;
        let compile = |name: &str| {
            let output = format!("{name}-c11");
            of_c_library(
                compiler(),
                &format!("{name}.c"),
                &workshop,
                &output,
                &["-std=c11"],
                &linking,
            )
        };
        self.compile(OF_C_LIBRARY.into_iter().map(compile).collect())
    }

    /// Compiles C programs in several threads, and adds the compiled programs.
    fn compile(&mut self, mut programs: Vec<Compile>) -> Result<()> {
        interrupt::check()?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let part = programs.len().div_ceil(cores).max(1);
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            while !programs.is_empty() {
                let rest = programs.split_off(part.min(programs.len()));
                let part = std::mem::replace(&mut programs, rest).into_iter();
                let compile = || part.map(Compile::run).collect::<Vec<_>>();
                threads.push(scope.spawn(compile));
            }
            for thread in threads {
                let compiled = thread.join();
                let compiled =
                    compiled.map_err(|_| Failure::new("a C program does not compile"))?;
                self.files.extend(compiled);
            }
            Ok(())
        })
    }
}

fn compiler() -> Command {
    Command::new(COMPILER)
}

/// Makes the directory in which the tests of a crate look for their programs.
fn workshop(target: &Path, name: &str) -> Result<PathBuf> {
    let workshop = target.join("tmp").join(name);
    fs::create_dir_all(&workshop).context(workshop.display())?;
    Ok(workshop)
}

/// A program that cargo has built.
struct Artefact {
    name: String,
    directory: PathBuf,
    executable: PathBuf,
    is_test: bool,
}

impl Artefact {
    fn of(message: &Value) -> Option<Self> {
        let executable = message["executable"].as_str()?;
        let directory = Path::new(message["manifest_path"].as_str()?).parent()?;
        let of_crate = directory.file_name()?.to_str()?;
        let is_test = message["profile"]["test"] == true;
        let target = &message["target"];
        let name = match is_test {
            true => target_name(target)?,
            false => target["name"].as_str()?,
        };
        Some(Self {
            name: format!("{of_crate}/{name}"),
            directory: directory.to_owned(),
            executable: executable.into(),
            is_test,
        })
    }
}

/// Returns the commands that build the crates: their libraries, their programs and the selected integration tests; then the unit tests, if any are
/// selected.
///
/// The first command builds the drop-in and the C library together with the tests. So the engines get the same features for all of these, and are
/// built once.
fn commands(workspace: &Workspace, selection: &Selection) -> Vec<Command> {
    let mut names = BTreeSet::new();
    let mut build = cargo(workspace, &["build", "--lib", "--bins"]);
    for name in CRATES {
        names.extend(selection.of_crate(name));
    }
    let has_units = names.remove(UNIT);
    for name in names {
        build.args(["--test", name]);
    }
    let units = has_units.then(|| cargo(workspace, &["test", "--no-run", "--lib"]));
    std::iter::once(build).chain(units).collect()
}

/// Returns a command of cargo for all crates, so that the features of the dependencies do not depend on the selection.
fn cargo(workspace: &Workspace, arguments: &[&str]) -> Command {
    let mut cargo = workspace.cargo(arguments);
    cargo
        .args(CRATES.iter().flat_map(|name| ["--package", name]))
        .args(FEATURES.iter().flat_map(|feature| ["--features", feature]))
        .args(["--locked", "--target", TARGET, "--profile", PROFILE])
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", COMPILER);
    cargo
}
