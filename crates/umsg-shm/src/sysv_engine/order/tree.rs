//! The tree of types: a search tree by type, balanced by chance.
//!
//! Each type has a rank, a hash of it and of the queue's seed, and no node has a higher rank than its parent: the tree has
//! the shape that insertions in a random order would give it, whatever the order was. That is 1.4 log2(n) steps from
//! a type to the root on average, 40 at most for 30,000 types, and two rotations to add or remove one.

use super::store::{NONE, link, target};
use super::{Kind, TypeIndexStore, Typed};
use crate::fault::Fault;
use crate::sync::Guarded32;

/// The tree of a million types has no path as long as this: 60 steps are likely, 80 would be a wonder.
const DEPTH: usize = 256;

impl<'a, S: TypeIndexStore> Typed<'a, S> {
    /// The lowest type of a subtree that has messages.
    #[inline]
    pub(super) fn lowest(&self, subtree: &'a Guarded32) -> Result<Option<&'a Kind>, Fault> {
        let mut at = subtree;
        for _ in 0..DEPTH {
            let Some(index) = target(at) else {
                return Ok(None);
            };
            let kind = self.shelf.kind(index)?;
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

    /// The lowest type that has messages, of those that are not below `from`.
    pub(super) fn lowest_from(&self, from: i64) -> Result<Option<&'a Kind>, Fault> {
        let mut at = &self.shelf.kinds().root;
        // The last node on the way that is not below `from`: it, or what is right of it, is next.
        let mut found = None;
        for _ in 0..DEPTH {
            let Some(index) = target(at) else {
                return match found {
                    Some(kind) if self.has_messages(kind) => Ok(Some(kind)),
                    Some(kind) => self.lowest(&kind.right),
                    None => Ok(None),
                };
            };
            let kind = self.shelf.kind(index)?;
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

    /// The first message of any other type.
    pub(super) fn first_except(&self, mtype: i64) -> Result<Option<u32>, Fault> {
        let roots = self.shelf.kinds();
        let Some(slot) = target(&roots.head) else {
            return Ok(None);
        };
        let index = target(&self.shelf.place(slot)?.kind).ok_or(Fault::Damaged)?;
        if self.shelf.kind(index)?.mtype() != mtype {
            return Ok(Some(slot));
        }
        self.first_beside(mtype)
    }

    /// The oldest message of those in the tree except for one type: on the way down to it, what branches off.
    fn first_beside(&self, mtype: i64) -> Result<Option<u32>, Fault> {
        let mut at = &self.shelf.kinds().root;
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
            let kind = self.shelf.kind(index)?;
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

    /// The message of a subtree that has a sequence number, by the nodes that say how to get there.
    fn holder_of(&self, sequence: u64, subtree: &'a Guarded32) -> Result<Option<u32>, Fault> {
        let mut at = subtree;
        for _ in 0..DEPTH {
            let kind = self.shelf.kind(target(at).ok_or(Fault::Damaged)?)?;
            if kind.first.get() == sequence {
                return Ok(target(&kind.head));
            }
            let is_left = self.least_of(&kind.left)? == sequence;
            at = if is_left { &kind.left } else { &kind.right };
        }
        Err(Fault::Damaged)
    }

    /// The oldest message of a subtree has become older: a type's first message was added.
    #[inline(always)]
    pub(super) fn lower(&self, kind: &'a Kind, sequence: u64) -> Result<(), Fault> {
        let mut kind = kind;
        for _ in 0..DEPTH {
            if kind.least.get() <= sequence {
                return Ok(());
            }
            kind.least.set(sequence);
            match target(&kind.parent) {
                Some(parent) => kind = self.shelf.kind(parent)?,
                None => return Ok(()),
            }
        }
        Err(Fault::Damaged)
    }

    /// A type's first message, `old`, has gone: says so to the nodes whose oldest it was.
    #[inline(always)]
    pub(super) fn refresh(&self, kind: &'a Kind, old: u64) -> Result<(), Fault> {
        let mut kind = kind;
        for _ in 0..DEPTH {
            if kind.least.get() != old {
                return Ok(());
            }
            kind.least.set(self.least_in(kind)?);
            match target(&kind.parent) {
                Some(parent) => kind = self.shelf.kind(parent)?,
                None => return Ok(()),
            }
        }
        Err(Fault::Damaged)
    }

    /// Adds a node, of a type without messages.
    pub(super) fn attach(&self, index: u32, kind: &'a Kind) -> Result<(), Fault> {
        let mut at = &self.shelf.kinds().root;
        let mut parent = 0;
        for _ in 0..DEPTH {
            let Some(above) = target(at) else {
                kind.parent.set(parent);
                at.set(link(index));
                return self.rise(index, kind);
            };
            parent = link(above);
            at = child_towards(self.shelf.kind(above)?, kind.mtype());
        }
        Err(Fault::Damaged)
    }

    /// Removes a node, of a type without messages.
    pub(super) fn detach(&self, index: u32, kind: &'a Kind) -> Result<(), Fault> {
        for _ in 0..DEPTH {
            let (below, child) = match (target(&kind.left), target(&kind.right)) {
                (Some(left), Some(right)) => {
                    let (one, other) = (self.shelf.kind(left)?, self.shelf.kind(right)?);
                    match self.rank(one) > self.rank(other) {
                        true => (left, one),
                        false => (right, other),
                    }
                }
                (left, right) => {
                    let rest = left.or(right);
                    self.naming(index, kind)?.set(rest.map_or(0, link));
                    if let Some(rest) = rest {
                        self.shelf.kind(rest)?.parent.set(kind.parent.get());
                    }
                    return Ok(());
                }
            };
            self.rotate(below, child)?;
        }
        Err(Fault::Damaged)
    }

    /// Lets a new leaf rise to where its rank puts it.
    fn rise(&self, index: u32, kind: &'a Kind) -> Result<(), Fault> {
        for _ in 0..DEPTH {
            match target(&kind.parent) {
                Some(parent) if self.rank(self.shelf.kind(parent)?) < self.rank(kind) => {
                    self.rotate(index, kind)?;
                }
                _ => return Ok(()),
            }
        }
        Err(Fault::Damaged)
    }

    /// Puts a node in the place of its parent, which becomes its child:
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
        let parent = self.shelf.kind(above)?;
        let naming = self.naming(above, parent)?;
        let (outer, inner) = match parent.left.get() == link(index) {
            true => (&parent.left, &kind.right),
            false => (&parent.right, &kind.left),
        };
        outer.set(inner.get());
        if let Some(moved) = target(inner) {
            self.shelf.kind(moved)?.parent.set(link(above));
        }
        inner.set(link(above));
        kind.parent.set(parent.parent.get());
        parent.parent.set(link(index));
        naming.set(link(index));
        kind.least.set(parent.least.get());
        parent.least.set(self.least_in(parent)?);
        Ok(())
    }

    /// The word that names a node: one of its parent's, or the root.
    fn naming(&self, index: u32, kind: &'a Kind) -> Result<&'a Guarded32, Fault> {
        let candidates = match target(&kind.parent) {
            Some(parent) => {
                let parent = self.shelf.kind(parent)?;
                [&parent.left, &parent.right]
            }
            None => [&self.shelf.kinds().root; 2],
        };
        let named = candidates
            .into_iter()
            .find(|word| word.get() == link(index));
        named.ok_or(Fault::Damaged)
    }

    /// The oldest message of a node and what is below it.
    #[inline(always)]
    fn least_in(&self, kind: &Kind) -> Result<u64, Fault> {
        let below = self.least_of(&kind.left)?.min(self.least_of(&kind.right)?);
        Ok(kind.first.get().min(below))
    }

    /// What a subtree says is its oldest message.
    #[inline(always)]
    fn least_of(&self, subtree: &Guarded32) -> Result<u64, Fault> {
        match target(subtree) {
            Some(index) => Ok(self.shelf.kind(index)?.least.get()),
            None => Ok(NONE),
        }
    }

    /// Higher ranks are nearer to the root.
    fn rank(&self, kind: &Kind) -> u64 {
        self.hash(kind.mtype())
    }
}

/// On which side of a node a type is.
#[inline(always)]
fn child_towards(kind: &Kind, mtype: i64) -> &Guarded32 {
    match mtype < kind.mtype() {
        true => &kind.left,
        false => &kind.right,
    }
}
