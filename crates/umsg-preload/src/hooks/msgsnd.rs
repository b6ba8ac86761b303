//! The hook of msgsnd.
//!
//! The order of the checks is the kernel's: the address of the type, length and type, queue, permission, and at last whether the call would block.

use std::ffi::{c_int, c_long, c_void};

use libc::size_t;
use umsg::sysv::Until;
use umsg::sysv::raw::{self, Used};
use umsg_trace::Function;

use crate::cancellation::{self, cancellation_point};
use crate::trace::{self, Copied, Described, Target};
use crate::{pointer, signals};

cancellation_point! {
    /// Sends a message to a System V queue. Blocks while there is no room, unless the flags have IPC_NOWAIT.
    msgsnd => send, traced_send
}

unsafe extern "C" fn send(id: c_int, message: *const c_void, len: size_t, flags: c_int) -> c_int {
    let call = Call {
        id,
        message: message.cast(),
        len,
        flags,
    };
    // SAFETY: the caller makes the promises that libc's msgsnd requires.
    cancellation::answer(unsafe { call.run() })
}

/// Sends as [`send`] does, and records the call if `umsg trace` has requested that.
///
/// # Safety
/// The conditions of libc's msgsnd.
pub(super) unsafe extern "C" fn traced_send(
    id: c_int,
    message: *const c_void,
    len: size_t,
    flags: c_int,
) -> c_int {
    trace::recorded(
        // SAFETY: the caller makes the promises that `send` requires.
        || unsafe { send(id, message, len, flags) },
        Function::Msgsnd,
        |result| {
            let message = message.cast::<c_long>();
            let (mtype, data) = match result {
                // SAFETY: the call has sent this type and these bytes.
                0 => unsafe {
                    let text = Copied::of(message.add(1).cast(), len);
                    (message.read_unaligned(), text)
                },
                _ => (0, Copied::default()),
            };
            Described {
                arguments: [id.into(), mtype, len as i64, flags.into(), 0],
                queue: Target::SystemV(id),
                data,
            }
        },
    )
}

struct Call {
    id: c_int,
    /// The address of the message: its type, followed by its text.
    message: *const c_long,
    len: size_t,
    flags: c_int,
}

impl Call {
    /// # Safety
    /// `message` is an address that a pointer check refuses, or has a readable long and after it `len` readable bytes, if a message can have that
    /// many.
    #[inline(always)]
    unsafe fn run(&self) -> Result<c_int, c_int> {
        signals::announce();
        if pointer::is_bad(self.message) {
            return Err(libc::EFAULT);
        }
        // SAFETY: by this function's contract. The address need not be aligned, as in the kernel.
        let mtype = unsafe { self.message.read_unaligned() };
        let queue = raw::find_to_send(self.id, mtype, self.len)?;
        // SAFETY: by this function's contract. `len` is not above the length of the queue's longest message, and bytes need no alignment.
        let text =
            unsafe { std::slice::from_raw_parts(self.message.add(1).cast::<u8>(), self.len) };
        match queue.try_send(mtype, text) {
            Ok(()) => Ok(0),
            Err(errno) => self.send_refused(queue, mtype, text, errno),
        }
    }

    /// Waits for room if the attempt to send found the queue full, unless the flags have IPC_NOWAIT. Returns any other errno.
    #[cold]
    fn send_refused(
        &self,
        queue: Used,
        mtype: c_long,
        text: &[u8],
        errno: c_int,
    ) -> Result<c_int, c_int> {
        if errno != libc::EAGAIN || self.flags & libc::IPC_NOWAIT != 0 {
            return Err(errno);
        }
        drop(queue);
        let outcome =
            cancellation::while_blocked(|| raw::find(self.id)?.send(mtype, text, Until::Forever));
        raw::reap();
        outcome.map(|()| 0)
    }
}
