//! The search tree of types: a treap, balanced by random ranks.
//!
//! The rank of a type is a hash of the type and of the queue's seed. No node has a higher rank than its parent. So the tree always has the shape that
//! insertions in a random order would give, in every real order. A path to the root has 1.4 log2(n) steps on average, and at most 40 for 30,000
//! types. To add or remove a type takes two rotations on average.

use super::store::{NONE, link, target};
use super::{Kind, Order, TypeIndexStore};
use crate::fault::Fault;
use crate::sync::Guarded32;

/// A bound for a walk along a path: no path of an intact tree has this number of steps. Among a million types, the longest path has about 60 steps.
const DEPTH: usize = 256;

impl<'a, S: TypeIndexStore> Order<'a, S> {
    /// Returns the lowest type with messages in a subtree.
    #[inline]
    pub(super) fn lowest(&self, subtree: &'a Guarded32) -> Result<Option<&'a Kind>, Fault> {
        let mut at = subtree;
        for _ in 0..DEPTH {
            let Some(index) = target(at) else {
                return Ok(None);
            };
            let kind = self.store.kind(index)?;
            if self.least_of(&kind.left)? != NONE {
                at = &kind.left;
            } else if kind.first.get() != NONE {
                return Ok(Some(kind));
            } else {
                at = &kind.right;
            }
        }
        Err(Fault::Damaged)
    }

    /// Returns the lowest type that has messages and is at least `from`.
    pub(super) fn lowest_from(&self, from: i64) -> Result<Option<&'a Kind>, Fault> {
        let mut at = &self.store.kinds().root;
        // The last node on the path whose type is at least `from`. The result is this node, or the lowest node to its right.
        let mut found = None;
        for _ in 0..DEPTH {
            let Some(index) = target(at) else {
                return match found {
                    Some(kind) if self.has_messages(kind) => Ok(Some(kind)),
                    Some(kind) => self.lowest(&kind.right),
                    None => Ok(None),
                };
            };
            let kind = self.store.kind(index)?;
            if kind.mtype() < from {
                at = &kind.right;
                continue;
            }
            if self.has_messages(kind) || self.least_of(&kind.right)? != NONE {
                found = Some(kind);
            }
            at = &kind.left;
        }
        Err(Fault::Damaged)
    }

    fn has_messages(&self, kind: &Kind) -> bool {
        kind.first.get() != NONE
    }

    /// Returns the oldest message whose type is not `mtype`.
    pub(super) fn first_except(&self, mtype: i64) -> Result<Option<u32>, Fault> {
        let roots = self.store.kinds();
        let Some(slot) = target(&roots.head) else {
            return Ok(None);
        };
        let index = target(&self.store.place(slot)?.kind).ok_or(Fault::Damaged)?;
        if self.store.kind(index)?.mtype() != mtype {
            return Ok(Some(slot));
        }
        self.first_beside(mtype)
    }

    /// Returns the oldest message of all types except `mtype`: the oldest in the nodes and subtrees beside the path to this type.
    fn first_beside(&self, mtype: i64) -> Result<Option<u32>, Fault> {
        let mut at = &self.store.kinds().root;
        let (mut least, mut holder) = (NONE, None);
        let mut consider = |sequence, place| {
            if sequence < least {
                (least, holder) = (sequence, Some(place));
            }
        };
        for _ in 0..DEPTH {
            let Some(index) = target(at) else {
                return holder.map_or(Ok(None), |place| self.holder_of(least, place));
            };
            let kind = self.store.kind(index)?;
            let next = child_towards(kind, mtype);
            for child in [&kind.left, &kind.right] {
                if kind.mtype() == mtype || !std::ptr::eq(child, next) {
                    consider(self.least_of(child)?, child);
                }
            }
            if kind.mtype() == mtype {
                return holder.map_or(Ok(None), |place| self.holder_of(least, place));
            }
            consider(kind.first.get(), at);
            at = next;
        }
        Err(Fault::Damaged)
    }

    /// Returns the message of a subtree whose number is `sequence`, which is the least number of the subtree.
    fn holder_of(&self, sequence: u64, subtree: &'a Guarded32) -> Result<Option<u32>, Fault> {
        let mut at = subtree;
        for _ in 0..DEPTH {
            let kind = self.store.kind(target(at).ok_or(Fault::Damaged)?)?;
            if kind.first.get() == sequence {
                return Ok(target(&kind.head));
            }
            let is_left = self.least_of(&kind.left)? == sequence;
            at = if is_left { &kind.left } else { &kind.right };
        }
        Err(Fault::Damaged)
    }

    /// Lowers `least` in the nodes up to the root, after a type got an older first message.
    #[inline(always)]
    pub(super) fn lower(&self, kind: &'a Kind, sequence: u64) -> Result<(), Fault> {
        let mut kind = kind;
        for _ in 0..DEPTH {
            if kind.least.get() <= sequence {
                return Ok(());
            }
            kind.least.set(sequence);
            match target(&kind.parent) {
                Some(parent) => kind = self.store.kind(parent)?,
                None => return Ok(()),
            }
        }
        Err(Fault::Damaged)
    }

    /// Updates `least` in the nodes up to the root, after a type's first message, with the number `old`, was removed.
    #[inline(always)]
    pub(super) fn refresh(&self, kind: &'a Kind, old: u64) -> Result<(), Fault> {
        let mut kind = kind;
        for _ in 0..DEPTH {
            if kind.least.get() != old {
                return Ok(());
            }
            kind.least.set(self.least_in(kind)?);
            match target(&kind.parent) {
                Some(parent) => kind = self.store.kind(parent)?,
                None => return Ok(()),
            }
        }
        Err(Fault::Damaged)
    }

    /// Adds the node of a type that has no messages.
    pub(super) fn attach(&self, index: u32, kind: &'a Kind) -> Result<(), Fault> {
        let mut at = &self.store.kinds().root;
        let mut parent = 0;
        for _ in 0..DEPTH {
            let Some(above) = target(at) else {
                kind.parent.set(parent);
                at.set(link(index));
                return self.rise(index, kind);
            };
            parent = link(above);
            at = child_towards(self.store.kind(above)?, kind.mtype());
        }
        Err(Fault::Damaged)
    }

    /// Removes the node of a type that has no messages.
    pub(super) fn detach(&self, index: u32, kind: &'a Kind) -> Result<(), Fault> {
        for _ in 0..DEPTH {
            let (below, child) = match (target(&kind.left), target(&kind.right)) {
                (Some(left), Some(right)) => {
                    let (one, other) = (self.store.kind(left)?, self.store.kind(right)?);
                    match self.rank(one) > self.rank(other) {
                        true => (left, one),
                        false => (right, other),
                    }
                }
                (left, right) => {
                    let rest = left.or(right);
                    self.naming(index, kind)?.set(rest.map_or(0, link));
                    if let Some(rest) = rest {
                        self.store.kind(rest)?.parent.set(kind.parent.get());
                    }
                    return Ok(());
                }
            };
            self.rotate(below, child)?;
        }
        Err(Fault::Damaged)
    }

    /// Rotates a new leaf up to the place of its rank.
    fn rise(&self, index: u32, kind: &'a Kind) -> Result<(), Fault> {
        for _ in 0..DEPTH {
            match target(&kind.parent) {
                Some(parent) if self.rank(self.store.kind(parent)?) < self.rank(kind) => {
                    self.rotate(index, kind)?;
                }
                _ => return Ok(()),
            }
        }
        Err(Fault::Damaged)
    }

    /// Rotates a node to the place of its parent, which becomes its child:
    ///
    /// ```text
    ///        parent            node
    ///       /      \          /    \
    ///    node       c  <->   a     parent
    ///   /    \                    /      \
    ///  a      b                  b        c
    /// ```
    fn rotate(&self, index: u32, kind: &'a Kind) -> Result<(), Fault> {
        let above = target(&kind.parent).ok_or(Fault::Damaged)?;
        let parent = self.store.kind(above)?;
        let naming = self.naming(above, parent)?;
        let (outer, inner) = match parent.left.get() == link(index) {
            true => (&parent.left, &kind.right),
            false => (&parent.right, &kind.left),
        };
        outer.set(inner.get());
        if let Some(moved) = target(inner) {
            self.store.kind(moved)?.parent.set(link(above));
        }
        inner.set(link(above));
        kind.parent.set(parent.parent.get());
        parent.parent.set(link(index));
        naming.set(link(index));
        kind.least.set(parent.least.get());
        parent.least.set(self.least_in(parent)?);
        Ok(())
    }

    /// Returns the word that names a node: the parent's link to the node, or the root.
    fn naming(&self, index: u32, kind: &'a Kind) -> Result<&'a Guarded32, Fault> {
        let candidates = match target(&kind.parent) {
            Some(parent) => {
                let parent = self.store.kind(parent)?;
                [&parent.left, &parent.right]
            }
            None => [&self.store.kinds().root; 2],
        };
        let named = candidates
            .into_iter()
            .find(|word| word.get() == link(index));
        named.ok_or(Fault::Damaged)
    }

    /// Returns the least number of a node and its subtrees.
    #[inline(always)]
    fn least_in(&self, kind: &Kind) -> Result<u64, Fault> {
        let below = self.least_of(&kind.left)?.min(self.least_of(&kind.right)?);
        Ok(kind.first.get().min(below))
    }

    /// Returns the least number of a subtree, as its top node has stored it.
    #[inline(always)]
    fn least_of(&self, subtree: &Guarded32) -> Result<u64, Fault> {
        match target(subtree) {
            Some(index) => Ok(self.store.kind(index)?.least.get()),
            None => Ok(NONE),
        }
    }

    /// Returns the rank of a type. Higher ranks are nearer to the root.
    fn rank(&self, kind: &Kind) -> u64 {
        self.hash(kind.mtype())
    }
}

/// Returns the child link of a node that leads towards a type.
#[inline(always)]
fn child_towards(kind: &Kind, mtype: i64) -> &Guarded32 {
    match mtype < kind.mtype() {
        true => &kind.left,
        false => &kind.right,
    }
}
