//! A namespace for one test.

use std::ffi::OsStr;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Returns the names of the directories of IPC namespaces in a namespace's directory.
pub fn ipc_directories(namespace: &Path) -> Vec<String> {
    let entries = namespace.read_dir().unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains("ipc-"))
        .collect()
}

/// A directory in /dev/shm for the queues of one test. It is removed when the value is dropped.
#[derive(Debug)]
pub struct TestNamespace(TempDir);

impl TestNamespace {
    /// Makes a directory with mode 0700, like a user's own namespace. The directory's name begins with `prefix`.
    pub fn new(prefix: &str) -> TestNamespace {
        let mut builder = tempfile::Builder::new();
        builder
            .prefix(prefix)
            .permissions(Permissions::from_mode(0o700));
        TestNamespace(builder.tempdir_in("/dev/shm").unwrap())
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns a command that will run a program in this namespace.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("UMSG_DIR", self.path());
        command
    }

    /// Returns the names of the queues, rings and poll FIFOs.
    pub fn queues(&self) -> Vec<String> {
        let directories = ["bell", "mq", "msg", "ring"].map(|kind| self.path().join(kind));
        let entries = directories.iter().flat_map(|kind| kind.read_dir());
        entries
            .flatten()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !name.starts_with('.'))
            .collect()
    }
}
