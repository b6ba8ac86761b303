//! Slots: their way round the ring, and the blocks that hold what does not fit into a cell.

pub(crate) mod arena;
mod ring;

pub(crate) use ring::Ring;
