//! The store of a POSIX queue: bitmaps, lists, counts. A repair can rebuild the whole store from the cells.

use super::findings::Findings;
use super::ring::{check_message, is_beyond};
use super::slots::{SlotPlace, Survey};
use umsg_shm::posix_engine::segment::{PRIORITIES, Segment};
use umsg_shm::sync::{Guarded64, Ordering};

/// The number of messages in the store, and of their bytes.
#[derive(Default)]
struct Sum {
    messages: u64,
    bytes: u64,
}

/// Walks the store, and notes which slots are in it.
pub(super) fn check(segment: &Segment, survey: &mut Survey, findings: &mut Findings) {
    check_levels(segment, findings);
    let mut sum = Sum::default();
    for priority in priorities(segment) {
        if !check_list(segment, priority, survey, &mut sum, findings) {
            // If a list is broken, the counts can't be compared.
            return;
        }
    }
    let words = segment.fixed().words();
    findings.holds(
        "the store's number of messages is right",
        words.stored,
        sum.messages,
    );
    findings.holds(
        "the store's number of bytes is right",
        words.stored_bytes,
        sum.bytes,
    );
}

/// Returns the priorities that have messages, according to the lowest level of the bitmap.
fn priorities(segment: &Segment) -> impl Iterator<Item = usize> {
    let words =
        (0..PRIORITIES / 64).map(|word| (word, segment.level0(word).map_or(0, Guarded64::get)));
    let used = words.filter(|(_, bits)| *bits != 0);
    used.flat_map(|(word, bits)| {
        (0..64)
            .filter(move |bit| bits >> bit & 1 != 0)
            .map(move |bit| word * 64 + bit)
    })
}

/// Checks that each bit of an upper level is set exactly if its word of the lower level is not 0.
fn check_levels(segment: &Segment, findings: &mut Findings) {
    let words = segment.fixed().words();
    let mut level2 = 0;
    for (i, word) in words.level1.iter().enumerate() {
        let mut level1 = 0;
        for j in 0..64 {
            let is_used = segment.level0(i * 64 + j).is_ok_and(|word| word.get() != 0);
            level1 |= u64::from(is_used) << j;
        }
        level2 |= u64::from(word.get() != 0) << i;
        findings.holds(
            "the bitmap says which priorities have messages",
            word,
            level1,
        );
    }
    findings.holds(
        "the bitmap says which priorities have messages",
        words.level2,
        level2,
    );
}

/// Checks the list of a priority. Returns false if the list is broken, so that its end can't be found.
fn check_list(
    segment: &Segment,
    priority: usize,
    survey: &mut Survey,
    sum: &mut Sum,
    findings: &mut Findings,
) -> bool {
    let Ok(fifo) = segment.fifo(priority) else {
        return false;
    };
    let (mut word, mut last) = (fifo.head(), None);
    loop {
        let slot = word.get();
        if !survey.note(findings, word, slot, SlotPlace::Store) {
            return false;
        }
        let (Ok(cell), Ok(link)) = (segment.cell(slot), segment.link(slot)) else {
            return false;
        };
        if !cell.is_stored() {
            findings.add(
                "a message in the store is marked as stored",
                cell.words().len,
                "a stored message",
                format_args!("slot {slot}, which is not"),
            );
        }
        findings.equal(
            "a message is in the list of its priority",
            cell.words().key,
            priority as u64,
            cell.key() & 0xffff,
        );
        let sequence = cell.words().sequence.get();
        if last.is_some_and(|last| !is_beyond(sequence, last)) {
            findings.add(
                "messages of a priority are in the order of their numbers",
                cell.words().sequence,
                format_args!("beyond {}", last.unwrap_or(0)),
                sequence,
            );
        }
        let newest = segment.fixed().words().sequence.get();
        if is_beyond(sequence, newest) {
            findings.add(
                "a message's number is at most the last assigned number",
                cell.words().sequence,
                format_args!("at most {newest}"),
                sequence,
            );
        }
        check_message(segment, cell, findings);
        sum.messages += 1;
        sum.bytes += cell.len() as u64;
        if slot == fifo.tail() {
            return true;
        }
        (word, last) = (link, Some(sequence));
    }
}

/// Checks the counts of held and removed messages, and of removed bytes, against the other counts. `held` is the number of held messages in the lease
/// records.
pub(super) fn check_counts(segment: &Segment, held: u64, findings: &mut Findings) {
    let words = segment.fixed().words();
    // Relaxed: the segment is a private copy, and no process writes to it.
    let load = Ordering::Relaxed;
    let drained = words.drained.load(load);
    findings.holds(
        "the number of held messages is the number of their records",
        words.held,
        held,
    );
    let removed = drained
        .wrapping_sub(words.stored.load(load))
        .wrapping_sub(held);
    findings.holds(
        "the number of removed messages is `drained` less the stored and the held messages",
        words.removed,
        removed,
    );
    let bytes = words.bytes[drained as usize & 1].load(load);
    let removed = bytes.wrapping_sub(words.stored_bytes.load(load));
    findings.holds(
        "the number of removed bytes is the drained bytes less the stored bytes",
        words.removed_bytes,
        removed,
    );
}
