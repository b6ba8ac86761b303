//! The segment of a System V queue of a few messages, in vectors.

use crate::announcements::Announcements;
use crate::arena::ArenaRoots;
use crate::arena::ArenaStore;
use crate::fault::Fault;
use crate::leases::LeaseStore;
use crate::leases::{LeaseRecord, LeaseRoots};
use crate::lock::tokens::ReceiverHeld;
use crate::sync::{AtomicU32, AtomicU64, Guarded32, Guarded64, Ordering};
use crate::sys::liveness::all_live;
use crate::sysv_engine::order::{Kind, OrderLinks, TypeIndexStore, TypeRoots};
use crate::sysv_engine::segment::{Cell, Fixed, Generation, LIVE, Layout, WaiterRecord};
use crate::waiters::{Links, NODES, Node};
use crate::waiters::{List, WaiterStore};
use std::sync::Arc;

/// The eight bytes in a cell. loom does not check accesses to these bytes, because a thread may copy them without owning them: see
/// [`crate::waiters`].
#[derive(Default)]
pub struct Inline(AtomicU64);

/// The segment of a System V queue in a model.
#[derive(Clone)]
pub struct Segment {
    layout: Layout,
    tenure: Tenure,
    fixed: Arc<Fixed>,
    waiters: Arc<Vec<WaiterRecord>>,
    lease_records: Arc<Vec<LeaseRecord>>,
    places: Arc<Vec<OrderLinks>>,
    kinds: Arc<Vec<Kind>>,
    cells: Arc<Vec<Cell>>,
    /// The index of the queue in the model's namespace.
    index: u32,
    announcements: Arc<Announcements>,
}

/// The queue to which a handle of the segment belongs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tenure {
    pub generation: Generation,
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Segment").finish_non_exhaustive()
    }
}

/// The length of every message, in bytes.
pub const LENGTH: usize = 8;

fn some<T: Default>(count: usize) -> Arc<Vec<T>> {
    Arc::new(std::iter::repeat_with(T::default).take(count).collect())
}

impl Segment {
    /// Creates a queue of up to this number of messages, with enough slots and types for the messages and for all processes that may be blocked.
    pub fn new(messages: usize) -> Segment {
        let qbytes = (messages * LENGTH) as u64;
        let mut layout = Layout::new(qbytes, LENGTH);
        layout.slots = messages + NODES + 1;
        let segment = Segment {
            layout,
            tenure: Tenure::default(),
            fixed: Arc::default(),
            waiters: some(NODES),
            lease_records: some(layout.slots),
            places: some(layout.slots),
            kinds: some(layout.slots),
            cells: some(layout.slots),
            index: 0,
            announcements: Arc::default(),
        };
        let fixed = segment.fixed();
        let words = fixed.words();
        words.state.store(LIVE, Ordering::Relaxed);
        words.version.store(1, Ordering::Relaxed);
        words.capacity.store(qbytes, Ordering::Relaxed);
        segment
    }

    /// Returns none: a model's segment has no place in a file system.
    pub fn namespace(&self) -> Option<&()> {
        None
    }

    /// Announces in the model's namespace that the counts of this queue may change.
    pub fn announce_counts(&self) {
        self.announcements.announce(self.index);
    }

    /// Puts the queue into the namespace of another queue, with this index.
    pub fn put_beside(&mut self, other: &Segment, index: u32) {
        self.index = index;
        self.announcements = Arc::clone(&other.announcements);
    }

    /// Returns the announcements of the model's namespace.
    pub fn announcements(&self) -> &Announcements {
        &self.announcements
    }

    /// Returns no error: there is no file that could be truncated.
    pub fn check(&self) -> Result<(), Fault> {
        Ok(())
    }

    /// Returns the queue to which this handle belongs.
    pub fn tenure(&self) -> Tenure {
        self.tenure
    }

    /// Returns a handle that belongs to another queue of the segment.
    pub fn share_as(&self, tenure: Tenure) -> Segment {
        Segment {
            tenure,
            ..self.clone()
        }
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    pub fn fixed(&self) -> &Fixed {
        &self.fixed
    }

    pub fn waiter_record(&self, index: u32) -> Result<&WaiterRecord, Fault> {
        self.waiters.get(index as usize).ok_or(Fault::Damaged)
    }

    pub fn cell(&self, slot: u32) -> Result<&Cell, Fault> {
        self.cells.get(slot as usize).ok_or(Fault::Damaged)
    }

    /// Ends the messages of all used cells. Their bytes stay, because a model does not track these bytes.
    pub fn wipe(&self, _: ReceiverHeld<'_>) {
        for cell in self.cells.iter().take(self.fixed.control.used() as usize) {
            cell.end();
        }
    }

    /// Returns the number of all cells: memory is always allocated.
    pub fn provide_slots(&self, _usable: u32) -> Result<u32, Fault> {
        Ok(self.cells.len() as u32)
    }

    pub fn copy_in(&self, cell: &Cell, message: &[u8]) -> Result<(), Fault> {
        let mut bytes = [0; LENGTH];
        bytes[..message.len()].copy_from_slice(message);
        // Relaxed: other words order the accesses, as for the bytes of a mapping.
        cell.payload
            .0
            .store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
        Ok(())
    }

    pub fn copy_prefix(&self, cell: &Cell, len: usize, buffer: &mut [u8]) -> Result<usize, Fault> {
        // Relaxed: other words order the accesses, as for the bytes of a mapping.
        let bytes = cell.payload.0.load(Ordering::Relaxed).to_ne_bytes();
        let copied = len.min(buffer.len());
        buffer[..copied].copy_from_slice(&bytes[..copied]);
        Ok(copied)
    }
}

all_live!(Segment, home: true);

impl WaiterStore for Segment {
    fn is_shared(&self) -> bool {
        false
    }

    fn node(&self, index: u32) -> Result<&Node, Fault> {
        self.waiter_record(index).map(WaiterRecord::node)
    }

    fn links(&self, list: List) -> Option<&Links> {
        self.fixed.control.links(list)
    }

    fn ticket(&self) -> &Guarded64 {
        self.fixed.control.ticket()
    }

    fn nodes_in_use(&self) -> &Guarded32 {
        self.fixed.control.nodes()
    }

    fn provide_nodes(&self, _usable: u32, _more: usize) -> Result<(), Fault> {
        Ok(())
    }
}

impl LeaseStore for Segment {
    fn lease_record(&self, index: u32) -> Result<&LeaseRecord, Fault> {
        self.lease_records.get(index as usize).ok_or(Fault::Damaged)
    }

    fn populate_lease_records(&self, _usable: u32) -> Result<u32, Fault> {
        Ok(self.lease_records.len() as u32)
    }

    fn roots_of_leases(&self) -> &LeaseRoots {
        &self.fixed.leases
    }

    fn held(&self) -> &AtomicU64 {
        self.fixed.control.held()
    }

    fn slots(&self) -> usize {
        self.cells.len()
    }
}

/// There is no arena, because messages have eight bytes.
impl ArenaStore for Segment {
    type Held<'a> = ReceiverHeld<'a>;

    fn granule(&self, _granule: u32) -> Result<&[AtomicU32; 4], Fault> {
        Err(Fault::Damaged)
    }

    fn roots(&self) -> &ArenaRoots {
        &self.fixed.arena
    }

    fn arena_len(&self) -> &Guarded32 {
        self.fixed.control.arena_len()
    }

    fn arena_limit(&self) -> u32 {
        0
    }

    fn arena_dirty(&self) -> &Guarded32 {
        self.fixed.control.arena_dirty()
    }

    fn populate_arena(&self, _first: u32, _granules: u32) -> Result<(), Fault> {
        Err(Fault::NoSpace)
    }

    fn is_block_of(&self, _slot: u32, _block: u32) -> Result<bool, Fault> {
        Ok(false)
    }

    fn free_blocks(
        &self,
        _release: &mut dyn FnMut(&Guarded32) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        Ok(())
    }
}

impl TypeIndexStore for Segment {
    fn place(&self, slot: u32) -> Result<&OrderLinks, Fault> {
        self.places.get(slot as usize).ok_or(Fault::Damaged)
    }

    fn places(&self) -> u32 {
        self.fixed.control.used()
    }

    fn kind(&self, index: u32) -> Result<&Kind, Fault> {
        self.kinds.get(index as usize).ok_or(Fault::Damaged)
    }

    fn kinds(&self) -> &TypeRoots {
        &self.fixed.kinds
    }

    fn provide_kinds(&self, _usable: u32) -> Result<u32, Fault> {
        Ok(self.kinds.len() as u32)
    }
}
