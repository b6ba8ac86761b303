//! From a type to its record: a hash table that lies in the records.
//!
//! There are as many buckets as records that were ever used: bucket i begins in record i. A record that comes into use
//! brings a bucket with it, which takes over from one other what belongs to it from then on (linear hashing, Litwin, VLDB
//! 1980): the table grows with the number of types, one short step at a time.

use super::store::{RECENT, link, target};
use super::{Kind, TypeIndexStore, Typed};
use crate::fault::Fault;
use crate::sync::Guarded32;

/// No bucket has as many types, except by damage: 10 are rare among 30,000.
const BUCKET: usize = 256;

impl<'a, S: TypeIndexStore> Typed<'a, S> {
    /// The record of a type.
    #[inline]
    pub(super) fn find(&self, mtype: i64) -> Result<Option<(u32, &'a Kind)>, Fault> {
        if let Some(index) = target(self.recent(mtype)) {
            let kind = self.shelf.kind(index)?;
            if kind.mtype() == mtype {
                return Ok(Some((index, kind)));
            }
        }
        self.find_slow(mtype)
    }

    #[inline(never)]
    fn find_slow(&self, mtype: i64) -> Result<Option<(u32, &'a Kind)>, Fault> {
        let buckets = self.shelf.kinds().used.get();
        if buckets == 0 {
            return Ok(None);
        }
        let mut at = self.bucket(mtype, buckets)?;
        for _ in 0..BUCKET {
            let Some(index) = target(at) else {
                return Ok(None);
            };
            let kind = self.shelf.kind(index)?;
            if kind.mtype() == mtype {
                self.recent(mtype).set(link(index));
                return Ok(Some((index, kind)));
            }
            at = &kind.chain;
        }
        Err(Fault::Damaged)
    }

    /// Adds the record of a type to the table.
    pub(super) fn enlist(&self, index: u32, kind: &Kind) -> Result<(), Fault> {
        let bucket = self.bucket(kind.mtype(), self.shelf.kinds().used.get())?;
        kind.chain.set(bucket.get());
        bucket.set(link(index));
        Ok(())
    }

    /// Takes the record of a type out of the table.
    pub(super) fn delist(&self, index: u32, kind: &Kind) -> Result<(), Fault> {
        let recent = self.recent(kind.mtype());
        if recent.get() == link(index) {
            recent.set(0);
        }
        let mut at = self.bucket(kind.mtype(), self.shelf.kinds().used.get())?;
        for _ in 0..BUCKET {
            if at.get() == link(index) {
                at.set(kind.chain.get());
                return Ok(());
            }
            let other = target(at).ok_or(Fault::Damaged)?;
            at = &self.shelf.kind(other)?.chain;
        }
        Err(Fault::Damaged)
    }

    /// One more record is used: its bucket takes over what belongs to it.
    pub(super) fn add_bucket(&self, new: u32) -> Result<(), Fault> {
        let bucket = &self.shelf.kind(new)?.bucket;
        bucket.set(0);
        let Some(power) = new.checked_ilog2() else {
            return Ok(());
        };
        let mut at = &self.shelf.kind(new - (1 << power))?.bucket;
        for _ in 0..BUCKET {
            let Some(index) = target(at) else {
                return Ok(());
            };
            let kind = self.shelf.kind(index)?;
            if bucket_of(self.hash(kind.mtype()), link(new)) == new {
                at.set(kind.chain.get());
                kind.chain.set(bucket.get());
                bucket.set(link(index));
            } else {
                at = &kind.chain;
            }
        }
        Err(Fault::Damaged)
    }

    /// The word that a type's bucket begins with.
    #[inline(always)]
    fn bucket(&self, mtype: i64, buckets: u32) -> Result<&'a Guarded32, Fault> {
        let bucket = bucket_of(self.hash(mtype), buckets);
        Ok(&self.shelf.kind(bucket)?.bucket)
    }

    /// The word that names the type's record if the type was used lately.
    #[inline(always)]
    fn recent(&self, mtype: i64) -> &'a Guarded32 {
        &self.shelf.kinds().recent[mtype as usize % RECENT]
    }

    /// The type and the queue's seed, well mixed, by two multiplications.
    #[inline(always)]
    pub(super) fn hash(&self, mtype: i64) -> u64 {
        let mut mixed = mtype as u64 ^ self.shelf.kinds().seed.get();
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

/// The bucket of a hash, of so many: as many of its bits as it takes, one less where there is no such bucket yet.
#[inline(always)]
fn bucket_of(hash: u64, buckets: u32) -> u32 {
    let mask = buckets
        .checked_next_power_of_two()
        .unwrap_or(0)
        .wrapping_sub(1);
    let bucket = hash as u32 & mask;
    if bucket < buckets {
        bucket
    } else {
        bucket & mask >> 1
    }
}
