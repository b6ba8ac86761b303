//! The native API with the numbers and flags of C: `umsg::sysv::raw`, on which the drop-in and the C library are built.

use std::path::Path;

use umsg::sysv::raw;
use umsg::sysv::{self, Entry, MsgInfo, Until};
use umsg::{Limits, Namespace};

use super::{Answer, Backend, Change, Id, Info, Status};
use crate::backend::{Basics, Failure, defer, handle_deferred, set_limits};
use crate::errno::Errno;
use crate::sys::{self, Credentials, User};

/// A backend that calls the native API.
pub struct Native {
    namespace: Namespace,
}

impl Native {
    /// Makes a backend whose queues are in `directory`.
    ///
    /// # Errors
    /// The reason why the directory is no namespace, or why its limits can't be set.
    pub fn new(directory: &Path) -> Result<Native, String> {
        Ok(Native {
            namespace: like_the_kernel(directory)?,
        })
    }
}

/// Returns a namespace in which a process needs privilege to enlarge a queue beyond the default, as in the kernel.
pub(super) fn like_the_kernel(directory: &Path) -> Result<Namespace, String> {
    let namespace = Namespace::at(directory).map_err(|error| error.to_string())?;
    let most = namespace.limits().map_err(|error| error.to_string())?;
    if most.max_qbytes != most.msgmnb {
        set_limits(&namespace, |limits: &mut Limits| {
            limits.max_qbytes = limits.msgmnb;
        })
        .map_err(|failure| format!("no limits can be set: {failure:?}"))?;
    }
    Ok(namespace)
}

/// Converts the result of a function that fails with an errno.
fn answer<T>(result: Result<T, i32>) -> Answer<T> {
    result.map_err(|errno| Failure::Errno(Errno(errno)))
}

impl Basics for Native {
    fn label(&self) -> &'static str {
        "native API"
    }

    fn enter(&self) {
        sys::set_environment("UMSG_DIR", self.namespace.path());
    }

    fn assume(&self, user: User) -> Result<(), Errno> {
        user.assume(&Credentials::OF_LIBC)?;
        sysv::forget_caller();
        Ok(())
    }

    fn assume_effective(&self, user: User) -> Result<(), Errno> {
        user.assume_effective(&Credentials::OF_LIBC)?;
        sysv::forget_caller();
        Ok(())
    }

    fn handle_signal(&self, signal: i32, handler: extern "C" fn(i32), flags: i32) -> Answer<()> {
        handle_deferred(defer, signal, handler, flags)
    }
}

impl Backend for Native {
    fn get(&self, key: i32, flags: i32) -> Answer<Id> {
        answer(raw::msgget(key, flags))
    }

    fn send(&self, id: Id, mtype: i64, text: &[u8], flags: i32) -> Answer<()> {
        answer(raw::msgsnd(id, mtype, text, flags, Until::Forever))
    }

    fn receive(&self, id: Id, text: &mut [u8], mtype: i64, flags: i32) -> Answer<(usize, i64)> {
        let received = answer(raw::msgrcv(id, text, mtype, flags, Until::Forever))?;
        Ok((received.len.min(text.len()), received.mtype))
    }

    fn stat(&self, id: Id, command: i32) -> Answer<(i32, Status)> {
        let (returned, entry) = answer(raw::msgctl_stat(id, command))?;
        Ok((returned, entry.into()))
    }

    fn set(&self, id: Id, change: &Change) -> Answer<()> {
        let change = sysv::Change {
            uid: Some(change.uid),
            gid: Some(change.gid),
            mode: Some(change.mode),
            // The C library and the drop-in convert the field of the C structure in the same way.
            qbytes: Some(raw::qbytes(change.max_bytes)),
        };
        answer(raw::msgctl_set(id, &change))
    }

    fn remove(&self, id: Id) -> Answer<()> {
        answer(raw::msgctl_remove(id))
    }

    fn info(&self, command: i32) -> Answer<(i32, Info)> {
        let info = answer(raw::msgctl_info(command))?;
        Ok((info.highest_index, info.into()))
    }

    fn is_library(&self) -> bool {
        true
    }

    fn limit_queues(&self, max_queues: u32) -> Answer<()> {
        set_limits(&self.namespace, |limits| limits.msgmni = max_queues)
    }

    fn want_id(&self, id: u32) -> Answer<()> {
        set_limits(&self.namespace, |limits| limits.next_id = Some(id))
    }
}

impl From<Entry> for Status {
    fn from(from: Entry) -> Status {
        Status {
            key: from.key,
            uid: from.uid,
            gid: from.gid,
            creator_uid: from.cuid,
            creator_gid: from.cgid,
            mode: from.mode,
            sequence: (from.id / super::INDICES) as u32,
            sent: raw::seconds(from.last_send),
            received: raw::seconds(from.last_receive),
            changed: raw::seconds(from.changed),
            bytes: from.bytes,
            messages: from.messages,
            max_bytes: from.qbytes,
            last_sender: from.last_sender as sys::Pid,
            last_receiver: from.last_receiver as sys::Pid,
        }
    }
}

impl From<MsgInfo> for Info {
    fn from(from: MsgInfo) -> Info {
        from.in_c().into()
    }
}
