//! Death at a crash point; and the turnstile, which lets every order of such points be tried.
//!
//! Of the accesses to a word loom remembers the last one only. Each owner of a cursor reads a word and then stores to it. This read hides from loom
//! that the store competes with earlier reads of other threads. So loom omits one order. So the threads of a model touch one more word at each step
//! of theirs: relaxed, which
//! orders nothing for the model's memory, but makes loom try the steps in every order.

use super::thread;
use super::world::{self, Death};
use crate::crash::Point;
use crate::sync::Ordering;

/// Called at each point: the thread dies here if it is doomed to.
pub fn reached(point: Point) {
    step();
    strike(Death::At(point));
}

/// The calling thread dies if it is doomed to die here.
pub(super) fn strike(death: Death) {
    thread::with_current(|me| {
        if let Some(me) = me
            && world::with(|world| world.strikes(me.tid(), death))
        {
            me.die();
        }
    });
}

/// Goes through the turnstile.
pub fn step() {
    if let Some(turnstile) = world::with(|world| world.turnstile.clone()) {
        turnstile.fetch_add(1, Ordering::Relaxed);
    }
}
