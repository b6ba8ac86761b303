//! The refusal of Python without the global interpreter lock.
//!
//! A wheel for the stable interface does not fit an interpreter without that lock, so pip builds the module from source.

use std::fs;

use super::Package;
use crate::failure::{Context as _, Failure, Result};
use crate::interrupt;

/// An interpreter that is not installed, as PyO3 describes it.
const INTERPRETER: &str = "\
implementation=CPython
version=3.14
shared=true
build_flags=Py_GIL_DISABLED
";

/// The error of `python/rust/gil.rs`.
const REFUSAL: &str = "umsg does not support free-threaded Python";

/// Fails if the module compiles for an interpreter without the global interpreter lock, or fails to compile with another error.
pub fn check(package: &Package) -> Result<()> {
    println!("\n==> free-threaded Python is refused");
    let directory = package.directory.join("free-threaded");
    fs::create_dir_all(&directory).context(directory.display())?;
    let file = directory.join("interpreter.txt");
    fs::write(&file, INTERPRETER).context(file.display())?;
    let mut check = package.workspace.cargo(&["check", "--locked"]);
    check.arg("--manifest-path");
    check.arg(package.source.join("Cargo.toml"));
    check.arg("--target-dir").arg(&directory);
    let output = interrupt::output(check.env("PYO3_CONFIG_FILE", &file))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    match errors.contains(REFUSAL) {
        true => Ok(()),
        false => Err(Failure::new(format!(
            "the build for free-threaded Python does not end with \"{REFUSAL}\":\n{errors}"
        ))),
    }
}
