//! Slots: taking a free one, filling it, freeing it. Under the lock.

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
    let mut link = control.free.get();
    // A longer list was scribbled into a circle.
    let mut bound = control.used.get() as usize;
    while let Some(slot) = link.checked_sub(1) {
        bound = bound.checked_sub(1).ok_or(Fault::Damaged)?;
        visit(segment.cell(slot)?)?;
        link = segment.place(slot)?.next.get();
    }
    Ok(())
}

impl Engine {
    /// Takes a slot off the free ones: the one that was freed last, whose lines are near; else one that was never used.
    #[inline(always)]
    pub(super) fn take_slot(&self, receiving: ReceiverHeld<'_>) -> Result<(u32, &Cell), Fault> {
        let control = &self.fixed().control;
        let Some(slot) = control.free.get().checked_sub(1) else {
            return self.take_new_slot(receiving);
        };
        control.free.set(self.segment().place(slot)?.next.get());
        Ok((slot, self.segment().cell(slot)?))
    }

    #[inline(never)]
    fn take_new_slot(&self, _: ReceiverHeld<'_>) -> Result<(u32, &Cell), Fault> {
        let control = &self.fixed().control;
        let slot = control.used.get();
        if slot >= control.usable.get() {
            let usable = self.segment().provide_slots(control.usable.get())?;
            control.usable.set(usable);
        }
        let cell = self.segment().cell(slot)?;
        // Whatever a repair finds there: nothing is queued in it.
        cell.end();
        control.used.set(slot + 1);
        Ok((slot, cell))
    }

    /// Puts a slot before the free ones. Its message has ended.
    #[inline(always)]
    pub(super) fn push_free(&self, _: ReceiverHeld<'_>, slot: u32) -> Result<(), Fault> {
        let control = &self.fixed().control;
        self.segment().place(slot)?.next.set(control.free.get());
        control.free.set(slot + 1);
        Ok(())
    }

    /// Ends a message and frees its slot.
    pub(super) fn release(&self, receiving: ReceiverHeld<'_>, slot: u32) -> Result<(), Fault> {
        self.segment().cell(slot)?.end();
        crash_point!(MSG_ENDED);
        self.push_free(receiving, slot)
    }

    /// Takes a slot and writes a message there that is sent `now`. It is nobody's yet: neither queued nor named by a node.
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
        let written = self.write(slot, cell, message);
        if let Err(trouble) = written {
            self.push_free(receiving, slot)?;
            return Err(trouble);
        }
        cell.mtype.set(mtype as u64);
        cell.len.set(message.len() as u32);
        cell.pid.set(me.pid());
        cell.sent_at.set(now);
        crash_point!(MSG_FILLED);
        Ok((slot, cell))
    }

    #[inline(always)]
    fn write(&self, slot: u32, cell: &Cell, message: &[u8]) -> Result<(), Fault> {
        if message.len() > Layout::inline() {
            arena::ensure(self.segment(), slot, &cell.block, message.len())?;
        }
        self.segment().copy_in(cell, message)
    }

    /// The length of a message, checked.
    #[inline(always)]
    pub(super) fn len_of(&self, cell: &Cell) -> Result<usize, Fault> {
        let len = cell.len.get() as usize;
        if len > self.segment().layout().msgmax {
            return Err(Fault::Damaged);
        }
        Ok(len)
    }
}
