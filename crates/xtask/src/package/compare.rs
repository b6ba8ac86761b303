//! A second build, in another directory and environment, which has to give the same bytes.

use std::ffi::OsStr;
use std::process::Command;

use super::tree::succeed;
use super::{Files, Options, build};
use crate::failure::{Context as _, Failure, Result};
use crate::steps::Steps;
use crate::workspace::Workspace;

/// The beginning of a command line with another umask, so that other users can't read the files that the command creates.
const ANOTHER_UMASK: [&str; 4] = ["sh", "-c", "umask 077 && exec \"$@\"", "sh"];

/// Locale and time zone of the second build. The zone is 14 hours ahead, so its date differs for half of each day.
const ANOTHER_PLACE: [(&str, &str); 3] = [
    ("LC_ALL", "C.UTF-8"),
    ("LANGUAGE", "tr:de"),
    ("TZ", "UTC-14"),
];

/// Builds the packages of the last commit again, and compares them. Fails with the names of the packages that differ.
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
    let mut clone = elsewhere_by("git".as_ref());
    clone.args(["clone", "--quiet"]).arg(&workspace.root);
    succeed(clone.arg(&copy))?;
    let target = elsewhere.path().join("target");
    let mut again = elsewhere_by(workspace.cargo(&[]).get_program());
    again.args(["run", "--quiet", "--locked", "--package", "xtask", "--"]);
    again.arg("package").current_dir(&copy);
    if options.quick {
        again.arg("--quick");
    }
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

/// Returns a command that runs `program` in the environment of the second build.
fn elsewhere_by(program: &OsStr) -> Command {
    let [shell, options @ ..] = ANOTHER_UMASK;
    let mut command = Command::new(shell);
    command.args(options).arg(program).envs(ANOTHER_PLACE);
    command
}
