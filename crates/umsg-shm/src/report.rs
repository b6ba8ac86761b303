//! Reports of rare events: repairs, deaths, expired messages, corruption and long waits, for the log of a program.
//!
//! Most of these events are found under a lock of a queue. A receiver of reports may do anything, even use the same queue. So [`note`] only writes
//! the report into a table of this process, and [`tell`] delivers the report once the thread has released the lock. Both functions work in signal
//! handlers: they take no memory and wait for nothing.
//!
//! | state of an entry | who writes it | next |
//! |---|---|---|
//! | free | - | a thread takes it: `writing` |
//! | writing, with the process id | the thread that notes | `ready` (REPORTED: release) |
//! | ready | - | a thread takes it: `reading` (acquire) |
//! | reading, with the process id | the thread that tells | `free` |
//!
//! A report that finds no free entry is counted. Without a receiver, an event costs a load and a branch. All these words belong to one process. A
//! forked child inherits them, and may deliver a report of its parent again. An entry that a thread of another process has taken is treated as free:
//! a thread of the parent had the entry at the fork, and the child has no such thread.
//!
//! No step takes a lock, so a forked child can note and deliver reports after a fork between any two steps. A thread that delivers reports is marked
//! until its receiver has returned. A marked thread notes and delivers nothing, so a receiver is never called within itself: the events of the
//! receiver's own use of queues are dropped.

#[cfg(not(loom))]
#[allow(
    unsafe_code,
    reason = "a function with captured words, whose type only its caller knows"
)]
mod receiver;

#[cfg(not(loom))]
pub use receiver::{Receiver, is_on, set_first_receiver, set_receiver};

use crate::sys::clock;
#[cfg(not(loom))]
use crate::sys::thread;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
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
    /// A thread died while it waited in the queue.
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

/// A report of one event.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    pub what: What,
    /// The process that died; 0 for unknown and for other events.
    pub pid: u32,
    /// The duration of a wait, or the number of lost reports.
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
/// The number of bits for the state. The process id is in the bits above them.
const STATE_BITS: u32 = 2;

struct Entry {
    /// The state. While a thread has the entry, the word also contains the id of the thread's process.
    state: AtomicU32,
    what: AtomicU32,
    pid: AtomicU32,
    len: AtomicU32,
    amount: AtomicU64,
    /// The identifier of a System V queue; -1 if there is none.
    id: AtomicI64,
    name: [AtomicU64; LONGEST / 8],
}

impl Entry {
    /// All words are zero, so that the table is in .bss. In .data, each process would copy its pages.
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
        id: AtomicI64::new(0),
        name: [const { AtomicU64::new(0) }; LONGEST / 8],
    };

    /// Takes the entry for a thread of the process `pid`, if the entry is in the state `from`: `FREE` or `READY`.
    fn take(&self, from: u32, to: u32, pid: u32) -> bool {
        // Relaxed: the exchange checks the value.
        let now = self.state.load(Ordering::Relaxed);
        let holder = now >> STATE_BITS;
        let is_abandoned = holder != 0 && holder != pid;
        let is_wanted = now == from || from == FREE && is_abandoned;
        // Acquire: pairs with the release of `READY` (REPORTED), or with the release of `FREE` by the last reader of the entry.
        is_wanted
            && self
                .state
                .compare_exchange(
                    now,
                    to | pid << STATE_BITS,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                )
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
/// True if an entry may be ready, or a report was lost. A forked child may inherit false although an entry is ready: the next event sets the flag.
static PENDING: AtomicBool = AtomicBool::new(false);
static LOST: AtomicU64 = AtomicU64::new(0);
static SLOW: AtomicU64 = AtomicU64::new(1_000_000_000);

/// Sets the shortest duration of a wait that is reported.
pub fn set_slow_wait(time: Duration) {
    // Relaxed: the word is a setting, and publishes no other data.
    SLOW.store(
        u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
        Ordering::Relaxed,
    );
}

/// Returns false: a model has no receiver.
#[cfg(loom)]
pub fn is_on() -> bool {
    false
}

/// Returns the current time if waits are reported, for [`end_wait`].
pub(crate) fn begin_wait() -> Option<u64> {
    (!cfg!(loom) && is_on()).then(clock::monotonic)
}

/// Notes a wait that began at `began`, if it was long, and delivers all reports. The caller holds no lock.
pub(crate) fn end_wait(what: What, subject: Subject<'_>, began: Option<u64>) {
    let Some(began) = began else { return };
    let lasted = clock::monotonic().saturating_sub(began);
    // Relaxed: the word is a setting, and publishes no other data.
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
    #[cfg(not(loom))]
    if is_on() {
        note_for_receiver(what, subject, pid, amount);
    }
    #[cfg(loom)]
    let _ = (what, subject, pid, amount);
}

#[cfg(not(loom))]
fn note_for_receiver(what: What, subject: Subject<'_>, pid: u32, amount: u64) {
    let me = thread::current();
    if me.tells.get() || me.muted.get() {
        return;
    }
    let taken = TABLE
        .iter()
        .find(|entry| entry.take(FREE, WRITING, me.pid()));
    match taken {
        Some(entry) => {
            entry.write(what, subject, pid, amount);
            // Release: REPORTED, with the acquire in `take`.
            entry.state.store(READY, Ordering::Release);
        }
        // Relaxed: a count.
        None => {
            LOST.fetch_add(1, Ordering::Relaxed);
        }
    }
    // Release: a thread that clears the flag sees the entry. A read-modify-write, so that the stores of several threads are one release sequence.
    PENDING.swap(true, Ordering::Release);
}

/// Sets whether the calling thread is muted. A muted thread notes no events, and does not deliver the reports of other threads.
#[cfg(not(loom))]
pub fn mute_thread(is_muted: bool) {
    thread::current().muted.set(is_muted);
}

/// Returns whether reports may wait for [`tell`].
#[inline]
pub(crate) fn is_any() -> bool {
    // Relaxed: a hint.
    !cfg!(loom) && PENDING.load(Ordering::Relaxed)
}

/// Delivers the reports to the receiver. The caller holds no lock of a queue. In a receiver of this thread, and in a muted thread, the call does
/// nothing.
#[inline]
pub fn tell() {
    #[cfg(not(loom))]
    if is_any() {
        tell_all();
    }
}

/// The mark of a thread that delivers reports. The drop removes the mark, also if a receiver panics.
#[cfg(not(loom))]
struct Telling(&'static thread::Thread);

#[cfg(not(loom))]
impl Telling {
    /// Marks the thread. Returns `None` if the thread is marked already.
    fn begin(me: &'static thread::Thread) -> Option<Telling> {
        // The drop of a `Telling` removes the mark. So a `Telling` is made only if the thread was unmarked before.
        (!me.tells.replace(true)).then(|| Telling(me))
    }
}

#[cfg(not(loom))]
impl Drop for Telling {
    fn drop(&mut self) {
        self.0.tells.set(false);
    }
}

#[cfg(not(loom))]
#[cold]
fn tell_all() {
    let me = thread::current();
    if me.muted.get() {
        return;
    }
    let Some(_telling) = Telling::begin(me) else {
        return;
    };
    // The receiver is held for one report at a time: an event that is noted after `set_receiver` has returned goes to the new function.
    let give = |report: &Report| {
        if let Some(receiver) = receiver::hold() {
            receiver.give(report);
        }
    };
    // Acquire: pairs with the release in `note_for_receiver`. An event that is noted from now on sets the flag again.
    PENDING.swap(false, Ordering::Acquire);
    for entry in &TABLE {
        if entry.take(READY, READING, me.pid()) {
            let report = entry.read();
            // Release: pairs with the acquire of the next thread that takes the entry.
            entry.state.store(FREE, Ordering::Release);
            give(&report);
        }
    }
    // Relaxed: the word is only a count.
    let lost = LOST.swap(0, Ordering::Relaxed);
    if lost != 0 {
        give(&Report {
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
mod tests;
