//! Whether a ring still has a process that receives.
//!
//! | `state` | messages are taken | left by |
//! |---|---|---|
//! | 0 | by a process that receives: it is no ring | nobody |
//! | 1, disabled | no | the owner: enabled, closed |
//! | 2, enabled | yes | the owner: closed |
//! | 3, closed | no | nobody |
//!
//! If the owner dies the state stays; then its process says so.

use super::Engine;
use crate::lock::SLICE;
use crate::posix_engine::segment::CLOSED;
use crate::sys::clock::Deadline;
use crate::sys::liveness;
use crate::sys::process;
use crate::sys::thread::Thread;
use crate::waiters::{List, Waiters};

impl Engine {
    /// Whether it is a ring whose owner receives no more.
    pub(super) fn is_closed(&self) -> bool {
        self.segment().fixed().ownership.state() == CLOSED
    }

    /// Whether it is a ring that is closed, or whose owner has died: nobody makes room there any more. Asks the system.
    pub(super) fn is_deserted(&self) -> bool {
        match self.segment().fixed().ownership.state() {
            0 => false,
            CLOSED => true,
            _ => self.has_lost_its_owner(),
        }
    }

    /// Wakes senders that wait for room, so that they find the ring closed. In vain if a process keeps the lock; they look by
    /// themselves at their next slice.
    pub fn send_senders_away(&self, me: &Thread) {
        let patience = Deadline::Never.or_slice(SLICE);
        let _ = self.with_receiver_lock(me, patience, |_, wakes| {
            let waiters = Waiters::of(self.segment());
            let mut next = waiters.first(List::Senders)?;
            for _ in 0..waiters.len(List::Senders) {
                let Some((index, node)) = next else {
                    break;
                };
                wakes.add(index);
                next = waiters.next(node)?;
            }
            Ok(())
        });
    }

    /// Whether the ring's owner has died. Asks the system.
    pub fn has_lost_its_owner(&self) -> bool {
        let (pid, birth) = self.segment().fixed().ownership.owner();
        pid != 0 && liveness::is_dead(self.segment(), birth, |birth| process::is_dead(pid, birth))
    }
}
