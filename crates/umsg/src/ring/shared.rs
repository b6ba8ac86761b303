//! What both ends of a ring have: the engine, and the ring's state in the segment.

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

/// How long it is believed that the owner lives, in nanoseconds.
const TRUST: u64 = 10_000_000;

/// See the module.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) engine: Engine,
    /// Where descriptors go, and who makes the receiver's own readable.
    pub(super) button: Arc<Button>,
    /// The process that is the ring's owner, if it is the one that this was made in. An id alone may be another's by now.
    own: u32,
    /// The machine's clock when it was last seen that the owner lives.
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

    /// The longest payload, in bytes.
    #[inline(always)]
    pub(super) fn longest(&self) -> usize {
        self.engine.segment().layout().message_size - HEAD
    }

    /// Whether the calling process is the ring's owner: known without what senders could scribble over.
    #[inline(always)]
    pub(super) fn is_owned(&self) -> bool {
        self.own == thread::current().pid()
    }

    /// Begins to fetch the cell that the next message goes to: its receiver is looking at it.
    #[inline(always)]
    pub(super) fn prefetch(&self) {
        let segment = self.engine.segment();
        let position = segment.fixed().sender.sent_hint();
        if let Ok((slot, _)) = Ring::of(segment).slot(position) {
            segment.prefetch_to_write(slot);
        }
    }

    /// Whether messages are taken.
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
            // A dead owner never enables it.
            _ => match self.check_owner(thread::current()) {
                Err(error) => error,
                Ok(()) => SendError::Disabled,
            },
        }
    }

    /// Whether the owner lives, as of ten milliseconds ago: to ask costs some microseconds.
    #[inline(always)]
    pub(super) fn check_owner(&self, me: &Thread) -> Result<(), SendError> {
        if self.own == me.pid() {
            return Ok(());
        }
        let now = clock::monotonic_coarse();
        // Relaxed: a hint when to ask.
        if now.wrapping_sub(self.owner_seen.load(Ordering::Relaxed)) < TRUST {
            return Ok(());
        }
        self.ask_for_owner(now)
    }

    #[cold]
    fn ask_for_owner(&self, now: u64) -> Result<(), SendError> {
        if self.engine.has_lost_its_owner() {
            return Err(SendError::OwnerDead);
        }
        // Relaxed: a hint when to ask.
        self.owner_seen.store(now, Ordering::Relaxed);
        Ok(())
    }

    /// Whether a process receives, as of now. For a sender that was refused and does not know why.
    #[cold]
    pub(super) fn check_receiver(&self) -> Result<(), SendError> {
        self.check_state()?;
        self.ask_for_owner(clock::monotonic_coarse())
    }
}

/// This process's id if it owns the ring; else 0.
fn owning_process(segment: &Segment) -> u32 {
    let me = thread::current().pid();
    let (pid, birth) = segment.fixed().ownership.owner();
    if pid == me && birth == liveness::birth(segment, || process::birth(me)) {
        me
    } else {
        0
    }
}
