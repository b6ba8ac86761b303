//! Finds the queue of a file, by its path.

use std::ffi::OsStr;
use std::path::Path;

use rustix::fs;

use super::super::queues::{POSIX, SYSV};
use super::super::record;
use super::FILE;

/// The place of a queue's file, derived from its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Whereabouts<'a> {
    /// The namespace's directory.
    pub(crate) namespace: &'a Path,
    /// The queue's name, without its slash.
    pub(crate) name: &'a OsStr,
    /// True if the queue is transient.
    pub(crate) goes: bool,
}

/// Returns the queue whose file has this path. None if no queue has it.
pub(crate) fn whereabouts(path: &Path) -> Option<Whereabouts<'_>> {
    let plain = among_queues(path, false);
    let home = path.parent().filter(|_| path.ends_with(FILE));
    match home.and_then(|home| among_queues(home, true)) {
        // Two readings of the path are possible: a queue with the name `mq`, or a queue with the name `queue` in a namespace with the name `mq`.
        Some(goes) if plain.is_none() || has_a_namespace(goes.namespace) => Some(goes),
        _ => plain,
    }
}

fn among_queues(entry: &Path, goes: bool) -> Option<Whereabouts<'_>> {
    let queues = entry.parent().filter(|parent| parent.ends_with(POSIX))?;
    Some(Whereabouts {
        namespace: queues.parent()?,
        name: entry.file_name()?,
        goes,
    })
}

/// Returns whether the directory holds a namespace. Besides the directory of the POSIX queues, each namespace has a record, or, before its record is
/// written, the directory of the System V queues.
fn has_a_namespace(directory: &Path) -> bool {
    let has = |name| fs::lstat(directory.join(name)).is_ok();
    has(record::NAME) || has(SYSV)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::testing::TestDir;

    #[test]
    fn a_files_path_shows_its_queue_whatever_the_queue_is_called() {
        let dir = TestDir::new();
        dir.namespace();
        let found = |path: &Path| {
            whereabouts(path).map(|found| {
                let name = found.name.to_str().unwrap().to_owned();
                (found.namespace.to_owned(), name, found.goes)
            })
        };
        let of = |name: &str, goes| Some((dir.path().to_owned(), name.to_owned(), goes));
        for name in ["q", "mq", "queue"] {
            assert_eq!(found(&dir.queue(name)), of(name, false));
            assert_eq!(found(&dir.queue(&format!("{name}/queue"))), of(name, true));
        }
        assert_eq!(found(&dir.queue("q/letter")), None);
        assert_eq!(found(Path::new("/queue")), None);
        // The directory `inner` is no namespace. So `mq` in it is a namespace, which has a queue with the name `queue`.
        let inner = dir.path().join("inner/mq");
        let queue = (inner.clone(), "queue".to_owned(), false);
        assert_eq!(found(&inner.join("mq/queue")), Some(queue));
    }
}
