//! The entries of the directory of System V queues, found by their names without opening a queue.

use std::collections::HashMap;
use std::path::Path;

use super::files::Files;
use super::key_symlink::KeySymlink;
use super::names::{INDICES, index_of, key_of};
use crate::namespace::directory::Directory;
use crate::namespace::entries::{for_each_entry, for_each_file, most_entries};
use crate::namespace::error::NamespaceError;
use crate::namespace::file_error::FileError;
use crate::namespace::queues::SYSV;

/// The number of names that belong to no queue: `.` and `..`.
const DOTS: u64 = 2;

/// The key symlink of a queue that has a file. If the file's header can be read, the identifier and the key come from the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub(crate) index: u32,
    pub(crate) id: i32,
    /// The key; 0 if the queue has no key.
    pub(crate) key: i32,
    /// True if the file's header has the identifier, and `id` is that of the segment's first queue.
    pub(crate) varies: bool,
    /// The inode number of the file, from a list of the directory; 0 if unknown.
    pub(crate) inode: u64,
}

impl Entry {
    /// Returns the entry for the symlink `link` of `key`; None if the symlink leads to no queue.
    pub(crate) fn of(link: KeySymlink, key: i32) -> Option<Entry> {
        let (id, varies) = match link {
            KeySymlink::Of(id) => (id, false),
            KeySymlink::OfSegment(id) => (id, true),
            KeySymlink::Missing | KeySymlink::Foreign => return None,
        };
        let index = id as u32 % INDICES;
        Some(Entry {
            index,
            id,
            key,
            varies,
            inode: 0,
        })
    }

    /// Returns whether a header with this identifier and key may be that of the entry's queue.
    pub(crate) fn is_of(&self, id: i32, key: i32) -> bool {
        let is_its_id = self.id == id || self.varies && id as u32 % INDICES == self.index;
        is_its_id && self.key == key
    }
}

impl Files {
    /// Returns the key symlinks that have files, in the order of their indices.
    ///
    /// # Errors
    /// `Namespace(NotAccessible)` if the caller may not list the directory; `TooManyFiles`, `System`.
    pub(crate) fn entries(&self) -> Result<Vec<Entry>, FileError> {
        let (mut inodes, mut links) = (HashMap::new(), Vec::new());
        for_each_entry(self.directory(), |entry, is_file| {
            let name = entry.file_name();
            match (index_of(name).filter(|_| is_file), key_of(name)) {
                (Some(index), _) => drop(inodes.insert(index, entry.ino())),
                (None, Some(key)) => links.push((name.to_owned(), key)),
                _ => {}
            }
            Ok(())
        })?;
        let mut entries = Vec::new();
        for (name, key) in links {
            let link = self.key_symlink(name.to_str().unwrap_or_default())?;
            entries.extend(Entry::of(link, key));
        }
        entries.retain_mut(|entry: &mut Entry| match inodes.get(&entry.index) {
            Some(inode) => {
                entry.inode = *inode;
                true
            }
            None => false,
        });
        entries.sort_unstable();
        Ok(entries)
    }

    /// Returns the number of queues. If the file system counts names (tmpfs), this takes two system calls, and each name that belongs to no queue
    /// counts as half a queue.
    ///
    /// # Errors
    /// The errors of [`entries`](Self::entries).
    pub(crate) fn in_use(&self) -> Result<u32, FileError> {
        match most_entries(self.directory()) {
            Some(names) => Ok((names.saturating_sub(DOTS) / 2).min(u64::from(INDICES)) as u32),
            None => self.indices_in_use().map(|indices| indices.len() as u32),
        }
    }

    /// Returns the indices of all files, unordered.
    ///
    /// # Errors
    /// The errors of [`entries`](Self::entries).
    pub(crate) fn indices_in_use(&self) -> Result<Vec<u32>, FileError> {
        let mut indices = Vec::new();
        for_each_index(self.directory(), |index| {
            indices.push(index);
            Ok(())
        })?;
        Ok(indices)
    }
}

/// Returns the number of queues in the namespace at `path`, regardless of its owner.
pub(in crate::namespace) fn count_below(path: &Path) -> Result<usize, NamespaceError> {
    let mut count = 0;
    for_each_index(&Directory::open(&path.join(SYSV))?, |_| {
        count += 1;
        Ok(())
    })?;
    Ok(count)
}

/// Calls `visit` with the index of each file that is named by an index.
pub(super) fn for_each_index(
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
    use crate::namespace::testing::TestDir;
    use std::os::unix::fs::{MetadataExt, symlink};

    /// Makes files with these indices, and key symlinks with these texts.
    fn filled(dir: &TestDir, indices: &[u32], links: &[(&str, &str)]) -> Files {
        let files = dir.namespace().msg_files().unwrap();
        let at = |name: &str| dir.path().join("msg").join(name);
        for index in indices {
            std::fs::write(at(&index.to_string()), b"").unwrap();
        }
        for (name, text) in links {
            symlink(text, at(name)).unwrap();
        }
        files
    }

    #[test]
    fn a_queue_is_a_file_and_a_key_symlink() {
        let dir = TestDir::new();
        let links = [
            ("k-00001234", "32771"),
            ("p-9", "9"),
            ("p-1", "1"),
            ("p-5", "32773+"),
            ("k-ffffffff", "3"),
            ("k-fffffffe", "65540"),
            ("k-fffffffe-1", "4"),
            ("k-00000007", "/etc/passwd"),
            ("letter", "5"),
        ];
        let files = filled(&dir, &[3, 4, 5, 9], &links);
        std::fs::write(dir.path().join("msg/letter-2"), b"").unwrap();
        let found = |link, key| {
            let entry = Entry::of(link, key).unwrap();
            let file = dir.path().join(format!("msg/{}", entry.index));
            let inode = std::fs::metadata(file).unwrap().ino();
            Entry { inode, ..entry }
        };
        let entry = |id, key| found(KeySymlink::Of(id), key);
        assert_eq!(
            files.entries().unwrap(),
            [
                entry(3, -1),
                entry(32_771, 0x1234),
                entry(65_540, -2),
                found(KeySymlink::OfSegment(32_773), 0),
                entry(9, 0)
            ]
        );
        let mut indices = files.indices_in_use().unwrap();
        indices.sort_unstable();
        assert_eq!(indices, [3, 4, 5, 9]);
    }

    #[test]
    fn queues_are_counted_without_looking_at_them() {
        let dir = TestDir::new();
        let files = filled(&dir, &[3, 4], &[("p-3", "3"), ("p-4", "4")]);
        assert_eq!(files.in_use().unwrap(), 2);
    }
}
