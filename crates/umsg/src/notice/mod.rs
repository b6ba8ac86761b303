//! What this process is registered for: what is to be done when a queue has a message again.
//!
//! A record in the queue's segment says that the process is registered ([`crate::queue::notice`]); what it then does stands here,
//! in memory of its own. A sender of this process raises the process's signal itself, before its call returns. Everybody else
//! wakes one of the process's [helpers](helper), which raises it, or runs a function.
//!
//! A registration may be made and taken back in a signal handler: signals are masked while the table is locked. A forked child
//! has a table of its own: its parent's registrations are not the child's.

mod helper;

use crate::lock::SLICE;
use crate::queue::{Claim, Engine, NoticeError, Outcome, Refused, What};
use crate::segment::Notice;
use crate::sys::mask::Masked;
use crate::sys::{process, thread};
use helper::Helper;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Who sent the message: process and real user. What a peer has scribbled can't be told from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Notified {
    /// The sender's process id.
    pub pid: u32,
    /// Its real user id.
    pub uid: u32,
}

/// What is done once.
pub(crate) enum Deed {
    Nothing,
    Signal { signal: i32, value: usize },
    Call(Box<dyn FnOnce(Notified) + Send>),
}

impl Deed {
    fn what(&self) -> What {
        match self {
            Deed::Nothing => What::Nothing,
            Deed::Signal { .. } => What::Signal,
            Deed::Call(_) => What::Call,
        }
    }

    fn signal(&self) -> i32 {
        match self {
            Deed::Signal { signal, .. } => *signal,
            _ => 0,
        }
    }

    /// Whether a helper has to wait for it.
    fn needs_helper(&self) -> bool {
        match self {
            Deed::Nothing => false,
            Deed::Signal { signal, .. } => *signal != 0,
            Deed::Call(_) => true,
        }
    }

    fn run(self, by: Notified) {
        match self {
            Deed::Nothing => {}
            Deed::Signal { signal, value } => {
                process::raise_for_message(signal, value, by.pid, by.uid);
                // Now, and not when the other processor comes to it: who hears that it was raised has been interrupted.
                process::interrupt_other_threads();
            }
            Deed::Call(function) => function(by),
        }
    }
}

/// Why a process could not register.
pub(crate) enum Failure {
    Queue(NoticeError),
    NoThread,
}

/// A registration.
struct Entry {
    ticket: u64,
    /// Device and inode of the queue.
    identity: (u64, u64),
    /// Keeps the segment mapped, whatever becomes of the queue's handle.
    engine: Arc<Engine>,
    /// Which record, and what its word says; none before the queue knows of it.
    place: Option<(u32, u32)>,
    deed: Deed,
    helper: Option<&'static Helper>,
}

impl Entry {
    fn outcome(&self) -> Outcome {
        self.place.map_or(Outcome::Armed, |(index, word)| {
            self.engine.outcome(index, word)
        })
    }

    fn withdraw(&self) -> bool {
        self.place
            .is_some_and(|(index, word)| self.engine.withdraw(index, word))
    }
}

/// Does what is to be done, and tells the sender.
fn settle(entry: Entry, by: Notified) {
    entry.deed.run(by);
    if let Some((index, word)) = entry.place {
        entry.engine.acknowledge_notice(index, word);
    }
}

#[derive(Default)]
struct Registrations {
    entries: Vec<Entry>,
    helpers: Vec<&'static Helper>,
    tickets: u64,
}

/// The registrations of one process.
struct Table {
    epoch: u64,
    registrations: Mutex<Registrations>,
    /// How many there are, for who need not lock to find none.
    count: AtomicUsize,
}

/// The table of this process, or of the one that it was forked from.
static TABLE: AtomicPtr<Table> = AtomicPtr::new(std::ptr::null_mut());

/// The registrations, locked. No handler runs meanwhile that might want them too.
struct Locked {
    table: &'static Table,
    registrations: MutexGuard<'static, Registrations>,
    _masked: Masked,
}

impl Locked {
    fn of(table: &'static Table) -> Locked {
        let masked = Masked::all();
        Locked {
            table,
            // A panic leaves nothing half done that matters.
            registrations: table
                .registrations
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
            _masked: masked,
        }
    }

    fn position(&self, ticket: u64) -> Option<usize> {
        let entries = &self.registrations.entries;
        entries.iter().position(|entry| entry.ticket == ticket)
    }

    fn add(&mut self, entry: Entry) {
        self.registrations.entries.push(entry);
        self.note_count();
    }

    fn remove(&mut self, position: usize) -> Entry {
        let entry = self.registrations.entries.swap_remove(position);
        self.note_count();
        entry
    }

    fn note_count(&self) {
        let count = self.registrations.entries.len();
        // Release: what is settled outside of the table is counted before.
        self.table.count.store(count, Ordering::Release);
    }

    /// Forgets what nobody need be told of, and is over.
    fn prune(&mut self) {
        let is_over = |entry: &Entry| entry.helper.is_none() && entry.outcome() != Outcome::Armed;
        self.registrations.entries.retain(|entry| !is_over(entry));
        self.note_count();
    }
}

/// The table that this leads to, if it is this process's.
fn of_this_process(table: *mut Table) -> Option<&'static Table> {
    // SAFETY: a non-null TABLE was leaked by `table`, and is never freed.
    let table = unsafe { table.as_ref()? };
    (table.epoch == process::epoch()).then_some(table)
}

/// The table of this process, if it has one.
fn existing() -> Option<&'static Table> {
    // Acquire: what it points to.
    of_this_process(TABLE.load(Ordering::Acquire))
}

/// The table of this process.
fn table() -> &'static Table {
    // Acquire: as in `existing`. Looked at once: only what was found not to be this process's is replaced.
    let found = TABLE.load(Ordering::Acquire);
    if let Some(table) = of_this_process(found) {
        return table;
    }
    let fresh = Box::leak(Box::new(Table {
        epoch: process::begin_epoch(),
        registrations: Mutex::default(),
        count: AtomicUsize::new(0),
    }));
    // Two threads may begin at once: the first wins.
    let _ = TABLE.compare_exchange(found, fresh, Ordering::AcqRel, Ordering::Acquire);
    existing().unwrap_or(fresh)
}

/// Registers this process at a queue. Answers the registration's ticket.
pub(crate) fn register(engine: &Engine, identity: (u64, u64), deed: Deed) -> Result<u64, Failure> {
    let me = thread::current();
    let mut locked = Locked::of(table());
    locked.prune();
    let helper = match deed.needs_helper() {
        true => Some(Helper::for_one_more(&mut locked.registrations).ok_or(Failure::NoThread)?),
        false => None,
    };
    locked.registrations.tickets += 1;
    let ticket = locked.registrations.tickets;
    let claim = Claim {
        what: deed.what(),
        signal: deed.signal().cast_unsigned(),
        ticket,
    };
    locked.add(Entry {
        ticket,
        identity,
        engine: Arc::new(engine.share()),
        place: None,
        deed,
        helper,
    });
    // Whoever fires another registration of this process meanwhile wants the table.
    drop(locked);
    let registered = engine.register(me, &claim);
    let mut locked = Locked::of(table());
    let Some(position) = locked.position(ticket) else {
        // It was fired at once, by another thread of ours.
        return registered.map(|_| ticket).map_err(Failure::Queue);
    };
    match registered {
        Ok(place) => {
            locked.registrations.entries[position].place = Some(place);
            drop(locked);
            helper.into_iter().for_each(Helper::call);
            Ok(ticket)
        }
        Err(error) => {
            let entry = locked.remove(position);
            drop(locked);
            drop(entry);
            Err(Failure::Queue(error))
        }
    }
}

/// Registers this process at a queue for a thread that waits by itself. Answers the record and what its word says.
pub(crate) fn register_to_wait(engine: &Engine) -> Result<(u32, u32), NoticeError> {
    let claim = Claim {
        what: What::Wait,
        signal: 0,
        ticket: 0,
    };
    engine.register(thread::current(), &claim)
}

/// Takes back registrations of this process; those that were fired are none any more.
fn withdraw_those(are_meant: impl Fn(&Entry) -> bool) {
    let Some(table) = existing() else {
        return;
    };
    // Relaxed: what this thread may take back it has registered, or heard of.
    if table.count.load(Ordering::Relaxed) == 0 {
        return;
    }
    let mut locked = Locked::of(table);
    let mut position = 0;
    while let Some(entry) = locked.registrations.entries.get(position) {
        if are_meant(entry) && entry.withdraw() {
            let entry = locked.remove(position);
            let helper = entry.helper;
            // The segment may be unmapped with it, and a function dropped: without the lock.
            drop(locked);
            drop(entry);
            helper.into_iter().for_each(Helper::call);
            locked = Locked::of(table);
            position = 0;
        } else {
            position += 1;
        }
    }
}

/// Whether this process may have registrations.
#[inline]
pub(crate) fn any() -> bool {
    // Relaxed: as in `withdraw_those`.
    existing().is_some_and(|table| {
        // Acquire: who finds that nothing is counted sees that it was being settled before, or that it was.
        table.count.load(Ordering::Acquire) != 0 || SETTLING.load(Ordering::Acquire) != 0
    })
}

/// How many registrations helpers have taken from the table and not settled.
static SETTLING: AtomicUsize = AtomicUsize::new(0);

/// Takes back one registration.
pub(crate) fn withdraw(ticket: u64) {
    withdraw_those(|entry| entry.ticket == ticket);
}

/// Takes back this process's registration at a queue: its device and inode.
pub(crate) fn withdraw_from(identity: (u64, u64)) {
    withdraw_those(|entry| entry.identity == identity);
}

/// Whether a registration has not been fired.
pub(crate) fn is_armed(ticket: u64) -> bool {
    existing().is_some_and(|table| {
        let locked = Locked::of(table);
        let entry = |position: usize| &locked.registrations.entries[position];
        locked
            .position(ticket)
            .is_some_and(|position| entry(position).outcome() == Outcome::Armed)
    })
}

/// Raises the signal of a registration with this queue that a thread of this process has fired, if it is this process's, and is told
/// by a signal. What is left of it the helper drops: this may be a handler that has interrupted malloc.
pub(crate) fn raise_own(engine: &Engine, index: u32, notice: &Notice, word: u32) -> bool {
    // Relaxed: a hint, which the table confirms.
    let is_own = notice.pid.load(Ordering::Relaxed) == std::process::id();
    let Some(table) = existing().filter(|_| is_own) else {
        return false;
    };
    let mut locked = Locked::of(table);
    let ticket = notice.ticket.load(Ordering::Relaxed);
    let Some(position) = locked.position(ticket) else {
        return false;
    };
    let armed = crate::queue::armed(word);
    let entry = &mut locked.registrations.entries[position];
    let Outcome::Fired { pid, uid } = entry.engine.outcome(index, armed) else {
        return false;
    };
    let Deed::Signal { signal, value } = entry.deed else {
        return false;
    };
    if entry.place.is_some_and(|place| place != (index, armed)) {
        return false;
    }
    entry.place = Some((index, armed));
    entry.deed = Deed::Nothing;
    drop(locked);
    process::raise_for_message(signal, value, pid, uid);
    engine.acknowledge_notice(index, armed);
    true
}

/// How long a helper sleeps at most, in nanoseconds: wake-ups can be lost with their waker.
const HELPER_SLICE: u64 = SLICE;

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        Failure::Queue(NoticeError::Refused(refused))
    }
}
