//! The account of a queue's slots, for tests.

use super::queue::Queue;
use crate::error::Fault;
use umsg_shm::account::Account;
use umsg_shm::sys::clock::Deadline;
use umsg_shm::sys::thread;
use umsg_shm::sysv_engine::{Call, Refused};

impl Queue {
    /// Returns the numbers of slots by their use. `None` if the owner of the lock is stopped.
    #[doc(hidden)]
    pub fn account(&self) -> Option<Account> {
        let call = Call::new(thread::current(), Deadline::Passed);
        match self.engine.account(&call) {
            Ok(account) => Some(account),
            Err(Refused::Fault(Fault::Busy)) => None,
            Err(refused) => panic!("the places of the slots: {refused:?}"),
        }
    }
}
