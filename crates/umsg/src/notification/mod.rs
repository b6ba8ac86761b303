//! The registrations of this process, and what the process does for each when a message arrives in a queue.
//!
//! A record in the queue's segment says that the process is registered ([`umsg_shm::posix_engine::notification`]); the action is stored here, in the
//! process's own memory. A sender in this process raises the signal itself, before its call returns. A sender in another process also raises the
//! signal itself, if that sender knows that this process [consents](umsg_shm::consent). Otherwise that sender wakes one of this process's
//! [helpers](helper), and the helper raises the signal or runs a function.
//!
//! A signal handler may register and unregister: signals are masked while the table is locked. A forked child has its own table: the child does not
//! have the registrations of its parent.

mod helper;
mod table;

use helper::Helper;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use table::{Entry, Locked, Stage, Table, existing, table};
use umsg_shm::consent::{self, Shown};
use umsg_shm::fault::Fault;
use umsg_shm::lock::SLICE;
use umsg_shm::posix_engine::segment::Notice;
use umsg_shm::posix_engine::{Claim, Engine, Outcome, Refused, RegisterError, What};
use umsg_shm::sys::{process, required, thread};

/// The sender of the message: process and real user. A hostile peer can forge these values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Notified {
    /// The sender's process id.
    pub pid: u32,
    /// The sender's real user id.
    pub uid: u32,
}

/// The kind of a registered process's notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotifyKind {
    /// No notification, or the notification of a thread that waits.
    Nothing,
    /// By a signal of that number.
    Signal(u32),
    /// By a function.
    Call,
}

impl NotifyKind {
    pub(crate) fn of(found: &umsg_shm::posix_engine::Registered) -> NotifyKind {
        match found.what {
            What::Signal => NotifyKind::Signal(found.signal),
            What::Call => NotifyKind::Call,
            What::Nothing | What::Wait => NotifyKind::Nothing,
        }
    }
}

/// The action of a registration, which is carried out when the registration is fired.
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

    /// Returns whether a helper has to wait for the notification.
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
                let _ = note_raised();
            }
            Deed::Call(function) => function(by),
        }
    }
}

/// The reason why a process could not register.
pub(crate) enum Failure {
    Queue(RegisterError),
    NoThread,
    Refused(required::Refused),
}

/// Registers this process at a queue. Returns the registration's ticket.
pub(crate) fn register(engine: &Engine, identity: (u64, u64), deed: Deed) -> Result<u64, Failure> {
    if deed.signal() != 0 {
        required::check_for_signals().map_err(Failure::Refused)?;
    }
    let me = thread::current();
    let table = table();
    free_own_records(table, engine, identity);
    helper::wait_until_not_crowded(table);
    let mut locked = Locked::of(table).ok_or(INTERRUPTED)?;
    let done = locked.take_done();
    if deed.signal() != 0 {
        consent::prepare();
    }
    let helper = match deed.needs_helper() {
        true => Some(Helper::for_one_more(&mut locked.registrations).ok_or(Failure::NoThread)?),
        false => None,
    };
    locked.registrations.tickets += 1;
    let ticket = locked.registrations.tickets;
    let shown = match deed {
        Deed::Signal { signal, value } if signal != 0 => {
            consent::offer(ticket, identity, signal, value)
        }
        _ => None,
    };
    let claim = Claim {
        what: deed.what(),
        signal: deed.signal().cast_unsigned(),
        ticket,
        shown: shown.unwrap_or_default(),
    };
    locked.add(Entry {
        ticket,
        identity,
        engine: Arc::new(engine.share()),
        stage: Stage::Asked,
        deed,
        helper,
        shown,
    });
    // The table is unlocked before the registration, because a thread that fires another registration of this process needs the table.
    drop(locked);
    drop(done);
    let registered = engine.register(me, &claim);
    let mut locked = Locked::of(table).ok_or(INTERRUPTED)?;
    let Some(position) = locked.position(ticket) else {
        // Another thread of this process has fired the registration at once.
        return registered.map(|_| ticket).map_err(Failure::Queue);
    };
    match registered {
        Ok((index, word)) => {
            let stage = &mut locked.registrations.entries[position].stage;
            // Another thread of this process may have fired the registration by now, and freed its record.
            let is_armed = matches!(stage, Stage::Asked);
            if is_armed {
                *stage = Stage::At(index, word);
            }
            let helper =
                helper.filter(|helper| !is_armed || !locked.is_watched(helper, identity, index));
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

/// Registers this process with a queue, for a thread that itself waits for the notification. Returns the record and the value of its word.
pub(crate) fn register_to_wait(engine: &Engine) -> Result<(u32, u32), RegisterError> {
    let claim = Claim {
        what: What::Wait,
        signal: 0,
        ticket: 0,
        shown: Shown::default(),
    };
    engine.register(thread::current(), &claim)
}

/// Withdraws registrations of this process. Fired registrations have already ended. If a handler that does not defer finds the table locked by its
/// own thread, the registrations stay. Helpers then sleep on the records until the end of their slices ([`HELPER_SLICE`]).
fn withdraw_those(are_meant: impl Fn(&Entry) -> bool) {
    let Some(table) = existing() else {
        return;
    };
    // Relaxed: this thread has made the registrations that it withdraws, or synchronizes with the thread that made them.
    if table.count.load(Ordering::Relaxed) == 0 {
        return;
    }
    // The entries are dropped one after the other, without the lock: the drop of an entry may unmap a segment, or drop a function of the program.
    while let Some(mut locked) = Locked::of(table) {
        let mut entries = locked.registrations.entries.iter();
        let Some(position) = entries.position(|entry| are_meant(entry) && entry.withdraw()) else {
            return;
        };
        if locked.registrations.entries[position].helper.is_some() {
            table.lingers.store(true, Ordering::Relaxed);
        }
        let entry = locked.remove(position);
        drop(locked);
        drop(entry);
    }
}

/// Makes helpers that still sleep on records of a queue unmap the queue, if the process has no registration with it.
fn end_lingering(identity: (u64, u64)) {
    let Some(table) = existing().filter(|table| table.lingers.load(Ordering::Relaxed)) else {
        return;
    };
    let lingering = Locked::of(table).and_then(|locked| locked.lingering(identity));
    lingering.into_iter().for_each(Helper::call);
}

/// Returns whether this process may have registrations, or helpers that have not yet unmapped a queue after its registration was withdrawn.
#[inline]
pub(crate) fn any_or_lingering() -> bool {
    // Relaxed: this thread has withdrawn the registration of the queue that it closes, or has synchronized with the thread that withdrew it.
    any() || existing().is_some_and(|table| table.lingers.load(Ordering::Relaxed))
}

/// Returns whether this process may have registrations.
#[inline]
pub(crate) fn any() -> bool {
    // Relaxed: as in `withdraw_those`.
    existing().is_some_and(|table| {
        // Acquire: a thread that reads a count of 0 sees that the registration has ended, or reads the raised `SETTLING`.
        table.count.load(Ordering::Acquire) != 0 || SETTLING.load(Ordering::Acquire) != 0
    })
}

/// The number of registrations that helpers have taken from the table and not settled.
static SETTLING: AtomicUsize = AtomicUsize::new(0);

/// The number of signals that this process has raised. The number is incremented after each signal, before any process learns of the signal.
static RAISED: AtomicU32 = AtomicU32::new(0);

fn note_raised() -> u32 {
    // Release: publishes that the signal has been raised.
    RAISED.fetch_add(1, Ordering::Release)
}

/// Does the same as [`note_raised`] for a signal that the calling thread has raised. The end of the system call that raised the signal has delivered
/// to this thread all signals that were raised before.
fn note_raised_here() {
    let (before, me) = (note_raised(), thread::current());
    if me.raised.get() == before {
        me.raised.set(before.wrapping_add(1));
    }
}

/// Returns whether the thread, which has received a message, may have to wait for the signal of a fired registration, or to take that
/// signal.
#[inline]
pub(crate) fn concerns(me: &thread::Thread) -> bool {
    // Relaxed: if `any` finds that a registration has ended, the Acquire in `any` makes the earlier additions to `RAISED` visible to this read.
    any() || (existing().is_some() && RAISED.load(Ordering::Relaxed) != me.raised.get())
}

/// Notes the signals of a queue's registrations that senders in other processes have raised.
pub(crate) fn note_raised_elsewhere(engine: &Engine) {
    let Some(mut locked) = existing().and_then(Locked::of) else {
        return;
    };
    for entry in &mut locked.registrations.entries {
        if engine.identity() == Some(entry.identity) && entry.was_raised_elsewhere() {
            entry.conceal();
            entry.stage = Stage::Told(Notified { pid: 0, uid: 0 });
            entry.deed = Deed::Nothing;
            let _ = note_raised();
        }
    }
}

/// Makes the calling thread take the signals that were raised since its last call of this function. The kernel delivers a signal that was raised on
/// another processor at the end of this thread's next system call. If the thread makes no system call, the kernel delivers the signal a moment later.
pub(crate) fn take_raised(me: &thread::Thread) {
    let raised = RAISED.load(Ordering::Acquire);
    if me.raised.replace(raised) != raised {
        process::take_signals();
    }
}

/// Withdraws one registration. After the call, the caller may close the queue.
pub(crate) fn withdraw(ticket: u64, identity: (u64, u64)) {
    withdraw_those(|entry| entry.ticket == ticket);
    end_lingering(identity);
}

/// Withdraws this process's registration at a queue; `identity` is the device and inode of the queue's file.
pub(crate) fn withdraw_from(identity: (u64, u64)) {
    withdraw_those(|entry| entry.identity == identity);
}

/// Withdraws this process's registration at a queue that is being closed.
pub(crate) fn withdraw_and_leave(identity: (u64, u64)) {
    withdraw_from(identity);
    end_lingering(identity);
}

/// Returns whether a registration has not been fired.
pub(crate) fn is_armed(ticket: u64) -> bool {
    existing().and_then(Locked::of).is_some_and(|locked| {
        let entry = |position: usize| &locked.registrations.entries[position];
        locked
            .position(ticket)
            .is_some_and(|position| entry(position).outcome() == Outcome::Armed)
    })
}

/// Completes a fired registration with this queue, if it belongs to this process: raises its signal, or lets the helper call its function, and then
/// frees the record. Returns false if the registration belongs to another process, or another thread completes it.
pub(crate) fn raise_own(engine: &Engine, index: u32, notice: &Notice, word: u32) -> bool {
    // The process id in the record is only a hint, which the table confirms.
    let is_own = notice.owner().0 == thread::current().pid();
    let Some(locked) = existing().filter(|_| is_own).and_then(Locked::of) else {
        return false;
    };
    let ticket = notice.ticket();
    let armed = umsg_shm::posix_engine::armed(word);
    let position = locked.position(ticket);
    let is_seen_to = position.is_some_and(|position| {
        let entry = &locked.registrations.entries[position];
        // A process that can write this queue's memory could have named a registration that this process has with another queue.
        let is_here = engine.identity() == Some(entry.identity);
        let is_this = match entry.stage {
            // A thread of this process is still registering, and has not stored the record yet.
            Stage::Asked => true,
            Stage::At(at, word) => (at, word) == (index, armed),
            Stage::Told(_) => false,
        };
        is_here && is_this && take_out(engine, locked, position, (index, armed))
    });
    is_seen_to || RAISING.get() != 0
}

thread_local! {
    /// The number of signals that this thread is raising. A handler that interrupts the thread does not wait for these signals.
    static RAISING: Cell<u32> = const { Cell::new(0) };
}

/// Removes a fired registration from its record. The helper frees the memory, because the caller may be a handler that has interrupted malloc.
fn take_out(
    engine: &Engine,
    mut locked: Locked,
    position: usize,
    (index, armed): (u32, u32),
) -> bool {
    let Outcome::Fired { pid, uid } = engine.outcome(index, armed) else {
        return false;
    };
    let entry = &mut locked.registrations.entries[position];
    entry.conceal();
    entry.stage = Stage::Told(Notified { pid, uid });
    let helper = entry.helper;
    let signal = match entry.deed {
        Deed::Signal { signal, value } => {
            entry.deed = Deed::Nothing;
            Some((signal, value))
        }
        Deed::Nothing | Deed::Call(_) => None,
    };
    RAISING.set(RAISING.get() + 1);
    // Handlers are deferred while the table is locked. So the lock is released first, because any thread must be able to handle this signal.
    drop(locked);
    if let Some((signal, value)) = signal {
        process::raise_for_message(signal, value, pid, uid);
        note_raised_here();
    }
    engine.acknowledge_notice(index, armed);
    RAISING.set(RAISING.get() - 1);
    // After the signal, no work remains. The next registration, or the helper at the end of its slice, removes the entry.
    if signal.is_none() {
        helper.into_iter().for_each(Helper::call);
    }
    true
}

/// Frees the records of this process's fired registrations with a queue, except those that a helper has already processed.
fn free_own_records(table: &'static Table, engine: &Engine, identity: (u64, u64)) {
    // Relaxed: as in `withdraw_those`.
    if table.count.load(Ordering::Relaxed) == 0 {
        return;
    }
    while let Some(locked) = Locked::of(table) {
        let mut entries = locked.registrations.entries.iter();
        let found = entries.position(|entry| entry.identity == identity && entry.keeps_a_record());
        let Some(position) = found else {
            return;
        };
        let Stage::At(index, word) = locked.registrations.entries[position].stage else {
            return;
        };
        if !take_out(engine, locked, position, (index, word)) {
            return;
        }
    }
}

/// The error for a handler that does not defer, and has interrupted a critical section.
const INTERRUPTED: Failure =
    Failure::Queue(RegisterError::Refused(Refused::Fault(Fault::OwnedByCaller)));

/// The slice of a helper: its longest sleep, in nanoseconds. A wake-up can be lost if the process that should send the wake-up dies.
const HELPER_SLICE: u64 = SLICE;

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        Failure::Queue(RegisterError::Refused(refused))
    }
}
