//! The licences of the libraries whose code is in a package.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::build;
use crate::failure::{Context as _, Result};
use crate::workspace::Workspace;

/// Libraries of other authors, each with its licence, and the texts of the licences, each once with its libraries.
#[derive(Default)]
pub struct Licences {
    libraries: BTreeSet<String>,
    texts: BTreeMap<String, BTreeSet<String>>,
}

/// Returns a list of the libraries of other authors that the crates contain, with the texts of their licences.
pub fn text(workspace: &Workspace, crates: &[&str]) -> Result<String> {
    Ok(merged([of(workspace, None, crates)?]))
}

/// Returns the libraries that the crates contain. `manifest` is the Cargo.toml of the crates' workspace; None for this workspace.
pub fn of(workspace: &Workspace, manifest: Option<&Path>, crates: &[&str]) -> Result<Licences> {
    let mut command = workspace.cargo(&["metadata", "--locked", "--format-version", "1"]);
    command.args(["--filter-platform", "x86_64-unknown-linux-gnu"]);
    if let Some(manifest) = manifest {
        command.arg("--manifest-path").arg(manifest);
    }
    let metadata = build::text(&mut command)?;
    let metadata: Value = serde_json::from_str(&metadata).context("cargo metadata")?;
    let used = used(&metadata, crates);
    let mut found = Licences::default();
    for package in array(&metadata["packages"]) {
        let is_foreign = package["source"].is_string();
        if !is_foreign || !used.contains(string(&package["id"])) {
            continue;
        }
        let name = format!(
            "{} {}",
            string(&package["name"]),
            string(&package["version"])
        );
        let licence = string(&package["license"]);
        found.libraries.insert(format!("{name}: {licence}\n"));
        let manifest = Path::new(string(&package["manifest_path"]));
        for file in files(manifest.parent().unwrap_or(manifest))? {
            let bytes = fs::read(&file).context(file.display())?;
            let text = String::from_utf8_lossy(&bytes).trim().to_owned();
            found.texts.entry(text).or_default().insert(name.clone());
        }
    }
    Ok(found)
}

/// Returns the text of all these licences.
pub fn merged(all: impl IntoIterator<Item = Licences>) -> String {
    let mut merged = Licences::default();
    for licences in all {
        merged.libraries.extend(licences.libraries);
        for (text, names) in licences.texts {
            merged.texts.entry(text).or_default().extend(names);
        }
    }
    let mut list = String::from(
        "Libraries whose code this package contains, and their licences.\n\nRust's standard library: MIT OR Apache-2.0\n",
    );
    list.extend(merged.libraries);
    for (text, names) in merged.texts {
        let rule = "-".repeat(80);
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        list.push_str(&format!("\n{rule}\n{names}\n{rule}\n\n{text}\n"));
    }
    list
}

/// Returns the ids of the crates and of all crates that are compiled into them, except those of tests and build scripts.
fn used<'a>(metadata: &'a Value, crates: &[&str]) -> BTreeSet<&'a str> {
    let nodes: BTreeMap<&str, &Value> = array(&metadata["resolve"]["nodes"])
        .iter()
        .map(|node| (string(&node["id"]), node))
        .collect();
    let is_root = |package: &&Value| {
        package["source"].is_null() && crates.contains(&string(&package["name"]))
    };
    let mut open: Vec<&str> = array(&metadata["packages"])
        .iter()
        .filter(is_root)
        .map(|package| string(&package["id"]))
        .collect();
    let mut used = BTreeSet::new();
    while let Some(id) = open.pop() {
        if !used.insert(id) {
            continue;
        }
        let dependencies = nodes.get(id).map(|node| array(&node["deps"]));
        for dependency in dependencies.unwrap_or_default() {
            let kinds = array(&dependency["dep_kinds"]);
            if kinds.iter().any(|kind| kind["kind"].is_null()) {
                open.push(string(&dependency["pkg"]));
            }
        }
    }
    used
}

/// Returns the files of a crate that have a licence or a notice, in order.
fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).context(directory.display())? {
        let entry = entry.context(directory.display())?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        let starts = [
            "LICENSE",
            "LICENCE",
            "COPYING",
            "NOTICE",
            "COPYRIGHT",
            "UNLICENSE",
        ];
        if starts.iter().any(|start| name.starts_with(start)) && entry.path().is_file() {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
