//! `cargo xtask python`: the Python package, built as a wheel, installed in an environment of its own and tested from there.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use crate::failure::{Context as _, Failure, Result};
use crate::steps::Steps;
use crate::workspace::Workspace;

/// The tools of PyPI, with versions: the build, the tests, the check of the stubs, and the packages that umsg works with.
const TOOLS: [&str; 8] = [
    "maturin==1.16.0",
    "pytest==9.2.0",
    "hypothesis==6.170.17",
    "mypy==2.4.1",
    "numpy==2.4.6",
    "uvloop==0.23.0",
    "anyio==4.16.0",
    "trio==0.35.0",
];

/// The newest of these tools that run on Python 3.9.
const OLD_TOOLS: [&str; 3] = ["maturin", "pytest", "hypothesis"];

/// The comparison of the stubs with the module. Which classes share a layout is no part of the interface.
const STUBS: [&str; 6] = [
    "umsg",
    "--ignore-missing-stub",
    "--ignore-disjoint-bases",
    "--ignore-unused-allowlist",
    "--allowlist",
    "tests/stubtest.txt",
];

/// The packages whose interfaces `umsg.posix_ipc` and `umsg.sysv_ipc` have. Their source distributions have their tests.
const ORIGINALS: [&str; 2] = ["posix_ipc==1.3.2", "sysv_ipc==1.2.0"];
const FROM_SOURCE: [&str; 2] = ["--no-binary", "posix_ipc,sysv_ipc"];

#[derive(clap::Args)]
pub struct Options {
    /// The interpreter, Python 3.9 or later
    #[arg(long, value_name = "PATH", default_value = "/usr/bin/python3")]
    python: PathBuf,
    /// Build with less optimisation, in a fifth of the time
    #[arg(long)]
    quick: bool,
    /// Also compare the times of a send and a receive with those of other packages
    #[arg(long)]
    bench: bool,
}

/// The environment, and the directories of the package.
struct Package<'a> {
    workspace: &'a Workspace,
    /// `python` of the checkout.
    source: PathBuf,
    /// Whatever is built.
    directory: PathBuf,
    environment: PathBuf,
}

pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let directory = workspace.target.join("python");
    let version = version(&options.python)?;
    let package = Package {
        workspace,
        source: workspace.root.join("python"),
        environment: directory.join(format!("venv-{version}")),
        directory,
    };
    let has_types = version.as_str() != "3.9";
    let mut steps = Steps::new(workspace.root.clone());
    package.make_environment(&mut steps, &options.python, has_types)?;
    package.install(&mut steps, options.quick)?;
    let originals = package.fetch_originals(&mut steps)?;
    steps.run(
        "tests and examples",
        package
            .module("pytest", &["tests"])
            .env("UMSG_TEST_ORIGINALS", originals),
    )?;
    if has_types {
        let check = ["--strict", "--python-version", "3.10", "-p", "umsg"];
        steps.run("types of the package", &mut package.module("mypy", &check))?;
        let check = ["--strict", "tests", "bench", "examples"];
        steps.run("types of the tests", &mut package.module("mypy", &check))?;
        steps.run("stubs", &mut package.module("mypy.stubtest", &STUBS))?;
    }
    if options.bench {
        package.pip(&mut steps, &["faster-fifo==1.5.2"])?;
        let mut bench = package.command("python");
        steps.run("times", bench.arg("bench/roundtrip.py"))?;
        let mut bench = package.command("python");
        steps.run("times of objects", bench.arg("bench/objects.py"))?;
    }
    steps.finish()
}

/// Returns the version of an interpreter, such as 3.11.
fn version(python: &Path) -> Result<String> {
    let program = "import sys; print('%d.%d' % sys.version_info[:2])";
    let output = Command::new(python).args(["-c", program]).output();
    let output = output.context(python.display())?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match output.status.success() {
        true => Ok(version),
        false => Err(Failure::new(format!("{} is no Python", python.display()))),
    }
}

impl Package<'_> {
    /// A program of the environment, in the directory of the package.
    fn command(&self, program: &str) -> Command {
        let mut command = self
            .workspace
            .command(self.environment.join("bin").join(program));
        command.current_dir(&self.source);
        command
    }

    fn module(&self, module: &str, arguments: &[&str]) -> Command {
        let mut command = self.command("python");
        command.args(["-m", module]).args(arguments);
        command
    }

    fn pip(&self, steps: &mut Steps, packages: &[&str]) -> Result<()> {
        let mut install = self.command("pip");
        install.args(["install", "--quiet", "--disable-pip-version-check"]);
        steps.need("packages of PyPI", install.args(packages))
    }

    /// Installs the original packages, and returns the directory of their source distributions.
    fn fetch_originals(&self, steps: &mut Steps) -> Result<PathBuf> {
        let directory = self.directory.join("originals");
        let has_all = ORIGINALS.iter().all(|package| {
            let file = format!("{}.tar.gz", package.replace("==", "-"));
            directory.join(file).exists()
        });
        if !has_all {
            let mut fetch = self.command("pip");
            fetch.args(["download", "--quiet", "--disable-pip-version-check"]);
            fetch.arg("--no-deps").args(FROM_SOURCE).arg("--dest");
            fetch.arg(&directory).args(ORIGINALS);
            steps.need("sources of the original packages", &mut fetch)?;
        }
        // The wheels of PyPI have fewer functions than these sources make.
        let [posix, sysv] = ORIGINALS;
        self.pip(steps, &[FROM_SOURCE[0], FROM_SOURCE[1], posix, sysv])?;
        Ok(directory)
    }

    fn make_environment(&self, steps: &mut Steps, python: &Path, has_types: bool) -> Result<()> {
        if !self.environment.join("bin/pip").exists() {
            let mut make = self.workspace.command(python);
            make.args(["-m", "venv"]).arg(&self.environment);
            steps.need("environment", &mut make)?;
        }
        match has_types {
            true => self.pip(steps, &TOOLS),
            false => self.pip(steps, &OLD_TOOLS),
        }
    }

    /// Builds the wheel and installs it.
    fn install(&self, steps: &mut Steps, quick: bool) -> Result<()> {
        let wheels = self.directory.join("wheels");
        match fs::remove_dir_all(&wheels) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).context(wheels.display());
            }
            _ => {}
        }
        let mut build = self.command("maturin");
        build.args(["build", "--locked", "--profile"]);
        build.arg(if quick { "quick" } else { "release" });
        build
            .arg("--interpreter")
            .arg(self.environment.join("bin/python"));
        build.arg("--out").arg(&wheels);
        build.arg("--target-dir").arg(self.directory.join("build"));
        steps.need("wheel", &mut build)?;
        let mut install = self.command("pip");
        install.args([
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
        ]);
        install.args(["--no-index", "--force-reinstall"]);
        for wheel in fs::read_dir(&wheels).context(wheels.display())? {
            install.arg(wheel.context(wheels.display())?.path());
        }
        steps.need("installation", &mut install)
    }
}
