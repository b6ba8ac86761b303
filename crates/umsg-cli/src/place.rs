//! The namespace that a command works in.

use std::path::Path;

use umsg::{Namespace, NamespaceKind};

use crate::cli::Cli;
use crate::failure::Result;

/// The one of `--dir`, else the one that every program of this user gets.
pub fn namespace(cli: &Cli) -> Result<Namespace> {
    match &cli.dir {
        Some(dir) => Ok(Namespace::at(dir)?),
        None => Ok(Namespace::resolve()?),
    }
}

/// How it was found, for people.
pub fn origin(cli: &Cli, kind: NamespaceKind) -> &'static str {
    match (&cli.dir, kind) {
        (Some(_), _) => "chosen by --dir",
        (None, NamespaceKind::Environment) => "chosen by UMSG_DIR",
        (None, NamespaceKind::Shared) => "shared by all users",
        (None, NamespaceKind::User) => "your own",
    }
}

/// What it is, in JSON.
pub fn kind(kind: NamespaceKind) -> &'static str {
    match kind {
        NamespaceKind::Environment => "chosen",
        NamespaceKind::Shared => "shared",
        NamespaceKind::User => "user",
    }
}

/// A path as JSON has it: bytes that are no UTF-8 are replaced.
pub fn path(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
