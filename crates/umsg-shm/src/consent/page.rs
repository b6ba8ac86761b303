//! The page of a process's consents. The process writes the page; senders in other processes read the page.

use crate::sys::map::PAGE;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// The first word of a page. Each layout has a different value.
const MAGIC: u64 = u64::from_le_bytes(*b"umsgcon1");

/// The number of registrations for which a process can consent at a time.
pub(super) const PLACES: usize = 100;

/// A page of consents. docs/format.md draws it.
#[repr(C)]
pub(super) struct Page {
    magic: AtomicU64,
    /// The PID and time namespaces of the process.
    home: AtomicU64,
    pid: AtomicU32,
    /// The helper thread; 0 until it attests the page.
    helper: AtomicU32,
    spare: [AtomicU64; 5],
    places: [ConsentRecord; PLACES],
}

const _: () = assert!(size_of::<Page>() == 4064 && size_of::<Page>() <= PAGE);

/// The consent for one registration. No two registrations of the process have the same ticket.
#[repr(C)]
struct ConsentRecord {
    /// The ticket of the registration, which is unique in the process; 0 if the place is free.
    ticket: AtomicU64,
    device: AtomicU64,
    inode: AtomicU64,
    value: AtomicU64,
    signal: AtomicU32,
    gap: AtomicU32,
}

/// The signal of a registration, and the value that accompanies the signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Signal {
    pub(super) number: i32,
    pub(super) value: usize,
}

impl Page {
    /// Describes the process in an empty page.
    pub(super) fn begin(&self, pid: u32, home: u64) {
        // Relaxed: the release in `set_helper` publishes these stores.
        self.magic.store(MAGIC, Ordering::Relaxed);
        self.home.store(home, Ordering::Relaxed);
        self.pid.store(pid, Ordering::Relaxed);
    }

    /// Names the helper thread, which attests the page.
    pub(super) fn set_helper(&self, tid: u32) {
        // Release: a sender that sees the helper sees the words that `begin` has stored.
        self.helper.store(tid, Ordering::Release);
    }

    /// Returns the helper thread, if this is the attested page of the process `pid` in these namespaces.
    pub(super) fn helper(&self, pid: u32, home: u64) -> Option<u32> {
        let helper = self.helper.load(Ordering::Acquire);
        let is_right = self.magic.load(Ordering::Relaxed) == MAGIC
            && self.home.load(Ordering::Relaxed) == home
            && self.pid.load(Ordering::Relaxed) == pid;
        // The helper must not be the first thread: the first thread may run another program under the same id.
        (is_right && helper != 0 && helper != pid).then_some(helper)
    }

    /// Adds the consent for a registration, and returns its place. None if all places are taken. Only one thread at a time changes the page.
    pub(super) fn add(&self, ticket: u64, queue: (u64, u64), signal: Signal) -> Option<usize> {
        // Relaxed: only this process stores tickets.
        let mut places = self.places.iter();
        let index = places.position(|place| place.ticket.load(Ordering::Relaxed) == 0)?;
        let place = &self.places[index];
        // CONSENT: a sender may have read the previous ticket, and may read one of the words below after this thread has changed that word. When the
        // sender then reads the ticket again, the sender finds another ticket.
        fence(Ordering::Release);
        place.device.store(queue.0, Ordering::Relaxed);
        place.inode.store(queue.1, Ordering::Relaxed);
        place.value.store(signal.value as u64, Ordering::Relaxed);
        place
            .signal
            .store(signal.number.cast_unsigned(), Ordering::Relaxed);
        // Release: a sender that sees the ticket sees the words that belong to it.
        place.ticket.store(ticket, Ordering::Release);
        Some(index)
    }

    /// Removes the consent for a registration.
    pub(super) fn remove(&self, index: usize, ticket: u64) {
        if let Some(place) = self.places.get(index)
            && place.ticket.load(Ordering::Relaxed) == ticket
        {
            // Relaxed: a sender that does not see this store yet raises the signal as it would have before the removal.
            place.ticket.store(0, Ordering::Relaxed);
        }
    }

    /// Returns the signal to which the process consents for a registration with this ticket. None if the page does not name that registration now.
    pub(super) fn consent(&self, index: usize, ticket: u64, queue: (u64, u64)) -> Option<Signal> {
        let place = self.places.get(index)?;
        if ticket == 0 || place.ticket.load(Ordering::Acquire) != ticket {
            return None;
        }
        let found = (
            place.device.load(Ordering::Relaxed),
            place.inode.load(Ordering::Relaxed),
        );
        let signal = Signal {
            number: place.signal.load(Ordering::Relaxed).cast_signed(),
            value: place.value.load(Ordering::Relaxed) as usize,
        };
        // CONSENT: no ticket occurs twice. So words that were read between two reads of the same ticket belong to this ticket.
        fence(Ordering::Acquire);
        let is_still = place.ticket.load(Ordering::Relaxed) == ticket;
        (is_still && found == queue).then_some(signal)
    }
}
