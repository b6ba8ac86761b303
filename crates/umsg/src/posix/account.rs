//! The account of a queue's slots, for tests.

use super::queue::Queue;
use crate::error::Fault;
use umsg_shm::account::Account;
use umsg_shm::posix_engine::Refused;
use umsg_shm::sys::clock::Deadline;
use umsg_shm::sys::thread;

impl Queue {
    /// Returns the number of slots in each place. `None` if the owner of a lock is stopped.
    #[doc(hidden)]
    pub fn account(&self) -> Option<Account> {
        match self.engine.account(thread::current(), Deadline::Passed) {
            Ok(account) => Some(account),
            Err(Refused::Fault(Fault::Busy)) => None,
            Err(refused) => panic!("the places of the slots: {refused:?}"),
        }
    }
}
