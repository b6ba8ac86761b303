//! Death at a crash point.

use super::thread;
use super::world::{self, Death};
use crate::crash::Point;

/// Called at each point: the thread dies here if it is doomed to.
pub(crate) fn reached(point: Point) {
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
