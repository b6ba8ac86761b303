//! The proof pages of processes, in their liveness files: [`umsg_shm::proof`].
//!
//! A page proves something to the processes of one user, because only that user can write the file: its owner is that user, and its mode
//! gives no other user the right to write. Access control lists can't give more than the mode's bits of the group.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{self, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::caller;
use super::directory::proc_link;
use super::life::{Registry, name_of, number_of};
use umsg_shm::memory::MappedProofs;
use umsg_shm::sys::liveness::UNREGISTERED;
use umsg_shm::sys::map::PAGE;
use umsg_shm::sys::stack::roomy;

impl Registry {
    /// Gives this process's liveness file its page. Allocates no memory of malloc's, apart from a registration that [`Registry::own`] makes.
    pub(super) fn make_proofs(&self) -> Option<MappedProofs> {
        let number = self.own();
        if number == UNREGISTERED {
            return None;
        }
        roomy(|| {
            let file = self.open_own_file(number).ok()?;
            MappedProofs::make(file.as_fd()).ok()
        })
    }

    /// Maps the page of the process with this liveness id, if only processes of the caller's effective user can have written it, and the
    /// process lives. Allocates no memory of malloc's.
    pub(super) fn proofs_of(&self, number: u32) -> Option<MappedProofs> {
        roomy(|| {
            let file = self.open_own_file(number).ok()?;
            let has_page = fs::fstat(&file).ok()?.st_size >= PAGE as i64;
            (has_page && umsg_shm::sys::life::is_locked(file.as_fd()))
                .then(|| MappedProofs::map(file.as_fd()).ok())?
        })
    }

    /// Opens a liveness file for writing, if it belongs to the caller's effective user. It is identified first, so that a FIFO of a stranger in
    /// its place can't block the opening.
    fn open_own_file(&self, number: u32) -> Result<OwnedFd, Errno> {
        let directory = self.open()?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let seen = fs::openat(&directory, name_of(number).path(), flags, Mode::empty())?;
        drop(directory);
        if !is_written_by_caller(seen.as_fd())? || number_of(seen.as_fd())? != Some(number) {
            return Err(Errno::ACCESS);
        }
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        fs::openat(CWD, proc_link(seen.as_fd()).path(), flags, Mode::empty())
    }
}

fn is_written_by_caller(file: BorrowedFd<'_>) -> Result<bool, Errno> {
    const OTHERS_WRITE: u32 = 0o022;
    let stat = fs::fstat(file)?;
    Ok(stat.st_uid == caller()
        && stat.st_mode & OTHERS_WRITE == 0
        && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::testing::{STRANGER, TestDir, chmod, chown};
    use umsg_testkit::users::is_root;

    #[test]
    fn a_page_is_believed_only_if_no_other_user_can_have_written_it() {
        let dir = TestDir::new();
        let registry = Registry::of(&dir.namespace()).unwrap();
        let number = registry.own();
        assert!(registry.proofs_of(number).is_none(), "it has no page");
        let own = registry.make_proofs().unwrap();
        own.page().introduce(7, 8);
        let found = registry.proofs_of(number).unwrap();
        assert_eq!(found.page().process(), (7, 8));
        let path = dir.path().join(name_of(number).path());
        for mode in [0o664, 0o646] {
            chmod(&path, mode);
            assert!(registry.proofs_of(number).is_none());
        }
        chmod(&path, 0o644);
        assert!(registry.proofs_of(number).is_some());
        if is_root() {
            chown(&path, STRANGER);
            assert!(registry.proofs_of(number).is_none());
        }
    }

    #[test]
    fn a_file_that_does_not_yield_its_number_or_that_no_process_locks_proves_nothing() {
        let dir = TestDir::new();
        let registry = Registry::of(&dir.namespace()).unwrap();
        let number = registry.own();
        let _own = registry.make_proofs().unwrap();
        let path = |number| dir.path().join(name_of(number).path());
        std::fs::hard_link(path(number), path(number ^ 1)).unwrap();
        assert!(registry.proofs_of(number ^ 1).is_none());
        // Unlocked files of every number that this user makes: none counts.
        let planted = std::fs::File::create_new(dir.path().join("planted")).unwrap();
        planted.set_len(PAGE as u64).unwrap();
        let yielded = number_of(planted.as_fd()).unwrap().unwrap();
        std::fs::rename(dir.path().join("planted"), path(yielded)).unwrap();
        assert!(registry.proofs_of(yielded).is_none());
    }
}
