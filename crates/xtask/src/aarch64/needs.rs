//! The programs and files that the machine requires.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{COMPILER, TARGET, fetch};
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::workspace::Workspace;

/// The programs that this task runs, each with Debian's package of it.
const PROGRAMS: [(&str, &str); 2] = [
    ("qemu-system-aarch64", "qemu-system-arm"),
    (COMPILER, "gcc-aarch64-linux-gnu"),
];

/// The programs that fetch and unpack Debian's kernel and BusyBox.
const OF_DEBIAN: [(&str, &str); 2] = [("apt-get", "apt"), ("dpkg-deb", "dpkg")];

/// The libraries that the programs of the machine load. The C compiler knows where they are.
pub const LIBRARIES: [&str; 8] = [
    "ld-linux-aarch64.so.1",
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
    "libutil.so.1",
];

/// Fails if anything is missing, and says how to install all of it.
pub fn check(workspace: &Workspace) -> Result<()> {
    let mut packages: Vec<&str> = Vec::new();
    let mut programs = PROGRAMS.to_vec();
    if !fetch::is_done(workspace) {
        programs.extend(OF_DEBIAN);
    }
    for (program, package) in programs {
        if !runs(program) {
            packages.push(package);
        }
    }
    if !runs(COMPILER) || library("libc.so.6").is_none() || library("crt1.o").is_none() {
        packages.push("libc6-dev-arm64-cross");
    }
    let mut remedies = Vec::new();
    if !packages.is_empty() {
        remedies.push(format!("apt-get install {}", packages.join(" ")));
    }
    if !has_target(workspace)? {
        remedies.push(format!("rustup target add {TARGET}"));
    }
    match remedies.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(format!(
            "the emulated machine needs more than is installed here. Install it: {}",
            remedies.join(" && ")
        ))),
    }
}

fn runs(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok()
}

fn has_target(workspace: &Workspace) -> Result<bool> {
    let mut ask = workspace.command("rustc");
    ask.args(["--print", "target-libdir", "--target", TARGET]);
    let output = interrupt::output(&mut ask)?;
    let directory = String::from_utf8_lossy(&output.stdout);
    Ok(Path::new(directory.trim()).is_dir())
}

/// Returns the path of a file of the cross compiler's C library.
pub fn library(name: &str) -> Option<PathBuf> {
    let mut ask = Command::new(COMPILER);
    ask.arg(format!("-print-file-name={name}"));
    let output = ask.stderr(Stdio::null()).output().ok()?;
    // If there is no such file, the compiler prints the bare name.
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    path.is_absolute().then_some(path)
}
