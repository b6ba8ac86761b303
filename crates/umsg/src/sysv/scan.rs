//! The last scan of a namespace is kept, and used again as long as it is up to date.
//!
//! A scan reads the names in the directory of System V queues, and opens each queue for its header. A process that asks for sums or for a list
//! again and again (ipcs in a loop, IPC_INFO before each message) would scan a thousand queues each time. So the last scan is kept:
//!
//! | kept | used again | because |
//! |---|---|---|
//! | which queues there are | as long as the directory has the same times of change | each name that is made or removed changes them |
//! | a mapping of a queue's header, in a process that asks twice within a second and handles SIGBUS | as long as the queue is there | counts change without a name's change, and are read each time |
//!
//! A file system's time advances in steps. So a directory that changed just before the scan could change again with the same time stamp:
//! the names of such a scan are read again. A scan holds no lock and waits for none. If a call finds the kept scan locked, for example in a
//! signal handler or a forked child, the call makes its own scan.
//!
//! A kept mapping keeps the memory of a removed queue until the process asks again, or ends.

use super::entry::Entry;
use super::error::OpenError;
use super::registry::{Behind, behind};
use crate::namespace::{self, Files, Namespace, Stamp, caller};
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
    /// The effective user, who may open some of the files.
    user: u32,
    /// The time of the last use, of [`clock::monotonic_coarse`].
    used_at: u64,
    /// True if the process asked within the second before.
    is_again: bool,
    /// By index.
    queues: Vec<Known>,
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
        let (stamp, user, now) = (files.stamp(), caller(), clock::monotonic_coarse());
        let kept = LAST.try_lock().ok().and_then(|mut last| last.take());
        let kept = kept.filter(|scan| scan.stamp.is_same_file(&stamp) && scan.user == user);
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
            user,
            used_at: now,
            is_again,
            queues,
        })
    }

    /// Uses the kept scan of a namespace, if it is up to date, without opening the directory. None if `use_it` returns None.
    pub(super) fn kept<T>(
        namespace: &Namespace,
        use_it: impl FnOnce(&Scan) -> Option<T>,
    ) -> Option<T> {
        let (stamp, user) = (namespace.msg_stamp()?, caller());
        let mut last = LAST.try_lock().ok()?;
        let scan = last.as_mut()?;
        if !scan.is_settled || scan.stamp != stamp || scan.user != user {
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

    /// Returns the highest index of a queue; 0 without a queue.
    pub(super) fn highest_index(&self) -> u32 {
        self.queues.last().map_or(0, |known| known.link.index)
    }

    /// Returns the counts of the queues, by index, from mapped headers alone. None if a queue has none, or has been removed since.
    pub(super) fn mapped_counts(&self) -> Option<Vec<Counts>> {
        let is_new = |pair: &[Known]| pair[0].link.id != pair[1].link.id;
        if !self.queues.windows(2).all(is_new) {
            return None;
        }
        self.queues.iter().map(Known::mapped_counts).collect()
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
            && (said.id, said.key) == (self.link.id, self.link.key)
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
