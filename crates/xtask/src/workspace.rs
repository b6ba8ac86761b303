//! The paths of the checkout and of its build.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::{Context as _, Failure, Result};

/// The directories of this checkout.
pub struct Workspace {
    /// The directory of the workspace's Cargo.toml.
    pub root: PathBuf,
    /// The target directory of cargo.
    pub target: PathBuf,
}

impl Workspace {
    /// Asks cargo for the paths, because CARGO_TARGET_DIR and configuration files may change the target directory.
    pub fn find() -> Result<Self> {
        let metadata = metadata()?;
        let directory = |key: &str| {
            metadata[key]
                .as_str()
                .map(PathBuf::from)
                .ok_or_else(|| Failure::new(format!("cargo metadata names no {key}")))
        };
        Ok(Self {
            root: directory("workspace_root")?,
            target: directory("target_directory")?,
        })
    }

    /// Returns cargo's metadata of the workspace's packages, without their dependencies.
    pub fn metadata(&self) -> Result<serde_json::Value> {
        metadata()
    }

    /// Returns the path of a file that a release build makes.
    pub fn release(&self, name: &str) -> PathBuf {
        self.target.join("release").join(name)
    }

    /// Returns a command that runs in the root of the checkout.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root);
        command
    }

    /// Returns the files of the checkout whose paths match a pattern such as "*.md": tracked files, and untracked files that .gitignore does not
    /// exclude.
    pub fn files(&self, pattern: &str) -> Result<Vec<String>> {
        let mut git = self.command("git");
        git.args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ]);
        let listed = crate::interrupt::output(git.arg(pattern))?;
        if !listed.status.success() {
            return Err(Failure::new(format!(
                "git can't list the files {pattern} of the checkout"
            )));
        }
        let names = String::from_utf8(listed.stdout).context("git ls-files")?;
        let exists = |name: &&str| self.root.join(name).is_file();
        let names = names.split_terminator('\0').filter(exists);
        Ok(names.map(str::to_owned).collect())
    }

    /// Returns a cargo command, with the cargo that runs this program.
    pub fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(cargo());
        command.args(arguments);
        command
    }

    /// Returns the command that builds what a user installs, except umsg-bridge, and the tools that measure and compare.
    pub fn build_release(&self) -> Command {
        self.cargo(&[
            "build",
            "--release",
            "--workspace",
            "--exclude",
            "xtask",
            "--exclude",
            "umsg-bridge",
        ])
    }

    /// Returns the command that builds the peer that is a separate workspace, into a directory next to the release build, where umsg-bench finds it.
    pub fn build_peers(&self) -> Command {
        let mut command = self.cargo(&["build", "--release", "--locked", "--manifest-path"]);
        command
            .arg("crates/umsg-bench/peers-iceoryx2/Cargo.toml")
            .arg("--target-dir")
            .arg(self.target.join("peers-iceoryx2"));
        command
    }

    /// Returns the command that builds the benchmark program and the drop-in, which the program measures.
    pub fn build_benchmarks(&self) -> Command {
        self.cargo(&[
            "build",
            "--release",
            "-p",
            "umsg-bench",
            "-p",
            "umsg-preload",
        ])
    }
}

fn metadata() -> Result<serde_json::Value> {
    let output = Command::new(cargo())
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cargo metadata")?;
    if !output.status.success() {
        return Err(Failure::new("cargo metadata failed"));
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata")
}

fn cargo() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}
