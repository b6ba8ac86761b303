//! The queues of a namespace by name: unlinking and listing.

use super::options::OpenOptions;
use super::queue::Queue;
use crate::error::{OpenError, UnlinkError};
use crate::last_close;
use crate::namespace::{
    DeadLetterLabel, FileAccess, FileError, Namespace, NamespaceError, QueueName, presence_of,
};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use umsg_shm::fault::AttachError;
use umsg_shm::posix_engine::segment;

/// Removes a queue's name from the namespace that [`Namespace::resolve`] gives.
///
/// The name is free at once. The queue exists until no process has it open.
///
/// ```no_run
/// umsg::posix::unlink("/orders")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The errors of mq_unlink(3): EINVAL, EACCES and ENAMETOOLONG for an invalid name; ENOENT; EACCES if the caller is neither the
/// owner nor privileged. EMFILE or ENFILE if no descriptor is left for a queue that is
/// [removed](OpenOptions::remove_on_last_close) when no process has it open any more.
pub fn unlink(name: impl AsRef<OsStr>) -> Result<(), UnlinkError> {
    unlink_in(&Namespace::resolve()?, name)
}

/// Removes a queue's name from a namespace; see [`unlink`].
///
/// ```
/// # let dir = tempfile::tempdir_in("/dev/shm")?;
/// # let namespace = umsg::Namespace::at(dir.path())?;
/// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
/// umsg::posix::unlink_in(&namespace, "/q")?;
/// queue.send(b"open handles go on", 0)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// See [`unlink`].
pub fn unlink_in(namespace: &Namespace, name: impl AsRef<OsStr>) -> Result<(), UnlinkError> {
    let name = QueueName::parse(name.as_ref())
        .map_err(|error| UnlinkError::Name(OpenError::from(error)))?;
    let file = namespace.open_queue_file(&name, FileAccess::Read, true);
    if let Ok(file) = &file {
        end_sole_use(namespace, &name, file.as_fd())?;
    }
    let labelled = file.ok().and_then(|file| Labelled::of(namespace, file));
    namespace
        .unlink_queue_file(&name)
        .inspect(|()| labelled.iter().for_each(Labelled::remove_label))
        .map_err(unlink_error)
}

fn unlink_error(error: FileError) -> UnlinkError {
    match error {
        FileError::NotFound => UnlinkError::NotFound,
        FileError::Denied => UnlinkError::PermissionDenied,
        FileError::Namespace(error) => UnlinkError::Namespace(error),
        other => UnlinkError::System(std::io::Error::from_raw_os_error(other.errno())),
    }
}

/// Removes the name of a queue that this process has mapped, as [`unlink_in`] does, without opening its file. Returns None if the file has to be
/// opened: the name leads to another file, the queue has a dead-letter queue, or its creator may use its segment again.
#[doc(hidden)]
pub fn unlink_mapped(
    namespace: &Namespace,
    name: &OsStr,
    queue: &Queue,
) -> Option<Result<(), UnlinkError>> {
    let name = QueueName::parse(name).ok()?;
    let segment = queue.engine.segment();
    let is_plain = segment.policy().label == 0
        && !segment.policy().remove_on_last_close
        && segment.fixed().header.presence.look().is_ordinary();
    let removed = is_plain.then(|| namespace.unlink_file_of(&name, queue.identity()))??;
    Some(removed.map_err(unlink_error))
}

/// A queue of a namespace.
#[derive(Debug)]
#[non_exhaustive]
pub struct Listed {
    /// The name of the queue with its slash, in the form that [`OpenOptions::open`] takes.
    pub name: OsString,
    /// The queue, opened for receiving, or the reason why it can't be opened.
    pub queue: Result<Queue, OpenError>,
}

/// Returns the queues of a namespace, ordered by name. The returned handles do not [count](OpenOptions::counted) as open handles. If a queue has
/// [`remove_on_last_close`](OpenOptions::remove_on_last_close) and no process has it open, the call removes the queue and does not list it.
///
/// ```
/// # let dir = tempfile::tempdir_in("/dev/shm")?;
/// # let namespace = umsg::Namespace::at(dir.path())?;
/// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
/// let queues = umsg::posix::list(&namespace)?;
/// assert_eq!(queues[0].name, "/q");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`NamespaceError`] if the namespace can't be read.
pub fn list(namespace: &Namespace) -> Result<Vec<Listed>, NamespaceError> {
    list_with(namespace, OpenOptions::new().read(true).counted(false))
}

/// Returns the queues of a namespace as [`list`] does, but removes no queue: the result also includes queues that no process has open.
///
/// ```
/// # let dir = tempfile::tempdir_in("/dev/shm")?;
/// # let namespace = umsg::Namespace::at(dir.path())?;
/// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
/// assert_eq!(umsg::posix::list_untouched(&namespace)?.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The errors of [`list`].
pub fn list_untouched(namespace: &Namespace) -> Result<Vec<Listed>, NamespaceError> {
    let mut options = OpenOptions::new();
    options.read(true).counted(false).remove_unused(false);
    list_with(namespace, &options)
}

/// Returns the names of the queues of a namespace, each with the inode number of its file, without opening a queue. For programs that keep the queues
/// open and check for new queues.
///
/// While a process has a queue open, no other file of the namespace has the inode number.
///
/// ```
/// # let dir = tempfile::tempdir_in("/dev/shm")?;
/// # let namespace = umsg::Namespace::at(dir.path())?;
/// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
/// let (_, inode) = queue.identity();
/// assert_eq!(umsg::posix::names(&namespace)?, [("/q".into(), inode)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The errors of [`list`].
pub fn names(namespace: &Namespace) -> Result<Vec<(OsString, u64)>, NamespaceError> {
    let files = namespace.queue_files()?.into_iter();
    Ok(files
        .map(|(name, inode)| (name.with_slash(), inode))
        .collect())
}

fn list_with(namespace: &Namespace, options: &OpenOptions) -> Result<Vec<Listed>, NamespaceError> {
    let mut names = namespace.queue_names()?;
    names.sort_by(|one, other| one.as_os_str().cmp(other.as_os_str()));
    Ok(names
        .iter()
        .map(|name| Listed {
            name: name.with_slash(),
            queue: options.open_named(namespace, name),
        })
        .filter(|listed| !matches!(listed.queue, Err(OpenError::NotFound)))
        .collect())
}

/// Makes the queue an ordinary queue if its creator may still vacate it. After that, only the name decides whether the queue exists, and the creator
/// can't remove the queue a second time.
///
/// # Errors
/// `NotFound`: the creator has removed the queue.
fn end_sole_use(
    namespace: &Namespace,
    name: &QueueName,
    file: BorrowedFd<'_>,
) -> Result<(), UnlinkError> {
    if segment::presence(file).is_ordinary() || presence_of(file).is_ordinary() {
        return Ok(());
    }
    let Ok(file) = namespace.open_queue_file(name, FileAccess::ReadWrite, true) else {
        return Ok(());
    };
    match segment::attach(file.as_fd()) {
        Err(AttachError::Removed) => Err(UnlinkError::NotFound),
        _ => Ok(()),
    }
}

/// A queue that is being removed and has a label, which names its dead-letter queue.
struct Labelled<'a> {
    namespace: &'a Namespace,
    file: OwnedFd,
    label: DeadLetterLabel,
}

impl<'a> Labelled<'a> {
    /// Returns `None` if the queue has no label, or the caller can't read it. A later sweep removes the label.
    fn of(namespace: &'a Namespace, file: OwnedFd) -> Option<Labelled<'a>> {
        let label = last_close::dead_letter_label(file.as_fd())?;
        Some(Labelled {
            namespace,
            file,
            label,
        })
    }

    fn remove_label(&self) {
        // Another queue may have taken the name before the removal. So the label is removed only if this queue's file has no name left.
        let is_gone = rustix::fs::fstat(&self.file).is_ok_and(|stat| stat.st_nlink == 0);
        if is_gone {
            self.namespace.remove_label(self.label);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    struct Place {
        dir: TempDir,
        namespace: Namespace,
    }

    impl Place {
        fn new() -> Place {
            let dir = tempfile::tempdir_in("/dev/shm").unwrap();
            let namespace = Namespace::at(dir.path()).unwrap();
            Place { dir, namespace }
        }

        fn file(&self, name: &str) -> std::path::PathBuf {
            self.dir.path().join("mq").join(name)
        }

        fn names(&self) -> Vec<String> {
            let entries = std::fs::read_dir(self.dir.path().join("mq")).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let mut names: Vec<_> = names.collect();
            names.sort_unstable();
            names
        }
    }

    fn create(namespace: &Namespace, name: &str, dead_letter: Option<&str>) -> Queue {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).exclusive(true);
        if let Some(name) = dead_letter {
            options.dead_letter(name).max_deliveries(1);
        }
        options.namespace(namespace).open(name).unwrap()
    }

    #[test]
    fn a_mapped_queue_is_removed_by_its_name() {
        let place = Place::new();
        let namespace = &place.namespace;
        let queue = create(namespace, "/q", None);
        let unlink = || unlink_mapped(namespace, OsStr::new("/q"), &queue);
        assert!(matches!(unlink(), Some(Ok(()))));
        assert_eq!(place.names(), Vec::<String>::new());
        assert!(unlink().is_none(), "the name is free");
        queue.send(b"open handles go on", 0).unwrap();
    }

    #[test]
    fn a_name_that_leads_to_another_queue_by_now_is_left() {
        let place = Place::new();
        let namespace = &place.namespace;
        let first = create(namespace, "/q", None);
        unlink_in(namespace, "/q").unwrap();
        create(namespace, "/q", None);
        assert!(unlink_mapped(namespace, OsStr::new("/q"), &first).is_none());
        assert_eq!(place.names(), ["q"]);
    }

    #[test]
    fn a_queue_with_a_second_name_a_dead_letter_queue_or_a_kept_segment_needs_a_look() {
        let place = Place::new();
        let namespace = &place.namespace;
        let labelled = create(namespace, "/labelled", Some("/dead"));
        let twice = create(namespace, "/twice", None);
        std::fs::hard_link(place.file("twice"), place.file("second")).unwrap();
        let sole = create(namespace, "/sole", None);
        sole.engine.segment().fixed().header.presence.begin_sole();
        for (name, queue) in [("/labelled", labelled), ("/twice", twice), ("/sole", sole)] {
            assert!(unlink_mapped(namespace, OsStr::new(name), &queue).is_none());
        }
        let left = ["dead", "labelled", "second", "sole", "twice"];
        assert_eq!(place.names(), left);
    }
}
