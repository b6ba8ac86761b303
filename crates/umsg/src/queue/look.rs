//! Looking without changing anything: counts, and messages where they are.

use super::receive::has_begun;
use super::{Engine, Refused};
use crate::error::Trouble;
use crate::order::Priorities;
use crate::slots::Ring;
use crate::sync::Ordering;
use crate::sys::clock::Deadline;
use crate::sys::thread::Thread;
use std::time::Duration;

/// What a queue holds at an instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Messages, and their bytes.
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

/// A message that was looked at.
pub(crate) struct Peeked {
    pub(crate) data: Vec<u8>,
    pub(crate) key: usize,
    pub(crate) pid: u32,
    /// Nanoseconds since 1970.
    pub(crate) sent_at: u64,
}

/// How long looking waits for a lock whose owner is stopped.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often the counts are read again if they change meanwhile.
const ATTEMPTS: u32 = 64;

impl Engine {
    /// Repairs what a dead receiver left, so that the counts are right again.
    pub(crate) fn mend(&self, me: &Thread) {
        if self.segment().fixed().receiver.lock.is_orphaned() {
            // In vain if somebody else is at it.
            let _ = self.with_receiver_lock(me, Deadline::after(PATIENCE), |_| Ok(()));
        }
    }

    /// How many messages and bytes are queued: exact unless senders and receivers never rest.
    pub(crate) fn counts(&self) -> Counts {
        let fixed = self.segment().fixed();
        let mut counts = Counts::default();
        for _ in 0..ATTEMPTS {
            // Acquire: both cursors are read twice, and in between nothing else is read earlier or later.
            let sent = self.ever_sent();
            let removed = fixed.published.removed.load(Ordering::Acquire);
            let bytes = fixed.sender.bytes[sent as usize & 1].load(Ordering::Acquire);
            let removed_bytes = fixed.published.removed_bytes.load(Ordering::Acquire);
            counts = Counts {
                messages: (sent.wrapping_sub(removed) as i64).max(0) as u64,
                bytes: (bytes.wrapping_sub(removed_bytes) as i64).max(0) as u64,
            };
            if self.ever_sent() == sent
                && fixed.published.removed.load(Ordering::Acquire) == removed
            {
                break;
            }
        }
        counts
    }

    /// How many messages were ever sent through the ring. A sender that died between stamp and cursor has sent: the next
    /// one moves the cursor.
    fn ever_sent(&self) -> u64 {
        let sender = &self.segment().fixed().sender;
        // Acquire: nothing is read earlier than this.
        let sent = sender.sent.load(Ordering::Acquire);
        let drained = || {
            let receiver = &self.segment().fixed().receiver;
            receiver.drained.load(Ordering::Acquire)
        };
        let is_one_behind = sender.lock.is_orphaned()
            && (Ring::of(self.segment())
                .published(sent)
                .is_ok_and(|message| message.is_some())
                || drained().wrapping_sub(sent) as i64 > 0);
        sent.wrapping_add(u64::from(is_one_behind))
    }

    /// The n-th message in order of delivery, counted from 0. Holds the receiver lock for a time in proportion to n.
    pub(crate) fn peek(&self, me: &Thread, n: usize) -> Result<Option<Peeked>, Refused> {
        let deadline = Deadline::after(PATIENCE);
        let mut data = vec![0; self.segment().layout().message_size];
        let peeked = self.with_receiver_lock(me, deadline, |_| {
            let Some(slot) = self.nth(n)? else {
                return Ok(None);
            };
            let found = self.in_hand(slot)?;
            self.segment().copy_out(found.cell, found.len, &mut data)?;
            let (pid, sent_at) = (found.cell.pid.get(), found.cell.sent_at.get());
            Ok(Some((found.len, found.key, pid, sent_at)))
        });
        let Some((len, key, pid, sent_at)) = peeked.map_err(|refused| refused.by(deadline))? else {
            return Ok(None);
        };
        data.truncate(len);
        data.shrink_to_fit();
        Ok(Some(Peeked {
            data,
            key,
            pid,
            sent_at,
        }))
    }

    /// The slot of the n-th message. Under the receiver lock.
    fn nth(&self, n: usize) -> Result<Option<u32>, Trouble> {
        let fixed = self.segment().fixed();
        let receiver = &fixed.receiver;
        // Acquire: RUN, as in `best`.
        let run = fixed.run.word.load(Ordering::Acquire);
        let drained = receiver.drained.load(Ordering::Relaxed);
        if receiver.stored.load(Ordering::Relaxed) == 0 && has_begun(run, drained) {
            // One priority: the ring is in order of delivery.
            let position = drained.wrapping_add(n as u64);
            if n >= self.segment().layout().slots {
                return Ok(None);
            }
            return Ok(Ring::of(self.segment())
                .published(position)?
                .map(|(slot, _)| slot));
        }
        self.drain()?;
        self.publish_counts();
        self.nth_stored(n)
    }

    fn nth_stored(&self, n: usize) -> Result<Option<u32>, Trouble> {
        let order = Priorities::of(self.segment());
        let mut left = n.min(self.segment().layout().slots);
        let mut priority = order.highest();
        while let Some(of) = priority {
            let mut slot = Some(order.first(of)?);
            while let Some(here) = slot {
                if left == 0 {
                    return Ok(Some(here));
                }
                left -= 1;
                slot = order.after(of, here)?;
            }
            priority = order.next_below(of);
        }
        Ok(None)
    }
}
