//! The commands of msgctl(2).

use super::super::attachments::Attachments;
use super::super::queue::Queue;
use super::{ATTACHED, Errno, Used, find};
use crate::namespace::{Namespace, NamespaceError};
use crate::sysv::info::kept_info;
use crate::sysv::{
    Change, ControlError, Entry, MsgInfo, OpenError, ipc_info, msg_info, msg_stat, remove,
};
use std::time::{SystemTime, UNIX_EPOCH};

/// The command of msgctl that does the same as `MSG_STAT`, but does not check the read permission. The libc crate has no such constant.
pub const MSG_STAT_ANY: i32 = 13;

/// Returns the return value and the description of IPC_STAT, MSG_STAT or MSG_STAT_ANY. The latter two take an index.
///
/// # Errors
/// EINVAL, EACCES.
pub fn msgctl_stat(id: i32, command: i32) -> Result<(i32, Entry), Errno> {
    if command == libc::IPC_STAT {
        return Ok((0, stat(id)?));
    }
    let namespace = Namespace::of_this_process().map_err(|error| error.errno())?;
    stat_at(namespace, id, command)
}

/// Returns the identifier and the description of MSG_STAT or MSG_STAT_ANY.
pub(super) fn stat_at(
    namespace: &Namespace,
    index: i32,
    command: i32,
) -> Result<(i32, Entry), Errno> {
    let entry =
        msg_stat(namespace, index, command == MSG_STAT_ANY).map_err(|error| errno(&error))?;
    Ok((entry.id, entry))
}

fn stat(id: i32) -> Result<Entry, Errno> {
    find(id)?.description()
}

/// Returns the result of IPC_INFO or MSG_INFO. In C, the call returns the highest index in use.
///
/// # Errors
/// The errors of a namespace that can't be used.
pub fn msgctl_info(command: i32) -> Result<MsgInfo, Errno> {
    let read = || info_of(Namespace::of_this_process()?, command);
    read().map_err(|error: OpenError| error.errno())
}

pub(super) fn info_of(namespace: &Namespace, command: i32) -> Result<MsgInfo, OpenError> {
    match command {
        libc::MSG_INFO => msg_info(namespace),
        _ => ipc_info(namespace),
    }
}

/// Returns the result of IPC_INFO or MSG_INFO, if this process has all necessary data from an earlier call. Unlike [`msgctl_info`], this function
/// needs little stack.
pub fn kept_msgctl_info(command: i32) -> Option<MsgInfo> {
    kept_info(Namespace::known_of_this_process()?, command)
}

/// Changes a queue (IPC_SET).
///
/// # Errors
/// EINVAL, EPERM.
pub fn msgctl_set(id: i32, change: &Change) -> Result<(), Errno> {
    find(id).map_err(owners_only)?.change(change)
}

impl Used {
    /// Returns the queue's description (IPC_STAT).
    pub(super) fn description(&self) -> Result<Entry, Errno> {
        self.0.entry().map_err(|error| self.at_once(errno(&error)))
    }

    /// Changes the queue (IPC_SET).
    pub(super) fn change(&self, change: &Change) -> Result<(), Errno> {
        let set = self.0.set(change);
        set.map_err(|error| self.at_once(errno(&error)))
    }
}

/// Removes a queue (IPC_RMID).
///
/// # Errors
/// EINVAL, EPERM.
pub fn msgctl_remove(id: i32) -> Result<(), Errno> {
    remove_from(&ATTACHED, id, Namespace::of_this_process)
}

pub(super) fn remove_from<'a>(
    attached: &'static Attachments<Queue>,
    id: i32,
    namespace: impl FnOnce() -> Result<&'a Namespace, NamespaceError>,
) -> Result<(), Errno> {
    if id < 0 {
        return Err(libc::EINVAL);
    }
    // If the process is attached to the queue, the queue is mapped and its identifier is correct. If the call does not succeed here, the full
    // search below returns the error.
    let is_attached = attached
        .get(id)
        .is_some_and(|queue| queue.remove_shared().is_ok());
    if !is_attached {
        let namespace = namespace().map_err(|error| error.errno())?;
        remove(namespace, id).map_err(|error| errno(&error))?;
    }
    if let Some(queue) = attached.get(id) {
        queue.forget();
    }
    attached.reap();
    Ok(())
}

/// Returns the error of a command that only the owner may use. A process that may not open the queue is not its owner.
pub(super) fn owners_only(errno: Errno) -> Errno {
    match errno {
        libc::EACCES => libc::EPERM,
        other => other,
    }
}

/// Returns the errno of a command: if the queue was removed meanwhile, the errno is EINVAL.
fn errno(error: &ControlError) -> Errno {
    match error {
        ControlError::Removed => libc::EINVAL,
        error => error.errno(),
    }
}

impl Entry {
    /// Fills the structure of msgctl(2), apart from its padding.
    #[doc(hidden)]
    pub fn fill(&self, to: &mut libc::msqid_ds) {
        #[cfg(not(target_env = "musl"))]
        let key = &mut to.msg_perm.__key;
        #[cfg(target_env = "musl")]
        #[allow(deprecated, reason = "the field has no other name yet")]
        let key = &mut to.msg_perm.__ipc_perm_key;
        *key = self.key;
        to.msg_perm.uid = self.uid;
        to.msg_perm.gid = self.gid;
        to.msg_perm.cuid = self.cuid;
        to.msg_perm.cgid = self.cgid;
        // The width of the field depends on the architecture.
        to.msg_perm.mode = self.mode as _;
        to.msg_perm.__seq = (self.id >> 15) as _;
        to.msg_stime = seconds(self.last_send);
        to.msg_rtime = seconds(self.last_receive);
        to.msg_ctime = seconds(self.changed);
        to.__msg_cbytes = self.bytes;
        to.msg_qnum = self.messages;
        to.msg_qbytes = self.qbytes;
        to.msg_lspid = self.last_sender.cast_signed();
        to.msg_lrpid = self.last_receiver.cast_signed();
    }
}

impl Change {
    /// Returns the change that IPC_SET makes with this structure.
    #[doc(hidden)]
    #[must_use]
    pub fn of(wanted: &libc::msqid_ds) -> Change {
        Change {
            uid: Some(wanted.msg_perm.uid),
            gid: Some(wanted.msg_perm.gid),
            mode: Some(widened(wanted.msg_perm.mode)),
            qbytes: Some(qbytes(wanted.msg_qbytes)),
        }
    }
}

impl MsgInfo {
    /// Returns the structure of msgctl(2).
    #[doc(hidden)]
    #[must_use]
    pub fn in_c(&self) -> libc::msginfo {
        libc::msginfo {
            msgpool: self.msgpool,
            msgmap: self.msgmap,
            msgmax: self.msgmax,
            msgmnb: self.msgmnb,
            msgmni: self.msgmni,
            msgssz: self.msgssz,
            msgtql: self.msgtql,
            msgseg: self.msgseg,
        }
    }
}

/// Returns the `msg_qbytes` that IPC_SET sets for a value of the structure. The kernel truncates the value to an int. Source: `msgctl_down` in
/// ipc/msg.c.
pub fn qbytes(said: u64) -> u64 {
    i64::from(said as i32).cast_unsigned()
}

/// Returns the seconds since 1970; 0 for None.
pub fn seconds(time: Option<SystemTime>) -> i64 {
    let since = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |since| since.as_secs().cast_signed())
}

/// Returns the value of a field whose width depends on the architecture.
fn widened(field: impl Into<u32>) -> u32 {
    field.into()
}
