//! The ring buffer of a POSIX queue or of a message ring: cursors, entries, stamps. A repair relies on these words, and the death of a process
//! can't make them wrong. So a wrong value here is corruption.

use super::findings::Findings;
use super::slots::{SlotPlace, Survey};
use umsg_shm::posix_engine::segment::{Cell, Layout, PRIORITIES, Ring, Segment};
use umsg_shm::sync::Ordering;

/// The bits of a cell's key that are a priority. A message ring stores the number of the sender in the bits above.
const LABEL: usize = 0xffff;

/// The cursors of the ring, as the copy of the segment has them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursors {
    pub(super) drained: u64,
    pub(super) sent: u64,
    pub(super) freed: u64,
    pub(super) slots: u32,
}

/// Reads the cursors, and checks that they are consistent. Returns None if nothing more can be checked in the ring.
pub(super) fn cursors(
    segment: &Segment,
    findings: &mut Findings,
    is_settled: bool,
) -> Option<Cursors> {
    let slots = geometry(segment, findings)?;
    let words = segment.fixed().words();
    // Relaxed throughout: the segment is a private copy, and no process writes to it.
    let load = Ordering::Relaxed;
    let drained = words.drained.load(load);
    let sent = words.sent.load(load);
    let freed = words.freed.load(load);
    let batch_end = words.batch_end.load(load);
    let before = findings.count();
    // If a sender died before it advanced `sent`, receivers may already have taken the message, or the batch, that it sent.
    let furthest = match is_settled {
        true => sent,
        false if is_beyond(batch_end, sent) => batch_end,
        false => sent.wrapping_add(1),
    };
    if is_beyond(drained, furthest) {
        findings.add(
            "no more messages were received than were sent",
            words.drained,
            format_args!("at most {furthest}"),
            drained,
        );
    }
    if is_beyond(sent, freed) {
        findings.add(
            "no more messages were sent than there were free slots",
            words.sent,
            format_args!("at most {freed}"),
            sent,
        );
    }
    if freed.wrapping_sub(drained) > u64::from(slots) {
        let most = drained.wrapping_add(slots.into());
        findings.add(
            "the ring holds each slot once",
            words.freed,
            format_args!("{drained} to {most}"),
            freed,
        );
    }
    (before == findings.count()).then_some(Cursors {
        drained,
        sent,
        freed,
        slots,
    })
}

/// Returns the number of slots in circulation. None if that number or the length of the ring is impossible.
fn geometry(segment: &Segment, findings: &mut Findings) -> Option<u32> {
    let (words, layout) = (segment.fixed().words(), segment.layout());
    let mask = words.ring_mask.load(Ordering::Relaxed);
    let slots = words.slots.load(Ordering::Relaxed);
    let entries = mask as usize + 1;
    if !entries.is_power_of_two() || entries > layout.ring_len {
        let expected = format_args!("a power of two minus one, below {}", layout.ring_len);
        findings.add(
            "the ring's length is valid",
            words.ring_mask,
            expected,
            mask,
        );
        return None;
    }
    let most = entries.min(layout.slots);
    if slots == 0 || slots as usize > most {
        findings.add(
            "there are at most as many slots as entries of the ring",
            words.slots,
            format_args!("1 to {most}"),
            slots,
        );
        return None;
    }
    Some(slots)
}

/// Checks that each entry of the ring names a slot that is in no other place. The slots from `drained` to `sent` hold messages.
pub(super) fn check(
    segment: &Segment,
    cursors: Cursors,
    survey: &mut Survey,
    findings: &mut Findings,
) {
    let Cursors {
        drained,
        sent,
        freed,
        ..
    } = cursors;
    for step in 0..freed.wrapping_sub(drained) {
        let position = drained.wrapping_add(step);
        let entry = segment.ring(position);
        let slot = entry.load(Ordering::Relaxed);
        let is_message = is_beyond(sent, position);
        let place = if is_message {
            SlotPlace::Ring
        } else {
            SlotPlace::Free
        };
        if !survey.note(findings, entry, slot, place) || !is_message {
            continue;
        }
        let Ok((_, cell)) = Ring::of(segment).slot(position) else {
            continue;
        };
        let stamp = cell.words().stamp.load(Ordering::Relaxed);
        findings.equal(
            "a sent message has the stamp of its position",
            cell.words().stamp,
            position.wrapping_add(1),
            stamp,
        );
        check_message(segment, cell, findings);
    }
}

/// Checks that the header of a cell is possible.
pub(super) fn check_message(segment: &Segment, cell: &Cell, findings: &mut Findings) {
    let layout = segment.layout();
    let len = cell.words().len.get();
    if len as usize > layout.message_size {
        findings.add(
            "a message is not longer than the queue's message size",
            cell.words().len,
            format_args!("at most {}", layout.message_size),
            len,
        );
    }
    let priority = cell.key() as usize & LABEL;
    if priority >= PRIORITIES {
        findings.add(
            "a message's priority is valid",
            cell.words().key,
            format_args!("below {PRIORITIES}"),
            priority,
        );
    }
    check_block(layout, cell, len as usize, findings);
}

fn check_block(layout: &Layout, cell: &Cell, len: usize, findings: &mut Findings) {
    let offset = cell.block().get() as usize * umsg_shm::arena::GRANULE;
    if len > layout.inline()
        && len <= layout.message_size
        && (offset == 0 || offset + len > layout.arena_len)
    {
        findings.add(
            "a long message lies in a block of the arena",
            cell.block(),
            "a granule of the arena",
            cell.block().get(),
        );
    }
}

/// Returns whether the ring position `one` is after the position `other`.
pub(super) fn is_beyond(one: u64, other: u64) -> bool {
    one.wrapping_sub(other) as i64 > 0
}
