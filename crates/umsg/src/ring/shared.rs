//! The state that both ends of a ring share: the engine, and the ring's state in the segment.

use super::doorbell::Button;
use super::error::SendError;
use super::message::HEAD;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use umsg_shm::posix_engine::segment::{Ownership, Ring, Segment};
use umsg_shm::posix_engine::{CLOSED, ENABLED, Engine, Notifier};
use umsg_shm::sync::Ordering;
use umsg_shm::sys::liveness;
use umsg_shm::sys::thread::{self, Thread};
use umsg_shm::sys::{clock, process};

/// The time, in nanoseconds, for which senders do not repeat a check that has found the owner alive.
const TRUST: u64 = 10_000_000;

/// The shared state of both ends.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) engine: Engine,
    /// The button of the doorbell. Descriptors pass through the doorbell.
    pub(super) button: Arc<Button>,
    /// The id of this process if it owns the ring, otherwise 0. The id in the segment is no proof: the owner may have died, and another process may
    /// have its id.
    own: u32,
    /// The reading of the machine's clock when the owner was last seen alive.
    owner_seen: AtomicU64,
}

impl Shared {
    pub(super) fn new(segment: Segment, button: Button) -> Shared {
        let button = Arc::new(button);
        let mut engine = Engine::new(segment);
        let own = owning_process(engine.segment());
        let pressed = Arc::clone(&button);
        engine.set_notifier(Notifier::new(move || pressed.press()));
        Shared {
            engine,
            button,
            own,
            owner_seen: AtomicU64::new(0),
        }
    }

    #[inline(always)]
    pub(super) fn ownership(&self) -> &Ownership {
        &self.engine.segment().fixed().ownership
    }

    /// Returns the longest payload, in bytes.
    #[inline(always)]
    pub(super) fn longest(&self) -> usize {
        self.engine.segment().layout().message_size - HEAD
    }

    /// Returns whether the calling process is the ring's owner. The answer does not depend on words that senders can overwrite.
    #[inline(always)]
    pub(super) fn is_owned(&self) -> bool {
        self.own == thread::current().pid()
    }

    /// Prefetches the cell of the next message for writing. The receiver reads that cell while it waits, so another processor's cache has the cell.
    #[inline(always)]
    pub(super) fn prefetch(&self) {
        let segment = self.engine.segment();
        let position = segment.fixed().sender.sent_hint();
        if let Ok((slot, _)) = Ring::of(segment).slot(position) {
            segment.prefetch_to_write(slot);
        }
    }

    /// Checks that the ring accepts messages.
    #[inline(always)]
    pub(super) fn check_state(&self) -> Result<(), SendError> {
        if self.ownership().state() == ENABLED {
            Ok(())
        } else {
            Err(self.refusal())
        }
    }

    #[cold]
    fn refusal(&self) -> SendError {
        match self.ownership().state() {
            CLOSED => SendError::Closed,
            // The ring is disabled. If the owner is dead, no process can enable the ring any more.
            _ => match self.check_owner(thread::current()) {
                Err(error) => error,
                Ok(()) => SendError::Disabled,
            },
        }
    }

    /// Checks that the owner was alive within the last ten milliseconds. A check of the process costs some microseconds.
    #[inline(always)]
    pub(super) fn check_owner(&self, me: &Thread) -> Result<(), SendError> {
        if self.own == me.pid() {
            return Ok(());
        }
        let now = clock::monotonic_coarse();
        // Relaxed: the word only limits the rate of checks.
        if now.wrapping_sub(self.owner_seen.load(Ordering::Relaxed)) < TRUST {
            return Ok(());
        }
        self.check_owner_process(now)
    }

    #[cold]
    fn check_owner_process(&self, now: u64) -> Result<(), SendError> {
        if self.engine.has_lost_its_owner() {
            return Err(SendError::OwnerDead);
        }
        // Relaxed: the word only limits the rate of checks.
        self.owner_seen.store(now, Ordering::Relaxed);
        Ok(())
    }

    /// Checks that the ring is enabled and that its owner lives. A sender calls this function after a failure that a closed ring or a dead owner may
    /// have caused.
    #[cold]
    pub(super) fn check_receiver(&self) -> Result<(), SendError> {
        self.check_state()?;
        self.check_owner_process(clock::monotonic_coarse())
    }
}

/// Returns this process's id if it owns the ring; otherwise 0.
fn owning_process(segment: &Segment) -> u32 {
    let me = thread::current().pid();
    let (pid, birth) = segment.fixed().ownership.owner();
    if pid == me && birth == liveness::birth(segment, || process::birth(me)) {
        me
    } else {
        0
    }
}
