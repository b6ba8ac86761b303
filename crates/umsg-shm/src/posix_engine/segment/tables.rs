//! Implements the traits by which the modules of both engines find nodes, lease records and the arena in the segment of a POSIX queue.

use super::Ring;
use super::{ArenaRoots, GRANULE, LeaseRecord, LeaseRoots, Links, Node, Segment};
use crate::arena::ArenaStore;
use crate::fault::Fault;
use crate::leases::LeaseStore;
use crate::lock::tokens::SenderHeld;
use crate::sync::{AtomicU32, AtomicU64, Guarded32, Guarded64};
use crate::waiters::{List, WaiterStore};

impl WaiterStore for Segment {
    #[inline(always)]
    fn is_shared(&self) -> bool {
        self.fixed().receiver.lock.is_shared()
    }

    #[inline(always)]
    fn node(&self, index: u32) -> Result<&Node, Fault> {
        self.node(index)
    }

    #[inline(always)]
    fn links(&self, list: List) -> Option<&Links> {
        let receiver = &self.fixed().receiver;
        match list {
            List::None => None,
            List::Receivers => Some(&receiver.receivers),
            List::Offered => Some(&receiver.offered),
            List::Senders => Some(&receiver.senders),
        }
    }

    #[inline(always)]
    fn ticket(&self) -> &Guarded64 {
        &self.fixed().receiver.ticket
    }

    #[inline(always)]
    fn nodes_in_use(&self) -> &Guarded32 {
        &self.fixed().receiver.nodes
    }

    #[inline(always)]
    fn provide_nodes(&self, usable: u32, more: usize) -> Result<(), Fault> {
        let offset = self.layout().nodes + usable as usize * size_of::<Node>();
        self.populate(offset, more * size_of::<Node>())
    }
}

impl LeaseStore for Segment {
    #[inline(always)]
    fn lease_record(&self, index: u32) -> Result<&LeaseRecord, Fault> {
        self.lease_record(index)
    }

    fn populate_lease_records(&self, usable: u32) -> Result<u32, Fault> {
        self.populate_lease_records(usable)
    }

    #[inline(always)]
    fn roots_of_leases(&self) -> &LeaseRoots {
        &self.fixed().leases
    }

    #[inline(always)]
    fn held(&self) -> &AtomicU64 {
        &self.fixed().receiver.held
    }

    #[inline(always)]
    fn slots(&self) -> usize {
        self.layout().slots
    }
}

impl ArenaStore for Segment {
    type Held<'a> = SenderHeld<'a>;

    #[inline(always)]
    fn granule(&self, granule: u32) -> Result<&[AtomicU32; 4], Fault> {
        self.granule(granule)
    }

    #[inline(always)]
    fn roots(&self) -> &ArenaRoots {
        &self.fixed().arena
    }

    #[inline(always)]
    fn arena_len(&self) -> &Guarded32 {
        &self.fixed().sender.arena_len
    }

    fn arena_limit(&self) -> u32 {
        (self.layout().arena_len / GRANULE) as u32
    }

    #[inline(always)]
    fn arena_dirty(&self) -> &Guarded32 {
        &self.fixed().sender.arena_dirty
    }

    fn populate_arena(&self, first: u32, granules: u32) -> Result<(), Fault> {
        let offset = self.layout().arena + first as usize * GRANULE;
        self.populate(offset, granules as usize * GRANULE)
    }

    fn is_block_of(&self, slot: u32, block: u32) -> Result<bool, Fault> {
        let slots = self.fixed().geometry.slots();
        Ok(slot < slots && self.cell(slot)?.block.get() == block + 1)
    }

    fn free_blocks(
        &self,
        release: &mut dyn FnMut(&Guarded32) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let fixed = self.fixed();
        let ring = Ring::of(self);
        let mut first = fixed.sender.sent_hint();
        // The slots that a sender is filling with a batch are no longer free.
        let batch_end = fixed.sender.batch_end();
        if batch_end.wrapping_sub(first) as i64 > 0 {
            first = batch_end;
        }
        let freed = fixed.published.freed_so_far();
        fixed.sender.freed_seen.set(freed);
        let free_slots = (freed.wrapping_sub(first) as i64).clamp(0, self.layout().slots as i64);
        for position in 0..free_slots as u64 {
            let (_, cell) = ring.slot(first.wrapping_add(position))?;
            release(&cell.block)?;
        }
        Ok(())
    }
}
