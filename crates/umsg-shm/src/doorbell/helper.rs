//! Helper threads, which pass a queue's level on to pollers of other users: a process must not use a FIFO of another user.
//!
//! ```text
//!   sender, another user          the segment                helper, in the poller's process      poller
//!   calls + 1, wakes       ->     calls          ->          takes the lock, shows the level ->   is told by the FIFO
//! ```
//!
//! | FIFO | needs a helper |
//! |---|---|
//! | the shared one of the poller's user | if other users may open the queue's file, or have used the queue before |
//! | a private one, because the shared one belongs to another user | always |
//!
//! A helper also watches the deadlines of a queue for a process that polls: it checks the queue at the delivery time of the next delayed message and
//! at the end of the next time limit. Ten times a second, it checks whether the holders of messages and of reserved room are alive, and whether a
//! producer is alive. In the helper's table, an entry for deadlines has no FIFO: the check itself rings the doorbell, as any call does.
//!
//! A helper sets a flag (HELPED, PRIVATE) under the queue's lock before it sleeps. A process that calls the helper clears this flag. So a dead helper
//! costs other processes only one call. If a caller dies after it has changed the number `calls` and before the wake-up, the helper wakes up at the
//! end of its slice.
//!
//! One thread serves up to 127 queues. It masks all signals, and runs as long as its process. A forked child starts its own helper when it requests a
//! descriptor again. The child releases the queues of its parent's helpers when it closes one of these queues or starts a helper.

use super::descriptor::Doorbell;
use super::poll_fifo::PollFifo;
use super::{MESSAGES, ROOM, is_called};
use crate::sys::clock::{self, Deadline};
use crate::sys::kept_descriptor::Sighting;
use crate::sys::mask::Masked;
use crate::sys::{detached, futex, process};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};

/// The number of queues that one helper serves. The helper also sleeps on one further word, which belongs to the helper.
const MOST: usize = futex::MOST_WORDS - 1;
/// The size of a helper's stack, in bytes.
const STACK: usize = 128 << 10;
/// The longest sleep of a helper that serves queues, in nanoseconds.
pub(crate) const SLICE: u64 = 1_000_000_000;
/// The time for which a helper waits for a queue's lock, and the pause before its next attempt, in nanoseconds.
pub(crate) const PATIENCE: u64 = 10_000_000;

/// A FIFO that a helper feeds.
#[derive(Debug)]
pub(crate) struct Feed {
    /// The descriptor, which stays open until the helper has stopped.
    number: RawFd,
    sighting: Sighting,
    /// The number in the name of a shared FIFO; 0 for a private FIFO.
    pub(crate) name: u64,
    pub(crate) wanted: u32,
}

impl Feed {
    pub(super) fn new(number: RawFd, sighting: Sighting, name: u64, wanted: u32) -> Feed {
        Feed {
            number,
            sighting,
            name,
            wanted,
        }
    }

    pub(super) fn wants_edges(&self) -> bool {
        self.wanted & (MESSAGES | ROOM) != 0
    }

    /// Returns the FIFO for a change by the caller. None if the program has closed the FIFO's descriptor.
    pub(super) fn fifo<'a>(&self, bell: &'a Doorbell) -> Option<PollFifo<'a>> {
        let now = clock::monotonic_coarse();
        let is_ours = self.sighting.is_still(self.number, now);
        is_ours.then(|| PollFifo::of(bell, self.number, 0, now))
    }
}

/// A queue as a helper uses it, with its own mapping. The mapping stays when the process closes its handle of the queue.
pub(crate) trait Hears: Send + Sync {
    /// Makes the changes for which the time has come, such as the delivery of a delayed message. Returns the time of the next check, as a reading of
    /// the monotonic clock in nanoseconds; [`u64::MAX`] for never.
    fn pass_time(&self) -> u64;
    /// Shows the current level of the queue in the FIFO. Returns the value of [`calls`](Self::calls) with which the helper sleeps; None if the lock
    /// could not be taken.
    fn hear(&self, feed: &Feed) -> Option<u32>;
    /// Returns the word on which the helper sleeps. A call of the helper changes it.
    fn calls(&self) -> &AtomicU32;
}

/// A queue that a helper serves, and the FIFO in which the helper shows the level. `feed` is None for a helper for deadlines.
struct Watch {
    queue: Arc<dyn Hears>,
    feed: Option<Feed>,
}

struct Entry {
    ticket: u64,
    watch: Arc<Watch>,
    /// The value of the queue's word [`calls`](Hears::calls) until a process calls the helper.
    value: u32,
    /// The time of the next check without a call; [`u64::MAX`] for never.
    look_at: u64,
    /// True if the queue's lock could not be taken: the helper tries again.
    is_late: bool,
    /// True while the helper uses the FIFO: the entry must stay.
    is_served: bool,
    helper: &'static Helper,
}

struct Helper {
    /// A word that changes when the helper gets another queue to serve, or loses a queue. The change wakes the helper.
    changes: AtomicU32,
}

#[derive(Default)]
struct Entries {
    all: Vec<Entry>,
    helpers: Vec<&'static Helper>,
}

/// The entries of one process. In a forked child, no helper serves the entries of the parent.
struct Table {
    epoch: u64,
    entries: Mutex<Entries>,
    /// Notified when a helper has served an entry.
    served: Condvar,
}

static TABLE: AtomicPtr<Table> = AtomicPtr::new(std::ptr::null_mut());
static TICKETS: AtomicU64 = AtomicU64::new(1);

/// The locked entries of the table. While a thread has this value, it masks all signals and locks no queue, so it keeps the lock only briefly.
struct Locked {
    entries: MutexGuard<'static, Entries>,
    _masked: Masked,
}

impl Locked {
    fn of(table: &'static Table) -> Locked {
        let masked = Masked::all();
        Locked {
            entries: table.entries.lock().unwrap_or_else(PoisonError::into_inner),
            _masked: masked,
        }
    }

    /// Waits until the helper no longer serves the entry with this ticket.
    fn wait_until_served(self, table: &Table, ticket: u64) -> Locked {
        let is_served = |entries: &mut Entries| entries.find(ticket).is_some_and(|e| e.is_served);
        let entries = table.served.wait_while(self.entries, is_served);
        Locked {
            entries: entries.unwrap_or_else(PoisonError::into_inner),
            _masked: self._masked,
        }
    }
}

/// Returns the table, if it belongs to this process.
fn of_this_process(table: *mut Table) -> Option<&'static Table> {
    // SAFETY: a non-null TABLE was leaked by `table`, and is never freed.
    let table = unsafe { table.as_ref()? };
    (table.epoch == process::epoch()).then_some(table)
}

fn existing() -> Option<&'static Table> {
    // Acquire: makes the table's contents visible.
    of_this_process(TABLE.load(Ordering::Acquire))
}

fn table() -> &'static Table {
    let found = TABLE.load(Ordering::Acquire);
    if let Some(table) = of_this_process(found) {
        return table;
    }
    forget_inherited(found);
    let fresh = Box::leak(Box::new(Table {
        epoch: process::begin_epoch(),
        entries: Mutex::default(),
        served: Condvar::new(),
    }));
    // Two threads may create the table at the same time: the first one wins.
    let _ = TABLE.compare_exchange(found, fresh, Ordering::AcqRel, Ordering::Acquire);
    existing().unwrap_or(fresh)
}

/// In a forked child: releases the queues that the helpers of the parent process serve, because the child would keep these queues open. Has no effect
/// if another thread held the lock of the table at the fork.
fn forget_inherited(table: *mut Table) {
    // SAFETY: as in `of_this_process`.
    let Some(table) = (unsafe { table.as_ref() }) else {
        return;
    };
    let _masked = Masked::all();
    let mut entries = match table.entries.try_lock() {
        Ok(entries) => entries,
        Err(TryLockError::Poisoned(entries)) => entries.into_inner(),
        Err(TryLockError::WouldBlock) => return,
    };
    let inherited = std::mem::take(&mut entries.all);
    // The lock is released first, because the drop of a queue may use the table.
    drop(entries);
    drop(inherited);
}

/// Starts a helper that feeds a FIFO, or a helper for deadlines if there is no FIFO. Returns the ticket that stops the helper's work, and the epoch
/// of this process. None if no thread can be started.
pub(super) fn begin(queue: Arc<dyn Hears>, feed: Option<Feed>, value: u32) -> Option<(u64, u64)> {
    let table = table();
    let mut locked = Locked::of(table);
    let helper = locked.entries.helper_for_one_more()?;
    // Relaxed: the number only has to be unique.
    let ticket = TICKETS.fetch_add(1, Ordering::Relaxed);
    locked.entries.all.push(Entry {
        ticket,
        look_at: if feed.is_none() { 0 } else { u64::MAX },
        watch: Arc::new(Watch { queue, feed }),
        value,
        is_late: false,
        is_served: false,
        helper,
    });
    helper.note_change();
    Some((ticket, table.epoch))
}

/// Stops the work that [`begin`] has started. After the return, the helper does not use the FIFO.
///
/// # Blocking
/// While the helper serves this queue; the helper waits at most [`PATIENCE`] for the queue's lock.
pub(super) fn end(ticket: u64) {
    let found = TABLE.load(Ordering::Acquire);
    let Some(table) = of_this_process(found) else {
        return forget_inherited(found);
    };
    let mut locked = Locked::of(table).wait_until_served(table, ticket);
    let position = locked.entries.all.iter().position(|e| e.ticket == ticket);
    let ended = position.map(|position| locked.entries.all.swap_remove(position));
    if let Some(entry) = &ended {
        entry.helper.note_change();
    }
    drop(locked);
}

impl Entries {
    fn find(&mut self, ticket: u64) -> Option<&mut Entry> {
        self.all.iter_mut().find(|entry| entry.ticket == ticket)
    }

    fn helper_for_one_more(&mut self) -> Option<&'static Helper> {
        let load = |helper: &&'static Helper| self.all.iter().filter(|e| e.is_of(helper)).count();
        if let Some(helper) = self.helpers.iter().find(|helper| load(helper) < MOST) {
            return Some(helper);
        }
        let helper: &'static Helper = Box::leak(Box::new(Helper {
            changes: AtomicU32::new(0),
        }));
        if !detached::start(Some(c"umsg-poll"), Some(STACK), || helper.serve()) {
            return None;
        }
        self.helpers.push(helper);
        Some(helper)
    }
}

impl Entry {
    fn is_of(&self, helper: &Helper) -> bool {
        std::ptr::eq(self.helper, helper)
    }

    fn is_called(&self) -> bool {
        is_called(self.watch.queue.calls(), self.value)
    }

    fn has_work(&self, now: u64) -> bool {
        self.look_at <= now || self.is_called()
    }
}

/// An entry that a helper serves without the table's lock. The drop records the result in the entry.
struct Service {
    table: &'static Table,
    ticket: u64,
    /// The queue of the entry. This reference is dropped before the entry may be removed, so that the entry has the last reference.
    watch: Option<Arc<Watch>>,
    heard: Option<u32>,
    look_at: u64,
}

impl Service {
    /// Returns the next entry, from position `from` on, whose helper was called or has to check the queue now. Moves `from` to the position after
    /// that entry. The function may miss an entry that moves in the table meanwhile. The next search finds such an entry, because the helper does not
    /// sleep on the word of an entry that was called.
    fn next(table: &'static Table, helper: &'static Helper, from: &mut usize) -> Option<Service> {
        let mut locked = Locked::of(table);
        let mut entries = locked.entries.all.iter_mut().enumerate().skip(*from);
        let now = clock::monotonic();
        let (position, entry) = entries.find(|(_, e)| e.is_of(helper) && e.has_work(now))?;
        *from = position + 1;
        entry.is_served = true;
        Some(Service {
            table,
            ticket: entry.ticket,
            watch: Some(entry.watch.clone()),
            heard: None,
            look_at: u64::MAX,
        })
    }

    /// Shows the current level in the entry's FIFO. Without a FIFO, makes the changes of the queue for which the time has come.
    fn serve(mut self) {
        let Some(watch) = &self.watch else { return };
        match &watch.feed {
            Some(feed) => self.heard = watch.queue.hear(feed),
            None => {
                // Acquire: this check sees the effects of the operations that have called the helper so far.
                self.heard = Some(watch.queue.calls().load(Ordering::Acquire));
                self.look_at = watch.queue.pass_time();
            }
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.watch = None;
        let mut locked = Locked::of(self.table);
        if let Some(entry) = locked.entries.find(self.ticket) {
            entry.value = self.heard.unwrap_or(entry.value);
            entry.is_late = self.heard.is_none();
            entry.look_at = self.look_at;
            entry.is_served = false;
        }
        self.table.served.notify_all();
    }
}

impl Helper {
    fn note_change(&self) {
        // Release: makes the changes of the table visible.
        self.changes.fetch_add(1, Ordering::Release);
        futex::wake(&self.changes, 1);
    }

    fn serve(&'static self) {
        loop {
            let changes = self.changes.load(Ordering::Acquire);
            let mut words = [(std::ptr::null_mut(), 0); futex::MOST_WORDS];
            words[0] = (self.changes.as_ptr(), changes);
            let (len, look_at) = self.look(&mut words);
            let slice = || clock::monotonic().saturating_add(SLICE);
            let deadline = match (len, look_at) {
                (1, u64::MAX) => Deadline::Never,
                (_, look_at) => Deadline::Monotonic(look_at.min(slice())),
            };
            futex::wait_for_any(&words[..len], deadline);
        }
    }

    /// Serves the entries whose helper was called or has to check the queue now, and collects the words on which the helper sleeps. Returns the
    /// number of words, and the time of the next check.
    fn look(&'static self, words: &mut [(*mut u32, u32)]) -> (usize, u64) {
        let (mut len, mut look_at) = (1, u64::MAX);
        let Some(table) = existing() else {
            return (len, look_at);
        };
        let mut from = 0;
        while let Some(service) = Service::next(table, self, &mut from) {
            service.serve();
        }
        let locked = Locked::of(table);
        for entry in locked.entries.all.iter().filter(|e| e.is_of(self)) {
            // A helper can't sleep on the word of an entry that was called and not served: it tries again after a pause.
            look_at = look_at.min(entry.look_at);
            if entry.is_late && entry.is_called() {
                look_at = look_at.min(clock::monotonic().saturating_add(PATIENCE));
            } else if let Some(place) = words.get_mut(len) {
                *place = (entry.watch.queue.calls().as_ptr(), entry.value);
                len += 1;
            }
        }
        (len, look_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::time::{Duration, Instant};

    /// A queue whose `hear` blocks the helper until the test releases it.
    #[derive(Default)]
    struct Slow {
        calls: AtomicU32,
        is_heard: AtomicBool,
        may_end: AtomicBool,
        is_over: AtomicBool,
    }

    impl Slow {
        fn call(&self) {
            self.calls.fetch_add(1, Ordering::SeqCst);
            futex::wake(&self.calls, 1);
        }
    }

    /// Waits until the condition is true, for some seconds. Returns whether it became true.
    fn becomes(is: impl Fn() -> bool) -> bool {
        let end = Instant::now() + Duration::from_secs(20);
        while !is() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        is()
    }

    impl Hears for Slow {
        fn pass_time(&self) -> u64 {
            u64::MAX
        }

        fn hear(&self, _: &Feed) -> Option<u32> {
            self.is_heard.store(true, Ordering::SeqCst);
            becomes(|| self.may_end.load(Ordering::SeqCst));
            self.is_over.store(true, Ordering::SeqCst);
            Some(self.calls.load(Ordering::SeqCst))
        }

        fn calls(&self) -> &AtomicU32 {
            &self.calls
        }
    }

    fn begin_one(queue: &Arc<Slow>) -> u64 {
        let feed = Feed::new(-1, Sighting::none(), 0, 0);
        begin(queue.clone(), Some(feed), 0).unwrap().0
    }

    #[test]
    fn a_queue_that_keeps_a_helper_holds_up_no_other_queues_poll_and_close() {
        let (slow, other) = (Arc::new(Slow::default()), Arc::new(Slow::default()));
        let ticket = begin_one(&slow);
        slow.call();
        assert!(becomes(|| slow.is_heard.load(Ordering::SeqCst)));
        end(begin_one(&other));
        assert!(!slow.is_over.load(Ordering::SeqCst), "it was held up");
        slow.may_end.store(true, Ordering::SeqCst);
        end(ticket);
        assert!(Arc::into_inner(other).is_some());
    }

    #[test]
    fn the_end_of_a_queue_waits_until_its_helper_has_let_it_go() {
        let slow = Arc::new(Slow::default());
        let ticket = begin_one(&slow);
        slow.call();
        assert!(becomes(|| slow.is_heard.load(Ordering::SeqCst)));
        let ender = std::thread::spawn(move || end(ticket));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!ender.is_finished());
        slow.may_end.store(true, Ordering::SeqCst);
        ender.join().unwrap();
        assert!(Arc::into_inner(slow).is_some(), "nothing else has it");
    }
}
