//! Whom to wake once a lock is dropped: all of it was found out under the lock, so that waking looks at nothing that the lock guards.

use std::ops::Range;

/// How many wake-ups are collected by name; beyond, all processes are woken up to the last of them.
const WAKES: usize = 16;

/// See the module.
#[derive(Default)]
pub(crate) struct DeferredWakes {
    nodes: [u32; WAKES],
    len: usize,
    /// All processes are woken whose node is one of so many, from the first on.
    among: u32,
    fired: Option<Fired>,
}

/// A registration for a notification that was fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fired {
    /// Which record, and what its word says until the registered process has heard of it.
    pub(crate) index: u32,
    pub(crate) word: u32,
}

impl DeferredWakes {
    /// Wakes the thread of a node.
    pub(crate) fn add(&mut self, node: u32) {
        match self.nodes.get_mut(self.len) {
            Some(place) => {
                *place = node;
                self.len += 1;
            }
            None => self.add_everybody(node.saturating_add(1)),
        }
    }

    /// Wakes all that wait, whose nodes are among the first `usable` ones: a repair knows no names. A process that is the first to use a
    /// further node, once the lock is dropped, has missed nothing.
    pub(crate) fn add_everybody(&mut self, usable: u32) {
        self.among = self.among.max(usable);
    }

    /// Has a process told that its registration was fired.
    pub(crate) fn add_fired(&mut self, fired: Fired) {
        self.fired = Some(fired);
    }

    /// The registration that was fired.
    pub(crate) fn fired(&self) -> Option<Fired> {
        self.fired
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0 && self.among == 0 && self.fired.is_none()
    }

    /// The nodes among which all processes are woken, besides those that [`nodes`](Self::nodes) names.
    pub(crate) fn everybody(&self) -> Range<u32> {
        0..self.among
    }

    /// The nodes that were added, as many as there was room for.
    pub(crate) fn nodes(&self) -> &[u32] {
        &self.nodes[..self.len]
    }
}
