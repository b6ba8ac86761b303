//! The order of the delayed messages whose delivery time has come when the records are checked. The messages are sorted by delivery time. Messages
//! with the same delivery time are sorted by the order of their sends.
//!
//! A walk over the records chains the records of these messages, and sorts the chain by merging. The links are in the field `birth`, which the record
//! of a delayed message does not use. So the sort needs no memory, and its time under the lock is proportional to n log n. The list of all records
//! does not change: a death during the sort leaves nothing to repair.

use super::{LeaseRecord, LeaseStore, Leases, State};
use crate::crash::crash_point;
use crate::fault::Fault;

/// The number of sorted parts that a sort keeps. The part at position n has 2^n records or none, and the index of a record has 32 bits.
const PARTS: usize = 32;

/// A chain of records: the first record, as index + 1, and the number of records. Other processes can overwrite the links, but not the number.
#[derive(Clone, Copy, Default)]
struct Chain {
    first: u32,
    len: u32,
}

/// The records of the messages whose delivery time has come.
#[derive(Default)]
pub(super) struct Due {
    all: Chain,
    /// The last record, as index + 1, and its place in the order.
    last: u32,
    latest: (u64, u64),
    /// True if two records are in the wrong order.
    is_mixed: bool,
}

fn link(record: &LeaseRecord, next: u32) {
    record.birth.set(u64::from(next));
}

impl<'a, S: LeaseStore> Leases<'a, S> {
    /// Adds a record to the records of due messages.
    pub(super) fn chain(
        &self,
        due: &mut Due,
        index: u32,
        record: &LeaseRecord,
    ) -> Result<(), Fault> {
        // No process holds a delayed message. `pid` still names a process that died at the crash point DELAY_HELD.
        record.pid.set(0);
        match due.all.len {
            0 => due.all.first = index + 1,
            _ => link(self.chained(due.last)?.1, index + 1),
        }
        let place = record.place_in_time();
        due.is_mixed |= place < due.latest;
        (due.last, due.latest) = (index + 1, place);
        due.all.len += 1;
        Ok(())
    }

    /// Runs `deliver` for each record in the order of delivery. `deliver` may release the record.
    pub(super) fn for_each_due(
        &self,
        due: &Due,
        mut deliver: impl FnMut(u32, &LeaseRecord) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut chain = match due.is_mixed {
            true => self.sorted(due.all)?,
            false => due.all,
        };
        if due.is_mixed {
            crash_point!(DUE_SORTED);
        }
        while chain.len != 0 {
            let (index, record) = self.take_first(&mut chain)?;
            // The link leads to a record that has no delayed message: a process has overwritten the link.
            if State::of(record) != State::Delayed {
                return Err(Fault::Damaged);
            }
            deliver(index, record)?;
        }
        Ok(())
    }

    /// Returns the record that a link names, and the record's index.
    fn chained(&self, link: u32) -> Result<(u32, &'a LeaseRecord), Fault> {
        let index = link.checked_sub(1).ok_or(Fault::Damaged)?;
        Ok((index, self.segment.lease_record(index)?))
    }

    /// Removes the first record of a chain that is not empty.
    fn take_first(&self, chain: &mut Chain) -> Result<(u32, &'a LeaseRecord), Fault> {
        let (index, record) = self.chained(chain.first)?;
        chain.first = record.birth.get() as u32;
        chain.len -= 1;
        Ok((index, record))
    }

    /// Sorts a chain. At first, each record is a part. Then two parts of equal size become one, until one part is left.
    fn sorted(&self, mut chain: Chain) -> Result<Chain, Fault> {
        let mut parts = [Chain::default(); PARTS];
        while chain.len != 0 {
            let first = chain.first;
            self.take_first(&mut chain)?;
            let mut part = Chain { first, len: 1 };
            for other in &mut parts {
                if other.len == 0 {
                    *other = part;
                    break;
                }
                part = self.merged(std::mem::take(other), part)?;
            }
        }
        let none = Chain::default();
        parts
            .into_iter()
            .try_fold(none, |later, earlier| self.merged(earlier, later))
    }

    /// Merges two sorted chains.
    fn merged(&self, mut one: Chain, mut other: Chain) -> Result<Chain, Fault> {
        let mut merged = Chain {
            first: 0,
            len: one.len + other.len,
        };
        let mut last: Option<&LeaseRecord> = None;
        let mut append = |next: u32, record| match std::mem::replace(&mut last, record) {
            None => merged.first = next,
            Some(last) => link(last, next),
        };
        while one.len != 0 && other.len != 0 {
            let [of_one, of_other] = [one, other].map(|chain| self.chained(chain.first));
            let from = match of_one?.1.place_in_time() <= of_other?.1.place_in_time() {
                true => &mut one,
                false => &mut other,
            };
            let next = from.first;
            append(next, Some(self.take_first(from)?.1));
        }
        // The rest of the longer chain is sorted and linked already.
        append(if one.len == 0 { other.first } else { one.first }, None);
        Ok(merged)
    }
}
