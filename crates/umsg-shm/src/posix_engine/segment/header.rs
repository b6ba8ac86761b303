//! The header: the format, the attributes and the origin of a segment.

use super::{Layout, Presence};
use crate::repair::log::Damage;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use std::mem::offset_of;

/// The header of a segment: its format, its attributes and its origin.
#[repr(C, align(128))]
#[derive(Default)]
pub struct Header {
    magic: AtomicU64,
    version: AtomicU32,
    layout_hash: AtomicU32,
    max_messages: AtomicU32,
    /// The maximum length of a message, in bytes.
    message_size: AtomicU32,
    /// The length of the file, in bytes.
    len: AtomicU64,
    /// The permission bits that the queue's creator or fchmod has set.
    pub(super) mode: AtomicU32,
    /// The process id of the creator.
    creator: AtomicU32,
    /// The time of the creation: nanoseconds of CLOCK_REALTIME since 1970.
    created_at: AtomicU64,
    /// The record of corruption and of salvages.
    pub damage: Damage,
    /// The inode numbers of the creator's PID namespace (low 32 bits) and time namespace (high 32 bits). 0 if they are unknown.
    pub(super) home: AtomicU64,
    /// The presence word, which shows whether the segment contains a queue.
    pub presence: Presence,
}

impl Header {
    /// The offset of the permission bits in the header, in bytes.
    pub const MODE: usize = offset_of!(Header, mode);
    /// The offsets that are part of the layout hash.
    #[cfg(not(loom))]
    pub(super) const OFFSETS: [usize; 3] = [
        offset_of!(Header, damage),
        offset_of!(Header, home),
        Header::PRESENCE,
    ];
    /// The offsets of words that a process reads from the file without a mapping.
    #[cfg(not(loom))]
    pub(super) const PRESENCE: usize = offset_of!(Header, presence);
    #[cfg(not(loom))]
    pub(super) const MAX_MESSAGES: usize = offset_of!(Header, max_messages);
    #[cfg(not(loom))]
    pub(super) const MESSAGE_SIZE: usize = offset_of!(Header, message_size);
    #[cfg(not(loom))]
    pub(super) const CREATOR: usize = offset_of!(Header, creator);
    #[cfg(not(loom))]
    pub(super) const HOME: usize = offset_of!(Header, home);

    /// Notes that this process creates the segment.
    #[cfg(not(loom))]
    pub(super) fn note_creator(&self) {
        // Relaxed: as in `begin`.
        self.creator.store(std::process::id(), Ordering::Relaxed);
        self.home.store(crate::sys::home::here(), Ordering::Relaxed);
    }

    /// Fills in the header for a queue that belongs to the caller. After the store of the magic number, the file is a segment.
    #[cfg(not(loom))]
    pub(super) fn begin(&self, layout: &Layout, mode: u32) {
        use super::{LAYOUT_HASH, MAGIC, VERSION};
        use crate::sys::clock;
        // Relaxed throughout: no other process sees the segment before its file is linked.
        let store = Ordering::Relaxed;
        self.version.store(VERSION, store);
        self.layout_hash.store(LAYOUT_HASH, store);
        self.max_messages.store(layout.max_messages as u32, store);
        self.message_size.store(layout.message_size as u32, store);
        self.len.store(layout.len as u64, store);
        self.mode.store(mode, store);
        self.created_at.store(clock::realtime(), store);
        self.magic.store(MAGIC, store);
    }

    /// Returns the permission bits of the queue. A process with write access may have overwritten the bits.
    pub fn mode(&self) -> u32 {
        // Relaxed: the word publishes no other data.
        self.mode.load(Ordering::Relaxed)
    }

    /// Sets the permission bits of the queue.
    pub fn set_mode(&self, mode: u32) {
        self.mode.store(mode, Ordering::Relaxed);
    }

    /// Returns the process id of the creator.
    pub fn creator(&self) -> u32 {
        // Relaxed: the creator wrote the word before any process could attach.
        self.creator.load(Ordering::Relaxed)
    }

    /// Returns the time of the creation: nanoseconds of CLOCK_REALTIME since 1970.
    pub fn created_at(&self) -> u64 {
        self.created_at.load(Ordering::Relaxed)
    }
}
