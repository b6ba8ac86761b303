//! The diagnosis of a POSIX queue, and of a ring, which is built like one.

use super::arena::{self, Arena};
use super::findings::Findings;
use super::header::Beginning;
use super::hints;
use super::holds::{self, Count};
use super::locks::{Lock, Side};
use super::nodes::{self, Wait};
use super::repair::Remedy;
use super::ring::{self, Cursors};
use super::slots::{Place, Survey};
use super::view::{self, View, Viewed};
use super::{
    Contents, Damage, Diagnosis, Process, Registration, Repaired, Repairs, pollers, rehearsal,
    repair, store,
};
use crate::error::{OpenError, Trouble};
use crate::mended::{Real, Salvaged};
use crate::namespace::Namespace;
use crate::posix::NotifyKind;
use crate::queue::{self, CLOSED, Engine, RECEIVERS, Refused};
use crate::segment::{
    self, Fixed, GRANULE, LARGEST_MESSAGE, LAYOUT_HASH, Layout, MAGIC, MOST_MESSAGES, NO_SLOT,
    Node, Policy, Quota, Rules, Segment, VERSION,
};
use crate::sync::Ordering;
use crate::sys::thread::{self, Thread};
use crate::sysv::Want;
use crate::waiters::List;
use rustix::fd::BorrowedFd;
use std::mem::offset_of;

/// Slots on the last page of those in circulation, or fewer, are memory and not used yet.
const AHEAD: u32 = 64;

impl Viewed for Segment {
    type Layout = Layout;

    fn copy(file: BorrowedFd<'_>, layout: Layout) -> Result<Segment, rustix::io::Errno> {
        Segment::copy_of(file, layout)
    }

    fn pulse() -> std::ops::Range<usize> {
        offset_of!(Fixed, run)..offset_of!(Fixed, arena)
    }

    fn is_held(&self) -> bool {
        locks(self).iter().any(|lock| !lock.is_settled())
    }
}

/// Looks at the queue in a file that is open for reading.
///
/// # Errors
/// `NotAQueue`, `OtherVersion`: there is nothing to diagnose; `NoMemory` if there is none for a copy.
pub(crate) fn examine(file: BorrowedFd<'_>, namespace: &Namespace) -> Result<Diagnosis, OpenError> {
    let mut findings = Findings::default();
    let Some(layout) = header(file, &mut findings)? else {
        return Ok(of_header(findings));
    };
    let view: View<Segment> = view::take(file, layout)?;
    let mut inside = check(file, &view);
    if !inside.is_empty() {
        // What is wrong for good is found again.
        std::thread::sleep(std::time::Duration::from_millis(5));
        let again: View<Segment> = view::take(file, layout)?;
        inside.keep_common(&check(file, &again));
    }
    findings.append(inside);
    let mut diagnosis = describe(&view.segment, namespace);
    diagnosis.busy = !view.is_still;
    diagnosis.conclude(findings, || view::is_stuck::<Segment>(file));
    Ok(diagnosis)
}

/// All that can be said if nothing is known but that the header is wrong.
pub(super) fn of_header(findings: Findings) -> Diagnosis {
    let mut diagnosis = Diagnosis::default();
    diagnosis.conclude(findings, || false);
    diagnosis
}

/// Checks the header, and says what follows from it. None if nothing does.
fn header(file: BorrowedFd<'_>, findings: &mut Findings) -> Result<Option<Layout>, OpenError> {
    let beginning = Beginning::read(file)?;
    beginning.check_kind(MAGIC, VERSION, LAYOUT_HASH, findings)?;
    let (messages, size) = (beginning.u32_at(16), beginning.u32_at(20));
    let is_in_range = |value: u32, most: u32| (1..=most).contains(&value);
    if !is_in_range(messages, MOST_MESSAGES) {
        findings.add_at(
            "the queue has a length",
            16,
            format_args!("1 to {MOST_MESSAGES}"),
            messages,
        );
    }
    if !is_in_range(size, LARGEST_MESSAGE) {
        findings.add_at(
            "the queue has a message size",
            20,
            format_args!("1 to {LARGEST_MESSAGE}"),
            size,
        );
    }
    if !is_in_range(messages, MOST_MESSAGES) || !is_in_range(size, LARGEST_MESSAGE) {
        return Ok(None);
    }
    let layout = Layout::new(messages as usize, size as usize);
    beginning.check_len(24, layout.len as u64, findings);
    Ok(Some(layout))
}

fn locks(segment: &Segment) -> [Lock; 2] {
    let (fixed, base) = (segment.fixed(), segment.address());
    [
        Lock::read(Side::Senders, &fixed.sender.lock, base),
        Lock::read(Side::Receivers, &fixed.receiver.lock, base),
    ]
}

/// What is wrong with the bytes of a copy.
fn check(file: BorrowedFd<'_>, view: &View<Segment>) -> Findings {
    let segment = &view.segment;
    let mut findings = Findings::at(segment.address());
    if Policy::read(&segment.fixed().rules).is_none() {
        findings.add(
            "the queue's policy makes sense",
            &segment.fixed().rules,
            "0 to 2, and a queue's name or zeroes",
            "something else",
        );
    }
    if !view.is_still {
        return findings;
    }
    let [senders, receivers] = locks(segment).map(|lock| lock.is_settled());
    let Some(cursors) = ring::cursors(segment, &mut findings, senders && receivers) else {
        return findings;
    };
    let Some(mut survey) = Survey::new(cursors.slots as usize) else {
        return findings;
    };
    ring::check(segment, cursors, &mut survey, &mut findings);
    if receivers {
        check_receivers(segment, &mut survey, &mut findings);
    }
    if senders {
        check_run(segment, cursors, &mut findings);
    }
    if senders && receivers {
        hints::check_senders(segment, &mut findings);
        check_arena(file, segment, &survey, &mut findings);
        if findings.is_empty()
            && let Ok(copy) = Segment::copy_of(file, *segment.layout())
        {
            rehearsal::posix(copy, &mut findings);
        }
    }
    findings
}

/// What belongs to the holder of the receiver lock, while nobody holds it.
fn check_receivers(segment: &Segment, survey: &mut Survey, findings: &mut Findings) {
    let before = findings.is_empty();
    store::check(segment, survey, findings);
    let count: Count = holds::check(segment, survey, findings);
    holds::check_list(segment, &count, findings);
    hints::check_holding(segment, findings);
    nodes::check(segment, findings);
    for (_, node) in nodes::all(segment) {
        let has_slot = match List::of(node) {
            List::Senders => node.slot.get() != NO_SLOT,
            List::Offered => true,
            List::Receivers | List::None => false,
        };
        if has_slot {
            survey.note(findings, &node.slot, node.slot.get(), Place::Waiter);
        }
    }
    if before && findings.is_empty() {
        store::check_counts(segment, count.held(), findings);
        for slot in survey.missing().take(1) {
            let expected = "a slot that is free, or has a message";
            let found = format_args!("slot {slot}, which is neither");
            findings.add(
                "no slot is lost",
                &segment.fixed().geometry.slots,
                expected,
                found,
            );
        }
    }
    check_board(segment, findings);
}

/// Who waits is seen by senders.
fn check_board(segment: &Segment, findings: &mut Findings) {
    let attention = &segment.fixed().board.attention;
    // Relaxed: nobody writes a copy.
    let flags = attention.load(Ordering::Relaxed);
    let waiting = crate::waiters::Waiters::of(segment).len(List::Receivers);
    if waiting != 0 && flags & RECEIVERS == 0 {
        findings.add(
            "senders are asked to serve those who wait",
            attention,
            format_args!("{}", flags | RECEIVERS),
            flags,
        );
    }
}

/// All messages from the position on that the one-priority word has are of its priority.
fn check_run(segment: &Segment, cursors: Cursors, findings: &mut Findings) {
    let word = &segment.fixed().run.word;
    // Relaxed: nobody writes a copy.
    let run = word.load(Ordering::Relaxed);
    // A receiver may be ahead of the cursor of a sender that died.
    let messages = cursors.sent.wrapping_sub(cursors.drained) as i64;
    for step in 0..messages.clamp(0, cursors.slots.into()) as u64 {
        let position = cursors.drained.wrapping_add(step);
        let Ok((_, cell)) = crate::slots::Ring::of(segment).slot(position) else {
            return;
        };
        let priority = cell.key.get() & 0xffff;
        if queue::has_begun(run, position) && priority != run & 0xffff {
            return findings.add(
                "what was sent since the priority changed last has that priority",
                word,
                priority,
                run & 0xffff,
            );
        }
    }
}

fn check_arena(file: BorrowedFd<'_>, segment: &Segment, survey: &Survey, findings: &mut Findings) {
    let (sender, layout) = (&segment.fixed().sender, segment.layout());
    if sender.arena_dirty.get() != 0 {
        let what = "nobody is in the middle of changing the arena";
        return findings.add(what, &sender.arena_dirty, 0, sender.arena_dirty.get());
    }
    let len_at = std::ptr::from_ref(&sender.arena_len).addr() - segment.address();
    let arena = Arena {
        file,
        offset: layout.arena as u64,
        len: sender.arena_len.get(),
        limit: (layout.arena_len / GRANULE) as u32,
        len_at: len_at as u64,
    };
    let Some(blocks) = arena.walk(findings) else {
        return;
    };
    arena::check_roots(&segment.fixed().arena, &blocks, findings);
    let slots = segment.fixed().geometry.slots.load(Ordering::Relaxed);
    // Behind those in circulation are some that come next.
    for slot in 0..slots.saturating_add(AHEAD).min(layout.slots as u32) {
        let Ok(cell) = segment.cell(slot) else {
            return;
        };
        let len = match survey.place(slot) {
            Some(Place::Ring | Place::Store) if cell.len.get() as usize > layout.inline() => {
                cell.len.get() as usize
            }
            _ => 0,
        };
        if slot >= slots && cell.block.get() != 0 {
            findings.add(
                "a slot that was never used has no block",
                &cell.block,
                0,
                cell.block.get(),
            );
        } else if cell.block.get() != 0 {
            arena::check_block(&blocks, slot, &cell.block, cell.block.get(), len, findings);
        }
    }
}

/// Who has to do with the queue.
fn describe(segment: &Segment, namespace: &Namespace) -> Diagnosis {
    let (fixed, layout) = (segment.fixed(), segment.layout());
    let engine = Engine::new(segment.share());
    let counts = engine.counts();
    let wait = |_: u32, node: &Node| match List::of(node) {
        List::Senders => Wait::Room {
            messages: if node.slot.get() == NO_SLOT {
                node.wanted.get()
            } else {
                1
            },
            bytes: segment
                .cell(node.slot.get())
                .ok()
                .map(|cell| cell.len.get().into()),
        },
        _ => Wait::Message {
            want: Want::Any,
            longest: None,
        },
    };
    let bytes = |slot| segment.cell(slot).map_or(0, |cell| cell.len.get());
    let sides = [Side::Senders, Side::Receivers];
    let repairs =
        [0, 1].map(|n| Repairs::read(sides[n], &fixed.receiver.repairs[n], &fixed.mended[n]));
    let watched = fixed.receiver.watched.get() != 0;
    Diagnosis {
        contents: Some(Contents {
            messages: counts.messages,
            bytes: counts.bytes,
            capacity: layout.max_messages as u64,
        }),
        locks: locks(segment).into(),
        blocked: nodes::blocked(segment, wait),
        holds: holds::held(segment, bytes),
        registrations: registrations(&engine),
        pollers: if watched {
            pollers::find(namespace, fixed.receiver.doorbell.name.get())
        } else {
            Vec::new()
        },
        receiver: receiver(segment),
        repairs: repairs.into(),
        damage: Damage::read(&fixed.header.damage),
        ..Diagnosis::default()
    }
}

/// Of a ring that was not closed: who receives.
fn receiver(segment: &Segment) -> Option<Process> {
    let ownership = &segment.fixed().ownership;
    // Relaxed: nobody writes a copy.
    let load = Ordering::Relaxed;
    let (state, pid) = (ownership.state.load(load), ownership.pid.load(load));
    (state != 0 && state != CLOSED && pid != 0)
        .then(|| Process::of(pid, ownership.birth.load(load)))
}

fn registrations(engine: &Engine) -> Vec<Registration> {
    let found = engine.registrations();
    found
        .map(|(registered, told)| Registration {
            who: Process::of(registered.pid, registered.birth),
            kind: NotifyKind::of(&registered),
            told,
        })
        .collect()
}

/// Repairs the queue in a file that is open for reading and writing.
///
/// # Errors
/// As [`examine`].
pub(crate) fn mend(file: BorrowedFd<'_>, namespace: &Namespace) -> Result<Repaired, OpenError> {
    let mut repaired = Repaired::new(examine(file, namespace)?);
    if repaired.before.is_healthy() || repaired.must_wait() {
        return Ok(repaired);
    }
    mend_header(file, &mut repaired)?;
    match segment::attach(file) {
        Ok(mut segment) => {
            segment.set_quota(Quota::of(namespace.clone()));
            let engine = Engine::new(segment);
            let (fixed, me) = (engine.segment().fixed(), thread::current());
            repaired.free_locks([&fixed.sender.lock, &fixed.receiver.lock]);
            repaired.treat(
                |remedy| apply(file, &engine, me, remedy).map_err(trouble),
                || examine(file, namespace),
                || engine.forget_damage(),
            )?;
        }
        Err(error) => repaired.failed = Some(format!("{error}; it can only be removed")),
    }
    Ok(repaired)
}

/// What keeps others from attaching, as far as one word follows from others.
fn mend_header(file: BorrowedFd<'_>, repaired: &mut Repaired) -> Result<(), OpenError> {
    let Some(layout) = header(file, &mut Findings::default())? else {
        return Ok(());
    };
    repair::mend_beginning(file, MAGIC, layout.len, repaired)?;
    let rules = offset_of!(Fixed, rules) as u64;
    if repaired.header_finding(rules).is_some() {
        repair::write(file, &[0; size_of::<Rules>()], rules)?;
        repaired.note("set the policy to the default: on full, wait");
    }
    Ok(())
}

fn apply(
    file: BorrowedFd<'_>,
    engine: &Engine,
    me: &Thread,
    remedy: Remedy,
) -> Result<Option<Salvaged>, Refused> {
    let (patience, layout) = (repair::patience(), *engine.segment().layout());
    match remedy {
        Remedy::MakeAnew => engine
            .salvage(me, patience, || real(file, &layout))
            .map(Some),
        Remedy::TakeUp => engine.take_up(me, patience).map(|()| None),
    }
}

fn trouble(refused: Refused) -> Trouble {
    match refused {
        Refused::Trouble(trouble) => trouble,
        _ => Trouble::Busy,
    }
}

/// How much of the regions is real memory.
fn real(file: BorrowedFd<'_>, layout: &Layout) -> Real {
    let bytes = |begin, end| repair::real(file, begin, end);
    Real {
        slots: bytes(layout.cells, layout.arena) / layout.cell_len,
        holds: bytes(layout.holds, layout.cells) / size_of::<segment::Hold>(),
        nodes: bytes(layout.nodes, layout.ring) / size_of::<Node>(),
        arena: (bytes(layout.arena, layout.notices) / GRANULE) as u32,
        kinds: 0,
    }
}
