//! The two locks of a queue while a salvage rebuilds the queue.

use super::super::Engine;
use crate::fault::Fault;
use crate::lock::tokens::BothHeld;
use crate::lock::{Held, Left, Lock};
use crate::sys::clock::Deadline;
use crate::sys::thread::Thread;

/// Both locks, and the state in which their last owners left them.
pub(super) struct Both<'a> {
    held: Held<'a>,
    receivers: Left,
    sender: &'a Lock,
    senders: Left,
}

impl<'a> Both<'a> {
    /// Returns the token of both locks.
    pub(super) fn token(&self) -> BothHeld<'_> {
        self.held.receiver().with_loan()
    }

    pub(super) fn take(
        engine: &'a Engine,
        me: &'a Thread,
        deadline: Deadline,
    ) -> Result<Self, Fault> {
        let fixed = engine.segment().fixed();
        let held = fixed
            .receiver
            .lock
            .lock_anyway(me, engine.segment(), deadline);
        let (held, receivers) = held.map_err(|_| Fault::Busy)?;
        let sender = &fixed.sender.lock;
        let Ok(senders) = sender.borrow(me, engine.segment(), deadline) else {
            leave(held, receivers);
            return Err(Fault::Busy);
        };
        Ok(Both {
            held,
            receivers,
            sender,
            senders,
        })
    }

    /// Releases both locks without a change to the queue. If an owner had died, the next owner of its lock repairs the data.
    pub(super) fn leave_as_found(self) {
        match self.senders {
            Left::InOrder | Left::Counted => self.sender.give_back(),
            // Either the owner of the sender lock died, or a borrower died and left the sender lock lent. In the second case, the borrower also left
            // the receiver lock orphaned.
            Left::ByTheDead => self.sender.give_back_broken(),
        }
        leave(self.held, self.receivers);
    }

    /// Releases both locks as orphaned locks. The queue is half rebuilt, and needs another salvage.
    pub(super) fn leave_broken(self) {
        self.sender.give_back_broken();
        drop(self.held);
    }

    /// Releases both locks of a rebuilt queue.
    pub(super) fn unlock(self) {
        self.sender.give_back();
        self.held.unlock();
    }
}

/// Releases a lock in the state in which it was found.
fn leave(held: Held<'_>, left: Left) {
    match left {
        Left::InOrder | Left::Counted => held.unlock(),
        Left::ByTheDead => drop(held),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::OWNER_DIED;
    use crate::posix_engine::segment::testing;
    use crate::repair::salvage::{Real, Salvage as _, Salvaged};
    use crate::sys::thread;

    /// A thread that lives longer than each test: init.
    const OTHER_THREAD: u32 = 1;

    /// Salvages a queue without cells, whose locks have these words.
    fn salvage(receivers: u32, senders: u32) -> (Engine, Result<Salvaged, Fault>) {
        let engine = Engine::new(testing::segment(4, 64));
        let fixed = engine.segment().fixed();
        fixed.receiver.lock.forge(receivers);
        fixed.sender.lock.forge(senders);
        let salvaged = engine.salvage(thread::current(), Deadline::Passed, Real::default, |_| {
            panic!("nothing is to be changed")
        });
        (engine, salvaged)
    }

    #[test]
    fn a_salvage_without_the_sender_lock_leaves_the_lock_of_dead_receivers_to_be_repaired() {
        for (found, is_dead) in [(OWNER_DIED, true), (0, false)] {
            let (engine, salvaged) = salvage(found, OTHER_THREAD);
            assert_eq!(salvaged, Err(Fault::Busy));
            let lock = &engine.segment().fixed().receiver.lock;
            assert_eq!((lock.is_orphaned(), lock.word()), (is_dead, found));
            assert!(!engine.damage().is_noted());
        }
    }
}
