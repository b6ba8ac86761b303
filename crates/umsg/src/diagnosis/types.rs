//! The order of a System V queue: free slots, the list of arrival, the lists of types. A repair can rebuild the order from the cells.

use super::findings::Findings;
use super::ring::is_beyond;
use super::slots::{SlotPlace, Survey};
use umsg_shm::sync::Guarded32;
use umsg_shm::sysv_engine::order::{KindWords, TypeIndexStore};
use umsg_shm::sysv_engine::segment::{Layout, Segment};

/// Notes the slots in the list of free slots.
pub(super) fn check_free(segment: &Segment, survey: &mut Survey, findings: &mut Findings) {
    let mut word = segment.fixed().words().free;
    // In a circular list, the walk ends at a slot that it has already noted as free.
    while let Some(slot) = word.get().checked_sub(1) {
        if !survey.note(findings, word, slot, SlotPlace::Free) {
            return;
        }
        let Ok(place) = segment.place(slot) else {
            return;
        };
        word = place.words().next;
    }
}

/// Walks the list of all messages in order of arrival, and the list of each type.
pub(super) fn check_order(segment: &Segment, survey: &mut Survey, findings: &mut Findings) {
    let (words, roots) = (segment.fixed().words(), segment.kinds().words());
    let (mut word, mut before, mut last, mut messages, mut bytes) = (roots.head, 0, 0, 0, 0);
    while let Some(slot) = word.get().checked_sub(1) {
        if !survey.note(findings, word, slot, SlotPlace::Store) {
            return;
        }
        let (Ok(place), Ok(cell)) = (segment.place(slot), segment.cell(slot)) else {
            return;
        };
        let place = place.words();
        findings.holds(
            "a message names its predecessor in the list",
            place.previous,
            before,
        );
        check_message(segment, slot, findings);
        let sequence = place.sequence.get();
        if messages != 0 && !is_beyond(sequence, last) {
            findings.add(
                "messages are in the order of their numbers",
                place.sequence,
                format_args!("beyond {last}"),
                sequence,
            );
        }
        (before, last, word) = (slot + 1, sequence, place.next);
        messages += 1;
        bytes += cell.message_len() as u64;
    }
    findings.holds(
        "the last message is the end of the list of arrival",
        roots.tail,
        before,
    );
    findings.holds(
        "the queue's number of messages is right",
        words.messages,
        messages,
    );
    findings.holds("the queue's number of bytes is right", words.bytes, bytes);
    check_types(segment, messages, findings);
}

/// Checks that the cell of a queued message is possible.
fn check_message(segment: &Segment, slot: u32, findings: &mut Findings) {
    let (Ok(place), Ok(cell)) = (segment.place(slot), segment.cell(slot)) else {
        return;
    };
    let (last, layout) = (segment.fixed().words().sequence, segment.layout());
    let place = place.words();
    if !cell.is_queued() {
        findings.add(
            "a message in the list of arrival is marked as queued",
            cell.words().len,
            "a queued message",
            format_args!("slot {slot}, which is not"),
        );
    }
    if is_beyond(place.sequence.get(), last.get()) {
        findings.add(
            "a message's number is at most the last assigned number",
            place.sequence,
            format_args!("at most {}", last.get()),
            place.sequence.get(),
        );
    }
    let (mtype, len, words) = (cell.mtype(), cell.message_len(), cell.words());
    if mtype < 1 {
        findings.add(
            "a message's type is above 0",
            words.mtype,
            "1 or more",
            mtype,
        );
    }
    if len > layout.msgmax {
        findings.add(
            "a message is not longer than the queue's longest",
            words.len,
            format_args!("at most {}", layout.msgmax),
            len,
        );
    }
    let offset = words.block.get() as usize * umsg_shm::arena::GRANULE;
    if len > Layout::inline()
        && len <= layout.msgmax
        && (offset == 0 || offset + len > layout.arena_len)
    {
        findings.add(
            "a long message lies in a block of the arena",
            words.block,
            "a granule of the arena",
            words.block.get(),
        );
    }
    let kind = place
        .kind
        .get()
        .checked_sub(1)
        .and_then(|kind| segment.kind(kind).ok());
    match kind {
        None => findings.add(
            "a message in the list of arrival has a record of its type",
            place.kind,
            "a record plus one",
            place.kind.get(),
        ),
        Some(kind) => findings.equal(
            "a message is in the list of its type",
            kind.words().mtype,
            mtype,
            kind.words().mtype.get() as i64,
        ),
    }
}

fn check_types(segment: &Segment, messages: u32, findings: &mut Findings) {
    let (roots, most) = (segment.kinds().words(), segment.layout().slots as u32);
    let (used, usable) = (roots.used.get(), roots.usable.get());
    if usable > most || used > usable {
        let at = if usable > most {
            roots.usable
        } else {
            roots.used
        };
        return findings.add(
            "the number of type records is at most the maximum",
            at,
            format_args!("at most {}", usable.min(most)),
            at.get(),
        );
    }
    let mut sum = 0_u32;
    for index in 0..used {
        let Ok(kind) = segment.kind(index) else {
            return;
        };
        let kind = kind.words();
        if kind.head.get() != 0 {
            check_type(segment, index, kind, findings);
            sum = sum.saturating_add(kind.count.get());
        }
    }
    findings.equal(
        "each message is in the list of its type",
        roots.used,
        messages,
        sum,
    );
}

fn check_type(segment: &Segment, index: u32, kind: KindWords<'_>, findings: &mut Findings) {
    let (mut word, mut last, mut count): (&Guarded32, _, _) = (kind.head, 0, 0);
    while let Some(slot) = word.get().checked_sub(1) {
        count += 1;
        let Ok(place) = segment.place(slot) else {
            return findings.add(
                "the list of a type leads to messages",
                word,
                "a slot plus one",
                word.get(),
            );
        };
        if count > kind.count.get() {
            return findings.add(
                "the list of a type has an end",
                word,
                format_args!("0 after {} messages", kind.count.get()),
                word.get(),
            );
        }
        let place = place.words();
        findings.holds(
            "a message in the list of a type is of that type",
            place.kind,
            index + 1,
        );
        (last, word) = (slot + 1, place.next_of_kind);
    }
    findings.holds(
        "the number of messages of a type is right",
        kind.count,
        count,
    );
    findings.holds(
        "the last message of a type is the end of its list",
        kind.tail,
        last,
    );
    let above = kind
        .parent
        .get()
        .checked_sub(1)
        .and_then(|parent| segment.kind(parent).ok());
    let is_linked = match above {
        None => segment.kinds().words().root.get() == index + 1,
        Some(parent) => [parent.words().left, parent.words().right]
            .iter()
            .any(|link| link.get() == index + 1),
    };
    if !is_linked {
        findings.add(
            "a type with messages is found in the tree",
            kind.parent,
            "a record that leads to it",
            kind.parent.get(),
        );
    }
}
