//! Inspection of a queue: messages, types and counts. No function removes or alters a message; `counts` also takes back leases that have ended.

use super::lease::Lease;
use super::receive::Taken;
use super::segment::Contents;
use super::wait::Call;
use super::{Engine, Refused, Why};
use crate::counters::read_steadily;
use crate::fault::Fault;
use crate::leases::{self, Leases};
use crate::sync::Ordering;
use crate::sys::clock::Deadline;
use crate::sys::thread::Thread;
use crate::sysv_engine::order::Want;
use crate::waiters::{self, List, Node, State};
use std::ops::ControlFlow;

/// A copy of a queued message and its header.
#[derive(Clone, Debug)]
pub struct Seen {
    pub mtype: i64,
    pub len: usize,
    /// The process id of the sender.
    pub pid: u32,
    /// The time of the send, in nanoseconds since 1970.
    pub sent_at: u64,
    /// The number of leases of the message that ended without an acknowledgement.
    pub returns: u32,
    /// For a delayed message, its delivery time: a reading of the monotonic clock, in nanoseconds. Otherwise 0.
    pub due: u64,
    /// The first bytes of the message, as many as the caller asked for.
    pub bytes: Vec<u8>,
}

/// The counts of a queue, its waiters, and its last uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    pub messages: u64,
    pub bytes: u64,
    pub qbytes: u64,
    pub leased: u64,
    pub leased_bytes: u64,
    /// The number of delayed messages, which are also counted as leased messages.
    pub delayed: u64,
    pub receivers: u32,
    pub senders: u32,
    /// The time of the last send, in seconds since 1970; 0 for never.
    pub sent_at: u64,
    /// The time of the last receive, in seconds since 1970; 0 for never.
    pub received_at: u64,
    pub sender: u32,
    pub receiver: u32,
}

/// The number of attempts to copy the messages of a queue that grows meanwhile. Each attempt has twice the room of the previous attempt.
const ATTEMPTS: u32 = 64;

/// Returns the room for a copy of `needed` messages or bytes: at least twice as much, and at most `most`. A hostile process can overwrite the count
/// in the segment, so the room doubles with each attempt, and the number of attempts is limited.
fn room(needed: u64, attempt: u32, most: usize) -> Result<usize, Fault> {
    let factor = match attempt {
        0..ATTEMPTS => 1_usize.checked_shl(attempt).unwrap_or(usize::MAX),
        _ => return Err(Fault::Damaged),
    };
    let needed = usize::try_from(needed.max(1)).unwrap_or(usize::MAX);
    Ok(needed.saturating_mul(factor).min(most.max(1)))
}

impl Engine {
    /// Copies the `n`th message in order of arrival and leaves it in the queue (MSG_COPY). Message 0 is the oldest.
    /// Fails with [`Refused::NotNow`] if there is no such message.
    pub fn copy(&self, call: &Call<'_>, n: u32, buffer: &mut [u8]) -> Result<Taken, Refused> {
        self.with_lock(call.me, call.deadline, |receiving, _| {
            self.check_rights(receiving, call.rights)?;
            let Some(slot) = self.order().nth(n)? else {
                return Err(Refused::NotNow);
            };
            let found = self.found(slot)?;
            if found.len > buffer.len() {
                return Err(Refused::Own(Why::TooSmall { len: found.len }));
            }
            let len = self.segment().copy_prefix(found.cell, found.len, buffer)?;
            Ok(Taken {
                len,
                mtype: found.mtype(),
            })
        })
    }

    /// Copies up to `most` messages in order of arrival from the `skip`th on, with up to `bytes` bytes of each. Fails with [`Fault::Damaged`] if the
    /// list has a cycle.
    pub fn messages(
        &self,
        call: &Call<'_>,
        skip: u32,
        most: usize,
        bytes: usize,
    ) -> Result<Vec<Seen>, Refused> {
        let mut seen = Vec::new();
        // The lock is taken again for each message, because memory is allocated without the lock.
        while seen.len() < most {
            if seen.len() > self.segment().layout().slots {
                return Err(Fault::Damaged.into());
            }
            let mut next = Seen {
                mtype: 0,
                len: 0,
                pid: 0,
                sent_at: 0,
                returns: 0,
                due: 0,
                bytes: vec![0; bytes.min(self.segment().layout().msgmax)],
            };
            match self.peek(call, skip.saturating_add(seen.len() as u32), &mut next) {
                Ok(()) => seen.push(next),
                Err(Refused::NotNow) => break,
                Err(refused) => return Err(refused),
            }
        }
        Ok(seen)
    }

    /// Copies all messages as they are at one instant, in order of arrival: their headers, and their bytes one after the other.
    pub fn all_messages(&self, call: &Call<'_>) -> Result<(Vec<Seen>, Vec<u8>), Refused> {
        let layout = self.segment().layout();
        let (slots, msgmax) = (layout.slots, layout.msgmax);
        let (mut seen, mut bytes) = (Vec::<Seen>::new(), Vec::<u8>::new());
        for attempt in 1.. {
            // Memory is allocated before the lock is taken. The memory is twice as much as needed now, so a growing queue needs few attempts.
            let counts = self.counts(call.me)?;
            let messages = room(counts.messages, attempt, slots + 1)?;
            let expected = room(counts.bytes, attempt, slots.saturating_mul(msgmax))?;
            seen.clear();
            bytes.clear();
            seen.try_reserve(messages)
                .and_then(|()| bytes.try_reserve(expected))
                .map_err(|_| Fault::NoMemory)?;
            let is_whole = self.with_lock(call.me, call.deadline, |receiving, _| {
                self.check_rights(receiving, call.rights)?;
                loop {
                    if seen.len() > slots {
                        return Err(Fault::Damaged.into());
                    }
                    let Some(slot) = self.order().nth(seen.len() as u32)? else {
                        return Ok(true);
                    };
                    if !self.copy_beside(slot, &mut seen, &mut bytes)? {
                        return Ok(false);
                    }
                }
            })?;
            if is_whole {
                return Ok((seen, bytes));
            }
        }
        Err(Fault::Damaged.into())
    }

    /// Copies up to `most` delayed messages as they are at one instant, in the order of their delivery times: their headers, and their bytes one
    /// after the other.
    pub fn delayed_messages(
        &self,
        call: &Call<'_>,
        most: usize,
    ) -> Result<(Vec<Seen>, Vec<u8>), Refused> {
        let layout = self.segment().layout();
        let (slots, msgmax) = (layout.slots, layout.msgmax);
        let (mut places, mut seen) = (Vec::<((u64, u64), u32, u32)>::new(), Vec::<Seen>::new());
        let mut bytes = Vec::<u8>::new();
        for attempt in 1.. {
            // Memory is allocated before the lock is taken, as in `all_messages`.
            let counts = self.counts(call.me)?;
            let messages = room(counts.delayed, attempt, slots + 1)?;
            let expected = room(counts.leased_bytes, attempt, slots.saturating_mul(msgmax))?;
            places.clear();
            seen.clear();
            bytes.clear();
            places
                .try_reserve(messages)
                .and_then(|()| seen.try_reserve(messages))
                .and_then(|()| bytes.try_reserve(expected))
                .map_err(|_| Fault::NoMemory)?;
            let is_whole = self.with_lock(call.me, call.deadline, |receiving, _| {
                self.check_rights(receiving, call.rights)?;
                for record in Leases::of(self.segment()).iter() {
                    let (_, record) = record?;
                    if leases::State::of(record) != leases::State::Delayed {
                        continue;
                    }
                    if places.len() == places.capacity() {
                        return Ok(false);
                    }
                    let (slot, deliveries) = (record.slot.get(), record.deliveries.get());
                    places.push((record.place_in_time(), slot, deliveries));
                }
                places.sort_unstable();
                for &((due, _), slot, returns) in places.iter().take(most) {
                    if !self.copy_beside(slot, &mut seen, &mut bytes)? {
                        return Ok(false);
                    }
                    if let Some(last) = seen.last_mut() {
                        (last.returns, last.due) = (returns, due);
                    }
                }
                Ok(true)
            })?;
            if is_whole {
                return Ok((seen, bytes));
            }
        }
        Err(Fault::Damaged.into())
    }

    /// Copies a message: its header to the end of `seen`, its bytes to the end of `bytes`. Returns false if there is no room.
    fn copy_beside(
        &self,
        slot: u32,
        seen: &mut Vec<Seen>,
        bytes: &mut Vec<u8>,
    ) -> Result<bool, Fault> {
        let (found, start) = (self.found(slot)?, bytes.len());
        if seen.len() == seen.capacity() || found.len > bytes.capacity() - start {
            return Ok(false);
        }
        bytes.resize(start + found.len, 0);
        let len = self
            .segment()
            .copy_prefix(found.cell, found.len, &mut bytes[start..])?;
        bytes.truncate(start + len);
        seen.push(Seen {
            mtype: found.mtype(),
            len,
            pid: found.cell.pid(),
            sent_at: found.cell.sent_at(),
            returns: found.cell.returns(),
            due: 0,
            bytes: Vec::new(),
        });
        Ok(true)
    }

    fn peek(&self, call: &Call<'_>, n: u32, seen: &mut Seen) -> Result<(), Refused> {
        let copied = self.with_lock(call.me, call.deadline, |receiving, _| {
            self.check_rights(receiving, call.rights)?;
            let Some(slot) = self.order().nth(n)? else {
                return Err(Refused::NotNow);
            };
            // The list has more messages than the queue counts, perhaps without an end.
            if n >= self.fixed().control.messages() {
                return Err(Fault::Damaged.into());
            }
            let found = self.found(slot)?;
            seen.mtype = found.mtype();
            seen.len = found.len;
            seen.pid = found.cell.pid();
            seen.sent_at = found.cell.sent_at();
            seen.returns = found.cell.returns();
            Ok(self
                .segment()
                .copy_prefix(found.cell, found.len, &mut seen.bytes)?)
        })?;
        seen.bytes.truncate(copied);
        // Otherwise, each of millions of short messages would keep the memory of the longest one.
        seen.bytes.shrink_to_fit();
        Ok(())
    }

    /// Returns up to `most` types of queued messages in ascending order, each with the number of its messages.
    pub fn types(&self, me: &Thread, most: usize) -> Result<Vec<(i64, u32)>, Refused> {
        let mut types = Vec::new();
        // The number is an estimate for the memory, which is allocated before the lock is taken.
        let messages = self.fixed().control.messages() as usize;
        let expected = messages.min(self.segment().layout().slots).min(most);
        types.try_reserve(expected).map_err(|_| Fault::NoMemory)?;
        self.with_lock(me, Deadline::Passed, |_, _| {
            for kind in self.order().kinds().take(most) {
                types.push(kind?);
            }
            Ok(())
        })?;
        Ok(types)
    }

    /// Returns the types as [`types`](Self::types) does, but without the lock: the result is a hint. The walk ends, whatever another process writes
    /// meanwhile.
    pub fn types_hint(&self, most: usize) -> Vec<(i64, u32)> {
        let kinds = self.order().kinds().take(most);
        kinds.map_while(Result::ok).collect()
    }

    /// Returns the counts without the lock. Each number is correct; the numbers belong to one instant only if the queue is idle.
    pub fn glance(&self) -> Contents {
        self.fixed().control.contents()
    }

    /// Sets the last sender to `pid`: the process for which the caller has sent a message.
    pub fn name_sender(&self, pid: u32) {
        self.fixed().control.name_last(List::Senders, pid);
    }

    /// Sets the last receiver to `pid`: the process for which the caller has received a message.
    pub fn name_receiver(&self, pid: u32) {
        self.fixed().control.name_last(List::Receivers, pid);
    }

    /// Returns the counts of one instant, and the waiters and last uses.
    pub fn counts(&self, me: &Thread) -> Result<Counts, Refused> {
        self.with_lock(me, Deadline::Passed, |receiving, wakes| {
            self.reclaim_if_due(receiving, wakes)?;
            let (offered, offered_bytes) = self.offered_leases()?;
            let counts = self.counts_hint();
            Ok(Counts {
                leased: counts.leased.saturating_add(offered),
                leased_bytes: counts.leased_bytes.saturating_add(offered_bytes),
                ..counts
            })
        })
    }

    /// Returns the values of [`counts`](Self::counts) without the lock. Each number is correct; the numbers belong to one instant only if the queue
    /// is idle.
    pub fn counts_hint(&self) -> Counts {
        let control = &self.fixed().control;
        let (contents, uses) = (control.contents(), control.last_uses());
        Counts {
            messages: contents.queued.messages,
            bytes: contents.queued.bytes,
            qbytes: contents.capacity,
            leased: contents.leased.messages,
            leased_bytes: contents.leased.bytes,
            // Relaxed: the value is exact under the lock, otherwise a hint.
            delayed: self.fixed().leases.delayed.load(Ordering::Relaxed).into(),
            receivers: self.waiters().living(List::Receivers) as u32,
            senders: self.waiters().living(List::Senders) as u32,
            sent_at: uses.sent_at,
            received_at: uses.received_at,
            sender: uses.sender,
            receiver: uses.receiver,
        }
    }

    /// Returns the numbers of messages that ever came to the queue and left it, without the lock. The numbers belong to one instant if no call changes
    /// the queue during a few attempts to read them. Otherwise a later result may be smaller by the messages that are moving.
    ///
    /// A salvage sets the first number to that of the messages in the queue.
    pub fn totals(&self) -> (u64, u64) {
        read_steadily(|| self.pulse(), || self.totals_now())
    }

    /// Returns the words that change if a message comes to the queue, leaves it, or becomes held or offered.
    fn pulse(&self) -> (u64, Counts, u32) {
        let number = self.fixed().control.last_number();
        (
            number,
            self.counts_hint(),
            self.waiters().len(List::Offered),
        )
    }

    fn totals_now(&self) -> (u64, u64) {
        let counts = self.counts_hint();
        let present = counts
            .messages
            .saturating_add(counts.leased)
            .saturating_add(self.offered_hint());
        let number = self.fixed().control.last_number();
        let sent = number.wrapping_add(self.first_delays_hint());
        (sent, sent.saturating_sub(present))
    }

    /// Returns the number of messages that are offered to receivers and not accepted.
    fn offered_hint(&self) -> u64 {
        if self.waiters().len(List::Offered) == 0 {
            return 0;
        }
        let is_offered =
            |node: &Node| List::of(node) == List::Offered && waiters::state(node) == State::Settled;
        let nodes = self.waiters().all().map(|(_, node)| node);
        nodes.filter(|node| is_offered(node)).count() as u64
    }

    /// Returns how many delayed messages wait for their first delivery. Each of them gets its number at its delivery time.
    fn first_delays_hint(&self) -> u64 {
        if self.counts_hint().delayed == 0 {
            return 0;
        }
        // The list may change during the walk, which its length bounds.
        let records = Leases::of(self.segment()).iter().filter_map(Result::ok);
        records
            .filter(|(_, record)| leases::is_first_delay(record))
            .count() as u64
    }

    /// Returns the time at which the oldest queued message was sent, in nanoseconds since 1970, without the lock. None if the queue is empty.
    ///
    /// The result is a hint: a receiver may take the message meanwhile, and another message may come into its slot. The result is then the time of
    /// the other message.
    pub fn oldest_hint(&self) -> Option<u64> {
        let slot = self.order().first(Want::Any).ok()??;
        let at = self.segment().cell(slot).ok()?.sent_at();
        // The time of a slot without a message is 0.
        (at != 0).then_some(at)
    }

    /// Returns the number of messages that are offered to threads which lease their message, and the number of these messages' bytes.
    fn offered_leases(&self) -> Result<(u64, u64), Fault> {
        let (mut messages, mut bytes) = (0, 0);
        self.each_waiter(List::Offered, |waiter| {
            let node = waiter.node();
            if waiter.record.size() == Lease::SIZE && waiters::state(node) == State::Settled {
                let len = self.len_of(self.segment().cell(node.slot.get())?)?;
                (messages, bytes) = (messages + 1, bytes + len as u64);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok((messages, bytes))
    }
}
