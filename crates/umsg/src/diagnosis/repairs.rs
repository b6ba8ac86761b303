//! Past repairs, and the process that found corruption.

use super::locks::Side;
use super::process::Process;
use std::time::{Duration, SystemTime};
use umsg_shm::repair::log::{self, MENDED, RepairLog};
use umsg_shm::sync::{AtomicU32, Ordering};

/// The repairs of the data that one lock guards, each after the death of the lock's owner.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repairs {
    /// The part of the queue that the lock guards.
    pub side: Side,
    /// The number of repairs since the queue was made.
    pub count: u32,
    /// The last eight repairs, the latest first.
    pub latest: Vec<Repair>,
}

/// A repair: the next owner of a dead process's lock restored the data.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repair {
    /// The time of the repair.
    pub at: SystemTime,
    /// The process id of the dead owner; None if it is not known.
    pub died: Option<u32>,
    /// The process id of the repairer.
    pub by: u32,
}

/// The record of a process that found corruption. Calls that meet the corruption fail with EBADMSG.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// The process that found the corruption first.
    pub by: Process,
    /// The time at which the corruption was found. None if the time is not known.
    pub at: Option<SystemTime>,
}

impl Repairs {
    pub(super) fn read(side: Side, count: &AtomicU32, records: &[RepairLog; MENDED]) -> Repairs {
        // Relaxed, here and below: the segment is a private copy, and no process writes to it.
        let count = count.load(Ordering::Relaxed);
        let order =
            (1..=count.min(MENDED as u32)).map(|back| count.wrapping_sub(back) as usize % MENDED);
        let latest = order
            .filter_map(|index| Repair::read(&records[index]))
            .collect();
        Repairs {
            side,
            count,
            latest,
        }
    }
}

impl Repair {
    fn read(record: &RepairLog) -> Option<Repair> {
        let died = record.died.load(Ordering::Relaxed);
        Some(Repair {
            at: time(record.at.load(Ordering::Relaxed))?,
            died: (died != 0).then_some(died),
            by: record.by.load(Ordering::Relaxed),
        })
    }
}

impl Damage {
    pub(super) fn read(damage: &log::Damage) -> Option<Damage> {
        damage.is_noted().then(|| Damage {
            by: Process::numbered(damage.by.load(Ordering::Relaxed)),
            at: time(damage.at.load(Ordering::Relaxed)),
        })
    }
}

/// Converts nanoseconds since 1970 to a time; 0 means never.
fn time(nanoseconds: u64) -> Option<SystemTime> {
    (nanoseconds != 0).then(|| SystemTime::UNIX_EPOCH + Duration::from_nanos(nanoseconds))
}
