//! The cell of a slot: a message's header. The bytes of a short message follow it.

use crate::sync::{Guarded32, Guarded64, Loose32, Loose64};

/// The value of [`Cell::state`] for a slot that holds no message of the queue.
const FREE: u32 = 0;
/// Bit 0 of [`Cell::state`]: the message is queued, if its sequence number is not beyond the number in the control block.
const QUEUED: u32 = 1;

/// The header of a message. Only the owner of the lock uses it, or the waiter or lease holder to which the slot belongs.
#[repr(C, align(16))]
#[derive(Default)]
pub struct Cell {
    /// Bit 0: the message is queued. The higher bits: the number of leases after which the message came back.
    state: Guarded32,
    /// The message's length in bytes. The length, the type and the message itself are loose: a receiver reads an offered message without the lock,
    /// and may lose the offer meanwhile.
    pub(super) len: Loose32,
    /// The message's type, as the bits of an i64.
    pub(super) mtype: Loose64,
    /// The number of the first granule of the slot's block in the arena; 0 for no block. A free slot keeps its block.
    pub(super) block: Guarded32,
    /// The process id of the sender.
    pid: Guarded32,
    /// The time of the send: CLOCK_REALTIME_COARSE, in nanoseconds since 1970.
    sent_at: Guarded64,
    #[cfg(loom)]
    pub(crate) payload: crate::model::sysv::Inline,
}

impl Cell {
    /// Writes the header of a message that `pid` sends at `now`, in nanoseconds since 1970.
    #[inline(always)]
    pub(crate) fn fill(&self, mtype: i64, len: usize, pid: u32, now: u64) {
        self.mtype.set(mtype as u64);
        self.len.set(len as u32);
        self.pid.set(pid);
        self.sent_at.set(now);
    }

    /// Returns the message's type.
    #[inline(always)]
    pub fn mtype(&self) -> i64 {
        self.mtype.get() as i64
    }

    /// Returns the message's length in bytes, without a check.
    #[inline(always)]
    pub fn message_len(&self) -> usize {
        self.len.get() as usize
    }

    /// Returns the process id of the sender.
    pub(crate) fn pid(&self) -> u32 {
        self.pid.get()
    }

    /// Returns the time of the send: CLOCK_REALTIME_COARSE, in nanoseconds since 1970.
    pub(crate) fn sent_at(&self) -> u64 {
        self.sent_at.get()
    }

    /// Sets the time of the send for a parked message that is being admitted.
    pub(crate) fn set_sent_at(&self, now: u64) {
        self.sent_at.set(now);
    }

    /// Returns the word that names the block of the slot, for the arena.
    #[inline(always)]
    pub(crate) fn block(&self) -> &Guarded32 {
        &self.block
    }

    /// Returns whether the cell says that the message is queued.
    #[inline(always)]
    pub fn is_queued(&self) -> bool {
        self.state.get() & QUEUED != 0
    }

    /// Marks the message in the cell as queued and never returned.
    #[inline(always)]
    pub(crate) fn begin(&self) {
        self.state.set(QUEUED);
    }

    /// Ends the message: from this store on, the slot is free.
    #[inline(always)]
    pub(crate) fn end(&self) {
        self.state.set(FREE);
    }

    /// Returns the number of leases after which the message came back.
    pub(crate) fn returns(&self) -> u32 {
        self.state.get() >> 1
    }

    /// Notes the number of returns, and whether the message is queued again or still leased, by a single store.
    pub(crate) fn set_returns(&self, returns: u32, queued: bool) {
        self.state
            .set(returns.min(u32::MAX >> 1) << 1 | u32::from(queued));
    }
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Cell>() == 32);
    // Cells follow one another without gaps, so the length keeps the header aligned.
    assert!(super::layout::CELL.is_multiple_of(align_of::<Cell>()));
};
