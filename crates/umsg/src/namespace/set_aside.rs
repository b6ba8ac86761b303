//! The file of a removed queue under a temporary name, until it becomes the file of a new queue.
//!
//! | name | what others see | if the process dies |
//! |---|---|---|
//! | `mq/NAME` | the queue | it stays |
//! | `.tmp-...`, after [`Namespace::set_aside`] | no queue: the name is free | a sweep removes the file ([`super::temporary`]) |
//! | `mq/NAME`, after [`Spare::publish`] | the new queue | it stays |
//!
//! Each change is one rename(2). The file has one name at each moment, so no check of second names applies to it.

use std::os::fd::OwnedFd;

use rustix::fs::{self, CWD, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use super::directory::{Directory, permissions};
use super::names::QueueName;
use super::open::FileAccess;
use super::queues::{POSIX, TO_NAMESPACE, has_room_for_a_queue};
use super::temporary::TemporaryName;
use super::{Namespace, NamespaceKind};

/// The mode of the files that are set aside.
const PRIVATE: u32 = 0o600;

/// A temporary name for the file of a removed queue. It is used again and again for the same file.
#[derive(Debug)]
pub(crate) struct SpareName(TemporaryName);

impl SpareName {
    /// Makes a name that no other file of this process has.
    pub(crate) fn new() -> SpareName {
        SpareName(TemporaryName::next(TO_NAMESPACE))
    }
}

/// The file of a removed queue, opened to become a new queue's file.
#[derive(Debug)]
pub(crate) struct Spare<'a> {
    queues: Directory,
    file: OwnedFd,
    stat: Stat,
    from: &'a SpareName,
}

impl Namespace {
    /// Takes the queue `name` away from the file with this device and inode, and gives the file its temporary name. Returns false without a
    /// change if the name leads to another file, if the file has a second name or another mode than 0600, or if the system refuses.
    ///
    /// # If the process dies
    /// The queue exists, or it is removed and a sweep removes the file.
    pub(crate) fn set_aside(&self, name: &QueueName, identity: (u64, u64), to: &SpareName) -> bool {
        let path = self.path().join(POSIX).join(name.as_os_str());
        let is_fit = |stat: Stat| {
            FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
                && (stat.st_dev, stat.st_ino) == identity
                && permissions(&stat) == PRIVATE
                && stat.st_nlink == 1
        };
        // By path, as the caller has opened the file: if the directory is another one meanwhile, or another file has the name, then that file
        // loses the name as by unlink(2), and `open_spare` finds that it is another file.
        let aside = self.path().join(POSIX).join(to.0.path());
        fs::lstat(&path).is_ok_and(is_fit)
            && fs::renameat_with(CWD, &path, CWD, &aside, RenameFlags::NOREPLACE).is_ok()
    }

    /// Opens the file that was set aside under a name, as a queue's file is opened. Returns None if the namespace has `max_queues` queues, or
    /// if the name does not lead to the file with this device and inode.
    pub(crate) fn open_spare<'a>(
        &self,
        from: &'a SpareName,
        identity: (u64, u64),
        access: FileAccess,
        max_queues: u32,
    ) -> Option<Spare<'a>> {
        let queues = self.queues().ok()?;
        if !queues.is_open() || !has_room_for_a_queue(&queues, max_queues).ok()? {
            return None;
        }
        let (at, path) = queues.locate(from.0.path());
        // Another user can't wait for this process in its own namespace. In a shared one, the opening must not wait for another user's file.
        let can_block = self.kind == NamespaceKind::User && access == FileAccess::ReadWrite;
        let mut flags = access.flags() | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
        flags.set(OFlags::NONBLOCK, !can_block);
        let file = fs::openat(at, &path, flags, Mode::empty()).ok()?;
        let stat = fs::fstat(&file).ok()?;
        if (stat.st_dev, stat.st_ino) != identity
            || stat.st_nlink != 1
            || permissions(&stat) != PRIVATE
        {
            return None;
        }
        if !can_block {
            fs::fcntl_setfl(&file, OFlags::empty()).ok()?;
        }
        Some(Spare {
            queues,
            file,
            stat,
            from,
        })
    }

    /// Removes a file that was set aside.
    pub(crate) fn remove_spare(&self, spare: &SpareName) {
        if let Ok(queues) = self.queues() {
            spare.0.remove(&queues);
        }
    }
}

impl Spare<'_> {
    /// Returns the result of fstat(2) for the file.
    pub(crate) fn stat(&self) -> &Stat {
        &self.stat
    }

    /// Gives the file a queue's name, which must be free (`EXIST` otherwise), and returns the opened file. The name is the commit.
    ///
    /// # If the process dies
    /// The queue exists whole, or not at all.
    pub(crate) fn publish(self, name: &QueueName) -> Result<OwnedFd, Errno> {
        let (from_at, from) = self.queues.locate(self.from.0.path());
        let (to_at, to) = self.queues.locate(name.as_os_str());
        fs::renameat_with(from_at, &from, to_at, &to, RenameFlags::NOREPLACE)?;
        Ok(self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::testing::{TestDir, chmod, name};

    fn identity(dir: &TestDir, file: &str) -> (u64, u64) {
        let stat = fs::stat(dir.queue(file)).unwrap();
        (stat.st_dev, stat.st_ino)
    }

    #[test]
    fn a_file_goes_aside_and_comes_back_under_another_name() {
        let dir = TestDir::new();
        let namespace = dir.namespace();
        std::fs::write(dir.queue("q"), b"").unwrap();
        chmod(&dir.queue("q"), PRIVATE);
        let (file, spare) = (identity(&dir, "q"), SpareName::new());
        assert!(namespace.set_aside(&name("/q"), file, &spare));
        assert_eq!(dir.queue_names(), Vec::<String>::new());
        let open = |max| namespace.open_spare(&spare, file, FileAccess::ReadWrite, max);
        assert!(open(0).is_none(), "there is no room for a queue");
        open(1).unwrap().publish(&name("/r")).unwrap();
        assert_eq!(dir.queue_names(), ["r"]);
        assert_eq!(identity(&dir, "r"), file);
        assert!(open(10).is_none());
    }

    #[test]
    fn a_name_that_leads_to_another_file_or_a_file_with_two_names_is_left_alone() {
        let dir = TestDir::new();
        let namespace = dir.namespace();
        std::fs::write(dir.queue("q"), b"").unwrap();
        chmod(&dir.queue("q"), PRIVATE);
        let (mut file, spare) = (identity(&dir, "q"), SpareName::new());
        std::fs::hard_link(dir.queue("q"), dir.queue("second")).unwrap();
        assert!(!namespace.set_aside(&name("/q"), file, &spare));
        std::fs::remove_file(dir.queue("second")).unwrap();
        chmod(&dir.queue("q"), 0o666);
        assert!(!namespace.set_aside(&name("/q"), file, &spare));
        chmod(&dir.queue("q"), PRIVATE);
        file.1 += 1;
        assert!(!namespace.set_aside(&name("/q"), file, &spare));
        assert!(!namespace.set_aside(&name("/missing"), file, &spare));
        assert_eq!(dir.queue_names(), ["q"]);
    }

    #[test]
    fn a_taken_name_stays_with_its_file() {
        let dir = TestDir::new();
        let namespace = dir.namespace();
        std::fs::write(dir.queue("q"), b"").unwrap();
        chmod(&dir.queue("q"), PRIVATE);
        std::fs::write(dir.queue("taken"), b"first").unwrap();
        let (file, spare) = (identity(&dir, "q"), SpareName::new());
        assert!(namespace.set_aside(&name("/q"), file, &spare));
        let opened = namespace.open_spare(&spare, file, FileAccess::Read, 10);
        let error = opened.unwrap().publish(&name("/taken")).unwrap_err();
        assert_eq!(error, Errno::EXIST);
        assert_eq!(std::fs::read(dir.queue("taken")).unwrap(), b"first");
        namespace.remove_spare(&spare);
        assert_eq!(
            dir.names(),
            [".namespace", "bell", "mq", "msg", "own", "ring"]
        );
    }
}
