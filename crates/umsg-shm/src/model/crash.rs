//! Death at a crash point; and the turnstile, by which loom tries every order of such points.
//!
//! For each word, loom remembers only the last access. The owner of a cursor reads the cursor's word and then stores to it. This read hides from loom
//! that the store competes with earlier reads of other threads, so loom omits one order. Therefore each thread of a model also accesses another word
//! at each of its steps: the turnstile. The access is relaxed, so it orders nothing in the model's memory, but it makes loom try the steps in every
//! order.

use super::thread;
use super::world::{self, Death};
use crate::crash::Point;
use crate::sync::Ordering;

/// Operations call this function at each point. The thread dies here if the test has doomed it to die at this point.
pub fn reached(point: Point) {
    step();
    strike(Death::At(point));
}

/// Kills the calling thread if the test has doomed it to this death.
pub(super) fn strike(death: Death) {
    thread::with_current(|me| {
        if let Some(me) = me
            && world::with(|world| world.strikes(me.tid(), death))
        {
            me.die();
        }
    });
}

/// Accesses the turnstile.
pub fn step() {
    if let Some(turnstile) = world::with(|world| world.turnstile.clone()) {
        turnstile.fetch_add(1, Ordering::Relaxed);
    }
}
