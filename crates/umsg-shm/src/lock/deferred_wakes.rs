//! Deferred wake-ups: the threads to wake after a lock is released. The threads are collected under the lock, so the wake-ups themselves read nothing
//! that the lock protects.

use crate::report;
use std::ops::Range;

/// The number of wake-ups that are collected one by one. If there are more, the unlock wakes the threads of all nodes up to the last collected one.
const WAKES: usize = 16;

/// A flag in [`DeferredWakes::among`]: this process needs a helper for deadlines.
const KEEP_TIME: u32 = 1 << 31;

/// A flag in [`DeferredWakes::among`]: reports are delivered after the unlock, see [`crate::report`].
const TELL: u32 = 1 << 30;
/// The bits of the number in [`DeferredWakes::among`].
const NUMBER: u32 = !(KEEP_TIME | TELL);

/// The deferred wake-ups of one operation.
#[derive(Default)]
pub(crate) struct DeferredWakes {
    nodes: [u32; WAKES],
    len: usize,
    /// The threads of the first `among` nodes are woken. The flags [`KEEP_TIME`] and [`TELL`] are beside the number, so one read shows whether there
    /// is anything to do after the unlock.
    among: u32,
    fired: Option<Fired>,
}

/// A registration whose process has to be notified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fired {
    /// The index of the registration's record.
    pub(crate) index: u32,
    /// The value of that record's word until the registered process has been notified.
    pub(crate) word: u32,
}

impl DeferredWakes {
    /// Adds the wake-up of the thread of this node.
    pub(crate) fn add(&mut self, node: u32) {
        match self.nodes.get_mut(self.len) {
            Some(place) => {
                *place = node;
                self.len += 1;
            }
            None => self.add_everybody(node.saturating_add(1)),
        }
    }

    /// Adds the wake-ups of all threads whose nodes are among the first `usable` nodes, because a repair can't tell which threads wait. A thread with
    /// a later node began to wait after the lock was released, so it has missed no event.
    pub(crate) fn add_everybody(&mut self, usable: u32) {
        let among = self.among & NUMBER;
        self.among = self.among & !NUMBER | among.max(usable.min(NUMBER));
    }

    /// Adds the start of a helper for deadlines for this process, which polls.
    pub(crate) fn add_timekeeper(&mut self) {
        self.among |= KEEP_TIME;
    }

    /// Returns whether a helper has to be started.
    #[cfg(not(loom))]
    pub(crate) fn need_timekeeper(&self) -> bool {
        self.among & KEEP_TIME != 0
    }

    /// Adds the noted reports: they are delivered after the unlock.
    pub(crate) fn add_reports(&mut self) {
        if report::is_any() {
            self.among |= TELL;
        }
    }

    /// Delivers the added reports. The caller holds no lock.
    pub(crate) fn tell_reports(&self) {
        if self.among & TELL != 0 {
            report::tell();
        }
    }

    /// Adds the notification of a registered process.
    pub(crate) fn add_fired(&mut self, fired: Fired) {
        self.fired = Some(fired);
    }

    /// Returns the registration whose process has to be notified.
    pub(crate) fn fired(&self) -> Option<Fired> {
        self.fired
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0 && self.among == 0 && self.fired.is_none()
    }

    /// Returns the range of nodes whose threads are all woken, in addition to [`nodes`](Self::nodes).
    pub(crate) fn everybody(&self) -> Range<u32> {
        0..self.among & NUMBER
    }

    /// Returns the nodes that were added one by one.
    pub(crate) fn nodes(&self) -> &[u32] {
        &self.nodes[..self.len]
    }
}
