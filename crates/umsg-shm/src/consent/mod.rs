//! Consent to signals: a registered process shows the senders in other processes which signals they may raise in it.
//!
//! The consent is a page in a file in memory ([`page`]). Only the process that made the page can write it: F_SEAL_FUTURE_WRITE refuses every other
//! process a writable mapping, and a forked child does not inherit the writable mapping of its parent. A sender finds the page through /proc/PID/fd,
//! if the kernel lets the sender inspect the descriptors of that process.
//!
//! The page alone proves nothing, because a process can have a descriptor of a file that another process has made. So the process attests the file:
//! it gives its helper thread a name that contains a slash, the file's inode number and the file's birth time. Only a thread of the process itself
//! can give a thread such a name. At exec(2), fork(2) and clone(2), the kernel gives a thread no new name with a slash.
//!
//! A sender raises the signal through a descriptor of that helper thread (PIDFD_THREAD, Linux 6.9). The thread ends with its process, and
//! when the process runs another program. Then the kernel refuses the signal (ESRCH). For each signal, the kernel also checks whether the sender
//! may signal the process, as in kill(2).
//!
//! ```text
//!  registered process                                  sender
//!  page: ticket, queue, signal, value  <-- reads ---   finds the ticket of the queue's record in it
//!  helper thread: name attests the page <- reads ---   once
//!  helper thread                       <-- pidfd ---   pidfd_send_signal, to the thread's process
//! ```
//!
//! If a step of the sender fails or is not available, the helper thread raises the signal.

#[cfg(not(loom))]
mod own;
#[cfg(not(loom))]
mod page;
#[cfg(not(loom))]
mod peers;

#[cfg(loom)]
pub(crate) use crate::model::consent::{meet, raise};
#[cfg(not(loom))]
pub use own::{attest, offer, prepare, withdraw};
#[cfg(not(loom))]
pub use peers::meet;
#[cfg(not(loom))]
pub(crate) use peers::raise;

/// The place of a registration's consent in the page of the registered process. The queue's record contains this place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// The number of the page's descriptor in the registered process.
    pub descriptor: u32,
    /// The index of the place in the page, plus one; 0 if there is no consent.
    pub place: u32,
}

/// A registration as the queue's record describes it, and the queue. Any process with write access to the queue may have forged the record.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// The device and the inode number of the queue's file.
    pub queue: (u64, u64),
    pub pid: u32,
    pub ticket: u64,
    pub shown: Shown,
}

/// The greatest length of a thread's name, in bytes. Source: prctl(2), PR_SET_NAME.
#[cfg(not(loom))]
pub(crate) const NAME: usize = 15;

/// Returns the name of the thread that attests a file with that inode number and birth time.
#[cfg(not(loom))]
#[doc(hidden)]
pub fn name_of(inode: u64, (seconds, nanoseconds): (u64, u64)) -> [u8; NAME] {
    use crate::sys::random::mix;
    let mixed = mix(mix(mix(inode) ^ seconds) ^ nanoseconds);
    let digits = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-";
    let mut name = *b"umsg/..........";
    for (at, digit) in name[5..].iter_mut().enumerate() {
        *digit = digits[(mixed >> (6 * at)) as usize & 63];
    }
    name
}

#[cfg(all(test, not(loom)))]
mod tests;
