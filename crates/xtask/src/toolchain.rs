//! Rust's nightly toolchain, for what the stable one does not do.

use std::process::{Command, Stdio};

use crate::workspace::Workspace;

/// What to do where there is none.
pub const REMEDY: &str = "no nightly toolchain; rustup toolchain install nightly";

/// A nightly toolchain.
pub struct Nightly {
    /// What it builds for, by default.
    pub host: String,
}

impl Nightly {
    /// If it is installed.
    pub fn find() -> Option<Nightly> {
        let mut rustc = rustup("rustc");
        let output = rustc.arg("-vV").stdin(Stdio::null()).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        let host = text.lines().find_map(|line| line.strip_prefix("host: "))?;
        Some(Nightly {
            host: host.to_owned(),
        })
    }

    /// A command of its cargo, in the root of the checkout.
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
