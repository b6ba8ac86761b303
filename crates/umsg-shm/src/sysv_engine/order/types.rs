//! The records of types: where they come from, and where they go.
//!
//! ```text
//! unused --create--> in the tree, without messages --push_back--> in the tree, with messages
//!    ^                 |    (all in the list of the         ^                   |
//!    '----- evict -----'     idle, `listed` = 1)            '-- last removed ---'
//! ```
//!
//! A type that runs empty is likely to be used again: it stays. Only when a record is made for another type, and those in
//! the list are [`IDLE`] and half of all, the ones that ran empty first are removed, up to two: so the idle get fewer as
//! long as new types come, and types that come and go again and again cost nothing. A type that has messages again stays
//! in the list, until its turn comes and it is dropped from it: the list may hold it, and need not. An empty one is always
//! listed.

use super::store::{NONE, link, target};
use super::{Kind, TypeIndexStore, Typed};
use crate::fault::Fault;

/// Types without messages that may stay while new types come.
pub(super) const IDLE: u32 = 256;

impl<'a, S: TypeIndexStore> Typed<'a, S> {
    /// Memory for a message of this type: until the next call of this kind, or the next removal, [`Typed::push_back`] of one
    /// can't fail for want of memory.
    #[inline]
    pub(crate) fn provide(&self, mtype: i64) -> Result<(), Fault> {
        match self.find(mtype)? {
            Some(_) => Ok(()),
            None => self.create(mtype, true).map(|_| ()),
        }
    }

    /// Memory for messages of all of these types at once, as [`Typed::provide`] for one.
    pub(crate) fn provide_all(
        &self,
        types: impl Iterator<Item = i64> + Clone,
    ) -> Result<(), Fault> {
        for mtype in types.clone() {
            self.provide(mtype)?;
        }
        for mtype in types {
            if self.find(mtype)?.is_none() {
                self.create(mtype, false)?;
            }
        }
        Ok(())
    }

    /// The types that have messages, and how many, in ascending order.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = Result<(i64, u32), Fault>> + use<'a, S> {
        let order = Typed { shelf: self.shelf };
        let mut from = Some(1);
        std::iter::from_fn(move || {
            let found = order.lowest_from(from?).transpose()?;
            // Ascending, and at an end after an error: no list goes on for ever.
            from = found
                .as_ref()
                .ok()
                .and_then(|kind| kind.mtype().checked_add(1));
            Some(found.map(|kind| (kind.mtype(), kind.count.get())))
        })
        .take(self.shelf.places() as usize)
    }

    /// The record of a type, a new one if there is none.
    #[inline]
    pub(super) fn find_or_create(&self, mtype: i64) -> Result<(u32, &'a Kind), Fault> {
        match self.find(mtype)? {
            Some(found) => Ok(found),
            None => self.create(mtype, true),
        }
    }

    /// A record for a type that has none, in the tree, without messages. Others may have to go for it, if they may.
    #[cold]
    fn create(&self, mtype: i64, may_evict: bool) -> Result<(u32, &'a Kind), Fault> {
        if mtype < 1 {
            return Err(Fault::Damaged);
        }
        let roots = self.shelf.kinds();
        let enough = IDLE.max(roots.used.get() / 2);
        for _ in 0..2 {
            if may_evict && roots.listed.get() >= enough {
                self.evict()?;
            }
        }
        let index = self.take(may_evict)?;
        let kind = self.shelf.kind(index)?;
        kind.mtype.set(mtype as u64);
        kind.first.set(NONE);
        kind.least.set(NONE);
        let links = [
            &kind.head,
            &kind.tail,
            &kind.left,
            &kind.right,
            &kind.parent,
        ];
        links.iter().for_each(|word| word.set(0));
        kind.count.set(0);
        kind.listed.set(0);
        self.rest(index, kind)?;
        self.enlist(index, kind)?;
        self.attach(index, kind)?;
        Ok((index, kind))
    }

    /// A record that no process uses.
    fn take(&self, may_evict: bool) -> Result<u32, Fault> {
        let roots = self.shelf.kinds();
        if let Some(index) = target(&roots.free) {
            roots.free.set(self.shelf.kind(index)?.newer.get());
            return Ok(index);
        }
        let used = roots.used.get();
        if used >= roots.usable.get() {
            match self.shelf.provide_kinds(roots.usable.get()) {
                Ok(usable) => roots.usable.set(usable),
                Err(trouble) if !may_evict => return Err(trouble),
                Err(trouble) => return self.take_from_idle()?.ok_or(trouble),
            }
        }
        if used < roots.usable.get() {
            self.add_bucket(used)?;
            roots.used.set(used + 1);
            return Ok(used);
        }
        self.take_from_idle()?.ok_or(Fault::Damaged)
    }

    /// The record of the type that ran empty first.
    fn take_from_idle(&self) -> Result<Option<u32>, Fault> {
        let roots = self.shelf.kinds();
        for _ in 0..self.shelf.places().saturating_add(IDLE) {
            if roots.oldest.get() == 0 {
                break;
            }
            self.evict()?;
            if let Some(index) = target(&roots.free) {
                roots.free.set(self.shelf.kind(index)?.newer.get());
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    /// A type has run empty: lists it, unless it is listed since the last time.
    #[inline(always)]
    pub(super) fn rest(&self, index: u32, kind: &Kind) -> Result<(), Fault> {
        if kind.listed.get() != 0 {
            return Ok(());
        }
        self.list(index, kind)
    }

    #[cold]
    fn list(&self, index: u32, kind: &Kind) -> Result<(), Fault> {
        let roots = self.shelf.kinds();
        kind.listed.set(1);
        kind.newer.set(0);
        match target(&roots.newest) {
            Some(newest) => self.shelf.kind(newest)?.newer.set(link(index)),
            None => roots.oldest.set(link(index)),
        }
        roots.newest.set(link(index));
        roots.listed.set(roots.listed.get().wrapping_add(1));
        Ok(())
    }

    /// Drops the first in the list of the idle, and removes it from the tree if it still has no messages.
    fn evict(&self) -> Result<(), Fault> {
        let roots = self.shelf.kinds();
        let Some(index) = target(&roots.oldest) else {
            return Err(Fault::Damaged);
        };
        let kind = self.shelf.kind(index)?;
        roots.oldest.set(kind.newer.get());
        if kind.newer.get() == 0 {
            roots.newest.set(0);
        }
        roots.listed.set(roots.listed.get().wrapping_sub(1));
        kind.listed.set(0);
        if !kind.is_empty() {
            return Ok(());
        }
        self.delist(index, kind)?;
        self.detach(index, kind)?;
        kind.newer.set(roots.free.get());
        roots.free.set(link(index));
        Ok(())
    }
}
