//! What is held beyond a call: by whom, and whether the records make sense. Of queues of both kinds.

use super::findings::Findings;
use super::process::Process;
use super::slots::{Place, Survey};
use std::time::Duration;
use umsg_shm::leases::{self, LeaseStore, State};
use umsg_shm::sync::Ordering;
use umsg_shm::sys::clock;

/// A message that a process holds, or room for one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hold {
    /// In which way.
    pub kind: HoldKind,
    /// By whom; nobody holds what was set aside.
    pub who: Option<Process>,
    /// Bytes of the message; of a reservation, of the room.
    pub bytes: u32,
    /// How often the message was delivered, this time included.
    pub deliveries: u32,
    /// When the lease ends by itself, from now. None if it does not.
    pub ends_in: Option<Duration>,
}

/// In which way a message is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HoldKind {
    /// It was received and may come back.
    Leased,
    /// It is being written.
    Reserved,
    /// It is on its way to the dead-letter queue.
    SetAside,
}

/// How many there are of each kind.
#[derive(Default)]
pub(super) struct Count {
    pub(super) reserved: u32,
    pub(super) leased: u32,
    pub(super) aside: u32,
}

impl Count {
    /// How many count for the queue's capacity.
    pub(super) fn held(&self) -> u64 {
        u64::from(self.reserved)
            + u64::from(self.leased)
            + u64::from(leases::in_the_way(self.aside))
    }
}

/// Whether the records and their list make sense; notes whose slots they are.
pub(super) fn check(
    segment: &impl LeaseStore,
    survey: &mut Survey,
    findings: &mut Findings,
) -> Count {
    let holding = segment.holding();
    let most = segment.slots() as u32;
    let (used, usable) = (holding.used.get(), holding.usable.get());
    if usable > most {
        findings.add(
            "there are no more records of holds than slots",
            &holding.usable,
            format_args!("at most {most}"),
            usable,
        );
    }
    if used > usable {
        findings.add(
            "only records in memory were used",
            &holding.used,
            format_args!("at most {usable}"),
            used,
        );
    }
    let mut count = Count::default();
    for (_, hold) in all(segment) {
        if hold.state.get() > State::Moving as u32 {
            findings.add(
                "a record of a hold has a state",
                &hold.state,
                "0 to 4",
                hold.state.get(),
            );
        }
        match State::of(hold) {
            State::Free => continue,
            State::Reserved => count.reserved += 1,
            State::Leased => count.leased += 1,
            State::Aside | State::Moving => count.aside += 1,
        }
        survey.note(findings, &hold.slot, hold.slot.get(), Place::Hold);
    }
    count
}

/// Whether the list of records, and their numbers, are those of the records.
pub(super) fn check_list(segment: &impl LeaseStore, count: &Count, findings: &mut Findings) {
    let links = &segment.holding().list;
    let all = count.reserved + count.leased + count.aside;
    let (mut link, mut word, mut before, mut length) = (links.head.get(), &links.head, 0, 0);
    while let Some(index) = link.checked_sub(1) {
        let Ok(hold) = segment.hold(index) else {
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
        findings.equal(
            "a record knows the one before it",
            &hold.previous,
            before,
            hold.previous.get(),
        );
        (before, word, link) = (link, &hold.next, hold.next.get());
    }
    findings.equal(
        "all records in use are in the list of holds",
        &links.tail,
        before,
        links.tail.get(),
    );
    // Relaxed, here and below: no process writes a copy.
    findings.equal(
        "the number of holds is right",
        &links.len,
        all,
        links.len.load(Ordering::Relaxed),
    );
    let holding = segment.holding();
    findings.equal(
        "the number of reservations is right",
        &holding.reserved,
        count.reserved,
        holding.reserved.load(Ordering::Relaxed),
    );
    findings.equal(
        "the number of messages set aside is right",
        &holding.aside,
        count.aside,
        holding.aside.load(Ordering::Relaxed),
    );
}

/// Every record that was ever used.
pub(super) fn all<S: LeaseStore>(segment: &S) -> impl Iterator<Item = (u32, &leases::LeaseRecord)> {
    let used = segment.holding().used.get().min(segment.slots() as u32);
    (0..used).filter_map(|index| Some((index, segment.hold(index).ok()?)))
}

/// The leases and reservations; `bytes` says how many bytes the message in a slot has.
pub(super) fn held<S: LeaseStore>(segment: &S, bytes: impl Fn(u32) -> u32) -> Vec<Hold> {
    let kind = |hold: &leases::LeaseRecord| {
        Some(match State::of(hold) {
            State::Free => return None,
            State::Reserved => HoldKind::Reserved,
            State::Leased => HoldKind::Leased,
            State::Aside | State::Moving => HoldKind::SetAside,
        })
    };
    let now = clock::monotonic();
    let until = |hold: &leases::LeaseRecord| match hold.until.get() {
        0 => None,
        at => Some(Duration::from_nanos(at.saturating_sub(now))),
    };
    all(segment)
        .filter_map(|(_, hold)| Some((kind(hold)?, hold)))
        .map(|(kind, hold)| Hold {
            kind,
            who: (hold.pid.get() != 0)
                .then(|| Process::of(segment, hold.pid.get(), hold.birth.get())),
            bytes: bytes(hold.slot.get()),
            deliveries: hold.deliveries.get(),
            ends_in: until(hold),
        })
        .collect()
}
