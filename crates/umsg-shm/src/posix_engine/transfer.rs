//! Moves a message from one queue to another, exactly once: to a dead-letter queue, and back to the source.
//!
//! Two queues have two locks, so no single store can change both queues. The *arrival* is a record in the destination. The record stays, even if the
//! message is received, until the source has freed its own record:
//!
//! ```text
//!   source                                  destination
//!   record: Moving or Redriving, ticket
//!                                           record: Reserved; the copy is written
//!                                           record: Arrived, of (source, ticket)     the message is moved
//!                                           the copy is in the store, and may be received
//!   record: Free; the slot is free
//!                                           record: Free
//! ```
//!
//! | when the mover died | the next mover finds | the next mover |
//! |---|---|---|
//! | before `Arrived` | no arrival of its (source, ticket) | moves the message again. The dead process's reservation ends like any other |
//! | after it | the arrival | frees the slot in the source, then the arrival |
//! | after the slot is free | an arrival whose source has no such record | frees the arrival |
//!
//! Only the process that is named in the record may end a move. A forked child has copies of its parent's handles, but is another process.
//!
//! Each record gets a new ticket, so an arrival can't be mistaken for the arrival of another message.

use super::found::FoundMessage;
use super::held_messages::LeaseHandle;
use super::segment::{History, Reason, Trace};
use super::{DeferredWakes, Engine, Refused};
use crate::counters::Event;
use crate::crash::crash_point;
use crate::doorbell::Watched;
use crate::fault::Fault;
use crate::leases::{self, Claim, LeaseRecord, Leases, NO_MESSAGE, State};
use crate::lock::tokens::ReceiverHeld;
use crate::posix_engine::Priorities;
use crate::sys::clock::{self, Deadline};
use crate::sys::liveness;
use crate::sys::process;
use crate::sys::thread::Thread;

/// The source of a copy: the identifier of the queue, unique among the existing queues, and the ticket of the message's record in that queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    pub queue: u64,
    pub ticket: u64,
}

/// The bits of a queue's identifier that an arrival contains.
const QUEUE: u64 = (1 << 48) - 1;
/// The bits of a ticket that an arrival contains.
const TICKET: u64 = (1 << 48) - 1;

impl Origin {
    /// Writes the origin into the record of a reservation. The record still names the process that made the reservation, so the death of this process
    /// ends the reservation.
    fn note(self, record: &LeaseRecord) {
        record.deliveries.set(self.queue as u32);
        let upper = (self.queue & QUEUE) >> 32;
        record.until.set(upper << 48 | self.ticket & TICKET);
    }

    /// Returns the origin of the message of an arrival: its source queue, and its record in the source queue.
    pub(crate) fn of(record: &LeaseRecord) -> Origin {
        let until = record.until.get();
        Origin {
            queue: until >> 48 << 32 | u64::from(record.deliveries.get()),
            ticket: until & TICKET,
        }
    }

    /// Returns the part of the origin that an arrival contains.
    fn known(self) -> Origin {
        Origin {
            queue: self.queue & QUEUE,
            ticket: self.ticket & TICKET,
        }
    }
}

/// A message that arrives from another queue.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    pub origin: Origin,
    /// The history of the message, if it is a dead letter.
    pub history: Option<&'a History>,
    /// The trace of the message, if its events are noted.
    pub trace: Option<&'a Trace>,
    /// The time of the first send, on the machine's clock. `None` if the message is sent now.
    pub sent_at: Option<u64>,
}

/// A message that this process will move to another queue.
#[derive(Clone, Copy, Debug)]
pub struct Departure {
    pub handle: LeaseHandle,
    /// True if another process died while it moved the message. The message may have arrived at its destination.
    pub was_left: bool,
    /// The history of the message, as recorded in this queue. The caller adds the name of the source.
    pub history: History,
    /// The trace of the message, if its events are noted. The last event of the trace is the departure.
    pub trace: Option<Trace>,
}

/// A message with a history, its slot, and its first bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The identifier of the message, unique in the queue.
    pub id: u64,
    pub slot: u32,
    pub history: History,
    /// The length of the message, in bytes.
    pub len: usize,
    /// The first bytes of the message. The caller sets the maximum number of bytes.
    pub start: Vec<u8>,
}

impl Engine {
    /// Notes the present time as the time of a lease of the slot's message, in a queue whose messages may become dead letters. Without memory for
    /// such times, the time is not noted.
    #[cold]
    pub(super) fn note_delivery(&self, _: ReceiverHeld<'_>, slot: u32, is_first: bool) {
        let roots = &self.segment().fixed().leases;
        while roots.deliveries.get() <= slot {
            match self.segment().populate_deliveries(roots.deliveries.get()) {
                Ok(usable) => roots.deliveries.set(usable),
                Err(_) => return,
            }
        }
        if let Ok(deliveries) = self.segment().deliveries(slot) {
            deliveries.note(is_first, clock::monotonic_coarse());
        }
    }

    /// Returns the history of a message. Returns `None` if the message has no history.
    pub(super) fn history_of(
        &self,
        _: ReceiverHeld<'_>,
        found: &FoundMessage<'_>,
    ) -> Option<History> {
        let has_memory = found.slot < self.segment().fixed().leases.histories.get();
        if !has_memory || !found.cell.has_history() {
            return None;
        }
        Some(self.segment().history(found.slot).ok()?.read())
    }

    /// Sets the history of a message. If no memory is available, the message gets no history. The bytes of the message stay the same.
    pub(super) fn set_history(
        &self,
        _: ReceiverHeld<'_>,
        found: &FoundMessage<'_>,
        history: &History,
    ) {
        let roots = &self.segment().fixed().leases;
        while roots.histories.get() <= found.slot {
            match self.segment().populate_histories(roots.histories.get()) {
                Ok(usable) => roots.histories.set(usable),
                Err(_) => return,
            }
        }
        if let Ok(record) = self.segment().history(found.slot) {
            record.write(history);
            found.cell.set_history();
        }
    }

    /// Returns the identifier and the history of a leased message. The identifier is unique in the queue. The inner value is `None` if the message
    /// has no history. The outer value is `None` if the lease has ended.
    pub fn history(
        &self,
        me: &Thread,
        handle: &LeaseHandle,
    ) -> Result<Option<Option<(u64, History)>>, Refused> {
        self.of_leased(me, handle, |receiving, found| {
            let history = self.history_of(receiving, found)?;
            Some((found.cell.sequence(), history))
        })
    }

    /// Returns the identifier of a leased message, unique in the queue. Returns `None` if the lease has ended.
    pub fn number(&self, me: &Thread, handle: &LeaseHandle) -> Result<Option<u64>, Refused> {
        self.of_leased(me, handle, |_, found| found.cell.sequence())
    }

    /// Returns the result of `read` for the message of a lease. Returns `None` if the lease has ended.
    fn of_leased<T>(
        &self,
        me: &Thread,
        handle: &LeaseHandle,
        read: impl FnOnce(ReceiverHeld<'_>, &FoundMessage<'_>) -> T,
    ) -> Result<Option<T>, Refused> {
        self.with_receiver_lock(me, Deadline::Never, |receiving, _| {
            let mut seen = None;
            Leases::of(self.segment()).with_leased(handle, |record| {
                let found = self.in_hand(receiving, record.slot.get())?;
                seen = Some(read(receiving, &found));
                Ok::<(), Fault>(())
            })?;
            Ok(seen)
        })
    }

    /// Describes a record's message that leaves the queue.
    fn departure(
        &self,
        receiving: ReceiverHeld<'_>,
        index: u32,
        record: &LeaseRecord,
        was_left: bool,
    ) -> Result<Departure, Fault> {
        let found = self.in_hand(receiving, record.slot.get())?;
        let handle = self.handle(index, record, &found);
        let before = self.history_of(receiving, &found);
        let (pid, sent_at) = (found.cell.pid(), found.cell.sent_at());
        let mut history = before.unwrap_or_else(|| History::of_sender(pid, sent_at));
        if State::of(record) == State::Moving {
            history.reason = Reason::of_number(record.until.get() as u32);
            history.dead_at = clock::monotonic_coarse();
            let deliveries = record.deliveries.get();
            history.deliveries = history.deliveries.saturating_add(deliveries);
            if deliveries != 0 && found.slot < self.segment().fixed().leases.deliveries.get() {
                let [first, last] = self.segment().deliveries(found.slot)?.times();
                if history.first_delivery == 0 {
                    history.first_delivery = first;
                }
                history.last_delivery = last;
            }
        }
        let at = match State::of(record) {
            State::Moving => history.dead_at,
            _ => clock::monotonic_coarse(),
        };
        Ok(Departure {
            handle,
            was_left,
            trace: self.trace_of_departure(receiving, &found, record, at),
            history,
        })
    }

    /// Makes this process the mover of a record's message. Only the mover may end the move.
    fn take_over(&self, me: &Thread, record: &LeaseRecord) {
        record.pid.set(me.pid());
        let birth = liveness::birth(self.segment(), || process::birth(me.pid()));
        record.birth.set(birth);
    }

    /// Finds a message for the dead-letter queue, and makes this process its mover. Returns `None` if no message is set aside.
    pub fn begin_to_move(
        &self,
        me: &Thread,
        deadline: Deadline,
    ) -> Result<Option<Departure>, Refused> {
        liveness::register(self.segment());
        self.with_receiver_lock(me, deadline, |receiving, _| {
            for record in Leases::of(self.segment()).iter() {
                let (index, record) = record?;
                let was_left = State::of(record) == State::Moving;
                let is_left = match State::of(record) {
                    State::Aside => true,
                    State::Moving => leases::is_orphan(self.segment(), record),
                    _ => false,
                };
                if is_left {
                    self.take_over(me, record);
                    leases::set(record, State::Moving);
                    crash_point!(MOVE_BEGUN);
                    return Ok(Some(self.departure(receiving, index, record, was_left)?));
                }
            }
            Ok(None)
        })
    }

    /// Returns whether this process is the mover of a record's message.
    fn is_mover(&self, me: &Thread, record: &LeaseRecord) -> bool {
        // The process may have got its liveness id after it became the mover, so its birth is compared in both forms: the liveness id and the start
        // time.
        let start = || process::birth(me.pid());
        let births = [liveness::birth(self.segment(), start), start()];
        record.pid.get() == me.pid() && births.contains(&record.birth.get())
    }

    /// Ends a move after the dead-letter queue has taken or refused the message. Returns false if this process is no longer the mover: a forked child
    /// has copies of its parent's handles, and the parent may have begun to move the message again.
    pub fn end_move(
        &self,
        me: &Thread,
        handle: &LeaseHandle,
        moved: bool,
        deadline: Deadline,
    ) -> Result<bool, Refused> {
        self.with_receiver_lock(me, deadline, |receiving, wakes| {
            let holds = Leases::of(self.segment());
            let record = holds.find(handle.index, handle.ticket, State::Moving)?;
            let Some(record) = record.filter(|record| self.is_mover(me, record)) else {
                return Ok(false);
            };
            if moved {
                self.let_go(receiving, handle.index, record, wakes)?;
                self.segment().fixed().counters.count(Event::DeadLettered);
            } else {
                leases::set(record, State::Aside);
                // The record moves to the end of the list, so that the next mover tries other messages first.
                holds.send_to_the_end(receiving, handle.index, record)?;
            }
            Ok(true)
        })
    }

    /// Frees the slot of a message that has arrived in another queue.
    fn let_go(
        &self,
        receiving: ReceiverHeld<'_>,
        index: u32,
        record: &LeaseRecord,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        let slot = record.slot.get();
        let cell = self.segment().cell(slot)?;
        self.foretell_doorbell(receiving, 0, 1);
        self.release_record(receiving, index, record)?;
        crash_point!(DEPART_ENDED);
        cell.forget();
        self.free_held(receiving, slot, wakes);
        self.wake_at_end(receiving, wakes);
        Ok(())
    }

    /// Sends the message in the reserved slot, and leaves a record of its arrival. Returns the identifier of the message, unique in the queue.
    /// Returns `None` if the reservation has ended.
    pub fn arrive(
        &self,
        me: &Thread,
        room: &LeaseHandle,
        key: usize,
        arrival: &Arrival<'_>,
        deadline: Deadline,
    ) -> Result<Option<u64>, Refused> {
        self.prepare_commit(me, key, deadline)?;
        self.with_receiver_lock(me, deadline, |receiving, wakes| {
            self.begin_to_send(receiving, me, wakes)?;
            let Some(record) = self.reserved(room)? else {
                return Ok(None);
            };
            let (slot, len) = (record.slot.get(), room.len);
            let cell = self.segment().cell(slot)?;
            self.describe(me, cell, len, key);
            let sent_at = arrival.sent_at.unwrap_or(cell.sent_at());
            if let Some(history) = arrival.history {
                cell.restore(history.pid, sent_at, 0);
                let found = self.in_hand(receiving, slot)?;
                self.set_history(receiving, &found, history);
            } else {
                cell.restore(me.pid(), sent_at, 0);
            }
            if let Some(trace) = arrival.trace {
                let found = self.in_hand(receiving, slot)?;
                self.set_trace(receiving, &found, trace);
            }
            // The messages in the ring were sent before this message, so they enter the store first.
            self.drain(receiving)?;
            self.foretell_doorbell(receiving, 1, 0);
            arrival.origin.note(record);
            let published = &self.segment().fixed().published;
            published.count_entered_bytes(receiving, len);
            crash_point!(ARRIVE_WRITTEN);
            leases::set(record, State::Arrived);
            crash_point!(ARRIVE_NOTED);
            self.mark_stored(receiving, cell);
            let number = cell.sequence();
            crash_point!(ARRIVE_MARKED);
            Priorities::of(self.segment()).push_back(receiving, key, slot)?;
            self.count_stored(receiving, len as u64, 1);
            record.slot.set(NO_MESSAGE);
            self.count_kind(receiving, State::Reserved, -1);
            self.count_held(receiving, -1);
            crash_point!(ARRIVE_ENDED);
            self.serve(receiving, wakes)?;
            self.update_wait_flags(receiving);
            self.publish_counts(receiving);
            Ok(Some(number))
        })
    }

    /// Returns whether a message with this origin has arrived.
    pub fn has_arrived(
        &self,
        me: &Thread,
        origin: Origin,
        deadline: Deadline,
    ) -> Result<bool, Refused> {
        self.with_receiver_lock(me, deadline, |_, _| Ok(self.arrival(origin)?.is_some()))
    }

    /// Frees the record of an arrival, after the source has freed its own record.
    pub fn forget_arrival(
        &self,
        me: &Thread,
        origin: Origin,
        deadline: Deadline,
    ) -> Result<(), Refused> {
        self.with_receiver_lock(me, deadline, |receiving, _| {
            if let Some((index, record)) = self.arrival(origin)? {
                Leases::of(self.segment()).release(receiving, index, record)?;
            }
            Ok(())
        })
    }

    fn arrival(&self, origin: Origin) -> Result<Option<(u32, &LeaseRecord)>, Fault> {
        for record in Leases::of(self.segment()).iter() {
            let (index, record) = record?;
            if State::of(record) == State::Arrived && Origin::of(record) == origin.known() {
                return Ok(Some((index, record)));
            }
        }
        Ok(None)
    }

    /// Returns the tickets of all arrivals from a queue.
    #[cfg(not(loom))]
    pub fn arrivals(
        &self,
        me: &Thread,
        queue: u64,
        deadline: Deadline,
    ) -> Result<Vec<u64>, Refused> {
        self.with_receiver_lock(me, deadline, |_, _| {
            let mut tickets = Vec::new();
            for record in Leases::of(self.segment()).iter() {
                let (_, record) = record?;
                let origin = Origin::of(record);
                if State::of(record) == State::Arrived && origin.queue == queue & QUEUE {
                    tickets.push(origin.ticket);
                }
            }
            Ok(tickets)
        })
    }

    /// Returns whether a record with this ticket still moves its message to another queue.
    pub fn is_departing(
        &self,
        me: &Thread,
        ticket: u64,
        deadline: Deadline,
    ) -> Result<bool, Refused> {
        self.with_receiver_lock(me, deadline, |_, _| {
            for record in Leases::of(self.segment()).iter() {
                let (_, record) = record?;
                let is_moved = matches!(State::of(record), State::Moving | State::Redriving);
                if is_moved && record.ticket.get() & TICKET == ticket & TICKET {
                    return Ok(true);
                }
            }
            Ok(false)
        })
    }

    /// Lists up to `most` wanted messages that have a history, in order of delivery, with up to `bytes` bytes of each message.
    #[cfg(not(loom))]
    pub fn dead_letters(
        &self,
        me: &Thread,
        (most, bytes): (usize, usize),
        is_wanted: impl Fn(&DeadLetter) -> bool,
    ) -> Result<Vec<DeadLetter>, Refused> {
        self.with_receiver_lock(me, Deadline::Never, |receiving, wakes| {
            if self.holds_any() && self.may_reclaim() {
                self.reclaim_and_serve(receiving, wakes)?;
            }
            self.drain(receiving)?;
            self.publish_counts(receiving);
            let mut slots = Vec::new();
            self.find_in_store(receiving, 0, usize::MAX, &mut slots)?;
            let mut letters = Vec::new();
            // More bytes than the file has show corruption: the messages have separate memory.
            let mut room = self.segment().layout().len;
            for slot in slots {
                let found = self.in_hand(receiving, slot)?;
                let Some(history) = self.history_of(receiving, &found) else {
                    continue;
                };
                let mut letter = DeadLetter {
                    id: found.cell.sequence(),
                    slot,
                    history,
                    len: found.len,
                    start: Vec::new(),
                };
                if letters.len() == most {
                    break;
                }
                if is_wanted(&letter) {
                    let len = found.len.min(bytes);
                    room = room.checked_sub(len).ok_or(Fault::Damaged)?;
                    self.copy_start(&found, len, &mut letter.start)?;
                    letters.push(letter);
                }
            }
            Ok(letters)
        })
    }

    /// Copies the first `len` bytes of a message.
    #[cfg(not(loom))]
    fn copy_start(
        &self,
        found: &FoundMessage<'_>,
        len: usize,
        to: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        to.try_reserve_exact(len).map_err(|_| Fault::NoMemory)?;
        to.resize(len, 0);
        self.segment().copy_prefix(found.cell, found.len, to)?;
        Ok(())
    }

    /// Takes a dead letter out of the store, to send it to the queue with the identifier `to`. Returns `None` if another process has taken the
    /// message.
    pub fn begin_redrive(
        &self,
        me: &Thread,
        (slot, id): (u32, u64),
        to: u64,
    ) -> Result<Option<Departure>, Refused> {
        liveness::register(self.segment());
        self.with_receiver_lock(me, Deadline::Never, |receiving, _| {
            let found = self.in_hand(receiving, slot)?;
            let is_there = found.cell.is_stored() && found.cell.sequence() == id;
            if !is_there || !found.cell.has_history() {
                return Ok(None);
            }
            let claim = Claim {
                slot,
                pid: me.pid(),
                birth: liveness::birth(self.segment(), || process::birth(me.pid())),
                deliveries: found.cell.returns(),
            };
            let (index, record) = Leases::of(self.segment()).claim(receiving, &claim)?;
            record.until.set(to);
            self.foretell_doorbell(receiving, -1, 1);
            leases::set(record, State::Redriving);
            crash_point!(REDRIVE_HELD);
            found.cell.set_stored(false);
            Priorities::of(self.segment()).remove(receiving, found.key, slot)?;
            self.count_stored(receiving, found.len as u64, -1);
            self.count_held(receiving, 1);
            self.publish_counts(receiving);
            crash_point!(REDRIVE_BEGUN);
            Ok(Some(self.departure(receiving, index, record, false)?))
        })
    }

    /// Ends a redrive. With `moved`, the other queue has accepted the message, and this queue frees the message's slot. Otherwise the message returns
    /// to its place.
    pub fn end_redrive(
        &self,
        me: &Thread,
        handle: &LeaseHandle,
        moved: bool,
    ) -> Result<(), Refused> {
        self.with_receiver_lock(me, Deadline::Never, |receiving, wakes| {
            let holds = Leases::of(self.segment());
            let Some(record) = holds.find(handle.index, handle.ticket, State::Redriving)? else {
                return Ok(());
            };
            if moved {
                return Ok(self.let_go(receiving, handle.index, record, wakes)?);
            }
            let (slot, returns) = (record.slot.get(), record.deliveries.get());
            let found = self.in_hand(receiving, slot)?;
            self.foretell_doorbell(receiving, 1, 0);
            found.cell.set_returns(returns, true);
            crash_point!(REDRIVE_RETURNED);
            Priorities::of(self.segment()).push_in_order(receiving, found.key, slot)?;
            self.count_stored(receiving, found.len as u64, 1);
            self.release_record(receiving, handle.index, record)?;
            self.publish_counts(receiving);
            self.serve(receiving, wakes)?;
            self.update_wait_flags(receiving);
            Ok(())
        })
    }

    /// Finds messages whose redrive a dead process has left unfinished, and makes this process their mover. Returns each message with the identifier
    /// of its destination queue.
    pub fn left_redrives(&self, me: &Thread) -> Result<Vec<(LeaseHandle, u64)>, Refused> {
        self.with_receiver_lock(me, Deadline::Never, |receiving, _| {
            let mut left = Vec::new();
            for record in Leases::of(self.segment()).iter() {
                let (index, record) = record?;
                if State::of(record) == State::Redriving
                    && leases::is_orphan(self.segment(), record)
                {
                    self.take_over(me, record);
                    let found = self.in_hand(receiving, record.slot.get())?;
                    left.push((self.handle(index, record, &found), record.until.get()));
                }
            }
            Ok(left)
        })
    }
}
