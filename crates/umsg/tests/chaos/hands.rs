//! The buffers of receivers, in memory that outlives a killed receiver. So each message that is lost with a receiver is known
//! by its number, and no other message may be missing.

use super::journal::{Journal, read_pattern};
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// The maximum number of receives at the same time. Children that died by themselves keep their buffers.
pub const HANDS: usize = 1024;
/// The size of a buffer, in bytes. A longer buffer is not shared, so its contents excuse no missing message.
pub const LEN: usize = 8192;

/// The byte that marks empty parts of a buffer: no message's number begins with it.
const NOTHING: u8 = 0xff;

/// One receive's buffer.
#[repr(C)]
pub struct Hand {
    /// The owner's role in the journal, plus one; 0 without an owner.
    owner: AtomicU32,
    bytes: UnsafeCell<[u8; LEN]>,
}

// SAFETY: only the process that has made itself the owner touches the bytes, or a process that has seen the owner dead.
unsafe impl Sync for Hand {}

/// Room for the message of one receive.
pub struct Room<'a> {
    hand: Option<&'a Hand>,
    /// A private buffer, if the room is too long for a shared one.
    own: Vec<u8>,
    len: usize,
}

impl Journal {
    /// Returns room for the message of the next receive of this role. The caller keeps the room until the message is [noted](Journal::note). A signal
    /// handler may call this function for up to [`LEN`] bytes.
    pub fn room(&self, role: usize, len: usize) -> Room<'_> {
        if len > LEN {
            return Room {
                hand: None,
                own: vec![0; len],
                len,
            };
        }
        let first = self.next_hand.fetch_add(1, SeqCst) as usize;
        let mut hands = (0..HANDS).map(|step| &self.hands[(first + step) % HANDS]);
        let hand = hands.find(|hand| hand.take(role)).expect("a free hand");
        let mut room = Room {
            hand: Some(hand),
            own: Vec::new(),
            len,
        };
        room.fill(NOTHING);
        room
    }

    /// Records the messages in the buffers of these roles, whose processes are dead. Returns the number of these messages that no process has
    /// received.
    pub fn look_into_hands(&self, roles: Range<usize>) -> usize {
        let mut held = 0;
        for hand in &self.hands {
            let owner = (hand.owner.load(SeqCst) as usize).checked_sub(1);
            if owner.is_some_and(|role| roles.contains(&role)) {
                // SAFETY: the owner of the buffer is dead.
                held += self.excuse(unsafe { &*hand.bytes.get() });
                hand.owner.store(0, SeqCst);
            }
        }
        held
    }

    /// Records that the messages in a buffer may be lost with their receiver. The messages lie one after the other.
    fn excuse(&self, mut bytes: &[u8]) -> usize {
        let mut held = 0;
        while let Some(head) = bytes.first_chunk()
            && let Some(message) = self.messages().get(u32::from_le_bytes(*head) as usize)
            && let Some((whole, behind)) = bytes.split_at_checked(message.len.load(SeqCst) as usize)
            && read_pattern(whole).is_some()
        {
            message.in_dead_hands.store(1, SeqCst);
            held += usize::from(message.received.load(SeqCst) == 0);
            bytes = behind;
        }
        held
    }

    /// Returns the number of missing messages that dead receivers held.
    pub fn lost_with_receivers(&self) -> usize {
        let lost = self.messages().iter().filter(|message| {
            message.was_sent()
                && message.received.load(SeqCst) == 0
                && message.in_dead_hands.load(SeqCst) != 0
        });
        lost.count()
    }
}

impl Hand {
    fn take(&self, role: usize) -> bool {
        let owner = role as u32 + 1;
        self.owner
            .compare_exchange(0, owner, SeqCst, SeqCst)
            .is_ok()
    }
}

impl Deref for Room<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self.hand {
            // SAFETY: the buffer belongs to this value until it is dropped.
            Some(hand) => unsafe { &(&*hand.bytes.get())[..self.len] },
            None => &self.own,
        }
    }
}

impl DerefMut for Room<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self.hand {
            // SAFETY: the buffer belongs to this value until it is dropped.
            Some(hand) => unsafe { &mut (&mut *hand.bytes.get())[..self.len] },
            None => &mut self.own,
        }
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        if let Some(hand) = self.hand {
            hand.owner.store(0, SeqCst);
        }
    }
}
