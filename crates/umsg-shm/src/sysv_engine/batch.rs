//! Sending and receiving several messages in one call.

use super::receive::Taken;
use super::segment::Choice;
use super::wait::Call;
use super::{Engine, Refused, Why};
use crate::crash::crash_point;
use crate::doorbell::Watched;
use crate::fault::Fault;
use crate::lock::deferred_wakes::DeferredWakes;
use crate::lock::tokens::ReceiverHeld;
use crate::sys::clock::{self, Deadline};
use crate::sys::scratch::Scratch;
use crate::sysv_engine::order::Want;
use crate::waiters::NO_SLOT;

/// Messages that are sent together.
pub trait Batch {
    fn count(&self) -> usize;
    /// Returns the type and the bytes of one message.
    fn at(&self, index: usize) -> (i64, &[u8]);

    /// Returns the number of bytes of all messages together.
    fn bytes(&self) -> u64 {
        (0..self.count()).fold(0, |all: u64, index| {
            all.saturating_add(self.at(index).1.len() as u64)
        })
    }
}

/// The caller's room for the messages that one call receives.
pub trait Sink {
    /// Returns room for the next message, of `len` bytes. If the function returns None, the batch ends and the message stays in the queue.
    fn place(&mut self, len: usize) -> Option<&mut [u8]>;
    /// Notes that a message was written into the room that [`place`](Self::place) has returned.
    fn taken(&mut self, taken: Taken);
}

impl Engine {
    /// Sends all messages of a batch or none. Waits until there is room for all, or until the call's deadline.
    pub fn send_batch(&self, call: &Call<'_>, batch: &impl Batch) -> Result<(), Refused> {
        let (messages, bytes) = (batch.count() as u64, batch.bytes());
        if messages == 0 {
            return Ok(());
        }
        let choice = Choice::Room {
            slot: NO_SLOT,
            messages: u32::try_from(messages).unwrap_or(u32::MAX),
            bytes,
        };
        self.attempt_or_wait_for_room(
            call,
            |receiving, wakes| self.send_batch_locked(receiving, call, batch, bytes, wakes),
            |receiving| self.enlist(receiving, call, choice),
        )
    }

    fn send_batch_locked(
        &self,
        receiving: ReceiverHeld<'_>,
        call: &Call<'_>,
        batch: &impl Batch,
        bytes: u64,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Refused> {
        self.check_rights(receiving, call.rights)?;
        let messages = batch.count() as u64;
        self.check_room(receiving, (messages, bytes), wakes)?;
        let types = (0..batch.count()).map(|index| batch.at(index).0);
        self.order().provide_all(types)?;
        let mut slots = Scratch::<u32>::new(batch.count())?;
        let now = clock::realtime_coarse();
        if let Err((filled, fault)) = self.fill_batch(receiving, call, batch, now, &mut slots) {
            for &slot in &slots[..filled] {
                self.release(receiving, slot)?;
            }
            return Err(fault.into());
        }
        self.foretell_doorbell(receiving, messages as i64, -(bytes as i64));
        let control = &self.fixed().control;
        let first = control.last_number().wrapping_add(1);
        control.send_up_to(receiving, first.wrapping_add(messages - 1));
        crash_point!(MSG_BATCH_SENT);
        for (index, &slot) in slots.iter().enumerate() {
            let (mtype, bytes) = batch.at(index);
            self.route(
                receiving,
                slot,
                mtype,
                first.wrapping_add(index as u64),
                bytes.len(),
                wakes,
            )?;
        }
        self.fixed().control.note_send(call.me.pid(), now);
        Ok(())
    }

    /// Fills a slot for each message, and gives the messages numbers beyond that of the last sent message. An error also contains the number of
    /// filled slots.
    fn fill_batch(
        &self,
        receiving: ReceiverHeld<'_>,
        call: &Call<'_>,
        batch: &impl Batch,
        now: u64,
        slots: &mut [u32],
    ) -> Result<(), (usize, Fault)> {
        for (index, place) in slots.iter_mut().enumerate() {
            let (mtype, message) = batch.at(index);
            let fill = || {
                let (slot, _) = self.fill(receiving, call.me, mtype, message, now)?;
                self.number(receiving, slot, index as u64 + 1)?;
                Ok(slot)
            };
            *place = fill().map_err(|fault| (index, fault))?;
            crash_point!(MSG_BATCH_FILLED);
        }
        Ok(())
    }

    /// Receives up to `most` wanted messages. Waits for the first message until the call's deadline.
    pub fn receive_batch(
        &self,
        call: &Call<'_>,
        want: Want,
        most: usize,
        sink: &mut impl Sink,
    ) -> Result<usize, Refused> {
        if most == 0 {
            return Ok(0);
        }
        match self.with_lock(call.me, call.deadline, |receiving, wakes| {
            self.receive_batch_locked(receiving, call, want, most, sink, wakes)
        }) {
            Err(Refused::NotNow) if !call.deadline.has_passed() => {}
            other => return other.map_err(|refused| refused.by(call.deadline)),
        }
        let Some(buffer) = sink.place(self.segment().layout().msgmax) else {
            return Err(Refused::Own(Why::TooSmall {
                len: self.segment().layout().msgmax,
            }));
        };
        let first = self.receive(call, want, buffer, false)?;
        sink.taken(first);
        let more = self.with_lock(call.me, Deadline::Passed, |receiving, wakes| {
            self.receive_batch_locked(receiving, call, want, most - 1, sink, wakes)
        });
        // The call succeeds with the first message, even if it can't take more messages.
        Ok(1 + more.unwrap_or(0))
    }

    fn receive_batch_locked(
        &self,
        receiving: ReceiverHeld<'_>,
        call: &Call<'_>,
        want: Want,
        most: usize,
        sink: &mut impl Sink,
        wakes: &mut DeferredWakes,
    ) -> Result<usize, Refused> {
        self.check_rights(receiving, call.rights)?;
        let mut count = 0;
        while count < most {
            let found = match self.find(receiving, want, wakes) {
                Ok(found) => found,
                Err(Refused::NotNow) if count != 0 => break,
                Err(Refused::NotNow) if call.heeds_end() => {
                    return Err(self.no_message(receiving, wakes));
                }
                Err(refused) => return Err(refused),
            };
            let mtype = found.mtype();
            let Some(buffer) = sink.place(found.len) else {
                if count == 0 {
                    return Err(Refused::Own(Why::TooSmall { len: found.len }));
                }
                break;
            };
            let len = self.segment().copy_prefix(found.cell, found.len, buffer)?;
            self.foretell_doorbell(receiving, -1, found.len as i64);
            self.remove_and_free(receiving, found)?;
            sink.taken(Taken { len, mtype });
            count += 1;
        }
        if count != 0 {
            self.fixed().control.note_receive(call.me.pid());
            self.admit_if_any(receiving, wakes);
        }
        Ok(count)
    }

    /// Returns whether the queue, if it were empty, would have room for the batch.
    pub fn can_hold(&self, messages: u64, bytes: u64) -> bool {
        let qbytes = self.fixed().control.capacity();
        messages <= qbytes && bytes <= qbytes
    }
}
