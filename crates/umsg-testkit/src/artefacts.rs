//! Builds artefacts that cargo does not build for a test: the drop-in and the installed C library.

use crate::run::succeed;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Returns the directory in which the running test program was built: `<target>/<profile>`.
fn profile_directory() -> PathBuf {
    // <target>/<profile>/deps/<this program>
    let program = std::env::current_exe().unwrap();
    program.ancestors().nth(2).unwrap().to_owned()
}

fn target() -> PathBuf {
    profile_directory().parent().unwrap().to_owned()
}

/// Returns a command that runs cargo, in this workspace and its target directory.
fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("CARGO_TARGET_DIR", target());
    cargo
}

/// Makes and returns a directory below `<target>/tmp` for the artefacts of a crate's tests.
pub fn workshop(name: &str) -> PathBuf {
    let directory = target().join("tmp").join(name);
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

/// Returns the path of the drop-in. Uses the drop-in that `UMSG_PRELOAD_LIBRARY` names, or builds one in the profile of the test.
pub fn drop_in() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| match std::env::var_os("UMSG_PRELOAD_LIBRARY") {
        Some(path) => path.into(),
        None => build_drop_in(),
    })
}

/// Builds the drop-in in the profile of the test.
fn build_drop_in() -> PathBuf {
    let directory = profile_directory();
    let profile = match directory.file_name().unwrap().to_str().unwrap() {
        "debug" => "dev",
        profile => profile,
    };
    let build = ["build", "--quiet", "--package", "umsg-preload", "--profile"];
    succeed(cargo().args(build).arg(profile));
    directory.join("libumsg_preload.so")
}

/// Returns the prefix below which the C library is installed: the value of `UMSG_C_PREFIX`. Without this variable, first installs the library in a
/// directory of the tests.
pub fn c_prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| match std::env::var_os("UMSG_C_PREFIX") {
        Some(prefix) => prefix.into(),
        None => install_c_library(),
    })
}

fn install_c_library() -> PathBuf {
    let prefix = workshop("umsg-c").join("prefix");
    let mut install = cargo();
    install
        .args(["run", "--quiet", "--package", "xtask", "--", "c-install"])
        .arg(&prefix);
    if cfg!(debug_assertions) {
        install.arg("--debug");
    }
    succeed(&mut install);
    prefix
}
