//! The file of a new queue: it is built without a name, and published when it is complete.
//!
//! ```text
//! create ──> fill (the segment) ──> publish
//!   │             │                    └── linkat: the commit. EEXIST: another was first, open that one
//!   └─────────────┴── drop or death: nothing was ever there
//! ```
//!
//! So a file with a queue's name is always a complete queue. If several processes create the same queue at once, one process succeeds, and the others
//! see its finished queue. [`super::staged`] describes the remains of a dead creator if the file system has no `O_TMPFILE`.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{self, Mode, OFlags};

use super::Namespace;
use super::directory::{Directory, permissions, reopen, reopen_error};
use super::entries::has_room_for_a_queue;
use super::error::NamespaceError;
use super::file_error::FileError;
use super::names::QueueName;
use super::open::FileAccess;
use super::queues::{POSIX, TO_NAMESPACE};
use super::staged::Staged;
use super::transient::{self, Patience, make_way};

/// Only the creator has access until the publication sets the mode.
const PRIVATE: u32 = 0o600;

/// A queue's file that no other process can see yet.
#[derive(Debug)]
pub(crate) struct Unpublished {
    queues: Directory,
    /// The file before it is published; None afterwards.
    staged: Option<Staged>,
    mode: u32,
    /// The mode that the file has now.
    present_mode: u32,
}

impl Unpublished {
    /// Creates an empty file of mode 0600, open for reading and writing, with FD_CLOEXEC. `mode` is the mode that the queue's creator
    /// requests, before the umask.
    ///
    /// # Errors
    /// `NoSpace`, `NoMemory`, `TooManyFiles`, `System`; `Namespace(NotWritable)` if the caller may make no files in the directory.
    #[cfg(test)]
    pub(crate) fn create(namespace: &Namespace, mode: u32) -> Result<Unpublished, FileError> {
        Unpublished::create_in(namespace, POSIX, mode)
    }

    /// Does the same as [`create`](Unpublished::create). Returns None if there are already `max_queues` POSIX queues.
    pub(crate) fn create_within(
        namespace: &Namespace,
        mode: u32,
        max_queues: u32,
    ) -> Result<Option<Unpublished>, FileError> {
        let queues = namespace.queues()?;
        if !has_room_for_a_queue(&queues, max_queues)? {
            return Ok(None);
        }
        Unpublished::stage(queues, mode).map(Some)
    }

    /// Does the same as [`create`](Unpublished::create), in the directory of one kind.
    pub(crate) fn create_in(
        namespace: &Namespace,
        kind: &str,
        mode: u32,
    ) -> Result<Unpublished, FileError> {
        Unpublished::stage(namespace.queues_of(kind)?, mode)
    }

    fn stage(queues: Directory, mode: u32) -> Result<Unpublished, FileError> {
        Unpublished::create_with(queues, mode, |queues| {
            Staged::create(queues, TO_NAMESPACE, mode & 0o7777)
        })
    }

    fn create_with(
        mut queues: Directory,
        mode: u32,
        stage: impl FnOnce(&mut Directory) -> rustix::io::Result<Staged>,
    ) -> Result<Unpublished, FileError> {
        let staged = stage(&mut queues).map_err(|e| creation_error("open", &queues, e))?;
        let mut new = Unpublished {
            queues,
            staged: Some(staged),
            mode,
            present_mode: mode,
        };
        // The kernel has applied the umask, which can't be read without a race. The mode is remembered and replaced by 0600, so that the creator
        // can open the file again even if the mode grants no access.
        let stat = fs::fstat(new.file()).map_err(|e| FileError::of("fstat", e))?;
        new.mode = permissions(&stat);
        new.present_mode = new.mode;
        new.set_mode(PRIVATE)?;
        Ok(new)
    }

    /// Returns the file, open for reading and writing.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.staged.as_ref().expect("publish takes self").file()
    }

    /// Returns the requested mode, less the umask.
    pub(crate) fn mode(&self) -> u32 {
        self.mode
    }

    /// Opens the same file again, as a new open file description with FD_CLOEXEC. Before publication the mode does not restrict this description.
    ///
    /// # Errors
    /// `TooManyFiles`, `System`; `Namespace(NoProc)` if /proc is missing.
    pub(crate) fn reopen(
        &self,
        access: FileAccess,
        nonblocking: bool,
    ) -> Result<OwnedFd, FileError> {
        let mut flags = access.flags() | OFlags::CLOEXEC;
        flags.set(OFlags::NONBLOCK, nonblocking);
        reopen(self.file(), flags).map_err(reopen_error)
    }

    /// Sets the mode of the file, whatever the umask is, links the file under its name, and returns it. The link is the commit.
    ///
    /// # Errors
    /// `AlreadyExists`: another queue has the name, and this queue is discarded. `Denied`, `NoSpace`, `NoMemory`, `System`.
    ///
    /// # If the process dies
    /// Before the commit, there is no queue; after it, there is a complete queue.
    pub(crate) fn publish(
        mut self,
        name: &QueueName,
        file_mode: u32,
    ) -> Result<OwnedFd, FileError> {
        self.set_mode(file_mode)?;
        let staged = self.staged.take().expect("publish takes self");
        let mut patience = Patience::default();
        let mut outcome = staged.link_too(&self.queues, name.as_os_str());
        while outcome == Err(rustix::io::Errno::EXIST) && self.queues.path().ends_with(POSIX) {
            // The remains of a queue that was removed at its last close may have the name. Then the loop removes the remains and publishes the file
            // again.
            if let Err(error) = make_way(&self.queues, name.as_os_str(), &mut patience) {
                staged.discard(&self.queues);
                return Err(error);
            }
            outcome = staged.link_too(&self.queues, name.as_os_str());
        }
        let file = staged.discard(&self.queues);
        outcome.map_err(|e| match e {
            // The name is valid, so the directory has been removed.
            rustix::io::Errno::NOENT => no_directory(&self.queues),
            _ => creation_error("link", &self.queues, e),
        })?;
        Ok(file)
    }

    /// Publishes as [`publish`](Self::publish) does, for a queue that is removed at its last close.
    ///
    /// # Errors
    /// The errors of `publish`.
    ///
    /// # If the process dies
    /// Before the commit, there is no queue; after it, there is a complete queue. The creation of the next transient queue removes the remains from
    /// the namespace's directory.
    pub(crate) fn publish_transient(
        mut self,
        name: &QueueName,
        file_mode: u32,
    ) -> Result<OwnedFd, FileError> {
        self.set_mode(file_mode)?;
        let staged = self.staged.take().expect("publish takes self");
        let outcome = transient::publish(&staged, &self.queues, name.as_os_str());
        let file = staged.discard(&self.queues);
        outcome.map(|()| file)
    }

    fn set_mode(&mut self, mode: u32) -> Result<(), FileError> {
        let mode = mode & 0o7777;
        if mode != self.present_mode {
            fs::fchmod(self.file(), Mode::from_raw_mode(mode))
                .map_err(|e| FileError::of("fchmod", e))?;
            self.present_mode = mode;
        }
        Ok(())
    }
}

impl Drop for Unpublished {
    fn drop(&mut self) {
        if let Some(staged) = self.staged.take() {
            staged.discard(&self.queues);
        }
    }
}

/// Converts the errno of the creation of a file. EACCES and EPERM mean that the directory denies the creation, because the file does not exist yet.
pub(super) fn creation_error(
    call: &'static str,
    queues: &Directory,
    error: rustix::io::Errno,
) -> FileError {
    use rustix::io::Errno;
    match error {
        Errno::ACCESS | Errno::PERM | Errno::ROFS => {
            NamespaceError::changing(call, queues.path(), error).into()
        }
        Errno::NOENT => no_directory(queues),
        _ => FileError::of(call, error),
    }
}

fn no_directory(queues: &Directory) -> FileError {
    NamespaceError::Missing {
        path: queues.path().to_owned(),
    }
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::testing::{Alone, STRANGER, TestDir, as_user, chmod, name, umask};

    type Create = fn(&Namespace, u32) -> Result<Unpublished, FileError>;

    fn create_temporary(namespace: &Namespace, mode: u32) -> Result<Unpublished, FileError> {
        Unpublished::create_with(namespace.queues()?, mode, |queues| {
            Staged::create_temporary(queues, TO_NAMESPACE, mode)
        })
    }

    /// Both ways to stage a file.
    const WAYS: [Create; 2] = [Unpublished::create, create_temporary];

    fn mode_of(file: impl std::os::fd::AsFd) -> u32 {
        permissions(&fs::fstat(file).unwrap())
    }

    #[test]
    fn a_file_appears_only_when_it_is_published_and_then_whole() {
        for create in WAYS {
            let dir = TestDir::new();
            let new = create(&dir.namespace(), 0o600).unwrap();
            rustix::io::write(new.file(), b"whole").unwrap();
            assert_eq!(dir.queue_names(), Vec::<String>::new());
            new.publish(&name("/q"), 0o600).unwrap();
            assert_eq!(dir.queue_names(), ["q"]);
            assert_eq!(std::fs::read(dir.queue("q")).unwrap(), b"whole");
            dir.expect_no_leftovers();
        }
    }

    #[test]
    fn the_second_of_two_creators_learns_that_the_queue_exists() {
        for create in WAYS {
            let dir = TestDir::new();
            let (one, two) = (
                create(&dir.namespace(), 0o600),
                create(&dir.namespace(), 0o600),
            );
            one.unwrap().publish(&name("/q"), 0o600).unwrap();
            let error = two.unwrap().publish(&name("/q"), 0o600).unwrap_err();
            assert_eq!(error, FileError::AlreadyExists);
            dir.expect_no_leftovers();
        }
    }

    #[test]
    fn a_file_that_is_dropped_never_was() {
        for create in WAYS {
            let dir = TestDir::new();
            drop(create(&dir.namespace(), 0o600).unwrap());
            dir.expect_no_leftovers();
            assert_eq!(dir.queue_names(), Vec::<String>::new());
        }
    }

    #[test]
    fn the_mode_is_private_until_publication_and_then_the_one_given() {
        for create in WAYS {
            let dir = TestDir::new();
            let new = create(&dir.namespace(), 0o4666).unwrap();
            assert_eq!(new.mode(), 0o4666 & !umask());
            assert_eq!(mode_of(new.file()), 0o600);
            let file = new.publish(&name("/q"), 0o666).unwrap();
            assert_eq!(mode_of(file), 0o666);
        }
    }

    #[test]
    fn a_creator_opens_its_file_with_more_than_the_mode_grants() {
        umsg_testkit::needs_root!();
        let dir = TestDir::shared();
        let namespace = dir.namespace();
        as_user(STRANGER, || {
            for (create, file) in WAYS.into_iter().zip(["/one", "/two"]) {
                let new = create(&namespace, 0).unwrap();
                let again = new.reopen(FileAccess::Read, true).unwrap();
                new.publish(&name(file), 0).unwrap();
                let flags = fs::fcntl_getfl(&again).unwrap();
                assert_eq!(flags & OFlags::RWMODE, OFlags::RDONLY);
                assert!(flags.contains(OFlags::NONBLOCK));
                let later = namespace.open_queue_file(&name(file), FileAccess::Read, false);
                assert_eq!(later.unwrap_err(), FileError::Denied);
            }
        });
    }

    #[test]
    fn a_stranger_makes_no_file_where_only_the_owner_may_write() {
        umsg_testkit::needs_root!();
        let dir = TestDir::new();
        let namespace = dir.namespace();
        chmod(dir.path(), 0o755);
        chmod(&dir.path().join("mq"), 0o755);
        as_user(STRANGER, || {
            let error = Unpublished::create(&namespace, 0o600).unwrap_err();
            let FileError::Namespace(NamespaceError::NotWritable { path, .. }) = &error else {
                panic!("{error:?}");
            };
            assert_eq!(path, &dir.path().join("mq"));
        });
    }

    #[test]
    fn a_maker_killed_before_publication_leaves_no_queue_and_the_next_one_tidies_up() {
        const TEST: Alone = Alone::new(
            "a_maker_killed_before_publication_leaves_no_queue_and_the_next_one_tidies_up",
        );
        if let Some(path) = TEST.directory() {
            let namespace = Namespace::at(path).unwrap();
            let _new = WAYS.map(|create| create(&namespace, 0o600).unwrap());
            let (this, kill) = (rustix::process::getpid(), rustix::process::Signal::KILL);
            return rustix::process::kill_process(this, kill).unwrap();
        }
        let dir = TestDir::new();
        let namespace = dir.namespace();
        TEST.is_killed(dir.path());
        assert_eq!(dir.queue_names(), Vec::<String>::new());
        let temporary = || {
            dir.names()
                .iter()
                .filter(|name| name.starts_with(".tmp-"))
                .count()
        };
        assert_eq!(temporary(), 1, "{:?}", dir.names());
        drop(create_temporary(&namespace, 0o600).unwrap());
        dir.expect_no_leftovers();
    }

    #[test]
    fn of_many_threads_that_publish_one_name_exactly_one_wins() {
        let dir = TestDir::new();
        let namespace = dir.namespace();
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let publish = || Unpublished::create(&namespace, 0o600)?.publish(&name("/q"), 0o600);
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(publish)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let lost = |o: &Result<OwnedFd, FileError>| matches!(o, Err(FileError::AlreadyExists));
        assert_eq!(outcomes.iter().filter(|o| o.is_ok()).count(), 1);
        assert_eq!(outcomes.iter().filter(|o| lost(o)).count(), 7);
    }
}
