//! Checks by other tools, which may be missing.

use std::process::Command;

use super::{Seen, VERSION};
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::package::{CRATES, text};
use crate::workspace::Workspace;

/// The workspaces with a lock file.
const WORKSPACES: [&str; 2] = ["Cargo.toml", "python/Cargo.toml"];

/// Checks the licences, sources and duplicates of the dependencies; also the advisories, if their database can be fetched.
pub fn deny(workspace: &Workspace) -> Result<Seen> {
    if text(workspace.cargo(&["deny"]).arg("--version")).is_err() {
        let why = "cargo-deny is not installed; cargo install --locked cargo-deny";
        return Ok(Seen::Unchecked(why.to_owned()));
    }
    for manifest in WORKSPACES {
        let mut check = deny_of(workspace, manifest);
        check.args(["--hide-inclusion-graph", "bans", "licenses", "sources"]);
        if let Err(Failure::Failed(why)) = text(&mut check) {
            return Ok(Seen::Missing(why));
        }
    }
    for manifest in WORKSPACES {
        match text(deny_of(workspace, manifest).arg("advisories")) {
            Ok(_) => {}
            Err(Failure::Failed(why)) if why.contains("failed to fetch advisory database") => {
                let why = "the database of advisories can't be fetched here; the rest holds";
                return Ok(Seen::Unchecked(why.to_owned()));
            }
            Err(Failure::Failed(why)) => return Ok(Seen::Missing(why)),
            Err(interrupted) => return Err(interrupted),
        }
    }
    let held = "bans, licenses, sources and advisories hold";
    Ok(Seen::Fine(held.to_owned()))
}

/// Returns the command that checks the dependencies of one workspace.
fn deny_of(workspace: &Workspace, manifest: &str) -> Command {
    let mut check = workspace.cargo(&["deny", "--locked", "--manifest-path", manifest]);
    check.args(["--config", "deny.toml", "check"]);
    check
}

/// Compares the public items of the libraries with those of the last release.
pub fn semver_checks(workspace: &Workspace) -> Result<Seen> {
    let tags =
        text(
            workspace
                .command("git")
                .args(["tag", "--list", "v*", "--sort=-version:refname"]),
        )?;
    let own = format!("v{VERSION}");
    let Some(last) = tags.lines().find(|tag| *tag != own) else {
        let why = "there is no earlier release to compare with";
        return Ok(Seen::Unchecked(why.to_owned()));
    };
    if text(workspace.cargo(&["semver-checks"]).arg("--version")).is_err() {
        let why =
            "cargo-semver-checks is not installed; cargo install --locked cargo-semver-checks";
        return Ok(Seen::Missing(why.to_owned()));
    }
    let mut check = workspace.cargo(&["semver-checks", "--baseline-rev", last]);
    for library in &CRATES[..2] {
        check.args(["--package", library]);
    }
    Ok(match interrupt::run(&mut check)?.success() {
        true => Seen::Fine(format!("compatible with {last}, as the version says")),
        false => Seen::Missing(format!("incompatible with {last}; raise the version")),
    })
}

/// Runs everything that a change has to pass.
pub fn tests(workspace: &Workspace, run: bool) -> Result<Seen> {
    if !run {
        let why = "run .ci/run on this commit, or give --tests";
        return Ok(Seen::Unchecked(why.to_owned()));
    }
    Ok(
        match interrupt::run(&mut workspace.command(".ci/run"))?.success() {
            true => Seen::Fine(".ci/run passes".to_owned()),
            false => Seen::Missing(".ci/run fails".to_owned()),
        },
    )
}
