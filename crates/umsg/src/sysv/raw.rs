//! msgget, msgsnd, msgrcv and msgctl as C programs call them: by identifier, with errno, and in the kernel's order of errors.
//! The C library and the drop-in use this module; bindings for other languages may use it, too. Rust programs use [`Queue`], whose errors are more
//! detailed.
//!
//! ```
//! use umsg::sysv::{self, Until, raw};
//! # let dir = std::env::temp_dir().join(format!("umsg-raw-{}", std::process::id()));
//! # std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700).create(&dir)?;
//! # unsafe { std::env::set_var("UMSG_DIR", &dir) };
//!
//! let failed = std::io::Error::from_raw_os_error;
//! let id = raw::msgget(sysv::PRIVATE, 0o600).map_err(failed)?;
//! raw::msgsnd(id, 7, b"hello", libc::IPC_NOWAIT, Until::Forever).map_err(failed)?;
//!
//! let mut buffer = [0; 64];
//! let received = raw::msgrcv(id, &mut buffer, 7, libc::IPC_NOWAIT, Until::Forever).map_err(failed)?;
//! assert_eq!(&buffer[..received.len], b"hello");
//!
//! raw::msgctl_remove(id).map_err(failed)?;
//! assert_eq!(raw::msgsnd(id, 7, b"late", 0, Until::Forever), Err(libc::EINVAL));
//! # std::fs::remove_dir_all(&dir)?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A process attaches to a queue at its first call with the queue's identifier (`attachments.rs`). After a removal, a call with
//! the identifier fails with EINVAL, and a waiting call with EIDRM. Source: ipc/msg.c of the kernel, msgop(2), msgctl(2).

mod control;
mod kept;
mod known_keys;
mod table;

use super::Until;
use super::attachments::{Attachments, InUse};
use super::error::{OpenError, ReceiveError};
use super::options::OpenOptions;
use super::permission::Access;
use super::queue::Queue;
use super::receive::{Heeds, Received};
use super::registry::{self, GetRequest, Obtained, PRIVATE};
use crate::error::QueueError;
use crate::namespace::{Namespace, NamespaceError};
pub use control::{
    MSG_STAT_ANY, kept_msgctl_info, msgctl_info, msgctl_remove, msgctl_set, msgctl_stat, qbytes,
    seconds,
};
pub use kept::{give_up_kept, msgctl_remove_own, remove_and_keep};
use std::ops::Deref;
use std::sync::Arc;
#[doc(hidden)]
pub use table::Table;
use umsg_shm::sys::stack::roomy;
use umsg_shm::sysv_engine::order::Want;
use umsg_shm::sysv_engine::segment::Policy;

/// The error number of a failed call.
pub type Errno = i32;

/// The flag of msgrcv for a copy of the message at a position. The libc crate lacks the flag.
pub const MSG_COPY: i32 = 0o40000;

static ATTACHED: Attachments<Queue> = Attachments::new();

/// Returns the identifier of a key's queue. Source: msgget(2).
///
/// # Errors
/// ENOENT, EEXIST, EACCES, ENOSPC, ENOMEM; and the errors of a namespace that can't be used.
pub fn msgget(key: i32, flags: i32) -> Result<i32, Errno> {
    get(key, flags).map_err(|error| error.errno())
}

/// Returns the identifier of a key's queue without a system call. The process must be attached to the queue, and the flags must ask for an
/// existing queue.
#[inline]
#[must_use]
pub fn known(key: i32, flags: i32) -> Option<i32> {
    if key == PRIVATE || flags & libc::IPC_EXCL != 0 {
        return None;
    }
    let id = known_keys::id_of(key)?;
    let queue = ATTACHED.get(id)?;
    known_keys::answers(&queue, key, id, flags as u32 & 0o777).then_some(id)
}

/// Returns the identifier as [`msgget`] does, with a detailed error.
///
/// # Errors
/// The errors of [`msgget`].
pub fn get(key: i32, flags: i32) -> Result<i32, OpenError> {
    get_by(key, flags, Policy::default())
}

/// Finds or creates a queue as [`get`] does. A created queue gets the delivery policy of `options`; the other options are ignored. An existing
/// queue with another policy is refused.
pub fn get_with(key: i32, flags: i32, options: &OpenOptions) -> Result<i32, OpenError> {
    let id = get_by(key, flags, options.policy())?;
    match find(id) {
        Ok(queue) => options.check_existing(&queue).map(|()| id),
        Err(libc::EACCES) => Err(OpenError::PermissionDenied),
        Err(_) => Err(OpenError::NoSuchId),
    }
}

fn get_by(key: i32, flags: i32, policy: Policy) -> Result<i32, OpenError> {
    if let Some(id) = known(key, flags) {
        return Ok(id);
    }
    let namespace = Namespace::of_this_process()?;
    if policy == Policy::default()
        && let Some(id) = kept::revive(key, flags, true)
    {
        return Ok(id);
    }
    let reusable = kept::is_wanted() && policy == Policy::default();
    let request = GetRequest {
        policy,
        reusable,
        ..GetRequest::of_flags(flags)
    };
    let obtained = registry::get(namespace, key, request)?;
    let id = obtained.id();
    note_key(key, id);
    if let Obtained::Created(new) = obtained {
        let own_file = new.own_file.map(Arc::new);
        let queue = Queue::new(new.segment, namespace);
        attach(&ATTACHED, id, Queue { own_file, ..queue });
    }
    Ok(id)
}

fn note_key(key: i32, id: i32) {
    if key != PRIVATE {
        known_keys::note(key, id);
    }
}

/// Returns the identifier of a new queue in the segment of a queue that this process has removed. None if there is no such segment, or a file has
/// to be inspected. Unlike [`get`], this function needs little stack.
#[must_use]
pub fn revived(key: i32, flags: i32) -> Option<i32> {
    kept::revive(key, flags, false)
}

fn attach(to: &'static Attachments<Queue>, id: i32, queue: Queue) -> Option<Used> {
    to.sweep(Queue::is_removed);
    to.attach(id, queue).map(Used)
}

/// A queue that a call is using.
pub struct Used(InUse<Queue>);

impl std::fmt::Debug for Used {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_tuple("Used").finish_non_exhaustive()
    }
}

/// Returns the queue with an identifier.
///
/// # Errors
/// EINVAL if no queue has the identifier; EACCES if the caller has no permission at all.
#[inline(always)]
pub fn find(id: i32) -> Result<Used, Errno> {
    match ATTACHED.get(id) {
        Some(queue) => Ok(Used(queue)),
        None => find_by(|| ATTACHED.get(id), || attach_own(id)),
    }
}

/// Returns the queue as [`find`] does, for use after the call, and in other threads.
///
/// # Errors
/// The errors of [`find`].
pub fn keep(id: i32) -> Result<Used, Errno> {
    find_by(|| ATTACHED.keep(id), || attach_own(id))
}

/// Returns the queue that `look` finds. If `look` finds no queue, calls `attach`, and then `look` again.
#[cold]
fn find_by(
    look: impl Fn() -> Option<InUse<Queue>>,
    attach: impl Fn() -> Result<(), Errno>,
) -> Result<Used, Errno> {
    loop {
        match look() {
            Some(queue) => return Ok(Used(queue)),
            // A second attempt is only needed if another thread detaches from the queue meanwhile.
            None => attach()?,
        }
    }
}

#[cold]
fn attach_own(id: i32) -> Result<(), Errno> {
    find_slow(&ATTACHED, id, Namespace::of_this_process)
}

/// Attaches to a queue.
#[cold]
fn find_slow<'a>(
    to: &'static Attachments<Queue>,
    id: i32,
    namespace: impl FnOnce() -> Result<&'a Namespace, NamespaceError>,
) -> Result<(), Errno> {
    if id < 0 {
        return Err(libc::EINVAL);
    }
    let open = || {
        let namespace = namespace()?;
        registry::attach_id(namespace, id).map(|segment| Queue::new(segment, namespace))
    };
    roomy(|| {
        let queue = open().map_err(|error: OpenError| error.errno())?;
        match attach(to, id, queue) {
            Some(_) => Ok(()),
            None => Err(libc::ENOMEM),
        }
    })
}

/// Checks the type and the length (in bytes) of a message, and returns the queue with an identifier.
///
/// # Errors
/// EINVAL, EACCES.
#[inline(always)]
pub fn find_to_send(id: i32, mtype: i64, len: usize) -> Result<Used, Errno> {
    if mtype < 1 {
        return Err(libc::EINVAL);
    }
    match find(id) {
        Ok(queue) if len <= queue.msgmax() => Ok(queue),
        Ok(_) => Err(libc::EINVAL),
        Err(errno) => Err(without_queue(Namespace::of_this_process(), errno, len)),
    }
}

/// Returns the error for a message if no queue has the identifier. The kernel checks the length of the message first.
#[cold]
fn without_queue(namespace: Result<&Namespace, NamespaceError>, errno: Errno, len: usize) -> Errno {
    let limits = namespace.and_then(Namespace::limits);
    match limits.is_ok_and(|limits| len > limits.msgmax as usize) {
        true => libc::EINVAL,
        false => errno,
    }
}

/// Gives access to the methods of [`Queue`] that have no equivalent in System V.
impl Deref for Used {
    type Target = Queue;

    #[inline(always)]
    fn deref(&self) -> &Queue {
        &self.0
    }
}

impl Used {
    /// Returns the queue unless it was removed.
    ///
    /// # Errors
    /// EINVAL.
    pub fn unless_removed(self) -> Result<Used, Errno> {
        match self.0.is_removed() {
            true => Err(self.at_once(libc::EINVAL)),
            false => Ok(self),
        }
    }

    /// Returns the longest possible message, in bytes.
    #[inline(always)]
    pub fn msgmax(&self) -> usize {
        self.0.msgmax()
    }

    /// Sends a message if the queue has room now; does not wait for room.
    ///
    /// # Errors
    /// EAGAIN, EACCES, EINVAL if the queue was removed, and others of [`super::SendError`].
    #[inline(always)]
    pub fn try_send(&self, mtype: i64, text: &[u8]) -> Result<(), Errno> {
        let sent = self.0.try_send_by(mtype, text, Access::Write);
        sent.map_err(|error| self.at_once(error.errno()))
    }

    /// Sends a message. Blocks while there is no room.
    ///
    /// # Errors
    /// EINTR, EIDRM if the queue was removed, EACCES, ETIMEDOUT and others of [`super::SendError`].
    #[cold]
    pub fn send(&self, mtype: i64, text: &[u8], until: Until) -> Result<(), Errno> {
        let sent = self.0.send_by(mtype, text, until.deadline(), Access::Write);
        sent.map_err(|error| self.after_waiting(error.errno()))
    }

    /// Receives the selected message if the queue contains it now; does not wait for a message.
    ///
    /// # Errors
    /// ENOMSG, E2BIG, EACCES, EINVAL if the queue was removed, and others of [`ReceiveError`].
    #[inline(always)]
    pub fn try_receive(&self, buffer: &mut [u8], which: Which) -> Result<Received, Errno> {
        let received = match which {
            Which::Want(want, truncate) => {
                self.0
                    .try_receive_by(want, buffer, truncate, Heeds::Nothing)
            }
            Which::Copy(n, truncate) => return self.copy(n, truncate, buffer),
        };
        received.map_err(|error| self.at_once(error.errno()))
    }

    /// Receives the selected message. Blocks while there is no such message.
    ///
    /// # Errors
    /// EINTR, EIDRM if the queue was removed, E2BIG, EACCES, ETIMEDOUT and others of [`ReceiveError`].
    #[cold]
    pub fn receive(
        &self,
        buffer: &mut [u8],
        which: Which,
        until: Until,
    ) -> Result<Received, Errno> {
        let received = match which {
            Which::Want(want, truncate) => {
                let limits = (until.deadline(), Heeds::Nothing);
                self.0.receive_by(want, buffer, truncate, limits)
            }
            Which::Copy(n, truncate) => return self.copy(n, truncate, buffer),
        };
        received.map_err(|error| self.after_waiting(error.errno()))
    }

    /// Sends as [`try_send`](Self::try_send) does. Fails with EPIPE if the queue is closed for sending, which msgsnd(2) ignores.
    ///
    /// # Errors
    /// The errno of [`try_send`](Self::try_send), and EPIPE.
    #[inline(always)]
    pub fn try_send_unless_closed(&self, mtype: i64, text: &[u8]) -> Result<(), Errno> {
        let sent = self.0.try_send(mtype, text);
        sent.map_err(|error| self.at_once(error.errno()))
    }

    /// Sends as [`send`](Self::send) does. Fails with EPIPE if the queue is closed for sending.
    ///
    /// # Errors
    /// The errno of [`send`](Self::send), and EPIPE.
    #[cold]
    pub fn send_unless_closed(&self, mtype: i64, text: &[u8], until: Until) -> Result<(), Errno> {
        let sent = self.0.send_until(mtype, text, until);
        sent.map_err(|error| self.after_waiting(error.errno()))
    }

    /// Receives as [`try_receive`](Self::try_receive) does. Fails with EPIPE at the end of a stream, which msgrcv(2) ignores.
    ///
    /// # Errors
    /// The errno of [`try_receive`](Self::try_receive), and EPIPE.
    #[inline(always)]
    pub fn try_receive_until_end(
        &self,
        buffer: &mut [u8],
        which: Which,
    ) -> Result<Received, Errno> {
        let Which::Want(want, truncate) = which else {
            return self.try_receive(buffer, which);
        };
        let received = self.0.try_receive_by(want, buffer, truncate, Heeds::End);
        received.map_err(|error| self.at_once(error.errno()))
    }

    /// Receives as [`receive`](Self::receive) does. Fails with EPIPE at the end of a stream.
    ///
    /// # Errors
    /// The errno of [`receive`](Self::receive), and EPIPE.
    #[cold]
    pub fn receive_until_end(
        &self,
        buffer: &mut [u8],
        which: Which,
        until: Until,
    ) -> Result<Received, Errno> {
        let Which::Want(want, truncate) = which else {
            return self.receive(buffer, which, until);
        };
        let received = self.0.receive_until(want, buffer, truncate, until);
        received.map_err(|error| self.after_waiting(error.errno()))
    }

    fn copy(&self, n: i64, truncate: bool, buffer: &mut [u8]) -> Result<Received, Errno> {
        // A position above u32::MAX becomes u32::MAX: no queue has so many messages.
        let n = u32::try_from(n).unwrap_or(u32::MAX);
        self.0.copy(n, buffer).map_err(|error| match error {
            ReceiveError::TooSmall { .. } if truncate => libc::EINVAL,
            error => self.at_once(error.errno()),
        })
    }

    /// Returns the errno of a call that did not wait: if the queue was removed before the call, the errno is EINVAL.
    #[cold]
    fn at_once(&self, errno: Errno) -> Errno {
        if !self.0.is_removed() {
            return errno;
        }
        self.0.forget();
        libc::EINVAL
    }

    #[cold]
    fn after_waiting(&self, errno: Errno) -> Errno {
        if self.0.is_removed() {
            self.0.forget();
        }
        errno
    }
}

/// The message that msgrcv(2) selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The first wanted message, and whether a message that is longer than the buffer is truncated.
    Want(Want, bool),
    /// A copy of the message at this position, and whether MSG_NOERROR was set. A copied message is never truncated.
    Copy(i64, bool),
}

impl Which {
    /// Decodes the arguments of msgrcv(2).
    ///
    /// # Errors
    /// EINVAL: flags that exclude each other.
    #[inline(always)]
    pub fn of(msgtyp: i64, flags: i32) -> Result<Which, Errno> {
        let truncate = flags & libc::MSG_NOERROR != 0;
        if flags & MSG_COPY != 0 {
            return match flags & (libc::MSG_EXCEPT | libc::IPC_NOWAIT) {
                libc::IPC_NOWAIT => Ok(Which::Copy(msgtyp, truncate)),
                _ => Err(libc::EINVAL),
            };
        }
        let want = match msgtyp {
            0 => Want::Any,
            // The least i64 has no absolute value; the kernel takes the greatest i64.
            ..0 => Want::Lowest(msgtyp.checked_neg().unwrap_or(i64::MAX)),
            _ if flags & libc::MSG_EXCEPT != 0 => Want::Except(msgtyp),
            _ => Want::Exactly(msgtyp),
        };
        Ok(Which::Want(want, truncate))
    }
}

/// Sends a message of a type. Source: msgsnd(2).
///
/// # Errors
/// EAGAIN, EINTR, EIDRM, EINVAL, EACCES, ENOMEM; ETIMEDOUT after the time in `until`.
pub fn msgsnd(id: i32, mtype: i64, text: &[u8], flags: i32, until: Until) -> Result<(), Errno> {
    let queue = find_to_send(id, mtype, text.len())?;
    match queue.try_send(mtype, text) {
        Err(libc::EAGAIN) if flags & libc::IPC_NOWAIT == 0 => {
            let sent = queue.send(mtype, text, until);
            drop(queue);
            reap();
            sent
        }
        outcome => outcome,
    }
}

/// Receives a message. Source: msgrcv(2).
///
/// # Errors
/// ENOMSG, E2BIG, EINTR, EIDRM, EINVAL, EACCES; ETIMEDOUT after the time in `until`.
pub fn msgrcv(
    id: i32,
    buffer: &mut [u8],
    msgtyp: i64,
    flags: i32,
    until: Until,
) -> Result<Received, Errno> {
    let which = Which::of(msgtyp, flags)?;
    let queue = find(id)?;
    match queue.try_receive(buffer, which) {
        Err(libc::ENOMSG) if flags & libc::IPC_NOWAIT == 0 => {
            let received = queue.receive(buffer, which, until);
            drop(queue);
            reap();
            received
        }
        outcome => outcome,
    }
}

/// Finds out which resource was missing when a send of `len` bytes failed with ENOMEM, if it is still missing.
#[cold]
pub fn why_no_memory(len: usize) -> super::SendError {
    // Memory comes into use in steps of at least this many bytes.
    const STEP: usize = 64 << 10;
    let Ok(namespace) = Namespace::of_this_process() else {
        return super::SendError::Queue(QueueError::NoMemory);
    };
    let more = len.saturating_add(STEP);
    if !namespace.allows(more) {
        return super::SendError::Queue(QueueError::OverLimit);
    }
    match rustix::fs::statvfs(namespace.path()) {
        Ok(system) if system.f_bavail.saturating_mul(system.f_frsize) < more as u64 => {
            super::SendError::Queue(QueueError::NoSpace)
        }
        _ => super::SendError::Queue(QueueError::NoMemory),
    }
}

/// Detaches from all queues, because the process has moved to another namespace, in which the same identifiers belong to other queues.
#[doc(hidden)]
pub fn forget_all() {
    kept::forget_all();
    ATTACHED.forget_all();
}

/// Unmaps queues that were removed meanwhile. Callers use this function after a call that blocked.
pub fn reap() {
    ATTACHED.reap();
}

#[cfg(test)]
mod tests {
    use super::{MSG_COPY, Which, find, find_to_send};
    use crate::sysv::Want;
    use libc::{EINVAL, IPC_NOWAIT, MSG_EXCEPT, MSG_NOERROR};

    #[test]
    fn the_arguments_of_msgrcv_select_a_message() {
        let wants = [
            (0, 0, Want::Any),
            (0, MSG_EXCEPT, Want::Any),
            (7, 0, Want::Exactly(7)),
            (7, MSG_EXCEPT, Want::Except(7)),
            (-7, MSG_EXCEPT, Want::Lowest(7)),
            (i64::MIN + 1, 0, Want::Lowest(i64::MAX)),
            (i64::MIN, 0, Want::Lowest(i64::MAX)),
        ];
        for (mtype, flags, want) in wants {
            assert_eq!(Which::of(mtype, flags), Ok(Which::Want(want, false)));
            assert_eq!(
                Which::of(mtype, flags | MSG_NOERROR | IPC_NOWAIT),
                Ok(Which::Want(want, true))
            );
        }
    }

    #[test]
    fn a_copy_neither_waits_nor_excepts() {
        let copy = Which::of(-3, MSG_COPY | IPC_NOWAIT | MSG_NOERROR);
        assert_eq!(copy, Ok(Which::Copy(-3, true)));
        for flags in [0, MSG_EXCEPT, MSG_EXCEPT | IPC_NOWAIT] {
            assert_eq!(Which::of(0, MSG_COPY | flags), Err(EINVAL));
        }
    }

    #[test]
    fn an_impossible_identifier_or_type_is_refused_without_a_namespace() {
        for id in [-1, i32::MIN] {
            assert_eq!(find(id).err(), Some(EINVAL));
        }
        assert_eq!(find_to_send(0, 0, 0).err(), Some(EINVAL));
        assert_eq!(find_to_send(0, i64::MIN, usize::MAX).err(), Some(EINVAL));
    }
}
