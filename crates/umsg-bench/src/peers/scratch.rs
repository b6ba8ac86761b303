//! A directory for the files of peers, and the name prefix of the files that peers leave in `/dev/shm`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::directory::Directory;
use crate::failure::Failure;

/// The directory in which shared memory objects have their names.
const SHARED: &str = "/dev/shm";

/// The directory for the peers' files of one run.
#[derive(Clone)]
pub struct Scratch(PathBuf);

/// The drop of this value removes the directory with its contents, and all shared memory with the same prefix. The supervisor owns the value,
/// because it outlives all other processes.
pub struct Owned {
    scratch: Scratch,
    _directory: Directory,
}

impl Owned {
    /// Makes the directory in the system's directory for temporary files, for this user alone.
    pub fn new() -> Result<Self, Failure> {
        let directory = Directory::new(&std::env::temp_dir(), "umsg-b-")?;
        Ok(Self {
            scratch: Scratch(directory.path().to_owned()),
            _directory: directory,
        })
    }

    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        sweep(&self.scratch.prefix());
    }
}

impl Scratch {
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns a name that no other file has, in this directory or in `/dev/shm`.
    pub fn fresh_name(&self) -> String {
        // Relaxed: each caller only needs a unique number.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        format!("{}{number}-", self.prefix())
    }

    fn prefix(&self) -> String {
        let name = self.0.file_name().unwrap_or_default();
        format!("{}-", name.to_string_lossy())
    }
}

/// Removes all shared memory with this prefix.
pub fn sweep(prefix: &str) {
    let Ok(entries) = fs::read_dir(SHARED) else {
        return;
    };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            // Another process that sweeps may have removed the file already.
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_peers_leave_goes_with_the_directory_and_what_others_have_stays() {
        let (scratch, other) = (Owned::new().unwrap(), Owned::new().unwrap());
        let [left, kept] =
            [&scratch, &other].map(|owned| Path::new(SHARED).join(owned.scratch().fresh_name()));
        let inside = scratch.scratch().path().join("server").join("log");
        fs::create_dir(inside.parent().unwrap()).unwrap();
        for file in [&left, &kept, &inside] {
            fs::write(file, "").unwrap();
        }
        drop(scratch);
        assert!(!left.exists() && !inside.exists() && kept.exists());
        drop(other);
        assert!(!kept.exists());
    }
}
