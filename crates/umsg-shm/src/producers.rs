//! Producers: processes that a queue counts as senders. When the last producer ends, the queue is closed for sending.
//!
//! A record names a process and counts its guards. A guard is one registration of the process, which may register several times. A process may die
//! before it has given all its guards back. A sender, a receiver that finds the queue empty, a blocked process at the end of its slice, or a poller's
//! helper notices the death. The process that notices the death closes the queue for sending, as a call of `close_send` does.
//!
//! | a record with | means | if the process dies |
//! |---|---|---|
//! | `pid` 0 | nothing | - |
//! | `pid` | a process with `guards` guards | the process no longer counts, and the next producer may take the record |

use crate::crash::crash_point;
use crate::lock::tokens::ReceiverHeld;
use crate::sync::{Guarded32, Guarded64};
use crate::sys::clock;
use crate::sys::liveness::{self, Liveness};
use crate::sys::process;
use crate::sys::thread::Thread;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of processes that can be producers at the same time.
pub const PRODUCERS: usize = if cfg!(loom) { 2 } else { 32 };

/// The record of a process that is a producer.
#[repr(C)]
#[derive(Default)]
pub(crate) struct ProducerRecord {
    /// The process id; 0 for none. The id is stored last, because the record takes effect with this store.
    pub(crate) pid: Guarded32,
    /// The number of the process's guards.
    pub(crate) guards: Guarded32,
    /// The birth of the process, which distinguishes it from other processes with the same id.
    pub(crate) birth: Guarded64,
}

/// The records of all producers. The lock under which messages are received protects all words.
#[repr(C)]
#[derive(Default)]
pub struct Producers {
    /// 1 if a process has been a producer since the queue was created or reopened, 0 otherwise.
    pub(crate) any: Guarded32,
    reserved: Guarded32,
    pub(crate) records: [ProducerRecord; PRODUCERS],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<ProducerRecord>() == 16 && size_of::<Producers>() == 520);

impl Producers {
    /// Gives the calling process one more guard. Returns false if the process has no record and all records belong to living processes.
    pub(crate) fn begin(&self, _: ReceiverHeld<'_>, lives: &dyn Liveness, me: &Thread) -> bool {
        if let Some(own) = self.own(lives, me) {
            own.guards.set(own.guards.get().saturating_add(1));
            return true;
        }
        let mut records = self.records.iter();
        let Some(record) = records.find(|record| !is_living(lives, record)) else {
            return false;
        };
        record.pid.set(0);
        record.birth.set(birth(lives, me));
        record.guards.set(1);
        record.pid.set(me.pid());
        crash_point!(PRODUCER_NAMED);
        self.any.set(1);
        crash_point!(PRODUCER_COUNTED);
        true
    }

    /// Removes one guard of the calling process. Returns the number of its remaining guards; None if the process had no guard.
    pub(crate) fn end(
        &self,
        _: ReceiverHeld<'_>,
        lives: &dyn Liveness,
        me: &Thread,
    ) -> Option<u32> {
        let own = self.own(lives, me)?;
        let left = own.guards.get().saturating_sub(1);
        own.guards.set(left);
        if left == 0 {
            own.pid.set(0);
            crash_point!(PRODUCER_ENDED);
        }
        Some(left)
    }

    /// Returns the number of living producers.
    pub(crate) fn living(&self, _: ReceiverHeld<'_>, lives: &dyn Liveness) -> usize {
        let living = |record: &&ProducerRecord| is_living(lives, record);
        self.records.iter().filter(living).count()
    }

    /// Returns the process ids, births and numbers of guards in the records, without the lock: for a diagnosis.
    pub fn recorded(&self) -> impl Iterator<Item = (u32, u64, u32)> {
        let records = self.records.iter();
        let read = |record: &ProducerRecord| {
            let (pid, birth) = (record.pid.get(), record.birth.get());
            (pid, birth, record.guards.get())
        };
        records.map(read).filter(|(pid, ..)| *pid != 0)
    }

    /// Returns whether a process has been a producer since the queue was created or reopened.
    pub(crate) fn had_any(&self, _: ReceiverHeld<'_>) -> bool {
        self.any.get() != 0
    }

    /// Returns whether the queue had producers and none of them lives. Makes system calls.
    pub(crate) fn are_gone(&self, receiving: ReceiverHeld<'_>, lives: &dyn Liveness) -> bool {
        self.had_any(receiving) && !self.records.iter().any(|record| is_living(lives, record))
    }

    /// Forgets the dead producers when a queue that was closed for sending is reopened: from then on, the queue counts only the producers that are
    /// alive now.
    pub(crate) fn forget_dead(&self, receiving: ReceiverHeld<'_>, lives: &dyn Liveness) {
        self.any.set((self.living(receiving, lives) != 0).into());
    }

    /// Returns the record of the calling process, if it has one.
    fn own(&self, lives: &dyn Liveness, me: &Thread) -> Option<&ProducerRecord> {
        // The process may have got its liveness id after it was recorded, so its birth is compared in both forms.
        let (pid, births) = (me.pid(), [birth(lives, me), process::birth(me.pid())]);
        let is_own = |record: &&ProducerRecord| {
            record.pid.get() == pid && births.contains(&record.birth.get())
        };
        self.records.iter().find(is_own)
    }
}

fn is_living(lives: &dyn Liveness, record: &ProducerRecord) -> bool {
    let (pid, birth) = (record.pid.get(), record.birth.get());
    let is_dead = |birth| process::is_dead(pid, birth);
    pid != 0 && !liveness::is_dead(lives, birth, is_dead)
}

fn birth(lives: &dyn Liveness, me: &Thread) -> u64 {
    liveness::birth(lives, || process::birth(me.pid()))
}

/// The pause of a handle, in nanoseconds, between two checks whether a producer lives. A check takes some microseconds.
const PAUSE: u64 = 1_000_000;

/// The time, on the coarse monotonic clock, from which a handle may check again whether a producer lives. Without this limit, a receiver that tries
/// repeatedly would check each time.
#[derive(Debug, Default)]
pub(crate) struct NextQuery(AtomicU64);

impl NextQuery {
    /// Returns whether the time for the next check seems to have come. The result is a hint, read without the lock.
    pub(crate) fn seems_due(&self) -> bool {
        // Relaxed: the value is a hint.
        cfg!(loom) || self.0.load(Ordering::Relaxed) <= clock::monotonic_coarse()
    }

    /// Returns whether the time for the next check has come. If so, the next pause begins.
    pub(crate) fn is_due(&self, _: ReceiverHeld<'_>) -> bool {
        // A model checks each time: each interleaving matters, and time does not pass.
        if cfg!(loom) {
            return true;
        }
        let now = clock::monotonic_coarse();
        // Relaxed: the lock is held, and the value only limits how often a check runs.
        let is_due = self.0.load(Ordering::Relaxed) <= now;
        if is_due {
            self.0.store(now + PAUSE, Ordering::Relaxed);
        }
        is_due
    }
}
