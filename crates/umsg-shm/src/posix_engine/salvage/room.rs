//! The memory of a queue that is being rebuilt: the parts that are allocated, and the sizes in use.

use super::super::Engine;
use super::super::send::FIFOS_A_PAGE;
use super::super::tag::priority_of;
use crate::fault::Fault;
use crate::lock::tokens::BothHeld;
use crate::posix_engine::segment::{Cell, PRIORITIES};
use crate::repair::salvage::Real;
use crate::sync::Ordering;
use crate::waiters::NODES;

impl Engine {
    /// Allocates memory before the salvage changes the queue: for the parts that all slots with a cell need, and for the list heads of their
    /// priorities. Returns the sizes of the allocated parts, and the number of slots.
    pub(super) fn provide(&self, real: Real) -> Result<(Real, usize), Fault> {
        let slots = self.provide_slots(real)?;
        let fifos = self.provide_fifos(real.fifos, slots)?;
        Ok((Real { fifos, ..real }, slots))
    }

    /// Allocates memory for the list heads of all priorities in the cells. The list heads for intact messages already have memory, which their
    /// senders allocated.
    fn provide_fifos(&self, mut pages: u64, slots: usize) -> Result<u64, Fault> {
        for slot in 0..slots as u32 {
            let priority = priority_of(self.segment().cell(slot)?.key());
            let page = priority / FIFOS_A_PAGE;
            if priority < PRIORITIES && pages & 1 << page == 0 {
                self.segment()
                    .populate(self.segment().layout().fifos + page * 4096, 4096)?;
                pages |= 1 << page;
            }
        }
        Ok(pages)
    }

    fn provide_slots(&self, real: Real) -> Result<usize, Fault> {
        let slots = real.slots.clamp(1, self.segment().layout().slots);
        let Err(fault) = self.provide_for(real, slots) else {
            return Ok(slots);
        };
        // A growing queue gets memory for cells first, and then for links and entries. If links and entries have too little memory, the last cells
        // were never used.
        let fewer = slots.min(real.links).min(floor_power_of_two(real.entries));
        let is_unused = |slot| self.segment().cell(slot).is_ok_and(Cell::is_unused);
        match fewer != 0 && (fewer as u32..slots as u32).all(is_unused) {
            true => self.provide_for(real, fewer).map(|()| fewer),
            false => Err(fault),
        }
    }

    /// Allocates the memory that is missing for `slots` slots. Only newly allocated memory counts towards the limits.
    fn provide_for(&self, real: Real, slots: usize) -> Result<(), Fault> {
        let (segment, layout) = (self.segment(), self.segment().layout());
        let (entries, cell) = (self.entries(slots), layout.cell_len);
        for (region, has, wants) in [
            (layout.ring, real.entries * 4, entries * 4),
            (layout.links, real.links * 4, slots * 4),
            (layout.cells, real.slots * cell, slots * cell),
        ] {
            segment.populate(region + has, wants.saturating_sub(has))?;
        }
        Ok(())
    }

    /// Returns the number of entries that the ring has for `slots` slots.
    fn entries(&self, slots: usize) -> usize {
        let most = self.segment().layout().ring_len;
        slots.next_power_of_two().max(1024).min(most)
    }

    /// Reduces the regions in use to the parts that have memory.
    pub(super) fn cut_to(&self, both: BothHeld<'_>, real: Real, slots: usize) {
        let (fixed, layout) = (self.segment().fixed(), self.segment().layout());
        // Relaxed in all stores: this thread holds both locks. A process without a lock finds the mark of an unfinished salvage.
        fixed.geometry.set_slots(both, slots as u32);
        fixed.geometry.widen_ring(both, self.entries(slots));
        fixed.receiver.set_nodes(real.nodes.min(NODES));
        let usable = real.lease_records.min(layout.slots) as u32;
        fixed.leases.usable.set(usable);
        fixed.leases.used.set(fixed.leases.used.get().min(usable));
        fixed.leases.returned.set(0);
        let leases = &fixed.leases;
        for (usable, real) in [
            (&leases.deliveries, real.deliveries),
            (&leases.histories, real.histories),
            (&leases.traces, real.traces),
        ] {
            usable.set(usable.get().min(real.min(layout.slots) as u32));
        }
        fixed.leases.look_after.store(0, Ordering::Relaxed);
        fixed.leases.due.store(0, Ordering::Relaxed);
        fixed.sender.set_fifo_pages(both, real.fifos);
    }
}

/// Returns the greatest power of two up to `number`. For 0, the result is 0.
fn floor_power_of_two(number: usize) -> usize {
    number.checked_ilog2().map_or(0, |power| 1 << power)
}
