//! The hints of a POSIX queue: the copies that senders and receivers keep of each other's words, and the words that say whether a check is
//! worthwhile. Processes act on hints, but no state of the queue depends on a hint.

use super::findings::Findings;
use super::ring::is_beyond;
use umsg_shm::leases::{LeaseStore, State};
use umsg_shm::posix_engine::segment::Segment;
use umsg_shm::sync::{AtomicU32, Ordering};
use umsg_shm::sys::clock;

/// The longest time by which a process postpones a check of the holders, in nanoseconds.
const HOUR: u64 = 3_600_000_000_000;

/// The permission bits of chmod(2).
const MODES: u32 = 0o7777;

/// Checks the queue's permissions, for both kinds of queues.
pub(super) fn check_mode(mode: &AtomicU32, findings: &mut Findings) {
    // Relaxed: no process writes to the private copy.
    let found = mode.load(Ordering::Relaxed);
    if found > MODES {
        findings.add(
            "the queue's mode consists of permission bits",
            mode,
            format_args!("at most {MODES:04o}"),
            format_args!("{found:o}"),
        );
    }
}

/// Checks the hints of the senders' side, while no thread holds a lock.
pub(super) fn check_senders(segment: &Segment, findings: &mut Findings) {
    let words = segment.fixed().words();
    // Relaxed throughout: no process writes to the private copy.
    let load = Ordering::Relaxed;
    let (sent, freed) = (words.sent.load(load), words.freed.load(load));
    let seen = words.freed_seen.get();
    if is_beyond(seen, freed) || is_beyond(sent, seen) {
        findings.add(
            "the senders' copy of `freed` is between `sent` and `freed`",
            words.freed_seen,
            format_args!("{sent} to {freed}"),
            seen,
        );
    }
    // An offer that is withdrawn lowers `removed`, and the copy stays. The number of messages that were taken from the ring is never lowered.
    let (seen, drained) = (words.removed_seen.get(), words.drained.load(load));
    if is_beyond(seen, drained) {
        findings.add(
            "the senders' copy of `removed` is at most `drained`",
            words.removed_seen,
            format_args!("at most {drained}"),
            seen,
        );
    }
}

/// Checks the time of the next inspection of the holders, and the list of free records, for both kinds of queues.
pub(super) fn check_holding(segment: &impl LeaseStore, findings: &mut Findings) {
    let roots = segment.roots_of_leases();
    let slots = segment.slots() as u32;
    let look_after = roots.look_after.load(Ordering::Relaxed);
    let latest = clock::monotonic().saturating_add(HOUR);
    if look_after > latest {
        findings.add(
            "the next check of the lease holders is due within an hour",
            &roots.look_after,
            format_args!("at most {latest}"),
            look_after,
        );
    }
    if roots.returned.get() > slots {
        findings.add(
            "a returned message has a valid slot number",
            &roots.returned,
            format_args!("at most {slots}"),
            roots.returned.get(),
        );
    }
    let (mut link, mut left) = (roots.free.get(), slots);
    let mut word = &roots.free;
    while let Some(index) = link.checked_sub(1) {
        let is_free = index < roots.used.get() && left != 0;
        let free = segment
            .lease_record(index)
            .ok()
            .filter(|record| is_free && State::of(record) == State::Free);
        let Some(record) = free else {
            return findings.add(
                "the list of unused records leads to such records",
                word,
                "0, or an unused record plus one",
                link,
            );
        };
        (word, link, left) = (&record.next, record.next.get(), left - 1);
    }
}
