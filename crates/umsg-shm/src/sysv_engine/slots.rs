//! Slots: taking, filling and freeing them. The caller of each function holds the lock.

use super::Engine;
use super::segment::{Cell, Layout, Segment};
use crate::arena;
use crate::crash::crash_point;
use crate::fault::Fault;
use crate::lock::tokens::ReceiverHeld;
use crate::sys::thread::Thread;
use crate::sysv_engine::order::TypeIndexStore;

/// Calls `visit` with the cell of each free slot.
pub(super) fn each_free(
    segment: &Segment,
    mut visit: impl FnMut(&Cell) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let control = &segment.fixed().control;
    let mut free = control.first_free();
    // A free list with more slots is corrupted: it contains a cycle.
    let mut bound = control.used() as usize;
    while let Some(slot) = free {
        bound = bound.checked_sub(1).ok_or(Fault::Damaged)?;
        visit(segment.cell(slot)?)?;
        free = segment.place(slot)?.next_free().checked_sub(1);
    }
    Ok(())
}

impl Engine {
    /// Takes the slot that was freed last, because its lines are in the cache. Without a free slot, takes a slot that was never used.
    #[inline(always)]
    pub(super) fn take_slot(&self, receiving: ReceiverHeld<'_>) -> Result<(u32, &Cell), Fault> {
        match self.fixed().control.first_free() {
            Some(slot) => self.take_free_slot(receiving, slot),
            None => self.take_new_slot(receiving),
        }
    }

    /// Takes the first free slot of the free list, if there is one.
    #[inline(always)]
    fn take_free_slot(
        &self,
        receiving: ReceiverHeld<'_>,
        slot: u32,
    ) -> Result<(u32, &Cell), Fault> {
        let next = self.segment().place(slot)?.next_free();
        self.fixed().control.set_free_link(receiving, next);
        Ok((slot, self.segment().cell(slot)?))
    }

    /// Takes a slot that was never used. If a new slot needs more memory, first tries to take a slot of a dead sender.
    #[inline(never)]
    fn take_new_slot(&self, receiving: ReceiverHeld<'_>) -> Result<(u32, &Cell), Fault> {
        let control = &self.fixed().control;
        let slot = control.used();
        if slot >= control.usable() {
            self.withdraw_dead_senders(receiving)?;
            if let Some(slot) = control.first_free() {
                return self.take_free_slot(receiving, slot);
            }
            let usable = self.segment().provide_slots(control.usable())?;
            control.set_usable(receiving, usable);
        }
        let cell = self.segment().cell(slot)?;
        // The cell must not look like that of a queued message: a repair after a death would queue it.
        cell.end();
        control.use_slot(receiving, slot);
        Ok((slot, cell))
    }

    /// Puts a slot whose message has ended at the head of the free list.
    #[inline(always)]
    pub(super) fn push_free(&self, receiving: ReceiverHeld<'_>, slot: u32) -> Result<(), Fault> {
        let control = &self.fixed().control;
        let place = self.segment().place(slot)?;
        place.set_next_free(receiving, control.free_link());
        control.set_free_link(receiving, slot + 1);
        Ok(())
    }

    /// Ends a message and frees its slot.
    pub(super) fn release(&self, receiving: ReceiverHeld<'_>, slot: u32) -> Result<(), Fault> {
        self.segment().cell(slot)?.end();
        crash_point!(MSG_ENDED);
        self.push_free(receiving, slot)
    }

    /// Takes a slot, and writes a message with the send time `now` into it. The message is not queued yet, and no node names it.
    #[inline(always)]
    pub(super) fn fill(
        &self,
        receiving: ReceiverHeld<'_>,
        me: &Thread,
        mtype: i64,
        message: &[u8],
        now: u64,
    ) -> Result<(u32, &Cell), Fault> {
        let (slot, cell) = self.take_slot(receiving)?;
        let written = self.write(receiving, slot, cell, message);
        if let Err(fault) = written {
            self.push_free(receiving, slot)?;
            return Err(fault);
        }
        cell.fill(mtype, message.len(), me.pid(), now);
        crash_point!(MSG_FILLED);
        Ok((slot, cell))
    }

    #[inline(always)]
    fn write(
        &self,
        receiving: ReceiverHeld<'_>,
        slot: u32,
        cell: &Cell,
        message: &[u8],
    ) -> Result<(), Fault> {
        if message.len() > Layout::inline() {
            arena::ensure(self.segment(), receiving, slot, cell.block(), message.len())?;
        }
        self.segment().copy_in(cell, message)
    }

    /// Returns the length of a message in bytes. Returns [`Fault::Damaged`] for a length above the queue's maximum.
    #[inline(always)]
    pub(super) fn len_of(&self, cell: &Cell) -> Result<usize, Fault> {
        let len = cell.message_len();
        if len > self.segment().layout().msgmax {
            return Err(Fault::Damaged);
        }
        Ok(len)
    }
}
