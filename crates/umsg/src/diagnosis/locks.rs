//! The owners of a queue's locks, and locks with impossible words.

use super::process::{Life, Process};
use super::users::Users;
use rustix::fd::BorrowedFd;
use umsg_shm::lock::{Lock as Word, OWNER_DIED, TID, is_lent, names_no_thread};
use umsg_shm::sys::liveness::Liveness;

/// The part of a queue that a lock guards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Side {
    /// The senders' side of a POSIX queue or a ring.
    Senders,
    /// The receivers' side, including the lists of blocked senders and receivers.
    Receivers,
    /// A System V queue.
    Whole,
}

/// A lock of a queue, as the diagnosis found it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lock {
    /// The part of the queue that the lock guards.
    pub side: Side,
    /// The owner of the lock.
    pub owner: Owner,
    /// The offset of the lock's word in the file, in bytes.
    pub offset: u64,
    /// The value of the lock's word.
    pub word: u32,
    /// The liveness id of the owner, if processes of several PID or time namespaces use the queue. The owner's life file in the namespace's directory
    /// is named `.life-` and this id in hexadecimal.
    pub life: Option<u32>,
    /// True if the process of the named thread has the queue's file mapped, as each process in a call on the queue has. None if the lock names no
    /// thread, or if this process can't read the mappings: only root can read the mappings of other users' processes.
    pub mapped: Option<bool>,
}

/// The owner of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Owner {
    /// The lock is free.
    Nobody,
    /// This thread owns the lock. The thread may be dead, if the system has not marked the lock at its death.
    Thread(Process),
    /// The lock is lent to the holder of the receivers' lock, which needs both locks.
    Receiver,
    /// The lock belongs to a thread that died holding it, and no process has taken the lock since. The value names the process, if it is known.
    Died(Option<Process>),
    /// No possible owner: the lock is marked as lent although no thread lends it, or holds an impossible thread id. A process has
    /// overwritten the lock.
    Impossible,
    /// The lock names this thread, whose process does not have the queue's file mapped and so is in no call: a process has overwritten the
    /// lock.
    Stranger(Process),
}

impl Side {
    /// Returns the name of the side, for use in a sentence.
    pub(super) fn name(self) -> &'static str {
        match self {
            Side::Senders => "the senders' side",
            Side::Receivers => "the receivers' side",
            Side::Whole => "the queue",
        }
    }
}

impl Lock {
    /// Describes a lock in a copy of a queue. `lock` is the lock's word, and `base` is the address of the copy.
    pub(super) fn read(side: Side, lock: &Word, base: usize) -> Lock {
        let (word, last, life) = (lock.word(), lock.process(), lock.life());
        let owner = match (word & TID, word & OWNER_DIED != 0) {
            _ if is_lent(word) && side == Side::Senders => Owner::Receiver,
            (0, false) => Owner::Nobody,
            (tid, _) if life.is_some() && !names_no_thread(word) => {
                Owner::Thread(Process::elsewhere(0, (tid != 0).then_some(tid)))
            }
            (0, true) => Owner::Died((last != 0).then(|| Process::numbered(last))),
            _ if names_no_thread(word) => Owner::Impossible,
            (tid, _) => Owner::Thread(Process::of_owner(tid, last)),
        };
        let offset = std::ptr::from_ref(lock).addr().wrapping_sub(base) as u64;
        Lock {
            side,
            owner,
            offset,
            word,
            life,
            mapped: None,
        }
    }

    /// Returns whether the lock's word is impossible.
    pub(super) fn is_wrong(&self) -> bool {
        matches!(self.owner, Owner::Impossible | Owner::Stranger(_))
    }

    /// Returns whether the lock is marked as lent. The next call that holds the receivers' lock must end the loan.
    pub(super) fn is_lent(&self) -> bool {
        is_lent(self.word) && self.side == Side::Senders
    }

    /// Returns whether the lock in the file still names the same thread.
    pub(super) fn is_named_in(&self, file: BorrowedFd<'_>) -> bool {
        let mut now = [0; 4];
        let read = rustix::io::pread(file, &mut now, self.offset);
        read == Ok(now.len()) && u32::from_ne_bytes(now) & TID == self.word & TID
    }

    /// Finds out whether the named thread's process uses the queue.
    fn judge(&mut self, file: BorrowedFd<'_>, lives: &dyn Liveness, users: &Users) {
        let Owner::Thread(who) = &mut self.owner else {
            return;
        };
        if let Some(life) = self.life {
            if lives.is_over(life) {
                self.owner = Owner::Died(None);
            }
            return;
        }
        if who.life == Life::Dead && !users.are_ours() {
            // An unknown thread is treated as living, because a thread in another PID namespace may have this thread id.
            who.life = Life::Alive;
        } else if who.life != Life::Dead {
            let (who, tid) = (who.clone(), self.word & TID);
            self.mapped = users.have_for_a_while(tid, || self.is_named_in(file));
            if self.mapped == Some(false) {
                self.owner = Owner::Stranger(who);
            }
        }
    }
}

/// Returns whether the data that a lock guards are at rest: no thread is changing them, and no thread has died while it changed them.
pub(super) fn is_settled(lock: &Word) -> bool {
    lock.word() & (TID | OWNER_DIED) == 0
}

/// Finds the locks with impossible words. `is_still` is true if all words were read at one moment.
pub(super) fn judge(
    locks: &mut [Lock],
    file: BorrowedFd<'_>,
    lives: &dyn Liveness,
    users: impl FnOnce() -> Users,
    is_still: bool,
) {
    if locks
        .iter()
        .any(|lock| matches!(lock.owner, Owner::Thread(_)))
    {
        let users = users();
        locks
            .iter_mut()
            .for_each(|lock| lock.judge(file, lives, &users));
    }
    let is_lender = |lock: &Lock| matches!(lock.owner, Owner::Thread(_) | Owner::Died(_));
    if is_still && !locks.iter().any(is_lender) {
        let lent = locks
            .iter_mut()
            .filter(|lock| lock.owner == Owner::Receiver);
        lent.for_each(|lock| lock.owner = Owner::Impossible);
    }
}
