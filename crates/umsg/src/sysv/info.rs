//! IPC_INFO and MSG_INFO of msgctl(2), for the C library and the drop-in. Source: `msgctl_info` in ipc/msg.c of the kernel. Its
//! constants have historical values.

use super::entry::Entry;
use super::error::{ControlError, OpenError};
use super::list::{Totals, entry_at, mapped_totals, totals};
use super::scan::Scan;
use crate::namespace::{Limits, Namespace, Watch};

/// MSGMNB and MSGMNI of linux/msg.h, from which the other constants follow.
const MSGMNB: i32 = 16_384;
const MSGMNI: i32 = 32_000;

/// `struct msginfo` of linux/msg.h, and the return value of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MsgInfo {
    /// IPC_INFO: a constant. MSG_INFO: the number of queues.
    pub msgpool: i32,
    /// IPC_INFO: a constant. MSG_INFO: the number of queued messages.
    pub msgmap: i32,
    /// The longest message: a limit of the namespace, see [`Limits`](crate::Limits).
    pub msgmax: i32,
    /// The bytes that a new queue may hold.
    pub msgmnb: i32,
    /// The number of queues that the namespace allows.
    pub msgmni: i32,
    /// A constant.
    pub msgssz: i32,
    /// IPC_INFO: a constant. MSG_INFO: the bytes of all queued messages.
    pub msgtql: i32,
    /// A constant.
    pub msgseg: u16,
    /// The highest index of a queue, which the call returns; 0 without a queue.
    pub highest_index: i32,
}

/// Returns the result of IPC_INFO.
///
/// ```
/// # let dir = tempfile::tempdir_in("/dev/shm")?;
/// # let namespace = umsg::Namespace::at(dir.path())?;
/// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
/// println!("{:?}", umsg::sysv::ipc_info(&namespace)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Fails if the namespace can't be read.
pub fn ipc_info(namespace: &Namespace) -> Result<MsgInfo, OpenError> {
    if let Some(info) = kept_info(namespace, libc::IPC_INFO) {
        return Ok(info);
    }
    let mut files = namespace.msg_files()?;
    let mut scan = Scan::of(&mut files)?;
    let highest_index = scan.find_highest_index(&mut files)?;
    scan.keep();
    Ok(constants(&namespace.limits()?, highest_index))
}

/// Returns the result of IPC_INFO or MSG_INFO, if the process has all necessary data from an earlier call. The function opens no file, and uses
/// little stack.
pub(super) fn kept_info(namespace: &Namespace, command: i32) -> Option<MsgInfo> {
    let watched = Scan::watched(namespace, |scan, limits| match command {
        libc::MSG_INFO => Some(sums(limits, &scan.watched_totals()?)),
        _ => Some(constants(limits, scan.highest_index()?)),
    });
    if watched.is_some() {
        return watched;
    }
    let answer = |scan: &Scan, limits: &Limits| match command {
        libc::MSG_INFO => Some(sums(limits, &mapped_totals(scan)?)),
        _ => Some(constants(limits, scan.highest_index()?)),
    };
    let watch = Watch::begin(namespace);
    let limits = namespace.unchanged_limits()?;
    let info = Scan::kept(namespace, |scan| answer(scan, &limits))?;
    if let Some(watch) = watch {
        Scan::watch(watch, limits);
    }
    Some(info)
}

/// Returns the limits, and the numbers that only IPC_INFO gives.
fn constants(limits: &Limits, highest_index: u32) -> MsgInfo {
    MsgInfo {
        msgpool: (i64::from(MSGMNI) * i64::from(MSGMNB) / 1024) as i32,
        msgmap: MSGMNB,
        msgmax: clamped(limits.msgmax),
        msgmnb: clamped(limits.msgmnb),
        msgmni: clamped(limits.msgmni),
        msgssz: 16,
        msgtql: MSGMNB,
        msgseg: 0xffff,
        highest_index: highest_index as i32,
    }
}

fn sums(limits: &Limits, totals: &Totals) -> MsgInfo {
    MsgInfo {
        msgpool: clamped(totals.queues),
        msgmap: clamped(totals.messages),
        msgtql: clamped(totals.bytes),
        ..constants(limits, totals.highest_index)
    }
}

/// Returns the result of MSG_INFO.
///
/// ```
/// # let dir = tempfile::tempdir_in("/dev/shm")?;
/// # let namespace = umsg::Namespace::at(dir.path())?;
/// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
/// println!("{:?}", umsg::sysv::msg_info(&namespace)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Fails if the namespace can't be read.
pub fn msg_info(namespace: &Namespace) -> Result<MsgInfo, OpenError> {
    if let Some(info) = kept_info(namespace, libc::MSG_INFO) {
        return Ok(info);
    }
    let totals = totals(namespace)?;
    Ok(sums(&namespace.limits()?, &totals))
}

/// Returns the result of MSG_STAT, or with `any` that of MSG_STAT_ANY.
///
/// ```
/// # let dir = tempfile::tempdir_in("/dev/shm")?;
/// # let namespace = umsg::Namespace::at(dir.path())?;
/// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
/// assert_eq!(umsg::sysv::msg_stat(&namespace, 0, false)?.key, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// `Open(NoSuchId)` (EINVAL) if no queue has the index; `PermissionDenied` (EACCES), without `any`.
pub fn msg_stat(namespace: &Namespace, index: i32, any: bool) -> Result<Entry, ControlError> {
    entry_at(namespace, index, any)
}

fn clamped(value: impl TryInto<i32>) -> i32 {
    value.try_into().unwrap_or(i32::MAX)
}
