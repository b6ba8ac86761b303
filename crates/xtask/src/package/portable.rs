//! Builds for systems other than this one: an old glibc, musl, and another processor.

use std::path::PathBuf;
use std::process::Command;

use super::{Build, versions};
use crate::failure::{Context as _, Result};
use crate::musl::{self, Panics, TARGET as MUSL};
use crate::steps::Steps;
use crate::workspace::Workspace;

/// The compiler that links for an old glibc, and the program that lets cargo use it: packages of PyPI.
const TOOLS: [&str; 2] = ["ziglang==0.13.0", "cargo-zigbuild==0.24.1"];

/// The linker for an old glibc.
pub struct Zig<'a> {
    workspace: &'a Workspace,
    tools: PathBuf,
}

impl<'a> Zig<'a> {
    /// Installs the linker in an environment of its own, unless an earlier run has installed it.
    pub fn install(workspace: &'a Workspace, steps: &mut Steps) -> Result<Self> {
        let tools = super::directory(workspace).join("tools");
        if !tools.join("bin/cargo-zigbuild").exists() {
            let mut make = workspace.command("python3");
            make.args(["-m", "venv"]).arg(&tools);
            steps.need("environment of the linker", &mut make)?;
            let mut install = workspace.command(tools.join("bin/pip"));
            install.args(["install", "--quiet", "--disable-pip-version-check"]);
            steps.need("linker for an old glibc", install.args(TOOLS))?;
        }
        Ok(Self { workspace, tools })
    }

    /// Returns the command that builds crates for the oldest supported glibc.
    pub fn of(&self, build: &Build, target: &str, crates: &[&str]) -> Result<Command> {
        let (major, minor) = versions::OLDEST;
        let mut command = self
            .workspace
            .command(self.tools.join("bin/cargo-zigbuild"));
        command.args(["zigbuild", "--target"]);
        command.arg(format!("{target}.{major}.{minor}"));
        build.complete(&mut command, crates);
        self.lend(&mut command)?;
        Ok(command)
    }

    /// Lets a command find the linker.
    pub fn lend(&self, command: &mut Command) -> Result<()> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let paths = [self.tools.join("bin")]
            .into_iter()
            .chain(std::env::split_paths(&path));
        command.env("PATH", std::env::join_paths(paths).context("PATH")?);
        Ok(())
    }
}

/// Builds the command for musl, linked statically, as the target does by default.
pub fn static_command(workspace: &Workspace, steps: &mut Steps) -> Result<PathBuf> {
    musl::need_target(workspace)?;
    let build = Build::new(workspace, "build-musl", Some(MUSL))?;
    steps.need("static command", &mut build.of(&["umsg-cli"]))?;
    Ok(build.file("umsg"))
}

/// Builds the bridge for musl, linked statically. musl-gcc compiles its cryptography.
pub fn static_bridge(workspace: &Workspace, steps: &mut Steps) -> Result<PathBuf> {
    musl::need_target(workspace)?;
    let build = Build::new(workspace, "build-musl", Some(MUSL))?;
    steps.need("static bridge", &mut build.of(&["umsg-bridge"]))?;
    Ok(build.file("umsg-bridge"))
}

/// Builds the drop-in for musl.
pub fn drop_in_for_musl(workspace: &Workspace, steps: &mut Steps) -> Result<PathBuf> {
    let build = musl_libraries(workspace, "build-musl-shared", Panics::Abort)?;
    steps.need("drop-in for musl", &mut build.of(&["umsg-preload"]))?;
    Ok(build.file("libumsg_preload.so"))
}

/// Returns a build of libraries that are linked with musl's libc.so.
pub fn musl_libraries<'a>(
    workspace: &'a Workspace,
    name: &str,
    panics: Panics,
) -> Result<Build<'a>> {
    let build = Build::new(workspace, name, Some(MUSL))?;
    let flags = musl::shared_library(workspace, &super::directory(workspace), panics)?;
    Ok(build.with_flags(flags))
}
