//! The queues of this process's descriptors. Each queue is in a slot, which the library keeps as long as a call uses the slot
//! ([`umsg_shm::reclaim`]).

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use umsg::posix::{FileState, Queue};
use umsg_shm::reclaim::{Slot, Slots};

use crate::blocking::{Blocking, Forks};
use crate::doorbells::Doorbells;
use crate::waiting;

/// A queue to which descriptors refer, with its state in the drop-in.
pub(crate) struct Attached {
    /// The doorbells of the queue. This field precedes the queue, because fields are dropped in order.
    pub(crate) doorbells: Doorbells,
    pub(crate) queue: Queue,
    /// The device and inode of the segment's file. They show whether a descriptor still refers to this queue.
    pub(crate) identity: (u64, u64),
    /// Whether calls on the queue block.
    pub(crate) blocking: Blocking,
    /// Flags of the opening that F_GETFL must show, but that the open file description does not have.
    pub(crate) shown_flags: c_int,
    /// The maximum length of a message, in bytes; never changes.
    pub(crate) message_size: usize,
    /// The state of the file when the queue was opened by its name. None if the queue can't be kept; see [`crate::kept`].
    pub(crate) state: Option<FileState>,
    /// The number of forks before the opening, as a word, if this process has created the queue and may use its segment again; otherwise 0. See
    /// [`crate::vacated`].
    created: AtomicU64,
    /// True if the last close must unmap the queue: the queue was polled, or this process removed its name.
    is_unkept: AtomicBool,
    /// The name by which the queue was opened, with its slash.
    pub(crate) name: Box<[u8]>,
}

impl Attached {
    pub(crate) fn new(queue: Queue, name: &[u8]) -> Attached {
        let identity = queue.identity();
        let message_size = queue.attributes().message_size;
        waiting::choose(&queue);
        Attached {
            doorbells: Doorbells::new(),
            queue,
            identity,
            blocking: Blocking::shared(),
            shown_flags: 0,
            message_size,
            state: None,
            created: AtomicU64::new(0),
            is_unkept: AtomicBool::new(false),
            name: name.into(),
        }
    }

    /// Notes that this process has created the queue and may use its segment again.
    pub(crate) fn note_creation(&self, forks: Forks) {
        // Relaxed, also in `created` and `forget_creation`: the caller has the queue's only descriptor, or the queue has no descriptor.
        self.created.store(forks.word(), Ordering::Relaxed);
    }

    /// Returns the number of forks before this process created the queue, if this process may use its segment again.
    pub(crate) fn created(&self) -> Option<Forks> {
        match self.created.load(Ordering::Relaxed) {
            0 => None,
            word => Some(Forks::of_word(word)),
        }
    }

    /// Notes that another process may use the queue's segment, so this process may not use it again.
    pub(crate) fn forget_creation(&self) {
        self.created.store(0, Ordering::Relaxed);
    }

    /// Returns whether the segment of the queue may become vacant when only the caller uses the queue.
    pub(crate) fn may_be_vacated(&self) -> bool {
        self.created().is_some_and(|then| !then.has_forked_since())
            && !self.blocking.was_shared()
            && self.kept_state().is_some()
            && self.queue.is_sole()
    }

    /// Makes the last close unmap the queue.
    pub(crate) fn unmap_at_last_close(&self) {
        // The value is stored only once, because sends and receives of other threads read this cache line. Relaxed: either the caller has the queue
        // open, or a close happens at the same moment, and both orders are correct.
        if !self.is_unkept.load(Ordering::Relaxed) {
            self.is_unkept.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the state of the queue's file, if the queue stays mapped after its last close.
    pub(crate) fn kept_state(&self) -> Option<FileState> {
        // Relaxed: a close may happen at the same moment, and both orders are correct.
        self.state
            .filter(|_| !self.is_unkept.load(Ordering::Relaxed))
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        crate::vacated::give_up(self);
    }
}

static SLOTS: Slots<Attached> = Slots::new();

/// Attaches to a queue. The slot begins with a count of one use, which belongs to the caller. Returns `None` if there is no room.
pub(crate) fn attach(attached: Attached) -> Option<&'static Slot<Attached>> {
    SLOTS.fill(attached)
}

/// Detaches queues that are no longer in use. The function is called after each call that has blocked: it is cheap if there are no such queues.
pub(crate) fn reap() {
    SLOTS.reap();
}
