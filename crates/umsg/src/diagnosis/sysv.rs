//! The diagnosis of a System V queue.

use super::arena::{self, Arena};
use super::findings::Findings;
use super::header::Beginning;
use super::locks::{Lock, Side};
use super::nodes::{self, Wait};
use super::posix::of_header;
use super::repair::Remedy;
use super::slots::{Place, Survey};
use super::types;
use super::view::{self, View, Viewed};
use super::{
    Contents, Damage, Diagnosis, Repaired, Repairs, hints, holds, pollers, rehearsal, repair,
};
use crate::error::{OpenError, Trouble};
use crate::mended::{Real, Salvaged};
use crate::namespace::Namespace;
use crate::order;
use crate::segment::{GRANULE, Hold, NO_SLOT, Node, Quota};
use crate::sync::Ordering;
use crate::sys::thread::{self, Thread};
use crate::typed::segment::{
    CELL, Fixed, LAYOUT_HASH, LIVE, LONGEST, Layout, MAGIC, MOST_BYTES, REMOVED, Seat, Segment,
    VERSION, attach,
};
use crate::typed::wait::want_of;
use crate::typed::{Engine, Refused};
use crate::waiters::List;
use rustix::fd::BorrowedFd;
use std::mem::offset_of;

impl Viewed for Segment {
    type Layout = Layout;

    fn copy(file: BorrowedFd<'_>, layout: Layout) -> Result<Segment, rustix::io::Errno> {
        Segment::copy_of(file, layout)
    }

    fn pulse() -> std::ops::Range<usize> {
        offset_of!(Fixed, rights)..offset_of!(Fixed, arena)
    }

    fn is_held(&self) -> bool {
        !lock(self).is_settled()
    }
}

/// Looks at the queue in a file that is open for reading.
///
/// # Errors
/// `NotAQueue`, also if it is the queue of another identifier; `OtherVersion`; `NoMemory` if there is none for a copy.
pub(crate) fn examine(
    file: BorrowedFd<'_>,
    namespace: &Namespace,
    id: i32,
) -> Result<Diagnosis, OpenError> {
    let mut findings = Findings::default();
    let Some(layout) = header(file, id, &mut findings)? else {
        return Ok(of_header(findings));
    };
    let view: View<Segment> = view::take(file, layout)?;
    let state = view.segment.fixed().rights.state.load(Ordering::Relaxed);
    if state == REMOVED {
        return Err(OpenError::NotAQueue("removed"));
    }
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

/// Checks the header, and says what follows from it. None if nothing does.
fn header(
    file: BorrowedFd<'_>,
    id: i32,
    findings: &mut Findings,
) -> Result<Option<Layout>, OpenError> {
    let beginning = Beginning::read(file)?;
    beginning.check_kind(MAGIC, VERSION, LAYOUT_HASH, findings)?;
    if beginning.u32_at(36) as i32 != id {
        return Err(OpenError::NotAQueue("the queue of another identifier"));
    }
    let (capacity, msgmax) = (beginning.u64_at(16), beginning.u32_at(32));
    if capacity > MOST_BYTES {
        findings.add_at(
            "the queue has a capacity",
            16,
            format_args!("at most {MOST_BYTES}"),
            capacity,
        );
    }
    if msgmax > LONGEST {
        findings.add_at(
            "the queue has a longest message",
            32,
            format_args!("at most {LONGEST}"),
            msgmax,
        );
    }
    if capacity > MOST_BYTES || msgmax > LONGEST {
        return Ok(None);
    }
    let layout = Layout::new(capacity, msgmax as usize);
    beginning.check_len(24, layout.len as u64, findings);
    Ok(Some(layout))
}

fn lock(segment: &Segment) -> Lock {
    let word = &segment.fixed().hub.lock;
    Lock::read(
        Side::Whole,
        word,
        std::ptr::from_ref(segment.fixed()).addr(),
    )
}

/// What is wrong with the bytes of a copy.
fn check(file: BorrowedFd<'_>, view: &View<Segment>) -> Findings {
    let segment = &view.segment;
    let mut findings = Findings::at(std::ptr::from_ref(segment.fixed()).addr());
    let (fixed, slots) = (segment.fixed(), segment.layout().slots as u32);
    let state = fixed.rights.state.load(Ordering::Relaxed);
    if state != LIVE {
        findings.add(
            "the queue exists or was removed",
            &fixed.rights.state,
            "1 or 2",
            state,
        );
    }
    let (qbytes, capacity) = (&fixed.hub.capacity, segment.layout().capacity);
    let bytes = qbytes.load(Ordering::Relaxed);
    if bytes > capacity {
        let what = "the queue may hold no more bytes than it was made for";
        findings.add(what, qbytes, format_args!("at most {capacity}"), bytes);
    }
    if !view.is_still {
        return findings;
    }
    let (used, usable) = (fixed.hub.used.get(), fixed.hub.usable.get());
    if usable > slots {
        findings.add(
            "there are no more slots than there is room for",
            &fixed.hub.usable,
            format_args!("at most {slots}"),
            usable,
        );
    }
    if used > usable.min(slots) {
        findings.add(
            "only slots in memory were used",
            &fixed.hub.used,
            format_args!("at most {}", usable.min(slots)),
            used,
        );
        return findings;
    }
    let Some(mut survey) = Survey::new(used as usize) else {
        return findings;
    };
    if lock(segment).is_settled() {
        check_contents(segment, &mut survey, &mut findings);
        check_arena(file, segment, &survey, &mut findings);
        if findings.is_empty()
            && let Ok(copy) = Segment::copy_of(file, *segment.layout())
        {
            rehearsal::typed(copy, &mut findings);
        }
    }
    findings
}

/// What belongs to the holder of the lock, while nobody holds it.
fn check_contents(segment: &Segment, survey: &mut Survey, findings: &mut Findings) {
    types::check_free(segment, survey, findings);
    types::check_order(segment, survey, findings);
    let count = holds::check(segment, survey, findings);
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
    let hub = &segment.fixed().hub;
    // Relaxed: nobody writes a copy.
    findings.equal(
        "as many messages are held as there are records",
        &hub.held,
        count.held(),
        hub.held.load(Ordering::Relaxed),
    );
    if findings.is_empty() {
        for slot in survey.missing().take(1) {
            let found = format_args!("slot {slot}, which is neither");
            findings.add(
                "no slot is lost",
                &hub.used,
                "a slot that is free, or has a message",
                found,
            );
        }
    }
}

fn check_arena(file: BorrowedFd<'_>, segment: &Segment, survey: &Survey, findings: &mut Findings) {
    let (hub, layout) = (&segment.fixed().hub, segment.layout());
    if hub.arena_dirty.get() != 0 {
        let what = "nobody is in the middle of changing the arena";
        return findings.add(what, &hub.arena_dirty, 0, hub.arena_dirty.get());
    }
    let base = std::ptr::from_ref(segment.fixed()).addr();
    let arena = Arena {
        file,
        offset: layout.arena as u64,
        len: hub.arena_len.get(),
        limit: (layout.arena_len / GRANULE) as u32,
        len_at: (std::ptr::from_ref(&hub.arena_len).addr() - base) as u64,
    };
    let Some(blocks) = arena.walk(findings) else {
        return;
    };
    arena::check_roots(&segment.fixed().arena, &blocks, findings);
    for slot in 0..hub.usable.get().min(layout.slots as u32) {
        let Ok(cell) = segment.cell(slot) else {
            return;
        };
        let len = match survey.place(slot) {
            Some(Place::Store) if cell.len.get() as usize > Layout::inline() => {
                cell.len.get() as usize
            }
            _ => 0,
        };
        if slot >= hub.used.get() && cell.block.get() != 0 {
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
    let fixed = segment.fixed();
    let hub = &fixed.hub;
    let watched = fixed.rights.watched.get() != 0;
    let bytes = |slot| segment.cell(slot).map_or(0, |cell| cell.len.get());
    // Relaxed throughout: nobody writes a copy.
    Diagnosis {
        contents: Some(Contents {
            messages: hub.messages.load(Ordering::Relaxed).into(),
            bytes: hub.bytes.load(Ordering::Relaxed),
            capacity: hub.capacity.load(Ordering::Relaxed),
        }),
        locks: vec![lock(segment)],
        blocked: nodes::blocked(segment, |index, node| wait(segment, index, node)),
        holds: holds::held(segment, bytes),
        pollers: if watched {
            pollers::find(namespace, hub.doorbell.name.get())
        } else {
            Vec::new()
        },
        repairs: vec![Repairs::read(Side::Whole, &hub.repairs, &fixed.mended)],
        damage: Damage::read(&fixed.header.damage),
        ..Diagnosis::default()
    }
}

fn wait(segment: &Segment, index: u32, node: &Node) -> Wait {
    let seat = segment.seat(index).ok();
    let size = seat.map_or(0, |seat| seat.size.get());
    match (List::of(node), seat) {
        (List::Senders, _) => Wait::Room {
            messages: node.wanted.get().max(1),
            bytes: Some(size),
        },
        (_, Some(seat)) => Wait::Message {
            want: want_of(seat),
            longest: (size < segment.layout().msgmax as u64).then_some(size),
        },
        (_, None) => Wait::Message {
            want: crate::sysv::Want::Any,
            longest: None,
        },
    }
}

/// Repairs the queue in a file that is open for reading and writing.
///
/// # Errors
/// As [`examine`].
pub(crate) fn mend(
    file: BorrowedFd<'_>,
    namespace: &Namespace,
    id: i32,
) -> Result<Repaired, OpenError> {
    let mut repaired = Repaired::new(examine(file, namespace, id)?);
    if repaired.before.is_healthy() || repaired.must_wait() {
        return Ok(repaired);
    }
    mend_header(file, id, &mut repaired)?;
    match attach(file) {
        Ok(mut segment) => {
            segment.set_quota(Quota::of(namespace.clone()));
            let engine = Engine::new(segment);
            let (fixed, me) = (engine.segment().fixed(), thread::current());
            repaired.free_locks([&fixed.hub.lock]);
            if fixed.rights.state.load(Ordering::Relaxed) != LIVE {
                fixed.rights.state.store(LIVE, Ordering::Relaxed);
                repaired.note("wrote that the queue exists");
            }
            repaired.treat(
                |remedy| apply(file, &engine, me, remedy).map_err(trouble),
                || examine(file, namespace, id),
                || engine.forget_damage(),
            )?;
        }
        Err(error) => repaired.failed = Some(format!("{error}; it can only be removed")),
    }
    Ok(repaired)
}

/// What keeps others from attaching, as far as one word follows from others.
fn mend_header(file: BorrowedFd<'_>, id: i32, repaired: &mut Repaired) -> Result<(), OpenError> {
    if let Some(layout) = header(file, id, &mut Findings::default())? {
        repair::mend_beginning(file, MAGIC, layout.len, repaired)?;
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
    let cells = bytes(layout.cells, layout.arena) / CELL;
    Real {
        slots: cells.min(bytes(layout.places, layout.kinds) / size_of::<order::Place>()),
        holds: bytes(layout.holds, layout.places) / size_of::<Hold>(),
        nodes: bytes(layout.seats, layout.holds) / size_of::<Seat>(),
        kinds: bytes(layout.kinds, layout.cells) / size_of::<order::Kind>(),
        arena: (bytes(layout.arena, layout.len) / GRANULE) as u32,
    }
}
