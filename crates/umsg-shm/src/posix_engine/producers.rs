//! Producers: processes that are counted, so that the end of the last one closes the queue for sending.
//!
//! A record names a process and counts its guards. A process that ends without giving its guards back is found dead by a receiver that
//! finds the queue empty, or at the end of the slice of a blocked one. The queue is closed as by [`Engine::close_send`].
//!
//! | a record with | means | if the process dies |
//! |---|---|---|
//! | `pid` 0 | nothing | - |
//! | `pid` | a process with `guards` guards | it counts no more; the next process that counts may take the record |

use super::segment::producers::ProducerRecord;
use super::{DeferredWakes, Engine, Refused};
use crate::crash::crash_point;
use crate::doorbell::Watched;
use crate::lock::tokens::{BothHeld, ReceiverHeld};
use crate::sys::clock::{self, Deadline};
use crate::sys::liveness;
use crate::sys::process;
use crate::sys::thread::Thread;
use std::sync::atomic::Ordering::Relaxed;

/// The pause between two queries of a process whether its producers live, in nanoseconds: a query takes some microseconds.
const PAUSE: u64 = 1_000_000;

impl Engine {
    /// Returns the number of living processes that count as producers.
    pub fn producers(&self, me: &Thread) -> Result<usize, Refused> {
        self.with_receiver_lock(me, Deadline::Passed, |receiving, _| {
            Ok(self.living_producers(receiving).count())
        })
    }

    /// Counts the calling process as a producer once more. Returns false if too many processes count.
    pub fn begin_to_produce(&self, me: &Thread) -> Result<bool, Refused> {
        liveness::register(self.segment());
        self.with_receiver_lock(me, Deadline::Never, |receiving, _| {
            self.check_open(receiving)?;
            let producers = &self.segment().fixed().producers;
            if let Some(own) = self.own_record(me) {
                own.guards.set(own.guards.get().saturating_add(1));
                return Ok(true);
            }
            let is_free = |record: &&ProducerRecord| !self.is_living(record);
            let Some(record) = producers.records.iter().find(is_free) else {
                return Ok(false);
            };
            record.pid.set(0);
            record.birth.set(self.birth(me));
            record.guards.set(1);
            record.pid.set(me.pid());
            crash_point!(PRODUCER_NAMED);
            producers.any.set(1);
            crash_point!(PRODUCER_COUNTED);
            self.ringer().call_timekeepers(receiving);
            Ok(true)
        })
    }

    /// Counts the calling process once less. The last producer closes the queue. Returns false if the process did not count.
    pub fn end_producing(&self, me: &Thread) -> Result<bool, Refused> {
        self.change_closing(me, |engine, both, wakes| {
            let Some(own) = engine.own_record(me) else {
                return false;
            };
            let left = own.guards.get().saturating_sub(1);
            own.guards.set(left);
            if left == 0 {
                own.pid.set(0);
                crash_point!(PRODUCER_ENDED);
                if engine.is_left(both.receiver()) {
                    engine.set_send_closed(both, me, wakes);
                }
            }
            true
        })
    }

    /// Closes the queue if all its producers have died.
    pub(super) fn close_if_left(
        &self,
        receiving: ReceiverHeld<'_>,
        me: &Thread,
        wakes: &mut DeferredWakes,
    ) {
        if !self.may_be_left(receiving) || !self.is_time_to_look() || !self.is_left(receiving) {
            return;
        }
        // This fails beside a stopped sender, which is a producer that lives: a later call closes the queue.
        if let Ok(both) = self.borrow_sender_lock(receiving, me, Deadline::Passed) {
            self.set_send_closed(both, me, wakes);
            self.segment().fixed().sender.lock.give_back();
        }
    }

    /// Returns whether the queue is open and had producers, whose end closes it.
    pub(super) fn may_be_left(&self, _: ReceiverHeld<'_>) -> bool {
        self.policy().close_with_producers
            && !self.is_send_closed()
            && self.segment().fixed().producers.any.get() != 0
    }

    /// Returns whether the queue is open, had producers, and has none any more. Asks the system.
    fn is_left(&self, receiving: ReceiverHeld<'_>) -> bool {
        self.may_be_left(receiving) && self.living_producers(receiving).next().is_none()
    }

    /// Returns whether this process has not asked the system for a moment. A receiver that tries again and again would ask each time.
    fn is_time_to_look(&self) -> bool {
        // Each interleaving of a model matters, and none takes time.
        if cfg!(loom) {
            return true;
        }
        let now = clock::monotonic_coarse();
        // Relaxed: under the receiver lock, and only a pause.
        let is_time = self.look_for_producers.load(Relaxed) <= now;
        if is_time {
            self.look_for_producers.store(now + PAUSE, Relaxed);
        }
        is_time
    }

    /// Begins another stream: only producers that live count.
    pub(super) fn forget_dead_producers(&self, both: BothHeld<'_>) {
        let has_living = self.living_producers(both.receiver()).next().is_some();
        self.segment().fixed().producers.any.set(has_living.into());
    }

    fn living_producers<'a>(
        &'a self,
        _: ReceiverHeld<'_>,
    ) -> impl Iterator<Item = &'a ProducerRecord> + use<'a> {
        let records = self.segment().fixed().producers.records.iter();
        records.filter(|record| self.is_living(record))
    }

    fn is_living(&self, record: &ProducerRecord) -> bool {
        let (pid, birth) = (record.pid.get(), record.birth.get());
        let is_dead = |birth| process::is_dead(pid, birth);
        pid != 0 && !liveness::is_dead(self.segment(), birth, is_dead)
    }

    /// Returns the record of the calling process.
    fn own_record(&self, me: &Thread) -> Option<&ProducerRecord> {
        // The process may have got its liveness id since it counted.
        let (pid, births) = (me.pid(), [self.birth(me), process::birth(me.pid())]);
        let is_own = |record: &&ProducerRecord| {
            record.pid.get() == pid && births.contains(&record.birth.get())
        };
        self.segment().fixed().producers.records.iter().find(is_own)
    }

    fn birth(&self, me: &Thread) -> u64 {
        liveness::birth(self.segment(), || process::birth(me.pid()))
    }
}
