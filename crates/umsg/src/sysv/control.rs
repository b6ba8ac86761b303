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
use umsg_shm::sysv_engine::segment::{Fixed, write_removed};
use umsg_shm::sysv_engine::{Engine, ReceiverHeld, Refused, Why};

/// How often a file is given the rights that others change meanwhile.
const CHANGES: u32 = 100;

/// What is to become of a queue; None for what stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// The owner's user id. The creator stays the same, and keeps its rights.
    pub uid: Option<u32>,
    /// The owner's group id.
    pub gid: Option<u32>,
    /// Permission bits.
    pub mode: Option<u32>,
    /// How many bytes may be queued. What is queued beyond stays.
    pub qbytes: Option<u64>,
}

impl Change {
    /// The rights after the change. `said` stand in the header, `confirmed` are confirmed by the file.
    ///
    /// A user, group or permission that only the header has may be forged. A caller that gives it back as IPC_STAT told it does not grant it.
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
    /// Changes the queue's owner, mode and size. A process that waits in it asks again whether it may, and whether there is room.
    /// Source: msgctl(2), IPC_SET.
    ///
    /// Unlike the kernel's, a queue may be made as large as the namespace's [`max_qbytes`](crate::Limits::max_qbytes) without any privilege.
    /// Where the new owner or group is to be let in by the system too, and the caller is not root, the file system must know
    /// access control lists (tmpfs does), and the caller must own the queue's file: its creator does, until root gives it away. Only
    /// the file's owner and root can take a removed queue's names out of a shared directory. Until one of them does, other users make no queue of its key.
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
    /// `NotOwner` (EPERM) unless the caller is its owner, its creator, or has CAP_SYS_ADMIN; `TooManyBytes` (EPERM); `ModeNotEnforced`
    /// (EPERM); `InvalidOwner` (EINVAL);
    /// `RightsNotPossible` (EPERM); `Removed`.
    ///
    /// # If the process dies
    /// Before or after the change: until a process makes the next one, the system may let both those that may and those that might
    /// map the queue.
    pub fn set(&self, change: &Change) -> Result<(), ControlError> {
        match change.is_of_rights() {
            true => self.set_rights(change),
            false => self.set_in_header(change),
        }
    }

    /// Changes no more than words of the header.
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

    /// The file goes first and gets both rights, so that no process is kept out that may go in, whenever this ends; then the header; then the file gets the
    /// new rights alone. All is done anew if another process has changed the header meanwhile: of several, the last makes file and header agree.
    fn set_rights(&self, change: &Change) -> Result<(), ControlError> {
        let mut files = self.namespace.msg_files()?;
        let (file, summary) = match registry::open_id(&mut files, self.id()) {
            Err(OpenError::NoSuchId) => return Err(ControlError::Removed),
            Err(OpenError::PermissionDenied) => {
                return Err(self.unless_removed(ControlError::NotOwner));
            }
            other => other?,
        };
        let label = registry::label_of(&files, summary.key, summary.id)?.unwrap_or_default();
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
            file_rights::hand_over(&files, file.as_fd(), &label, [before, after])
                .map_err(|_| ControlError::RightsNotPossible)?;
            crash_point!(MSGCTL_HANDED_OVER);
            let version = self.apply(change, |fixed, held| {
                fixed.rights.set(held, &after.into());
                Ok(())
            })?;
            crash_point!(MSGCTL_APPLIED);
            // Wider than need be if it fails, which it did not a moment ago.
            let _ = file_rights::give(file.as_fd(), &[after]);
            // A change after this check finds the file as it is now.
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

    /// Changes the header under the queue's lock. Returns the version of the rights after it.
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
            // The engine adds one after this closure, under the same lock.
            version = fixed.rights.version().wrapping_add(1);
            Ok(())
        });
        done(&self.engine, outcome).map(|()| version)
    }

    /// What can be known without the lock. Source: the order of checks in `msgctl_down`, ipc/msg.c of the kernel.
    fn check(&self, change: &Change) -> Result<(), ControlError> {
        if let Some(bytes) = change.qbytes {
            let max = self.most_bytes()?;
            if bytes > u64::from(max) && !may_exceed_limits() {
                return Err(ControlError::TooManyBytes { max });
            }
        }
        if let Some(mode) = change.mode {
            let mode = mode & 0o777;
            // C's calls give a mode whatever they change.
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

    /// How large the queue may be made without privilege: what the namespace says now, but no larger than it could be when the
    /// queue was made.
    fn most_bytes(&self) -> Result<u32, ControlError> {
        let limits = self.namespace.limits()?;
        let most = limits.max_qbytes.max(limits.msgmnb);
        let capacity = self.engine.segment().layout().capacity;
        Ok(u32::try_from(capacity).unwrap_or(u32::MAX).min(most))
    }

    /// Removes the queue with all its messages, for all processes. A process that waits in it is told so (EIDRM). Its key is free for
    /// another queue. Source: msgctl(2), IPC_RMID.
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
    /// `NotOwner` (EPERM) unless the caller is its owner, its creator, or has CAP_SYS_ADMIN; `Removed` (EIDRM) if it was removed
    /// before.
    ///
    /// # Blocking
    /// For a lock that is not let go, for a second: then it is removed without. That harms nobody: a call whose process was stopped in it ends
    /// as one that came before, and keeps the queue's memory until it is done.
    ///
    /// # If the process dies
    /// The queue is there, or is removed. The next process of the file's owner, or root's, that needs the names of a removed one takes them away.
    pub fn remove(self) -> Result<(), ControlError> {
        self.remove_shared()
    }

    /// As [`remove`](Self::remove), for those that share the queue.
    pub(super) fn remove_shared(&self) -> Result<(), ControlError> {
        remove(&self.engine, &self.namespace, self.id())
    }
}

/// Removes the queue with an identifier, as [`Queue::remove`] does. One that is damaged or of another version loses its names, whatever its file
/// holds; that is for the file's owner and root to do. The caller needs no address space for the queue.
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
/// See [`Queue::remove`]; `Open` (EINVAL) if there is none.
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

/// Removes a queue that can't be mapped by a store in its file: a process that waits in it finds out at the next slice.
fn remove_unmapped(namespace: &Namespace, id: i32) -> Result<(), ControlError> {
    let (file, said) = registry::open_id(&mut namespace.msg_files()?, id)?;
    if !Rights::of_summary(&said).are_the_callers() {
        return Err(ControlError::NotOwner);
    }
    write_removed(file.as_fd()).map_err(OpenError::from)?;
    sweep::removed(namespace, id);
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
/// See [`Queue::set`]; `Open` (EINVAL) if there is none.
pub fn set_id(namespace: &Namespace, id: i32, change: &Change) -> Result<(), ControlError> {
    open_own(namespace, id)?.set(change)
}

/// A process that may not open a queue is not its owner.
fn open_own(namespace: &Namespace, id: i32) -> Result<Queue, ControlError> {
    match registry::attach_id(namespace, id) {
        Ok(segment) => Ok(Queue::new(segment, namespace)),
        Err(OpenError::PermissionDenied) => Err(ControlError::NotOwner),
        Err(error) => Err(error.into()),
    }
}

fn remove(engine: &Engine, namespace: &Namespace, id: i32) -> Result<(), ControlError> {
    match remove_if(engine, may_change) {
        // The header may be forged.
        Err(ControlError::NotOwner) if is_the_callers(engine, namespace, id) => {
            remove_if(engine, |_| Ok(()))?;
        }
        outcome => outcome?,
    }
    sweep::removed(namespace, id);
    Ok(())
}

/// Whether the file confirms that the caller is the queue's owner or creator.
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
        // Its lock is not to be had, or what that guards makes no sense.
        Err(error) => match (done(engine, engine.remove_unlocked(&may)), error) {
            (Ok(()), _) => Ok(()),
            // Whose it is may have been scribbled over, too.
            (Err(_), Queue(Damaged)) => Err(Damaged.into()),
            (Err(error), _) => Err(error),
        },
    }
}

fn may_change(fixed: &Fixed) -> Result<(), ControlError> {
    match Rights::of(fixed).are_the_callers() {
        true => Ok(()),
        false => Err(ControlError::NotOwner),
    }
}

/// What a change under the queue's lock came to.
pub(super) fn done<T>(
    engine: &Engine,
    outcome: Result<Result<T, ControlError>, Refused>,
) -> Result<T, ControlError> {
    match outcome {
        Ok(result) => result,
        Err(Refused::Own(Why::Removed)) => Err(ControlError::Removed),
        Err(Refused::Fault(trouble)) => {
            if trouble == crate::error::Fault::Damaged {
                engine.note_damage();
            }
            Err(trouble.into())
        }
        // Others are for waiters, or want a message.
        Err(_) => Err(ControlError::Busy),
    }
}
