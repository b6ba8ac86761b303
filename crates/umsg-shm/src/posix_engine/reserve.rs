//! Reservations: a sender writes a message in place.
//!
//! A reservation takes a slot from the end of the free slots, as a blocked sender does. From then on, the slot counts towards the queue's capacity. A
//! commit puts the message into the store, after all messages that were sent before. A slow holder blocks no thread, because the ring contains only
//! written messages.

use super::batch::Turn;
use super::found::FoundMessage;
use super::held_messages::LeaseHandle;
use super::{DeferredWakes, Engine, Refused};
use crate::arena;
use crate::crash::crash_point;
use crate::doorbell::Watched;
use crate::fault::Fault;
use crate::leases::LeaseRecord;
use crate::leases::{self, Leases, State};
use crate::lock::tokens::{BothHeld, ReceiverHeld};
use crate::posix_engine::Priorities;
use crate::posix_engine::segment::{OnFull, PRIORITIES};
use crate::sys::clock::Deadline;
use crate::sys::liveness;
use crate::sys::thread::Thread;
use crate::waiters::{List, Waiters};

/// A sender that waits for its turn to make a reservation.
struct Reserve {
    len: usize,
}

impl Turn for Reserve {
    type Outcome = LeaseHandle;

    fn wanted(&self) -> u64 {
        1
    }

    fn take(
        &mut self,
        both: BothHeld<'_>,
        engine: &Engine,
        me: &Thread,
    ) -> Result<LeaseHandle, Refused> {
        engine.reserve_slot(both, me, self.len)
    }
}

impl Engine {
    /// Reserves room for a message of up to `len` bytes if the queue has room now.
    pub fn try_reserve(
        &self,
        me: &Thread,
        len: usize,
        deadline: Deadline,
    ) -> Result<LeaseHandle, Refused> {
        liveness::register(self.segment());
        match self.try_reserve_room(me, len, deadline) {
            // The priority of the message is not known yet. So the queue may drop messages of every priority to make room.
            Err(Refused::NotNow) if self.policy().on_full == OnFull::DropOldest => {
                self.make_room(me, PRIORITIES, deadline)?;
                self.try_reserve_room(me, len, deadline)
            }
            other => other,
        }
    }

    fn try_reserve_room(
        &self,
        me: &Thread,
        len: usize,
        deadline: Deadline,
    ) -> Result<LeaseHandle, Refused> {
        // A dead receiver may have made room without publishing it. The next owner of the dead receiver's lock repairs the queue and publishes the
        // room.
        let was_left = self.segment().fixed().receiver.lock.is_orphaned();
        let may_be_closed = self.may_be_closed();
        if !(self.seems_to_hold_room(1) || self.may_reclaim() || was_left || may_be_closed) {
            return Err(Refused::NotNow);
        }
        self.with_receiver_lock(me, deadline, |receiving, wakes| {
            self.check_producers(receiving, me, wakes)?;
            if self.may_reclaim() {
                self.reclaim_and_serve(receiving, wakes)?;
            } else if !self.no_sender_waits() {
                // The room may be kept for a batch whose sender is dead.
                self.serve(receiving, wakes)?;
                self.update_wait_flags(receiving);
            }
            let both = self.borrow_sender_lock(receiving, me, deadline)?;
            let result = match self.may_reserve(both) {
                true => self.reserve_slot(both, me, len),
                false => Err(Refused::NotNow),
            };
            self.segment().fixed().sender.lock.give_back();
            result
        })
    }

    /// Reserves room for a message. Waits for room until `deadline`.
    pub fn reserve(
        &self,
        me: &Thread,
        len: usize,
        deadline: Deadline,
    ) -> Result<LeaseHandle, Refused> {
        let attempt = || loop {
            match self.try_reserve(me, len, deadline) {
                // The sender lock belongs to a thread that is stopped. This thread waits for the lock in `lock_sender`, where it blocks no receiver.
                Err(Refused::Fault(Fault::Busy)) if !deadline.has_passed() => {
                    self.lock_sender(me, deadline)?.unlock();
                }
                other => return other,
            }
        };
        match attempt() {
            Err(Refused::NotNow) => self.wait_for_room(me, 1, deadline, attempt, |calm| {
                self.block_for_turn(me, &mut Reserve { len }, calm, deadline)
            }),
            other => other.map_err(|refused| refused.by(deadline)),
        }
    }

    /// Returns whether the caller may reserve a slot: no sender waits, and the queue is not full.
    fn may_reserve(&self, both: BothHeld<'_>) -> bool {
        let position = self.segment().fixed().sender.next_position(both.sender());
        Waiters::of(self.segment()).len(List::Senders) == 0 && self.has_room(position)
    }

    /// Reserves a slot. The caller has checked that the queue has room.
    fn reserve_slot(
        &self,
        both: BothHeld<'_>,
        me: &Thread,
        len: usize,
    ) -> Result<LeaseHandle, Refused> {
        let (fixed, receiving) = (self.segment().fixed(), both.receiver());
        let (slot, cell) = self.take_free_slot(both)?;
        crash_point!(RESERVE_SLOT_TAKEN);
        let record = match len > self.segment().layout().inline() {
            true => arena::ensure(self.segment(), both.sender(), slot, cell.block(), len),
            false => Ok(()),
        }
        .and_then(|()| Leases::of(self.segment()).claim_own(receiving, me, slot, 0));
        let (index, record) = match record {
            Ok(claimed) => claimed,
            Err(fault) => {
                self.free_slot(receiving, slot);
                return Err(fault.into());
            }
        };
        fixed.published.count_entered(receiving, 0);
        leases::set(record, State::Reserved);
        crash_point!(RESERVE_HELD);
        self.count_kind(receiving, State::Reserved, 1);
        self.count_held(receiving, 1);
        self.publish_counts(receiving);
        // Senders may have read the room before this reservation took a part of it, so they must check again.
        fixed.forget_room(both);
        let found = FoundMessage::in_place(slot, cell, len);
        Ok(self.handle(index, record, &found))
    }

    /// Sends the message of `len` bytes in the reserved slot. Returns false if the reservation has ended.
    pub fn commit(
        &self,
        me: &Thread,
        handle: &LeaseHandle,
        len: usize,
        key: usize,
    ) -> Result<bool, Refused> {
        self.prepare_commit(me, key, Deadline::Never)?;
        self.with_receiver_lock(me, Deadline::Never, |receiving, wakes| {
            self.begin_to_send(receiving, me, wakes)?;
            match self.reserved(handle)? {
                Some(record) => {
                    self.commit_locked(receiving, me, handle, record, (len, key), wakes)?
                }
                None => return Ok(false),
            }
            Ok(true)
        })
    }

    /// Allocates the page with the list head of the message's priority.
    pub(super) fn prepare_commit(
        &self,
        me: &Thread,
        key: usize,
        deadline: Deadline,
    ) -> Result<(), Fault> {
        // The sender lock may belong to a thread that is stopped. This thread waits for the lock before it takes the receiver lock, so it blocks no
        // receiver.
        let held = self.lock_sender(me, deadline)?;
        let ready = self.provide_fifo(key);
        held.unlock();
        ready
    }

    fn commit_locked(
        &self,
        receiving: ReceiverHeld<'_>,
        me: &Thread,
        handle: &LeaseHandle,
        record: &LeaseRecord,
        (len, key): (usize, usize),
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        let slot = record.slot.get();
        let cell = self.segment().cell(slot)?;
        self.segment().shorten(cell, handle.len, len)?;
        self.describe(me, cell, len, key);
        // The messages in the ring were sent before this message, so they enter the store first.
        self.drain(receiving)?;
        self.foretell_doorbell(receiving, 1, 0);
        let published = &self.segment().fixed().published;
        published.count_entered_bytes(receiving, len);
        self.mark_stored(receiving, cell);
        crash_point!(COMMIT_MARKED);
        Priorities::of(self.segment()).push_back(receiving, key, slot)?;
        self.count_stored(receiving, len as u64, 1);
        self.release_record(receiving, handle.index, record)?;
        crash_point!(COMMIT_ENDED);
        self.serve(receiving, wakes)?;
        self.update_wait_flags(receiving);
        Ok(())
    }

    /// Gives a reserved slot back. Returns false if the reservation has ended.
    pub fn cancel(
        &self,
        me: &Thread,
        handle: &LeaseHandle,
        deadline: Deadline,
    ) -> Result<bool, Refused> {
        self.with_receiver_lock(me, deadline, |receiving, wakes| {
            let Some(record) = self.reserved(handle)? else {
                return Ok(false);
            };
            let slot = record.slot.get();
            self.segment().cell(slot)?;
            self.foretell_doorbell(receiving, 0, 1);
            self.release_record(receiving, handle.index, record)?;
            crash_point!(CANCEL_ENDED);
            self.free_held(receiving, slot, wakes);
            Ok(true)
        })
    }

    pub(super) fn reserved(&self, handle: &LeaseHandle) -> Result<Option<&LeaseRecord>, Fault> {
        Leases::of(self.segment()).find(handle.index, handle.ticket, State::Reserved)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::posix_engine::segment::testing;
    use crate::sys::thread;
    use std::sync::mpsc;
    use std::time::Duration;

    /// Runs `work` while another thread holds the sender lock for `time`, like a stopped sender.
    fn beside_a_stopped_sender<T: Send>(
        engine: &Engine,
        time: Duration,
        work: impl FnOnce() -> T + Send,
        meanwhile: impl FnOnce(),
    ) -> T {
        let (ready, is_ready) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let held = engine.lock_sender(thread::current(), Deadline::Never);
                ready.send(()).unwrap();
                let _ = may_go_on.recv();
                held.unwrap().unlock();
            });
            is_ready.recv().unwrap();
            let worker = scope.spawn(work);
            std::thread::sleep(time / 2);
            meanwhile();
            std::thread::sleep(time / 2);
            drop(go_on);
            worker.join().unwrap()
        })
    }

    #[test]
    fn a_commit_beside_a_stopped_sender_stops_no_receiver() {
        let engine = Engine::new(testing::segment(4, 8));
        let room = engine
            .reserve(thread::current(), 8, Deadline::Never)
            .unwrap();
        let commit = || engine.commit(thread::current(), &room, 8, 0);
        let committed =
            beside_a_stopped_sender(&engine, Duration::from_millis(100), commit, || {
                for _ in 0..5 {
                    let soon = Deadline::after(Duration::from_millis(50));
                    let locked = engine.with_receiver_lock(thread::current(), soon, |_, _| Ok(()));
                    assert_eq!(locked, Ok(()));
                }
            });
        assert_eq!(committed, Ok(true));
    }

    #[test]
    fn a_reservation_waits_for_a_stopped_sender() {
        let engine = Engine::new(testing::segment(4, 8));
        let reserve = || engine.reserve(thread::current(), 8, Deadline::Never);
        let room = beside_a_stopped_sender(&engine, Duration::from_millis(300), reserve, || ());
        assert!(room.is_ok(), "{room:?}");
    }
}
