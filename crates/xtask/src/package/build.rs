//! Release builds whose bytes depend on sources and tools only, not on the directories in which they lie.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::{Context as _, Failure, Result};
use crate::interrupt;
use crate::workspace::Workspace;

/// The directory of the sources, in messages of panics.
const SOURCES: &str = "/usr/src/umsg";
/// The directory of other libraries' sources.
const LIBRARIES: &str = "/usr/src/cargo";

/// A build: its directory, its target and its flags.
pub struct Build<'a> {
    workspace: &'a Workspace,
    directory: PathBuf,
    target: Option<String>,
    /// The flags of rustc; None leaves them to the user.
    flags: Option<Vec<OsString>>,
    epoch: String,
}

impl<'a> Build<'a> {
    /// Returns the release build of the workspace, as cargo makes it.
    pub fn usual(workspace: &'a Workspace) -> Result<Self> {
        Ok(Self {
            workspace,
            directory: workspace.target.clone(),
            target: None,
            flags: None,
            epoch: epoch(workspace)?,
        })
    }

    /// Returns the build for this machine of which the Debian packages are made.
    pub fn of_this_machine(workspace: &'a Workspace) -> Result<Self> {
        Self::new(workspace, "build", None)
    }

    /// Creates a build in a directory of its own. `target` is None for this machine.
    pub fn new(workspace: &'a Workspace, name: &str, target: Option<&str>) -> Result<Self> {
        let directory = super::directory(workspace).join(name);
        let flags = remap(workspace, &directory)?;
        Ok(Self {
            workspace,
            directory,
            target: target.map(str::to_owned),
            flags: Some(flags),
            epoch: epoch(workspace)?,
        })
    }

    /// Adds flags for rustc.
    pub fn with_flags<F: Into<OsString>>(mut self, more: impl IntoIterator<Item = F>) -> Self {
        let more = more.into_iter().map(Into::into);
        self.flags.get_or_insert_default().extend(more);
        self
    }

    /// Returns the command that builds crates.
    pub fn of(&self, packages: &[&str]) -> Command {
        let mut command = self.workspace.cargo(&["build"]);
        self.complete(&mut command, packages);
        if let Some(target) = &self.target {
            command.arg("--target").arg(target);
        }
        command
    }

    /// Adds the arguments and variables of a release build to a command of cargo.
    pub fn complete(&self, command: &mut Command, packages: &[&str]) {
        command.args(["--locked", "--release"]);
        for package in packages {
            command.args(["--package", package]);
        }
        self.lend(command);
    }

    /// Adds the variables of the build to a command.
    pub fn lend(&self, command: &mut Command) {
        command.env("SOURCE_DATE_EPOCH", &self.epoch);
        if let Some(flags) = &self.flags {
            let flags = flags.join(&OsString::from("\x1f"));
            command
                .env("CARGO_TARGET_DIR", &self.directory)
                .env("CARGO_ENCODED_RUSTFLAGS", flags);
        }
    }

    /// Returns the path of a file that the build makes.
    pub fn file(&self, name: &str) -> PathBuf {
        let directory = match &self.target {
            Some(target) => self.directory.join(target),
            None => self.directory.clone(),
        };
        directory.join("release").join(name)
    }
}

/// Returns the time of the build in seconds since 1970: `$SOURCE_DATE_EPOCH`, else the time of the last commit.
pub fn epoch(workspace: &Workspace) -> Result<String> {
    if let Ok(epoch) = std::env::var("SOURCE_DATE_EPOCH") {
        return Ok(epoch);
    }
    let mut git = workspace.command("git");
    let time = text(git.args(["log", "-1", "--format=%ct"]))?;
    Ok(time.trim().to_owned())
}

/// Returns flags that replace the directories of this machine in the compiled files. If several flags match, rustc uses the last of them.
fn remap(workspace: &Workspace, directory: &Path) -> Result<Vec<OsString>> {
    let mut pairs = vec![
        (workspace.root.clone(), SOURCES.to_owned()),
        (directory.to_owned(), format!("{SOURCES}/target")),
    ];
    let registries = cargo_home()?.join("registry/src");
    if let Ok(entries) = fs::read_dir(&registries) {
        for entry in entries {
            let entry = entry.context(registries.display())?;
            pairs.push((entry.path(), LIBRARIES.to_owned()));
        }
    }
    pairs.push(standard_library(workspace)?);
    let flag = |(from, to): (PathBuf, String)| {
        let mut flag = OsString::from("--remap-path-prefix=");
        flag.push(from);
        flag.push("=");
        flag.push(to);
        flag
    };
    Ok(pairs.into_iter().map(flag).collect())
}

/// Returns the directory of the standard library's sources, and its name in the compiled files, which has the compiler's commit.
fn standard_library(workspace: &Workspace) -> Result<(PathBuf, String)> {
    let rustc = || workspace.command("rustc");
    let sysroot = text(rustc().args(["--print", "sysroot"]))?;
    let about = text(rustc().arg("-vV"))?;
    let commit = about
        .lines()
        .find_map(|line| line.strip_prefix("commit-hash: "))
        .unwrap_or("unknown");
    let sources = Path::new(sysroot.trim()).join("lib/rustlib/src/rust");
    Ok((sources, format!("/rustc/{commit}")))
}

fn cargo_home() -> Result<PathBuf> {
    let named = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let usual = std::env::home_dir().map(|home| home.join(".cargo"));
    named
        .or(usual)
        .ok_or_else(|| Failure::new("neither CARGO_HOME nor HOME is set"))
}

/// Returns the standard output of a command that succeeds.
pub fn text(command: &mut Command) -> Result<String> {
    let line = crate::shell::line(command);
    let output = interrupt::output(command)?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::new(format!("{line}: {}", errors.trim())));
    }
    String::from_utf8(output.stdout).context(line)
}
