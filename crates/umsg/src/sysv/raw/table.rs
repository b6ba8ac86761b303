//! The queues of several namespaces in one process. The functions of [`super`] use the process's own namespace.

use super::super::attachments::Attachments;
use super::super::queue::Queue;
use super::super::registry::{self, GetRequest, Obtained};
use super::control::{info_of, owners_only, remove_from, stat_at};
use super::{Errno, Used, attach, find_by, find_slow, without_queue};
use crate::namespace::Namespace;
use crate::sysv::{Change, Entry, MsgInfo, OpenError};
use std::sync::{Mutex, PoisonError};

/// The attachments of dropped tables. They are never freed, because a call may still use one of their queues, but the next tables use them.
static FREE: Mutex<Vec<&'static Attachments<Queue>>> = Mutex::new(Vec::new());

/// The queues of a namespace, for a process that serves programs in several IPC namespaces.
pub struct Table {
    namespace: Namespace,
    attached: &'static Attachments<Queue>,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut to = to.debug_struct("Table");
        to.field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

impl Table {
    /// Returns the table of a namespace, with no attached queue.
    #[must_use]
    pub fn new(namespace: Namespace) -> Table {
        let free = FREE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Table {
            namespace,
            attached: free.unwrap_or_else(|| Box::leak(Box::new(Attachments::new()))),
        }
    }

    /// The namespace of the queues.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Returns the identifier of a key's queue, as [`get`](super::get) does.
    ///
    /// # Errors
    /// The errors of [`msgget`](super::msgget).
    pub fn get(&self, key: i32, flags: i32) -> Result<i32, OpenError> {
        let obtained = registry::get(&self.namespace, key, GetRequest::of_flags(flags))?;
        let id = obtained.id();
        if let Obtained::Created(new) = obtained {
            let queue = Queue::new(new.segment, &self.namespace);
            attach(self.attached, id, queue);
        }
        Ok(id)
    }

    /// Returns the queue with an identifier, as [`find`](super::find) does.
    ///
    /// # Errors
    /// EINVAL, EACCES.
    #[inline]
    pub fn find(&self, id: i32) -> Result<Used, Errno> {
        match self.attached.get(id) {
            Some(queue) => Ok(Used(queue)),
            None => self.find_slow(id),
        }
    }

    #[cold]
    fn find_slow(&self, id: i32) -> Result<Used, Errno> {
        let attach = || find_slow(self.attached, id, || Ok(&self.namespace));
        find_by(|| self.attached.get(id), attach)
    }

    /// Checks a message, and returns the queue with an identifier, as [`find_to_send`](super::find_to_send) does.
    ///
    /// # Errors
    /// EINVAL, EACCES.
    pub fn find_to_send(&self, id: i32, mtype: i64, len: usize) -> Result<Used, Errno> {
        if mtype < 1 {
            return Err(libc::EINVAL);
        }
        match self.find(id) {
            Ok(queue) if len <= queue.msgmax() => Ok(queue),
            Ok(_) => Err(libc::EINVAL),
            Err(errno) => Err(without_queue(Ok(&self.namespace), errno, len)),
        }
    }

    /// Performs IPC_STAT, MSG_STAT or MSG_STAT_ANY, as [`msgctl_stat`](super::msgctl_stat) does.
    ///
    /// # Errors
    /// EINVAL, EACCES.
    pub fn stat(&self, id: i32, command: i32) -> Result<(i32, Entry), Errno> {
        match command {
            libc::IPC_STAT => Ok((0, self.find(id)?.description()?)),
            _ => stat_at(&self.namespace, id, command),
        }
    }

    /// Performs IPC_INFO or MSG_INFO.
    ///
    /// # Errors
    /// The errors of a namespace that can't be used.
    pub fn info(&self, command: i32) -> Result<MsgInfo, Errno> {
        info_of(&self.namespace, command).map_err(|error| error.errno())
    }

    /// Changes a queue (IPC_SET).
    ///
    /// # Errors
    /// EINVAL, EPERM.
    pub fn set(&self, id: i32, change: &Change) -> Result<(), Errno> {
        self.find(id).map_err(owners_only)?.change(change)
    }

    /// Removes a queue (IPC_RMID).
    ///
    /// # Errors
    /// EINVAL, EPERM.
    pub fn remove(&self, id: i32) -> Result<(), Errno> {
        remove_from(self.attached, id, || Ok(&self.namespace))
    }

    /// Unmaps queues that were removed meanwhile. Callers use this function after a call that blocked.
    pub fn reap(&self) {
        self.attached.reap();
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        self.attached.forget_all();
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        free.push(self.attached);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: i32 = 77;

    #[test]
    fn an_identifier_leads_to_the_queue_of_its_table() {
        let [one, two] = [0, 1].map(|_| tempfile::tempdir_in("/dev/shm").unwrap());
        let table = |dir: &tempfile::TempDir| Table::new(Namespace::at(dir.path()).unwrap());
        let (first, second) = (table(&one), table(&two));
        let create = libc::IPC_CREAT | libc::IPC_EXCL | 0o600;
        let id = first.get(KEY, create).unwrap();
        assert!(second.get(KEY, 0).is_err());
        assert_eq!(second.get(KEY, create).unwrap(), id);
        let send = |table: &Table| table.find_to_send(id, 1, 3).unwrap().try_send(1, b"one");
        send(&first).unwrap();
        let count = |table: &Table| table.stat(id, libc::IPC_STAT).unwrap().1.messages;
        assert_eq!((count(&first), count(&second)), (1, 0));
        first.remove(id).unwrap();
        assert_eq!(first.find(id).err(), Some(libc::EINVAL));
        send(&second).unwrap();
        assert_eq!(count(&second), 1);
        // The next table has none of the queues of a dropped table.
        drop((first, second));
        let third = table(&one);
        assert_eq!(third.find(id).err(), Some(libc::EINVAL));
    }
}
