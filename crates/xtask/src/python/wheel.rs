//! The wheel: the native module, and the parts that maturin does not add: the command, the drop-in, and the licences of all compiled libraries.
//!
//! The command is a script of the wheel, so it becomes `bin/umsg` of an environment. The drop-in becomes `lib/umsg/libumsg_preload.so`,
//! where the command finds it.

use std::fs;
use std::path::{Path, PathBuf};

use super::environment::Environment;
use super::{Package, VERSION, empty, only};
use crate::failure::{Context as _, Failure, Result};
use crate::package::{Build, Tree, epoch, licences, succeed};
use crate::steps::Steps;

/// The file with the licences of other libraries. A line of the metadata names the file.
const LICENCES: &str = "THIRD-PARTY.txt";

/// The programs that a wheel gets.
pub struct Added {
    pub command: PathBuf,
    pub drop_in: PathBuf,
}

impl Added {
    /// Returns the programs of a build.
    pub fn of(build: &Build) -> Self {
        Self {
            command: build.file("umsg"),
            drop_in: build.file("libumsg_preload.so"),
        }
    }
}

/// Builds the native module for this machine, as a wheel without the command.
pub fn build(
    package: &Package,
    environment: &Environment,
    source: &Path,
    profile: &str,
    steps: &mut Steps,
) -> Result<PathBuf> {
    let bare = package.directory.join("bare");
    empty(&bare)?;
    let mut build = environment.command("maturin");
    build.current_dir(source);
    build.args(["build", "--locked", "--profile", profile]);
    build
        .arg("--interpreter")
        .arg(environment.program("python"));
    build.arg("--out").arg(&bare);
    build
        .arg("--target-dir")
        .arg(package.directory.join("build"));
    steps.need("wheel: native module", &mut build)?;
    only(&bare, ".whl")
}

/// Unpacks a wheel. `tools` is the beginning of the names of the tools for its processor.
pub fn unpack(
    package: &Package,
    environment: &Environment,
    wheel: &Path,
    tools: &str,
) -> Result<Tree> {
    let unpacked = package.directory.join("unpacked");
    empty(&unpacked)?;
    let mut unpack = environment.module("wheel", &["unpack", "--dest"]);
    succeed(unpack.arg(&unpacked).arg(wheel))?;
    let root = unpacked.join(format!("umsg-{VERSION}"));
    Ok(Tree::with_tools(root, tools))
}

/// Writes a wheel with the contents of another one and the added programs, and returns its path.
pub fn complete(
    package: &Package,
    environment: &Environment,
    bare: &Path,
    added: &Added,
    tools: &str,
    files: &Path,
) -> Result<PathBuf> {
    let tree = unpack(package, environment, bare, tools)?;
    let name = format!("umsg-{VERSION}");
    let data = format!("{name}.data");
    tree.stripped(
        &added.command,
        &format!("{data}/scripts/umsg"),
        "--strip-all",
    )?;
    let drop_in = format!("{data}/data/lib/umsg/libumsg_preload.so");
    tree.stripped(&added.drop_in, &drop_in, "--strip-unneeded")?;
    add_licences(package, &tree, &format!("{name}.dist-info"))?;
    let made = package.directory.join("made");
    empty(&made)?;
    let mut pack = environment.module("wheel", &["pack", "--dest-dir"]);
    pack.arg(&made).arg(&tree.root);
    succeed(pack.env("SOURCE_DATE_EPOCH", epoch(package.workspace)?))?;
    let wheel = only(&made, ".whl")?;
    let to = files.join(wheel.file_name().unwrap_or_default());
    fs::rename(&wheel, &to).context(wheel.display())?;
    Ok(to)
}

/// Adds the licences of the libraries that the module, the command and the drop-in contain.
fn add_licences(package: &Package, tree: &Tree, information: &str) -> Result<()> {
    let python = package.source.join("Cargo.toml");
    let programs = licences::of(package.workspace, None, &["umsg-cli", "umsg-preload"])?;
    let module = licences::of(package.workspace, Some(&python), &["umsg-python"])?;
    let text = licences::merged([programs, module]);
    tree.write(&format!("{information}/licenses/{LICENCES}"), text)?;
    let file = format!("{information}/METADATA");
    let metadata = tree.root.join(&file);
    let metadata = fs::read_to_string(&metadata).context(metadata.display())?;
    // The fields end at the first empty line; the description follows.
    let Some((fields, description)) = metadata.split_once("\n\n") else {
        return Err(Failure::new(format!("{file} has no description")));
    };
    tree.write(
        &file,
        format!("{fields}\nLicense-File: {LICENCES}\n\n{description}"),
    )
}
