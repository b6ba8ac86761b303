//! Leases and reservations of queues of both kinds: their holders, and whether the records are valid.

use super::findings::Findings;
use super::process::Process;
use super::slots::{SlotPlace, Survey};
use std::time::Duration;
use umsg_shm::leases::{self, LeaseStore, NO_MESSAGE, State};
use umsg_shm::sys::clock;

/// A message that a process holds, or room that a process has reserved for a message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hold {
    /// The way in which the message is held.
    pub kind: HoldKind,
    /// The process that holds the message or the room. A message that is set aside has no holder.
    pub who: Option<Process>,
    /// The length of the message, or of the reserved room, in bytes.
    pub bytes: u32,
    /// The number of deliveries of the message, including the present delivery.
    pub deliveries: u32,
    /// The time until the lease ends by itself. None if the lease has no time limit.
    pub ends_in: Option<Duration>,
}

/// The way in which a message is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HoldKind {
    /// The message was received, and may return to the queue.
    Leased,
    /// A process has reserved the room and is writing the message.
    Reserved,
    /// The message waits to be moved to the dead-letter queue.
    SetAside,
    /// The message is delivered later.
    Delayed,
    /// The message is a dead letter that a process sends back to the original queue.
    Redriven,
}

/// The numbers of lease records, by kind.
#[derive(Default)]
pub(super) struct Count {
    pub(super) reserved: u32,
    pub(super) leased: u32,
    pub(super) aside: u32,
    pub(super) delayed: u32,
    pub(super) redriving: u32,
    /// Records that note the arrival of a message that was moved to this queue. These records hold no message.
    pub(super) arrived: u32,
}

impl Count {
    /// Returns the number of messages that count for the queue's capacity.
    pub(super) fn held(&self) -> u64 {
        u64::from(self.reserved)
            + u64::from(self.leased)
            + u64::from(leases::in_the_way(self.aside))
            + u64::from(self.delayed)
            + u64::from(self.redriving)
    }
}

/// Checks the lease records and their list. Notes the slots that the records name.
pub(super) fn check(
    segment: &impl LeaseStore,
    survey: &mut Survey,
    findings: &mut Findings,
) -> Count {
    let roots = segment.roots_of_leases();
    let most = segment.slots() as u32;
    let (used, usable) = (roots.used.get(), roots.usable.get());
    if usable > most {
        findings.add(
            "there are at most as many records of holds as slots",
            &roots.usable,
            format_args!("at most {most}"),
            usable,
        );
    }
    if used > usable {
        findings.add(
            "only records with memory were used",
            &roots.used,
            format_args!("at most {usable}"),
            used,
        );
    }
    let mut count = Count::default();
    for (_, record) in all(segment) {
        if record.state.get() > State::Redriving as u32 {
            findings.add(
                "the state of a hold's record is valid",
                &record.state,
                "0 to 7",
                record.state.get(),
            );
        }
        match State::of(record) {
            State::Free => continue,
            State::Reserved => count.reserved += 1,
            State::Leased => count.leased += 1,
            State::Aside | State::Moving => count.aside += 1,
            State::Delayed => count.delayed += 1,
            State::Redriving => count.redriving += 1,
            State::Arrived => {
                count.arrived += 1;
                findings.holds(
                    "the record of an arrival holds no message",
                    &record.slot,
                    NO_MESSAGE,
                );
                continue;
            }
        }
        survey.note(findings, &record.slot, record.slot.get(), SlotPlace::Hold);
    }
    count
}

/// Checks that the list of records and the counters agree with the records.
pub(super) fn check_list(segment: &impl LeaseStore, count: &Count, findings: &mut Findings) {
    let links = &segment.roots_of_leases().list;
    let all = count.reserved
        + count.leased
        + count.aside
        + count.delayed
        + count.redriving
        + count.arrived;
    let (mut link, mut word, mut before, mut length) = (links.head.get(), &links.head, 0, 0);
    while let Some(index) = link.checked_sub(1) {
        let Ok(record) = segment.lease_record(index) else {
            return findings.add(
                "the list of holds leads to records",
                word,
                "0, or a record's number plus one",
                link,
            );
        };
        length += 1;
        if length > all {
            return findings.add(
                "the list of holds has an end",
                word,
                format_args!("0 after {all} records"),
                link,
            );
        }
        findings.holds(
            "a record names its predecessor in the list",
            &record.previous,
            before,
        );
        (before, word, link) = (link, &record.next, record.next.get());
    }
    findings.holds(
        "all records in use are in the list of holds",
        &links.tail,
        before,
    );
    findings.holds("the number of holds is right", &links.len, all);
    let roots = segment.roots_of_leases();
    findings.holds(
        "the number of reservations is right",
        &roots.reserved,
        count.reserved,
    );
    findings.holds(
        "the number of messages set aside is right",
        &roots.aside,
        count.aside,
    );
    findings.holds(
        "the number of delayed messages is right",
        &roots.delayed,
        count.delayed,
    );
}

/// Returns all records that were ever used.
pub(super) fn all<S: LeaseStore>(segment: &S) -> impl Iterator<Item = (u32, &leases::LeaseRecord)> {
    let used = segment
        .roots_of_leases()
        .used
        .get()
        .min(segment.slots() as u32);
    (0..used).filter_map(|index| Some((index, segment.lease_record(index).ok()?)))
}

/// Returns the leases and reservations; `bytes` says how many bytes the message in a slot has.
pub(super) fn held<S: LeaseStore>(segment: &S, bytes: impl Fn(u32) -> u32) -> Vec<Hold> {
    let kind = |record: &leases::LeaseRecord| {
        Some(match State::of(record) {
            State::Free | State::Arrived => return None,
            State::Reserved => HoldKind::Reserved,
            State::Leased => HoldKind::Leased,
            State::Aside | State::Moving => HoldKind::SetAside,
            State::Delayed => HoldKind::Delayed,
            State::Redriving => HoldKind::Redriven,
        })
    };
    let now = clock::monotonic();
    let until = |record: &leases::LeaseRecord| match (State::of(record), record.until.get()) {
        (State::Leased | State::Delayed, at) if at != 0 => {
            Some(Duration::from_nanos(at.saturating_sub(now)))
        }
        _ => None,
    };
    all(segment)
        .filter_map(|(_, record)| Some((kind(record)?, record)))
        .map(|(kind, record)| Hold {
            kind,
            who: (record.pid.get() != 0)
                .then(|| Process::of(segment, record.pid.get(), record.birth.get())),
            bytes: bytes(record.slot.get()),
            deliveries: record.deliveries.get(),
            ends_in: until(record),
        })
        .collect()
}
