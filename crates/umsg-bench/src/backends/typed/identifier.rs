//! A System V queue that is used through the C functions of `<sys/msg.h>`, either those of libc (the kernel's queues) or those of the drop-in.

use std::ffi::c_int;
use std::mem;

use super::register::Entry;
use super::{SIZE, Totals, TypedQueue, Want};
use crate::backends::Errno;
use crate::failure::Failure;

pub type Get = unsafe extern "C" fn(libc::key_t, c_int) -> c_int;
pub type Send = unsafe extern "C" fn(c_int, *const libc::c_void, usize, c_int) -> c_int;
pub type Receive =
    unsafe extern "C" fn(c_int, *mut libc::c_void, usize, libc::c_long, c_int) -> isize;
pub type Control = unsafe extern "C" fn(c_int, c_int, *mut libc::msqid_ds) -> c_int;

/// The functions of `<sys/msg.h>`.
#[derive(Clone, Copy)]
pub struct Names {
    pub get: Get,
    pub send: Send,
    pub receive: Receive,
    pub control: Control,
}

/// The origin of the functions: libc (the kernel's queues) or the drop-in.
pub trait Source: Sync {
    /// The owner of the functions, as error messages name it, for example "the kernel's".
    const WHOSE: &'static str;

    fn names() -> Result<Names, Failure>;

    /// Records a queue before its creation, unless the queue's file will be in the namespace directory of this run. The supervisor removes recorded
    /// queues.
    fn register() -> Result<Option<Entry>, Failure>;
}

/// A System V queue, used by its identifier through the functions of `S`.
pub struct IdentifierQueue<S> {
    names: Names,
    id: c_int,
    /// The queue's entry in the register, if the queue is recorded. The entry is dropped after the queue's removal.
    _entry: Option<Entry>,
    _source: std::marker::PhantomData<S>,
}

/// The buffer for one message of msgsnd or msgrcv: the message's type, then its text.
#[repr(C)]
struct Message {
    mtype: libc::c_long,
    number: u64,
}

impl<S: Source> TypedQueue for IdentifierQueue<S> {
    fn make(bytes: u64) -> Result<Self, Failure> {
        let queue = Self::get()?;
        queue.allow(bytes).map_err(|errno| {
            let what = format!("{} queue for {bytes} bytes", S::WHOSE);
            Failure::queue(what, errno)
        })?;
        Ok(queue)
    }

    fn totals() -> Result<Totals, Failure> {
        let names = S::names()?;
        // SAFETY: all-zero is a valid msginfo.
        let mut info: libc::msginfo = unsafe { mem::zeroed() };
        // SAFETY: MSG_INFO writes a msginfo, although the parameter has another type. The pointer leads to a msginfo of this function.
        let result = unsafe { (names.control)(0, libc::MSG_INFO, (&raw mut info).cast()) };
        if result < 0 {
            let what = format!("{} MSG_INFO", S::WHOSE);
            return Err(Failure::queue(what, Errno::last()));
        }
        // With MSG_INFO, `msgmap` is the number of messages and `msgtql` the number of bytes (see msgctl(2)).
        Ok(Totals {
            messages: info.msgmap as u64,
            bytes: info.msgtql as u64,
        })
    }

    #[inline]
    fn send(&self, mtype: i64, number: u64) -> Result<(), Errno> {
        self.send_with(mtype, number, 0)
    }

    #[inline]
    fn try_send(&self, mtype: i64, number: u64) -> Result<(), Errno> {
        self.send_with(mtype, number, libc::IPC_NOWAIT)
    }

    #[inline]
    fn receive(&self, want: Want) -> Result<u64, Errno> {
        self.receive_with(want, 0)
    }

    #[inline]
    fn try_receive(&self, want: Want) -> Result<u64, Errno> {
        self.receive_with(want, libc::IPC_NOWAIT)
    }
}

impl<S: Source> IdentifierQueue<S> {
    fn get() -> Result<Self, Failure> {
        let names = S::names()?;
        let entry = S::register()?;
        let key = entry.as_ref().map_or(libc::IPC_PRIVATE, Entry::key);
        // SAFETY: the call takes two numbers and accesses no memory of this process.
        let id = unsafe { (names.get)(key, libc::IPC_CREAT | libc::IPC_EXCL | 0o600) };
        if id < 0 {
            let what = format!("{} msgget", S::WHOSE);
            return Err(Failure::queue(what, Errno::last()));
        }
        Ok(Self {
            names,
            id,
            _entry: entry,
            _source: std::marker::PhantomData,
        })
    }

    /// Sets the number of bytes that the queue may hold, unless the queue was made with this number.
    fn allow(&self, bytes: u64) -> Result<(), Errno> {
        // SAFETY: all-zero is a valid msqid_ds.
        let mut status: libc::msqid_ds = unsafe { mem::zeroed() };
        self.control(libc::IPC_STAT, &mut status)?;
        if status.msg_qbytes == bytes {
            return Ok(());
        }
        status.msg_qbytes = bytes;
        self.control(libc::IPC_SET, &mut status)
    }

    fn control(&self, command: c_int, status: &mut libc::msqid_ds) -> Result<(), Errno> {
        // SAFETY: the commands that are used here read or write one msqid_ds, which belongs to this function.
        match unsafe { (self.names.control)(self.id, command, status) } {
            0 => Ok(()),
            _ => Err(Errno::last()),
        }
    }

    #[inline]
    fn send_with(&self, mtype: i64, number: u64, flags: c_int) -> Result<(), Errno> {
        let message = Message { mtype, number };
        let start = (&raw const message).cast();
        // SAFETY: the call reads the type and SIZE bytes of text, all from one value of this function.
        match unsafe { (self.names.send)(self.id, start, SIZE as usize, flags) } {
            0 => Ok(()),
            _ => Err(Errno::last()),
        }
    }

    #[inline]
    fn receive_with(&self, want: Want, flags: c_int) -> Result<u64, Errno> {
        let (mtype, flags) = match want {
            Want::Exactly(mtype) => (mtype, flags),
            Want::Lowest(mtype) => (-mtype, flags),
            Want::Except(mtype) => (mtype, flags | libc::MSG_EXCEPT),
        };
        let mut message = Message {
            mtype: 0,
            number: 0,
        };
        let start = (&raw mut message).cast();
        // SAFETY: the call writes the type and at most SIZE bytes of text, all into one value of this function.
        let length = unsafe { (self.names.receive)(self.id, start, SIZE as usize, mtype, flags) };
        if length < 0 {
            return Err(Errno::last());
        }
        Ok(message.number)
    }
}

impl<S> Drop for IdentifierQueue<S> {
    fn drop(&mut self) {
        // SAFETY: IPC_RMID accesses no memory of this process, and the queue belongs to this value.
        unsafe { (self.names.control)(self.id, libc::IPC_RMID, std::ptr::null_mut()) };
    }
}
