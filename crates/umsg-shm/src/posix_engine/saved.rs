//! Sends a message from a snapshot.

use super::{Engine, Refused, Seen, SeenHistory};
use crate::fault::Fault;
use crate::leases::State;
use crate::lock::tokens::ReceiverHeld;
use crate::posix_engine::segment::Ring;
use crate::sys::clock::{self, Deadline};
use crate::sys::thread::Thread;

impl Engine {
    /// Sends a message with the sender, the time and the history from a snapshot. The times are of CLOCK_REALTIME. The caller makes sure that no
    /// other process can see the queue, because the message changes after its send.
    pub fn send_saved(
        &self,
        me: &Thread,
        (seen, history): (&Seen, Option<&SeenHistory>),
        message: &[u8],
    ) -> Result<(), Refused> {
        if seen.delay != 0 {
            return self.send_saved_later(me, (seen, history), message);
        }
        self.try_send(me, message, seen.key, Deadline::Passed)?;
        let sent = self.segment().fixed().sender.sent();
        let (slot, cell) = Ring::of(self.segment()).slot(sent.wrapping_sub(1))?;
        cell.restore(seen.pid, clock::at_shown(seen.sent_at), seen.returns);
        if history.is_none() {
            return Ok(());
        }
        self.with_receiver_lock(me, Deadline::Never, |receiving, _| {
            self.restore_history(receiving, slot, history)
        })
    }

    fn restore_history(
        &self,
        receiving: ReceiverHeld<'_>,
        slot: u32,
        history: Option<&SeenHistory>,
    ) -> Result<(), Refused> {
        if let Some(seen) = history {
            let found = self.in_hand(receiving, slot)?;
            let history = seen.history.with_times(clock::at_shown);
            self.set_history(receiving, &found, &history);
        }
        Ok(())
    }

    /// Sends a delayed message from a snapshot. A message that was once returned gets a place before all messages that are stored later.
    fn send_saved_later(
        &self,
        me: &Thread,
        (seen, history): (&Seen, Option<&SeenHistory>),
        message: &[u8],
    ) -> Result<(), Refused> {
        let handle = self.try_reserve(me, message.len(), Deadline::Passed)?;
        let cell = self.segment().cell(handle.slot)?;
        self.segment().copy_in(cell, message)?;
        let until = clock::monotonic().saturating_add(seen.delay);
        self.commit_at(me, &handle, (message.len(), seen.key), until)?;
        self.with_receiver_lock(me, Deadline::Never, |receiving, _| {
            let record = self.segment().lease_record(handle.index)?;
            if State::of(record) != State::Delayed {
                return Err(Fault::Damaged.into());
            }
            record.deliveries.set(seen.returns);
            cell.restore(seen.pid, clock::at_shown(seen.sent_at), seen.returns);
            cell.set_sequence(self.segment().fixed().receiver.next_sequence(receiving));
            self.restore_history(receiving, handle.slot, history)
        })
    }
}
