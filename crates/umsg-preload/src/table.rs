//! The descriptor table: the descriptors that belong to queues of umsg. A look-up reads an array, without a lock or a system call.
//!
//! The table is a cache. If an entry is missing, an inspection of the file finds the queue ([`crate::adopt`]). An entry is stale if a bare system
//! call closed its number; a comparison of the file's identity detects that ([`crate::ours`]). An entry has a reference to an [`Attached`], and the
//! access mode of the open file description.

use std::ffi::c_int;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};

use umsg_shm::reclaim::{self, Chunks, Link, Slot};

use crate::arrivals;
use crate::attachments::Attached;

/// The bits of an opening's flags that the kernel uses as the access mode. musl's O_ACCMODE also contains O_PATH.
pub(crate) const ACCESS_MODE: c_int = libc::O_WRONLY | libc::O_RDWR;

const CHUNK: usize = 1024;
/// The number of descriptors in the table. Higher descriptors (fs.nr_open is 1,048,576 unless raised) are checked at each call instead.
const MOST: usize = 1 << 20;

/// Set when the table gets its first entry. The flag lies in a page that each process writes anyway, so that a process without queues reads no page
/// of the table.
#[unsafe(link_section = ".data.umsg")]
static IS_USED: AtomicBool = AtomicBool::new(false);

static TABLE: Chunks<Link<Attached>, CHUNK, { MOST / CHUNK }> = Chunks::new();

/// The contents of an entry: a reference to an attached queue, and an access mode.
pub(crate) type Word = reclaim::Word<Attached>;

const READ: usize = 1;
const WRITE: usize = 2;

/// Returns the access mode of a word, from the flags of an open file description.
fn access(flags: c_int) -> usize {
    match flags & ACCESS_MODE {
        libc::O_RDONLY => READ,
        libc::O_WRONLY => WRITE,
        libc::O_RDWR => READ | WRITE,
        _ => 0,
    }
}

/// Makes an entry from a queue and from the flags of an open file description. The entry takes over one count of the queue.
pub(crate) fn word(attachment: &'static Slot<Attached>, flags: c_int) -> Word {
    Word::new(attachment, access(flags))
}

/// A queue that a call is using: it stays attached until this value is dropped, even if another thread closes the descriptor.
pub(crate) struct Held(reclaim::Held<Attached>);

impl Held {
    #[inline(always)]
    pub(crate) fn can_read(&self) -> bool {
        self.0.flags() & READ != 0
    }

    #[inline(always)]
    pub(crate) fn can_write(&self) -> bool {
        self.0.flags() & WRITE != 0
    }

    /// Converts a word that is in no entry to a use of its queue, and takes over the word's count.
    pub(crate) fn of_word(word: Word) -> Held {
        Held(word.hold())
    }

    /// Returns the queue in a link, as a value that keeps the queue attached.
    #[inline(always)]
    pub(crate) fn of(link: &'static Link<Attached>) -> Option<Held> {
        link.hold().map(Held)
    }

    /// Returns whether both values have the same access mode.
    pub(crate) fn has_access_of(&self, other: &Held) -> bool {
        self.0.flags() == other.0.flags()
    }

    /// Converts this use into a word, which takes over the count of the use. `None` if the use has no count, because a hazard pointer keeps the queue
    /// attached.
    pub(crate) fn into_word(self) -> Option<Word> {
        self.0.into_word()
    }

    /// Returns whether the access mode is the one in these flags of an open file description.
    pub(crate) fn has_access(&self, flags: c_int) -> bool {
        self.0.flags() == access(flags)
    }

    /// Returns the word that an entry for this queue and this access mode contains.
    pub(crate) fn word(&self) -> Word {
        self.0.word()
    }

    /// Returns a further word for the queue; `None` if the queue can have no further count.
    pub(crate) fn another(&self) -> Option<Word> {
        self.0.another()
    }

    /// Returns a use of a queue that is in no entry, and takes over one count of the queue.
    pub(crate) fn counted(attachment: &'static Slot<Attached>, flags: c_int) -> Held {
        Held(reclaim::Held::counted(attachment, access(flags)))
    }
}

impl Deref for Held {
    type Target = Attached;

    #[inline(always)]
    fn deref(&self) -> &Attached {
        &self.0
    }
}

#[inline(always)]
fn entry(fd: c_int) -> Option<&'static Link<Attached>> {
    // A negative number becomes a large number beyond the table.
    TABLE.get(fd as u32 as usize)
}

/// Returns whether the table has an entry for a descriptor. At the first query for a number, an inherited descriptor is inspected.
#[inline(always)]
pub(crate) fn knows(fd: c_int) -> bool {
    arrivals::look_once(fd);
    // Relaxed: a thread that uses a queue's descriptor has got its number from the thread that made the entry.
    IS_USED.load(Ordering::Relaxed) && entry(fd).is_some_and(Link::leads)
}

/// Returns the queue of a descriptor, if the table has an entry.
#[inline(always)]
pub(crate) fn hold(fd: c_int) -> Option<Held> {
    Held::of(entry(fd)?)
}

/// Enters a descriptor. The entry takes over the word's count. A previous entry is stale, and is dropped. If the number is beyond the table, the
/// function releases the count.
pub(crate) fn enter(fd: c_int, word: Word) {
    arrivals::note_later(fd);
    IS_USED.store(true, Ordering::Relaxed);
    match TABLE.get_or_grow(fd as u32 as usize) {
        Some(entry) => entry.put(word),
        None => word.release(),
    }
}

/// Enters a further descriptor for a queue that is in use.
pub(crate) fn enter_duplicate(fd: c_int, held: &Held) {
    if let Some(word) = held.another() {
        enter(fd, word);
    }
}

/// Removes a descriptor from the table. The caller then has the count of the entry, and releases it with [`Word::release`] or [`put_back`].
pub(crate) fn take(fd: c_int) -> Option<Word> {
    entry(fd)?.take()
}

/// Undoes [`take`], unless the number was entered again.
pub(crate) fn put_back(fd: c_int, word: Word) {
    if !entry(fd).is_some_and(|entry| entry.put_if_empty(word)) {
        word.release();
    }
}

/// Drops an entry if its value still is `word`.
pub(crate) fn forget(fd: c_int, word: Word) {
    if let Some(entry) = entry(fd) {
        entry.forget(word);
    }
}

/// Returns the descriptors from `first` to `last` that have an entry in the table.
pub(crate) fn known_between(first: u32, last: u32) -> impl Iterator<Item = c_int> {
    TABLE
        .range(first as usize, last as usize)
        .filter(|(_, entry)| entry.leads())
        .filter_map(|(fd, _)| c_int::try_from(fd).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attachments;
    use std::path::Path;
    use std::time::Duration;
    use tempfile::TempDir;
    use umsg::Namespace;
    use umsg::posix::OpenOptions;
    use umsg_shm::reclaim::notes;

    /// A test's queue, and its directory, for checking whether the queue is mapped.
    struct Home {
        directory: TempDir,
        fd: c_int,
    }

    impl Home {
        /// The test chooses the descriptor numbers. These descriptors are not open, but the table does not depend on that.
        fn with_queue_as(fd: c_int) -> Home {
            let home = Home {
                directory: tempfile::tempdir_in("/dev/shm").unwrap(),
                fd,
            };
            enter(fd, word(home.attach(), libc::O_RDWR));
            home
        }

        fn attach(&self) -> &'static Slot<Attached> {
            let namespace = Namespace::at(self.directory.path()).unwrap();
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true);
            let queue = options.namespace(&namespace).open("/q").unwrap();
            attachments::attach(Attached::new(queue, b"/q")).unwrap()
        }

        fn is_mapped(&self) -> bool {
            fn mentions(maps: &str, path: &Path) -> bool {
                maps.contains(path.to_str().unwrap())
            }
            mentions(
                &std::fs::read_to_string("/proc/self/maps").unwrap(),
                self.directory.path(),
            )
        }

        /// Returns whether the queue is unmapped. Waits, because the thread of another test may still use a retired entry.
        fn is_unmapped(&self) -> bool {
            (0..1000).any(|_| {
                attachments::reap();
                std::thread::sleep(Duration::from_millis(1));
                !self.is_mapped()
            })
        }
    }

    #[test]
    fn an_entered_descriptor_is_found_until_it_is_taken_out() {
        let home = Home::with_queue_as(70_001);
        assert!(knows(home.fd));
        assert_eq!(hold(home.fd).unwrap().name.as_ref(), b"/q");
        take(home.fd).unwrap().release();
        assert!(!knows(home.fd) && hold(home.fd).is_none() && take(home.fd).is_none());
        assert!(home.is_unmapped());
    }

    #[test]
    fn a_queue_in_use_stays_attached_when_its_descriptor_is_closed() {
        notes::start();
        let home = Home::with_queue_as(70_002);
        let held = hold(home.fd).unwrap();
        assert!(held.0.is_noted(), "noted, not counted");
        take(home.fd).unwrap().release();
        attachments::reap();
        assert!(home.is_mapped());
        held.queue.try_send(b"still there", 0).unwrap();
        drop(held);
        assert!(home.is_unmapped());
    }

    #[test]
    fn a_nested_use_is_counted_and_keeps_the_queue_attached_too() {
        notes::start();
        let home = Home::with_queue_as(70_003);
        let outer = hold(home.fd).unwrap();
        let inner = hold(home.fd).unwrap();
        assert!(outer.0.is_noted() && !inner.0.is_noted());
        drop(outer);
        take(home.fd).unwrap().release();
        attachments::reap();
        assert!(home.is_mapped());
        drop(inner);
        assert!(home.is_unmapped());
    }

    #[test]
    fn a_duplicate_keeps_the_queue_attached() {
        let home = Home::with_queue_as(70_004);
        enter_duplicate(70_005, &hold(home.fd).unwrap());
        take(home.fd).unwrap().release();
        assert!(home.is_mapped() && hold(70_005).is_some());
        take(70_005).unwrap().release();
        assert!(home.is_unmapped());
    }

    #[test]
    fn the_access_mode_is_that_of_the_descriptor() {
        let home = Home::with_queue_as(70_006);
        let modes = [libc::O_RDONLY, libc::O_WRONLY, libc::O_RDWR, ACCESS_MODE];
        let rights = modes.map(|mode| {
            enter(home.fd, word(home.attach(), mode | libc::O_NONBLOCK));
            let held = hold(home.fd).unwrap();
            (held.can_read(), held.can_write())
        });
        assert_eq!(
            rights,
            [(true, false), (false, true), (true, true), (false, false)]
        );
        take(home.fd).unwrap().release();
    }

    #[test]
    fn an_entry_is_forgotten_only_as_long_as_it_is_the_same() {
        let home = Home::with_queue_as(70_007);
        let old = hold(home.fd).unwrap().word();
        enter(home.fd, word(home.attach(), libc::O_RDWR));
        forget(home.fd, old);
        assert!(knows(home.fd));
        forget(home.fd, hold(home.fd).unwrap().word());
        assert!(!knows(home.fd));
    }

    #[test]
    fn what_was_taken_out_can_be_put_back_unless_the_number_is_in_use_again() {
        let home = Home::with_queue_as(70_008);
        let taken = take(home.fd).unwrap();
        put_back(home.fd, taken);
        let first = take(home.fd).unwrap();
        enter(home.fd, word(home.attach(), libc::O_RDONLY));
        put_back(home.fd, first);
        assert!(!hold(home.fd).unwrap().can_write());
        take(home.fd).unwrap().release();
    }

    #[test]
    fn numbers_beyond_the_table_are_unknown() {
        let home = Home::with_queue_as(MOST as c_int);
        for fd in [-1, c_int::MIN, home.fd, c_int::MAX] {
            assert!(!knows(fd) && hold(fd).is_none() && take(fd).is_none());
        }
        assert!(home.is_unmapped());
    }

    #[test]
    fn known_descriptors_of_a_range_are_listed() {
        let homes = [70_010, 70_012, 75_000].map(Home::with_queue_as);
        let between = |first, last| known_between(first, last).collect::<Vec<_>>();
        assert_eq!(between(70_009, 70_011), [70_010]);
        assert_eq!(between(70_010, u32::MAX), [70_010, 70_012, 75_000]);
        for home in &homes {
            take(home.fd).unwrap().release();
        }
        assert!(between(70_010, u32::MAX).is_empty());
    }
}
