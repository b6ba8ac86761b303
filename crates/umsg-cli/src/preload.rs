//! Finds the drop-in libraries, chooses the one for a program, and computes the value of LD_PRELOAD.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::failure::{Code, Failure, Result};
use crate::program::elf::{self, Elf, Libc};

const FILE: &str = "libumsg_preload.so";
const VARIABLE: &str = "UMSG_PRELOAD";
const NAME_IT: &str = "set UMSG_PRELOAD to libumsg_preload.so";

/// A drop-in library, its machine and its C library.
pub struct Library {
    path: PathBuf,
    pub elf: Elf,
}

impl Library {
    /// Returns the value of LD_PRELOAD with the library appended.
    pub fn appended(&self) -> OsString {
        append(std::env::var_os("LD_PRELOAD").as_deref(), &self.path)
    }
}

/// The drop-in libraries of this installation: one library, or one for each C library.
pub struct Libraries {
    first: Library,
    others: Vec<Library>,
}

impl Libraries {
    /// Returns the library for programs of a C library. If no library is for this C library, returns the first one.
    pub fn suited_to(&self, libc: Option<Libc>) -> &Library {
        let mut all = [&self.first].into_iter().chain(&self.others);
        let suited = all.find(|library| libc.is_some() && library.elf.libc() == libc);
        suited.unwrap_or(&self.first)
    }
}

/// Finds the libraries: the file that `$UMSG_PRELOAD` names, or else the libraries in the [`places`] of an installation.
pub fn find() -> Result<Libraries> {
    let paths = match std::env::var_os(VARIABLE).filter(|named| !named.is_empty()) {
        Some(named) => vec![PathBuf::from(named)],
        None => installed()?,
    };
    let mut libraries = paths.iter().map(|path| library(path));
    let first = libraries.next().unwrap_or_else(|| Err(missing(&[])))?;
    Ok(Libraries {
        first,
        // The first library must be usable. A further library that is unusable is skipped.
        others: libraries.filter_map(Result::ok).collect(),
    })
}

fn library(path: &Path) -> Result<Library> {
    let refuse =
        |why: &str| Failure::new(Code::NotPrepared, format_args!("{}: {why}", path.display()));
    // The path is absolute, because the program may change its working directory.
    let path = std::path::absolute(path).map_err(|error| refuse(&error.to_string()))?;
    if path
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|&byte| is_separator(byte))
    {
        return Err(refuse(
            "LD_PRELOAD can't hold a path with a space or a colon; install umsg elsewhere",
        ));
    }
    let elf = elf::read(&path).map_err(|error| refuse(&format!("{error}; {NAME_IT}")))?;
    match usable(elf) {
        Ok(elf) => Ok(Library { path, elf }),
        Err(why) => Err(refuse(&format!("{why}; {NAME_IT}"))),
    }
}

/// Checks the file. Without this check, the dynamic linker would skip an unusable library with only a warning.
fn usable(elf: Option<Elf>) -> Result<Elf, String> {
    let Some(elf) = elf.filter(|elf| elf.is_shared) else {
        return Err("not a shared library".to_owned());
    };
    let own = elf::read(Path::new("/proc/self/exe")).ok().flatten();
    match own {
        Some(own) if own.machine != elf.machine => Err(format!(
            "the library is for {}, and this umsg is for {}",
            elf.machine, own.machine
        )),
        _ if elf.interpreter.is_some() => Err("a program, not a shared library".to_owned()),
        _ => Ok(elf),
    }
}

fn installed() -> Result<Vec<PathBuf>> {
    let program = std::env::current_exe().unwrap_or_default();
    let places = places(&program);
    let there: Vec<PathBuf> = places
        .iter()
        .filter(|path| path.exists())
        .cloned()
        .collect();
    match there.is_empty() {
        true => Err(missing(&places)),
        false => Ok(there),
    }
}

fn missing(places: &[PathBuf]) -> Failure {
    let looked: Vec<String> = places
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let looked = looked.join(" nor at ");
    let line = format!("{FILE} is neither at {looked}; set {VARIABLE} to its path");
    Failure::new(Code::NotPrepared, line)
}

/// Returns the files at which an installation may have the drop-in: in this program's directory, in `../lib`, in the directory of a package, and in
/// its sub-directory for programs of musl.
fn places(program: &Path) -> [PathBuf; 4] {
    let beside = program.parent().unwrap_or(Path::new("/"));
    let lib = beside.parent().unwrap_or(Path::new("/")).join("lib");
    let package = lib.join("umsg");
    [
        beside.join(FILE),
        lib.join(FILE),
        package.join(FILE),
        package.join("musl").join(FILE),
    ]
}

/// Appends the library to a value of LD_PRELOAD. If the value already has the library, as in a nested `umsg run`, the value stays unchanged.
fn append(before: Option<&OsStr>, library: &Path) -> OsString {
    let mut value = before.unwrap_or_default().to_owned();
    let named = value.as_bytes().split(|&byte| is_separator(byte));
    if named
        .into_iter()
        .any(|path| path == library.as_os_str().as_bytes())
    {
        return value;
    }
    if !value.is_empty() {
        value.push(":");
    }
    value.push(library);
    value
}

/// Returns whether a character separates the entries of LD_PRELOAD. Source: ld.so(8).
fn is_separator(byte: u8) -> bool {
    matches!(byte, b' ' | b':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_stands_behind_others_and_only_once() {
        let appended = |before: &str| append(Some(OsStr::new(before)), Path::new("/l/u.so"));
        assert_eq!(append(None, Path::new("/l/u.so")), "/l/u.so");
        assert_eq!(appended(""), "/l/u.so");
        assert_eq!(appended("/a.so /b.so"), "/a.so /b.so:/l/u.so");
        assert_eq!(appended("/l/u.so:/a.so"), "/l/u.so:/a.so");
        assert_eq!(appended("/l/u.so.1"), "/l/u.so.1:/l/u.so");
    }

    #[test]
    fn a_package_has_a_directory_for_its_libraries() {
        let names = places(Path::new("/usr/bin/umsg")).map(|path| path.display().to_string());
        assert_eq!(
            names,
            [
                "/usr/bin/libumsg_preload.so",
                "/usr/lib/libumsg_preload.so",
                "/usr/lib/umsg/libumsg_preload.so",
                "/usr/lib/umsg/musl/libumsg_preload.so",
            ]
        );
    }
}
