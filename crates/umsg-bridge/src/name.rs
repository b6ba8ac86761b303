//! Ownership of a bridge's name by one process: bridges of one name share a spool, a window and a state file.

use crate::status;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use umsg::Namespace;

/// Takes the name of a bridge by locking two files: one in the state directory, one in the state directory of the namespace, which has the spool. The
/// process owns the name as long as the returned files are open.
///
/// # Errors
/// The error is a sentence: another process owns the name, or a file can't be locked.
pub fn own(namespace: &Namespace, directory: &Path, name: &str) -> Result<Vec<File>, String> {
    let common = status::directory(None, namespace)?;
    let mut files = vec![lock(&common, name)?];
    if common != directory {
        files.push(lock(directory, name)?);
    }
    Ok(files)
}

fn lock(directory: &Path, name: &str) -> Result<File, String> {
    let path = directory.join(format!("{name}.lock"));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let refuse = |error: &io::Error| format!("{}: {error}", path.display());
    let file = options.open(&path).map_err(|error| refuse(&error))?;
    // The kernel releases the lock when the process ends.
    let flag = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    match rustix::fs::flock(&file, flag) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(format!(
            "another process runs a bridge named {name:?} in {}: end it, or choose another `name` (--name)",
            directory.display()
        )),
        Err(error) => Err(refuse(&error.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_owner_in_a_namespace_and_in_a_state_directory() {
        let home = tempfile::tempdir().unwrap();
        let places = ["one", "two", "states"].map(|name| home.path().join(name));
        for place in &places {
            std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700)
                .create(place)
                .unwrap();
        }
        let [one, two] = [0, 1].map(|at| Namespace::at(&places[at]).unwrap());
        let held = own(&one, &places[2], "a").unwrap();
        let refused = own(&one, &places[1], "a").unwrap_err();
        assert!(
            refused.contains("another process") && refused.contains("--name"),
            "{refused}"
        );
        own(&two, &places[2], "a").unwrap_err();
        own(&one, &places[2], "b").unwrap();
        drop(held);
        own(&one, &places[2], "a").unwrap();
    }
}
