//! Futexes with priority inheritance, as the kernel of a model has them. No thread of a model has a priority: the model only decides which thread
//! owns such a futex, and which thread is woken.

use super::futex::{Named, lie_down, overslept};
use super::thread;
use super::world;
use crate::lock::{OWNER_DIED, TID, WAITERS};
use crate::sync::{AtomicU32, Futex};
use crate::sys::clock::Deadline;
use crate::sys::inheritance::NotTaken;

/// Takes a futex for the calling thread. If the futex has an owner, waits for the owner.
pub fn take(word: &AtomicU32, tid: u32, deadline: Deadline) -> Result<(), NotTaken> {
    match word.named().replace(0, tid) {
        Ok(()) => Ok(()),
        Err(_) => wait_for_owner(word, deadline),
    }
}

/// Waits until the owner that the word names unlocks the futex, and takes the futex: the kernel's `futex_lock_pi`.
pub fn wait_for_owner(word: &AtomicU32, _: Deadline) -> Result<(), NotTaken> {
    let word = word.named();
    thread::with_current(|me| {
        let me = me.expect("only threads of a model sleep");
        loop {
            let now = word.read();
            match now & TID {
                0 if word.replace(now, now & OWNER_DIED | me.tid()).is_ok() => return Ok(()),
                0 => continue,
                tid if tid == me.tid() => return Err(NotTaken::Own),
                _ if now & WAITERS == 0 && word.replace(now, now | WAITERS).is_err() => continue,
                tid if world::has_died(tid) => return Err(NotTaken::NoThread),
                // No other process has run since the read of the word: the owner has not died yet.
                _ => break,
            }
        }
        world::with(|world| world.inherited.push(word.address()));
        lie_down(me.pid(), word.address(), true);
        match overslept(me.pid()) {
            true => Err(NotTaken::TimedOut),
            // The previous owner has stored the id of this thread.
            false => Ok(()),
        }
    })
}

/// Hands a futex that names the calling thread to the first of its waiters: the kernel's `futex_unlock_pi`.
pub fn unlock(word: &AtomicU32) -> bool {
    let word = word.named();
    let tid = thread::with_current(|me| me.expect("only threads of a model own a futex").tid());
    loop {
        let now = word.read();
        if now & TID != tid {
            return false;
        }
        if hand_over(word, now, 0) {
            return true;
        }
    }
}

/// Hands the futexes of a dead thread to their first waiters: the kernel's `exit_pi_state_list`.
pub(super) fn exit_pi_state_list(tid: u32) {
    let words = world::with(|world| world.inherited.clone());
    for address in words {
        let word = Named::Word(address as *const AtomicU32);
        loop {
            let now = word.read();
            let has_waiters = world::with(|world| world.first_on(word.address()).is_some());
            if now & TID != tid || !has_waiters || hand_over(word, now, OWNER_DIED) {
                break;
            }
        }
    }
}

/// Stores the id of the first waiter in the word, and wakes that waiter. Returns false if the word is no longer `now`.
fn hand_over(word: Named, now: u32, flags: u32) -> bool {
    let first = world::with(|world| world.first_on(word.address()));
    let new = first.map_or(0, |tid| tid | WAITERS | flags);
    if word.replace(now, new).is_err() {
        return false;
    }
    let sleeper = world::with(|world| first.map(|tid| world.take_off(tid)));
    if let Some(sleeper) = sleeper {
        sleeper.unpark();
    }
    true
}
