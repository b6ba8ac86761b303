//! The waiter record of a blocked thread: its node, the event for which it waits, and the reply that ends the wait.

use crate::lock::tokens::ReceiverHeld;
use crate::sync::{AtomicU32, Guarded32, Guarded64, Ordering};
use crate::sysv_engine::order::Want;
use crate::waiters::{self, Node};

/// A node, and the data of its thread's wait.
#[repr(C, align(128))]
#[derive(Default)]
pub struct WaiterRecord {
    node: Node,
    /// The messages that a receiver wants: a value from [`ANY`] to [`LOWEST`].
    choice: Guarded32,
    /// The outcome of the wait, a [`Reply`]. The outcome is stored before the node's word says that there is an outcome.
    reply: Guarded32,
    /// The type that belongs to `choice`, as the bits of an i64.
    mtype: Guarded64,
    /// The longest message that a receiver accepts, or the length of a sender's messages, in bytes.
    pub(super) size: Guarded64,
    /// The version of the queue's rights under which the thread's permission was checked.
    rights: Guarded32,
    /// 1 while the thread sleeps or is about to sleep. Only such a thread needs a wake-up.
    asleep: AtomicU32,
}

/// The values of [`WaiterRecord::choice`].
const ANY: u32 = 0;
const EXACTLY: u32 = 1;
const EXCEPT: u32 = 2;
const LOWEST: u32 = 3;

/// The event for which a waiter record waits.
#[derive(Clone, Copy)]
pub(crate) enum Choice {
    /// A wanted message of at most `longest` bytes.
    Message { want: Want, longest: u64 },
    /// Room for the message that is parked in `slot`, or for a batch, which is not parked (`NO_SLOT`).
    Room {
        slot: u32,
        messages: u32,
        bytes: u64,
    },
}

/// The outcome of a wait. The table of [`wait`](crate::sysv_engine::wait) describes each reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Reply {
    Message = 1,
    TooSmall = 2,
    Sent = 3,
    Retry = 4,
    Rejudge = 5,
    Removed = 6,
}

impl WaiterRecord {
    #[inline(always)]
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Begins a wait, before the node goes into a list. `rights` is the version under which the permission was checked.
    pub(crate) fn begin(&self, _: ReceiverHeld<'_>, choice: Choice, rights: u32) {
        let (choice, mtype, size, messages) = match choice {
            Choice::Message { want, longest } => {
                let (choice, mtype) = encode(want);
                (choice, mtype, longest, 0)
            }
            Choice::Room {
                messages, bytes, ..
            } => (ANY, 0, bytes, messages),
        };
        self.choice.set(choice);
        self.mtype.set(mtype as u64);
        self.size.set(size);
        self.reply.set(0);
        self.rights.set(rights);
        self.node.wanted.set(messages);
        // Relaxed: the release of the lock orders this store before any reply.
        self.asleep.store(0, Ordering::Relaxed);
    }

    /// Returns the messages that a receiver wants.
    pub fn want(&self) -> Want {
        let mtype = self.mtype.get() as i64;
        match self.choice.get() {
            EXACTLY => Want::Exactly(mtype),
            EXCEPT => Want::Except(mtype),
            LOWEST => Want::Lowest(mtype),
            _ => Want::Any,
        }
    }

    /// Returns a length in bytes: the longest message that a receiver accepts, or the length of a sender's messages. After [`Reply::TooSmall`], it is
    /// the length of the message that was too long.
    pub fn size(&self) -> u64 {
        self.size.get()
    }

    /// Returns the version of the queue's rights under which the thread's permission was checked.
    pub(crate) fn rights(&self) -> u32 {
        self.rights.get()
    }

    /// Returns the outcome of the wait; None for an impossible value. The outcome is valid once the node's word says that there is an outcome.
    pub(crate) fn reply(&self) -> Option<Reply> {
        Some(match self.reply.get() {
            1 => Reply::Message,
            2 => Reply::TooSmall,
            3 => Reply::Sent,
            4 => Reply::Retry,
            5 => Reply::Rejudge,
            6 => Reply::Removed,
            _ => return None,
        })
    }

    /// Ends the wait with a reply. Returns false if the waiter has given up or died.
    #[must_use]
    pub(crate) fn answer(&self, _: ReceiverHeld<'_>, reply: Reply) -> bool {
        self.reply.set(reply as u32);
        waiters::settle(&self.node)
    }

    /// Notes the length of the message that a receiver can't accept. The caller then ends the wait with [`Reply::TooSmall`].
    pub(crate) fn note_too_long(&self, _: ReceiverHeld<'_>, len: usize) {
        self.size.set(len as u64);
    }

    /// Notes that the thread is about to sleep. ASLEEP: the caller puts a fence after this store.
    pub(crate) fn fall_asleep(&self) {
        self.asleep.store(1, Ordering::Relaxed);
    }

    /// Returns whether the thread may sleep. ASLEEP: the caller has put a fence before this load.
    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed) != 0
    }
}

fn encode(want: Want) -> (u32, i64) {
    match want {
        Want::Any => (ANY, 0),
        Want::Exactly(mtype) => (EXACTLY, mtype),
        Want::Except(mtype) => (EXCEPT, mtype),
        Want::Lowest(mtype) => (LOWEST, mtype),
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<WaiterRecord>() == 128);
