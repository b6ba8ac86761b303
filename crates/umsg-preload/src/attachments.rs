//! The queues to which descriptors of this process lead. Each is in a slot that the library keeps as long as a call uses it
//! ([`umsg_shm::reclaim`]).

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use umsg::posix::{FileState, Queue};
use umsg_shm::reclaim::{Slot, Slots};

use crate::blocking::{Blocking, Forks};
use crate::doorbells::Doorbells;
use crate::waiting;

/// The object of a queue's descriptor.
pub(crate) struct Attached {
    /// The doorbells of the queue. This field precedes the queue, because fields are dropped in order.
    pub(crate) doorbells: Doorbells,
    pub(crate) queue: Queue,
    /// Device and inode of the segment's file. They show whether a descriptor still belongs to the queue in the table.
    pub(crate) identity: (u64, u64),
    /// The blocking mode of calls.
    pub(crate) blocking: Blocking,
    /// Flags of the opening that F_GETFL shows and the file's own description lacks.
    pub(crate) shown_flags: c_int,
    /// The most bytes of a message; never changes.
    pub(crate) message_size: usize,
    /// The state of the file when the queue was opened by its name. None if the queue can't be kept; see [`crate::kept`].
    pub(crate) state: Option<FileState>,
    /// The number of forks before the opening, as a word, if this process has created the queue and may use its segment again; otherwise 0. See
    /// [`crate::vacated`].
    created: AtomicU64,
    /// True if the last close unmaps the queue: it was polled, or this process removed its name.
    is_unkept: AtomicBool,
    /// The name that the queue was opened by, with its slash.
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
        // Relaxed, here and below: the caller has the only descriptor, or none is left.
        self.created.store(forks.word(), Ordering::Relaxed);
    }

    /// Returns the number of forks before this process created the queue, if this process may use its segment again.
    pub(crate) fn created(&self) -> Option<Forks> {
        match self.created.load(Ordering::Relaxed) {
            0 => None,
            word => Some(Forks::of_word(word)),
        }
    }

    /// Leaves the use of the queue's segment to another process.
    pub(crate) fn forget_creation(&self) {
        self.created.store(0, Ordering::Relaxed);
    }

    /// Returns whether the queue may be vacated when the caller has its only use.
    pub(crate) fn may_be_vacated(&self) -> bool {
        self.created().is_some_and(|then| !then.has_forked_since())
            && !self.blocking.was_shared()
            && self.kept_state().is_some()
            && self.queue.is_sole()
    }

    /// Makes the last close unmap the queue.
    pub(crate) fn unmap_at_last_close(&self) {
        // The store is made only once, because sends and receives of other threads read this line. Relaxed: either the caller has the queue open,
        // or a close happens at the same moment, and both orders are correct.
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

/// Attaches to a queue. The caller gets the first count. `None` if there is no room.
pub(crate) fn attach(attached: Attached) -> Option<&'static Slot<Attached>> {
    SLOTS.fill(attached)
}

/// Detaches queues that are no longer in use. The call is cheap if there are none, so it follows each call that has blocked.
pub(crate) fn reap() {
    SLOTS.reap();
}
