//! Repairs: the next owner of a lock restores the data of the dead owner.
//!
//! A repair trusts the cursors of the ring, the stamps and marks of the cells, and the words of the nodes. A repair rebuilds everything else. If a
//! repair is killed, the lock is orphaned again, and the next owner starts the repair from the beginning. The time of a repair grows with the number
//! of slots in circulation.

use super::{Engine, batch};
use crate::arena;
use crate::crash::crash_point;
use crate::fault::Fault;
use crate::leases::LeaseRecord;
use crate::leases::{self, Leases};
use crate::lock::tokens::{ReceiverHeld, SenderHeld};
use crate::posix_engine::Priorities;
use crate::posix_engine::segment::{Ring, Segment};
use crate::repair::survey::{Queued, Survey};
use crate::sync::{Ordering, fence};
use crate::sys::scratch::Scratch;
use crate::waiters::{List, State, Waiters, state};
use crate::waiters::{NO_SLOT, Node};

/// Repairs the senders' side after its owner died.
///
/// | the owner died | the repair finds | the repair does |
/// |---|---|---|
/// | before the stamp | `ring[sent]` has an old stamp | nothing: the next sender fills the slot again |
/// | between stamp and cursor | `ring[sent]` has its stamp, or `drained` has passed it | moves the cursor: the message was sent |
/// | in a batch, before its first stamp | `batch_end` is beyond `sent`, `ring[sent]` has an old stamp | removes the other stamps: nothing was sent |
/// | in a batch, after it | `batch_end` is beyond `sent`, else as above | moves the cursor to `batch_end`: all was sent |
/// | after it announced a priority | the one-priority word names position `sent` | nothing: the next message has the announced priority, or changes the word |
/// | while it changed the arena | the arena's mark | rebuilds the lists from the slots |
pub(crate) fn sender_side(sending: SenderHeld<'_>, segment: &Segment) -> Result<(), Fault> {
    let fixed = segment.fixed();
    fixed.header.damage.check_mended()?;
    let sender = &fixed.sender;
    let freed = fixed.published.freed_so_far();
    let sent = sender.next_position(sending);
    let published = sent != freed && Ring::of(segment).published(sent)?.is_some();
    // GONE: a receiver may have taken the message already, and the entry of the ring may then contain another slot. The fence pairs with the release
    // in `Ring::write`: if the entry contains another slot, the cursor has passed the position.
    fence(Ordering::Acquire);
    let drained = fixed.receiver.drained_hint();
    let is_sent = published || drained.wrapping_sub(sent) as i64 > 0;
    match batch::unfinished(segment, sent)? {
        Some(end) if is_sent => sender.count_batch(sending, end),
        Some(end) => batch::take_back(sending, segment, sent, end)?,
        None if is_sent => sender.move_cursor(sending, sent.wrapping_add(1)),
        None => {}
    }
    sender.see_freed(sending, freed);
    // KEPT: the queue looks full to the next sender. So that sender first finds out how much room there is, and whether a thread waits for it.
    sender.keep_room(sending, segment.layout().max_messages);
    if sender.is_arena_broken(sending) {
        arena::rebuild(segment, sending)?;
    }
    fixed.note_sender_repair(sending);
    Ok(())
}

/// Repairs the receivers' side, and the senders' side if its lock was lent.
///
/// Every slot is in one of these places: held by a process, in the ring between `drained` and `freed`, named by a node, or marked as stored. All
/// other slots belonged to the dead owner, and become free. The repair rebuilds the store and the lists of nodes.
pub(crate) fn receiver_side(receiving: ReceiverHeld<'_>, engine: &Engine) -> Result<(), Fault> {
    let segment = engine.segment();
    let fixed = segment.fixed();
    fixed.header.damage.check_mended()?;
    if fixed.sender.lock.is_left_lent() {
        sender_side(receiving.with_loan().sender(), segment)?;
        fixed.sender.lock.give_back();
    }
    let slots = (fixed.geometry.slots() as usize).min(segment.layout().slots);
    let mut survey = Survey::new(slots)?;
    survey_holds(receiving, engine, &mut survey)?;
    settle_nodes(receiving, engine, &mut survey)?;
    survey_ring(receiving, segment, &mut survey)?;
    let mut stored = survey.list_queued(|slot| {
        let cell = segment.cell(slot)?;
        Ok(cell.is_stored().then(|| cell.sequence()))
    })?;
    crash_point!(REPAIR_SURVEYED);
    rebuild_store(receiving, engine, &mut stored)?;
    crash_point!(REPAIR_STORED);
    free_the_rest(receiving, engine, &survey);
    crash_point!(REPAIR_FREED);
    // The counts are not published here, but after the waiters for room were served.
    Waiters::of(segment).rebuild(receiving)?;
    Leases::of(segment).rebuild(receiving)?;
    engine.note_delayed(receiving);
    engine.find_registration(receiving);
    fixed.note_receiver_repair(receiving);
    Ok(())
}

/// Completes or ends every lease and reservation, and notes their slots in the survey. If other words name the same slot, the record takes
/// precedence.
fn survey_holds(
    receiving: ReceiverHeld<'_>,
    engine: &Engine,
    survey: &mut Survey,
) -> Result<(), Fault> {
    for (_, record) in Leases::of(engine.segment()).all() {
        if leases::State::of(record) == leases::State::Arrived {
            complete_arrival(receiving, engine, record)?;
            continue;
        }
        if !complete_hold(receiving, engine, record)? || !survey.note(record.slot.get()) {
            leases::set(record, leases::State::Free);
        }
    }
    Ok(())
}

/// Completes the interrupted step of a lease or reservation: the owner of the lock may have died in it. Returns false if the record has ended.
fn complete_hold(
    receiving: ReceiverHeld<'_>,
    engine: &Engine,
    record: &LeaseRecord,
) -> Result<bool, Fault> {
    let slot = record.slot.get();
    match leases::State::of(record) {
        leases::State::Free | leases::State::Arrived => Ok(false),
        // Death at the crash point COMMIT_MARKED: the message is sent, and is in the store.
        leases::State::Reserved => Ok(!engine.segment().cell(slot)?.is_stored()),
        // Death at LEASE_HELD or RETURN_MARKED: the message belongs to the lease, even if the queue still contains it. Death at DUE_MARKED: the
        // message is delayed, even if it is marked as stored. Death at REDRIVE_HELD or REDRIVE_RETURNED: the message is being sent to another queue,
        // even if it is marked as stored.
        leases::State::Leased
        | leases::State::Aside
        | leases::State::Moving
        | leases::State::Delayed
        | leases::State::Redriving => {
            leave_queue(receiving, engine, slot)?;
            Ok(true)
        }
    }
}

/// Completes an arrival. After a death at the crash point ARRIVE_NOTED or ARRIVE_MARKED, puts the message into the store and removes the message from
/// its record.
fn complete_arrival(
    receiving: ReceiverHeld<'_>,
    engine: &Engine,
    record: &LeaseRecord,
) -> Result<(), Fault> {
    let slot = record.slot.get();
    if slot == leases::NO_MESSAGE {
        return Ok(());
    }
    let cell = engine.segment().cell(slot)?;
    if !cell.is_stored() {
        engine.mark_stored(receiving, cell);
    }
    record.slot.set(leases::NO_MESSAGE);
    Ok(())
}

/// Removes the message in `slot` from the queue, if the queue still contains it. A lease or a node owns this message.
fn leave_queue(receiving: ReceiverHeld<'_>, engine: &Engine, slot: u32) -> Result<(), Fault> {
    let segment = engine.segment();
    let drained = segment.fixed().receiver.drained(receiving);
    if let Some((next, cell)) = Ring::of(segment).published(drained)?
        && next == slot
        && !cell.is_stored()
    {
        let receiver = &segment.fixed().receiver;
        receiver.advance(receiving, drained, cell.len());
    }
    segment.cell(slot)?.set_stored(false);
    Ok(())
}

/// Completes the interrupted step of every node: the owner of the lock may have died in it. Notes the slots of nodes in the survey.
fn settle_nodes(
    receiving: ReceiverHeld<'_>,
    engine: &Engine,
    survey: &mut Survey,
) -> Result<(), Fault> {
    for (_, node) in Waiters::of(engine.segment()).all() {
        match (List::of(node), state(node)) {
            (List::None, _) | (List::Receivers, State::Waiting) => {}
            // Death at the crash point LEASE_HELD: the thread of the node has leased the offered message.
            (List::Offered, _) if survey.has(node.slot.get() as usize) => {
                node.list.set(List::None as u32);
            }
            (List::Receivers, State::Free | State::Accepted | State::DiedWaiting) => {
                node.list.set(List::None as u32)
            }
            (List::Receivers | List::Offered, State::Settled | State::DiedSettled) => {
                complete_offer(receiving, engine, node)?;
                survey.note(node.slot.get());
            }
            (List::Offered, _) => return_offer(engine, node)?,
            (List::Senders, State::Waiting) => {
                survey.note(node.slot.get());
            }
            // The batch has its turn, so its node leaves the list. If the node's thread lives, the thread tries to send the batch.
            (List::Senders, State::Settled | State::DiedSettled) if node.slot.get() == NO_SLOT => {
                node.list.set(List::None as u32)
            }
            (List::Senders, State::Settled | State::DiedSettled) => {
                complete_admission(receiving, engine, node)?
            }
            // The sender gave up or died: no other word names the slot, so it becomes free.
            (List::Senders, _) => node.list.set(List::None as u32),
        }
    }
    Ok(())
}

/// Completes an offer. After a death at the crash point SERVE_OFFERED, the message belongs to the node, even if the queue still contains it.
fn complete_offer(receiving: ReceiverHeld<'_>, engine: &Engine, node: &Node) -> Result<(), Fault> {
    leave_queue(receiving, engine, node.slot.get())?;
    node.list.set(List::Offered as u32);
    Ok(())
}

/// Puts a message back into the store if the owner of the lock died while it withdrew the offer of the message. The message keeps its sequence
/// number.
fn return_offer(engine: &Engine, node: &Node) -> Result<(), Fault> {
    engine.segment().cell(node.slot.get())?.set_stored(true);
    node.list.set(List::None as u32);
    Ok(())
}

/// Completes an admission. After a death at the crash point ADMIT_ACCEPTED, the message is sent. If the message is not in the store, puts it into the
/// store.
fn complete_admission(
    receiving: ReceiverHeld<'_>,
    engine: &Engine,
    node: &Node,
) -> Result<(), Fault> {
    let cell = engine.segment().cell(node.slot.get())?;
    if !cell.is_stored() {
        engine.mark_stored(receiving, cell);
    }
    node.list.set(List::None as u32);
    Ok(())
}

/// Notes the slots in the ring in the survey, and marks their messages as not stored. After a death at the crash point DRAIN_LINKED, a message that
/// was being moved into the store stays in the ring.
fn survey_ring(
    receiving: ReceiverHeld<'_>,
    segment: &Segment,
    survey: &mut Survey,
) -> Result<(), Fault> {
    let fixed = segment.fixed();
    let drained = fixed.receiver.drained(receiving);
    let freed = fixed.published.freed(receiving);
    let len = freed.wrapping_sub(drained);
    if len > survey.slots() as u64 {
        return Err(Fault::Damaged);
    }
    // From the first unpublished position on, the slots belong to senders. A sender may be filling one of these slots.
    let mut is_ours = true;
    for step in 0..len {
        let position = drained.wrapping_add(step);
        let (slot, cell) = Ring::of(segment).slot(position)?;
        if !survey.note(slot) {
            return Err(Fault::Damaged);
        }
        is_ours = is_ours && Ring::of(segment).published(position)?.is_some();
        if is_ours && cell.is_stored() {
            cell.forget();
        }
    }
    Ok(())
}

/// Rebuilds the store from the messages that are marked as stored.
fn rebuild_store(
    receiving: ReceiverHeld<'_>,
    engine: &Engine,
    stored: &mut Scratch<Queued>,
) -> Result<(), Fault> {
    let segment = engine.segment();
    let receiver = &segment.fixed().receiver;
    Priorities::of(segment).clear(receiving)?;
    crash_point!(REPAIR_CLEARED);
    let (mut messages, mut bytes) = (0, 0);
    stored.sort_unstable();
    for &(sequence, slot) in stored.iter() {
        let found = engine.in_hand(receiving, slot)?;
        Priorities::of(segment).push_back(receiving, found.key, slot)?;
        (messages, bytes) = (messages + 1, bytes + found.len as u64);
        receiver.raise_sequence(receiving, sequence);
    }
    // The count is stored last: receivers read the count without the lock, and must not find the store empty during the repair.
    receiver.set_stored(receiving, messages, bytes);
    Ok(())
}

/// Frees the slots that the survey found in no place.
fn free_the_rest(receiving: ReceiverHeld<'_>, engine: &Engine, survey: &Survey) {
    for slot in 0..survey.slots() as u32 {
        if !survey.has(slot as usize)
            && let Ok(cell) = engine.segment().cell(slot)
        {
            cell.forget();
            engine.free_slot(receiving, slot);
        }
    }
}
