//! Queues that are made of the segments of removed queues, without a new file, a mapping, and fresh pages.
//!
//! A process that creates, closes and removes queues again and again spends most of the time in these. From its second removal on, it
//! keeps the mappings and the files of some queues that it has created:
//!
//! | state | the file | leaves it |
//! |---|---|---|
//! | live | has a queue's name, is this process's | [`remove`]: vacant, if nothing else uses it; otherwise it is forgotten |
//! | vacant | has a temporary name, is zero ([`crate::namespace`], `set_aside.rs`) | [`create`]: live; the exit of the process: removed |
//!
//! A segment becomes vacant only if no other opening of its file exists ([`SoleFile`]), the process has no other handle of the mapping, and the
//! process has not forked since the queue's creation. Only queues that no other user may open take part: mode 0700 or less, no policy.
//!
//! | bound | reason |
//! |---|---|
//! | [`MOST`] segments, [`LARGEST`] bytes of messages each | the memory of live queues that other processes remove |
//! | no limit of bytes in the namespace | vacant segments count towards none |
//!
//! A vacant segment has the pages of a new one, 36 KiB. A creation that finds the file system full gives them up, and tries again.
//!
//! The umask applies when a segment is made. A segment is used again only for the same mode before the umask; a later umask that
//! removes permissions of the owner has no effect on it.

use super::access::file_mode;
use super::open::Opened;
use super::options::OpenOptions;
use super::queue::Queue;
use crate::namespace::{Limits, Namespace, QueueName, SpareName};
use rustix::process::{getegid, geteuid};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once};
use umsg_shm::crash::crash_point;
use umsg_shm::memory::Host;
use umsg_shm::posix_engine::segment::{Layout, Policy, Segment, Vacant};
use umsg_shm::sys::process;
use umsg_shm::sys::sole_file::SoleFile;

/// The number of segments that are kept.
const MOST: usize = 8;

/// The greatest capacity of a kept queue, in bytes of messages.
const LARGEST: usize = 2 << 20;

static STORE: Mutex<Store> = Mutex::new(Store {
    owner: 0,
    has_removed: false,
    entries: Vec::new(),
});

/// True if a queue was removed without a look at the entries, which another call had locked.
static SKIPPED: AtomicBool = AtomicBool::new(false);

/// The number of forks of this process since the first segment was kept.
static FORKS: AtomicU32 = AtomicU32::new(0);

struct Store {
    /// The epoch of the process that has the entries. A child of vfork has its parent's, and may use the entries: what it opens is then
    /// missing in the parent, which finds that out and forgets the entry.
    owner: u64,
    /// True if the process has removed a queue.
    has_removed: bool,
    /// The oldest first.
    entries: Vec<Entry>,
}

struct Entry {
    namespace: Namespace,
    spare: SpareName,
    /// The opening with which the segment was mapped.
    file: SoleFile,
    host: Arc<dyn Host>,
    /// The mode before the umask, and after it.
    modes: (u32, u32),
    state: State,
}

enum State {
    Live {
        name: QueueName,
        segment: Segment,
        forks: u32,
    },
    Vacant(Vacant),
}

/// The intention to keep a new queue's segment, from before the segment is mapped.
#[derive(Debug)]
pub(super) struct Plan {
    forks: u32,
    requested_mode: u32,
}

/// Returns the store if it is this process's. A call in another thread, or in a handler that has interrupted one, finds it locked and does
/// without.
fn store() -> Option<MutexGuard<'static, Store>> {
    let mut store = STORE.try_lock().ok()?;
    let epoch = match process::epoch() {
        0 => process::begin_epoch(),
        epoch => epoch,
    };
    if store.owner != epoch {
        // A forked child: the files are the parent's.
        store.entries.clear();
        (store.owner, store.has_removed) = (epoch, false);
    }
    // Relaxed: the lock orders the entries, and a removal that is seen late is seen by the next call.
    if SKIPPED.load(Ordering::Relaxed) && SKIPPED.swap(false, Ordering::Relaxed) {
        let has_name = |entry: &Entry| entry.file.stat().is_some_and(|stat| stat.st_nlink != 0);
        store.entries.retain(has_name);
    }
    Some(store)
}

/// Plans to keep the segment of a queue that is about to be created.
pub(super) fn plan(options: &OpenOptions, layout: &Layout, limits: &Limits) -> Option<Plan> {
    if !is_fit(options, layout, limits) || !store()?.has_removed {
        return None;
    }
    static WATCH_FORKS: Once = Once::new();
    WATCH_FORKS.call_once(watch_forks);
    Some(Plan {
        forks: FORKS.load(Ordering::Relaxed),
        requested_mode: options.mode,
    })
}

/// Returns whether a queue of these options may have a segment that is kept.
fn is_fit(options: &OpenOptions, layout: &Layout, limits: &Limits) -> bool {
    options.policy == Policy::default()
        && options.counted
        && is_private(options.mode)
        && layout.max_messages * layout.message_size <= LARGEST
        && limits.max_bytes.is_none()
}

/// Returns whether the file of a queue of this mode is its owner's alone, and the owner may open it.
fn is_private(mode: u32) -> bool {
    mode & 0o7077 == 0 && file_mode(mode) == 0o600
}

impl Plan {
    /// Keeps the segment of a new queue. `file` is the opening with which the segment was mapped, and no other code uses it.
    pub(super) fn keep(
        self,
        (namespace, name): (&Namespace, &QueueName),
        file: OwnedFd,
        queue: &Queue,
        host: Arc<dyn Host>,
        mode: u32,
    ) {
        if !is_private(mode) {
            return;
        }
        let (Some(mut store), Ok(file)) = (store(), SoleFile::keep(file)) else {
            return;
        };
        if store.entries.is_empty() {
            let _ = namespace.remove_left_temporary();
        }
        if store.entries.len() == MOST {
            store.entries.remove(0).give_up();
        }
        store.entries.push(Entry {
            namespace: namespace.clone(),
            spare: SpareName::new(),
            file,
            host,
            modes: (self.requested_mode, mode),
            state: State::Live {
                name: name.clone(),
                segment: queue.engine.segment().share(),
                forks: self.forks,
            },
        });
    }
}

/// Makes a queue of a vacant segment. Returns None if there is no suitable one, or if the queue has to be made in full, for example to
/// find out why it can't be made.
pub(super) fn create(
    options: &OpenOptions,
    namespace: &Namespace,
    name: &QueueName,
) -> Option<Opened> {
    let mut store = store()?;
    let is_vacant = |entry: &Entry| matches!(entry.state, State::Vacant(_));
    if !store.entries.iter().any(is_vacant) {
        return None;
    }
    let limits = namespace.limits_of_creation().ok()?;
    let layout = options.layout(&limits).ok()?;
    if !is_fit(options, &layout, &limits) {
        return None;
    }
    let index = store.entries.iter().position(|entry| {
        matches!(&entry.state, State::Vacant(vacant) if *vacant.layout() == layout)
            && entry.modes.0 == options.mode
            && limits.allow_mode(entry.modes.1)
            && entry.namespace == *namespace
    })?;
    let mut entry = store.entries.remove(index);
    let opened = entry.fill(options, name, &limits);
    match opened {
        Some(_) => store.entries.push(entry),
        None => entry.give_up(),
    }
    opened
}

/// Removes a queue whose segment this process keeps. Returns false if it keeps none, or if the queue has to be removed in full.
pub(super) fn remove(namespace: &Namespace, name: &QueueName) -> bool {
    let Some(mut store) = store() else {
        SKIPPED.store(true, Ordering::Relaxed);
        return false;
    };
    let index = store.entries.iter().position(|entry| {
        matches!(&entry.state, State::Live { name: its, .. } if its == name)
            && entry.namespace == *namespace
    });
    let Some(index) = index else {
        store.has_removed = true;
        return false;
    };
    let entry = store.entries.remove(index);
    if !entry.can_be_vacated() {
        return false;
    }
    let identity = entry.file.identity();
    if !namespace.set_aside(name, identity, &entry.spare) {
        return false;
    }
    crash_point!(RECYCLE_ASIDE);
    match entry.vacate() {
        Ok(entry) => store.entries.push(entry),
        Err(spare) => namespace.remove_spare(&spare),
    }
    crash_point!(RECYCLE_CLEARED);
    true
}

/// Removes all vacant segments. Returns whether there were any.
pub(super) fn give_up_all() -> bool {
    let Some(mut store) = store() else {
        return false;
    };
    let vacant = store
        .entries
        .extract_if(.., |entry| matches!(entry.state, State::Vacant(_)));
    vacant.map(Entry::give_up).count() != 0
}

impl Entry {
    /// Returns whether the segment of a live queue seems to be no one else's. The openings of the file are checked later, when the queue's
    /// name is gone.
    fn can_be_vacated(&self) -> bool {
        let State::Live { segment, forks, .. } = &self.state else {
            return false;
        };
        // Relaxed: a fork that happens at the same time has no handle of the queue, because this process has none.
        *forks == FORKS.load(Ordering::Relaxed) && segment.is_unattached()
    }

    /// Clears the segment of a removed queue. Returns the temporary name of the file if it is in use.
    fn vacate(self) -> Result<Entry, SpareName> {
        let State::Live { segment, .. } = self.state else {
            return Err(self.spare);
        };
        let vacant = match self.file.stat() {
            Some(stat) if self.file.is_only_opening() => Vacant::clear(segment, &self.file, &stat),
            _ => None,
        };
        let Some(vacant) = vacant else {
            return Err(self.spare);
        };
        static TIDY: Once = Once::new();
        TIDY.call_once(tidy_at_exit);
        Ok(Entry {
            state: State::Vacant(vacant),
            ..self
        })
    }

    /// Makes a queue of the vacant segment, and gives it its name.
    fn fill(&mut self, options: &OpenOptions, name: &QueueName, limits: &Limits) -> Option<Opened> {
        let State::Vacant(vacant) = &self.state else {
            return None;
        };
        let forks = FORKS.load(Ordering::Relaxed);
        let spare = self.namespace.open_spare(
            &self.spare,
            self.file.identity(),
            options.file_access(),
            limits.max_queues,
        )?;
        let stat = *spare.stat();
        let is_own = stat.st_uid == geteuid().as_raw()
            && stat.st_gid == getegid().as_raw()
            && stat.st_size as usize == vacant.layout().len;
        if !is_own {
            return None;
        }
        let segment = vacant.recreate(self.modes.1, Arc::clone(&self.host));
        let kept = segment.share();
        crash_point!(RECYCLE_FILLED);
        let descriptor = spare.publish(name).ok()?;
        crash_point!(CREATE_NAMED);
        self.state = State::Live {
            name: name.clone(),
            segment: kept,
            forks,
        };
        let queue = Queue::new(segment, Some(&self.namespace), options.access, &stat);
        Some(Opened::Created(queue, descriptor))
    }

    /// Removes the file of a vacant segment, and forgets a live queue.
    fn give_up(self) {
        if let State::Vacant(_) = self.state {
            self.namespace.remove_spare(&self.spare);
        }
    }
}

extern "C" fn note_fork() {
    // Relaxed: the counter is the whole message.
    FORKS.fetch_add(1, Ordering::Relaxed);
}

extern "C" fn tidy() {
    give_up_all();
}

#[allow(unsafe_code, reason = "the C library's lists of functions to call")]
fn watch_forks() {
    // SAFETY: the handler is a function of this library; the C library forgets it if the library is unloaded.
    unsafe { libc::pthread_atfork(None, Some(note_fork), None) };
}

#[allow(unsafe_code, reason = "the C library's lists of functions to call")]
fn tidy_at_exit() {
    // SAFETY: as above.
    unsafe { libc::atexit(tidy) };
}
