//! Sending a message of a snapshot.

use super::{Engine, Refused, Seen, SeenHistory};
use crate::posix_engine::segment::Ring;
use crate::sys::clock::{self, Deadline};
use crate::sys::thread::Thread;

impl Engine {
    /// Sends a message with the sender, time and history of a snapshot. Times are of CLOCK_REALTIME. Only for a queue that
    /// no other process can see: the message changes after its send.
    pub fn send_saved(
        &self,
        me: &Thread,
        (seen, history): (&Seen, Option<&SeenHistory>),
        message: &[u8],
    ) -> Result<(), Refused> {
        self.try_send(me, message, seen.key, Deadline::Passed)?;
        let sent = self.segment().fixed().sender.sent();
        let (slot, cell) = Ring::of(self.segment()).slot(sent.wrapping_sub(1))?;
        cell.restore(seen.pid, clock::at_shown(seen.sent_at), seen.returns);
        let Some(history) = history else {
            return Ok(());
        };
        let history = history.history.with_times(clock::at_shown);
        self.with_receiver_lock(me, Deadline::Never, |receiving, _| {
            let found = self.in_hand(receiving, slot)?;
            self.set_history(receiving, &found, &history);
            Ok(())
        })
    }
}
