//! The engine's part of [`crate::doorbell`]: informs pollers of messages and room.
//!
//! While a queue is polled, calls change it only under the receiver lock. A sender finds the flag of a polled queue under the sender lock, before it
//! publishes its message. The sender then releases the sender lock, takes the receiver lock, borrows the sender lock, and shows the coming level on
//! the doorbell. The flag is set under both locks. So when the doorbell first shows the level, each send that did not see the flag has ended.
//!
//! A send to a blocked receiver does not change the level for a poller, so the sender does not ring. A receive that makes room for a blocked sender
//! does not ring, either. Linux behaves in the same way.

use super::{COUNTED, DELAYED, Engine, Refused, SEND_CLOSED, WATCHED};
use crate::crash::crash_point;
#[cfg(loom)]
use crate::doorbell::Feed;
use crate::doorbell::{Deferred, Level, MESSAGES_LATER, ROOM_LATER, Readiness, Ringer, Watched};
use crate::leases;
use crate::lock::STOPPED;
use crate::lock::deferred_wakes::DeferredWakes;
use crate::lock::tokens::{BothHeld, ReceiverHeld, SenderHeld};
use crate::posix_engine::segment::OnFull;
use crate::sync::Ordering;
use crate::sys::clock::Deadline;
use crate::sys::thread::Thread;
use crate::waiters::{List, Waiters};
use std::cell::Cell;

/// The bits of the attention word of a queue that is polled or closed for sending. If one of the bits is set, a send takes the receiver lock.
pub(super) const RINGING: u32 = WATCHED | SEND_CLOSED;

/// The bits with which a send leaves the plain case. In addition to `RINGING`, these bits show that the death of a producer may close the queue for
/// sending, or that a message is delayed.
pub(super) const DETOUR: u32 = RINGING | COUNTED | DELAYED;

/// A section of code in which signal handlers are deferred.
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

impl Watched for Engine {
    fn ringer(&self) -> Ringer<'_> {
        let fixed = self.segment().fixed();
        let receiver = &fixed.receiver;
        receiver.ringer(&fixed.published.deferred_ring, &self.doorbell)
    }

    fn level(&self, receiving: ReceiverHeld<'_>) -> Level {
        let room = match self.policy().on_full {
            // A queue that is closed for sending shows room, so that a poller tries to send, and finds that the queue is closed.
            _ if self.is_send_closed() => 1,
            OnFull::DropOldest => 1,
            // While a sender waits, the room belongs to that sender or is kept for its batch, so pollers see no room.
            _ if !self.no_sender_waits() => 0,
            _ => self.room_now(receiving).max(0) as u64,
        };
        // At the end of the stream, the queue shows a message, so that a poller tries to receive, and finds the end.
        let messages = self.available().max(self.is_at_end(receiving).into());
        self.ringer().with_looks(messages, room)
    }

    fn is_taken(&self, messages: i64, room: i64) -> bool {
        let waiters = Waiters::of(self.segment());
        messages > 0 && waiters.len(List::Receivers) != 0
            || room > 0 && waiters.len(List::Senders) != 0
    }

    fn keeps_time(&self) -> bool {
        let policy = self.policy();
        policy.close_with_producers || policy.retry_delay[0] != 0
    }

    fn later(&self) -> u32 {
        self.segment().fixed().leases.later()
    }

    fn set_later(&self, receiving: ReceiverHeld<'_>, changes: u32) {
        self.segment().fixed().leases.note_later(receiving, changes);
    }

    fn held(&self, _: ReceiverHeld<'_>) -> u32 {
        let fixed = self.segment().fixed();
        // Relaxed: the caller holds the receiver lock.
        let reserved = fixed.leases.reserved.load(Ordering::Relaxed);
        let aside = leases::in_the_way(fixed.leases.aside.load(Ordering::Relaxed));
        let delayed = fixed.leases.delayed.load(Ordering::Relaxed);
        let others = [reserved, aside, delayed].map(u64::from).iter().sum();
        let leased = fixed.receiver.held() > others;
        let kind = |is: bool, kind: u32| if is { kind } else { 0 };
        kind(leased, MESSAGES_LATER) | kind(reserved != 0, ROOM_LATER)
    }

    fn end_watch(&self, receiving: ReceiverHeld<'_>) {
        self.set_attention(receiving, WATCHED, 0);
    }
}

impl Engine {
    /// Returns whether a process polls, or the queue is closed for sending. Under the sender lock, the result `false` stays valid until the unlock.
    #[inline(always)]
    pub(super) fn must_ring(&self) -> bool {
        self.segment().fixed().wait_flags.attention() & RINGING != 0
    }

    /// Shows pollers an event before the queue is closed for sending. After the close, sends and receives have other results, so pollers must wake.
    pub(super) fn foretell_close(&self, receiving: ReceiverHeld<'_>) {
        if self.is_watched() {
            let now = self.level(receiving);
            self.ringer().foretell(receiving, now, now.after(1, 1));
        }
    }

    /// If a process that rings was interrupted on this processor, sleeps for a moment, so that the process finishes its operation first. A poller on
    /// the same processor may run between the announcement and the change. The thread sleeps and does not yield, because after a yield, the scheduler
    /// would also delay the thread's next run.
    pub(super) fn let_ringer_finish(&self, me: &Thread) {
        if self.must_ring() && self.ringer().is_rung_here() {
            self.segment().fixed().receiver.lock.sleep_while_held(me);
        }
    }

    /// Shows pollers that messages will be sent now.
    #[inline(always)]
    pub(super) fn foretell_arrival(&self, receiving: ReceiverHeld<'_>, messages: i64) {
        self.foretell_doorbell(receiving, messages, -messages);
    }

    /// Sends one message if the queue has room, and rings for pollers.
    #[cold]
    pub(super) fn send_watched(
        &self,
        me: &Thread,
        (message, key): (&[u8], usize),
        deadline: Deadline,
    ) -> Result<(), Refused> {
        let deferred = Cell::new(None);
        self.let_ringer_finish(me);
        self.with_receiver_lock_and_ring(
            me,
            deadline,
            |receiving, wakes| {
                self.begin_to_send(receiving, me, wakes)?;
                let both = self.borrow_sender_lock(receiving, me, deadline)?;
                let ring = self.foretell_or_defer(both);
                let result = self.send_locked(both.sender(), me, message, key);
                self.segment().fixed().sender.lock.give_back();
                match ring {
                    // Signal handlers run only after the ring, because a handler might leave the call by a jump.
                    Some(ring) if result.is_ok() => {
                        deferred.set(Some((ring, Section::begin(me))));
                    }
                    Some(ring) => self.ringer().take_back_deferred(receiving, ring),
                    None => {}
                }
                self.end_ringing_send(receiving, result.is_ok(), wakes);
                result
            },
            || {
                let (ring, section) = deferred.take()?;
                Some(move || {
                    crash_point!(BELL_DEFERRED);
                    self.ring_deferred(me, ring, section, deadline);
                })
            },
        )
    }

    /// Shows pollers that a message will be sent now, or defers the ring.
    fn foretell_or_defer(&self, both: BothHeld<'_>) -> Option<Deferred<'_>> {
        let receiving = both.receiver();
        let fixed = self.segment().fixed();
        let position = fixed.sender.next_position(both.sender());
        if !self.has_room(position) {
            return None;
        }
        // With a deferred ring, `settle_doorbell` is not called, so this code checks whether any poller is left.
        if self.is_watched() && self.ringer().forget_if_left(receiving) {
            self.end_watch(receiving);
            return None;
        }
        let is_plain = self.has_no_waiters() && self.held(receiving) == 0 && !self.needs_time();
        if is_plain && fixed.has_free_slots(both.sender(), position, 1) {
            let now = self.level(receiving);
            let levels = (now, now.after(1, -1));
            let ring = self.ringer().defer(receiving, levels, position);
            if ring.is_some() {
                return ring;
            }
        }
        self.foretell_arrival(receiving, 1);
        None
    }

    /// Returns whether no thread waits for a message or for room. In this case, a send serves no thread, and rings once.
    fn has_no_waiters(&self) -> bool {
        let waiters = Waiters::of(self.segment());
        let lists = [List::Receivers, List::Senders, List::Offered];
        lists.into_iter().all(|list| waiters.len(list) == 0)
    }

    /// Rings for a message that the calling thread has sent.
    fn ring_deferred(
        &self,
        me: &Thread,
        ring: Deferred<'_>,
        section: Section<'_>,
        deadline: Deadline,
    ) {
        let (ticket, is_rung) = ring.ring();
        crash_point!(BELL_DEFERRED_RUNG);
        if is_rung && self.segment().fixed().published.deferred_ring.end(ticket) {
            return;
        }
        // Signal handlers are not deferred during the wait for the lock.
        drop(section);
        // If the lock is not available in time, the ring stays unfinished in the segment. Each later change of the level then counts the packets in
        // the FIFO.
        let patience = deadline.or_slice(STOPPED);
        let _ = self.with_receiver_lock(me, patience, |receiving, _| {
            let level = self.level(receiving);
            self.ringer().end_late_ring(receiving, ticket, level);
            Ok(())
        });
    }

    /// Serves waiters after a send to a polled queue, under the receiver lock.
    fn end_ringing_send(
        &self,
        receiving: ReceiverHeld<'_>,
        is_sent: bool,
        wakes: &mut DeferredWakes,
    ) {
        if is_sent {
            // An error is only noted, because the messages are sent even if the list of waiters is corrupt.
            if self.serve(receiving, wakes).is_err() {
                self.note_damage();
            }
            self.update_wait_flags(receiving);
        }
        if !self.is_watched() {
            // A process that ended the polling may have died before it cleared the flag.
            self.set_attention(receiving, WATCHED, 0);
        }
    }

    /// Runs `send` under both locks, and rings for pollers. `send` sends up to `messages` messages.
    pub(super) fn send_ringing<T>(
        &self,
        me: &Thread,
        messages: i64,
        deadline: Deadline,
        send: impl FnOnce(&Engine, SenderHeld<'_>) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        self.let_ringer_finish(me);
        self.with_receiver_lock(me, deadline, |receiving, wakes| {
            self.begin_to_send(receiving, me, wakes)?;
            let both = self.borrow_sender_lock(receiving, me, deadline)?;
            let sender = &self.segment().fixed().sender;
            if self.has_room(sender.next_position(both.sender())) {
                self.foretell_arrival(receiving, messages);
            }
            let result = send(self, both.sender());
            sender.lock.give_back();
            self.end_ringing_send(receiving, result.is_ok(), wakes);
            result
        })
    }

    /// Runs `change` under both locks, and then sets the flag that makes senders ring.
    fn with_both_locks<T>(
        &self,
        me: &Thread,
        deadline: Deadline,
        change: impl FnOnce(BothHeld<'_>) -> T,
    ) -> Result<T, Refused> {
        self.with_receiver_lock(me, deadline, |receiving, _| {
            let both = self.borrow_sender_lock(receiving, me, deadline)?;
            let outcome = change(both);
            self.set_attention(receiving, WATCHED, WATCHED);
            self.segment().fixed().sender.lock.give_back();
            Ok(outcome)
        })
    }

    /// In a model: begins to poll like [`pollable`](Self::pollable). Returns whether the process needs a helper thread for deadlines.
    #[cfg(loom)]
    pub(crate) fn watch(&self, me: &Thread, wanted: u32) -> Result<bool, Refused> {
        self.with_both_locks(me, Deadline::Never, |both| {
            let needs_time = self.begin_to_watch(both.receiver());
            self.ringer().begin(1, wanted, self.level(both.receiver()));
            self.doorbell.set_lack_of_helpers(!needs_time);
            needs_time
        })
    }

    /// In a model: checks the queue like a helper thread for deadlines. Returns whether the helper has to check the queue once in each slice.
    #[cfg(loom)]
    pub(crate) fn look_for_holders(&self, me: &Thread) -> Result<bool, Refused> {
        self.with_receiver_lock(me, Deadline::Never, |receiving, _| {
            Ok(self.needs_slices(receiving))
        })
    }

    /// In a model: begins to poll like [`watch`](Self::watch), with a new FIFO that replaces a lost FIFO.
    #[cfg(loom)]
    pub(crate) fn watch_anew(&self, me: &Thread, wanted: u32) -> Result<(), Refused> {
        self.with_both_locks(me, Deadline::Never, |both| {
            self.doorbell.set_gone(false);
            self.ringer().begin(2, wanted, self.level(both.receiver()));
        })
    }

    /// In a model: shows the level in a helper's FIFO. Returns the futex value on which the helper sleeps.
    #[cfg(loom)]
    pub(crate) fn hear(&self, me: &Thread, feed: &Feed) -> Result<u32, Refused> {
        self.with_both_locks(me, Deadline::Never, |both| {
            let level = self.level(both.receiver());
            let is_called = true;
            self.ringer().hear(both.receiver(), feed, level, is_called)
        })
    }

    /// In a model: returns the futex on which the helpers sleep.
    #[cfg(loom)]
    pub(crate) fn helpers_word(&self) -> &crate::sync::AtomicU32 {
        &self.segment().fixed().receiver.doorbell().calls
    }

    #[cfg(loom)]
    pub(crate) fn doorbell(&self) -> &crate::doorbell::Doorbell {
        &self.doorbell
    }

    /// Returns the readiness of the queue: the result of a poll that does not wait.
    pub fn readiness(&self, me: &Thread) -> Readiness {
        let waiters = Waiters::of(self.segment());
        let mut readable = self.available() != 0;
        if self
            .segment()
            .fixed()
            .published
            .deferred_ring
            .pending()
            .is_some()
        {
            // If the sender is dead, this call repairs the queue and informs pollers of the message.
            let _ = self.with_receiver_lock(me, Deadline::Passed, |_, _| Ok(()));
        }
        if readable && waiters.len(List::Receivers) != 0 {
            // Usually, another thread will hand the message over soon. If the receiver or the serving thread is dead, this call serves the waiters.
            let served = self.with_receiver_lock(me, Deadline::Passed, |receiving, wakes| {
                self.serve(receiving, wakes)?;
                self.update_wait_flags(receiving);
                Ok(self.available() != 0)
            });
            readable = served.unwrap_or(false);
        }
        Readiness {
            readable: readable || self.seems_at_end(),
            writable: self.policy().on_full == OnFull::DropOldest
                || self.is_send_closed()
                || self.seems_roomy(1),
        }
    }
}

#[cfg(not(loom))]
mod polled {
    use super::*;
    use crate::doorbell::{Doorbell, GRACE, Polled, why_not};
    use crate::sys::thread;
    use rustix::io::{self, Errno};
    use std::os::fd::BorrowedFd;

    impl Polled for Engine {
        fn doorbell(&self) -> &Doorbell {
            &self.doorbell
        }

        fn mode(&self) -> u32 {
            self.segment().fixed().header.mode()
        }

        fn for_helper(&self) -> Engine {
            Engine::new(self.segment().share())
        }

        fn for_timekeeper(&self) -> Engine {
            let mut engine = self.for_helper();
            engine.doorbell.ring_as(&self.doorbell);
            engine
        }

        fn next_due(&self) -> u64 {
            self.segment().fixed().leases.next_look()
        }

        fn look_at_time(&self, me: &Thread, deadline: Deadline) -> io::Result<u64> {
            self.with_receiver_lock(me, deadline, |receiving, wakes| {
                if self.may_reclaim() {
                    self.reclaim_and_serve(receiving, wakes)?;
                }
                self.close_if_left(receiving, me, wakes);
                Ok(self.next_look(receiving, self.may_be_left(receiving)))
            })
            .map_err(|refused| match refused {
                Refused::Fault(fault) => why_not(fault),
                _ => Errno::AGAIN,
            })
        }

        fn change_watch<T>(
            &self,
            me: &Thread,
            deadline: Deadline,
            change: impl FnOnce(ReceiverHeld<'_>) -> T,
        ) -> io::Result<T> {
            self.with_both_locks(me, deadline, |both| change(both.receiver()))
                .map_err(|refused| match refused {
                    Refused::Fault(fault) => why_not(fault),
                    _ => Errno::AGAIN,
                })
        }
    }

    impl Engine {
        /// Returns the descriptor that shows the queue's level. `wanted` contains flags of [`crate::doorbell`].
        #[inline]
        pub fn pollable(&self, me: &Thread, wanted: u32) -> std::io::Result<BorrowedFd<'_>> {
            self.poll(me, wanted)
        }

        /// Stops polling in this process: closes the polled descriptor. If no poller is left, later calls do not ring the doorbell.
        pub(crate) fn stop_polling(&self, me: &Thread) {
            if !self.doorbell.close_polled() {
                return;
            }
            let _ = self.with_receiver_lock(me, Deadline::after(GRACE), |receiving, _| {
                if self.ringer().forget() {
                    self.end_watch(receiving);
                }
                Ok(())
            });
        }
    }

    impl Drop for Engine {
        fn drop(&mut self) {
            self.stop_polling(thread::current());
        }
    }
}
