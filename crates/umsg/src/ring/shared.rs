//! What both ends of a ring have: the engine, and the ring's state in the segment.

use super::doorbell::Button;
use super::error::SendError;
use super::message::HEAD;
use crate::queue::{Engine, Rope};
use crate::segment::{Ownership, Segment};
use crate::sync::Ordering;
use crate::sys::{clock, process, thread};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// [`Ownership::state`].
pub(super) const DISABLED: u32 = 1;
pub(super) const ENABLED: u32 = 2;
pub(super) const CLOSED: u32 = 3;

/// How long it is believed that the owner lives, in nanoseconds.
const TRUST: u64 = 10_000_000;

/// See the module.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) engine: Engine,
    /// Where descriptors go, and who makes the receiver's own readable.
    pub(super) button: Arc<Button>,
    /// CLOCK_MONOTONIC_COARSE when it was last seen that the owner lives.
    owner_seen: AtomicU64,
}

impl Shared {
    pub(super) fn new(segment: Segment, button: Button) -> Shared {
        let button = Arc::new(button);
        let mut engine = Engine::new(segment);
        let pressed = Arc::clone(&button);
        engine.set_rope(Rope::new(move || pressed.press()));
        Shared {
            engine,
            button,
            owner_seen: AtomicU64::new(0),
        }
    }

    #[inline(always)]
    pub(super) fn ownership(&self) -> &Ownership {
        &self.engine.segment().fixed().ownership
    }

    /// The longest payload, in bytes.
    #[inline(always)]
    pub(super) fn longest(&self) -> usize {
        self.engine.segment().layout().message_size - HEAD
    }

    /// Whether the calling process is the ring's owner.
    pub(super) fn is_owned(&self) -> bool {
        self.ownership().pid.load(Ordering::Relaxed) == thread::current().pid()
    }

    /// Whether messages are taken.
    #[inline(always)]
    pub(super) fn check_state(&self) -> Result<(), SendError> {
        // Acquire: what the owner did before it enabled the ring is seen.
        if self.ownership().state.load(Ordering::Acquire) == ENABLED {
            Ok(())
        } else {
            Err(self.refusal())
        }
    }

    #[cold]
    fn refusal(&self) -> SendError {
        match self.ownership().state.load(Ordering::Acquire) {
            CLOSED => SendError::Closed,
            _ => SendError::Disabled,
        }
    }

    /// Whether the owner lives, as of ten milliseconds ago: to ask costs some microseconds.
    #[inline(always)]
    pub(super) fn check_owner(&self) -> Result<(), SendError> {
        let now = clock::monotonic_coarse();
        // Relaxed: a hint when to ask.
        if now.wrapping_sub(self.owner_seen.load(Ordering::Relaxed)) < TRUST {
            return Ok(());
        }
        self.ask_for_owner(now)
    }

    #[cold]
    fn ask_for_owner(&self, now: u64) -> Result<(), SendError> {
        let owner = self.ownership();
        // Relaxed: process and birth are stored before the ring can be found.
        let (pid, birth) = (
            owner.pid.load(Ordering::Relaxed),
            owner.birth.load(Ordering::Relaxed),
        );
        if pid != 0 && pid != thread::current().pid() && process::is_dead(pid, birth) {
            return Err(SendError::OwnerDead);
        }
        self.owner_seen.store(now, Ordering::Relaxed);
        Ok(())
    }
}
