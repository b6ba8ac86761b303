//! What both ends of a ring have: the engine, and the ring's state in the segment.

use super::doorbell::Button;
use super::error::SendError;
use super::message::HEAD;
use crate::queue::{Engine, Rope};
use crate::segment::{Ownership, Segment};
use crate::slots;
use crate::sync::Ordering;
use crate::sys::thread::{self, Thread};
use crate::sys::{clock, process};
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
    #[inline(always)]
    pub(super) fn is_owned(&self) -> bool {
        // Relaxed: stored before the ring can be found.
        self.ownership().pid.load(Ordering::Relaxed) == thread::current().pid()
    }

    /// Begins to fetch the cell that the next message goes to: its receiver is looking at it.
    #[inline(always)]
    pub(super) fn prefetch(&self) {
        let segment = self.engine.segment();
        // Relaxed: a hint.
        let position = segment.fixed().sender.sent.load(Ordering::Relaxed);
        if let Ok((slot, _)) = slots::Ring::of(segment).slot(position) {
            segment.prefetch_to_write(slot);
        }
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
    pub(super) fn check_owner(&self, me: &Thread) -> Result<(), SendError> {
        // Relaxed: stored before the ring can be found.
        let pid = self.ownership().pid.load(Ordering::Relaxed);
        if pid == me.pid() {
            return Ok(());
        }
        let now = clock::monotonic_coarse();
        // Relaxed: a hint when to ask.
        if now.wrapping_sub(self.owner_seen.load(Ordering::Relaxed)) < TRUST {
            return Ok(());
        }
        self.ask_for_owner(pid, now)
    }

    #[cold]
    fn ask_for_owner(&self, pid: u32, now: u64) -> Result<(), SendError> {
        // Relaxed: as the process.
        let birth = self.ownership().birth.load(Ordering::Relaxed);
        if pid != 0 && process::is_dead(pid, birth) {
            return Err(SendError::OwnerDead);
        }
        self.owner_seen.store(now, Ordering::Relaxed);
        Ok(())
    }
}
