//! Finds out whether a ring still has a process that receives.
//!
//! | `state` | messages are taken | may change it |
//! |---|---|---|
//! | 0 | by any receiver: the queue is no ring | - |
//! | 1, disabled | no | the owner: to enabled or closed |
//! | 2, enabled | yes | the owner: to closed |
//! | 3, closed | no | - |
//!
//! If the owner dies, `state` keeps its value. The owner's process id in the segment shows the death.

use super::Engine;
use crate::lock::SLICE;
use crate::posix_engine::segment::CLOSED;
use crate::sys::clock::Deadline;
use crate::sys::liveness;
use crate::sys::process;
use crate::sys::thread::Thread;
use crate::waiters::{List, Waiters};

impl Engine {
    /// Returns whether the queue is a ring whose owner has closed it.
    pub(super) fn is_closed(&self) -> bool {
        self.segment().fixed().ownership.state() == CLOSED
    }

    /// Returns whether the queue is a ring that is closed, or whose owner has died. No process makes room in such a ring. Makes system calls to find
    /// out whether the owner lives.
    pub(super) fn is_deserted(&self) -> bool {
        match self.segment().fixed().ownership.state() {
            0 => false,
            CLOSED => true,
            _ => self.has_lost_its_owner(),
        }
    }

    /// Wakes senders that wait for room, so that they notice that the ring is closed. If another thread holds the lock too long, this call has no
    /// effect, and the senders notice the close at the end of their slice.
    pub fn wake_senders(&self, me: &Thread) {
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

    /// Returns whether the owner of the ring has died. Makes system calls.
    pub fn has_lost_its_owner(&self) -> bool {
        let (pid, birth) = self.segment().fixed().ownership.owner();
        pid != 0 && liveness::is_dead(self.segment(), birth, |birth| process::is_dead(pid, birth))
    }
}
