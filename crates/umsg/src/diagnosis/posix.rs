//! The diagnosis of a POSIX queue or of a ring. The file of a ring has the layout of a POSIX queue.

use super::findings::Findings;
use super::header::Beginning;
use super::hints;
use super::leases::{self, Count};
use super::locks::{Side, is_settled};
use super::nodes::{self, Wait};
use super::ring::{self, Cursors};
use super::slots::Survey;
use super::subject::Subject;
use super::users::numbers_are_ours;
use super::{
    Contents, Damage, Diagnosis, Process, Registration, Repaired, Repairs, examination, pollers,
    process, rehearsal, repair, store,
};
use crate::error::OpenError;
use crate::namespace::Namespace;
use crate::notification::NotifyKind;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::mem::offset_of;
use std::ops::Range;
use umsg_shm::arena::GRANULE;
use umsg_shm::lock::Lock as Word;
use umsg_shm::memory::FifoName;
use umsg_shm::posix_engine::segment::{
    self, Fixed, Header, LARGEST_MESSAGE, LAYOUT_HASH, Layout, MAGIC, MOST_MESSAGES, Policy, Rules,
    Segment, VERSION,
};
use umsg_shm::posix_engine::{self, CLOSED, Engine, RECEIVERS};
use umsg_shm::repair::salvage::Real;
use umsg_shm::sync::{Guarded32, Ordering};
use umsg_shm::sysv_engine::order::Want;
use umsg_shm::waiters::List;
use umsg_shm::waiters::{NO_SLOT, Node};

/// The maximum number of slots that have memory and are not used yet: at most the slots on the last page of the slots in circulation.
const AHEAD: u32 = 64;

/// Examines the queue in a file that is open for reading.
///
/// # Errors
/// `NotAQueue`, `OtherVersion`: there is nothing to diagnose; `NoMemory` if there is not enough memory for a copy.
pub(crate) fn examine(file: BorrowedFd<'_>, namespace: &Namespace) -> Result<Diagnosis, OpenError> {
    examination::examine::<Segment>(file, namespace, ())
}

/// Repairs the queue in a file that is open for reading and writing.
///
/// # Errors
/// The errors of [`examine`].
pub(crate) fn mend(file: BorrowedFd<'_>, namespace: &Namespace) -> Result<Repaired, OpenError> {
    repair::mend::<Segment>(file, namespace, ())
}

impl Subject for Segment {
    type Id = ();
    type Layout = Layout;
    type Engine = Engine;

    fn header(
        file: BorrowedFd<'_>,
        _: (),
        findings: &mut Findings,
    ) -> Result<Option<Layout>, OpenError> {
        header(file, findings)
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
        offset_of!(Fixed, run)..offset_of!(Fixed, arena)
    }

    fn address(&self) -> usize {
        self.address()
    }

    fn lock_words(&self) -> Vec<(Side, &Word)> {
        let fixed = self.fixed();
        vec![
            (Side::Senders, &fixed.sender.lock),
            (Side::Receivers, &fixed.receiver.lock),
        ]
    }

    fn check_words(&self, findings: &mut Findings) -> Result<(), OpenError> {
        let rules = &self.fixed().rules;
        hints::check_mode(self.fixed().words().mode, findings);
        if Policy::read(rules).is_none() {
            findings.add(
                "the queue's policy is valid",
                rules,
                "valid values of on_full, removal and close_with_producers",
                "an invalid value",
            );
        }
        Ok(())
    }

    fn check_slots(&self, findings: &mut Findings) -> Option<Survey> {
        let fixed = self.fixed();
        let (senders, receivers) = (
            is_settled(&fixed.sender.lock),
            is_settled(&fixed.receiver.lock),
        );
        let cursors = ring::cursors(self, findings, senders && receivers)?;
        let mut survey = Survey::new(cursors.slots as usize)?;
        ring::check(self, cursors, &mut survey, findings);
        if receivers {
            check_receivers(self, &mut survey, findings);
        }
        if senders {
            check_run(self, cursors, findings);
        }
        if senders && receivers {
            hints::check_senders(self, findings);
        }
        Some(survey)
    }

    fn slots_in_use(&self) -> (u32, u32) {
        let slots = self.fixed().geometry.slots();
        // The slots after those in circulation come into use next, so some of them may have memory already.
        let usable = slots.saturating_add(AHEAD).min(self.layout().slots as u32);
        (slots, usable)
    }

    fn block(&self, slot: u32) -> Option<(&Guarded32, usize)> {
        let cell = self.cell(slot).ok()?;
        Some((cell.block(), cell.len()))
    }

    fn inline(&self) -> usize {
        self.layout().inline()
    }

    fn arena(&self) -> usize {
        self.layout().arena
    }

    fn rehearse(self, findings: &mut Findings) {
        rehearsal::posix(self, findings);
    }

    fn describe(&self, namespace: &Namespace) -> Diagnosis {
        describe(self, namespace)
    }

    fn mend_header(
        file: BorrowedFd<'_>,
        _: (),
        layout: &Layout,
        repaired: &mut Repaired,
    ) -> Result<(), OpenError> {
        repair::mend_beginning(file, MAGIC, layout.len, repaired)?;
        repair::mend_mode(
            file,
            (offset_of!(Fixed, header) + Header::MODE) as u64,
            repaired,
        )?;
        let rules = offset_of!(Fixed, rules) as u64;
        if repaired.header_finding(rules).is_some() {
            repair::write(file, &[0; Rules::REMOVAL], rules)?;
            // Keeps the remove-on-last-close setting if that setting is valid.
            let removal = rules + Rules::REMOVAL as u64;
            if !repair::read_word(file, removal)?.is_some_and(Rules::is_removal) {
                repair::write(file, &[0; size_of::<Rules>() - Rules::REMOVAL], removal)?;
            }
            repaired.note("reset the policy to the default: block when the queue is full");
        }
        Ok(())
    }

    fn attach(file: BorrowedFd<'_>, namespace: &Namespace) -> Result<Engine, OpenError> {
        let mut segment = segment::attach(file)?;
        segment.count_in(namespace.host());
        Ok(Engine::new(segment))
    }

    fn mend_words(_: &Engine, _: &mut Repaired) {}

    fn real(file: BorrowedFd<'_>, engine: &Engine) -> Real {
        let layout = engine.segment().layout();
        let count = |begin, end, element| repair::real(file, begin, end, element);
        Real {
            slots: count(layout.cells, layout.arena, layout.cell_len),
            lease_records: count(
                layout.lease_records,
                layout.cells,
                size_of::<umsg_shm::leases::LeaseRecord>(),
            ),
            nodes: count(layout.nodes, layout.ring, size_of::<Node>()),
            arena: count(layout.arena, layout.notices, GRANULE) as u32,
            entries: count(layout.ring, layout.links, 4),
            links: count(layout.links, layout.lease_records, 4),
            fifos: repair::real_pages(file, layout.fifos, layout.nodes),
            kinds: 0,
            deliveries: count(
                layout.deliveries,
                layout.histories,
                size_of::<umsg_shm::posix_engine::segment::Deliveries>(),
            ),
            histories: count(
                layout.histories,
                layout.traces,
                size_of::<umsg_shm::posix_engine::segment::HistoryRecord>(),
            ),
            traces: count(
                layout.traces,
                layout.len,
                size_of::<umsg_shm::posix_engine::segment::TraceRecord>(),
            ),
        }
    }

    fn give_back(file: BorrowedFd<'_>, engine: &Engine, slots: usize) {
        let layout = engine.segment().layout();
        let behind = layout.cells + slots * layout.cell_len;
        repair::give_back(file, behind, layout.arena);
    }
}

/// Checks the header, and returns the values that follow from it. None if the header is corrupted.
fn header(file: BorrowedFd<'_>, findings: &mut Findings) -> Result<Option<Layout>, OpenError> {
    let beginning = Beginning::read(file)?;
    beginning.check_kind(MAGIC, VERSION, LAYOUT_HASH, findings)?;
    let (messages, size) = (beginning.u32_at(16), beginning.u32_at(20));
    let is_in_range = |value: u32, most: u32| (1..=most).contains(&value);
    if !is_in_range(messages, MOST_MESSAGES) {
        findings.add_at(
            "the queue's maximum number of messages is valid",
            16,
            format_args!("1 to {MOST_MESSAGES}"),
            messages,
        );
    }
    if !is_in_range(size, LARGEST_MESSAGE) {
        findings.add_at(
            "the queue's message size is valid",
            20,
            format_args!("1 to {LARGEST_MESSAGE}"),
            size,
        );
    }
    if !is_in_range(messages, MOST_MESSAGES) || !is_in_range(size, LARGEST_MESSAGE) {
        return Ok(None);
    }
    let layout = Layout::new(messages as usize, size as usize);
    let is_known = beginning.check_len(24, layout.len as u64, findings);
    Ok(is_known.then_some(layout))
}

/// Checks the data that the receivers' lock guards, while no thread holds that lock.
fn check_receivers(segment: &Segment, survey: &mut Survey, findings: &mut Findings) {
    let before = findings.is_empty();
    store::check(segment, survey, findings);
    let count: Count = leases::check(segment, survey, findings);
    leases::check_list(segment, &count, findings);
    hints::check_holding(segment, findings);
    nodes::check(segment, survey, findings);
    let longest = segment.layout().message_size as u32;
    let len = |slot| {
        let len = segment.cell(slot).ok()?.words().len;
        Some((len, len.get()))
    };
    nodes::check_messages(segment, len, longest, findings);
    if before && findings.is_empty() {
        store::check_counts(segment, count.held(), findings);
        survey.check_lost(segment.fixed().words().slots, findings);
    }
    check_board(segment, findings);
}

/// Checks that the attention flags tell senders of waiting receivers.
fn check_board(segment: &Segment, findings: &mut Findings) {
    let attention = segment.fixed().words().attention;
    // Relaxed: no process writes a copy.
    let flags = attention.load(Ordering::Relaxed);
    let waiting = umsg_shm::waiters::Waiters::of(segment).len(List::Receivers);
    if waiting != 0 && flags & RECEIVERS == 0 {
        findings.add(
            "the flag that makes senders serve waiting receivers is set",
            attention,
            format_args!("{}", flags | RECEIVERS),
            flags,
        );
    }
}

/// Checks the word `run`, which names a position and a priority: all messages from that position on have that priority.
fn check_run(segment: &Segment, cursors: Cursors, findings: &mut Findings) {
    let word = segment.fixed().words().run;
    // Relaxed: no process writes a copy.
    let run = word.load(Ordering::Relaxed);
    // A receiver may be ahead of the cursor of a sender that died.
    let messages = cursors.sent.wrapping_sub(cursors.drained) as i64;
    for step in 0..messages.clamp(0, cursors.slots.into()) as u64 {
        let position = cursors.drained.wrapping_add(step);
        let Ok((_, cell)) = umsg_shm::posix_engine::segment::Ring::of(segment).slot(position)
        else {
            return;
        };
        let priority = cell.key() & 0xffff;
        if posix_engine::has_begun(run, position) && priority != run & 0xffff {
            return findings.add(
                "all messages from the position in `run` on have the priority in `run`",
                word,
                priority,
                run & 0xffff,
            );
        }
    }
}

/// Returns a diagnosis that names the processes that use the queue.
fn describe(segment: &Segment, namespace: &Namespace) -> Diagnosis {
    let (fixed, layout) = (segment.fixed(), segment.layout());
    let engine = Engine::new(segment.share());
    let counts = engine.counts();
    let bytes = |slot| segment.cell(slot).map_or(0, |cell| cell.len() as u32);
    let sides = [Side::Senders, Side::Receivers];
    let repairs =
        [0, 1].map(|n| Repairs::read(sides[n], &fixed.words().repairs[n], &fixed.repair_log[n]));
    let watched = fixed.receiver.is_watched();
    let doorbell = FifoName {
        inode: segment.file().inode,
        number: fixed.receiver.fifo_number(),
    };
    Diagnosis {
        contents: Some(Contents {
            messages: counts.messages,
            bytes: counts.bytes,
            capacity: layout.max_messages as u64,
        }),
        blocked: nodes::blocked(segment, numbers_are_ours(segment), |_, node| {
            wait(segment, node)
        }),
        holds: leases::held(segment, bytes),
        registrations: registrations(&engine),
        pollers: pollers::find(namespace, watched, doorbell),
        producers: process::producers(segment, &fixed.producers),
        receiver: receiver(segment),
        repairs: repairs.into(),
        damage: Damage::read(&fixed.header.damage),
        ..Diagnosis::default()
    }
}

fn wait(segment: &Segment, node: &Node) -> Wait {
    let slot = node.slot.get();
    match List::of(node) {
        List::Senders => Wait::Room {
            messages: match slot {
                NO_SLOT => node.wanted.get(),
                _ => 1,
            },
            bytes: segment.cell(slot).ok().map(|cell| cell.len() as u64),
        },
        _ => Wait::Message {
            want: Want::Any,
            longest: None,
        },
    }
}

/// Returns the receiving process of a ring. None for a POSIX queue, and for a ring that was closed.
fn receiver(segment: &Segment) -> Option<Process> {
    let ownership = &segment.fixed().ownership;
    let (state, (pid, birth)) = (ownership.state(), ownership.owner());
    (state != 0 && state != CLOSED && pid != 0).then(|| Process::of(segment, pid, birth))
}

fn registrations(engine: &Engine) -> Vec<Registration> {
    let found = engine.registrations();
    found
        .map(|(registered, told)| Registration {
            who: Process::of(engine.segment(), registered.pid, registered.birth),
            kind: NotifyKind::of(&registered),
            told,
        })
        .collect()
}
