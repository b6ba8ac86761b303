//! Repairs the problems that a diagnosis has found.

use super::examination::examine;
use super::findings::Findings;
use super::locks::{Lock, Owner};
use super::problems::ProblemKind;
use super::process::Life;
use super::subject::Subject;
use super::users::{Users, numbers_are_ours};
use super::{Diagnosis, Finding};
use crate::error::SegmentError;
use crate::error::{Fault, OpenError};
use crate::namespace::Namespace;
use rustix::fd::BorrowedFd;
use rustix::fs::FallocateFlags;
use std::time::Duration;
use umsg_shm::lock::{Lock as Word, STOPPED, TID};
use umsg_shm::memory::set_length;
use umsg_shm::repair::salvage::{Salvage, Salvaged};
use umsg_shm::sys::clock::Deadline;
use umsg_shm::sys::extent::first_hole;
use umsg_shm::sys::thread;

/// Bytes in a page.
const PAGE: usize = 4096;

/// The result of a repair.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Repaired {
    /// The diagnosis before the repair.
    pub before: Diagnosis,
    /// The diagnosis after the repair.
    pub after: Diagnosis,
    /// The steps of the repair, as sentences; empty if nothing was wrong, or no repair was possible.
    pub done: Vec<String>,
    /// The reason why the repair is not complete.
    pub failed: Option<String>,
    /// If the queue was rebuilt from its intact messages: the number of messages kept, including leased ones and those of blocked threads.
    pub kept: Option<u64>,
    /// The number of lost messages. Corrupted messages that can't be told from free memory are not counted.
    pub lost: u64,
}

impl Repaired {
    fn new(before: Diagnosis) -> Repaired {
        Repaired {
            after: before.clone(),
            before,
            done: Vec::new(),
            failed: None,
            kept: None,
            lost: 0,
        }
    }

    pub(super) fn note(&mut self, what: impl Into<String>) {
        self.done.push(what.into());
    }

    /// Returns whether a living process holds a lock: then nothing can be repaired.
    fn must_wait(&mut self) -> bool {
        let is_stuck =
            |lock: &&Lock| matches!(&lock.owner, Owner::Thread(who) if who.life != Life::Dead);
        let problems = &self.before.problems;
        if problems
            .iter()
            .any(|problem| problem.kind == ProblemKind::Stuck)
            && let Some(lock) = self.before.locks.iter().find(is_stuck)
            && let Owner::Thread(who) = &lock.owner
        {
            let pid = who.pid;
            self.failed = Some(match lock.mapped {
                Some(_) => format!(
                    "process {pid} holds a lock and makes no progress: first continue the process (kill -CONT {pid}) or end it (kill -KILL {pid})"
                ),
                None => format!(
                    "a lock names process {pid}, but this user can't see whether that process uses the queue. Run the repair as root, in the PID namespace of process {pid}."
                ),
            });
        }
        self.failed.is_some()
    }

    /// Takes each lock away from its named owner if that owner can't hold the lock. A false loan stays: the next process that holds the receivers'
    /// lock ends it.
    fn free_locks(&mut self, words: Vec<&Word>, users: impl Fn() -> Users) {
        let owners = self.before.locks.iter().zip(words);
        let freed: Vec<String> = owners
            .filter_map(|(lock, word)| {
                let (side, tid) = (lock.side.name(), lock.word & TID);
                let why = match &lock.owner {
                    Owner::Thread(who) if who.life == Life::Dead => "does not exist",
                    Owner::Impossible if !lock.is_lent() => "is an impossible thread id",
                    // The process was observed for a while. If the process has opened the queue since then, the lock no longer names the process,
                    // or the process really owns the lock.
                    Owner::Stranger(_) if users().have(tid) == Some(false) => {
                        "does not use the queue"
                    }
                    _ => return None,
                };
                word.take_from(tid)
                    .then(|| format!("took the lock of {side} from thread {tid}, which {why}"))
            })
            .collect();
        self.done.extend(freed);
    }

    /// Notes that a false loan was cleared.
    fn note_loans(&mut self) {
        let is_false = |lock: &Lock| lock.is_lent() && lock.owner == Owner::Impossible;
        let [before, after] = [&self.before, &self.after].map(|of| of.locks.iter().any(is_false));
        if before && !after {
            self.note("cleared a false loan of the senders' lock");
        }
    }

    /// Returns the finding at an offset of the header.
    pub(super) fn header_finding(&self, offset: u64) -> Option<&Finding> {
        let findings = self.before.problems.iter();
        findings
            .filter_map(|problem| problem.finding.as_ref())
            .find(|finding| finding.offset == offset)
    }
}

impl Repaired {
    /// Records the result of the repair of the bytes after the header.
    fn report(&mut self, done: Result<Option<Salvaged>, Fault>) {
        match done {
            Ok(Some(Salvaged { kept, lost })) => {
                self.note(format!(
                    "rebuilt the queue from its intact messages: {kept} kept, {lost} corrupted and dropped"
                ));
                (self.kept, self.lost) = (Some(kept), lost);
            }
            Ok(None) => self.note("completed the operations of dead processes"),
            Err(fault) => self.failed = Some(why(fault)),
        }
    }

    /// Repairs the bytes after the header. First, it completes the operations of dead processes. Then, if bytes were wrong before or still are, it
    /// rebuilds the queue. At last, if no byte is wrong any more, it removes the corruption mark.
    fn treat(
        &mut self,
        mut attempt: impl FnMut(Remedy) -> Result<Option<Salvaged>, Fault>,
        examine: impl Fn() -> Result<Diagnosis, OpenError>,
        forget_damage: impl Fn() -> bool,
    ) -> Result<(), OpenError> {
        let mut remedy = Remedy::for_(&self.before);
        loop {
            self.report(attempt(remedy));
            self.after = examine()?;
            let next = Remedy::for_(&self.after);
            if self.failed.is_some() || remedy == Remedy::MakeAnew || next == Remedy::TakeUp {
                break;
            }
            remedy = next;
        }
        self.take_mark_away(examine, forget_damage)
    }

    /// Removes the corruption mark if no byte is wrong any more.
    fn take_mark_away(
        &mut self,
        examine: impl Fn() -> Result<Diagnosis, OpenError>,
        forget_damage: impl Fn() -> bool,
    ) -> Result<(), OpenError> {
        // Another process that is rebuilding the queue keeps the mark. That process may have finished at the second check.
        for _ in 0..2 {
            let mut problems = self.after.problems.iter();
            let is_clean = problems.all(|problem| problem.finding.is_none());
            if self.after.damage.is_none() || self.failed.is_some() || !is_clean {
                return Ok(());
            }
            let is_taken = forget_damage();
            self.after = examine()?;
            if is_taken {
                self.note("cleared the corruption mark");
                return Ok(());
            }
        }
        if self.after.damage.is_some() {
            self.failed = Some(
                "another process is repairing the queue, or died while it repaired the queue: run the repair again".to_owned(),
            );
        }
        Ok(())
    }
}

/// The repair that a queue needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remedy {
    /// The operations of dead processes are completed.
    TakeUp,
    /// The queue is rebuilt from its intact messages.
    MakeAnew,
}

impl Remedy {
    fn for_(diagnosis: &Diagnosis) -> Remedy {
        let mut problems = diagnosis.problems.iter();
        match problems.any(|problem| problem.kind == ProblemKind::Damaged) {
            true => Remedy::MakeAnew,
            false => Remedy::TakeUp,
        }
    }
}

/// Repairs the queue in a file that is open for reading and writing.
///
/// # Errors
/// The errors of [`examine`].
pub(super) fn mend<S: Subject>(
    file: BorrowedFd<'_>,
    namespace: &Namespace,
    id: S::Id,
) -> Result<Repaired, OpenError> {
    let mut repaired = Repaired::new(examine::<S>(file, namespace, id)?);
    // A repair can't continue a stopped receiver.
    let mut problems = repaired.before.problems.iter();
    let has_work = problems.any(|problem| problem.kind != ProblemKind::Stopped);
    if !has_work || repaired.must_wait() {
        return Ok(repaired);
    }
    let layout = S::header(file, id, &mut Findings::default())?;
    if let Some(layout) = &layout {
        S::mend_header(file, id, layout, &mut repaired)?;
    }
    match S::attach(file, namespace) {
        Ok(engine) => {
            repaired.free_locks(engine.locks(), || Users::of(file, engine.lives()));
            S::mend_words(&engine, &mut repaired);
            repaired.treat(
                |remedy| apply::<S>(file, &engine, remedy),
                || examine::<S>(file, namespace, id),
                || engine.damage().forget(),
            )?;
            repaired.note_loans();
        }
        Err(OpenError::Segment(SegmentError::Damaged(what) | SegmentError::NotAQueue(what))) => {
            repaired.failed = Some(format!("{what}: no repair is possible. Remove the queue."));
        }
        // The repair failed, for example because it exceeded a limit of the calling process.
        Err(error) => repaired.failed = Some(error.to_string()),
    }
    Ok(repaired)
}

fn apply<S: Subject>(
    file: BorrowedFd<'_>,
    engine: &S::Engine,
    remedy: Remedy,
) -> Result<Option<Salvaged>, Fault> {
    let me = thread::current();
    // The time at which a wait for a lock ends.
    let patience = Deadline::after(Duration::from_nanos(STOPPED));
    match remedy {
        Remedy::MakeAnew => engine
            .salvage(
                me,
                patience,
                || S::real(file, engine),
                |slots| S::give_back(file, engine, slots),
            )
            .map(Some),
        Remedy::TakeUp => {
            let knows_threads = numbers_are_ours(engine.lives());
            engine.take_up(me, patience, knows_threads).map(|()| None)
        }
    }
}

/// Corrects the words of a header that can be computed from other words, and gives the file its length.
pub(super) fn mend_beginning(
    file: BorrowedFd<'_>,
    magic: u64,
    len: usize,
    repaired: &mut Repaired,
) -> Result<(), OpenError> {
    if repaired.header_finding(0).is_some() {
        write(file, &magic.to_ne_bytes(), 0)?;
        repaired.note("wrote the magic number");
    }
    if repaired.header_finding(24).is_some() {
        write(file, &(len as u64).to_ne_bytes(), 24)?;
        repaired.note("wrote the length that follows from the header's other fields");
    }
    let stat = rustix::fs::fstat(file).map_err(|e| OpenError::from_errno("fstat", e))?;
    if stat.st_size != len as i64 {
        set_length(file, len)?;
        repaired.note("restored the file's length; the bytes beyond the old end are lost");
    }
    Ok(())
}

/// Replaces an invalid mode of the queue by the mode of its file.
pub(super) fn mend_mode(
    file: BorrowedFd<'_>,
    at: u64,
    repaired: &mut Repaired,
) -> Result<(), OpenError> {
    if repaired.header_finding(at).is_some() {
        let stat = rustix::fs::fstat(file).map_err(|e| OpenError::from_errno("fstat", e))?;
        let mode = stat.st_mode & 0o777;
        write(file, &mode.to_ne_bytes(), at)?;
        repaired.note(format!("set the mode to {mode:04o}, that of the file"));
    }
    Ok(())
}

/// Writes these bytes into the file, at the offset `at`.
pub(super) fn write(file: BorrowedFd<'_>, bytes: &[u8], at: u64) -> Result<(), OpenError> {
    let written = rustix::io::pwrite(file, bytes, at);
    written
        .map(drop)
        .map_err(|e| OpenError::from_errno("pwrite", e))
}

/// Returns a word of the file. None if the file ends before the word.
pub(super) fn read_word(file: BorrowedFd<'_>, at: u64) -> Result<Option<u32>, OpenError> {
    let mut bytes = [0; 4];
    let read = rustix::io::pread(file, &mut bytes, at);
    let read = read.map_err(|e| OpenError::from_errno("pread", e))?;
    Ok((read == bytes.len()).then(|| u32::from_le_bytes(bytes)))
}

/// Returns the number of elements of `element` bytes, from the beginning of a region, that have allocated memory.
pub(super) fn real(file: BorrowedFd<'_>, begin: usize, end: usize, element: usize) -> usize {
    first_hole(file, begin, end).map_or(0, |hole| hole - begin) / element
}

/// Frees the memory of the file from `begin` to `end`. That part of the file then contains zeroes, and no corrupted bytes.
pub(super) fn give_back(file: BorrowedFd<'_>, begin: usize, end: usize) {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    // On a file system that can't give memory back, a later user finds the corrupted bytes.
    let _ = rustix::fs::fallocate(file, flags, begin as u64, (end - begin) as u64);
}

/// Returns the allocated pages among up to 64 pages of a region, one bit for each.
pub(super) fn real_pages(file: BorrowedFd<'_>, begin: usize, end: usize) -> u64 {
    let pages = (begin..end).step_by(PAGE).take(64).enumerate();
    let is_real = |at| real(file, at, at + PAGE, PAGE) != 0;
    pages.fold(0, |mask, (page, at)| mask | u64::from(is_real(at)) << page)
}

/// Returns the reason why a repair failed.
fn why(fault: Fault) -> String {
    match fault {
        Fault::Busy => "a process holds a lock and does not release it",
        Fault::NoSpace | Fault::OverLimit => {
            "the repair needs more memory than the namespace's limits or the file system allow: raise the limits, or free space in the file system"
        }
        Fault::NoMemory => "the repair needs more memory than the system has",
        Fault::Damaged | Fault::UsedUp | Fault::OwnedByCaller => "the file is still being modified",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::Damage;
    use super::*;
    use umsg_shm::repair::log;

    /// Returns a diagnosis that finds nothing wrong but the corruption mark.
    fn marked(damage: &log::Damage) -> Diagnosis {
        Diagnosis {
            damage: Damage::read(damage),
            ..Diagnosis::default()
        }
    }

    #[test]
    fn the_mark_of_a_rebuild_that_begins_after_an_inspection_is_not_removed() {
        let damage = log::Damage::default();
        damage.note();
        let mut repaired = Repaired::new(marked(&damage));
        let look = || {
            let found = marked(&damage);
            // Another repair takes the locks, and dies.
            damage.begin_to_mend();
            Ok(found)
        };
        let done = repaired.treat(|_| Ok(None), look, || damage.forget());
        done.unwrap();
        assert_eq!(damage.check_mended(), Err(Fault::Damaged));
        assert_eq!(
            repaired.done,
            ["completed the operations of dead processes"]
        );
        assert!(repaired.failed.is_some());
    }

    #[test]
    fn a_mark_is_removed_once_another_rebuild_is_done() {
        let damage = log::Damage::default();
        damage.begin_to_mend();
        let mut repaired = Repaired::new(marked(&damage));
        let look = || Ok(marked(&damage));
        let forget = || {
            let is_taken = damage.forget();
            damage.end_mending();
            is_taken
        };
        let done = repaired.take_mark_away(look, forget);
        done.unwrap();
        assert!(repaired.failed.is_none());
    }
}
