//! Answers calls with paths to /dev/mqueue, the limits in /proc/sys, and /proc/sysvipc/msg ([`umsg::kernel_files`]).
//!
//! A filter can't read a path, so the kernel passes all calls with paths to the supervisor. The supervisor reads the first bytes of the path, and
//! makes the kernel perform nearly all calls. If the program changes the path meanwhile, it gets the kernel's file, as without a supervisor. So no
//! permission depends on the path.
//!
//! The supervisor compares the text of an absolute path with these paths, also for a program in a chroot. It gives the directory /dev/mqueue only to
//! threads that have the supervisor's root: a path relative to the directory's descriptor could leave another root.
//!
//! | what is opened | what the program gets |
//! |---|---|
//! | a limit | a file in memory with the limit's value; see [`super::limits`] for writes |
//! | /proc/sysvipc/msg | a file in memory with the table |
//! | /dev/mqueue | the directory of the namespace's queues |
//! | a queue below /dev/mqueue | a file in memory with the queue's line. The supervisor knows the queue to which it leads |

use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use umsg::Namespace;
use umsg::kernel_files::limit::Limit;
use umsg::kernel_files::place::{self, Asker, BLOCK, MqueuePath, SIZE};
use umsg::kernel_files::{queue_line, snapshot, sysv_table};

use super::descriptors::Opened;
use super::filter::{Kind, Numbers};
use super::listener::Call;
use super::memory::{self, Status};
use super::namespaces::Queues;
use super::posix::{ACCESS_MODE, PATH_MAX, Wanted};
use super::serve::{Outcome, Server};

/// The fields of statx(2) that an mqueue file system fills: all except the time of birth.
const STATX_KNOWN: u32 = libc::STATX_BASIC_STATS | libc::STATX_MNT_ID;

/// The device and the inode of the directory that is shown as /dev/mqueue, once a program has opened it. From then on, the supervisor also inspects
/// relative paths. Relaxed: a program gets the descriptor after both words are set, and each namespace has only one such directory.
#[derive(Default)]
pub struct Directory([AtomicU64; 2]);

impl Directory {
    pub fn note(&self, device: u64, inode: u64) {
        self.0[0].store(device, Ordering::Relaxed);
        self.0[1].store(inode, Ordering::Relaxed);
    }

    pub fn identity(&self) -> Option<(u64, u64)> {
        let [device, inode] = [0, 1].map(|index| self.0[index].load(Ordering::Relaxed));
        (inode != 0).then_some((device, inode))
    }
}

/// The object that a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target<'a> {
    Mqueue(MqueuePath<'a>),
    Limit(Limit),
    SysvTable,
}

/// Returns whether an absolute path that begins with these bytes may name a file that the supervisor serves.
fn may_be_shown(beginning: &[u8]) -> bool {
    beginning.starts_with(place::PATH) || beginning.starts_with(b"/proc/sys")
}

/// Returns whether a relative path that begins with these bytes may name a limit. sysctl(8) of busybox makes /proc/sys its working directory.
fn may_be_limit(beginning: &[u8]) -> bool {
    beginning.starts_with(b"fs/mqueue/") || beginning.starts_with(b"kernel/msg")
}

/// A path, and the queues of the directory to which it is relative. The queues are None unless that directory is shown as /dev/mqueue.
type Given = (Vec<u8>, Option<Arc<Queues>>);

/// The directory to which a path is relative.
enum Start {
    Root,
    /// A directory that is shown as /dev/mqueue.
    Mqueue(Arc<Queues>),
    /// /proc/sys.
    Sys,
}

/// The directory of the limits, with the final slash.
const SYS: &[u8] = b"/proc/sys/";

/// Returns the link in /proc for a thread's descriptor or working directory.
fn link_of(call: &Call, directory: RawFd) -> String {
    match directory {
        libc::AT_FDCWD => format!("/proc/{}/cwd", call.thread),
        number => format!("/proc/{}/fd/{number}", call.thread),
    }
}

/// Returns whether the root of a thread is that of the supervisor.
fn has_own_root(call: &Call) -> bool {
    let root = |path: &str| {
        let found = std::fs::metadata(path);
        found.map(|found| (found.dev(), found.ino())).ok()
    };
    let theirs = root(&format!("/proc/{}/root/", call.thread));
    theirs.is_some() && theirs == root("/")
}

/// Returns the flags and the mode of a call that opens a file. Returns None if the kernel has to perform the call.
fn flags_and_mode(call: &Call, numbers: &Numbers) -> Result<Option<(i32, u32)>, i32> {
    /// The size of `struct open_how`, with the fields flags, mode and resolve.
    const OPEN_HOW: usize = 24;
    /// Each of these flags makes the kernel resolve an absolute path differently, or refuse it: below another directory, or not across mount points.
    const CONFINED: u64 = libc::RESOLVE_IN_ROOT | libc::RESOLVE_BENEATH | libc::RESOLVE_NO_XDEV;
    let Some(how) = numbers.how else {
        let [flags, mode, _] = numbers.rest;
        return Ok(Some((flags as i32, mode as u32)));
    };
    // The kernel refuses a structure that is smaller than `struct open_how`.
    if call.arguments[3] < OPEN_HOW as u64 {
        return Ok(None);
    }
    let bytes: [u8; OPEN_HOW] = memory::read(call.thread, how)?;
    let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|index| bytes[at + index]));
    let (flags, mode, resolve) = (word(0), word(8), word(16));
    if resolve & CONFINED != 0 && memory::read::<[u8; 1]>(call.thread, numbers.path)? == *b"/" {
        return Ok(None);
    }
    Ok(Some((flags as i32, mode as u32)))
}

/// Returns whether a descriptor is the directory /proc/sys.
fn is_in_sys(call: &Call, directory: RawFd) -> bool {
    std::fs::read_link(link_of(call, directory)).is_ok_and(|path| path == Path::new("/proc/sys"))
}

fn raw(error: rustix::io::Errno) -> i32 {
    error.raw_os_error()
}

impl Server {
    /// Answers a call with a path, or passes it to the kernel.
    pub fn with_path(&self, call: &Call) -> Result<Outcome, i32> {
        let Some(numbers) = Numbers::of(call) else {
            return Ok(Outcome::Pass);
        };
        // The descriptor of inotify_add_watch(2) is an inotify instance, and not a directory.
        let directory = match numbers.kind {
            Kind::Watch => libc::AT_FDCWD,
            _ => numbers.directory,
        };
        let path = self.path(call, directory, numbers.path);
        let second = numbers
            .second
            .and_then(|(directory, path)| self.path(call, directory, path));
        if path.is_none() && second.is_none() {
            return Ok(Outcome::Pass);
        }
        let place = |path: &Option<Given>| {
            path.as_ref()
                .and_then(|(path, from)| self.target(path, from.is_some()).map(own))
        };
        let (target, other) = (place(&path), place(&second));
        if !self.listener.waits(call) {
            return Ok(Outcome::Answered);
        }
        if numbers.second.is_some() {
            return self.rename(call, path, [target.as_ref(), other.as_ref()]);
        }
        match (target, numbers.kind) {
            (None, _) => Ok(Outcome::Pass),
            (Some(target), Kind::Open) => {
                let queues = self.queues_of(call, path)?;
                self.open_target(call, &queues, &numbers, target.borrow())
            }
            (Some(target), _) => match target.borrow() {
                Target::Mqueue(place) => {
                    let status = self.status_like_own(call)?;
                    let queues = self.queues_of(call, path)?;
                    self.answer_path(call, &queues, &numbers, place, status)
                }
                // The path leads to a limit or to the table of System V queues. The kernel has a file at this path, so the kernel performs the call.
                _ => Ok(Outcome::Pass),
            },
        }
    }

    /// Reads a path if it may lead to a file that the supervisor serves.
    fn path(&self, call: &Call, directory: RawFd, address: u64) -> Option<Given> {
        let mut beginning = [0; 16];
        let len = memory::read_some(call.thread, address, &mut beginning);
        let beginning = &beginning[..len];
        let is_relative = !matches!(beginning.first(), None | Some(b'/' | 0));
        let from = match is_relative {
            false if may_be_shown(beginning) => Start::Root,
            false => return None,
            true => match self.directory_of(call, directory) {
                Some(queues) => Start::Mqueue(queues),
                None if may_be_limit(beginning) && is_in_sys(call, directory) => Start::Sys,
                None => return None,
            },
        };
        // If the path can't be read, the kernel performs the call, which fails.
        let path = memory::read_string(call.thread, address, PATH_MAX).ok()?;
        Some(match from {
            Start::Root => (path, None),
            Start::Mqueue(queues) => (path, Some(queues)),
            Start::Sys => ([SYS, path.as_slice()].concat(), None),
        })
    }

    /// Returns the queues of a directory, if the directory is shown as /dev/mqueue.
    fn directory_of(&self, call: &Call, directory: RawFd) -> Option<Arc<Queues>> {
        if !self.namespaces.has_directory() {
            return None;
        }
        let found = std::fs::metadata(link_of(call, directory)).ok()?;
        self.namespaces.with_directory((found.dev(), found.ino()))
    }

    /// Returns the queues for a path: those of the directory to which it is relative, or those of the caller's IPC namespace.
    fn queues_of(&self, call: &Call, path: Option<Given>) -> Result<Arc<Queues>, i32> {
        match path {
            Some((_, Some(queues))) => Ok(queues),
            _ => self.queues(call),
        }
    }

    fn target<'a>(&self, path: &'a [u8], is_relative: bool) -> Option<Target<'a>> {
        let place = match is_relative {
            true => MqueuePath::relative(path),
            false => MqueuePath::absolute(path),
        };
        match place.filter(|_| self.settings.dev_mqueue) {
            Some(place) => Some(Target::Mqueue(place)),
            None if path == sysv_table::PATH.as_bytes() => Some(Target::SysvTable),
            None => Limit::named(path).map(Target::Limit),
        }
    }

    fn open_target(
        &self,
        call: &Call,
        queues: &Arc<Queues>,
        numbers: &Numbers,
        target: Target<'_>,
    ) -> Result<Outcome, i32> {
        match flags_and_mode(call, numbers)? {
            Some((flags, mode)) => self.open_path(call, queues, target, flags, mode),
            None => Ok(Outcome::Pass),
        }
    }

    fn answer_path(
        &self,
        call: &Call,
        queues: &Arc<Queues>,
        numbers: &Numbers,
        place: MqueuePath<'_>,
        status: Status,
    ) -> Result<Outcome, i32> {
        let [first, second, third] = numbers.rest;
        let namespace = queues.namespace();
        match numbers.kind {
            Kind::Open => {}
            Kind::Stat => {
                let (path, mode) = place.existing(namespace)?;
                let mut found = memory::stat_of(&c_path(&path)?)?;
                if let Some(mode) = mode {
                    found.st_mode = libc::S_IFREG | mode;
                    found.st_size = SIZE;
                    found.st_blocks = 0;
                    // The type has 32 or 64 bits, depending on the architecture.
                    found.st_blksize = BLOCK.into();
                }
                memory::write(call.thread, first, &found)?;
            }
            Kind::Statx => {
                let (path, mode) = place.existing(namespace)?;
                let mut found = memory::statx_of(&c_path(&path)?, first as i32, second as u32)?;
                if let Some(mode) = mode {
                    found.stx_mask &= STATX_KNOWN;
                    found.stx_mode = (libc::S_IFREG | mode) as u16;
                    found.stx_size = SIZE.cast_unsigned();
                    found.stx_blocks = 0;
                    found.stx_blksize = BLOCK.into();
                }
                memory::write(call.thread, third, &found)?;
            }
            Kind::Access => access(namespace, place, first as u32, second as i32, &status)?,
            Kind::Unlink if first as i32 & libc::AT_REMOVEDIR == 0 => {
                self.unlink(namespace, place)?
            }
            Kind::Unlink => {
                return Err(match place {
                    MqueuePath::Directory => libc::EBUSY,
                    MqueuePath::Name(name) => match place::find(namespace, name) {
                        Ok(_) => libc::ENOTDIR,
                        Err(errno) => errno,
                    },
                });
            }
            Kind::Mode => match place {
                MqueuePath::Directory => {
                    let mode = Mode::from_raw_mode(first as u32);
                    rustix::fs::chmod(place.file(namespace)?, mode).map_err(raw)?;
                }
                MqueuePath::Name(name) => place::set_mode(namespace, name, first as u32 & 0o7777)?,
            },
            Kind::Owner => {
                let id = |number: u64| (number as u32 != u32::MAX).then_some(number as u32);
                // The call does not follow a symlink: in a shared namespace, another user may have replaced a queue's file by a symlink.
                std::os::unix::fs::lchown(place.file(namespace)?, id(first), id(second))
                    .map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
            }
            Kind::Watch => {
                let (path, _) = place.existing(namespace)?;
                let watcher = memory::copy_descriptor(call.thread, numbers.directory)?;
                let events = rustix::fs::inotify::WatchFlags::from_bits_retain(first as u32);
                let number = rustix::fs::inotify::add_watch(&watcher, path, events).map_err(raw)?;
                return Ok(Outcome::Value(number.into()));
            }
            Kind::Rename => {}
        }
        Ok(Outcome::Value(0))
    }

    /// Answers rename(2). `path` is the first path of the call.
    fn rename(
        &self,
        call: &Call,
        path: Option<Given>,
        [from, to]: [Option<&OwnTarget>; 2],
    ) -> Result<Outcome, i32> {
        let is_place = |target: Option<&OwnTarget>| {
            matches!(target.map(OwnTarget::borrow), Some(Target::Mqueue(_)))
        };
        if !is_place(from) && !is_place(to) {
            return Ok(Outcome::Pass);
        }
        match (from, to) {
            (Some(OwnTarget::Other(_)), _) | (_, Some(OwnTarget::Other(_))) => Err(libc::EBUSY),
            (Some(OwnTarget::Name(from)), Some(OwnTarget::Name(to))) => {
                place::find(self.queues_of(call, path)?.namespace(), from)?;
                place::check(to)?;
                if from == to {
                    Ok(Outcome::Value(0))
                } else {
                    Err(libc::EPERM)
                }
            }
            _ => Err(libc::EXDEV),
        }
    }

    fn unlink(&self, namespace: &Namespace, place: MqueuePath<'_>) -> Result<(), i32> {
        let MqueuePath::Name(name) = place else {
            return Err(libc::EISDIR);
        };
        place::check(name)?;
        let name = [b"/", name].concat();
        umsg::posix::unlink_in(namespace, OsStr::from_bytes(&name)).map_err(|error| {
            self.explain("unlink", &error);
            match error.errno() {
                // For another user's queue, mq_unlink(3) reports EACCES, but unlink(2) in a sticky directory reports EPERM.
                libc::EACCES => libc::EPERM,
                other => other,
            }
        })
    }

    fn open_path(
        &self,
        call: &Call,
        queues: &Arc<Queues>,
        target: Target<'_>,
        flags: i32,
        mode: u32,
    ) -> Result<Outcome, i32> {
        let namespace = queues.namespace();
        let access = flags & ACCESS_MODE;
        let writes = access != libc::O_RDONLY || flags & libc::O_TRUNC != 0;
        let closes = flags & libc::O_CLOEXEC != 0;
        let kept = flags & (libc::O_CLOEXEC | libc::O_NONBLOCK);
        match target {
            // The kernel also has a file at each of these paths, so it performs the call.
            Target::Limit(_) | Target::SysvTable
                if flags & (libc::O_DIRECTORY | libc::O_PATH) != 0 =>
            {
                Ok(Outcome::Pass)
            }
            Target::Limit(_)
                if flags & (libc::O_CREAT | libc::O_EXCL) == libc::O_CREAT | libc::O_EXCL =>
            {
                Err(libc::EEXIST)
            }
            Target::Limit(limit) => self.open_limit(call, queues, limit, access, kept, writes),
            Target::SysvTable if writes => Ok(Outcome::Pass),
            Target::SysvTable => {
                let text = sysv_table::text(namespace).map_err(|error| error.errno())?;
                let file = snapshot("umsg", text.as_bytes(), kept).map_err(raw)?;
                let _ = self.listener.give(call, file.as_fd(), closes);
                Ok(Outcome::Answered)
            }
            Target::Mqueue(MqueuePath::Directory) if !has_own_root(call) => Ok(Outcome::Pass),
            // An mqueue file system does not support files without a name.
            Target::Mqueue(MqueuePath::Directory) if flags & libc::O_TMPFILE == libc::O_TMPFILE => {
                Err(libc::EOPNOTSUPP)
            }
            Target::Mqueue(MqueuePath::Directory) => {
                self.status_like_own(call)?;
                let path = MqueuePath::Directory.file(namespace)?;
                // If the removal of stale files fails, the directory shows some files that are not queues, which is harmless.
                let _ = namespace.sweep_files();
                // O_PATH is removed, because a descriptor that was opened with O_PATH can't be passed to the program.
                let flags = OFlags::from_bits_retain(flags.cast_unsigned()) - OFlags::PATH;
                let file =
                    rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).map_err(raw)?;
                let found = rustix::fs::fstat(&file).map_err(raw)?;
                self.namespaces
                    .note_directory(queues, found.st_dev, found.st_ino);
                let _ = self.listener.give(call, file.as_fd(), closes);
                Ok(Outcome::Answered)
            }
            Target::Mqueue(MqueuePath::Name(name)) => {
                if flags & libc::O_DIRECTORY != 0 {
                    return Err(match place::find(namespace, name) {
                        _ if flags & libc::O_CREAT != 0 => libc::EINVAL,
                        Ok(_) => libc::ENOTDIR,
                        Err(errno) => errno,
                    });
                }
                place::check(name)?;
                let name = [b"/", name].concat();
                let flags = flags & !libc::O_PATH;
                let status = self.status_of_opener(call)?;
                let wanted = Wanted {
                    name: &name,
                    flags,
                    mode,
                    attributes: None,
                };
                let opened = self.open_queue(call, namespace, &wanted, &status)?;
                let file = line_of(&opened, access | flags & libc::O_NONBLOCK)?;
                self.give_queue(call, &Arc::new(opened.shown_as(file)), closes);
                Ok(Outcome::Answered)
            }
        }
    }

    fn open_limit(
        &self,
        call: &Call,
        queues: &Arc<Queues>,
        limit: Limit,
        access: i32,
        kept: i32,
        writes: bool,
    ) -> Result<Outcome, i32> {
        let namespace = queues.namespace();
        if writes {
            self.status_like_own(call)?;
            if !namespace.may_set_limits() {
                self.explain(
                    "open",
                    &"only the namespace's owner and root can set its limits",
                );
                return Err(libc::EACCES);
            }
        }
        let file = limit.open(namespace, access, kept | libc::O_CLOEXEC)?;
        let closes = kept & libc::O_CLOEXEC != 0;
        if access == libc::O_RDONLY {
            let _ = self.listener.give(call, file.as_fd(), closes);
            return Ok(Outcome::Answered);
        }
        let watch = self
            .limits
            .watch(queues, limit, file.as_fd(), access == libc::O_RDWR)?;
        match self.listener.give(call, file.as_fd(), closes) {
            Ok(Ok(number)) => self.limits.note(watch, call.thread, number),
            _ => self.limits.forget(watch),
        }
        Ok(Outcome::Answered)
    }
}

/// The target of a path, with its own copy of the name.
enum OwnTarget {
    Name(Vec<u8>),
    Other(Target<'static>),
}

fn own(target: Target<'_>) -> OwnTarget {
    match target {
        Target::Mqueue(MqueuePath::Name(name)) => OwnTarget::Name(name.to_vec()),
        Target::Mqueue(MqueuePath::Directory) => {
            OwnTarget::Other(Target::Mqueue(MqueuePath::Directory))
        }
        Target::Limit(limit) => OwnTarget::Other(Target::Limit(limit)),
        Target::SysvTable => OwnTarget::Other(Target::SysvTable),
    }
}

impl OwnTarget {
    fn borrow(&self) -> Target<'_> {
        match self {
            OwnTarget::Name(name) => Target::Mqueue(MqueuePath::Name(name)),
            OwnTarget::Other(target) => *target,
        }
    }
}

fn c_path(path: &Path) -> Result<CString, i32> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| libc::ENOENT)
}

/// Checks permissions, as access(2) does.
fn access(
    namespace: &Namespace,
    place: MqueuePath<'_>,
    wanted: u32,
    flags: i32,
    status: &Status,
) -> Result<(), i32> {
    if wanted & !7 != 0 {
        return Err(libc::EINVAL);
    }
    let (path, mode) = place.existing(namespace)?;
    let found = rustix::fs::stat(&path).map_err(raw)?;
    let mode = mode.unwrap_or(found.st_mode & 0o7777);
    let (user, group) = match flags & libc::AT_EACCESS {
        0 => status.real,
        _ => (status.user, status.group),
    };
    let is_member = rustix::process::getgroups()
        .is_ok_and(|groups| groups.iter().any(|one| one.as_raw() == found.st_gid));
    let asker = Asker {
        user,
        group,
        is_member,
    };
    let owner = (found.st_uid, found.st_gid);
    match place::permits(mode, owner, place == MqueuePath::Directory, asker, wanted) {
        true => Ok(()),
        false => Err(libc::EACCES),
    }
}

/// Returns a file in memory with the line that describes a queue. The file is sealed, so no program can write to it.
fn line_of(opened: &Opened, flags: i32) -> Result<OwnedFd, i32> {
    let flagged = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("umsg", flagged).map_err(raw)?;
    let mut room = [0; size_of::<queue_line::Room>()];
    rustix::io::write(&file, queue_line::of(&opened.queue, &mut room)).map_err(raw)?;
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals).map_err(raw)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let flags = OFlags::from_bits_retain(flags.cast_unsigned()) | OFlags::CLOEXEC;
    let shown = rustix::fs::open(path, flags, Mode::empty()).map_err(raw)?;
    // The mode is set after the open. So the creator's own descriptor does not depend on the mode, as for a queue.
    rustix::fs::fchmod(&shown, Mode::from_raw_mode(opened.queue.mode())).map_err(raw)?;
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use super::may_be_shown;

    #[test]
    fn few_paths_are_read_to_their_end() {
        for path in [
            b"/dev/mqueue".as_slice(),
            b"/dev/mqueue/a",
            b"/proc/sysvipc/msg",
            b"/proc/sys/kernel",
        ] {
            assert!(may_be_shown(path));
        }
        for path in [b"/dev/null".as_slice(), b"/proc/self/fd", b"/", b"", b"dev"] {
            assert!(!may_be_shown(path));
        }
    }
}
