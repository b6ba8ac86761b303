//! The segment of a System V queue of a few messages, in vectors.

use crate::arena::ArenaRoots;
use crate::arena::Ground;
use crate::fault::Trouble;
use crate::leases::Keeping;
use crate::leases::{Hold, Holding};
use crate::sync::{AtomicU32, AtomicU64, Guarded32, Guarded64, Ordering};
use crate::sys::liveness::{Lives, UNREGISTERED};
use crate::sysv_engine::order::{Kind, KindRoots, Place, Shelf};
use crate::sysv_engine::segment::{Cell, Fixed, LIVE, Layout, Seat, links};
use crate::waiters::{Links, NODES, Node};
use crate::waiters::{List, Lobby};

/// The bytes in a cell, eight of them. Not watched by loom: they are copied on suspicion, see [`crate::waiters`].
#[derive(Default)]
pub struct Inline(AtomicU64);

/// See the module.
pub struct Segment {
    layout: Layout,
    fixed: Box<Fixed>,
    seats: Vec<Seat>,
    holds: Vec<Hold>,
    places: Vec<Place>,
    kinds: Vec<Kind>,
    cells: Vec<Cell>,
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Segment").finish_non_exhaustive()
    }
}

/// Length of every message, in bytes.
pub const LENGTH: usize = 8;

fn some<T: Default>(count: usize) -> Vec<T> {
    std::iter::repeat_with(T::default).take(count).collect()
}

impl Segment {
    /// A queue of up to so many messages, with as many slots and types as that and everybody who may be blocked need.
    pub fn new(messages: usize) -> Segment {
        let qbytes = (messages * LENGTH) as u64;
        let mut layout = Layout::new(qbytes, LENGTH);
        layout.slots = messages + NODES + 1;
        let segment = Segment {
            layout,
            fixed: Box::default(),
            seats: some(NODES),
            holds: some(layout.slots),
            places: some(layout.slots),
            kinds: some(layout.slots),
            cells: some(layout.slots),
        };
        let fixed = segment.fixed();
        fixed.rights.state.store(LIVE, Ordering::Relaxed);
        fixed.hub.capacity.store(qbytes, Ordering::Relaxed);
        segment
    }

    /// It lies nowhere.
    pub fn namespace(&self) -> Option<&()> {
        None
    }

    /// There is no file.
    pub fn check(&self) -> Result<(), Trouble> {
        Ok(())
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    pub fn fixed(&self) -> &Fixed {
        &self.fixed
    }

    pub fn seat(&self, index: u32) -> Result<&Seat, Trouble> {
        self.seats.get(index as usize).ok_or(Trouble::Damaged)
    }

    pub fn cell(&self, slot: u32) -> Result<&Cell, Trouble> {
        self.cells.get(slot as usize).ok_or(Trouble::Damaged)
    }

    /// Memory is always there.
    pub fn provide_slots(&self, _usable: u32) -> Result<u32, Trouble> {
        Ok(self.cells.len() as u32)
    }

    pub fn copy_in(&self, cell: &Cell, message: &[u8]) -> Result<(), Trouble> {
        let mut bytes = [0; LENGTH];
        bytes[..message.len()].copy_from_slice(message);
        // Relaxed: as the bytes of a mapping, ordered by what is around.
        cell.payload
            .0
            .store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
        Ok(())
    }

    pub fn copy_out(&self, cell: &Cell, len: usize, buffer: &mut [u8]) -> Result<usize, Trouble> {
        // Relaxed: as above.
        let bytes = cell.payload.0.load(Ordering::Relaxed).to_ne_bytes();
        let copied = len.min(buffer.len());
        buffer[..copied].copy_from_slice(&bytes[..copied]);
        Ok(copied)
    }
}

impl Lives for Segment {
    fn own(&self) -> u32 {
        UNREGISTERED
    }

    fn is_over(&self, _life: u32) -> bool {
        false
    }

    fn is_elsewhere(&self) -> bool {
        false
    }

    fn is_home(&self) -> bool {
        true
    }

    fn is_plain(&self) -> bool {
        true
    }
}

impl Lobby for Segment {
    fn is_shared(&self) -> bool {
        false
    }

    fn node(&self, index: u32) -> Result<&Node, Trouble> {
        self.seat(index).map(|seat| &seat.node)
    }

    fn links(&self, list: List) -> Option<&Links> {
        links(&self.fixed.hub, list)
    }

    fn ticket(&self) -> &Guarded64 {
        &self.fixed.hub.ticket
    }

    fn nodes_in_use(&self) -> &Guarded32 {
        &self.fixed.hub.nodes
    }

    fn provide_nodes(&self, _usable: u32, _more: usize) -> Result<(), Trouble> {
        Ok(())
    }
}

impl Keeping for Segment {
    fn hold(&self, index: u32) -> Result<&Hold, Trouble> {
        self.holds.get(index as usize).ok_or(Trouble::Damaged)
    }

    fn populate_holds(&self, _usable: u32) -> Result<u32, Trouble> {
        Ok(self.holds.len() as u32)
    }

    fn holding(&self) -> &Holding {
        &self.fixed.holding
    }

    fn held(&self) -> &AtomicU64 {
        &self.fixed.hub.held
    }

    fn slots(&self) -> usize {
        self.cells.len()
    }
}

/// There is no arena: messages have eight bytes.
impl Ground for Segment {
    fn granule(&self, _granule: u32) -> Result<&[AtomicU32; 4], Trouble> {
        Err(Trouble::Damaged)
    }

    fn roots(&self) -> &ArenaRoots {
        &self.fixed.arena
    }

    fn arena_len(&self) -> &Guarded32 {
        &self.fixed.hub.arena_len
    }

    fn arena_limit(&self) -> u32 {
        0
    }

    fn arena_dirty(&self) -> &Guarded32 {
        &self.fixed.hub.arena_dirty
    }

    fn populate_arena(&self, _first: u32, _granules: u32) -> Result<(), Trouble> {
        Err(Trouble::NoSpace)
    }

    fn is_block_of(&self, _slot: u32, _block: u32) -> Result<bool, Trouble> {
        Ok(false)
    }

    fn free_blocks(
        &self,
        _release: &mut dyn FnMut(&Guarded32) -> Result<(), Trouble>,
    ) -> Result<(), Trouble> {
        Ok(())
    }
}

impl Shelf for Segment {
    fn place(&self, slot: u32) -> Result<&Place, Trouble> {
        self.places.get(slot as usize).ok_or(Trouble::Damaged)
    }

    fn places(&self) -> u32 {
        self.fixed.hub.used.get()
    }

    fn kind(&self, index: u32) -> Result<&Kind, Trouble> {
        self.kinds.get(index as usize).ok_or(Trouble::Damaged)
    }

    fn kinds(&self) -> &KindRoots {
        &self.fixed.kinds
    }

    fn provide_kinds(&self, _usable: u32) -> Result<u32, Trouble> {
        Ok(self.kinds.len() as u32)
    }
}
