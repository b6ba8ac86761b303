//! Where the drop-in is: the library that this checkout builds, with the profile that this program was built with.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The file's name.
const NAME: &str = "libumsg_preload.so";

/// The directory of this profile: `target/debug`, `target/release`.
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

/// Has cargo bring the library up to date, when this program was itself started by cargo.
fn build(directory: &Path) -> Result<(), String> {
    let Some(cargo) = std::env::var_os("CARGO") else {
        return Ok(());
    };
    let profile = match directory.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(profile) => profile,
    };
    let target = directory
        .parent()
        .ok_or("a profile without a target directory")?;
    let built = Command::new(cargo)
        .args([
            "build",
            "--quiet",
            "--package",
            "umsg-preload",
            "--profile",
            profile,
            "--target-dir",
        ])
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .map_err(|error| format!("cargo: {error}"))?;
    if built.status.success() {
        return Ok(());
    }
    Err(format!(
        "the drop-in can't be built:\n{}",
        String::from_utf8_lossy(&built.stderr)
    ))
}

fn find() -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os("UMSG_PRELOAD_LIBRARY") {
        return Ok(path.into());
    }
    let directory = profile_directory()?;
    build(&directory)?;
    let library = directory.join(NAME);
    if library.exists() {
        Ok(library)
    } else {
        Err(format!("{}: no such file", library.display()))
    }
}

/// The path of the drop-in: `UMSG_PRELOAD_LIBRARY`, or the one of this profile, brought up to date by cargo.
///
/// # Errors
/// Why there is none.
pub fn path() -> Result<&'static Path, String> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    FOUND.get_or_init(find).as_deref().map_err(Clone::clone)
}
