//! Changing and removing a queue (msgctl).

use super::error::{ControlError, OpenError};
use super::permission::{Rights, may_exceed_limits};
use super::queue::Queue;
use super::{file_rights, registry, sweep};
use crate::error::{QueueError, SegmentError};
use crate::namespace::Namespace;
use rustix::fd::AsFd;
use umsg_shm::crash::crash_point;
use umsg_shm::sys::thread;
use umsg_shm::sysv_engine::segment::{self, Fixed};
use umsg_shm::sysv_engine::{Engine, ReceiverHeld, Refused, Why};

/// The number of attempts to give a file its rights while other processes change them.
const CHANGES: u32 = 100;

/// The new properties of a queue, for [`Queue::set`]. `None` leaves a property unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// The owner's user id. The creator stays the same, and keeps its rights.
    pub uid: Option<u32>,
    /// The owner's group id.
    pub gid: Option<u32>,
    /// Permission bits.
    pub mode: Option<u32>,
    /// The number of bytes that may be queued. Messages that already exceed the number stay queued.
    pub qbytes: Option<u64>,
}

impl Change {
    /// Returns the rights after the change. `said` are the rights in the header, and `confirmed` are those that the file confirms.
    ///
    /// A user, group or permission that only the header names may be forged. So a caller that sets the values that IPC_STAT returned does not grant a
    /// forged right.
    fn applied_to(&self, said: Rights, confirmed: Rights) -> Rights {
        let id = |wanted: Option<u32>, said: u32, confirmed: u32| match wanted {
            Some(wanted) if wanted != said => wanted,
            _ => confirmed,
        };
        let mode = self.mode.unwrap_or(said.mode) & 0o777;
        Rights {
            uid: id(self.uid, said.uid, confirmed.uid),
            gid: id(self.gid, said.gid, confirmed.gid),
            mode: mode & !said.mode | mode & confirmed.mode,
            ..confirmed
        }
    }

    fn is_of_rights(&self) -> bool {
        self.uid.is_some() || self.gid.is_some() || self.mode.is_some()
    }
}

impl Queue {
    /// Changes the queue's owner, mode and size. Blocked threads check their permission and the room again.
    /// Source: msgctl(2), IPC_SET.
    ///
    /// Unlike in the kernel, an unprivileged owner may allow up to the namespace's [`max_qbytes`](crate::Limits::max_qbytes) bytes.
    ///
    /// The new owner and group get access to the queue's file. For this, a caller other than root must own the file. The creator owns the file, as
    /// long as root does not give the file away. The file system must support access control lists; tmpfs does.
    ///
    /// Only the file's owner and root can remove the names of a removed queue from a shared directory. Until the owner or root has removed the names,
    /// other users can create no queue of its key.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use umsg::sysv::Change;
    ///
    /// let change = Change { mode: Some(0o640), ..Change::default() };
    /// queue.set(&change)?;
    /// assert_eq!(queue.entry()?.mode, 0o640);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `NotOwner` (EPERM) unless the caller is the queue's owner or creator, or has CAP_SYS_ADMIN; `TooManyBytes` (EPERM); `ModeNotEnforced` (EPERM);
    /// `InvalidOwner` (EINVAL); `RightsNotPossible` (EPERM); `Removed`.
    ///
    /// # If the process dies
    /// If the process dies during the call, the queue has the old or the new rights. Until the next change, users with the old rights and users with
    /// the new rights may have access to the queue's file.
    pub fn set(&self, change: &Change) -> Result<(), ControlError> {
        match change.is_of_rights() {
            true => self.set_rights(change),
            false => self.set_in_header(change),
        }
    }

    /// Changes only words of the header.
    fn set_in_header(&self, change: &Change) -> Result<(), ControlError> {
        let fixed = self.engine.segment().fixed();
        may_change(fixed).map_err(|error| self.unless_removed(error))?;
        self.check(change)?;
        self.apply(change, |fixed, held| {
            may_change(fixed)?;
            if change.is_of_rights() {
                let said = Rights::of(fixed);
                let after = change.applied_to(said, said);
                fixed.rights.set(held, &after.into());
            }
            Ok(())
        })
        .map(drop)
    }

    /// Changes the rights in the file and in the header.
    ///
    /// The file first gets the old and the new rights together, then the header changes, then the file gets the new rights alone. So after a death at
    /// any point, every permitted user still has access. If another process changes the header meanwhile, this process starts over, so that the
    /// process that finishes last makes the file and the header agree.
    fn set_rights(&self, change: &Change) -> Result<(), ControlError> {
        let mut files = self.namespace.msg_files()?;
        let (file, summary) = match registry::open_id(&mut files, self.id()) {
            Err(OpenError::NoSuchId) => return Err(ControlError::Removed),
            Err(OpenError::PermissionDenied) => {
                return Err(self.unless_removed(ControlError::NotOwner));
            }
            other => other?,
        };
        let link = registry::key_symlink_of(&files, summary.key, summary.id)?.unwrap_or_default();
        let fixed = self.engine.segment().fixed();
        let mut is_checked = false;
        for _ in 0..CHANGES {
            let said = Rights::of(fixed);
            let before = file_rights::confirm(file.as_fd(), said)
                .map_err(|_| ControlError::RightsNotPossible)?;
            if !is_checked {
                if !before.are_the_callers() {
                    return Err(self.unless_removed(ControlError::NotOwner));
                }
                self.check(change)?;
                is_checked = true;
            }
            let after = change.applied_to(said, before);
            file_rights::hand_over(&files, file.as_fd(), &link, [before, after])
                .map_err(|_| ControlError::RightsNotPossible)?;
            crash_point!(MSGCTL_HANDED_OVER);
            let version = self.apply(change, |fixed, held| {
                fixed.rights.set(held, &after.into());
                Ok(())
            })?;
            crash_point!(MSGCTL_APPLIED);
            // If `give` fails, the file's rights stay wider than necessary. A failure is unlikely, because `hand_over` changed the same rights a
            // moment ago.
            let _ = file_rights::give(file.as_fd(), &[after]);
            // A process that changes the rights after this check begins with the file as it is now.
            if fixed.rights.version() == version {
                break;
            }
        }
        Ok(())
    }

    fn unless_removed(&self, error: ControlError) -> ControlError {
        match self.engine.is_removed() {
            true => ControlError::Removed,
            false => error,
        }
    }

    /// Changes the header under the queue's lock. Returns the version of the rights after the change.
    fn apply(
        &self,
        change: &Change,
        rights: impl FnOnce(&Fixed, ReceiverHeld<'_>) -> Result<(), ControlError>,
    ) -> Result<u32, ControlError> {
        let mut version = 0;
        let outcome = self.engine.change(thread::current(), |fixed, held| {
            rights(fixed, held)?;
            if let Some(bytes) = change.qbytes {
                fixed.control.set_capacity(held, bytes);
            }
            // The engine adds one to the version after this closure, under the same lock.
            version = fixed.rights.version().wrapping_add(1);
            Ok(())
        });
        done(&self.engine, outcome).map(|()| version)
    }

    /// Makes those checks of a change that need no lock. Source: the order of checks in `msgctl_down`, ipc/msg.c of the kernel.
    fn check(&self, change: &Change) -> Result<(), ControlError> {
        if let Some(bytes) = change.qbytes {
            let max = self.most_bytes()?;
            if bytes > u64::from(max) && !may_exceed_limits() {
                return Err(ControlError::TooManyBytes { max });
            }
        }
        if let Some(mode) = change.mode {
            let mode = mode & 0o777;
            // In C, each IPC_SET passes a mode. So the queue's present mode is accepted, even if the namespace refuses such modes.
            let is_new = mode != Rights::of(self.engine.segment().fixed()).mode;
            if is_new && !self.namespace.limits()?.allow_mode(mode) {
                return Err(ControlError::ModeNotEnforced { mode });
            }
        }
        match [change.uid, change.gid].contains(&Some(u32::MAX)) {
            true => Err(ControlError::InvalidOwner),
            false => Ok(()),
        }
    }

    /// Returns the largest capacity that a caller without privilege may set: the namespace's current limit, or its limit at the creation of the
    /// queue if that is lower.
    fn most_bytes(&self) -> Result<u32, ControlError> {
        let limits = self.namespace.limits()?;
        let most = limits.max_qbytes.max(limits.msgmnb);
        let capacity = self.engine.segment().layout().capacity;
        Ok(u32::try_from(capacity).unwrap_or(u32::MAX).min(most))
    }

    /// Removes the queue with all its messages, for all processes. Blocked calls fail with EIDRM. The key is free for another
    /// queue. Source: msgctl(2), IPC_RMID.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// queue.remove()?;
    /// assert!(umsg::sysv::list(&namespace)?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `NotOwner` (EPERM) unless the caller is the queue's owner or creator, or has CAP_SYS_ADMIN; `Removed` (EIDRM) if the queue was already
    /// removed.
    ///
    /// # Blocking
    /// Blocks while another process holds the queue's lock, for at most a tenth of a second. After that, the call removes the queue without the lock.
    /// If the holder of the lock was stopped, the call of that process later ends as if it came before the removal. Until then, that process keeps
    /// the queue's memory.
    ///
    /// # If the process dies
    /// If the process dies during the call, the queue exists or is removed. The next process of the file's owner, or of root, that needs the queue's
    /// names removes them.
    pub fn remove(self) -> Result<(), ControlError> {
        self.remove_shared()
    }

    /// Removes the queue as [`remove`](Self::remove) does, for callers that share the handle.
    pub(super) fn remove_shared(&self) -> Result<(), ControlError> {
        remove(&self.engine, &self.namespace, self.id())
    }
}

/// Removes the queue with an identifier, as [`Queue::remove`] does.
///
/// If the queue is corrupted or has another version, the call removes its names, if the caller is the file's owner or root. The caller needs
/// no address space for the queue.
///
/// ```
/// # let dir = tempfile::tempdir_in("/dev/shm")?;
/// # let namespace = umsg::Namespace::at(dir.path())?;
/// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
/// umsg::sysv::remove(&namespace, queue.id())?;
/// assert!(queue.is_removed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// See [`Queue::remove`]; `Open` (EINVAL) if no queue has the identifier.
pub fn remove_id(namespace: &Namespace, id: i32) -> Result<(), ControlError> {
    match open_own(namespace, id).and_then(Queue::remove) {
        Err(ControlError::Queue(QueueError::Damaged)) => sweep::unusable(namespace, id, true),
        Err(ControlError::Open(error)) if registry::is_unusable(&error) => {
            let is_ours = !matches!(error, OpenError::Segment(SegmentError::OtherVersion { .. }));
            sweep::unusable(namespace, id, is_ours)
        }
        Err(ControlError::Open(OpenError::Segment(SegmentError::NoAddressSpace { .. }))) => {
            remove_unmapped(namespace, id)
        }
        outcome => outcome,
    }
}

/// Removes a queue that can't be mapped, by a write to its file. Blocked threads notice the removal within 100 ms.
fn remove_unmapped(namespace: &Namespace, id: i32) -> Result<(), ControlError> {
    let (file, said) = registry::open_id(&mut namespace.msg_files()?, id)?;
    if !Rights::of_summary(&said).are_the_callers() {
        return Err(ControlError::NotOwner);
    }
    match segment::remove_unmapped(file.as_fd(), &said).map_err(OpenError::from)? {
        true => sweep::removed(namespace, id),
        false => return Err(ControlError::Removed),
    }
    Ok(())
}

/// Changes the queue with an identifier.
///
/// ```
/// # let dir = tempfile::tempdir_in("/dev/shm")?;
/// # let namespace = umsg::Namespace::at(dir.path())?;
/// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
/// use umsg::sysv::Change;
///
/// let change = Change { mode: Some(0o640), ..Change::default() };
/// umsg::sysv::set(&namespace, queue.id(), &change)?;
/// assert_eq!(queue.entry()?.mode, 0o640);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// See [`Queue::set`]; `Open` (EINVAL) if no queue has the identifier.
pub fn set_id(namespace: &Namespace, id: i32, change: &Change) -> Result<(), ControlError> {
    open_own(namespace, id)?.set(change)
}

/// Opens a queue for its owner. A process that may not open the file is not the owner.
fn open_own(namespace: &Namespace, id: i32) -> Result<Queue, ControlError> {
    match registry::attach_id(namespace, id) {
        Ok(segment) => Ok(Queue::new(segment, namespace)),
        Err(OpenError::PermissionDenied) => Err(ControlError::NotOwner),
        Err(error) => Err(error.into()),
    }
}

fn remove(engine: &Engine, namespace: &Namespace, id: i32) -> Result<(), ControlError> {
    match remove_if(engine, may_change) {
        // The owner in the header may be forged.
        Err(ControlError::NotOwner) if is_the_callers(engine, namespace, id) => {
            remove_if(engine, |_| Ok(()))?;
        }
        outcome => outcome?,
    }
    sweep::removed(namespace, id);
    Ok(())
}

/// Returns whether the file confirms that the caller is the queue's owner or creator.
fn is_the_callers(engine: &Engine, namespace: &Namespace, id: i32) -> bool {
    let said = Rights::of(engine.segment().fixed());
    let file = namespace.msg_files().ok();
    let file = file.and_then(|mut files| registry::open_id(&mut files, id).ok());
    file.and_then(|(file, _)| file_rights::confirm(file.as_fd(), said).ok())
        .is_some_and(|rights| rights.are_the_callers())
}

fn remove_if(
    engine: &Engine,
    may: impl Fn(&Fixed) -> Result<(), ControlError>,
) -> Result<(), ControlError> {
    use ControlError::{NotOwner, Queue, Removed};
    use QueueError::{Damaged, WouldDeadlock};
    match done(engine, engine.remove(thread::current(), &may)) {
        Ok(()) => Ok(()),
        Err(error @ (Removed | NotOwner | Queue(WouldDeadlock))) => Err(error),
        // A stopped process keeps the lock, or the data that the lock guards are corrupted.
        Err(error) => match (done(engine, engine.remove_unlocked(&may)), error) {
            (Ok(()), _) => Ok(()),
            // In a corrupted queue, the owner in the header may be wrong, so `NotOwner` is not reported.
            (Err(_), Queue(Damaged)) => Err(Damaged.into()),
            (Err(error), _) => Err(error),
        },
    }
}

pub(super) fn may_change(fixed: &Fixed) -> Result<(), ControlError> {
    match Rights::of(fixed).are_the_callers() {
        true => Ok(()),
        false => Err(ControlError::NotOwner),
    }
}

/// Maps the outcome of a change under the queue's lock to an error.
pub(super) fn done<T>(
    engine: &Engine,
    outcome: Result<Result<T, ControlError>, Refused>,
) -> Result<T, ControlError> {
    match outcome {
        Ok(result) => result,
        Err(Refused::Own(Why::Removed)) => Err(ControlError::Removed),
        Err(Refused::Fault(fault)) => {
            if fault == crate::error::Fault::Damaged {
                engine.note_damage();
            }
            Err(fault.into())
        }
        // The engine gives the other reasons only to calls that wait or receive.
        Err(_) => Err(ControlError::Busy),
    }
}
