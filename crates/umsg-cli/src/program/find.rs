//! Finds the file of a program. Source: execvp(3).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD};

use super::{Fault, Kind};

/// The search path if PATH is not set. Source: execvp(3).
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Returns the named file if the name has a slash. Otherwise returns the first executable file of this name in the directories of PATH.
pub fn find(name: impl AsRef<OsStr>) -> Result<PathBuf, Fault> {
    let name = name.as_ref();
    if name.is_empty() {
        return Err(Kind::NotFound.of(name));
    }
    if name.as_bytes().contains(&b'/') {
        return executable(PathBuf::from(name));
    }
    let path = std::env::var_os("PATH").unwrap_or(DEFAULT_PATH.into());
    let mut fault = Kind::NotFound.of(name);
    for directory in std::env::split_paths(&path) {
        match executable(candidate(&directory, name)) {
            Ok(found) => return Ok(found),
            // The search continues, because a later directory may have an executable file of this name.
            Err(found) if matches!(found.kind, Kind::NotExecutable) => fault = found,
            Err(_) => {}
        }
    }
    Err(fault)
}

/// Returns the path of a program in a directory of PATH. An empty entry of PATH is the working directory. The path always has a slash, so that
/// execvp(3) does not search PATH again.
fn candidate(directory: &Path, name: &OsStr) -> PathBuf {
    match directory.as_os_str().is_empty() {
        true => Path::new(".").join(name),
        false => directory.join(name),
    }
}

fn executable(path: PathBuf) -> Result<PathBuf, Fault> {
    let Ok(metadata) = path.metadata() else {
        return Err(Kind::NotFound.of(path));
    };
    if !metadata.is_file() {
        return Err(Kind::NotAFile.of(path));
    }
    match rustix::fs::accessat(CWD, &path, Access::EXEC_OK, AtFlags::EACCESS) {
        Ok(()) => Ok(path),
        Err(_) => Err(Kind::NotExecutable.of(path)),
    }
}
