//! The kernel's System V queues: sysvipc(7).

use super::call;
use rustix::io::Errno;

/// A queue of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    id: i32,
}

/// The messages that a receiver wants, as msgrcv(2) selects them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Any message.
    Any,
    /// Messages of this type.
    Type(i64),
    /// Messages of all types but this one.
    Except(i64),
}

impl Want {
    fn arguments(self) -> (i64, i32) {
        match self {
            Want::Any => (0, 0),
            Want::Type(mtype) => (mtype, 0),
            Want::Except(mtype) => (mtype, libc::MSG_EXCEPT),
        }
    }

    /// Returns whether a message of this type is wanted.
    #[must_use]
    pub fn takes(self, mtype: i64) -> bool {
        match self {
            Want::Any => true,
            Want::Type(wanted) => mtype == wanted,
            Want::Except(other) => mtype != other,
        }
    }
}

/// A buffer for one message: its type and its bytes.
#[derive(Debug)]
pub struct Room(Vec<u8>);

/// The length of the type, in bytes.
const TYPE: usize = size_of::<libc::c_long>();

impl Room {
    /// Makes a buffer for a message of at most `len` bytes.
    #[must_use]
    pub fn new(len: usize) -> Room {
        Room(vec![0; TYPE + len])
    }

    /// Returns the length of the longest message that fits into the buffer.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "room, not a collection")]
    pub fn len(&self) -> usize {
        self.0.len() - TYPE
    }

    fn fill(&mut self, mtype: i64, message: &[u8]) {
        self.0.clear();
        self.0.extend_from_slice(&mtype.to_ne_bytes());
        self.0.extend_from_slice(message);
    }

    /// Returns the type of the message in the buffer, and the first `len` bytes of the message.
    #[must_use]
    pub fn message(&self, len: usize) -> (i64, &[u8]) {
        let (mtype, rest) = self.0.split_at(TYPE);
        let mtype = i64::from_ne_bytes(mtype.try_into().unwrap_or_default());
        (mtype, &rest[..len])
    }
}

/// The size limit and the mode of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The maximum number of bytes in the queue.
    pub qbytes: u64,
    /// The permission bits.
    pub mode: u32,
}

impl Queue {
    /// Returns the queue of a key, or makes a new one with these permission bits.
    ///
    /// # Errors
    /// The errors of msgget(2); EEXIST if the key has a queue and a new one is wanted.
    pub fn open(key: i32, new: Option<u32>) -> Result<Queue, Errno> {
        let create = libc::IPC_CREAT | libc::IPC_EXCL;
        let flags = new.map_or(0, |mode| create as usize | mode as usize);
        // SAFETY: the call has no pointers.
        let id = unsafe { call(libc::SYS_msgget, [key as usize, flags, 0, 0, 0, 0])? };
        Ok(Queue { id: id as i32 })
    }

    /// Returns the queue with this identifier.
    ///
    /// # Errors
    /// The errors of msgctl(2).
    pub fn with_id(id: i32) -> Result<Queue, Errno> {
        let queue = Queue { id };
        queue.status().map(|_| queue)
    }

    /// Returns the identifier of the queue.
    #[must_use]
    pub fn id(self) -> i32 {
        self.id
    }

    /// Waits until there is a message, and leaves it in the queue: the receive into a buffer of length 0 fails if the message has bytes. A message
    /// without bytes is received, and the call returns its type.
    ///
    /// # Errors
    /// The errors of msgrcv(2); EINTR after a signal.
    pub fn wait(self, want: Want) -> Result<Option<i64>, Errno> {
        let mut room = Room::new(0);
        match self.receive_with(&mut room, want, 0) {
            Ok(_) => Ok(Some(room.message(0).0)),
            Err(Errno::TOOBIG) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Copies the first wanted message, and leaves it in the queue. Returns its length. The result is correct even if other processes receive
    /// unwanted messages during the search.
    ///
    /// # Errors
    /// ENOMSG if there is no such message; ENOSYS if the kernel can't copy messages (CONFIG_CHECKPOINT_RESTORE).
    pub fn copy(self, room: &mut Room, want: Want) -> Result<usize, Errno> {
        let flags = libc::MSG_COPY | libc::IPC_NOWAIT;
        let mut index = 0;
        let mut len = loop {
            let len = self.call(room, index, flags)?;
            if want.takes(room.message(0).0) {
                break len;
            }
            index += 1;
        };
        if index == 0 {
            return Ok(len);
        }
        // The kernel copies by position. When another process receives an unwanted message, the messages after it move one position down. So the
        // search may have skipped wanted messages, which are now below `index`. A second search downwards skips no message: its last hit is the first
        // wanted message.
        let mut found = room.0.clone();
        while index > 0 {
            index -= 1;
            match self.call(room, index, flags) {
                Ok(copied) if want.takes(room.message(0).0) => {
                    len = copied;
                    found.clone_from(&room.0);
                }
                Ok(_) | Err(Errno::NOMSG) => {}
                Err(error) => return Err(error),
            }
        }
        room.0 = found;
        Ok(len)
    }

    /// Receives a message without waiting. Returns its length.
    ///
    /// # Errors
    /// The errors of msgrcv(2).
    pub fn try_receive(self, room: &mut Room, want: Want) -> Result<usize, Errno> {
        self.receive_with(room, want, libc::IPC_NOWAIT)
    }

    fn receive_with(self, room: &mut Room, want: Want, flags: i32) -> Result<usize, Errno> {
        let (mtype, more) = want.arguments();
        self.call(room, mtype, flags | more)
    }

    fn call(self, room: &mut Room, mtype: i64, flags: i32) -> Result<usize, Errno> {
        let arguments = [
            self.id as usize,
            room.0.as_mut_ptr().expose_provenance(),
            room.0.len() - TYPE,
            mtype as usize,
            flags as usize,
            0,
        ];
        // SAFETY: the buffer `room` is live. It has space for a type and for as many bytes as the third argument says.
        unsafe { call(libc::SYS_msgrcv, arguments) }
    }

    /// Sends a message. Waits for room if `waits` is true.
    ///
    /// # Errors
    /// The errors of msgsnd(2); EINTR after a signal.
    pub fn send(self, mtype: i64, message: &[u8], waits: bool) -> Result<(), Errno> {
        let mut room = Room(Vec::with_capacity(TYPE + message.len()));
        room.fill(mtype, message);
        let flags = if waits { 0 } else { libc::IPC_NOWAIT };
        let start = room.0.as_ptr().expose_provenance();
        let arguments = [self.id as usize, start, message.len(), flags as usize, 0, 0];
        // SAFETY: the buffer `room` is live. It contains a type and as many bytes as the third argument says.
        unsafe { call(libc::SYS_msgsnd, arguments).map(drop) }
    }

    fn read(self) -> Result<libc::msqid_ds, Errno> {
        // SAFETY: all zeros are a valid status.
        let mut status: libc::msqid_ds = unsafe { std::mem::zeroed() };
        self.control(libc::IPC_STAT, &mut status)?;
        Ok(status)
    }

    fn control(self, command: i32, status: &mut libc::msqid_ds) -> Result<(), Errno> {
        let pointer = (&raw mut *status).expose_provenance();
        let arguments = [self.id as usize, command as usize, pointer, 0, 0, 0];
        // SAFETY: the status is live. On 64-bit machines, libc's structure has the layout of the kernel's.
        unsafe { call(libc::SYS_msgctl, arguments).map(drop) }
    }

    /// Returns the status of the queue.
    ///
    /// # Errors
    /// The errors of msgctl(2).
    pub fn status(self) -> Result<Status, Errno> {
        let status = self.read()?;
        Ok(Status {
            qbytes: status.msg_qbytes,
            mode: u32::from(status.msg_perm.mode) & 0o777,
        })
    }

    /// Sets the maximum number of bytes in the queue.
    ///
    /// # Errors
    /// The errors of msgctl(2).
    pub fn set_qbytes(self, qbytes: u64) -> Result<(), Errno> {
        let mut status = self.read()?;
        status.msg_qbytes = qbytes;
        self.control(libc::IPC_SET, &mut status)
    }

    /// Removes the queue.
    ///
    /// # Errors
    /// The errors of msgctl(2).
    pub fn remove(self) -> Result<(), Errno> {
        // SAFETY: all zeros are a valid status, which the call does not read.
        self.control(libc::IPC_RMID, &mut unsafe { std::mem::zeroed() })
    }
}
