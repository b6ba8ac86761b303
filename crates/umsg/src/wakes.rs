//! Whom to wake once a lock is dropped.

/// How many wake-ups are collected by name; beyond, everybody is woken.
const WAKES: usize = 16;

/// See the module.
#[derive(Default)]
pub(crate) struct Wakes {
    nodes: [u32; WAKES],
    len: usize,
    everybody: bool,
    fired: Option<Fired>,
}

/// A registration for a notification that was fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fired {
    /// Which record, and what its word says until the registered process has heard of it.
    pub(crate) index: u32,
    pub(crate) word: u32,
}

impl Wakes {
    /// Wakes the thread of a node.
    pub(crate) fn add(&mut self, node: u32) {
        if let Some(place) = self.nodes.get_mut(self.len) {
            *place = node;
        }
        self.len += 1;
    }

    /// Wakes all that wait: a repair knows no names.
    pub(crate) fn add_everybody(&mut self) {
        self.everybody = true;
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
        self.len == 0 && !self.everybody && self.fired.is_none()
    }

    /// Whether there are others than those that [`nodes`](Self::nodes) names.
    pub(crate) fn wants_everybody(&self) -> bool {
        self.everybody || self.len > WAKES
    }

    /// The nodes that were added, as many as there was room for.
    pub(crate) fn nodes(&self) -> &[u32] {
        &self.nodes[..self.len.min(WAKES)]
    }
}
