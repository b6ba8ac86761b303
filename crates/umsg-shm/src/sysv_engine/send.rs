//! Sending a message.

use super::segment::Choice;
use super::wait::{Call, Enlisted};
use super::{Engine, Refused};
use crate::crash::crash_point;
use crate::doorbell::Watched;
use crate::fault::Fault;
use crate::lock::deferred_wakes::DeferredWakes;
use crate::lock::tokens::ReceiverHeld;
use crate::sys::clock;
use crate::sysv_engine::order::TypeIndexStore;
use crate::tracepoint;
use crate::waiters::List;

impl Engine {
    /// Sends a message if there is room now.
    #[inline(always)]
    pub fn try_send(&self, call: &Call<'_>, mtype: i64, message: &[u8]) -> Result<(), Refused> {
        let sent = self.with_lock(call.me, call.deadline, |receiving, wakes| {
            self.send_locked(receiving, call, mtype, message, wakes)
        });
        sent.map_err(|refused| refused.by(call.deadline))
    }

    /// Sends a message. Waits for room until the call's deadline.
    ///
    /// Preparing a wait takes a quarter of the time of a send. So the call first tries to send without this preparation. A sender that finds no room
    /// takes the lock a second time before it sleeps.
    pub fn send(&self, call: &Call<'_>, mtype: i64, message: &[u8]) -> Result<(), Refused> {
        self.attempt_or_wait_for_room(
            call,
            |receiving, wakes| self.send_locked(receiving, call, mtype, message, wakes),
            |receiving| self.park(receiving, call, mtype, message),
        )
    }

    /// Fills a slot and sends its message: hands the message off to a waiting receiver, or puts it into the order of queued messages.
    #[inline(always)]
    fn send_locked(
        &self,
        receiving: ReceiverHeld<'_>,
        call: &Call<'_>,
        mtype: i64,
        message: &[u8],
        wakes: &mut DeferredWakes,
    ) -> Result<(), Refused> {
        self.check_rights(receiving, call.rights)?;
        self.check_room(receiving, (1, message.len() as u64), wakes)?;
        let now = clock::realtime_coarse();
        self.order().provide(mtype)?;
        let (slot, _) = self.fill(receiving, call.me, mtype, message, now)?;
        self.foretell_doorbell(receiving, 1, -(message.len() as i64));
        let sequence = self.commit(receiving, slot)?;
        self.route(receiving, slot, mtype, sequence, message.len(), wakes)?;
        self.fixed().control.note_send(call.me.pid(), now);
        tracepoint!(msg_send, self.segment().address(), message.len(), mtype);
        Ok(())
    }

    /// Returns whether there is room for `messages` more messages of `bytes` bytes together.
    #[inline(always)]
    pub(super) fn has_room(&self, messages: u64, bytes: u64) -> bool {
        self.fixed().control.has_room(messages, bytes)
    }

    /// Returns a refusal if there is no room for these numbers of messages and bytes. While messages are leased or delayed, first delivers the
    /// messages whose delivery time has come: the new messages then come after these messages. If leased messages take the room, the function also
    /// ends overdue leases.
    #[inline(always)]
    pub(super) fn check_room(
        &self,
        receiving: ReceiverHeld<'_>,
        (messages, bytes): (u64, u64),
        wakes: &mut DeferredWakes,
    ) -> Result<(), Refused> {
        let control = &self.fixed().control;
        if control.has_leased() {
            return self.check_room_slow(receiving, (messages, bytes), wakes);
        }
        match control.has_room_beside_queued(messages, bytes) {
            true => Ok(()),
            false => Err(Refused::NotNow),
        }
    }

    /// Checks the room as [`check_room`](Self::check_room) does, while messages are leased or delayed.
    #[cold]
    fn check_room_slow(
        &self,
        receiving: ReceiverHeld<'_>,
        (messages, bytes): (u64, u64),
        wakes: &mut DeferredWakes,
    ) -> Result<(), Refused> {
        self.deliver_due(receiving, wakes)?;
        if self.has_room(messages, bytes)
            || self.reclaim_if_due(receiving, wakes)? && self.has_room(messages, bytes)
        {
            return Ok(());
        }
        Err(Refused::NotNow)
    }

    /// Sends the message in a slot by storing its number in the control block. Returns the number.
    #[inline(always)]
    pub(super) fn commit(&self, receiving: ReceiverHeld<'_>, slot: u32) -> Result<u64, Fault> {
        let sequence = self.number(receiving, slot, 1)?;
        self.fixed().control.send_up_to(receiving, sequence);
        crash_point!(MSG_SENT);
        Ok(sequence)
    }

    /// Gives a message a number: the last number plus `ahead`. The message is sent once the control block's number reaches the message's number.
    #[inline(always)]
    pub(super) fn number(
        &self,
        receiving: ReceiverHeld<'_>,
        slot: u32,
        ahead: u64,
    ) -> Result<u64, Fault> {
        let sequence = self.fixed().control.last_number().wrapping_add(ahead);
        let place = self.segment().place(slot)?;
        place.set_sequence(receiving, sequence);
        self.segment().cell(slot)?.begin();
        Ok(sequence)
    }

    /// Hands a sent message off to the first waiting receiver that wants it, or puts it into the order of queued messages.
    #[inline(always)]
    pub(super) fn route(
        &self,
        receiving: ReceiverHeld<'_>,
        slot: u32,
        mtype: i64,
        sequence: u64,
        len: usize,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        if self.waiters().len(List::Receivers) != 0
            && self.offer(receiving, slot, mtype, len, wakes)?
        {
            return Ok(());
        }
        self.order().push_back(receiving, slot, mtype, sequence)?;
        crash_point!(MSG_LINKED);
        self.fixed().control.count_queued(receiving, 1, len as i64);
        Ok(())
    }

    /// Parks the message of a sender that is about to block: writes the message into a slot, and takes a waiter record for the sender.
    fn park(
        &self,
        receiving: ReceiverHeld<'_>,
        call: &Call<'_>,
        mtype: i64,
        message: &[u8],
    ) -> Result<Enlisted<'_, ()>, Refused> {
        let (slot, _) = self.fill(receiving, call.me, mtype, message, 0)?;
        crash_point!(MSG_PARKED);
        let choice = Choice::Room {
            slot,
            messages: 1,
            bytes: message.len() as u64,
        };
        match self.claim_record(receiving, call, choice) {
            Ok(Some(waiter)) => Ok(Enlisted::Waiting(waiter)),
            other => {
                self.push_free(receiving, slot)?;
                other.map(|_| Enlisted::NoNode).map_err(Refused::from)
            }
        }
    }
}
