//! Who holds a queue's locks.

use super::who::Process;
use crate::lock::{LENT, Lock as Word, OWNER_DIED, TID};

/// Which part of a queue a lock guards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Side {
    /// The senders' side of a POSIX queue or a ring.
    Senders,
    /// The receivers' side, blocked threads of both kinds included.
    Receivers,
    /// A System V queue.
    Whole,
}

/// A lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lock {
    /// What it guards.
    pub side: Side,
    /// Whose it is.
    pub owner: Owner,
    /// Where its word lies: bytes from the beginning of the file.
    pub offset: u64,
}

/// Whose a lock is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Owner {
    /// Nobody's.
    Nobody,
    /// This thread's; of one that is dead if the system has not marked the lock, which it does at a thread's death.
    Thread(Process),
    /// That of whoever holds the receivers' lock, who needs both.
    Receiver,
    /// That of a thread that died holding it; nobody has taken it since. Which process that was, if it is known.
    Died(Option<Process>),
}

impl Lock {
    /// What a copy of a lock says.
    pub(super) fn read(side: Side, lock: &Word, base: usize) -> Lock {
        let (word, last) = (lock.word(), lock.last());
        let owner = match (word & TID, word & OWNER_DIED != 0) {
            (LENT, _) => Owner::Receiver,
            (0, false) => Owner::Nobody,
            (0, true) => Owner::Died((last != 0).then(|| Process::of(last, 0))),
            (tid, _) => Owner::Thread(Process::of_owner(tid, last)),
        };
        let offset = std::ptr::from_ref(lock).addr().wrapping_sub(base) as u64;
        Lock {
            side,
            owner,
            offset,
        }
    }

    /// Whether nobody is in the middle of changing what it guards, or died so.
    pub(super) fn is_settled(&self) -> bool {
        self.owner == Owner::Nobody
    }
}
