//! Rust's nightly toolchain, for tasks that the stable one can't do.

use std::process::{Command, Stdio};

use crate::workspace::Workspace;

/// The remedy for a missing toolchain.
pub const REMEDY: &str = "no nightly toolchain; rustup toolchain install nightly";

/// A nightly toolchain.
pub struct Nightly {
    /// The default target of the toolchain's builds.
    pub host: String,
}

impl Nightly {
    /// Returns the toolchain; None if it is not installed.
    pub fn find() -> Option<Nightly> {
        let text = output(rustup("rustc").arg("-vV"))?;
        let host = text.lines().find_map(|line| line.strip_prefix("host: "))?;
        Some(Nightly {
            host: host.to_owned(),
        })
    }

    /// Returns the nightly toolchain if it has these components, otherwise the remedy.
    pub fn with(components: &[&str]) -> Result<Nightly, String> {
        let nightly = Nightly::find().ok_or(REMEDY)?;
        let mut list = Command::new("rustup");
        list.args(["component", "list", "--installed", "--toolchain", "nightly"]);
        let installed = output(&mut list).unwrap_or_default();
        let is_there =
            |component: &&&str| installed.lines().any(|line| line.starts_with(**component));
        let missing: Vec<_> = components
            .iter()
            .filter(|component| !is_there(component))
            .copied()
            .collect();
        match missing[..] {
            [] => Ok(nightly),
            _ => {
                let missing = missing.join(" ");
                Err(format!(
                    "the nightly toolchain lacks {missing}; rustup component add --toolchain nightly {missing}"
                ))
            }
        }
    }

    /// Returns a command of the toolchain's cargo, in the root of the checkout.
    pub fn cargo(&self, workspace: &Workspace, arguments: &[&str]) -> Command {
        let mut cargo = rustup("cargo");
        cargo.current_dir(&workspace.root).args(arguments);
        cargo
    }
}

fn rustup(program: &str) -> Command {
    let mut rustup = Command::new("rustup");
    rustup.args(["run", "nightly", program]);
    rustup
}

/// Returns the output of a command, if it succeeds.
fn output(command: &mut Command) -> Option<String> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then_some(text)
}
