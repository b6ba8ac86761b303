//! The cell of a slot: a message's header, and behind it the bytes of a short message. And the seat of a blocked thread.

use crate::sync::{AtomicU32, Guarded32, Guarded64, Loose32, Loose64};
use crate::waiters::Node;

/// [`Cell::state`] of a slot that holds no message of the queue.
const FREE: u32 = 0;
/// [`Cell::state`], bit 0: the message is queued, if its sequence number is not beyond the control block's.
const QUEUED: u32 = 1;

/// The header of a cell. All of it belongs to the holder of the lock, or to the one whose slot it is.
#[repr(C, align(16))]
#[derive(Default)]
pub struct Cell {
    /// Bit 0: queued. Above: how often the message was leased and came back.
    state: Guarded32,
    /// The message's length in bytes. Loose, as are the type and the message itself: a receiver reads what it was offered
    /// without the lock, and may lose the offer meanwhile.
    pub len: Loose32,
    /// The message's type, an i64's bits.
    pub mtype: Loose64,
    /// The block of the arena that belongs to the slot, as granule number; 0 for none. A free slot keeps its block.
    pub block: Guarded32,
    /// Process id of the sender.
    pub(crate) pid: Guarded32,
    /// CLOCK_REALTIME_COARSE of the send, in nanoseconds since 1970.
    pub(crate) sent_at: Guarded64,
    #[cfg(loom)]
    pub(crate) payload: crate::model::sysv::Inline,
}

impl Cell {
    /// Whether the message is queued, as far as its cell says.
    #[inline(always)]
    pub fn is_queued(&self) -> bool {
        self.state.get() & QUEUED != 0
    }

    /// A message that is new: it never came back.
    #[inline(always)]
    pub(crate) fn begin(&self) {
        self.state.set(QUEUED);
    }

    /// The slot is free from here on: the store that ends a message.
    #[inline(always)]
    pub(crate) fn end(&self) {
        self.state.set(FREE);
    }

    /// How often the message was leased and came back.
    pub(crate) fn returns(&self) -> u32 {
        self.state.get() >> 1
    }

    /// The message is queued again after so many returns, or (not `queued`) in a process's hands.
    pub(crate) fn set_returns(&self, returns: u32, queued: bool) {
        self.state
            .set(returns.min(u32::MAX >> 1) << 1 | u32::from(queued));
    }
}

/// What a blocked thread leaves: its node, and beside it what it waits for.
#[repr(C, align(128))]
#[derive(Default)]
pub struct Seat {
    pub(crate) node: Node,
    /// Of a receiver: which messages, as [`crate::sysv_engine::wait::encode`] has it.
    pub(crate) choice: Guarded32,
    /// What came of the wait, see [`crate::sysv_engine::wait::Reply`]: stored before the node's word says that something did.
    pub(crate) reply: Guarded32,
    /// The type that goes with `choice`, an i64's bits.
    pub(crate) mtype: Guarded64,
    /// Of a receiver: the longest message that it takes, in bytes. Of a sender: the length of its own.
    pub size: Guarded64,
    /// [`super::Rights::version`] under which it was let in.
    pub(crate) rights: Guarded32,
    /// 1 while the thread sleeps, or is about to: only then has it to be woken.
    pub(crate) asleep: AtomicU32,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Cell>() == 32 && size_of::<Seat>() == 128);
