//! Computes the bytes that the kernel would count against RLIMIT_MSGQUEUE for the POSIX queues of a user: see getrlimit(2).

use std::os::fd::AsFd;

use rustix::fs;

use super::entries::for_each_queue;
use super::error::NamespaceError;
use super::open::FileAccess;
use super::{Namespace, caller};
use umsg_shm::posix_engine::segment;

/// The bytes that the kernel charges for each message in addition to its size: `struct msg_msg`.
const MESSAGE: u64 = 48;
/// The bytes that the kernel charges for each priority that messages can have at the same time: `struct posix_msg_tree_node`.
const PRIORITY: u64 = 48;
const PRIORITIES: u64 = 32_768;

/// Returns the bytes that the kernel charges for a queue. Source: `mqueue_get_inode` in ipc/mqueue.c of the kernel, on 64 bits.
pub(crate) fn charge(max_messages: u64, message_size: u64) -> u64 {
    let tree = max_messages * MESSAGE + max_messages.min(PRIORITIES) * PRIORITY;
    max_messages
        .saturating_mul(message_size)
        .saturating_add(tree)
}

impl Namespace {
    /// Returns the sum of the charges for the caller's queues that have a name.
    ///
    /// # Errors
    /// The errors of a listing of the directory. A queue that the caller may not open does not count.
    pub(crate) fn charges_of_caller(&self) -> Result<u64, NamespaceError> {
        let mut sum = 0u64;
        for_each_queue(&self.queues()?, |_, name| {
            let opened = self.open_queue(&name, FileAccess::Read, true);
            let Some((file, _)) = opened.ok() else {
                return Ok(());
            };
            let is_own = fs::fstat(&file).is_ok_and(|stat| stat.st_uid == caller());
            if is_own && segment::presence(file.as_fd()).is_queue() {
                let (messages, size) = segment::attributes(file.as_fd()).unwrap_or_default();
                sum = sum.saturating_add(charge(messages.into(), size.into()));
            }
            Ok(())
        })?;
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::charge;

    #[test]
    fn charges_are_those_of_the_manual() {
        // The default limit, 819,200 bytes, has room for nine queues of 10 messages of 8,192 bytes.
        assert_eq!(charge(10, 8192), 82_880);
        assert_eq!(charge(1, 1), 97);
        assert_eq!(charge(65_536, 8192), 65_536 * (8192 + 48) + 32_768 * 48);
    }
}
