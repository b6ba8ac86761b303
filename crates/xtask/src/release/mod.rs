//! `cargo xtask release`: the checklist of a release, and its tag.
//!
//! A check is a function that looks at the checkout. Its result is an observation, or the missing thing and the remedy.

mod changes;
mod checkout;
mod tools;

use clap::Args;

use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::package;
use crate::steps::Steps;
use crate::workspace::Workspace;

/// The choices of `cargo xtask release`.
#[derive(Args, Clone, Copy, Debug)]
pub struct Options {
    /// Check, and make no tag
    #[arg(long, required_unless_present = "tests")]
    dry_run: bool,
    /// Leave out the packages, whose builds take minutes
    #[arg(long, requires = "dry_run")]
    no_packages: bool,
    /// Run .ci/run, which takes half an hour. Needed for a tag
    #[arg(long)]
    tests: bool,
}

/// The result of a check.
pub enum Seen {
    /// The condition holds. The text is the observation.
    Fine(String),
    /// The condition does not hold. The text names the missing thing, and the remedy.
    Missing(String),
    /// The check was not made. The text is the reason.
    Unchecked(String),
}

type Check = fn(&Workspace) -> Result<Seen>;

/// The version of the next release.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Checks everything, prints the list, and makes the tag if nothing is missing.
pub fn run(workspace: &Workspace, options: Options) -> Result<()> {
    interrupt::install();
    println!("umsg {VERSION}\n");
    let mut missing = 0;
    let checks: [(&str, Check); 9] = [
        ("clean tree", checkout::is_clean),
        ("versions", checkout::versions_agree),
        ("tag", checkout::tag_is_free),
        ("CHANGELOG.md", changes::section_is_dated),
        ("README.md", changes::readme_names_a_release),
        ("umsg.h", checkout::header_is_fresh),
        ("C symbols", checkout::symbols_have_the_version),
        ("cargo deny", tools::deny),
        ("cargo semver-checks", tools::semver_checks),
    ];
    for (what, check) in checks {
        missing += print(what, &check(workspace)?);
    }
    missing += print("packages", &packages(workspace, options)?);
    missing += print("tests", &tools::tests(workspace, options.tests)?);
    if missing > 0 {
        let sentence = format!("{missing} of the checks fail; umsg {VERSION} is not ready");
        return Err(Failure::new(sentence));
    }
    println!("\nnothing is missing");
    match options.dry_run {
        true => Ok(()),
        false => checkout::make_tag(workspace),
    }
}

/// Prints a line of the list, and returns the number of missing conditions: 0 or 1.
fn print(what: &str, seen: &Seen) -> usize {
    let (mark, text, missing) = match seen {
        Seen::Fine(text) => ("ok", text, 0),
        Seen::Missing(text) => ("MISSING", text, 1),
        Seen::Unchecked(text) => ("not checked", text, 0),
    };
    println!("{mark:<12} {what}: {text}");
    missing
}

/// Builds all packages; from a checkout without changes, builds them twice and compares them.
fn packages(workspace: &Workspace, options: Options) -> Result<Seen> {
    if options.no_packages {
        return Ok(Seen::Unchecked("--no-packages".to_owned()));
    }
    let mut steps = Steps::new(workspace.root.clone());
    match package::make(workspace, &package::Options::all(), &mut steps) {
        Ok(files) => {
            files.print()?;
            let advice = "built; test them: cargo xtask package --test";
            Ok(Seen::Fine(advice.to_owned()))
        }
        Err(Failure::Failed(why)) => Ok(Seen::Missing(why)),
        Err(interrupted) => Err(interrupted),
    }
}
