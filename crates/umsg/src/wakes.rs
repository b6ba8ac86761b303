//! Whom to wake once a lock is dropped.

/// How many wake-ups are collected by name; beyond, everybody is woken.
const WAKES: usize = 16;

/// See the module.
#[derive(Default)]
pub(crate) struct Wakes {
    nodes: [u32; WAKES],
    len: usize,
    everybody: bool,
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

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0 && !self.everybody
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
