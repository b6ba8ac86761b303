//! The installation of the C library: below a prefix, with header, pkg-config file and manual.
//!
//! ```text
//! lib/libumsg.so -> libumsg.so.0 -> libumsg.so.0.1.0
//! lib/libumsg.a
//! lib/pkgconfig/umsg.pc
//! include/umsg.h, include/umsg/mqueue.h, include/umsg/msg.h, include/umsg/ring.h
//! share/man/man3/umsg_*.3
//! ```
//!
//! rustc passes its own version script for a cdylib, and the linker takes only one. So cargo builds an archive, and the C compiler links it
//! with the project's script.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{header, manual};
use crate::failure::{Context as _, Failure, Result};
use crate::interrupt;
use crate::shell;
use crate::workspace::Workspace;

/// The libraries of the system that Rust's standard library needs, as `rustc --print native-static-libs` says. A C compiler adds libgcc
/// itself, the shared or the static one: so umsg.pc.in does not name libgcc_s.
const SYSTEM_LIBRARIES: [&str; 6] = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"];

/// The places of the files of an installation.
pub struct Layout<'a> {
    /// The directory below which all files are written.
    pub root: &'a Path,
    /// The directory of libraries, below `root`: `lib`, or Debian's `lib/x86_64-linux-gnu`.
    pub libraries: &'a str,
    /// The directory of the installed files, as the file for pkg-config names it.
    pub prefix: &'a str,
    /// The C compiler that links the shared library.
    pub compiler: OsString,
}

/// Builds the library and installs everything below `prefix`.
pub fn install(workspace: &Workspace, prefix: &Path, release: bool) -> Result<()> {
    let mut build = workspace.cargo(&["build", "--quiet", "-p", "umsg-c"]);
    if release {
        build.arg("--release");
    }
    succeed(&mut build)?;
    install_built(workspace, prefix, release)
}

/// Installs everything below `prefix`, with the library that cargo has built already.
pub fn install_built(workspace: &Workspace, prefix: &Path, release: bool) -> Result<()> {
    let layout = Layout {
        root: prefix,
        libraries: "lib",
        // The installed directory may be moved, so the prefix is relative to the file for pkg-config.
        prefix: "${pcfiledir}/../..",
        compiler: compiler(),
    };
    let profile = if release { "release" } else { "debug" };
    let archive = workspace.target.join(profile).join("libumsg_c.a");
    lay_out(workspace, &archive, &layout)
}

/// Returns the C compiler that `CC` names, or else `cc`.
pub fn compiler() -> OsString {
    std::env::var_os("CC").unwrap_or_else(|| "cc".into())
}

/// Installs everything, from an archive that cargo has built.
pub fn lay_out(workspace: &Workspace, archive: &Path, layout: &Layout) -> Result<()> {
    let root = &workspace.root;
    let package = root.join("crates/umsg-c");
    let library = layout.root.join(layout.libraries);
    put(archive, &library.join("libumsg.a"))?;
    link(workspace, archive, &library, &layout.compiler)?;
    put(&header::path(root), &layout.root.join("include/umsg.h"))?;
    for names in [
        "include/umsg/mqueue.h",
        "include/umsg/msg.h",
        "include/umsg/ring.h",
    ] {
        put(&package.join(names), &layout.root.join(names))?;
    }
    let template = package.join("umsg.pc.in");
    let description = fs::read_to_string(&template).context(template.display())?;
    let description = description
        .replace("@version@", env!("CARGO_PKG_VERSION"))
        .replace("@prefix@", layout.prefix)
        .replace("@libraries@", layout.libraries);
    let fresh = library.join("pkgconfig/umsg.pc");
    replace(&fresh, |new| {
        fs::write(new, description).context(new.display())
    })?;
    manual::write(root, &layout.root.join("share/man/man3"))
}

/// Links the shared library, with its name and its versions of symbols, and makes the two names that lead to it.
fn link(workspace: &Workspace, archive: &Path, directory: &Path, compiler: &OsStr) -> Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let major = version.split('.').next().unwrap_or(version);
    let soname = format!("libumsg.so.{major}");
    let file = format!("libumsg.so.{version}");
    let map = workspace.root.join("crates/umsg-c/umsg.map");
    replace(&directory.join(&file), |new| {
        let mut link = workspace.command(compiler);
        link.arg("-shared")
            .arg("-o")
            .arg(new)
            .arg(format!("-Wl,-soname,{soname}"))
            .arg(joined("-Wl,--version-script=", &map))
            // dlclose must not unload the library: threads, and the handlers of fork, have addresses of its functions.
            .args([
                "-Wl,--gc-sections",
                "-Wl,-z,relro,-z,now,-z,defs,-z,nodelete",
            ])
            .arg("-Wl,--whole-archive")
            .arg(archive)
            .args(["-Wl,--no-whole-archive", "-Wl,--as-needed"])
            .args(SYSTEM_LIBRARIES);
        succeed(&mut link)
    })?;
    symlink(&file, &directory.join(&soname))?;
    symlink(&soname, &directory.join("libumsg.so"))
}

fn joined(option: &str, path: &Path) -> OsString {
    let mut argument = OsString::from(option);
    argument.push(path);
    argument
}

fn put(from: &Path, to: &Path) -> Result<()> {
    replace(to, |new| {
        fs::copy(from, new).context(from.display())?;
        Ok(())
    })
}

fn symlink(target: &str, name: &Path) -> Result<()> {
    replace(name, |new| {
        std::os::unix::fs::symlink(target, new).context(name.display())
    })
}

/// Writes a temporary file and renames it to its place, so that a program that uses the old file is not disturbed.
fn replace(file: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if let Some(directory) = file.parent() {
        fs::create_dir_all(directory).context(directory.display())?;
    }
    let mut new = file.as_os_str().to_owned();
    new.push(format!(".{}", std::process::id()));
    let new = PathBuf::from(new);
    make(&new)?;
    fs::rename(&new, file).context(file.display())
}

fn succeed(command: &mut Command) -> Result<()> {
    match interrupt::run(command)?.success() {
        true => Ok(()),
        false => Err(Failure::new(format!("{} failed", shell::line(command)))),
    }
}
