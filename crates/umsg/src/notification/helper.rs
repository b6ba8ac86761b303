//! The helpers: threads that wait for the notifications of this process. The first registration starts a helper, which serves up to 127 registrations
//! and sleeps on the words of all their records.
//!
//! A helper masks all signals, and lives as long as its process.
//!
//! If a helper already sleeps on the record of a new registration, the thread that registers does not have to wake the helper. A helper sleeps on the
//! record of a withdrawn registration until the end of its slice ([`HELPER_SLICE`]). So a program that registers and unregisters repeatedly usually
//! needs no wake-up.

use super::table::{Entry, Locked, Registrations, Stage, Table, existing};
use super::{HELPER_SLICE, Notified, SETTLING, note_raised};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use umsg_shm::consent;
use umsg_shm::lock::STOPPED;
use umsg_shm::posix_engine::{Engine, Outcome};
use umsg_shm::sys::clock::{self, Deadline};
use umsg_shm::sys::mask::Masked;
use umsg_shm::sys::stack::roomy;
use umsg_shm::sys::{detached, futex, thread};

/// The maximum number of registrations for which a helper waits. One more word, [`Helper::calls`], wakes the helper for a new list.
const MOST: usize = futex::MOST_WORDS - 1;

/// The size of a helper's stack, in bytes. The size suffices, because each called function runs in a new thread.
const STACK: usize = 128 << 10;

/// A helper thread; see the module.
pub(super) struct Helper {
    /// The helper also sleeps on this word, which changes when the set of awaited records changes.
    calls: AtomicU32,
}

/// A helper, and the records on which it sleeps or is about to sleep, each named by the identity of the queue and the index of the record. The
/// table's lock guards the records.
pub(super) struct Running {
    pub(super) helper: &'static Helper,
    pub(super) watched: Watched,
}

pub(super) type Watched = Vec<((u64, u64), u32)>;

impl Running {
    /// Returns whether the helper wakes when this record is fired.
    pub(super) fn watches(&self, identity: (u64, u64), index: u32) -> bool {
        self.watched.contains(&(identity, index))
    }

    /// Returns whether the helper keeps this queue mapped.
    pub(super) fn keeps(&self, identity: (u64, u64)) -> bool {
        self.watched.iter().any(|(of, _)| *of == identity)
    }
}

impl Helper {
    /// Returns a helper with room for one more registration. None if no thread can be started.
    pub(super) fn for_one_more(registrations: &mut Registrations) -> Option<&'static Helper> {
        let load = |helper: &'static Helper| {
            let all = registrations.entries.iter();
            all.filter(|entry| helper.has_to_watch(entry)).count()
        };
        let mut all = registrations.helpers.iter().map(|running| running.helper);
        all.find(|helper| load(helper) < MOST)
            .or_else(|| Helper::start(registrations))
    }

    #[cold]
    fn start(registrations: &mut Registrations) -> Option<&'static Helper> {
        roomy(|| {
            // The new helper inherits the mask, so no handler of the program runs in the helper.
            let _masked = Masked::all();
            let helper: &'static Helper = Box::leak(Box::new(Helper {
                calls: AtomicU32::new(0),
            }));
            if !detached::start(Some(c"umsg-notify"), Some(STACK), || helper.serve()) {
                return None;
            }
            registrations.helpers.push(Running {
                helper,
                watched: Vec::new(),
            });
            Some(helper)
        })
    }

    /// Makes the helper read its list of registrations again.
    pub(super) fn call(&self) {
        self.calls.fetch_add(1, Ordering::Release);
        futex::wake(&self.calls, 1);
    }

    fn serve(&'static self) {
        IS_HELPER.set(true);
        let mut look_at = clock::monotonic();
        let mut attests = false;
        loop {
            // The helper attests this process's consent page as soon as the page exists.
            attests = attests || consent::attest();
            // Acquire, with the Release in `call`: makes the registrations visible that other threads stored before they called this helper.
            let calls = self.calls.load(Ordering::Acquire);
            let Some(due) = self.next_due() else {
                let engines = self.wait(calls);
                if clock::monotonic() >= look_at {
                    look_at = clock::monotonic().saturating_add(HELPER_SLICE);
                    engines
                        .iter()
                        .for_each(|engine| engine.fire_if_due(thread::current()));
                }
                continue;
            };
            let (entry, by) = due;
            if let Some(by) = by {
                entry.settle(by);
                // Release, with the Acquire in `any`: makes the steps of `settle` visible to a thread that reads the lower number.
                SETTLING.fetch_sub(1, Ordering::Release);
                note_settled();
            }
        }
    }

    /// Returns a registration of this helper that has ended, and the sender that fired it; None for the sender if the registration was withdrawn.
    fn next_due(&'static self) -> Option<(Entry, Option<Notified>)> {
        let mut locked = Locked::of(existing()?)?;
        let entries = locked.registrations.entries.iter().enumerate();
        let due = entries.filter(|(_, entry)| self.waits_for(entry));
        let due = due.filter_map(|(position, entry)| match entry.outcome() {
            Outcome::Armed => None,
            Outcome::Fired { pid, uid } => {
                Some((entry.ticket, position, Some(Notified { pid, uid })))
            }
            Outcome::Gone => Some((entry.ticket, position, None)),
        });
        // Of the registrations that have ended, the one that was created first.
        let (_, position, by) = due.min_by_key(|(ticket, ..)| *ticket)?;
        if locked.registrations.entries[position].was_raised_elsewhere() {
            let _ = note_raised();
        }
        if by.is_some() {
            // `SETTLING` is raised before the table's count of registrations falls. So `any`, which reads the count first, never finds 0 in both.
            SETTLING.fetch_add(1, Ordering::Relaxed);
        }
        Some((locked.remove(position), by))
    }

    fn is_of(&self, entry: &Entry) -> bool {
        entry.helper.is_some_and(|of| std::ptr::eq(of, self))
    }

    fn waits_for(&self, entry: &Entry) -> bool {
        self.is_of(entry) && !matches!(entry.stage, Stage::Asked)
    }

    /// Returns whether the helper has to sleep on a word for the registration.
    fn has_to_watch(&self, entry: &Entry) -> bool {
        self.is_of(entry) && !matches!(entry.stage, Stage::Told(_))
    }

    /// Sleeps until one of the helper's registrations is fired, another thread calls the helper, or the helper's slice is over. Returns the queues
    /// with which the process is registered.
    fn wait(&'static self, calls: u32) -> Vec<Arc<Engine>> {
        let mut words = [(std::ptr::null_mut(), 0); futex::MOST_WORDS];
        words[0] = (self.calls.as_ptr(), calls);
        let (mut len, mut engines, mut watched) = (1, Vec::new(), Vec::new());
        if let Some(mut locked) = existing().and_then(Locked::of) {
            for entry in &locked.registrations.entries {
                if self.is_of(entry)
                    && let Stage::At(index, value) = entry.stage
                    && let Some((word, value)) = entry.engine.notice_word(index, value)
                    && let Some(place) = words.get_mut(len)
                {
                    *place = (word.as_ptr(), value);
                    len += 1;
                    engines.push(Arc::clone(&entry.engine));
                    watched.push((entry.identity, index));
                }
            }
            locked.note_watched(self, watched);
        }
        let deadline = match len {
            1 => Deadline::Never,
            _ => Deadline::Monotonic(clock::monotonic().saturating_add(HELPER_SLICE)),
        };
        futex::wait_for_any(&words[..len], deadline);
        engines
    }
}

/// The number of functions that may wait for their call. If more functions wait, a process that registers has to wait. The kernel has a similar limit
/// of some hundred.
const CROWD: usize = 256;

/// The number of functions that were called.
static SETTLED: AtomicU32 = AtomicU32::new(0);
/// The number of threads that wait until some of the functions have been called.
static CROWDED: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// True in a helper. A helper does not wait for the calls of functions, because it would wait for itself.
    static IS_HELPER: Cell<bool> = const { Cell::new(false) };
}

fn note_settled() {
    SETTLED.fetch_add(1, Ordering::SeqCst);
    // SeqCst, as in `wait_until_not_crowded`: at least one of the two threads sees the other's store.
    if CROWDED.load(Ordering::SeqCst) != 0 {
        futex::wake(&SETTLED, i32::MAX);
    }
}

/// Waits while too many functions wait to be called, because notifications arrive faster than threads can be started. The wait is limited, because
/// the caller may be a handler that has interrupted a thread for which a helper waits. After that limit, one more function may wait.
pub(super) fn wait_until_not_crowded(table: &'static Table) {
    // Relaxed: the number is approximate. It also includes registrations that do not wait for the call of a function.
    if table.count.load(Ordering::Relaxed) < CROWD || IS_HELPER.get() {
        return;
    }
    let end = Deadline::after(Duration::from_nanos(STOPPED));
    CROWDED.fetch_add(1, Ordering::SeqCst);
    loop {
        let settled = SETTLED.load(Ordering::SeqCst);
        let Some(locked) = Locked::of(table) else {
            break;
        };
        let entries = locked.registrations.entries.iter();
        let waiting = entries.filter(|entry| entry.is_to_be_called()).count();
        drop(locked);
        if waiting < CROWD || end.has_passed() {
            break;
        }
        futex::wait(&SETTLED, settled, end.or_slice(HELPER_SLICE));
    }
    CROWDED.fetch_sub(1, Ordering::SeqCst);
}
