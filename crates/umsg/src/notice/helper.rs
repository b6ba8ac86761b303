//! The threads that wait for what this process is registered for: one for up to 127 registrations, started with the first, asleep
//! on the words of all their records.
//!
//! A helper masks all signals, and lives as long as its process.

use super::{Entry, HELPER_SLICE, Locked, Notified, Registrations, SETTLING, existing, settle};
use crate::queue::{Engine, Outcome};
use crate::sys::clock::{self, Deadline};
use crate::sys::futex;
use crate::sys::thread;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// So many registrations a helper can wait for, besides for being called.
const MOST: usize = futex::MOST_WORDS - 1;

/// Bytes: a function that is called begins a thread of its own.
const STACK: usize = 128 << 10;

/// See the module.
pub(super) struct Helper {
    /// Changes when there is something else to wait for.
    calls: AtomicU32,
}

impl Helper {
    /// A helper for one more registration. None if there can be no thread. The caller has masked all signals.
    pub(super) fn for_one_more(registrations: &mut Registrations) -> Option<&'static Helper> {
        let load = |helper: &&'static Helper| {
            let is_its = |entry: &&Entry| entry.helper.is_some_and(|of| std::ptr::eq(of, *helper));
            registrations.entries.iter().filter(is_its).count()
        };
        if let Some(helper) = registrations
            .helpers
            .iter()
            .find(|helper| load(helper) < MOST)
        {
            return Some(helper);
        }
        let helper: &'static Helper = Box::leak(Box::new(Helper {
            calls: AtomicU32::new(0),
        }));
        let started = std::thread::Builder::new()
            .name("umsg-notify".into())
            .stack_size(STACK)
            .spawn(|| helper.serve());
        started.ok()?;
        registrations.helpers.push(helper);
        Some(helper)
    }

    /// Has it look what there is to wait for.
    pub(super) fn call(&self) {
        self.calls.fetch_add(1, Ordering::Release);
        futex::wake(&self.calls, 1);
    }

    fn serve(&'static self) {
        let mut look_at = clock::monotonic();
        loop {
            // Acquire: what was registered before the call.
            let calls = self.calls.load(Ordering::Acquire);
            let Some(due) = self.next_due() else {
                let engines = self.wait(calls);
                if clock::monotonic() >= look_at {
                    look_at = clock::monotonic().saturating_add(HELPER_SLICE);
                    engines
                        .iter()
                        .for_each(|engine| engine.look_for_notice(thread::current()));
                }
                continue;
            };
            let (entry, by) = due;
            if let Some(by) = by {
                settle(entry, by);
                // Release: what came before has been done.
                SETTLING.fetch_sub(1, Ordering::Release);
            }
        }
    }

    /// A registration of this helper that is over, and who fired it unless it was taken away.
    fn next_due(&'static self) -> Option<(Entry, Option<Notified>)> {
        let mut locked = Locked::of(existing()?);
        let entries = &locked.registrations.entries;
        let (position, by) = entries.iter().enumerate().find_map(|(position, entry)| {
            if !self.waits_for(entry) {
                return None;
            }
            match entry.outcome() {
                Outcome::Armed => None,
                Outcome::Fired { pid, uid } => Some((position, Some(Notified { pid, uid }))),
                Outcome::Gone => Some((position, None)),
            }
        })?;
        if by.is_some() {
            // Before it is counted no more: see `any`.
            SETTLING.fetch_add(1, Ordering::Relaxed);
        }
        Some((locked.remove(position), by))
    }

    fn waits_for(&'static self, entry: &Entry) -> bool {
        entry.helper.is_some_and(|of| std::ptr::eq(of, self)) && entry.place.is_some()
    }

    /// Sleeps until one of its registrations is fired, it is called, or its slice is over. Answers at which queues its process is
    /// registered.
    fn wait(&'static self, calls: u32) -> Vec<Arc<Engine>> {
        let mut words = [(std::ptr::null_mut(), 0); futex::MOST_WORDS];
        words[0] = (self.calls.as_ptr(), calls);
        let (mut len, mut engines) = (1, Vec::new());
        if let Some(table) = existing() {
            let locked = Locked::of(table);
            for entry in &locked.registrations.entries {
                if let Some((index, value)) = entry.place.filter(|_| self.waits_for(entry))
                    && let Some(word) = entry.engine.notice_word(index)
                    && let Some(place) = words.get_mut(len)
                {
                    *place = (word.as_ptr(), value);
                    len += 1;
                    engines.push(Arc::clone(&entry.engine));
                }
            }
        }
        let deadline = match len {
            1 => Deadline::Never,
            _ => Deadline::Monotonic(clock::monotonic().saturating_add(HELPER_SLICE)),
        };
        futex::wait_for_any(&words[..len], deadline);
        engines
    }
}
