//! The segment of a System V queue: the layout of its file, and access to the mapping.
//!
//! ```text
//! Fixed     header · rights · control block · roots of the types · roots of the leases · roots of the arena · counters · delivery   (fixed.rs)
//! waiters   one for each blocked thread: its node and its wait
//! leases    one record a leased message
//! places    one for each slot: the message's number and its neighbours
//! kinds     one for each type of message: its record
//! cells     one for each slot: the message's header, and a short message's bytes
//! arena     blocks for longer messages
//! ```
//!
//! The file is sparse, as that of a POSIX queue ([`crate::posix_engine::segment`]): regions come into use from their beginning on.

#[cfg(not(loom))]
pub mod attach;
mod cell;
mod control;
#[cfg(not(loom))]
mod create;
mod delivery;
mod fixed;
mod layout;
#[cfg(not(loom))]
#[allow(unsafe_code, reason = "references into the mapping, copies in and out")]
mod mapped;
mod rights;
#[cfg(not(loom))]
mod summary;
mod waiter;
mod words;

#[cfg(not(loom))]
pub use attach::{attach, is_marked_removed, mark_removed, remove_unmapped, take, write_removed};
pub use cell::Cell;
pub(crate) use control::Sum;
pub use control::{Contents, ControlBlock};
#[cfg(not(loom))]
pub use create::{Identity, create};
pub use delivery::{Delivery, Policy};
pub use fixed::Fixed;
#[cfg(not(loom))]
pub use fixed::{Header, LAYOUT_HASH, MAGIC, VERSION};
#[cfg(not(loom))]
pub use layout::CELL;
pub use layout::Layout;
#[cfg(not(loom))]
pub use layout::{LONGEST, MOST_BYTES};
#[cfg(not(loom))]
pub use mapped::{Segment, Tenure};
pub use rights::{CLOSED, Generation, LIVE, Permissions, REMOVED, Rights, State};
#[cfg(not(loom))]
pub use summary::{HeaderView, QueueCounts, Summary, summary};
pub use waiter::WaiterRecord;
pub(crate) use waiter::{Choice, Reply};
pub use words::{CellWords, Words};

#[cfg(loom)]
pub(crate) use crate::model::sysv::Segment;
