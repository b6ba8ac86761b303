//! A second build, in another directory, which has to give the same bytes.

use std::process::Command;

use super::tree::succeed;
use super::{Files, Options, build};
use crate::failure::{Context as _, Failure, Result};
use crate::steps::Steps;
use crate::workspace::Workspace;

/// Builds the packages of the last commit again, and compares them.
pub fn with_another_directory(
    workspace: &Workspace,
    options: &Options,
    files: &Files,
    steps: &mut Steps,
) -> Result<()> {
    let changed = build::text(workspace.command("git").args(["status", "--porcelain"]))?;
    if !changed.is_empty() {
        return Err(Failure::new(
            "the copy is of the last commit, and this checkout differs from it; commit, or remove the changes",
        ));
    }
    let elsewhere = tempfile::Builder::new()
        .prefix("umsg-package-")
        .tempdir_in(&workspace.target)
        .context("a temporary directory")?;
    let copy = elsewhere.path().join("another/directory");
    succeed(
        Command::new("git")
            .args(["clone", "--quiet"])
            .arg(&workspace.root)
            .arg(&copy),
    )?;
    let target = elsewhere.path().join("target");
    let mut again = workspace.cargo(&["run", "--quiet", "--locked", "--package", "xtask", "--"]);
    again.arg("package").current_dir(&copy);
    for kind in &options.kinds {
        let kind = clap::ValueEnum::to_possible_value(kind);
        again.args(kind.iter().map(|kind| kind.get_name()));
    }
    again.env("CARGO_TARGET_DIR", &target);
    steps.need("the same packages, built in another directory", &mut again)?;
    let other = files.in_directory(target.join("packages/files"));
    let mut differing = Vec::new();
    for ((name, one), (_, another)) in files.hashes()?.into_iter().zip(other.hashes()?) {
        let result = if one == another { "same" } else { "DIFFERENT" };
        println!("{result:>10}  {name}");
        if one != another {
            differing.push(name);
        }
    }
    match differing.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(format!(
            "two builds differ: {}",
            differing.join(", ")
        ))),
    }
}
