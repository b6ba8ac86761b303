//! The namespace that a command works in.

use std::io::Write;
use std::path::Path;

use umsg::{Namespace, NamespaceKind, PassedOver};

use crate::cli::Cli;
use crate::failure::{Failure, Result};

/// Opens the namespace of `--dir`, or else the user's default namespace. Creates it if it is missing.
pub fn namespace(cli: &Cli) -> Result<Namespace> {
    match &cli.dir {
        Some(dir) => Ok(Namespace::at(dir)?),
        None => Ok(Namespace::resolve()?),
    }
}

/// Opens the namespace for a command that creates no queue. Unlike [`namespace`], the function does not create a namespace in the directory that the
/// user names.
pub fn existing(cli: &Cli) -> Result<Namespace> {
    existing_at(cli.dir.as_deref())
}

/// Opens the namespace as [`existing`] does. `dir` is the value of `--dir`.
pub fn existing_at(dir: Option<&Path>) -> Result<Namespace> {
    match dir {
        Some(dir) => Ok(Namespace::existing(dir)?),
        None => Ok(Namespace::resolve_existing()?),
    }
}

/// If --dir is given, replaces the library's advice about UMSG_DIR by advice about --dir.
pub fn advise(cli: &Cli, failure: Failure) -> Failure {
    match (&cli.dir, failure) {
        (Some(_), Failure::Because { code, line }) => Failure::Because {
            code,
            line: line
                .replace("set UMSG_DIR to", "give --dir")
                .replace("Set UMSG_DIR to", "Give --dir"),
        },
        (_, failure) => failure,
    }
}

/// Describes how the namespace was chosen.
pub fn origin(cli: &Cli, kind: NamespaceKind) -> &'static str {
    match (&cli.dir, kind) {
        (Some(_), _) => "chosen by --dir",
        (None, NamespaceKind::Environment) => "chosen by UMSG_DIR",
        (None, NamespaceKind::Shared) => "shared by all users",
        (None, NamespaceKind::User) => "your own",
    }
}

/// Prints the directories that the command ignores because other users own them. Prints nothing if --dir or UMSG_DIR names the directory.
pub fn tell_passed_over(
    cli: &Cli,
    namespace: &Namespace,
    out: &mut impl Write,
) -> std::io::Result<()> {
    if cli.dir.is_some() || namespace.kind() == NamespaceKind::Environment {
        return Ok(());
    }
    for PassedOver { path, owner, .. } in Namespace::passed_over() {
        let path = path.display();
        writeln!(
            out,
            "ignored: {path} belongs to user {owner}; `umsg ls --dir {path}` shows its queues to that user and root"
        )?;
    }
    Ok(())
}

/// Returns the name of the namespace's kind in JSON.
pub fn kind(kind: NamespaceKind) -> &'static str {
    match kind {
        NamespaceKind::Environment => "chosen",
        NamespaceKind::Shared => "shared",
        NamespaceKind::User => "user",
    }
}

/// Returns a path for JSON: bytes that are not UTF-8 are replaced.
pub fn path(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
