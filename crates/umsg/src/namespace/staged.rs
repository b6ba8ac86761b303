//! A file that is built invisibly, and appears under its name when it is complete: the link is the commit.
//!
//! | state | visible to other processes | if the creator dies |
//! |---|---|---|
//! | unnamed (`O_TMPFILE`) | nothing | the kernel frees it |
//! | temporary (no `O_TMPFILE` on this file system, no linkat(2) in this sandbox, or a record to be replaced) | `.tmp-...` in the namespace's directory | it stays, until [`super::temporary::sweep`] |
//! | committed: `link` or `rename_over` returned | the complete file | it stays |

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{self, AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::{self, Errno};

use super::directory::{Directory, proc_link};
use super::temporary::TemporaryName;

/// A file that is open for reading and writing and has no name yet.
#[derive(Debug)]
pub(super) struct Staged {
    file: OwnedFd,
    temporary: Option<TemporaryName>,
}

impl Staged {
    /// Creates an unnamed file in `directory`, or a file with a temporary name if the file system has no unnamed files. Mode bits are subject to the
    /// umask.
    ///
    /// `to_namespace` is the path from the directory to the namespace's directory, where temporary files lie. In a directory of queues, a temporary
    /// name could be the name of a queue.
    pub(super) fn create(
        directory: &mut Directory,
        to_namespace: &str,
        mode: u32,
    ) -> io::Result<Staged> {
        if is_link_refused() {
            return Staged::create_temporary(directory, to_namespace, mode);
        }
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let unnamed = directory.with_number(|d| {
            let (at, here) = d.locate(".");
            fs::openat(at, &here, flags, Mode::from_raw_mode(mode))
        });
        match unnamed {
            // EISDIR comes from a kernel or a file system without O_TMPFILE, which tries to open the directory itself.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                Staged::create_temporary(directory, to_namespace, mode)
            }
            unnamed => Ok(Staged {
                file: unnamed?,
                temporary: None,
            }),
        }
    }

    /// Creates a file under a temporary name. [`discard`](Self::discard) removes this name.
    pub(super) fn create_temporary(
        directory: &mut Directory,
        to_namespace: &str,
        mode: u32,
    ) -> io::Result<Staged> {
        super::temporary::sweep(directory, to_namespace);
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let flags = flags | OFlags::RDWR | OFlags::CLOEXEC;
        loop {
            let name = TemporaryName::next(to_namespace);
            let file = directory.with_number(|d| {
                let (at, path) = d.locate(name.path());
                fs::openat(at, &path, flags, Mode::from_raw_mode(mode))
            });
            match file {
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
                Ok(file) => {
                    return Ok(Staged {
                        file,
                        temporary: Some(name),
                    });
                }
            }
        }
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Gives the file a name that must be free (`EEXIST` otherwise), and returns the file. The name is the commit.
    pub(super) fn link(self, directory: &Directory, name: &OsStr) -> io::Result<OwnedFd> {
        let outcome = self.link_too(directory, name);
        let file = self.discard(directory);
        outcome.map(|()| file)
    }

    /// Gives the file a name that must be free (`EEXIST` otherwise). Call this once. The name replaces a temporary name. If the file system can't
    /// replace it, the temporary name stays until [`discard`](Self::discard).
    pub(super) fn link_too(&self, directory: &Directory, name: &OsStr) -> io::Result<()> {
        self.link_into(directory, directory, name)
    }

    /// Links the file as [`link_too`](Self::link_too) does, into a directory other than that of its creation.
    pub(super) fn link_into(
        &self,
        directory: &Directory,
        into: &Directory,
        name: &OsStr,
    ) -> io::Result<()> {
        match &self.temporary {
            Some(temporary) => link_temporary(directory, temporary, into, name),
            None => {
                let (to, new) = into.locate(name);
                link_unnamed(self.file.as_fd(), to, &new)
            }
        }
    }

    /// Gives the file a name, and replaces any file of that name. The rename is the commit.
    pub(super) fn rename_over(mut self, directory: &Directory, name: &OsStr) -> io::Result<()> {
        let temporary = self.temporary.take().ok_or(Errno::INVAL)?;
        let ((from, old), (to, new)) = (directory.locate(temporary.path()), directory.locate(name));
        fs::renameat(from, &old, to, &new).inspect_err(|_| {
            temporary.remove(directory);
        })
    }

    /// Removes the temporary name, if there is one.
    pub(super) fn discard(self, directory: &Directory) -> OwnedFd {
        if let Some(temporary) = &self.temporary {
            temporary.remove(directory);
        }
        self.file
    }
}

fn link_temporary(
    directory: &Directory,
    temporary: &TemporaryName,
    into: &Directory,
    name: &OsStr,
) -> io::Result<()> {
    let ((from, old), (to, new)) = (directory.locate(temporary.path()), into.locate(name));
    // renameat2(2) never leaves the file with two names. Other processes refuse to open a file with two names: see `open::check_one_name`.
    match fs::renameat_with(from, &old, to, &new, RenameFlags::NOREPLACE) {
        outcome @ (Ok(()) | Err(Errno::EXIST)) => outcome,
        // If the file system lacks RENAME_NOREPLACE, linkat(2) succeeds. After any other error of the rename, linkat(2) reports the same error.
        Err(_) => fs::linkat(from, &old, to, &new, AtFlags::empty()),
    }
}

/// Returns whether a sandbox refuses linkat(2), without which an unnamed file gets no name. The kernel answers ENOENT to an
/// empty path.
pub(super) fn is_link_refused() -> bool {
    fs::linkat(CWD, c"", CWD, c"", AtFlags::empty()) != Err(Errno::NOENT)
}

/// Names an unnamed file in the directory `to`. First tries the descriptor itself: since Linux 6.10, the process that opened the file may do this;
/// before, only a privileged process could. If that fails, uses the link in /proc. Takes no memory from malloc if the name is short.
pub(super) fn link_unnamed(file: BorrowedFd<'_>, to: BorrowedFd<'_>, new: &Path) -> io::Result<()> {
    match fs::linkat(file, c"", to, new, AtFlags::EMPTY_PATH) {
        Err(Errno::NOENT | Errno::PERM | Errno::INVAL | Errno::ACCESS | Errno::NOSYS) => {
            link_through_proc(file, to, new)
        }
        outcome => outcome,
    }
}

fn link_through_proc(file: BorrowedFd<'_>, to: BorrowedFd<'_>, new: &Path) -> io::Result<()> {
    fs::linkat(
        CWD,
        proc_link(file).path(),
        to,
        new,
        AtFlags::SYMLINK_FOLLOW,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::testing::TestDir;

    fn directory(dir: &TestDir) -> Directory {
        Directory::open(dir.path()).unwrap()
    }

    fn both(dir: &TestDir) -> [Staged; 2] {
        [
            Staged::create(&mut directory(dir), "", 0o600).unwrap(),
            Staged::create_temporary(&mut directory(dir), "", 0o600).unwrap(),
        ]
    }

    #[test]
    fn an_unnamed_file_is_not_seen_and_a_temporary_one_is_seen_as_such() {
        let dir = TestDir::new();
        let unnamed = Staged::create(&mut directory(&dir), "", 0o600).unwrap();
        assert_eq!(dir.names(), Vec::<String>::new());
        let temporary = Staged::create_temporary(&mut directory(&dir), "", 0o600).unwrap();
        assert!(dir.names().iter().all(|n| n.starts_with(".tmp-")) && dir.names().len() == 1);
        drop((unnamed, temporary.discard(&directory(&dir))));
        assert_eq!(dir.names(), Vec::<String>::new());
    }

    #[test]
    fn a_linked_file_has_its_name_and_no_other() {
        for which in 0..2 {
            let dir = TestDir::new();
            let staged = both(&dir).into_iter().nth(which).unwrap();
            rustix::io::write(staged.file(), b"whole").unwrap();
            staged.link(&directory(&dir), OsStr::new("q")).unwrap();
            let names = dir
                .names()
                .into_iter()
                .filter(|n| !n.starts_with(".tmp-") || which == 1);
            assert_eq!(names.collect::<Vec<_>>(), ["q"]);
            assert_eq!(std::fs::read(dir.path().join("q")).unwrap(), b"whole");
        }
    }

    #[test]
    fn a_file_gets_its_name_and_loses_its_temporary_one_at_once() {
        let dir = TestDir::new();
        for (staged, name) in both(&dir).iter().zip(["one", "two"]) {
            staged.link_too(&directory(&dir), OsStr::new(name)).unwrap();
            assert_eq!(fs::fstat(staged.file()).unwrap().st_nlink, 1);
        }
        assert_eq!(dir.names(), ["one", "two"]);
    }

    #[test]
    fn a_link_to_a_taken_name_is_refused_and_leaves_what_was_there() {
        let dir = TestDir::new();
        std::fs::write(dir.path().join("q"), b"first").unwrap();
        for staged in both(&dir) {
            let error = staged.link(&directory(&dir), OsStr::new("q")).unwrap_err();
            assert_eq!(error, Errno::EXIST);
        }
        assert_eq!(dir.names(), ["q"]);
        assert_eq!(std::fs::read(dir.path().join("q")).unwrap(), b"first");
    }

    #[test]
    fn an_unnamed_file_can_be_linked_through_proc_where_the_descriptor_is_refused() {
        let dir = TestDir::new();
        let staged = Staged::create(&mut directory(&dir), "", 0o600).unwrap();
        let directory = directory(&dir);
        let (to, new) = directory.locate("q");
        link_through_proc(staged.file(), to, &new).unwrap();
        let again = link_through_proc(staged.file(), to, &new);
        assert_eq!(again, Err(Errno::EXIST));
        assert_eq!(dir.names(), ["q"]);
    }

    #[test]
    fn a_rename_replaces_what_was_there() {
        let dir = TestDir::new();
        std::fs::write(dir.path().join("r"), b"old").unwrap();
        let staged = Staged::create_temporary(&mut directory(&dir), "", 0o600).unwrap();
        rustix::io::write(staged.file(), b"new").unwrap();
        staged
            .rename_over(&directory(&dir), OsStr::new("r"))
            .unwrap();
        assert_eq!(dir.names(), ["r"]);
        assert_eq!(std::fs::read(dir.path().join("r")).unwrap(), b"new");
    }
}
