//! The diagnosis of a System V queue.

use super::findings::Findings;
use super::header::Beginning;
use super::locks::Side;
use super::nodes::{self, Wait};
use super::slots::Survey;
use super::subject::Subject;
use super::types;
use super::users::numbers_are_ours;
use super::{
    Contents, Damage, Diagnosis, Repaired, Repairs, examination, hints, leases, pollers, process,
    rehearsal, repair,
};
use crate::error::OpenError;
use crate::namespace::Namespace;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::mem::offset_of;
use std::ops::Range;
use umsg_shm::arena::GRANULE;
use umsg_shm::leases::LeaseRecord;
use umsg_shm::lock::Lock as Word;
use umsg_shm::memory::FifoName;
use umsg_shm::repair::salvage::Real;
use umsg_shm::sync::{Guarded32, Ordering};
use umsg_shm::sysv_engine::Engine;
use umsg_shm::sysv_engine::segment::{
    CELL, Fixed, Header, LAYOUT_HASH, LONGEST, Layout, MAGIC, MOST_BYTES, Segment, State, VERSION,
    WaiterRecord, attach,
};
use umsg_shm::waiters::List;
use umsg_shm::waiters::Node;

/// The identifier and key in a queue's key symlink.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdAndKey {
    pub(crate) id: i32,
    /// The key; 0 for a queue without a key.
    pub(crate) key: i32,
}

/// Examines the queue in a file that is open for reading.
///
/// # Errors
/// `NotAQueue`, `OtherVersion`; `NotFound` if the queue was removed; `NoMemory` and `NoAddressSpace` if a copy does not fit.
pub(crate) fn examine(
    file: BorrowedFd<'_>,
    namespace: &Namespace,
    link: IdAndKey,
) -> Result<Diagnosis, OpenError> {
    examination::examine::<Segment>(file, namespace, link)
}

/// Repairs the queue in a file that is open for reading and writing.
///
/// # Errors
/// The errors of [`examine`].
pub(crate) fn mend(
    file: BorrowedFd<'_>,
    namespace: &Namespace,
    link: IdAndKey,
) -> Result<Repaired, OpenError> {
    repair::mend::<Segment>(file, namespace, link)
}

impl Subject for Segment {
    type Id = IdAndKey;
    type Layout = Layout;
    type Engine = Engine;

    fn header(
        file: BorrowedFd<'_>,
        link: IdAndKey,
        findings: &mut Findings,
    ) -> Result<Option<Layout>, OpenError> {
        header(file, link, findings)
    }

    fn copy(file: BorrowedFd<'_>, layout: Layout, namespace: &Namespace) -> Result<Segment, Errno> {
        let mut copy = Segment::copy_of(file, layout)?;
        copy.settle_copy(namespace.host());
        Ok(copy)
    }

    fn len(layout: &Layout) -> usize {
        layout.len
    }

    fn pulse() -> Range<usize> {
        offset_of!(Fixed, rights)..offset_of!(Fixed, arena)
    }

    fn address(&self) -> usize {
        self.address()
    }

    fn lock_words(&self) -> Vec<(Side, &Word)> {
        vec![(Side::Whole, &self.fixed().control.lock)]
    }

    fn check_words(&self, findings: &mut Findings) -> Result<(), OpenError> {
        let words = self.fixed().words();
        // Relaxed, here and below: the segment is a private copy, and no process writes to it.
        let word = words.state.load(Ordering::Relaxed);
        let state = State::of_word(word);
        if state.is_removed() {
            return Err(OpenError::NotFound);
        }
        if state.live().is_none() {
            findings.add("the queue's state is valid", words.state, "1 or 2", word);
        }
        hints::check_mode(words.mode, findings);
        let (qbytes, capacity) = (words.capacity, self.layout().capacity);
        let bytes = qbytes.load(Ordering::Relaxed);
        if bytes > capacity {
            let what = "the queue's qbytes is at most its capacity";
            findings.add(what, qbytes, format_args!("at most {capacity}"), bytes);
        }
        Ok(())
    }

    fn check_slots(&self, findings: &mut Findings) -> Option<Survey> {
        let mut survey = Survey::new(check_used(self, findings)? as usize)?;
        if !self.is_held() {
            check_contents(self, &mut survey, findings);
        }
        Some(survey)
    }

    fn slots_in_use(&self) -> (u32, u32) {
        let (words, most) = (self.fixed().words(), self.layout().slots as u32);
        (words.used.get(), words.usable.get().min(most))
    }

    fn block(&self, slot: u32) -> Option<(&Guarded32, usize)> {
        let cell = self.cell(slot).ok()?;
        Some((cell.words().block, cell.message_len()))
    }

    fn inline(&self) -> usize {
        Layout::inline()
    }

    fn arena(&self) -> usize {
        self.layout().arena
    }

    fn rehearse(self, findings: &mut Findings) {
        rehearsal::typed(self, findings);
    }

    fn describe(&self, namespace: &Namespace) -> Diagnosis {
        describe(self, namespace)
    }

    fn mend_header(
        file: BorrowedFd<'_>,
        link: IdAndKey,
        layout: &Layout,
        repaired: &mut Repaired,
    ) -> Result<(), OpenError> {
        repair::mend_beginning(file, MAGIC, layout.len, repaired)?;
        repair::mend_mode(file, Fixed::MODE_AT, repaired)?;
        for (at, word, what) in [
            (Header::ID_AT, link.id, "identifier"),
            (Header::KEY_AT, link.key, "key"),
        ] {
            if repaired.header_finding(at).is_some() {
                repair::write(file, &word.to_ne_bytes(), at)?;
                repaired.note(format!("wrote the {what} of the queue's link"));
            }
        }
        Ok(())
    }

    fn attach(file: BorrowedFd<'_>, namespace: &Namespace) -> Result<Engine, OpenError> {
        let mut segment = attach(file)?;
        segment.count_in(namespace.host());
        Ok(Engine::new(segment))
    }

    fn mend_words(engine: &Engine, repaired: &mut Repaired) {
        if engine.segment().fixed().rights.restore_state() {
            repaired.note("marked the queue as existing");
        }
    }

    fn real(file: BorrowedFd<'_>, engine: &Engine) -> Real {
        let layout = engine.segment().layout();
        let count = |begin, end, element| repair::real(file, begin, end, element);
        let places = count(
            layout.places,
            layout.kinds,
            size_of::<umsg_shm::sysv_engine::order::OrderLinks>(),
        );
        Real {
            slots: count(layout.cells, layout.arena, CELL).min(places),
            lease_records: count(
                layout.lease_records,
                layout.places,
                size_of::<LeaseRecord>(),
            ),
            nodes: count(
                layout.waiters,
                layout.lease_records,
                size_of::<WaiterRecord>(),
            ),
            kinds: count(
                layout.kinds,
                layout.cells,
                size_of::<umsg_shm::sysv_engine::order::Kind>(),
            ),
            arena: count(layout.arena, layout.len, GRANULE) as u32,
            ..Real::default()
        }
    }

    fn give_back(file: BorrowedFd<'_>, engine: &Engine, slots: usize) {
        let layout = engine.segment().layout();
        repair::give_back(file, layout.cells + slots * CELL, layout.arena);
    }
}

/// Checks the header, and returns the layout that follows from it. None if the header is corrupted.
fn header(
    file: BorrowedFd<'_>,
    link: IdAndKey,
    findings: &mut Findings,
) -> Result<Option<Layout>, OpenError> {
    let beginning = Beginning::read(file)?;
    beginning.check_kind(MAGIC, VERSION, LAYOUT_HASH, findings)?;
    findings.equal_at(
        "the header has the identifier of the queue's link",
        Header::ID_AT,
        link.id,
        beginning.u32_at(Header::ID_AT as usize) as i32,
    );
    let hex = |key: i32| format!("{key:#010x}");
    findings.equal_at(
        "the header has the key of the queue's link",
        Header::KEY_AT,
        hex(link.key),
        hex(beginning.u32_at(Header::KEY_AT as usize) as i32),
    );
    let (capacity, msgmax) = (beginning.u64_at(16), beginning.u32_at(32));
    if capacity > MOST_BYTES {
        findings.add_at(
            "the queue's capacity is valid",
            16,
            format_args!("at most {MOST_BYTES}"),
            capacity,
        );
    }
    if msgmax > LONGEST {
        findings.add_at(
            "the queue's maximum message size is valid",
            32,
            format_args!("at most {LONGEST}"),
            msgmax,
        );
    }
    if capacity > MOST_BYTES || msgmax > LONGEST {
        return Ok(None);
    }
    let layout = Layout::new(capacity, msgmax as usize);
    let is_known = beginning.check_len(24, layout.len as u64, findings);
    Ok(is_known.then_some(layout))
}

/// Returns the number of slots that were ever used. None if the number is impossible.
fn check_used(segment: &Segment, findings: &mut Findings) -> Option<u32> {
    let (words, slots) = (segment.fixed().words(), segment.layout().slots as u32);
    let (used, usable) = (words.used.get(), words.usable.get());
    if usable > slots {
        findings.add(
            "the number of slots with memory is at most the maximum",
            words.usable,
            format_args!("at most {slots}"),
            usable,
        );
    }
    if used > usable.min(slots) {
        findings.add(
            "only slots with memory were used",
            words.used,
            format_args!("at most {}", usable.min(slots)),
            used,
        );
        return None;
    }
    Some(used)
}

/// Checks the data that the lock guards, while no thread holds the lock.
fn check_contents(segment: &Segment, survey: &mut Survey, findings: &mut Findings) {
    types::check_free(segment, survey, findings);
    types::check_order(segment, survey, findings);
    let count = leases::check(segment, survey, findings);
    leases::check_list(segment, &count, findings);
    hints::check_holding(segment, findings);
    nodes::check(segment, survey, findings);
    let longest = segment.layout().msgmax as u32;
    let len = |slot| {
        let len = segment.cell(slot).ok()?.words().len;
        Some((len, len.get()))
    };
    nodes::check_messages(segment, len, longest, findings);
    let words = segment.fixed().words();
    findings.holds(
        "the number of held messages is the number of their records",
        words.held,
        count.held(),
    );
    if findings.is_empty() {
        survey.check_lost(words.used, findings);
    }
}

/// Returns a diagnosis that names the processes that use the queue.
fn describe(segment: &Segment, namespace: &Namespace) -> Diagnosis {
    let fixed = segment.fixed();
    let (control, words) = (&fixed.control, fixed.words());
    let watched = fixed.rights.watched().get() != 0;
    let doorbell = FifoName {
        inode: segment.file().inode,
        number: control.doorbell.name.get(),
    };
    let bytes = |slot| {
        segment
            .cell(slot)
            .map_or(0, |cell| cell.message_len() as u32)
    };
    // Relaxed throughout: the segment is a private copy, and no process writes to it.
    Diagnosis {
        contents: Some(Contents {
            messages: words.messages.load(Ordering::Relaxed).into(),
            bytes: words.bytes.load(Ordering::Relaxed),
            capacity: words.capacity.load(Ordering::Relaxed),
        }),
        blocked: nodes::blocked(segment, numbers_are_ours(segment), |index, node| {
            wait(segment, index, node)
        }),
        holds: leases::held(segment, bytes),
        pollers: pollers::find(namespace, watched, doorbell),
        producers: process::producers(segment, &fixed.delivery.producers),
        repairs: vec![Repairs::read(Side::Whole, words.repairs, &fixed.repair_log)],
        damage: Damage::read(&fixed.header.damage),
        ..Diagnosis::default()
    }
}

fn wait(segment: &Segment, index: u32, node: &Node) -> Wait {
    let record = segment.waiter_record(index).ok();
    let size = record.map_or(0, WaiterRecord::size);
    match (List::of(node), record) {
        (List::Senders, _) => Wait::Room {
            messages: node.wanted.get().max(1),
            bytes: Some(size),
        },
        (_, Some(record)) => Wait::Message {
            want: record.want(),
            longest: (size < segment.layout().msgmax as u64).then_some(size),
        },
        (_, None) => Wait::Message {
            want: umsg_shm::sysv_engine::order::Want::Any,
            longest: None,
        },
    }
}
