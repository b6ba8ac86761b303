//! The segments of queues that this process has removed, for its next queues ([`super::super::recycle`]).
//!
//! The process keeps no segment until the program removes a queue that it has created. From then on, it creates queues whose segments it may keep.
//!
//! Each entry is a [`Link`], which changes with one instruction. So signal handlers and threads may call all functions. A forked child has the
//! entries of its parent; the lock of a segment and the state in its header decide which of the two processes makes the next queue.

use super::super::attachments::Attached;
use super::super::queue::Queue;
use super::super::recycle::PRIVATE_MODE;
use super::super::registry::PRIVATE;
use super::{ATTACHED, Errno, msgctl_remove, note_key};
use std::sync::atomic::{AtomicBool, Ordering};
use umsg_shm::reclaim::{Link, Word};
use umsg_shm::sys::stack::roomy;

/// The maximum number of segments that a process keeps.
const MOST: usize = 8;

static KEPT: [Link<Attached<Queue>>; MOST] = [const { Link::nowhere() }; MOST];

/// True once the program has removed a queue that it has created.
static IS_WANTED: AtomicBool = AtomicBool::new(false);

/// Returns whether the segments of new queues may be kept.
pub(super) fn is_wanted() -> bool {
    // Relaxed: the value is only a hint.
    IS_WANTED.load(Ordering::Relaxed)
}

/// Makes a queue in a kept segment, and attaches to it. With `may_compare`, the call may inspect files, and gives up a segment that can't be used.
pub(super) fn revive(key: i32, flags: i32, may_compare: bool) -> Option<i32> {
    let is_creation = key == PRIVATE || flags & libc::IPC_CREAT != 0;
    if !is_wanted() || !is_creation || flags & 0o777 != PRIVATE_MODE as i32 {
        return None;
    }
    let kept = KEPT.iter().filter(|link| link.leads()).find_map(|link| {
        let held = link.hold_counted()?;
        let word = held.word();
        (held.key() == key && link.take_if(word)).then_some(word)
    })?;
    let held = kept.hold();
    match held.revive(may_compare) {
        Some(next) => {
            let id = next.id();
            note_key(key, id);
            let _ = ATTACHED.attach(id, next);
            Some(id)
        }
        None if may_compare => {
            held.give_up();
            None
        }
        None => {
            held.into_word().into_iter().for_each(keep);
            None
        }
    }
}

/// Removes a queue that this process has created (IPC_RMID), and keeps its segment for the process's next queue. Returns false if the queue
/// has to be removed by [`msgctl_remove_own`]. The process calls [`give_up_kept`] before it ends. Unlike `msgctl_remove_own`, this function needs
/// little stack.
#[must_use]
pub fn remove_and_keep(id: i32) -> bool {
    let has_room = || KEPT.iter().any(|link| !link.leads());
    let Some(queue) = ATTACHED.get(id).filter(|_| is_wanted() && has_room()) else {
        return false;
    };
    if !queue.vacate() {
        return false;
    }
    match ATTACHED.retire(&queue) {
        Some(word) => keep(word),
        None => roomy(|| queue.give_up()),
    }
    true
}

/// Removes a queue as [`msgctl_remove`] does. If this process has created it, the segments of later queues may be kept.
///
/// # Errors
/// EINVAL, EPERM.
pub fn msgctl_remove_own(id: i32) -> Result<(), Errno> {
    let is_own = ATTACHED.get(id).is_some_and(|queue| queue.is_creators());
    msgctl_remove(id)?;
    if is_own {
        IS_WANTED.store(true, Ordering::Relaxed);
    }
    Ok(())
}

/// Removes the files of the segments that this process keeps.
pub fn give_up_kept() {
    for word in KEPT.iter().filter_map(Link::take) {
        let kept = word.hold();
        // A forked child does not remove its parent's segments.
        if kept.is_creators() {
            kept.give_up();
        }
    }
}

/// Forgets the segments, and leaves their files unchanged.
pub(super) fn forget_all() {
    for word in KEPT.iter().filter_map(Link::take) {
        drop(word.hold());
    }
}

/// Keeps the segment of a queue. The entry takes over the use of the segment that `word` counts. If there is no free entry, gives the segment up.
fn keep(word: Word<Attached<Queue>>) {
    if !KEPT.iter().any(|link| link.put_if_empty(word)) {
        let kept = word.hold();
        roomy(|| kept.give_up());
    }
}
