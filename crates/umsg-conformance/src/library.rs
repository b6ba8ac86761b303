//! Finds the drop-in and the C library of this checkout, built with the same cargo profile as this program.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The names of the two library files.
const NAME: &str = "libumsg_preload.so";
const C_NAME: &str = "libumsg.so";

/// Returns the directory of this program's cargo profile: `target/debug` or `target/release`.
fn profile_directory() -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let directory = program.parent().ok_or("a program without a directory")?;
    let is_deps = directory.file_name().is_some_and(|name| name == "deps");
    let directory = if is_deps {
        directory.parent().unwrap_or(directory)
    } else {
        directory
    };
    Ok(directory.to_path_buf())
}

/// Returns the name of the cargo profile that builds into `directory`, and the path of the target directory.
fn profile(directory: &Path) -> Result<(&str, &Path), String> {
    let profile = match directory.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(profile) => profile,
    };
    let target = directory.parent();
    Ok((
        profile,
        target.ok_or("a profile without a target directory")?,
    ))
}

/// Runs cargo if cargo started this program. Otherwise does nothing.
fn cargo(arguments: &[&OsStr], target: &Path, what: &str) -> Result<(), String> {
    let Some(cargo) = std::env::var_os("CARGO") else {
        return Ok(());
    };
    let built = Command::new(cargo)
        .args(arguments)
        .env("CARGO_TARGET_DIR", target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .map_err(|error| format!("cargo: {error}"))?;
    if built.status.success() {
        return Ok(());
    }
    Err(format!(
        "{what} can't be built:\n{}",
        String::from_utf8_lossy(&built.stderr)
    ))
}

/// Makes cargo rebuild the drop-in if its sources have changed.
fn build(directory: &Path) -> Result<(), String> {
    let (profile, target) = profile(directory)?;
    let build = [
        "build",
        "--quiet",
        "--package",
        "umsg-preload",
        "--profile",
        profile,
    ];
    cargo(&build.map(OsStr::new), target, "the drop-in")
}

fn find() -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os("UMSG_PRELOAD_LIBRARY") {
        return Ok(path.into());
    }
    let directory = profile_directory()?;
    build(&directory)?;
    existing(directory.join(NAME))
}

fn existing(library: PathBuf) -> Result<PathBuf, String> {
    if library.exists() {
        Ok(library)
    } else {
        Err(format!("{}: no such file", library.display()))
    }
}

/// Returns the path of the drop-in: the value of `UMSG_PRELOAD_LIBRARY`, or the library of this profile, which cargo rebuilds if necessary.
///
/// # Errors
/// The reason why the library was not found or built.
pub fn path() -> Result<&'static Path, String> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    FOUND.get_or_init(find).as_deref().map_err(Clone::clone)
}

/// Installs the C library in a subdirectory of the profile's directory, and returns the path of the subdirectory.
fn install_c() -> Result<PathBuf, String> {
    let directory = profile_directory()?;
    let (profile, target) = profile(&directory)?;
    let prefix = directory.join("c-prefix");
    let install = ["run", "--quiet", "--package", "xtask", "--", "c-install"];
    let mut arguments: Vec<&OsStr> = install.iter().map(OsStr::new).collect();
    arguments.push(prefix.as_os_str());
    if profile == "dev" {
        arguments.push(OsStr::new("--debug"));
    }
    cargo(&arguments, target, "the C library")?;
    Ok(prefix)
}

fn find_c() -> Result<PathBuf, String> {
    let prefix = match std::env::var_os("UMSG_C_PREFIX") {
        Some(prefix) => prefix.into(),
        None => install_c()?,
    };
    existing(prefix.join("lib").join(C_NAME))
}

/// Returns the path of the C library: the library below `UMSG_C_PREFIX`, or the library of this profile, which cargo installs in the profile's
/// directory.
///
/// # Errors
/// The reason why the library was not found or built.
pub fn c_path() -> Result<&'static Path, String> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    FOUND.get_or_init(find_c).as_deref().map_err(Clone::clone)
}
