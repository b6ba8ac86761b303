//! A directory for one run.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// A directory that is removed with its contents when this value is dropped. Reports a failed removal.
pub struct Directory(PathBuf);

impl Directory {
    /// Creates a private directory in `parent` whose name begins with `prefix`.
    pub fn new(parent: &Path, prefix: &str) -> Result<Self, Failure> {
        tempfile::Builder::new()
            .prefix(prefix)
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(parent)
            .map(|made| Self(made.keep()))
            .map_err(|error| {
                let parent = parent.display();
                Failure::new(format!("cannot make a directory in {parent}: {error}"))
            })
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("umsg-bench: {} was not removed: {error}", self.0.display());
        }
    }
}
