//! The creation and the removal of the records of types.
//!
//! ```text
//! unused --create--> in the tree, without messages --push_back--> in the tree, with messages
//!    ^                 |    (always in the idle             ^                   |
//!    '----- evict -----'     list, `listed` = 1)            '-- last removed ---'
//! ```
//!
//! A type whose last message is removed is likely to be used again, so its record stays. So a type that comes and goes repeatedly costs nothing.
//!
//! Records are removed only when a record for another type is created, and only if the idle list is long enough. It must have at least [`IDLE`]
//! entries, and at least half as many entries as there are records. Up to two types are then removed, the oldest of the list first. So the number of
//! idle types falls while new types come.
//!
//! A type that gets messages again stays in the idle list until it is the oldest entry, and is then dropped from the list. So each type without
//! messages is in the list, and a type with messages may still be in it.

use super::store::{NONE, link, target};
use super::{Kind, Order, TypeIndexStore};
use crate::fault::Fault;

/// The number of idle types up to which no type is removed for a new type.
pub(super) const IDLE: u32 = 256;

impl<'a, S: TypeIndexStore> Order<'a, S> {
    /// Allocates the memory for a message of this type. Until the next call of this function or the next removal, one [`Order::push_back`] can't fail
    /// with [`Fault::NoMemory`].
    #[inline]
    pub(crate) fn provide(&self, mtype: i64) -> Result<(), Fault> {
        match self.find(mtype)? {
            Some(_) => Ok(()),
            None => self.create(mtype, true).map(|_| ()),
        }
    }

    /// Allocates the memory for messages of all these types at once, as [`Order::provide`] does for one message.
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

    /// Returns the types that have messages in ascending order, each with the number of its messages.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = Result<(i64, u32), Fault>> + use<'a, S> {
        let order = Order { store: self.store };
        let mut from = Some(1);
        std::iter::from_fn(move || {
            let found = order.lowest_from(from?).transpose()?;
            // The next search begins above the last type, and an error ends the list. So the iteration ends even in a corrupted tree.
            from = found
                .as_ref()
                .ok()
                .and_then(|kind| kind.mtype().checked_add(1));
            Some(found.map(|kind| (kind.mtype(), kind.count.get())))
        })
        .take(self.store.places() as usize)
    }

    /// Returns the record of a type. Creates the record if there is none.
    #[inline]
    pub(super) fn find_or_create(&self, mtype: i64) -> Result<(u32, &'a Kind), Fault> {
        match self.find(mtype)? {
            Some(found) => Ok(found),
            None => self.create(mtype, true),
        }
    }

    /// Creates the record of a type, in the tree and without messages. With `may_evict`, the function may remove idle types.
    #[cold]
    fn create(&self, mtype: i64, may_evict: bool) -> Result<(u32, &'a Kind), Fault> {
        if mtype < 1 {
            return Err(Fault::Damaged);
        }
        let roots = self.store.kinds();
        let enough = IDLE.max(roots.used.get() / 2);
        for _ in 0..2 {
            if may_evict && roots.listed.get() >= enough {
                self.evict()?;
            }
        }
        let index = self.take(may_evict)?;
        let kind = self.store.kind(index)?;
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

    /// Takes an unused record. If the memory is used up, takes the record of an idle type, but only with `may_evict`.
    fn take(&self, may_evict: bool) -> Result<u32, Fault> {
        let roots = self.store.kinds();
        if let Some(index) = target(&roots.free) {
            roots.free.set(self.store.kind(index)?.newer.get());
            return Ok(index);
        }
        let used = roots.used.get();
        if used >= roots.usable.get() {
            match self.store.provide_kinds(roots.usable.get()) {
                Ok(usable) => roots.usable.set(usable),
                Err(fault) if !may_evict => return Err(fault),
                Err(fault) => return self.take_from_idle()?.ok_or(fault),
            }
        }
        if used < roots.usable.get() {
            self.add_bucket(used)?;
            roots.used.set(used + 1);
            return Ok(used);
        }
        self.take_from_idle()?.ok_or(Fault::Damaged)
    }

    /// Removes idle types, the oldest first, until a record is free, and takes that record.
    fn take_from_idle(&self) -> Result<Option<u32>, Fault> {
        let roots = self.store.kinds();
        for _ in 0..self.store.places().saturating_add(IDLE) {
            if roots.oldest.get() == 0 {
                break;
            }
            self.evict()?;
            if let Some(index) = target(&roots.free) {
                roots.free.set(self.store.kind(index)?.newer.get());
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    /// Puts a type without messages into the idle list, unless it is in the list.
    #[inline(always)]
    pub(super) fn rest(&self, index: u32, kind: &Kind) -> Result<(), Fault> {
        if kind.listed.get() != 0 {
            return Ok(());
        }
        self.list(index, kind)
    }

    #[cold]
    fn list(&self, index: u32, kind: &Kind) -> Result<(), Fault> {
        let roots = self.store.kinds();
        kind.listed.set(1);
        kind.newer.set(0);
        match target(&roots.newest) {
            Some(newest) => self.store.kind(newest)?.newer.set(link(index)),
            None => roots.oldest.set(link(index)),
        }
        roots.newest.set(link(index));
        roots.listed.set(roots.listed.get().wrapping_add(1));
        Ok(())
    }

    /// Drops the first type of the idle list, and removes it from the tree if it still has no messages.
    fn evict(&self) -> Result<(), Fault> {
        let roots = self.store.kinds();
        let Some(index) = target(&roots.oldest) else {
            return Err(Fault::Damaged);
        };
        let kind = self.store.kind(index)?;
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
