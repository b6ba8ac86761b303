//! Repair of a queue whose lock is orphaned, by the next owner of the lock.
//!
//! The repair trusts the states of cells, the numbers of messages, the words and lists of nodes, and the lease records. It
//! rebuilds all other data. A repair may be killed at any point: the next owner of the lock starts over.
//!
//! | a slot is | if | and |
//! |---|---|---|
//! | leased or delayed | a lease record says so, and its cell is queued | stays so |
//! | offered | a receiver's node is settled with it | stays offered; [`reap`](super::Engine) takes the offer of a dead thread back |
//! | parked | a waiting sender's node names it | stays parked |
//! | to be sent | a settled or accepted sender's node names it, and its number is beyond the control block's | is sent |
//! | queued | its cell says so, and its number is not beyond the control block's | goes into the order |
//! | free | none of these holds | goes into the free list |

use super::Engine;
use super::segment::{Cell, Reply, Segment, Sum, WaiterRecord};
use crate::arena::{self, ArenaStore};
use crate::crash::crash_point;
use crate::fault::Fault;
use crate::leases::{self, Leases, State as LeaseState};
use crate::lock::tokens::ReceiverHeld;
use crate::repair::survey::{Queued, Survey};
use crate::sys::scratch::Scratch;
use crate::sysv_engine::order::{Order, TypeIndexStore};
use crate::waiters::NO_SLOT;
use crate::waiters::{List, State, Waiters, state};

/// Repairs the queue, and logs the repair.
pub(super) fn repair(receiving: ReceiverHeld<'_>, engine: &Engine) -> Result<(), Fault> {
    let fixed = engine.segment().fixed();
    fixed.header.damage.check_mended()?;
    rebuild(receiving, engine)?;
    fixed.log_repair(receiving);
    Ok(())
}

/// Repairs the queue without a log entry.
pub(super) fn rebuild(receiving: ReceiverHeld<'_>, engine: &Engine) -> Result<(), Fault> {
    let segment = engine.segment();
    let control = &segment.fixed().control;
    let used = used_slots(receiving, segment)?;
    let mut survey = Survey::new(used)?;
    let held = survey_leases(segment, &mut survey)?;
    settle_senders(receiving, engine, &mut survey)?;
    settle_receivers(segment, &mut survey)?;
    let mut queued = survey.list_queued(|slot| match is_sent(segment, slot)? {
        true => Ok(Some(segment.place(slot)?.sequence())),
        false => Ok(None),
    })?;
    crash_point!(MSG_SURVEYED);
    let counts = rebuild_order(receiving, segment, &mut queued)?;
    crash_point!(MSG_ORDERED);
    free_the_rest(receiving, segment, &survey)?;
    Waiters::of(segment).rebuild(receiving)?;
    Leases::of(segment).rebuild(receiving)?;
    if segment.arena_dirty().get() != 0 {
        arena::rebuild(segment, receiving)?;
    }
    control.recount(receiving, counts, held);
    Ok(())
}

/// After this number of slots in a row that never held a message, no later slot was ever filled: slots come into use in order, and a sender fills
/// each slot at once.
const NEVER_FILLED: usize = 4096;

/// Returns the number of slots that were ever used. A peer may forge the word: a walk over unused slots would allocate their memory.
fn used_slots(receiving: ReceiverHeld<'_>, segment: &Segment) -> Result<usize, Fault> {
    let control = &segment.fixed().control;
    let used = control.used().min(control.usable()) as usize;
    let used = used.min(segment.layout().slots);
    // In a model, no thread forges the word.
    if used <= NEVER_FILLED || cfg!(loom) {
        return Ok(used);
    }
    let mut filled = 0;
    for slot in 0..used {
        if segment.cell(slot as u32)?.mtype() != 0 {
            filled = slot + 1;
        } else if slot + 1 - filled == NEVER_FILLED {
            control.cut_slots(receiving, filled as u32);
            return Ok(filled);
        }
    }
    Ok(used)
}

impl Sum {
    fn add(&mut self, cell: &Cell) {
        self.messages += 1;
        self.bytes += cell.message_len() as u64;
    }
}

/// Notes the slots of leases in the survey. After a death at the crash point MSG_ACKNOWLEDGED, the message of a lease is already removed, and this
/// function frees the record of the lease.
fn survey_leases(segment: &Segment, survey: &mut Survey) -> Result<Sum, Fault> {
    let mut held = Sum::default();
    for (_, record) in Leases::of(segment).all() {
        if !matches!(
            LeaseState::of(record),
            LeaseState::Leased | LeaseState::Delayed
        ) {
            continue;
        }
        let slot = record.slot.get();
        let is_live = segment.cell(slot).is_ok_and(Cell::is_queued);
        if is_live && survey.note(slot) {
            held.add(segment.cell(slot)?);
        } else {
            leases::set(record, LeaseState::Free);
        }
    }
    Ok(held)
}

/// Completes interrupted admissions, and notes the slots of parked messages in the survey.
fn settle_senders(
    receiving: ReceiverHeld<'_>,
    engine: &Engine,
    survey: &mut Survey,
) -> Result<(), Fault> {
    let segment = engine.segment();
    for (index, node) in Waiters::of(segment).all() {
        if List::of(node) != List::Senders {
            continue;
        }
        match state(node) {
            State::Waiting => {
                survey.note(node.slot.get());
                continue;
            }
            State::Settled | State::Accepted | State::DiedSettled => {
                finish_admission(receiving, engine, segment.waiter_record(index)?)?;
            }
            State::Free | State::DiedWaiting => {}
        }
        node.list.set(List::None as u32);
    }
    Ok(())
}

/// Completes an admission. After a death at the crash point MSG_ADMITTED, the sender's reply says that the message is sent, but the message has no
/// number. Such a message gets its number here.
fn finish_admission(
    receiving: ReceiverHeld<'_>,
    engine: &Engine,
    record: &WaiterRecord,
) -> Result<(), Fault> {
    let slot = record.node().slot.get();
    if record.reply() == Some(Reply::Sent) && slot != NO_SLOT && !is_sent(engine.segment(), slot)? {
        engine.commit(receiving, slot)?;
    }
    Ok(())
}

/// Completes interrupted offers, and notes the offered slots in the survey.
///
/// This function runs after [`settle_senders`]: a receiver may accept a message before the node of its sender is off its list. This function then
/// removes the message.
fn settle_receivers(segment: &Segment, survey: &mut Survey) -> Result<(), Fault> {
    for (index, node) in Waiters::of(segment).all() {
        let record = segment.waiter_record(index)?;
        match (List::of(node), state(node)) {
            (List::Receivers, State::Waiting) | (List::None | List::Senders, _) => {}
            // Death at the crash point MSG_OFFERED: the message belongs to the node, unless a later lease has noted the slot.
            (List::Receivers | List::Offered, State::Settled | State::DiedSettled)
                if has_message(record, node.list.get()) && survey.note(node.slot.get()) =>
            {
                node.list.set(List::Offered as u32);
            }
            // The receiver has an accepted message, so the slot becomes free. If the receiver gave up (the next case), the message stays queued, as
            // its cell says.
            (List::Receivers | List::Offered, State::Accepted) => {
                segment.cell(node.slot.get())?.end();
                node.list.set(List::None as u32);
            }
            (List::Receivers | List::Offered, _) => node.list.set(List::None as u32),
        }
    }
    Ok(())
}

/// Returns whether the reply to a settled node is a message.
fn has_message(record: &WaiterRecord, list: u32) -> bool {
    list == List::Offered as u32 || record.reply() == Some(Reply::Message)
}

/// Returns whether the message in a slot is sent and not yet received.
fn is_sent(segment: &Segment, slot: u32) -> Result<bool, Fault> {
    let sequence = segment.place(slot)?.sequence();
    let last = segment.fixed().control.last_number();
    Ok(segment.cell(slot)?.is_queued() && last.wrapping_sub(sequence) as i64 >= 0)
}

fn rebuild_order(
    receiving: ReceiverHeld<'_>,
    segment: &Segment,
    queued: &mut Scratch<Queued>,
) -> Result<Sum, Fault> {
    let order = Order::of(segment);
    order.clear(receiving)?;
    crash_point!(MSG_CLEARED);
    queued.sort_unstable();
    let mut counts = Sum::default();
    for &(sequence, slot) in queued.iter() {
        let cell = segment.cell(slot)?;
        let mtype = cell.mtype();
        order.provide(mtype)?;
        order.push_back(receiving, slot, mtype, sequence)?;
        counts.add(cell);
    }
    Ok(counts)
}

fn free_the_rest(
    receiving: ReceiverHeld<'_>,
    segment: &Segment,
    survey: &Survey,
) -> Result<(), Fault> {
    let control = &segment.fixed().control;
    control.set_free_link(receiving, 0);
    for slot in (0..survey.slots()).rev() {
        if !survey.has(slot) {
            segment.cell(slot as u32)?.end();
            let place = segment.place(slot as u32)?;
            place.set_next_free(receiving, control.free_link());
            control.set_free_link(receiving, slot as u32 + 1);
        }
    }
    Ok(())
}
