//! The kernel's own queues, through the libc names.

use std::fs;
use std::mem;

use super::descriptor::{self, DescriptorQueue, Names};
use super::{Errno, Spec};
use crate::failure::Failure;

/// A queue of the kernel.
pub struct KernelQueue(DescriptorQueue);

descriptor::message_queue!(KernelQueue, |spec| descriptor::make(
    NAMES,
    spec,
    "the kernel's"
));

impl KernelQueue {
    /// Returns the queue's nonblocking descriptor. For a queue of the kernel, this is a file descriptor that a program can poll.
    pub fn number(&self) -> libc::c_int {
        self.0.number()
    }
}

const NAMES: Names = Names {
    open: libc::mq_open,
    close: libc::mq_close,
    unlink: libc::mq_unlink,
    send: libc::mq_send,
    receive: libc::mq_receive,
};

/// The command line's limit for the depth of the kernel's queues. [`deepest`](Self::deepest) finds the depth that the kernel allows as well.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    /// The maximum depth that the command line allows.
    cap: u32,
}

/// Raises this process's soft limit of bytes in queues (RLIMIT_MSGQUEUE) to the hard limit, which needs no privilege. System-wide settings stay as
/// they are.
pub fn allowance(cap: u32) -> Allowance {
    // SAFETY: all-zero is a valid rlimit, and both calls touch only this rlimit.
    unsafe {
        let mut limit: libc::rlimit = mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_MSGQUEUE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_MSGQUEUE, &raw const limit);
        }
    }
    Allowance { cap }
}

impl Allowance {
    /// Returns the depth of the deepest queue, up to `wanted`, that the kernel creates for this process at present. Tries depths until one succeeds.
    ///
    /// # Errors
    /// Fails if the kernel does not even make a queue of two messages.
    pub fn deepest(&self, wanted: u32, message_size: u32) -> Result<u32, Failure> {
        let makes = |depth| {
            let spec = Spec {
                depth,
                message_size,
            };
            DescriptorQueue::make(NAMES, &spec).map(drop)
        };
        let wanted = wanted.min(self.cap);
        if makes(wanted).is_ok() {
            return Ok(wanted);
        }
        makes(2).map_err(|errno| none_at_all(message_size, errno))?;
        let (mut allowed, mut refused) = (2, wanted);
        while refused - allowed > 1 {
            let middle = allowed + (refused - allowed) / 2;
            match makes(middle) {
                Ok(()) => allowed = middle,
                Err(_) => refused = middle,
            }
        }
        Ok(allowed)
    }

    /// Returns a note on the depth of the kernel's queues and on the reason for this depth.
    pub fn describe(&self, depth: u32) -> String {
        let read = |name: &str| {
            let text = fs::read_to_string(format!("/proc/sys/fs/mqueue/{name}"));
            text.map_or_else(|_| "?".to_owned(), |text| text.trim().to_owned())
        };
        let bytes = bytes_allowed();
        let why = if depth == self.cap {
            "as --kernel-depth says"
        } else {
            "the deepest that it allows us up to what umsg holds"
        };
        let messages = read("msg_max");
        format!("kernel at {depth} messages, {why} (msg_max {messages}, RLIMIT_MSGQUEUE {bytes})")
    }
}

/// Returns the limit of bytes in queues that applies to the calling process.
pub fn bytes_allowed() -> String {
    // SAFETY: all-zero is a valid rlimit, and the call touches only this rlimit.
    let bytes = unsafe {
        let mut limit: libc::rlimit = mem::zeroed();
        libc::getrlimit(libc::RLIMIT_MSGQUEUE, &raw mut limit);
        limit.rlim_cur
    };
    match bytes {
        libc::RLIM_INFINITY => "unlimited".to_owned(),
        bytes => bytes.to_string(),
    }
}

fn none_at_all(message_size: u32, errno: Errno) -> Failure {
    let what = format!("the kernel refuses a queue for messages of {message_size} bytes");
    Failure::queue(what, errno)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::MessageQueue as _;

    #[test]
    fn a_full_queue_says_so_and_a_receive_makes_room() {
        let spec = Spec {
            depth: 2,
            message_size: 16,
        };
        let queue = KernelQueue::make(&spec).unwrap();
        queue.try_send(b"low", 1).unwrap();
        queue.try_send(b"high", 2).unwrap();
        assert_eq!(queue.try_send(b"more", 1), Err(Errno::AGAIN));
        let mut buffer = [0; 16];
        let length = queue.try_receive(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"high");
        queue.try_send(b"more", 1).unwrap();
    }

    #[test]
    fn the_cap_of_the_command_line_holds() {
        assert!(allowance(3).deepest(1000, 16).unwrap() <= 3);
    }
}
