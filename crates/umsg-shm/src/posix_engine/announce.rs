//! A send to an empty queue that processes poll: the sender rings without the locks.
//!
//! A process that shares the sender's processor wakes up as soon as the doorbell is rung, and interrupts the sender. If the
//! sender had the lock, the two would exchange the processor twice more for each message. So the sender writes its message
//! into the slot that comes next, *announces* it, releases the locks, rings, and then sends the message:
//!
//! | sender | poller |
//! |---|---|
//! | under both locks: fills the slot, notes the announcement | |
//! | rings | |
//! | | wakes up, takes both locks, and receives the announced message |
//! | sees that no message is announced any more | |
//!
//! Each process that takes the receiver lock sends an announced message before its own work. It shows the message on the
//! doorbell first, because the sender may have died before it rang. A receiver takes the message at once: the step that
//! moves `drained` past the message sends it and receives it, so that it is never in the queue without being shown.
//!
//! The sender's packet may come after another process has counted the packets in the FIFO. The sender then counts them again.
//! Meanwhile no other sender announces, so that at most one packet is unaccounted for.

use super::policy::Selection;
use super::receive::{Place, Taken};
use super::{DeferredWakes, Engine, Refused};
use crate::crash::crash_point;
use crate::doorbell::{PollFifo, Watched};
use crate::fault::Fault;
use crate::lock::STOPPED;
use crate::lock::tokens::{BothHeld, ReceiverHeld, SenderHeld};
use crate::posix_engine::segment::Ring;
use crate::sys::clock::Deadline;
use crate::sys::thread::Thread;
use crate::waiters::{List, Waiters};

/// An announced message whose sender has not rung.
struct Announced<'a> {
    position: u64,
    fifo: PollFifo<'a>,
}

/// Defers handlers of signals.
struct Section<'a>(&'a Thread);

impl Section<'_> {
    fn begin(me: &Thread) -> Section<'_> {
        me.critical.enter();
        Section(me)
    }
}

impl Drop for Section<'_> {
    fn drop(&mut self) {
        self.0.critical.leave();
    }
}

impl Engine {
    /// Sends one message if there is room, and rings for pollers.
    #[cold]
    pub(super) fn send_watched(
        &self,
        me: &Thread,
        (message, key): (&[u8], usize),
        deadline: Deadline,
    ) -> Result<(), Refused> {
        let mut section = None;
        self.let_ringer_finish(me);
        let announced = self.with_receiver_lock(me, deadline, |receiving, wakes| {
            self.begin_to_send(receiving, me, wakes)?;
            let both = self.borrow_sender_lock(receiving, me, deadline)?;
            match self.announce(both, me, message, key) {
                Ok(None) => {
                    let send = |engine: &Engine, sending: SenderHeld<'_>| {
                        engine.send_locked(sending, me, message, key)
                    };
                    self.send_borrowed(both, 1, wakes, send).map(|()| None)
                }
                announced => {
                    // A handler that left the call by a jump after the unlock would leave a message that is not shown. The wait for the
                    // lock defers no handler.
                    section = Some(Section::begin(me));
                    self.segment().fixed().sender.lock.give_back();
                    announced
                }
            }
        })?;
        if let Some(Announced { position, fifo }) = announced {
            crash_point!(BELL_UNRUNG);
            let is_rung = fifo.write();
            drop(fifo);
            crash_point!(BELL_UNSENT);
            self.finish_announced(me, position, is_rung, deadline);
        }
        drop(section);
        Ok(())
    }

    /// Writes a message and announces it. None if the message can't be announced.
    fn announce(
        &self,
        both: BothHeld<'_>,
        me: &Thread,
        message: &[u8],
        key: usize,
    ) -> Result<Option<Announced<'_>>, Refused> {
        let sender = &self.segment().fixed().sender;
        let position = sender.next_position(both.sender());
        if !self.may_announce(both, position) {
            return Ok(None);
        }
        let Some(fifo) = self.ringer().fifo_for_announcement(both.receiver()) else {
            return Ok(None);
        };
        let (slot, cell) = Ring::of(self.segment()).slot(position)?;
        self.fill(both.sender(), me, slot, cell, message, key)?;
        self.begin_run(both.sender(), position, key)?;
        sender.prepare_bytes(both.sender(), position, message.len());
        self.ringer().announce(both.receiver(), position);
        Ok(Some(Announced { position, fifo }))
    }

    /// Returns whether pollers alone wait for the message at `position`, and it can be sent by another process.
    fn may_announce(&self, both: BothHeld<'_>, position: u64) -> bool {
        let receiving = both.receiver();
        let fixed = self.segment().fixed();
        self.is_simple(receiving)
            && self.level(receiving).messages == 0
            && self.has_room(position)
            && fixed.has_free_slots(both.sender(), position, 1)
    }

    /// Returns whether no thread waits in the queue, and no process is registered with it.
    fn is_simple(&self, _: ReceiverHeld<'_>) -> bool {
        let waiters = Waiters::of(self.segment());
        let waiting = [List::Receivers, List::Senders, List::Offered].map(|list| waiters.len(list));
        waiting == [0; 3]
            && self.segment().fixed().receiver.registration() == 0
            && !self.is_send_closed()
    }

    /// Returns whether a message is announced and not sent.
    pub(super) fn has_announced(&self, receiving: ReceiverHeld<'_>) -> bool {
        // While a message is announced, the cursor moves under the receiver lock only.
        let next = self.segment().fixed().sender.sent_hint();
        self.ringer().has_announced(receiving, next)
    }

    /// Returns whether a message is announced and not sent, read without the lock. The descriptor shows the message already.
    pub(super) fn seems_announced(&self) -> bool {
        let fixed = self.segment().fixed();
        let next = fixed.sender.sent_hint();
        fixed.published.announcement.is_of(next)
    }

    /// Sends the announced message, if its sender has not, after the sender has rung.
    fn finish_announced(&self, me: &Thread, position: u64, is_rung: bool, deadline: Deadline) {
        if !self
            .segment()
            .fixed()
            .published
            .announcement
            .is_of(position)
        {
            // Another process has received the message, and taken back the packet.
            return;
        }
        let patience = deadline.or_slice(STOPPED);
        // If the lock can't be had, its next owner sends the message.
        let _ = self.with_receiver_lock_alone(me, patience, |receiving, wakes| {
            let fixed = self.segment().fixed();
            if !fixed.published.announcement.is_of(position) {
                return Ok(());
            }
            if self.has_announced(receiving) {
                if !is_rung {
                    self.ringer()
                        .show_announced(receiving, self.level(receiving));
                }
                self.publish_announced(receiving, me, patience, wakes)?;
            }
            self.ringer()
                .end_ringing(receiving, is_rung, self.level(receiving));
            Ok(())
        });
    }

    /// Sends a message that is announced, before the owner of the receiver lock does its own work.
    #[inline(always)]
    pub(super) fn send_announced_first(
        &self,
        receiving: ReceiverHeld<'_>,
        me: &Thread,
        deadline: Deadline,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Refused> {
        match self.segment().fixed().receiver.has_announced(receiving) {
            true => self.send_announced(receiving, me, deadline, wakes),
            false => Ok(()),
        }
    }

    /// Shows and sends the announced message for its sender.
    #[cold]
    fn send_announced(
        &self,
        receiving: ReceiverHeld<'_>,
        me: &Thread,
        deadline: Deadline,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Refused> {
        if self.has_announced(receiving) {
            self.ringer()
                .show_announced(receiving, self.level(receiving));
            return match self.publish_announced(receiving, me, deadline, wakes) {
                // A sender is stopped with its lock, or this thread was interrupted with it. The message waits: each call that gets the lock
                // sends it first.
                Err(Refused::Fault(Fault::Busy | Fault::OwnedByCaller)) => Ok(()),
                other => other,
            };
        }
        // The process that sent the message died before it ended the announcement.
        self.ringer().end_announcement(receiving);
        Ok(())
    }

    /// Sends the announced message, which the doorbell shows.
    fn publish_announced(
        &self,
        receiving: ReceiverHeld<'_>,
        me: &Thread,
        deadline: Deadline,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Refused> {
        let both = self.borrow_beside_announced(receiving, me, deadline)?;
        let published = self.publish_borrowed(both);
        self.segment().fixed().sender.lock.give_back();
        self.ringer().end_announcement(receiving);
        published?;
        self.serve_sent(receiving, wakes);
        Ok(())
    }

    /// Shows and sends the announced message under both locks, before the caller's own work. An error gives the sender lock back.
    #[cold]
    pub(super) fn send_announced_borrowed(&self, both: BothHeld<'_>) -> Result<(), Refused> {
        let receiving = both.receiver();
        let sent = match self.has_announced(receiving) {
            true => {
                self.ringer()
                    .show_announced(receiving, self.level(receiving));
                self.publish_borrowed(both)
            }
            false => Ok(()),
        };
        self.ringer().end_announcement(receiving);
        if sent.is_err() {
            self.segment().fixed().sender.lock.give_back();
        }
        Ok(sent?)
    }

    fn publish_borrowed(&self, both: BothHeld<'_>) -> Result<(), Fault> {
        let sender = &self.segment().fixed().sender;
        let position = sender.next_position(both.sender());
        let (slot, cell) = Ring::of(self.segment()).slot(position)?;
        self.found(slot, cell, Place::Ring)?;
        Ring::publish(cell, position);
        crash_point!(SEND_PUBLISHED);
        sender.move_cursor(both.sender(), position.wrapping_add(1));
        crash_point!(SEND_COUNTED);
        Ok(())
    }

    /// Sends the announced message of a queue that is being salvaged, if it is whole.
    #[cfg(not(loom))]
    pub(super) fn salvage_announced(&self, both: BothHeld<'_>) {
        if self.has_announced(both.receiver()) && self.publish_borrowed(both).is_err() {
            // A message that is not whole is lost, like others.
            self.ringer().forget_announcement(both.receiver());
        }
        self.ringer().end_announcement(both.receiver());
    }

    /// Receives the announced message. None if it is not the next one, or has to be sent in another way: then it is sent.
    #[cold]
    pub(super) fn receive_announced(
        &self,
        receiving: ReceiverHeld<'_>,
        me: &Thread,
        buffer: &mut [u8],
        wakes: &mut DeferredWakes,
    ) -> Result<Option<Taken>, Refused> {
        if !self.may_receive_announced(receiving) {
            self.send_announced(receiving, me, Deadline::Passed, wakes)?;
            return Ok(None);
        }
        let both = match self.borrow_beside_announced(receiving, me, Deadline::Passed) {
            // As in `send_announced`: the receiver waits for the message as if it were not written yet.
            Err(Refused::Fault(Fault::Busy | Fault::OwnedByCaller)) => return Ok(None),
            both => both?,
        };
        let taken = self.take_announced(both, buffer);
        self.segment().fixed().sender.lock.give_back();
        let taken = taken?;
        self.ringer().end_announcement(receiving);
        self.publish_counts(receiving);
        crash_point!(RECEIVE_ADMITTED);
        Ok(Some(taken))
    }

    fn may_receive_announced(&self, receiving: ReceiverHeld<'_>) -> bool {
        let fixed = self.segment().fixed();
        let receiver = &fixed.receiver;
        self.has_announced(receiving)
            && self.is_simple(receiving)
            && self.selection == Selection::Strict
            && self.policy().time_to_live == 0
            && !self.holds_any()
            && receiver.stored(receiving) == 0
            && receiver.drained(receiving) == fixed.sender.sent_hint()
    }

    fn take_announced(&self, both: BothHeld<'_>, buffer: &mut [u8]) -> Result<Taken, Fault> {
        let sender = &self.segment().fixed().sender;
        let position = sender.next_position(both.sender());
        let (slot, cell) = Ring::of(self.segment()).slot(position)?;
        let found = self.found(slot, cell, Place::Ring)?;
        // If this process dies in between, the repair of the senders' side moves the cursor, because `drained` has passed it.
        let taken = self.consume(both.receiver(), &found, buffer)?;
        sender.move_cursor(both.sender(), position.wrapping_add(1));
        crash_point!(SEND_COUNTED);
        Ok(taken)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::posix_engine::WATCHED;
    use crate::posix_engine::segment::testing;
    use crate::sys::thread;
    use std::sync::mpsc;
    use std::time::Duration;

    /// Announces a message, as a sender does that is killed before it rings.
    fn announce(engine: &Engine, message: &[u8]) {
        let me = thread::current();
        let announced = engine.with_receiver_lock(me, Deadline::Never, |receiving, _| {
            let both = engine.borrow_sender_lock(receiving, me, Deadline::Never)?;
            let sender = &engine.segment().fixed().sender;
            let position = sender.next_position(both.sender());
            let (slot, cell) = Ring::of(engine.segment()).slot(position)?;
            engine.fill(both.sender(), me, slot, cell, message, 0)?;
            sender.prepare_bytes(both.sender(), position, message.len());
            engine.ringer().announce(receiving, position);
            engine.set_attention(receiving, WATCHED, WATCHED);
            sender.lock.give_back();
            Ok(())
        });
        assert_eq!(announced, Ok(()));
    }

    /// Runs `work` beside a thread that holds the sender lock for this time.
    fn beside_a_slow_sender<T>(engine: &Engine, time: Duration, work: impl FnOnce() -> T) -> T {
        let (ready, is_ready) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let held = engine.lock_sender(thread::current(), Deadline::Never);
                ready.send(()).unwrap();
                std::thread::sleep(time);
                held.unwrap().unlock();
            });
            is_ready.recv().unwrap();
            work()
        })
    }

    fn receive_all(engine: &Engine) -> Vec<u8> {
        let mut buffer = [0; 8];
        let mut receive = || engine.try_receive(thread::current(), &mut buffer, Deadline::Passed);
        let lens = std::iter::from_fn(|| receive().ok().map(|taken| taken.len as u8));
        lens.collect()
    }

    /// The sender lock comes free between a call's first attempt, which takes a slice, and its second one.
    #[test]
    fn a_message_that_is_sent_beside_a_slow_sender_takes_no_announced_slot() {
        let engine = Engine::new(testing::segment(4, 8));
        announce(&engine, b"m");
        let by = Deadline::after(Duration::from_secs(10));
        let send = || engine.send(thread::current(), b"nn", 0, by);
        let sent = beside_a_slow_sender(&engine, Duration::from_millis(150), send);
        assert_eq!(sent, Ok(()));
        assert_eq!(receive_all(&engine), [1, 2]);
    }

    #[test]
    fn a_receiver_beside_a_slow_sender_waits_for_the_announced_message() {
        let engine = Engine::new(testing::segment(4, 8));
        announce(&engine, b"m");
        let mut buffer = [0; 8];
        let receive = || engine.receive(thread::current(), &mut buffer, Deadline::Never);
        let received = beside_a_slow_sender(&engine, Duration::from_millis(350), receive);
        assert_eq!(received.map(|taken| taken.len), Ok(1));
    }

    #[test]
    fn a_poll_that_does_not_wait_reports_an_announced_message() {
        let engine = Engine::new(testing::segment(4, 8));
        assert!(!engine.readiness(thread::current()).readable);
        announce(&engine, b"m");
        assert!(engine.readiness(thread::current()).readable);
        assert_eq!(receive_all(&engine), [1]);
        assert!(!engine.readiness(thread::current()).readable);
    }
}
