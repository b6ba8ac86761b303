//! The hook of msgrcv.
//!
//! The order of the checks is the kernel's: length and flags, queue, permission, presence of a message, length of the message, and at last the
//! addresses. So if an address is bad, the message is lost.

use std::ffi::{c_int, c_long, c_void};

use libc::{size_t, ssize_t};
use umsg::sysv::raw::{self, Used, Which};
use umsg::sysv::{Received, Until};
use umsg_trace::Function;

use crate::cancellation::{self, cancellation_point};
use crate::trace::{self, Copied, Described, Target};
use crate::{pointer, signals};

cancellation_point! {
    /// Receives a message from a System V queue. Blocks while there is no wanted message, unless the flags have IPC_NOWAIT.
    msgrcv => receive, traced_receive
}

unsafe extern "C" fn receive(
    id: c_int,
    message: *mut c_void,
    len: size_t,
    mtype: c_long,
    flags: c_int,
) -> ssize_t {
    let call = Call {
        id,
        message: message.cast(),
        len,
        mtype,
        flags,
    };
    // SAFETY: the caller makes the promises that libc's msgrcv requires.
    cancellation::answer(unsafe { call.run() })
}

/// Receives as [`receive`] does, and records the call if `umsg trace` has requested that.
///
/// # Safety
/// The conditions of libc's msgrcv.
pub(super) unsafe extern "C" fn traced_receive(
    id: c_int,
    message: *mut c_void,
    len: size_t,
    wanted: c_long,
    flags: c_int,
) -> ssize_t {
    trace::recorded(
        // SAFETY: the caller makes the promises that `receive` requires.
        || unsafe { receive(id, message, len, wanted, flags) },
        Function::Msgrcv,
        |result| {
            let message = message.cast::<c_long>();
            let (mtype, data) = match result >= 0 {
                // SAFETY: the call has written the type, and after it `result` bytes.
                true => unsafe {
                    let text = Copied::of(message.add(1).cast(), result as usize);
                    (message.read_unaligned(), text)
                },
                false => (0, Copied::default()),
            };
            Described {
                arguments: [id.into(), len as i64, wanted, flags.into(), mtype],
                queue: Target::SystemV(id),
                data,
            }
        },
    )
}

struct Call {
    id: c_int,
    /// The address of the message: its type, followed by its text.
    message: *mut c_long,
    len: size_t,
    mtype: c_long,
    flags: c_int,
}

impl Call {
    /// # Safety
    /// `message` is an address that a pointer check refuses, or has a writable long and writable bytes after it: `len` bytes, or the length of the
    /// longest possible message if that is shorter.
    #[inline(always)]
    unsafe fn run(&self) -> Result<ssize_t, c_int> {
        signals::announce();
        if self.len > isize::MAX.cast_unsigned() {
            return Err(libc::EINVAL);
        }
        let which = Which::of(self.mtype, self.flags)?;
        if pointer::is_bad(self.message) {
            return self.receive_nowhere(which);
        }
        let queue = raw::find(self.id)?;
        let len = self.len.min(queue.msgmax());
        // SAFETY: by this function's contract. No message of the queue has more bytes, and bytes need no alignment.
        let buffer = unsafe { std::slice::from_raw_parts_mut(self.message.add(1).cast(), len) };
        let received = match queue.try_receive(buffer, which) {
            Ok(received) => received,
            Err(errno) => self.receive_refused(queue, buffer, which, errno)?,
        };
        // SAFETY: by this function's contract. The address need not be aligned, as in the kernel.
        unsafe { self.message.write_unaligned(received.mtype) };
        Ok(received.len.cast_signed())
    }

    /// Waits for a wanted message if the attempt to receive found none, unless the flags have IPC_NOWAIT. Returns any other errno.
    #[cold]
    fn receive_refused(
        &self,
        queue: Used,
        buffer: &mut [u8],
        which: Which,
        errno: c_int,
    ) -> Result<Received, c_int> {
        if errno != libc::ENOMSG || self.flags & libc::IPC_NOWAIT != 0 {
            return Err(errno);
        }
        drop(queue);
        let outcome = cancellation::while_blocked(|| {
            raw::find(self.id)?.receive(buffer, which, Until::Forever)
        });
        raw::reap();
        outcome
    }

    /// Receives into a buffer at an impossible address: the message is consumed, as in the kernel. With MSG_COPY, the call fails before it copies.
    #[cold]
    fn receive_nowhere(&self, which: Which) -> Result<ssize_t, c_int> {
        if matches!(which, Which::Copy(..)) && self.len > 0 {
            return Err(libc::EFAULT);
        }
        let queue = raw::find(self.id)?;
        let mut elsewhere = vec![0; self.len.min(queue.msgmax())];
        if let Err(errno) = queue.try_receive(&mut elsewhere, which) {
            self.receive_refused(queue, &mut elsewhere, which, errno)?;
        }
        Err(libc::EFAULT)
    }
}
