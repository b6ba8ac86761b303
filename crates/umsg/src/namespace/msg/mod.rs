//! The directory of a namespace's System V queues.
//!
//! ```text
//! msg/
//! ├── 3                a queue by its index: what `identifier % 32768` finds
//! ├── k-00001234       the same file by its key: a second link
//! ├── 4                a queue without a key (IPC_PRIVATE)
//! └── .next            where the next identifier comes from
//! ```
//!
//! There are files only and no table of them: whoever may make a queue could scribble in a table, but can't take another's
//! file away from a directory that is sticky.

mod names;

use std::path::Path;

use super::Namespace;
use super::directory::Directory;
use super::error::NamespaceError;
use super::queues::{SYSV, allocated, for_each_file};
use names::index_of;

impl Namespace {
    /// Memory that the System V queues take up now, in bytes. Where there is no directory of them that can be trusted,
    /// there are none.
    pub(super) fn msg_allocated_bytes(&self) -> Result<u64, NamespaceError> {
        let Ok(queues) = self.queues_of(SYSV) else {
            return Ok(0);
        };
        let mut bytes = 0u64;
        for_each_index(&queues, |index| {
            let name = names::of_index(index);
            bytes = bytes.saturating_add(allocated(&queues, name.as_ref())?);
            Ok(())
        })?;
        Ok(bytes)
    }
}

/// How many queues there are in the namespace at `path`, whoever owns it.
pub(super) fn count_below(path: &Path) -> Result<usize, NamespaceError> {
    let mut count = 0;
    for_each_index(&Directory::open(&path.join(SYSV))?, |_| {
        count += 1;
        Ok(())
    })?;
    Ok(count)
}

/// Calls `visit` with the index of each file that has one.
fn for_each_index(
    queues: &Directory,
    mut visit: impl FnMut(u32) -> Result<(), NamespaceError>,
) -> Result<(), NamespaceError> {
    for_each_file(queues, |entry| match index_of(entry.file_name()) {
        Some(index) => visit(index),
        None => Ok(()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::testing::{STRANGER, TestDir, chown, is_root};

    #[test]
    fn the_bytes_of_a_queue_with_a_key_are_counted_once_and_with_those_of_posix_queues() {
        let dir = TestDir::new();
        let namespace = dir.namespace();
        let at = |name: &str| dir.path().join(SYSV).join(name);
        std::fs::write(at("3"), [1; 10_000]).unwrap();
        std::fs::hard_link(at("3"), at("k-00001234")).unwrap();
        assert_eq!(namespace.msg_allocated_bytes().unwrap(), 3 * 4096);
        std::fs::write(dir.queue("posix"), [1; 4096]).unwrap();
        assert_eq!(namespace.allocated_bytes().unwrap(), 4 * 4096);
    }

    #[test]
    fn a_strangers_directory_keeps_nobody_from_posix_queues() {
        if !is_root() {
            return;
        }
        let dir = TestDir::shared();
        std::fs::create_dir(dir.path().join(SYSV)).unwrap();
        chown(&dir.path().join(SYSV), STRANGER);
        let namespace = dir.namespace();
        assert_eq!(namespace.allocated_bytes().unwrap(), 0);
        let error = namespace.queues_of(SYSV).unwrap_err();
        assert!(matches!(error, NamespaceError::Stranger { .. }), "{error}");
    }

    #[test]
    fn a_namespace_of_before_system_v_queues_gets_its_directory_from_the_next_who_may() {
        let dir = TestDir::new();
        let namespace = dir.namespace();
        std::fs::remove_dir(dir.path().join(SYSV)).unwrap();
        assert!(matches!(
            namespace.queues_of(SYSV).unwrap_err(),
            NamespaceError::NoQueuesDirectory { .. }
        ));
        dir.namespace();
        namespace.queues_of(SYSV).unwrap();
    }
}
