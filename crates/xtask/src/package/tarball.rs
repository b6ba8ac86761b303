//! The archive for any Linux: the command and the bridge as static programs, and a drop-in for each C library.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::build;
use super::portable::{self, Zig};
use super::tree::{Tree, succeed};
use super::{Build, Files, GLIBC, VERSION, licences, versions};
use crate::dist;
use crate::failure::{Context as _, Failure, Result};
use crate::steps::Steps;
use crate::workspace::Workspace;

/// Builds the programs and the archive.
pub fn make(workspace: &Workspace, files: &mut Files, steps: &mut Steps) -> Result<()> {
    if !cfg!(target_arch = "x86_64") {
        return Err(Failure::new("the archive is built on x86-64 only"));
    }
    let umsg = portable::static_command(workspace, steps)?;
    let bridge = portable::static_bridge(workspace, steps)?;
    let for_musl = portable::drop_in_for_musl(workspace, steps)?;
    let for_glibc = drop_in_for_glibc(workspace, steps)?;
    println!("\n==> tarball: archive");
    let name = format!("umsg-{VERSION}-linux-x86_64");
    let staging = super::directory(workspace).join("tarball");
    let tree = Tree::new(staging.join(&name))?;
    tree.stripped(&umsg, "bin/umsg", "--strip-all")?;
    tree.stripped(&bridge, "bin/umsg-bridge", "--strip-all")?;
    for (library, installed) in [
        (&for_glibc, "lib/umsg/libumsg_preload.so"),
        (&for_musl, "lib/umsg/musl/libumsg_preload.so"),
    ] {
        tree.stripped(library, installed, "--strip-unneeded")?;
    }
    let oldest = versions::check("objdump", &tree.root.join("lib/umsg/libumsg_preload.so"))?;
    add_texts(workspace, &tree, (&umsg, &bridge), oldest)?;
    pack(workspace, &staging, &name, files)
}

/// Builds the drop-in for glibc, linked against the symbols of the oldest version. Returns the path of the drop-in.
fn drop_in_for_glibc(workspace: &Workspace, steps: &mut Steps) -> Result<PathBuf> {
    let zig = Zig::install(workspace, steps)?;
    let build = Build::new(workspace, "build-glibc", Some(GLIBC))?;
    let mut command = zig.of(&build, GLIBC, &["umsg-preload"])?;
    steps.need("drop-in for glibc", &mut command)?;
    Ok(build.file("libumsg_preload.so"))
}

/// Adds manual pages, completions, licences, and instructions for the installation.
fn add_texts(
    workspace: &Workspace,
    tree: &Tree,
    (umsg, bridge): (&Path, &Path),
    (major, minor): versions::Version,
) -> Result<()> {
    let pages = tree.root.join("share/man/man1");
    // The command's page of `umsg bridge` replaces that of the program.
    succeed(Command::new(bridge).arg("man").arg(&pages))?;
    succeed(Command::new(umsg).arg("man").arg(&pages))?;
    for page in tree.files()? {
        if page.starts_with("share/man/") {
            tree.file(&tree.root.join(&page), &page)?;
        }
    }
    for (shell, file) in dist::COMPLETIONS {
        tree.write(file, dist::completions(workspace, umsg, shell)?)?;
        let of_bridge = file.replace("umsg", "umsg-bridge");
        tree.write(&of_bridge, dist::completions(workspace, bridge, shell)?)?;
    }
    let packaging = workspace.root.join("packaging");
    tree.program(&packaging.join("tarball/install.sh"), "install.sh")?;
    let readme = packaging.join("tarball/README");
    let readme = fs::read_to_string(&readme).context(readme.display())?;
    let readme = readme
        .replace("@version@", VERSION)
        .replace("@machine@", "x86-64")
        .replace("@glibc@", &format!("{major}.{minor}"));
    tree.write("README", readme)?;
    let documents = "share/doc/umsg";
    for name in ["LICENSE-APACHE", "LICENSE-MIT", "CHANGELOG.md", "README.md"] {
        tree.file(&workspace.root.join(name), &format!("{documents}/{name}"))?;
    }
    for unit in ["umsg-gc.service", "umsg-gc.timer"] {
        let from = packaging.join("systemd").join(unit);
        tree.file(&from, &format!("{documents}/systemd/{unit}"))?;
    }
    for name in ["umsg-bridge.service", "umsg-bridge.sysusers", "bridge.toml"] {
        let from = packaging.join("systemd").join(name);
        tree.file(&from, &format!("{documents}/bridge/{name}"))?;
    }
    let licences = licences::text(workspace, &["umsg-cli", "umsg-preload", "umsg-bridge"])?;
    tree.write(&format!("{documents}/third-party.txt"), licences)
}

fn pack(workspace: &Workspace, staging: &Path, name: &str, files: &mut Files) -> Result<()> {
    let archive = files.directory.join(format!("{name}.tar"));
    let mut tar = Command::new("tar");
    tar.args(["--create", "--format=ustar", "--sort=name"])
        .args(["--owner=0", "--group=0", "--numeric-owner"])
        .arg(format!("--mtime=@{}", build::epoch(workspace)?))
        .arg("--file")
        .arg(&archive)
        .arg("--directory")
        .arg(staging)
        .arg(name);
    succeed(&mut tar)?;
    succeed(Command::new("gzip").args(["-9", "--no-name"]).arg(&archive))?;
    files.add(format!("{name}.tar.gz"));
    Ok(())
}
