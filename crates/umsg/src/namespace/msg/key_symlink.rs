//! The key symlink of a queue: its text is the identifier. The creation of the symlink creates the queue.
//!
//! A `+` may follow the identifier. Then the file's segment may hold several queues, one after the other ([`crate::sysv::raw`], `recycle.rs`). The
//! text has the identifier of the first queue, and the header has the identifier of the current queue.

use rustix::fs::{self, AtFlags, FileType, Uid};
use rustix::io::Errno;

use super::files::Files;
use crate::namespace::changes;
use crate::namespace::file_error::FileError;
use crate::namespace::publish::creation_error;
use umsg_shm::sys::rights::unlink_of;

/// The longest text of a key symlink is that of `i32::MAX` and a `+`. A longer text is invalid.
const TEXT: usize = 16;

/// The entry at the name of a key symlink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeySymlink {
    /// No entry.
    Missing,
    /// The key symlink of the queue with this identifier.
    Of(i32),
    /// The key symlink of a segment that may hold several queues, one after the other. The value is the identifier of the first queue.
    OfSegment(i32),
    /// Another entry, which leads to no queue.
    Foreign,
}

impl Files {
    /// Reads a key symlink. Needs no permission on the queue's file.
    ///
    /// # Errors
    /// `System`; `Denied` if the directory may not be searched.
    pub(crate) fn key_symlink(&self, name: &str) -> Result<KeySymlink, FileError> {
        let (at, path) = self.directory().locate(name);
        let mut text = [0; TEXT];
        match fs::readlinkat_raw(at, &path, &mut text[..]) {
            Ok(len) => Ok(KeySymlink::of_text(&text[..len])),
            Err(Errno::NOENT) => Ok(KeySymlink::Missing),
            Err(Errno::INVAL) => Ok(KeySymlink::Foreign),
            Err(e) => Err(FileError::of("readlink", e)),
        }
    }

    /// Makes a key symlink. `link` is an `Of` with an identifier, or an `OfSegment`.
    ///
    /// # Errors
    /// `AlreadyExists`: the name is taken. `Denied`, `NoSpace`, `NoMemory`, `System`.
    pub(crate) fn put_key_symlink(&self, name: &str, link: KeySymlink) -> Result<(), FileError> {
        let text = link
            .text()
            .ok_or_else(|| FileError::of("symlink", Errno::INVAL))?;
        let (at, path) = self.directory().locate(name);
        fs::symlinkat(text, at, &path)
            .map_err(|e| creation_error("symlink", self.directory(), e))?;
        changes::note(self.directory());
        Ok(())
    }

    /// Makes a user the owner of a key symlink, if the caller has the permission. The queue's file and its key symlink have the same owner.
    pub(crate) fn give_key_symlink(&self, name: &str, user: Uid) {
        let (at, path) = self.directory().locate(name);
        let _ = fs::chownat(at, &path, Some(user), None, AtFlags::SYMLINK_NOFOLLOW);
    }

    /// Returns the owner of the entry at the name of a key symlink. None if there is no entry.
    ///
    /// # Errors
    /// `System`; `Denied` if the directory may not be searched.
    pub(crate) fn key_symlink_owner(&self, name: &str) -> Result<Option<u32>, FileError> {
        let (at, path) = self.directory().locate(name);
        match fs::statat(at, &path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat.st_uid)),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(FileError::of("stat", e)),
        }
    }

    /// Removes a key symlink, if it belongs to `owner` and the caller has the permission. Returns whether the name is free. An entry that is not a
    /// key symlink, or belongs to another user, stays.
    pub(crate) fn take_key_symlink(&self, name: &str, owner: u32) -> bool {
        let (at, path) = self.directory().locate(name);
        match fs::statat(at, &path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => {
                let removed = unlink_of(owner, || fs::unlinkat(at, &path, AtFlags::empty()));
                changes::note(self.directory());
                removed.is_ok()
            }
            other => other.err() == Some(Errno::NOENT),
        }
    }
}

impl KeySymlink {
    pub(super) fn of_text(text: &[u8]) -> KeySymlink {
        let link = match text.strip_suffix(b"+") {
            Some(first) => identifier(first).map(KeySymlink::OfSegment),
            None => identifier(text).map(KeySymlink::Of),
        };
        link.unwrap_or(KeySymlink::Foreign)
    }

    fn text(self) -> Option<String> {
        match self {
            KeySymlink::Of(id) => Some(id.to_string()),
            KeySymlink::OfSegment(id) => Some(format!("{id}+")),
            KeySymlink::Missing | KeySymlink::Foreign => None,
        }
    }
}

/// Returns the identifier in a key symlink's text: a decimal number without a sign or leading zeroes.
fn identifier(text: &[u8]) -> Option<i32> {
    let text = str::from_utf8(text).ok()?;
    let id = text.parse::<i32>().ok().filter(|id| *id >= 0)?;
    (text == id.to_string()).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::caller;
    use crate::namespace::testing::TestDir;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_key_symlink_is_read_as_it_was_put_and_stays_until_it_is_taken() {
        let dir = TestDir::new();
        let files = dir.namespace().msg_files().unwrap();
        assert_eq!(files.key_symlink("p-7").unwrap(), KeySymlink::Missing);
        for link in [KeySymlink::Of(i32::MAX), KeySymlink::OfSegment(i32::MAX)] {
            files.put_key_symlink("p-7", link).unwrap();
            assert_eq!(files.key_symlink("p-7").unwrap(), link);
            assert_eq!(
                files.put_key_symlink("p-7", KeySymlink::Of(7)),
                Err(FileError::AlreadyExists)
            );
            let take = || files.take_key_symlink("p-7", caller());
            assert!(take() && take());
            assert_eq!(files.key_symlink("p-7").unwrap(), KeySymlink::Missing);
        }
    }

    #[test]
    fn what_is_no_key_symlink_is_foreign_and_stays() {
        let dir = TestDir::new();
        let files = dir.namespace().msg_files().unwrap();
        let at = |name: &str| dir.path().join("msg").join(name);
        for (n, text) in [
            "",
            "-1",
            "01",
            "+",
            "7++",
            "2147483648",
            "/etc/passwd",
            "12345678901234567890",
        ]
        .into_iter()
        .enumerate()
        .skip(1)
        {
            let name = format!("p-{n}");
            symlink(text, at(&name)).unwrap();
            assert_eq!(
                files.key_symlink(&name).unwrap(),
                KeySymlink::Foreign,
                "{text}"
            );
        }
        std::fs::create_dir(at("k-00000001")).unwrap();
        std::fs::write(at("k-00000002"), b"3").unwrap();
        for name in ["k-00000001", "k-00000002"] {
            assert_eq!(files.key_symlink(name).unwrap(), KeySymlink::Foreign);
            assert!(!files.take_key_symlink(name, caller()));
        }
    }
}
