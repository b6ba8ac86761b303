//! Sending a message of a snapshot.

use super::{Engine, Refused, Seen};
use crate::posix_engine::segment::Ring;
use crate::sys::clock::{self, Deadline};
use crate::sys::thread::Thread;

impl Engine {
    /// Sends a message with the sender and time of a snapshot. The time is one of CLOCK_REALTIME. Only for a queue that
    /// no other process can see: the message changes after its send.
    pub fn send_saved(&self, me: &Thread, seen: &Seen, message: &[u8]) -> Result<(), Refused> {
        self.try_send(me, message, seen.key, Deadline::Passed)?;
        let sent = self.segment().fixed().sender.sent();
        let (_, cell) = Ring::of(self.segment()).slot(sent.wrapping_sub(1))?;
        cell.restore(seen.pid, clock::at_shown(seen.sent_at), seen.returns);
        Ok(())
    }
}
