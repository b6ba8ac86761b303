//! The state of the checkout: changes, versions, tags.

use std::fs;

use serde_json::Value;

use super::{Seen, VERSION};
use crate::c;
use crate::failure::{Context as _, Failure, Result};
use crate::package::text;
use crate::workspace::Workspace;

/// Checks that all files are committed.
pub fn is_clean(workspace: &Workspace) -> Result<Seen> {
    let changed = text(workspace.command("git").args(["status", "--porcelain"]))?;
    Ok(match changed.lines().count() {
        0 => Seen::Fine("all files are committed".to_owned()),
        count => Seen::Missing(format!("{count} files are changed; commit or remove them")),
    })
}

/// Checks that all crates have the same version, and depend on each other in this version.
pub fn versions_agree(workspace: &Workspace) -> Result<Seen> {
    let mut metadata = workspace.cargo(&["metadata", "--no-deps", "--locked"]);
    let metadata = text(metadata.args(["--format-version", "1"]));
    let metadata = match metadata {
        Ok(metadata) => metadata,
        Err(Failure::Failed(why)) => return Ok(Seen::Missing(why)),
        Err(interrupted) => return Err(interrupted),
    };
    let metadata: Value = serde_json::from_str(&metadata).context("cargo metadata")?;
    let wrong = disagreements(&metadata);
    Ok(match wrong.is_empty() {
        true => Seen::Fine(format!("all crates have {VERSION}")),
        false => Seen::Missing(wrong.join("; ")),
    })
}

/// Returns the crates that have another version, and the crates that depend on another version.
fn disagreements(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array();
    let packages = packages.map_or(&[][..], Vec::as_slice);
    let mut wrong = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let version = package["version"].as_str().unwrap_or_default();
        if version != VERSION {
            wrong.push(format!("{name} is {version}"));
        }
        let dependencies = package["dependencies"].as_array();
        for dependency in dependencies.into_iter().flatten() {
            let needed = dependency["req"].as_str().unwrap_or_default();
            let of = dependency["name"].as_str().unwrap_or_default();
            let is_ours = dependency["path"].is_string();
            if is_ours && needed != "*" && needed != format!("^{VERSION}") {
                wrong.push(format!("{name} needs {of} {needed}"));
            }
        }
    }
    wrong
}

/// Checks that no tag has the name of the release.
pub fn tag_is_free(workspace: &Workspace) -> Result<Seen> {
    let tag = format!("v{VERSION}");
    let found = text(workspace.command("git").args(["tag", "--list", &tag]))?;
    Ok(match found.is_empty() {
        true => Seen::Fine(format!("{tag} is free")),
        false => Seen::Missing(format!("{tag} exists; raise the version in Cargo.toml")),
    })
}

/// Checks that the C header is the one that the source makes.
pub fn header_is_fresh(workspace: &Workspace) -> Result<Seen> {
    match c::header(workspace, true) {
        Ok(()) => Ok(Seen::Fine("is the one that the source makes".to_owned())),
        Err(Failure::Failed(why)) => Ok(Seen::Missing(why)),
        Err(interrupted) => Err(interrupted),
    }
}

/// Checks that the newest version of symbols is not newer than the release.
pub fn symbols_have_the_version(workspace: &Workspace) -> Result<Seen> {
    let path = workspace.root.join("crates/umsg-c/umsg.map");
    let map = fs::read_to_string(&path).context(path.display())?;
    let nodes = map.lines().filter_map(|line| {
        let node = line.strip_prefix("UMSG_")?.split([' ', '{']).next()?;
        let (major, minor) = node.split_once('.')?;
        Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?))
    });
    let mut own = VERSION
        .split('.')
        .map_while(|part| part.parse::<u32>().ok());
    let own = (own.next().unwrap_or(0), own.next().unwrap_or(0));
    Ok(match nodes.max() {
        Some(newest) if newest <= own => Seen::Fine(format!(
            "the newest version is UMSG_{}.{}",
            newest.0, newest.1
        )),
        Some(newest) => Seen::Missing(format!(
            "umsg.map has UMSG_{}.{}, which is newer than {VERSION}",
            newest.0, newest.1
        )),
        None => Seen::Missing("umsg.map has no version".to_owned()),
    })
}

/// Makes the tag, and prints the remaining steps.
pub fn make_tag(workspace: &Workspace) -> Result<()> {
    let tag = format!("v{VERSION}");
    let message = format!("umsg {VERSION}");
    let mut git = workspace.command("git");
    text(git.args(["tag", "--annotate", &tag, "--message", &message]))?;
    println!("made the tag {tag}; to publish it:\n    git push origin {tag}");
    for name in crate::package::CRATES {
        println!("    cargo publish --package {name}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_crate_of_another_version_is_named() {
        let needs = |version: &str| json!([{ "name": "umsg", "req": version, "path": "/umsg" }]);
        let package = |name: &str, version: &str, dependencies: Value| json!({ "name": name, "version": version, "dependencies": dependencies });
        let fine = format!("^{VERSION}");
        let metadata = json!({ "packages": [
            package("umsg", VERSION, json!([])),
            package("umsg-cli", VERSION, needs(&fine)),
            package("umsg-c", "0.0.1", needs(&fine)),
            package("umsg-preload", VERSION, needs("^0.0.1")),
            package("umsg-bench", VERSION, json!([{ "name": "libc", "req": "^0.2" }])),
        ] });
        assert_eq!(
            disagreements(&metadata),
            ["umsg-c is 0.0.1", "umsg-preload needs umsg ^0.0.1"]
        );
    }
}
