//! The crates, packed and checked as for crates.io.

use std::fs;

use super::{Files, VERSION};
use crate::failure::{Context as _, Result};
use crate::steps::Steps;
use crate::workspace::Workspace;

/// The published crates. Each crate needs only crates before it in the list.
pub const CRATES: [&str; 7] = [
    "umsg-shm",
    "umsg",
    "umsg-carry",
    "umsg-trace",
    "umsg-preload",
    "umsg-cli",
    "umsg-bridge",
];

/// Packs the crates. Unless `quick`, compiles them from the packed files.
pub fn make(
    workspace: &Workspace,
    quick: bool,
    files: &mut Files,
    steps: &mut Steps,
) -> Result<()> {
    // A separate directory, because cargo locks the directory of other builds.
    let target = super::directory(workspace).join("build-crates");
    let cargo = |arguments: &[&str]| {
        let mut cargo = workspace.cargo(arguments);
        cargo.args(["--locked", "--allow-dirty"]);
        for name in CRATES {
            cargo.args(["--package", name]);
        }
        cargo.env("CARGO_TARGET_DIR", &target);
        cargo
    };
    let mut publish = cargo(&["publish", "--dry-run"]);
    if quick {
        publish.arg("--no-verify");
    }
    steps.need("crates: cargo publish --dry-run", &mut publish)?;
    // The dry run keeps no files.
    let mut pack = cargo(&["package", "--quiet", "--no-verify"]);
    steps.need("crates: cargo package", &mut pack)?;
    for name in CRATES {
        let name = format!("{name}-{VERSION}.crate");
        let packed = target.join("package").join(&name);
        let package = files.add(name);
        fs::copy(&packed, package).context(packed.display())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::package::build;

    /// The categories of crates.io that the crates use. Source: crates.io/category_slugs.
    const CATEGORIES: [&str; 6] = [
        "os::linux-apis",
        "concurrency",
        "command-line-utilities",
        "asynchronous",
        "network-programming",
        "no-std",
    ];

    #[test]
    fn each_published_crate_describes_itself() {
        let workspace = Workspace::find().unwrap();
        let mut metadata = workspace.cargo(&["metadata", "--no-deps", "--format-version", "1"]);
        let metadata = build::text(&mut metadata).unwrap();
        let metadata: Value = serde_json::from_str(&metadata).unwrap();
        let packages = metadata["packages"].as_array().unwrap();
        let mut published = 0;
        for package in packages {
            // An empty list means `publish = false`.
            let is_private = package["publish"].as_array().is_some_and(Vec::is_empty);
            let name = package["name"].as_str().unwrap();
            assert_eq!(!is_private, CRATES.contains(&name), "{name}");
            if is_private {
                continue;
            }
            published += 1;
            for field in [
                "description",
                "license",
                "readme",
                "documentation",
                "rust_version",
            ] {
                assert!(package[field].is_string(), "{name} has no {field}");
            }
            let keywords = package["keywords"].as_array().unwrap();
            assert!((1..=5).contains(&keywords.len()), "{name}: {keywords:?}");
            let categories = package["categories"].as_array().unwrap();
            assert!(!categories.is_empty(), "{name} has no category");
            for category in categories {
                assert!(CATEGORIES.contains(&category.as_str().unwrap()), "{name}");
            }
            assert!(package["metadata"]["docs"]["rs"].is_object(), "{name}");
            // crates.io does not accept a dependency that has a path and no version.
            for dependency in package["dependencies"].as_array().unwrap() {
                let is_normal = dependency["kind"].is_null();
                let has_version = dependency["req"] != "*";
                assert!(has_version || !is_normal, "{name}: {dependency}");
            }
        }
        assert_eq!(published, CRATES.len());
    }
}
