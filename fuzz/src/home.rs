//! A namespace for the inputs of one process.

use std::path::{Path, PathBuf};
use tempfile::TempDir;
use umsg::Namespace;

/// A directory in memory, below `UMSG_FUZZ_DIR` if the variable is set: a fuzzer ends without removing its directory, so its caller removes it.
pub struct Home {
    directory: TempDir,
    pub(crate) namespace: Namespace,
}

impl Home {
    #[allow(clippy::new_without_default, reason = "it makes files")]
    pub fn new() -> Home {
        let parent = std::env::var_os("UMSG_FUZZ_DIR").unwrap_or_else(|| "/dev/shm".into());
        let directory = tempfile::Builder::new()
            .prefix("umsg-fuzz-")
            .tempdir_in(parent)
            .expect("a directory in memory");
        let namespace = Namespace::at(directory.path()).expect("a namespace");
        Home {
            directory,
            namespace,
        }
    }

    /// Returns the path of a file of the namespace.
    pub(crate) fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.directory.path().join(below)
    }
}
