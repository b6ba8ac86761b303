//! A process keeps its last scan of a namespace, and uses it again as long as it is up to date.
//!
//! A scan reads the names in the directory of System V queues, and opens each queue for its header. Some processes request sums or a list
//! repeatedly: ipcs in a loop, or IPC_INFO before each message. They would scan a thousand queues each time. So the last scan is kept:
//!
//! | kept | used again | because |
//! |---|---|---|
//! | which queues there are | as long as the directory has the same times of change | each creation or removal of a name changes these times |
//! | a mapping of a queue's header, in a process that requests sums or the highest index twice within a second and handles SIGBUS | as long as the queue or its segment exists | counts change without a change of a name, so they are read each time |
//!
//! A process may keep the segment of a removed queue for its next queue (`recycle.rs`). The header of that segment is mapped, too, and shows whether
//! the segment holds a queue.
//!
//! The namespace counts changes of names and of limits. So if a process repeats its request within 10 ms, the process compares only the count and its
//! own identity. The only system call of the repeated request is geteuid(2): see `namespace/changes.rs`.
//!
//! For 10 ms, the process also keeps the sums, but only if no other user than the owner of the directory may reach the queues. Then each process that
//! changes the counts of a queue announces the change (`sysv_engine/counted.rs` in `umsg-shm`).
//!
//! A file system's time advances in steps. So if a directory changed just before a scan, it could change again without a new time stamp. Therefore
//! the names of such a scan are read again. A scan holds no lock and waits for none. If a call finds the kept scan locked, for example in a
//! signal handler or a forked child, the call makes its own scan.
//!
//! A kept mapping keeps the memory of a removed queue until the next request of the process, or until the process ends.

use super::entry::Entry;
use super::error::OpenError;
use super::list::{Totals, add, mapped_totals};
use super::permission::Caller;
use super::registry::{Behind, behind};
use crate::namespace::{self, Files, Limits, Namespace, Stamp, Watch};
use std::sync::Mutex;
use umsg_shm::announcements::Announcements;
use umsg_shm::sys::thread::{self, Thread};
use umsg_shm::sys::{clock, cut};
use umsg_shm::sysv_engine::segment::{HeaderView, QueueCounts};

/// The maximum number of headers that a process maps.
const MOST_VIEWS: usize = 4096;

/// A process that requests sums again within this time, in nanoseconds, maps headers.
const AGAIN: u64 = 1_000_000_000;

/// The last scan; None while a call uses it.
static LAST: Mutex<Option<Scan>> = Mutex::new(None);

/// A scan of a namespace; see the module.
#[derive(Debug)]
pub(super) struct Scan {
    /// The directory, as it was before the scan.
    stamp: Stamp,
    /// True if a change of the directory during or after the scan gives the directory another time stamp.
    is_settled: bool,
    /// The identity of the process, which decides which of the files the process may open.
    caller: Caller,
    /// The time of the last use, of [`clock::monotonic_coarse`].
    used_at: u64,
    /// True if the process had requested sums in the preceding second already.
    is_again: bool,
    /// The queues, in the order of their indices.
    queues: Vec<Known>,
    watch: Option<Watched>,
}

/// Facts about a namespace that are used for some milliseconds, as long as the count of changes stays the same.
#[derive(Debug)]
struct Watched {
    watch: Watch,
    /// The namespace's limits at the last comparison.
    limits: Limits,
    sums: Option<Sums>,
}

/// The maximum number of queues whose locks can't be marked as counted (`sysv_engine/counted.rs` in `umsg-shm`). If there are more such queues, no
/// sums are kept.
const MOST_UNMARKED: usize = 16;

/// The sums over the queues of a scan. [`Known`] has the counts of each queue.
#[derive(Debug)]
struct Sums {
    totals: Totals,
    /// The number of the last announcement before the queues were read.
    at: u32,
    /// The positions, in the scan's list, of the queues whose locks can't be marked. These queues are read each time.
    unmarked: [usize; MOST_UNMARKED],
    /// The number of queues whose locks can't be marked, which may exceed the length of the list.
    unmarked_len: usize,
}

impl Sums {
    /// Reads all queues. None if a header is not mapped, its file was truncated, its queue was removed for good, or a queue has two key symlinks.
    fn read(queues: &mut [Known], at: u32) -> Option<Sums> {
        let mut sums = Sums {
            totals: Totals::default(),
            at,
            unmarked: [0; MOST_UNMARKED],
            unmarked_len: 0,
        };
        let me = thread::current();
        let mut last = None;
        for (place, known) in queues.iter_mut().enumerate() {
            if last.replace(known.link.id) == Some(known.link.id) {
                return None;
            }
            known.last = sums.read_marked(place, known, me)?;
            if let Some(counts) = known.last {
                sums.totals = add(sums.totals, &known.counted(counts));
            }
        }
        Some(sums)
    }

    /// Reads the queues that were announced since the last reading, and the queues whose locks can't be marked. Returns None if the announced queues
    /// are not known.
    fn read_again(
        mut self,
        queues: &mut [Known],
        announcements: &Announcements,
        now: u32,
    ) -> Option<Sums> {
        let (unmarked, me) = (self.unmarked, thread::current());
        let unmarked = &unmarked[..std::mem::take(&mut self.unmarked_len)];
        for &place in unmarked {
            self.replace(place, queues, me)?;
        }
        let is_known = announcements.between(self.at, now, |index| {
            match queues.binary_search_by_key(&index, |known| known.link.index) {
                Ok(place) => self.replace(place, queues, me).is_some(),
                // The announced queue is new, so the scan does not have it.
                Err(_) => false,
            }
        });
        self.at = now;
        is_known.then_some(self)
    }

    fn replace(&mut self, place: usize, queues: &mut [Known], me: &Thread) -> Option<()> {
        let known = queues.get_mut(place)?;
        let now = self.read_marked(place, known, me)?;
        let last = std::mem::replace(&mut known.last, now);
        // The number of queues has changed if `last` or `now` is None.
        let (last, now) = (last?, now?);
        let replaced = |sum: u64, last: u64, now: u64| sum.wrapping_sub(last).wrapping_add(now);
        self.totals.messages = replaced(self.totals.messages, last.messages, now.messages);
        self.totals.bytes = replaced(self.totals.bytes, last.bytes, now.bytes);
        Some(())
    }

    /// Returns the counts of a queue, as [`HeaderView::marked_counts`] does.
    fn read_marked(
        &mut self,
        place: usize,
        known: &Known,
        me: &Thread,
    ) -> Option<Option<QueueCounts>> {
        let (counts, is_marked) = known.view.as_ref()?.marked_counts(me)?;
        if !is_marked {
            if let Some(unmarked) = self.unmarked.get_mut(self.unmarked_len) {
                *unmarked = place;
            }
            self.unmarked_len += 1;
        }
        Some(counts)
    }

    fn are_kept(&self) -> bool {
        self.unmarked_len <= MOST_UNMARKED
    }
}

/// A queue that a scan found, or a segment that may hold a queue.
#[derive(Debug)]
struct Known {
    link: namespace::Entry,
    view: Option<HeaderView>,
    /// The counts of the queue that are part of the kept sums; None if the segment held no queue.
    last: Option<QueueCounts>,
}

/// The counts of a queue, with the queue's identifier.
pub(super) struct Counted {
    pub(super) id: i32,
    pub(super) counts: QueueCounts,
}

impl Scan {
    /// Scans the directory, or uses the kept scan of the directory.
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
        Scan::last(
            |scan| scan.is_settled && scan.stamp == stamp,
            |scan| use_it(scan),
        )
    }

    /// Does the same as [`kept`](Self::kept), for a namespace whose directory and limits were compared a moment ago. The only system call is
    /// geteuid(2).
    pub(super) fn watched<T>(
        namespace: &Namespace,
        use_it: impl FnOnce(&mut Scan, &Limits) -> Option<T>,
    ) -> Option<T> {
        let holds = |watched: &Watched| watched.watch.holds(namespace);
        Scan::last(
            |scan| scan.watch.as_ref().is_some_and(holds),
            |scan| {
                let limits = scan.watch.as_ref()?.limits.clone();
                use_it(scan, &limits)
            },
        )
    }

    /// Returns the sums over the queues of a scan that [`watched`](Self::watched) has found up to date, if all headers are mapped. Only queues that
    /// have changed are read again.
    pub(super) fn watched_totals(&mut self) -> Option<Totals> {
        let Scan {
            stamp,
            queues,
            watch,
            ..
        } = self;
        let watched = watch.as_mut()?;
        if stamp.is_reached_by_others() {
            return mapped_totals(self);
        }
        let announcements = watched.watch.announcements();
        let now = announcements.number();
        let sums = match watched.sums.take() {
            Some(sums) => sums.read_again(queues, announcements, now),
            None => None,
        };
        let sums = match sums {
            None => Sums::read(queues, now)?,
            some => some?,
        };
        let totals = sums.totals;
        watched.sums = sums.are_kept().then_some(sums);
        Some(totals)
    }

    /// Lets [`watched`](Self::watched) use the kept scan and the limits, which were compared after `watch` began.
    pub(super) fn watch(watch: Watch, limits: Limits) {
        if let Ok(mut last) = LAST.try_lock()
            && let Some(scan) = last.as_mut()
            && scan.is_settled
            && watch.is_of_directory(&scan.stamp)
        {
            scan.watch = Some(Watched {
                watch,
                limits,
                sums: None,
            });
        }
    }

    fn last<T>(
        is_up_to_date: impl FnOnce(&Scan) -> bool,
        use_it: impl FnOnce(&mut Scan) -> Option<T>,
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

    /// Returns the highest index of a queue; 0 without a queue. None if neither the names nor mapped headers show that index: a segment that may be
    /// used again may hold no queue now.
    pub(super) fn highest_index(&self) -> Option<u32> {
        for known in self.queues.iter().rev() {
            if !known.link.varies || known.mapped_counts()?.is_some() {
                return Some(known.link.index);
            }
        }
        Some(0)
    }

    /// Returns the highest index. Inspects the files if names and mapped headers do not suffice.
    pub(super) fn find_highest_index(&mut self, files: &mut Files) -> Result<u32, OpenError> {
        let mut room = self.room_for_views();
        for known in self.queues.iter_mut().rev() {
            if known.link.varies {
                known.map_header(files, &mut room)?;
            }
            if !known.link.varies || known.entry(files)?.is_some() {
                return Ok(known.link.index);
            }
        }
        Ok(0)
    }

    /// Adds up the counts of the queues from mapped headers alone. None if a header is not mapped, its file was truncated, its queue was removed for
    /// good, or a queue has two key symlinks.
    pub(super) fn sum_mapped<T>(&self, nothing: T, add: impl Fn(T, &Counted) -> T) -> Option<T> {
        let mut last = None;
        self.queues.iter().try_fold(nothing, |sum, known| {
            let is_new = last.replace(known.link.id) != Some(known.link.id);
            let counts = known.mapped_counts().filter(|_| is_new)?;
            Some(match counts {
                Some(counts) => add(sum, &counts),
                None => sum,
            })
        })
    }

    /// Returns the number of headers that this process may map in addition.
    fn room_for_views(&self) -> usize {
        if !self.is_again || !cut::is_handled() {
            return 0;
        }
        let mapped = self.queues.iter().filter(|known| known.view.is_some());
        MOST_VIEWS.saturating_sub(mapped.count())
    }

    /// Returns the queues, in the order of their indices. The list includes queues whose files can't be opened or used.
    pub(super) fn entries(&mut self, files: &mut Files) -> Result<Vec<Entry>, OpenError> {
        self.read(files, Known::entry, |entry| entry.id)
    }

    /// Returns the counts of the queues, in the order of their indices.
    pub(super) fn counts(&mut self, files: &mut Files) -> Result<Vec<Counted>, OpenError> {
        self.read(files, Known::counts, |counts| counts.id)
    }

    fn read<T>(
        &mut self,
        files: &mut Files,
        read: fn(&Known, &mut Files) -> Result<Option<T>, OpenError>,
        id: fn(&T) -> i32,
    ) -> Result<Vec<T>, OpenError> {
        let mut room = self.room_for_views();
        let mut all: Vec<T> = Vec::with_capacity(self.queues.len());
        for known in &mut self.queues {
            known.map_header(files, &mut room)?;
            if let Some(queue) = read(known, files)? {
                // If two key symlinks have the same identifier, they are neighbours, and the last of them is valid.
                all.pop_if(|previous| id(previous) == id(&queue));
                all.push(queue);
            }
        }
        Ok(all)
    }
}

impl Known {
    /// Maps the header of a queue or of a vacant segment, if it is not mapped and `room` is not zero.
    fn map_header(&mut self, files: &mut Files, room: &mut usize) -> Result<(), OpenError> {
        if *room == 0 || self.view.is_some() {
            return Ok(());
        }
        if let Behind::Queue(file, _) | Behind::Vacant(file) = behind(files, &self.link)? {
            // Without a mapping, the header is read from the file each time.
            self.view = HeaderView::map(rustix::fd::AsFd::as_fd(&file)).ok();
            *room -= 1;
        }
        Ok(())
    }

    fn entry(&self, files: &mut Files) -> Result<Option<Entry>, OpenError> {
        if let Some(view) = &self.view
            && let Ok(said) = view.summary()
            && self.link.is_of(said.id, said.key)
            && (!said.is_removed || said.is_vacant)
        {
            return Ok((!said.is_removed).then(|| Entry::of_summary(&said)));
        }
        entry_behind(files, &self.link)
    }

    /// Returns the counts from the mapped header. The inner value is None if the segment holds no queue.
    fn mapped_counts(&self) -> Option<Option<Counted>> {
        let counts = self.view.as_ref()?.counts()?;
        Some(counts.map(|counts| self.counted(counts)))
    }

    fn counted(&self, counts: QueueCounts) -> Counted {
        let id = self.link.id;
        Counted { id, counts }
    }

    fn counts(&self, files: &mut Files) -> Result<Option<Counted>, OpenError> {
        if let Some(counts) = self.mapped_counts() {
            return Ok(counts);
        }
        let entry = entry_behind(files, &self.link)?;
        Ok(entry.map(
            |Entry {
                 messages, bytes, ..
             }| self.counted(QueueCounts { messages, bytes }),
        ))
    }
}

/// Returns the queue of a key symlink; None if the key symlink leads to no queue.
pub(super) fn entry_behind(
    files: &mut Files,
    link: &namespace::Entry,
) -> Result<Option<Entry>, OpenError> {
    match behind(files, link)? {
        Behind::Nothing | Behind::Vacant(_) => Ok(None),
        Behind::Queue(_, said) => Ok(Some(Entry::of_summary(&said))),
        // A corrupted queue also exists, so it has an entry.
        Behind::Closed | Behind::Unusable(..) => Ok(files
            .stat(link.index)?
            .map(|stat| Entry::of_file(link.id, link.key, &stat))),
    }
}

/// Combines the key symlinks of a new scan with the headers that an older scan has mapped.
fn merged(links: Vec<namespace::Entry>, older: Option<Scan>) -> Vec<Known> {
    let mut older = older
        .map_or(Vec::new(), |scan| scan.queues)
        .into_iter()
        .peekable();
    let known = |link: namespace::Entry| {
        while older.next_if(|known| known.link < link).is_some() {}
        let same = older.next_if(|known| known.link == link);
        // The next queue with the identifier and the key of a removed queue has another file.
        let view = same.and_then(|known| known.view);
        Known {
            link,
            view,
            last: None,
        }
    };
    links.into_iter().map(known).collect()
}
