//! Reports of rare events: repairs, deaths, expired messages, corruption and long waits, for the log of a program.
//!
//! Most of these events are found under a lock of a queue. A receiver of reports may do anything, even use the same queue. So [`note`] only writes
//! the report into a table of this process, and [`tell`] passes it on once the thread has released the lock. Both work in signal handlers: they take
//! no memory and wait for nothing.
//!
//! | state of an entry | who writes it | next |
//! |---|---|---|
//! | free | - | a thread takes it: `writing` |
//! | writing | the thread that notes | `ready` (REPORTED: release) |
//! | ready | - | a thread takes it: `reading` (acquire) |
//! | reading | the thread that tells | `free` |
//!
//! A report that finds no free entry is counted. Without a receiver, an event costs a load and a branch. All these words belong to one process; a
//! forked child inherits them, and may tell a report of its parent again.

use crate::sys::clock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Length of the longest name of a queue, with its slash, in bytes.
const LONGEST: usize = 256;
const ENTRIES: usize = 32;

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// A process died with a lock, and the caller repaired the data of that lock.
    Repaired,
    /// A process died that held a lease or a reservation.
    HolderDied,
    /// A thread died that waited for the queue.
    WaiterDied,
    /// A message was older than the queue's time to live.
    Expired,
    /// A call found values that no operation writes.
    Corrupted,
    /// A call waited for room for a long time.
    WaitedForRoom,
    /// A call waited for a message for a long time.
    WaitedForMessage,
    /// Reports found no free entry.
    Lost,
}

const KINDS: [What; 8] = [
    What::Repaired,
    What::HolderDied,
    What::WaiterDied,
    What::Expired,
    What::Corrupted,
    What::WaitedForRoom,
    What::WaitedForMessage,
    What::Lost,
];

/// An event.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    pub what: What,
    /// The process that died; 0 for unknown and for other events.
    pub pid: u32,
    /// The duration of a wait; the number of lost reports.
    pub amount: u64,
    /// The identifier of a System V queue.
    pub id: Option<i32>,
    len: usize,
    name: [u8; LONGEST],
}

impl Report {
    /// Returns the name of a POSIX queue, with its slash. Empty if unknown.
    pub fn name(&self) -> &[u8] {
        &self.name[..self.len]
    }
}

/// The queue of an event.
#[derive(Clone, Copy)]
pub enum Subject<'a> {
    Named(&'a [u8]),
    Id(i32),
}

const FREE: u32 = 0;
const WRITING: u32 = 1;
const READY: u32 = 2;
const READING: u32 = 3;

struct Entry {
    state: AtomicU32,
    what: AtomicU32,
    pid: AtomicU32,
    len: AtomicU32,
    amount: AtomicU64,
    /// The identifier, or -1.
    id: AtomicI64,
    name: [AtomicU64; LONGEST / 8],
}

impl Entry {
    #[allow(
        clippy::declare_interior_mutable_const,
        reason = "the first value of each entry of a static"
    )]
    const NEW: Entry = Entry {
        state: AtomicU32::new(FREE),
        what: AtomicU32::new(0),
        pid: AtomicU32::new(0),
        len: AtomicU32::new(0),
        amount: AtomicU64::new(0),
        id: AtomicI64::new(-1),
        name: [const { AtomicU64::new(0) }; LONGEST / 8],
    };

    /// Takes the entry if it is in the state `from`.
    fn take(&self, from: u32, to: u32) -> bool {
        // Acquire: REPORTED, or the end of an earlier reader.
        self.state
            .compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    fn write(&self, what: What, subject: Subject<'_>, pid: u32, amount: u64) {
        // Relaxed throughout: the entry belongs to this thread until it changes the state.
        let relaxed = Ordering::Relaxed;
        let kind = KINDS.iter().position(|kind| *kind == what);
        self.what.store(kind.unwrap_or(0) as u32, relaxed);
        self.pid.store(pid, relaxed);
        self.amount.store(amount, relaxed);
        let (name, id) = match subject {
            Subject::Named(name) => (name, -1),
            Subject::Id(id) => (&[][..], id.into()),
        };
        self.id.store(id, relaxed);
        let len = name.len().min(LONGEST);
        self.len.store(len as u32, relaxed);
        for (word, bytes) in self.name.iter().zip(name[..len].chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(whole), relaxed);
        }
    }

    fn read(&self) -> Report {
        // Relaxed throughout: as in `write`.
        let relaxed = Ordering::Relaxed;
        let mut report = Report {
            what: KINDS[self.what.load(relaxed) as usize % KINDS.len()],
            pid: self.pid.load(relaxed),
            amount: self.amount.load(relaxed),
            id: i32::try_from(self.id.load(relaxed))
                .ok()
                .filter(|id| *id >= 0),
            len: (self.len.load(relaxed) as usize).min(LONGEST),
            name: [0; LONGEST],
        };
        let (words, _) = report.name.as_chunks_mut();
        for (bytes, word) in words.iter_mut().zip(&self.name) {
            *bytes = word.load(relaxed).to_le_bytes();
        }
        report
    }
}

static TABLE: [Entry; ENTRIES] = [Entry::NEW; ENTRIES];
/// The number of ready entries. For an instant, it may be too small.
static PENDING: AtomicI32 = AtomicI32::new(0);
static LOST: AtomicU64 = AtomicU64::new(0);
static IS_ON: AtomicBool = AtomicBool::new(false);
static SLOW: AtomicU64 = AtomicU64::new(1_000_000_000);

/// A function that gets reports. It runs in the thread of a call on a queue, which holds no lock then; perhaps in a signal handler that calls the
/// library.
pub type Receiver = fn(&Report);

static RECEIVER: Mutex<Option<Receiver>> = Mutex::new(None);

/// Sets the function that gets the reports of this process, or none.
pub fn set_receiver(receiver: Option<Receiver>) {
    let mut present = RECEIVER
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    *present = receiver;
    // Relaxed: a thread that reads the earlier value notes no report, or one that no function gets.
    IS_ON.store(receiver.is_some(), Ordering::Relaxed);
}

/// Sets the function that gets the reports, if there is none.
pub fn set_first_receiver(receiver: Receiver) {
    if !is_on() {
        let mut present = RECEIVER
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        present.get_or_insert(receiver);
        // Relaxed: as above.
        IS_ON.store(true, Ordering::Relaxed);
    }
}

/// Sets how long a wait lasts that is reported.
pub fn set_slow_wait(time: Duration) {
    // Relaxed: a setting.
    SLOW.store(
        u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
        Ordering::Relaxed,
    );
}

/// Returns whether a function gets reports.
#[inline]
pub fn is_on() -> bool {
    // Relaxed: as in `set_receiver`.
    IS_ON.load(Ordering::Relaxed)
}

/// Returns the present time if waits are reported, for [`end_wait`].
pub(crate) fn begin_wait() -> Option<u64> {
    (!cfg!(loom) && is_on()).then(clock::monotonic)
}

/// Notes a wait that began at `began`, if it was long, and tells all reports. The caller holds no lock.
pub(crate) fn end_wait(what: What, subject: Subject<'_>, began: Option<u64>) {
    let Some(began) = began else { return };
    let lasted = clock::monotonic().saturating_sub(began);
    // Relaxed: a setting.
    if lasted >= SLOW.load(Ordering::Relaxed) {
        note(what, subject, 0, lasted);
    }
    tell();
}

/// Notes an event. A lock may be held.
#[cold]
pub(crate) fn note(what: What, subject: Subject<'_>, pid: u32, amount: u64) {
    crate::tracepoint!(
        event,
        KINDS.iter().position(|kind| *kind == what).unwrap_or(0),
        pid
    );
    if cfg!(loom) || !is_on() {
        return;
    }
    for entry in &TABLE {
        if entry.take(FREE, WRITING) {
            entry.write(what, subject, pid, amount);
            // Release: REPORTED, with the acquire in `take`.
            entry.state.store(READY, Ordering::Release);
            // Relaxed: a hint. The states say which entries are ready.
            PENDING.fetch_add(1, Ordering::Relaxed);
            return;
        }
    }
    // Relaxed: a count.
    LOST.fetch_add(1, Ordering::Relaxed);
}

/// Returns whether reports wait for [`tell`].
#[inline]
pub(crate) fn is_any() -> bool {
    // Relaxed: a hint.
    !cfg!(loom) && PENDING.load(Ordering::Relaxed) > 0
}

/// Passes the reports on. The caller holds no lock of a queue.
#[inline]
pub fn tell() {
    if is_any() {
        tell_all();
    }
}

#[cold]
fn tell_all() {
    // Not `lock`: this thread may have interrupted `set_receiver`. The reports stay for the next call.
    let Some(receiver) = RECEIVER.try_lock().ok().map(|present| *present) else {
        return;
    };
    for entry in &TABLE {
        if entry.take(READY, READING) {
            let report = entry.read();
            // Release: pairs with the acquire of the next thread that takes the entry.
            entry.state.store(FREE, Ordering::Release);
            PENDING.fetch_sub(1, Ordering::Relaxed);
            if let Some(receive) = receiver {
                receive(&report);
            }
        }
    }
    // Relaxed: a count.
    let lost = LOST.swap(0, Ordering::Relaxed);
    if let Some(receive) = receiver
        && lost != 0
    {
        receive(&Report {
            what: What::Lost,
            pid: 0,
            amount: lost,
            id: None,
            len: 0,
            name: [0; LONGEST],
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    static SEEN: Mutex<Vec<(What, u32, Vec<u8>)>> = Mutex::new(Vec::new());

    fn keep(report: &Report) {
        let (pid, name) = (report.pid, report.name().to_vec());
        if name.first() == Some(&b'/') || report.what == What::Lost {
            SEEN.lock().unwrap().push((report.what, pid, name));
        }
    }

    #[test]
    fn reports_are_told_after_they_were_noted_and_those_without_room_are_counted() {
        note(What::Expired, Subject::Named(b"/before"), 0, 0);
        set_receiver(Some(keep));
        let long = [&b"/"[..], &[b'x'; 300]].concat();
        note(What::Repaired, Subject::Named(b"/a"), 7, 0);
        note(What::HolderDied, Subject::Named(&long), 8, 0);
        assert!(SEEN.lock().unwrap().is_empty());
        tell();
        let seen = std::mem::take(&mut *SEEN.lock().unwrap());
        assert_eq!(seen[0], (What::Repaired, 7, b"/a".to_vec()));
        assert_eq!(seen[1], (What::HolderDied, 8, long[..LONGEST].to_vec()));
        assert_eq!(seen.len(), 2);
        for _ in 0..ENTRIES + 3 {
            note(What::Expired, Subject::Named(b"/b"), 0, 0);
        }
        tell();
        let seen = std::mem::take(&mut *SEEN.lock().unwrap());
        assert_eq!(seen.last().map(|seen| seen.0), Some(What::Lost));
        assert!(seen.len() > ENTRIES / 2);
        set_receiver(None);
        note(What::Expired, Subject::Named(b"/c"), 0, 0);
        tell();
        assert!(SEEN.lock().unwrap().is_empty());
    }
}
