//! Blocked threads: each has a node, which is in a list while the thread waits.
//!
//! The word of a node is a robust futex. The thread names the word to the kernel while the thread sleeps:
//!
//! | word | state | may leave it | if the thread dies |
//! |---|---|---|---|
//! | 0 | free, or given up by its owner | the owner of the lock reuses it | - |
//! | tid | waiting | owner of the lock: to settled. Node's thread: to 0 | the kernel stores OWNER_DIED |
//! | tid \| WAITERS | settled: a message is offered to a receiver, or a sender's message is admitted | node's thread: to 0, or to accepted. Owner of the lock: an offer that is not accepted goes back to waiting | the kernel stores OWNER_DIED \| WAITERS |
//! | WAITERS | accepted: the thread has copied its message, or knows that its own is sent, and is gone. System V queues only | the owner of the lock frees a receiver's slot, then reuses the node | - |
//! | OWNER_DIED [\| WAITERS] | its thread is dead | the owner of the lock reuses it; an offered message goes back to the head | - |
//!
//! Each change of the word is one atomic operation. If a thread's compare-and-swap fails, the thread accepts the change of the other thread. The lock
//! under which messages are received protects the lists and all other fields. A [`WaiterStore`] says where the nodes and the heads of the lists lie.
//!
//! Before the owner of the lock settles a node, it may also write other data beside the node. The node's thread reads these data after it sees the
//! new word. A process may withdraw an offer while the thread still reads. Therefore a thread that copies without the lock trusts its copy only
//! after [`accept`] has succeeded. After an offer was withdrawn, the node gets no new offer until its thread has added the node to the list again.
//! So a copy of one message is never mistaken for another message.

mod lists;
mod node;
pub mod pacing;
pub mod wait;
mod yielding;

pub(crate) use lists::UNRANKED;
pub use lists::{List, WaiterStore, Waiters};
pub use node::{Links, NO_SLOT, NODES, Node};

use crate::lock::{OWNER_DIED, TID, WAITERS};
use crate::sync::{AtomicU32, Ordering};
use crate::sys::clock::Deadline;
use crate::sys::futex::{self, Slept};
use crate::sys::liveness::{self, Liveness};
use crate::sys::thread::{Calm, Thread};

/// The state in a node's word.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The node is free, or was given up.
    Free,
    /// The thread waits.
    Waiting,
    /// A message is offered to the thread, or the thread's message is admitted.
    Settled,
    /// The thread has copied the offered message: the message is received, and its slot can be freed. Or the thread is a sender that has read that
    /// its message is sent.
    Accepted,
    /// The thread died while it waited.
    DiedWaiting,
    /// The thread died after the node was settled, before it read the outcome.
    DiedSettled,
}

/// Reads a node's state.
pub fn state(node: &Node) -> State {
    // Acquire: HANDOVER pairs with the release in `settle`, and makes the slot and its contents visible. ACCEPT pairs with the release in `accept`:
    // the thread has read the slot.
    let word = node.word.load(Ordering::Acquire);
    match (word & TID != 0, word & OWNER_DIED != 0, word & WAITERS != 0) {
        (true, _, false) => State::Waiting,
        (true, _, true) => State::Settled,
        (false, true, false) => State::DiedWaiting,
        (false, true, true) => State::DiedSettled,
        (false, false, true) => State::Accepted,
        (false, false, false) => State::Free,
    }
}

/// Returns whether the kernel has marked the node of a thread that died while it waited.
pub(crate) fn has_died(node: &Node) -> bool {
    matches!(state(node), State::DiedWaiting | State::DiedSettled)
}

/// Offers the message in the receiver's slot, or admits the sender's message. Returns false if the thread has given up or died.
#[must_use]
pub(crate) fn settle(node: &Node) -> bool {
    let word = node.word.load(Ordering::Relaxed);
    // Release: HANDOVER. After this store, the thread may end its wait and exit. Its futex address stays mapped, and nothing else is accessed.
    word & TID != 0 && word & WAITERS == 0 && exchange(node, word, word | WAITERS)
}

/// Withdraws an offer. Returns false if the thread has accepted the offer, has given up or has died.
#[must_use]
pub(crate) fn unsettle(node: &Node) -> bool {
    let word = node.word.load(Ordering::Relaxed);
    word & TID != 0 && word & WAITERS != 0 && exchange(node, word, word & !WAITERS)
}

/// Accepts an offer, without the lock. This change makes the receive of a copied message take effect. Returns false if the offer was withdrawn: the
/// copy is then invalid. An admitted sender calls this function, too: its node has to show that the message is sent, until the node is removed from
/// its list.
#[must_use]
pub(crate) fn accept(node: &Node) -> bool {
    let word = node.word.load(Ordering::Relaxed);
    // Release: ACCEPT. A process that sees the new state reuses the slot.
    word & TID != 0 && word & WAITERS != 0 && exchange(node, word, WAITERS)
}

#[inline(always)]
fn exchange(node: &Node, from: u32, to: u32) -> bool {
    let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
    let exchanged = node.word.compare_exchange(from, to, success, failure);
    exchanged.is_ok()
}

/// Gives the node up, in any state, without the lock. The next owner of the lock removes the node from its list.
pub(crate) fn give_up(node: &Node) {
    // Release: a process that reuses the node sees everything that the thread did with the node. The change is a swap, not a store: all changes of a
    // claimed node's word are read-modify-writes, so they have one order.
    node.word.swap(0, Ordering::Release);
}

/// Gives a waiting node up, without the lock. Returns false if the node was settled first.
#[must_use]
pub(crate) fn give_up_waiting(node: &Node) -> bool {
    let word = node.word.load(Ordering::Relaxed);
    // Release: as in `give_up`.
    word & WAITERS == 0
        && node
            .word
            .compare_exchange(word, 0, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
}

/// The greatest distance of an offer's time into the future, in nanoseconds. Processes read the clock at different moments.
const AHEAD: u64 = 1_000_000_000;

/// Returns whether at least `time` has passed since `since`. Times are nanoseconds of the monotonic clock. A time far in the future was forged, and
/// is treated as long ago.
pub(crate) fn is_over(since: u64, time: u64, now: u64) -> bool {
    match now.checked_sub(since) {
        Some(passed) => passed >= time,
        None => since - now > AHEAD,
    }
}

/// The time, in nanoseconds, after which a thread that can't sleep on its word reads the word again.
const NAP: u64 = 1_000_000;

/// Returns whether no thread waits at a node that may be in a list. Also frees the node if it names an impossible thread. If `knows_threads` is true,
/// it also frees the node of a dead thread that the kernel did not mark.
#[cfg(not(loom))]
pub(crate) fn is_deserted(lives: &dyn Liveness, node: &Node, knows_threads: bool) -> bool {
    match state(node) {
        State::Free | State::DiedWaiting => true,
        State::Waiting => {
            // A thread writes its id into two fields, which rarely agree in an overwritten node.
            let is_forged = node.word.load(Ordering::Relaxed) & TID != node.tid.get();
            (is_forged || knows_threads && is_orphan(lives, node)) && give_up_waiting(node)
        }
        // The node belongs to a batch whose turn had come. All other settled nodes are in other lists.
        State::DiedSettled => List::of(node) == List::Senders && node.slot.get() == NO_SLOT,
        State::Settled | State::Accepted => false,
    }
}

/// Returns whether the node's thread is proved dead, although the kernel did not mark the node's word.
pub(crate) fn is_orphan(lives: &dyn Liveness, node: &Node) -> bool {
    let (pid, tid, birth) = (node.pid.get(), node.tid.get(), node.birth.get());
    liveness::is_dead(lives, birth, |birth| {
        crate::sys::thread::is_dead(pid, tid, birth)
    })
}

/// Returns whether the wait of a sender in the list is over, because its thread has given up or died.
///
/// Frees the node of a dead thread that the kernel did not mark. Such a thread died at the end of a slice, while it checked the queue: at that time
/// it names the lock to the kernel, not its node. If another thread has got the id of the dead thread, the node stays until that other thread ends,
/// too.
pub(crate) fn has_left(lives: &dyn Liveness, node: &Node) -> bool {
    match state(node) {
        State::Free | State::DiedWaiting => true,
        State::Waiting => {
            let (pid, tid, birth) = (node.pid.get(), node.tid.get(), node.birth.get());
            let is_gone = |_| crate::sys::thread::is_gone(pid, tid);
            liveness::is_dead(lives, birth, is_gone) && give_up_waiting(node)
        }
        State::Settled | State::Accepted | State::DiedSettled => false,
    }
}

/// Sleeps while the node of the calling thread has the state `Waiting`, until a wake-up or until `slice`. If the word was forged to name another
/// thread, the thread can't sleep on it, and reads the word again after a short time.
pub(crate) fn sleep(node: &Node, me: &Thread, calm: Calm<'_>, slice: Deadline) -> Slept {
    let slept = futex::wait_in_calm(&node.word, me.tid(), calm, slice);
    let is_forged = || {
        let word = node.word.load(Ordering::Relaxed);
        word & TID != me.tid() && word & TID != 0
    };
    // In a model, no thread forges words.
    if cfg!(loom) || slept != Slept::Awake || !is_forged() {
        return slept;
    }
    let moment = AtomicU32::new(0);
    match futex::wait_in_calm(&moment, 0, calm, slice.or_slice(NAP)) {
        Slept::TimedOut if !slice.has_passed() => Slept::Awake,
        slept => slept,
    }
}

/// Returns the futex on which the node's thread sleeps.
pub(crate) fn futex(node: &Node) -> &AtomicU32 {
    &node.word
}
