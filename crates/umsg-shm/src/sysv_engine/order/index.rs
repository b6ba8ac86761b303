//! A hash table from types to their records. The table lies in the records.
//!
//! There are as many buckets as records that were ever used: bucket i begins in record i. Each record that comes into use adds a bucket. The new
//! bucket takes over a part of the types of one other bucket (linear hashing, Litwin, VLDB 1980). So the table grows
//! with the number of types, one short step at a time.

use super::store::{RECENT, link, target};
use super::{Kind, Order, TypeIndexStore};
use crate::fault::Fault;
use crate::sync::Guarded32;

/// A bound for a walk along a bucket: no bucket of an intact table has this number of types. Among 30,000 types, it is rare that 10 are in one
/// bucket.
const BUCKET: usize = 256;

impl<'a, S: TypeIndexStore> Order<'a, S> {
    /// Returns the record of a type, and its index.
    #[inline]
    pub(super) fn find(&self, mtype: i64) -> Result<Option<(u32, &'a Kind)>, Fault> {
        if let Some(index) = target(self.recent(mtype)) {
            let kind = self.store.kind(index)?;
            if kind.mtype() == mtype {
                return Ok(Some((index, kind)));
            }
        }
        self.find_slow(mtype)
    }

    #[inline(never)]
    fn find_slow(&self, mtype: i64) -> Result<Option<(u32, &'a Kind)>, Fault> {
        let buckets = self.store.kinds().used.get();
        if buckets == 0 {
            return Ok(None);
        }
        let mut at = self.bucket(mtype, buckets)?;
        for _ in 0..BUCKET {
            let Some(index) = target(at) else {
                return Ok(None);
            };
            let kind = self.store.kind(index)?;
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
        let bucket = self.bucket(kind.mtype(), self.store.kinds().used.get())?;
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
        let mut at = self.bucket(kind.mtype(), self.store.kinds().used.get())?;
        for _ in 0..BUCKET {
            if at.get() == link(index) {
                at.set(kind.chain.get());
                return Ok(());
            }
            let other = target(at).ok_or(Fault::Damaged)?;
            at = &self.store.kind(other)?.chain;
        }
        Err(Fault::Damaged)
    }

    /// Adds the bucket that begins in a record which comes into use. Moves the types that belong to the new bucket into this bucket.
    pub(super) fn add_bucket(&self, new: u32) -> Result<(), Fault> {
        let bucket = &self.store.kind(new)?.bucket;
        bucket.set(0);
        let Some(power) = new.checked_ilog2() else {
            return Ok(());
        };
        let mut at = &self.store.kind(new - (1 << power))?.bucket;
        for _ in 0..BUCKET {
            let Some(index) = target(at) else {
                return Ok(());
            };
            let kind = self.store.kind(index)?;
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

    /// Returns the word that names the first type of a type's bucket.
    #[inline(always)]
    fn bucket(&self, mtype: i64, buckets: u32) -> Result<&'a Guarded32, Fault> {
        let bucket = bucket_of(self.hash(mtype), buckets);
        Ok(&self.store.kind(bucket)?.bucket)
    }

    /// Returns the cache word for a type. The word names the record that was used last for a type with the same lowest bits.
    #[inline(always)]
    fn recent(&self, mtype: i64) -> &'a Guarded32 {
        &self.store.kinds().recent[mtype as usize % RECENT]
    }

    /// Mixes a type and the queue's seed by two multiplications (splitmix64).
    #[inline(always)]
    pub(super) fn hash(&self, mtype: i64) -> u64 {
        let mut mixed = mtype as u64 ^ self.store.kinds().seed.get();
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

/// Returns the bucket of a hash among `buckets`. The lowest bits of the hash give the bucket. If that bucket does not exist yet, the hash belongs to
/// the bucket that one bit fewer gives.
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
