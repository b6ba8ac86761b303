//! The table of this process's registrations.
//!
//! | stage | the queue's record | leaves it |
//! |---|---|---|
//! | `Asked` | none, or this process does not yet know its record | the thread that registers |
//! | `At` | armed, or fired; of another process after a sender has raised its signal | the thread that finds the record fired or raised: to `Told`. Or the entry is removed with its registration |
//! | `Told` | belongs to another process by now, or is free | its helper, which does the rest; or the next thread that registers, if nothing is left to do |
//!
//! A queue has few records. So if a thread finds that a record of its own process is fired, the thread frees the record, and leaves the remaining
//! actions to the helper.

use super::helper::{Helper, Running, Watched};
use super::{Deed, Notified, note_raised};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use umsg_shm::consent::{self, Shown};
use umsg_shm::posix_engine::{Engine, Outcome};
use umsg_shm::sys::mask::Masked;
use umsg_shm::sys::thread::{self, Thread};
use umsg_shm::sys::{critical, process};

/// The progress of a registration; see the module.
#[derive(Clone, Copy)]
pub(super) enum Stage {
    Asked,
    /// The record, and the value of its word before the record is fired.
    At(u32, u32),
    /// The sender of the message that fired the registration.
    Told(Notified),
}

/// A registration of this process.
pub(super) struct Entry {
    pub(super) ticket: u64,
    /// Device and inode of the queue.
    pub(super) identity: (u64, u64),
    /// Keeps the segment mapped after the queue's handle is dropped.
    pub(super) engine: Arc<Engine>,
    pub(super) stage: Stage,
    pub(super) deed: Deed,
    pub(super) helper: Option<&'static Helper>,
    /// The consent to the registration's signal, for senders in other processes, until the notification.
    pub(super) shown: Option<Shown>,
}

impl Entry {
    /// Withdraws the consent to the registration's signal.
    pub(super) fn conceal(&mut self) {
        if let Some(shown) = self.shown.take() {
            consent::withdraw(self.ticket, shown);
        }
    }

    /// Returns whether a sender in another process has raised the registration's signal and freed its record.
    pub(super) fn was_raised_elsewhere(&self) -> bool {
        matches!(
            (&self.stage, &self.deed),
            (Stage::At(..), Deed::Signal { .. })
        ) && self.outcome() == Outcome::Gone
    }

    pub(super) fn outcome(&self) -> Outcome {
        match self.stage {
            Stage::Asked => Outcome::Armed,
            Stage::At(index, word) => self.engine.outcome(index, word),
            Stage::Told(Notified { pid, uid }) => Outcome::Fired { pid, uid },
        }
    }

    pub(super) fn withdraw(&self) -> bool {
        match self.stage {
            Stage::At(index, word) => self.engine.withdraw(index, word),
            Stage::Asked | Stage::Told(_) => false,
        }
    }

    /// Returns whether the registration no longer needs its record, but no process has freed the record.
    pub(super) fn keeps_a_record(&self) -> bool {
        matches!(self.stage, Stage::At(..)) && matches!(self.outcome(), Outcome::Fired { .. })
    }

    /// Returns whether only the call of its function remains.
    pub(super) fn is_to_be_called(&self) -> bool {
        matches!((&self.stage, &self.deed), (Stage::Told(_), Deed::Call(_)))
    }

    /// Returns whether no work remains: the notification is done, or the registration ended without a notification.
    fn is_done(&self) -> bool {
        match (&self.stage, &self.deed) {
            (Stage::Told(_), deed) => matches!(deed, Deed::Nothing),
            _ if self.was_raised_elsewhere() => true,
            _ => self.helper.is_none() && self.outcome() != Outcome::Armed,
        }
    }

    /// Does the action of the registration. The record is freed after the action, because the process that sent the message waits until the signal
    /// was raised.
    pub(super) fn settle(self, by: Notified) {
        let is_call = matches!(self.deed, Deed::Call(_));
        let free = || {
            if let Stage::At(index, word) = self.stage {
                self.engine.acknowledge_notice(index, word);
            }
        };
        if is_call {
            free();
        }
        self.deed.run(by);
        if !is_call {
            free();
        }
    }
}

#[derive(Default)]
pub(super) struct Registrations {
    pub(super) entries: Vec<Entry>,
    pub(super) helpers: Vec<Running>,
    pub(super) tickets: u64,
}

/// The registrations of one process.
pub(super) struct Table {
    epoch: u64,
    registrations: Mutex<Registrations>,
    /// The number of entries. A thread that reads 0 need not lock the table.
    pub(super) count: AtomicUsize,
    /// True if a helper may still sleep on the record of a withdrawn registration. That helper keeps the queue mapped.
    pub(super) lingers: AtomicBool,
}

/// The table of this process, or of its parent before the fork.
static TABLE: AtomicPtr<Table> = AtomicPtr::new(std::ptr::null_mut());

/// The registrations, locked. While they are locked, no signal handler runs that might need the table.
pub(super) struct Locked {
    table: &'static Table,
    pub(super) registrations: MutexGuard<'static, Registrations>,
    _undisturbed: Undisturbed,
}

/// Prevents signal handlers of this thread from running until the value is dropped.
enum Undisturbed {
    /// All signal handlers of the process defer themselves, so that a critical section needs no system call.
    Deferred(&'static Thread),
    Masked {
        _masked: Masked,
    },
}

impl Undisturbed {
    /// Returns None in a handler that is not deferred and has interrupted a critical section, because the interrupted thread may hold the table's
    /// lock.
    fn begin() -> Option<Undisturbed> {
        let me = thread::current();
        match critical::do_all_handlers_defer() {
            true if me.critical.is_open() => None,
            true => {
                me.critical.enter();
                Some(Undisturbed::Deferred(me))
            }
            false => Some(Undisturbed::Masked {
                _masked: Masked::all(),
            }),
        }
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        if let Undisturbed::Deferred(me) = self {
            me.critical.leave();
        }
    }
}

impl Locked {
    /// Locks the table. None if this thread may have locked it: see [`Undisturbed::begin`].
    pub(super) fn of(table: &'static Table) -> Option<Locked> {
        let undisturbed = Undisturbed::begin()?;
        Some(Locked {
            table,
            // After a panic, the table is still consistent.
            registrations: table
                .registrations
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
            _undisturbed: undisturbed,
        })
    }

    pub(super) fn position(&self, ticket: u64) -> Option<usize> {
        let entries = &self.registrations.entries;
        entries.iter().position(|entry| entry.ticket == ticket)
    }

    pub(super) fn add(&mut self, entry: Entry) {
        self.registrations.entries.push(entry);
        self.note_count();
    }

    pub(super) fn remove(&mut self, position: usize) -> Entry {
        let mut entry = self.registrations.entries.swap_remove(position);
        entry.conceal();
        self.note_count();
        entry
    }

    fn note_count(&self) {
        let count = self.registrations.entries.len();
        // Release, with the Acquire in `any`: a thread that reads the lower count also sees the signal, or `SETTLING`, that was counted before.
        self.table.count.store(count, Ordering::Release);
    }

    /// Removes a completed entry. The caller drops the entry without the lock, because the drop may unmap a queue.
    pub(super) fn take_done(&mut self) -> Option<Entry> {
        let position = self.registrations.entries.iter().position(Entry::is_done)?;
        if self.registrations.entries[position].was_raised_elsewhere() {
            let _ = note_raised();
        }
        Some(self.remove(position))
    }

    /// Returns whether the helper `by` wakes when this record is fired.
    pub(super) fn is_watched(&self, by: &'static Helper, identity: (u64, u64), index: u32) -> bool {
        let mut all = self.registrations.helpers.iter();
        all.any(|running| std::ptr::eq(running.helper, by) && running.watches(identity, index))
    }

    /// Returns a helper that keeps this queue mapped, though the process has no registration with it.
    pub(super) fn lingering(&self, identity: (u64, u64)) -> Option<&'static Helper> {
        let Registrations {
            entries, helpers, ..
        } = &*self.registrations;
        if entries.iter().any(|entry| entry.identity == identity) {
            return None;
        }
        let running = helpers.iter().find(|running| running.keeps(identity))?;
        Some(running.helper)
    }

    /// Notes the set of records on which a helper is about to sleep. These are the records of its registrations.
    pub(super) fn note_watched(&mut self, helper: &'static Helper, watched: Watched) {
        let helpers = &mut self.registrations.helpers;
        if let Some(running) = helpers
            .iter_mut()
            .find(|running| std::ptr::eq(running.helper, helper))
        {
            running.watched = watched;
        }
        // Other helpers may still sleep on the record of a registration that was withdrawn.
        if helpers.len() == 1 {
            // Relaxed: the word is a hint, which the table confirms. The threads of this process set the word under the lock.
            self.table.lingers.store(false, Ordering::Relaxed);
        }
    }
}

/// Returns the table behind the pointer, if the table belongs to this process.
fn of_this_process(table: *mut Table) -> Option<&'static Table> {
    // SAFETY: a non-null TABLE was leaked by `table`, and is never freed.
    let table = unsafe { table.as_ref()? };
    (table.epoch == process::epoch()).then_some(table)
}

/// Returns the table of this process, if it has one.
pub(super) fn existing() -> Option<&'static Table> {
    // Acquire: makes the object behind the pointer visible.
    of_this_process(TABLE.load(Ordering::Acquire))
}

/// Returns the table of this process, and creates it if necessary.
pub(super) fn table() -> &'static Table {
    table_in(&TABLE)
}

fn table_in(place: &AtomicPtr<Table>) -> &'static Table {
    // Acquire: as in `existing`. The pointer is read only once. The compare-and-swap replaces the pointer only if it is still the checked one.
    let found = place.load(Ordering::Acquire);
    if let Some(table) = of_this_process(found) {
        return table;
    }
    let fresh = Box::leak(Box::new(Table {
        epoch: process::begin_epoch(),
        registrations: Mutex::default(),
        count: AtomicUsize::new(0),
        lingers: AtomicBool::new(false),
    }));
    // Two threads may begin at once: the first wins.
    let _ = place.compare_exchange(found, fresh, Ordering::AcqRel, Ordering::Acquire);
    of_this_process(place.load(Ordering::Acquire)).unwrap_or(fresh)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn threads_that_register_first_at_once_get_one_table() {
        const ROUNDS: usize = 20_000;
        let places: Vec<_> = std::iter::repeat_with(|| AtomicPtr::new(std::ptr::null_mut()))
            .take(ROUNDS)
            .collect();
        let (places, together) = (&places, &Barrier::new(2));
        let find = move || {
            let addresses = places.iter().enumerate().map(|(round, place)| {
                // The threads meet in one of 100 rounds, because a barrier takes longer than the look-up itself.
                if round % 100 == 0 {
                    together.wait();
                }
                std::ptr::from_ref(table_in(place)).addr()
            });
            addresses.collect::<Vec<_>>()
        };
        let [one, other] = std::thread::scope(|scope| {
            [scope.spawn(find), scope.spawn(find)].map(|thread| thread.join().unwrap())
        });
        assert!(
            one == other,
            "a registration is in a table that nobody reads"
        );
    }
}
