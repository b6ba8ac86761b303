//! The last scan of a namespace is kept, and used again as long as it is up to date.
//!
//! A scan reads the names in the directory of System V queues, and opens each queue for its header. Some processes ask for sums or for a list again
//! and again: ipcs in a loop, or IPC_INFO before each message. They would scan a thousand queues each time. So the last scan is kept:
//!
//! | kept | used again | because |
//! |---|---|---|
//! | which queues there are | as long as the directory has the same times of change | each name that is made or removed changes them |
//! | a mapping of a queue's header, in a process that asks twice within a second and handles SIGBUS | as long as the queue is there | counts change without a name's change, and are read each time |
//!
//! The namespace counts changes of names and of limits. So a process that asks again within 10 ms compares only the count and its own
//! identity, and makes no system call but geteuid(2); see `namespace/changes.rs`.
//!
//! A file system's time advances in steps. So a directory that changed just before the scan could change again with the same time stamp:
//! the names of such a scan are read again. A scan holds no lock and waits for none. If a call finds the kept scan locked, for example in a
//! signal handler or a forked child, the call makes its own scan.
//!
//! A kept mapping keeps the memory of a removed queue until the process asks again, or ends.

use super::entry::Entry;
use super::error::OpenError;
use super::permission::Caller;
use super::registry::{Behind, behind};
use crate::namespace::{self, Files, Limits, Namespace, Stamp, Watch};
use std::sync::Mutex;
use umsg_shm::sys::{clock, cut};
use umsg_shm::sysv_engine::segment::HeaderView;

/// The number of headers that a process maps.
const MOST_VIEWS: usize = 4096;

/// A process that asks again within this time maps headers, in nanoseconds.
const AGAIN: u64 = 1_000_000_000;

/// The last scan; None while a call uses it.
static LAST: Mutex<Option<Scan>> = Mutex::new(None);

/// See the module.
#[derive(Debug)]
pub(super) struct Scan {
    /// The directory, as it was before the scan.
    stamp: Stamp,
    /// A change of the directory during or after the scan gives another stamp.
    is_settled: bool,
    /// The process's identity, which decides which of the files may be opened.
    caller: Caller,
    /// The time of the last use, of [`clock::monotonic_coarse`].
    used_at: u64,
    /// True if the process asked within the second before.
    is_again: bool,
    /// By index.
    queues: Vec<Known>,
    /// With the limits that were compared.
    watch: Option<(Watch, Limits)>,
}

/// A queue that a scan found.
#[derive(Debug)]
struct Known {
    link: namespace::Entry,
    view: Option<HeaderView>,
}

/// The counts of a queue.
pub(super) struct Counts {
    pub(super) id: i32,
    pub(super) messages: u64,
    pub(super) bytes: u64,
}

impl Scan {
    /// Scans the directory, or takes the kept scan of it.
    pub(super) fn of(files: &mut Files) -> Result<Scan, OpenError> {
        let (stamp, caller, now) = (files.stamp(), Caller::now(), clock::monotonic_coarse());
        let kept = LAST.try_lock().ok().and_then(|mut last| last.take());
        let kept = kept.filter(|scan| scan.stamp.is_same_file(&stamp) && scan.caller == caller);
        let is_again = kept
            .as_ref()
            .is_some_and(|scan| now.saturating_sub(scan.used_at) < AGAIN);
        let (is_settled, queues) = match kept {
            Some(scan) if scan.is_settled && scan.stamp == stamp => (true, scan.queues),
            older => (
                stamp.is_settled(clock::realtime_coarse()),
                merged(files.entries()?, older),
            ),
        };
        Ok(Scan {
            stamp,
            is_settled,
            caller,
            used_at: now,
            is_again,
            queues,
            watch: None,
        })
    }

    /// Uses the kept scan of a namespace, if it is up to date, without opening the directory. None if `use_it` returns None.
    pub(super) fn kept<T>(
        namespace: &Namespace,
        use_it: impl FnOnce(&Scan) -> Option<T>,
    ) -> Option<T> {
        let stamp = namespace.msg_stamp()?;
        Scan::last(|scan| scan.is_settled && scan.stamp == stamp, use_it)
    }

    /// As [`kept`](Self::kept), of a namespace whose directory and limits were compared a moment ago: no system call but geteuid(2).
    pub(super) fn watched<T>(
        namespace: &Namespace,
        use_it: impl FnOnce(&Scan, &Limits) -> Option<T>,
    ) -> Option<T> {
        let holds = |(watch, _): &(Watch, Limits)| watch.holds(namespace);
        Scan::last(
            |scan| scan.watch.as_ref().is_some_and(holds),
            |scan| {
                scan.watch
                    .as_ref()
                    .and_then(|(_, limits)| use_it(scan, limits))
            },
        )
    }

    /// Lets [`watched`](Self::watched) use the kept scan and the limits, which were compared after `watch` began.
    pub(super) fn watch(watch: Watch, limits: Limits) {
        if let Ok(mut last) = LAST.try_lock()
            && let Some(scan) = last.as_mut()
            && scan.is_settled
            && watch.is_of_directory(&scan.stamp)
        {
            scan.watch = Some((watch, limits));
        }
    }

    fn last<T>(
        is_up_to_date: impl FnOnce(&Scan) -> bool,
        use_it: impl FnOnce(&Scan) -> Option<T>,
    ) -> Option<T> {
        let mut last = LAST.try_lock().ok()?;
        let scan = last.as_mut()?;
        if !is_up_to_date(scan) || scan.caller != Caller::now() {
            return None;
        }
        let used = use_it(scan)?;
        scan.used_at = clock::monotonic_coarse();
        Some(used)
    }

    /// Keeps the scan for the next call.
    pub(super) fn keep(self) {
        if let Ok(mut last) = LAST.try_lock() {
            *last = Some(self);
        }
    }

    /// Returns the highest index of a queue; 0 without a queue. None if the names do not suffice: a segment that may be used again may hold no
    /// queue now.
    pub(super) fn highest_index(&self) -> Option<u32> {
        match self.queues.last() {
            None => Some(0),
            Some(last) => (!last.link.varies).then_some(last.link.index),
        }
    }

    /// Returns the highest index. Inspects the files if the names do not suffice.
    pub(super) fn find_highest_index(&self, files: &mut Files) -> Result<u32, OpenError> {
        for known in self.queues.iter().rev() {
            if !known.link.varies || known.entry(files)?.is_some() {
                return Ok(known.link.index);
            }
        }
        Ok(0)
    }

    /// Adds up the counts of the queues from mapped headers alone. None if a queue has none, or has been removed since, or has two key
    /// symlinks.
    pub(super) fn sum_mapped<T>(&self, nothing: T, add: impl Fn(T, &Counts) -> T) -> Option<T> {
        let mut last = None;
        self.queues.iter().try_fold(nothing, |sum, known| {
            let is_new = last.replace(known.link.id) != Some(known.link.id);
            let counts = known.mapped_counts().filter(|_| is_new)?;
            Some(add(sum, &counts))
        })
    }

    fn map_headers(&mut self, files: &mut Files) -> Result<(), OpenError> {
        if !self.is_again || !cut::is_handled() {
            return Ok(());
        }
        let mapped = |queues: &[Known]| queues.iter().filter(|known| known.view.is_some()).count();
        let mut room = MOST_VIEWS.saturating_sub(mapped(&self.queues));
        for known in self.queues.iter_mut().filter(|known| known.view.is_none()) {
            if room == 0 {
                break;
            }
            if let Behind::Queue(file, _) = behind(files, &known.link)? {
                // Without a mapping, the header is read from the file each time.
                known.view = HeaderView::map(rustix::fd::AsFd::as_fd(&file)).ok();
                room -= 1;
            }
        }
        Ok(())
    }

    /// Returns the queues, by index. The list includes queues whose files can't be opened or used.
    pub(super) fn entries(&mut self, files: &mut Files) -> Result<Vec<Entry>, OpenError> {
        self.read(files, Known::entry, |entry| entry.id)
    }

    /// Returns the counts of the queues, by index.
    pub(super) fn counts(&mut self, files: &mut Files) -> Result<Vec<Counts>, OpenError> {
        self.read(files, Known::counts, |counts| counts.id)
    }

    fn read<T>(
        &mut self,
        files: &mut Files,
        read: fn(&Known, &mut Files) -> Result<Option<T>, OpenError>,
        id: fn(&T) -> i32,
    ) -> Result<Vec<T>, OpenError> {
        self.map_headers(files)?;
        let mut all: Vec<T> = Vec::with_capacity(self.queues.len());
        for known in &self.queues {
            if let Some(queue) = read(known, files)? {
                // Two key symlinks of one identifier are neighbours: the last one counts.
                all.pop_if(|previous| id(previous) == id(&queue));
                all.push(queue);
            }
        }
        Ok(all)
    }
}

impl Known {
    fn entry(&self, files: &mut Files) -> Result<Option<Entry>, OpenError> {
        if let Some(view) = &self.view
            && let Ok(said) = view.summary()
            && self.link.is_of(said.id, said.key)
            && !said.is_removed
        {
            return Ok(Some(Entry::of_summary(&said)));
        }
        entry_behind(files, &self.link)
    }

    fn mapped_counts(&self) -> Option<Counts> {
        let (messages, bytes) = self.view.as_ref().and_then(HeaderView::counts)?;
        Some(Counts {
            id: self.link.id,
            messages,
            bytes,
        })
    }

    fn counts(&self, files: &mut Files) -> Result<Option<Counts>, OpenError> {
        if let Some(counts) = self.mapped_counts() {
            return Ok(Some(counts));
        }
        let entry = entry_behind(files, &self.link)?;
        Ok(entry.map(|entry| Counts {
            id: self.link.id,
            messages: entry.messages,
            bytes: entry.bytes,
        }))
    }
}

/// Returns the queue of a key symlink; None if the key symlink leads to no queue.
pub(super) fn entry_behind(
    files: &mut Files,
    link: &namespace::Entry,
) -> Result<Option<Entry>, OpenError> {
    match behind(files, link)? {
        Behind::Nothing => Ok(None),
        Behind::Queue(_, said) => Ok(Some(Entry::of_summary(&said))),
        // A corrupted queue exists, too.
        Behind::Closed | Behind::Unusable(..) => Ok(files
            .stat(link.index)?
            .map(|stat| Entry::of_file(link.id, link.key, &stat))),
    }
}

/// Gives the key symlinks of a new scan the headers that an older one has mapped.
fn merged(links: Vec<namespace::Entry>, older: Option<Scan>) -> Vec<Known> {
    let mut older = older
        .map_or(Vec::new(), |scan| scan.queues)
        .into_iter()
        .peekable();
    let known = |link: namespace::Entry| {
        while older.next_if(|known| known.link < link).is_some() {}
        let same = older.next_if(|known| known.link == link);
        let view = same.and_then(|known| known.view);
        Known { link, view }
    };
    links.into_iter().map(known).collect()
}
