//! The window in which repeated messages are recognised: the last sequences that were placed in the queue. Its file lies in the state directory.
//!
//! The window recognises a redelivery by its sequence. It recognises a message that the stream stores twice by the name that an export gave the
//! message. When a stream's server is killed, the stream forgets the names of acknowledged messages, and takes a repeated publish for a new message.
//!
//! The entry of a sequence is at index `sequence % capacity`. So one write stores the entries of messages that came together, and one read of memory
//! finds an entry. A note is in memory first, and in the file after [`Window::flush`] at the latest. Until the file has the sequence of a noted
//! message, the message must keep its arrival record. A write to a file survives the death of the process. Neither the write nor the queue survives a
//! crash of the machine.
//!
//! | bytes | |
//! |---|---|
//! | 0..8 | `UMSGBRW2` |
//! | 8..16 | the key: which stream, since when, and which queue. A file with another key begins empty: the sequences of a new stream, and the messages of a new queue, have nothing to do with the old ones |
//! | 16..24 | the capacity, in sequences |
//! | 24..32 | the number of kept entries |
//! | 64.. | entries: the sequence, the number of the message in the queue, and the name of the message: two words |
//! | behind them | kept entries: sequences that would have left the window, whose messages a durable queue still has |
//!
//! An entry is held if a durable queue still has its message. A held entry is copied to a kept entry before another sequence overwrites it. So a
//! death between the two writes leaves the entry twice, and never loses it.
//!
//! If the capacity changes, the entries are copied to a new file, which takes the name when it is complete. The newest sequences that fit are copied.

use std::collections::HashMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::hash::Hasher;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

const MAGIC: &[u8; 8] = b"UMSGBRW2";
const HEAD: usize = 64;
const ENTRY: usize = 32;
/// The maximum number of notes that wait for a flush. The limit bounds the list when many second copies come, which need no flush.
const MOST_UNWRITTEN: usize = 256;

/// The reason why a message was not noted in memory or, if a flush was needed, in the file.
#[derive(Debug)]
pub enum NoteError {
    /// More messages are held than the window has places for. Nothing is noted.
    NoPlace,
    /// A write to the file failed. Earlier notes stay in memory.
    File(io::Error),
}

impl fmt::Display for NoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoteError::NoPlace => {
                f.write_str("more messages are unconsumed than the queue can hold")
            }
            NoteError::File(error) => error.fmt(f),
        }
    }
}

impl From<io::Error> for NoteError {
    fn from(error: io::Error) -> NoteError {
        NoteError::File(error)
    }
}

/// A message that was placed in the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The sequence of the message in the stream. 0: the entry is empty.
    pub sequence: u64,
    /// The number of the message in the queue. 0: a bridge died before it noted the number.
    pub number: u64,
    /// The name that the export gave the message. 0: the message has none, or a bridge died before it noted the name.
    pub name: u128,
}

impl Entry {
    fn read(bytes: &[u8]) -> Entry {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        Entry {
            sequence: word(0),
            number: word(8),
            name: u128::from(word(16)) | u128::from(word(24)) << 64,
        }
    }

    fn bytes(self) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        bytes[..8].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..].copy_from_slice(&self.name.to_le_bytes());
        bytes
    }

    fn is_used(&self) -> bool {
        self.sequence != 0
    }
}

/// Mixes both words of a name into one, because the names of one queue's messages differ in a few bits only.
fn mixed(name: u128) -> u64 {
    let (high, low) = ((name >> 64) as u64, name as u64);
    high ^ low.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The window: the entries in memory, and their file.
#[derive(Debug)]
pub struct Window {
    file: File,
    entries: Vec<Entry>,
    kept: Vec<Entry>,
    /// The index of each kept entry, by sequence.
    places: HashMap<u64, usize>,
    /// The sequences, by the mixed names of their messages.
    names: HashMap<u64, u64>,
    /// The index of the kept entry at which the next search for a free place starts.
    next: usize,
    /// The indices of the entries that are not yet in the file.
    unwritten: Vec<usize>,
}

impl Window {
    /// Opens the window's file. Makes a new file if there is none, or if the file belongs to another stream or another queue. If the capacity has
    /// changed, the newest sequences that fit remain.
    ///
    /// # Errors
    /// The errors of the file.
    pub fn open(
        path: &Path,
        key: u64,
        (capacity, most_kept): (usize, usize),
    ) -> io::Result<Window> {
        let old = lock(path)?;
        let (file, Layout { entries, kept }) = match Layout::read(&old, key) {
            Some(found) if found.is_of(capacity, most_kept) => (old, found),
            found => {
                let mut layout = Layout {
                    entries: vec![Entry::default(); capacity],
                    kept: vec![Entry::default(); most_kept],
                };
                layout.take(&found.unwrap_or_default());
                let beside = path.with_extension("window.new");
                let file = lock(&beside)?;
                file.set_len(0)?;
                file.write_all_at(&layout.bytes(key), 0)?;
                // A death before the rename leaves the old file unchanged.
                std::fs::rename(&beside, path)?;
                (file, layout)
            }
        };
        let places = kept.iter().enumerate();
        let places = places
            .filter(|(_, entry)| entry.is_used())
            .map(|(at, entry)| (entry.sequence, at));
        let named = entries.iter().chain(&kept).filter(|entry| entry.name != 0);
        Ok(Window {
            places: places.collect(),
            names: named
                .map(|entry| (mixed(entry.name), entry.sequence))
                .collect(),
            file,
            entries,
            kept,
            next: 0,
            unwritten: Vec::new(),
        })
    }

    /// Notes in memory that a message is in the queue. `is_held` returns whether a message must stay in the window: a durable queue still has the
    /// message, so the server may deliver it again.
    ///
    /// # Errors
    /// The errors of [`NoteError`].
    pub fn note(&mut self, entry: Entry, is_held: &dyn Fn(u64) -> bool) -> Result<(), NoteError> {
        let at = (entry.sequence % self.entries.len() as u64) as usize;
        let old = self.entries[at];
        let is_other = old.is_used() && old.sequence != entry.sequence;
        match is_other && !self.kept.is_empty() && is_held(old.number) {
            true => self.keep(old, is_held)?,
            false => self.forget_name(old),
        }
        self.entries[at] = entry;
        if entry.name != 0 {
            self.names.insert(mixed(entry.name), entry.sequence);
        }
        self.unwritten.push(at);
        if self.unwritten.len() >= MOST_UNWRITTEN {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes the notes to the file.
    ///
    /// # Errors
    /// The errors of the file. After an error, the sequences that were not written are known only until the process ends.
    pub fn flush(&mut self) -> io::Result<()> {
        self.unwritten.sort_unstable();
        self.unwritten.dedup();
        for run in self.unwritten.chunk_by(|one, next| one + 1 == *next) {
            let entries = run.iter().map(|at| self.entries[*at].bytes());
            let bytes: Vec<u8> = entries.flatten().collect();
            self.file.write_all_at(&bytes, place(run[0]))?;
        }
        self.unwritten.clear();
        Ok(())
    }

    /// Forgets the name of an entry that leaves the window, unless a later entry has the same name.
    fn forget_name(&mut self, entry: Entry) {
        let name = mixed(entry.name);
        if entry.name != 0 && self.names.get(&name) == Some(&entry.sequence) {
            self.names.remove(&name);
        }
    }

    /// Copies a held entry to the kept entries: to an unused place, or over an entry whose message is no longer held. The window has at least as many
    /// kept entries as the queue has places for messages.
    fn keep(&mut self, entry: Entry, is_held: &dyn Fn(u64) -> bool) -> Result<(), NoteError> {
        let most = self.kept.len();
        let is_free = |at: usize| !self.kept[at].is_used() || !is_held(self.kept[at].number);
        let Some(at) = (0..most)
            .map(|n| (self.next + n) % most)
            .find(|at| is_free(*at))
        else {
            return Err(NoteError::NoPlace);
        };
        self.next = at + 1;
        self.places.remove(&self.kept[at].sequence);
        self.forget_name(self.kept[at]);
        self.places.insert(entry.sequence, at);
        self.kept[at] = entry;
        self.write(self.entries.len() + at, entry)?;
        Ok(())
    }

    fn write(&self, at: usize, entry: Entry) -> io::Result<()> {
        self.file.write_all_at(&entry.bytes(), place(at))
    }

    /// Returns the queue's numbers of all messages in the window.
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        let all = self.entries.iter().chain(&self.kept);
        all.filter(|entry| entry.is_used())
            .map(|entry| entry.number)
    }

    /// Returns the entry of a sequence. None: no message was placed, or the sequence has left the window.
    #[must_use]
    pub fn find(&self, sequence: u64) -> Option<Entry> {
        let at = (sequence % self.entries.len() as u64) as usize;
        let noted = self.entries[at];
        match noted.sequence == sequence && noted.is_used() {
            true => Some(noted),
            false => self.places.get(&sequence).map(|at| self.kept[*at]),
        }
    }

    /// Returns the last entry of a message with this name. The name is not 0.
    #[must_use]
    pub fn find_name(&self, name: u128) -> Option<Entry> {
        let sequence = *self.names.get(&mixed(name))?;
        self.find(sequence).filter(|entry| entry.name == name)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // An error is ignored: messages that were not written to the file still have their arrival records in the queue, and the next start reads
        // these.
        let _ = self.flush();
    }
}

/// Returns the offset of an entry in the file.
fn place(at: usize) -> u64 {
    (HEAD + at * ENTRY) as u64
}

/// Opens and locks a window's file, because two processes would not see each other's notes. The lock ends with the process.
fn lock(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let file = options.mode(0o600).open(path)?;
    let lock = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    rustix::fs::flock(&file, lock).map_err(|_| {
        io::Error::other("another process runs a bridge of this name in this namespace")
    })?;
    Ok(file)
}

/// The contents of a window's file.
#[derive(Debug, Default)]
struct Layout {
    entries: Vec<Entry>,
    kept: Vec<Entry>,
}

impl Layout {
    /// Reads a file with this key. None: the file is empty, has another key, or is incomplete.
    fn read(file: &File, key: u64) -> Option<Layout> {
        let mut head = [0; HEAD];
        file.read_exact_at(&mut head, 0).ok()?;
        let (magic, numbers) = head.split_at(8);
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        let mut numbers = numbers.chunks_exact(8).map(word);
        if magic != MAGIC || numbers.next()? != key {
            return None;
        }
        let (capacity, most_kept) = (numbers.next()?, numbers.next()?);
        let length = file.metadata().ok()?.len();
        let count = capacity.checked_add(most_kept)?;
        let needed = count.checked_mul(ENTRY as u64)?.checked_add(HEAD as u64)?;
        if length != needed {
            return None;
        }
        let mut bytes = vec![0; (needed as usize) - HEAD];
        file.read_exact_at(&mut bytes, HEAD as u64).ok()?;
        let mut entries: Vec<Entry> = bytes.chunks_exact(ENTRY).map(Entry::read).collect();
        let kept = entries.split_off(capacity as usize);
        Some(Layout { entries, kept })
    }

    fn is_of(&self, capacity: usize, most_kept: usize) -> bool {
        (self.entries.len(), self.kept.len()) == (capacity, most_kept)
    }

    /// Copies the entries of another layout. Entries that are not kept entries there come first, and newer entries come before older ones. An entry
    /// goes to the index of its sequence if no earlier entry has that index. The other entries become kept entries, those that were kept entries
    /// before first.
    fn take(&mut self, other: &Layout) {
        let newest_first = |entries: &[Entry]| {
            let used = entries.iter().filter(|entry| entry.is_used());
            let mut used: Vec<_> = used.copied().collect();
            used.sort_unstable_by(|one, two| two.cmp(one));
            used
        };
        let (newest, kept) = (newest_first(&other.entries), newest_first(&other.kept));
        let mut left = [Vec::new(), Vec::new()];
        for (left, entries) in left.iter_mut().zip([newest, kept]) {
            for entry in entries {
                let at = (entry.sequence % self.entries.len() as u64) as usize;
                match self.entries[at].is_used() {
                    false => self.entries[at] = entry,
                    true => left.push(entry),
                }
            }
        }
        let [newest, kept] = left;
        for (place, entry) in self.kept.iter_mut().zip(kept.into_iter().chain(newest)) {
            *place = entry;
        }
    }

    fn bytes(&self, key: u64) -> Vec<u8> {
        let words = [key, self.entries.len() as u64, self.kept.len() as u64];
        let mut bytes = MAGIC.to_vec();
        bytes.extend(words.into_iter().flat_map(u64::to_le_bytes));
        bytes.resize(HEAD, 0);
        let all = self.entries.iter().chain(&self.kept);
        bytes.extend(all.flat_map(|entry| entry.bytes()));
        bytes
    }
}

/// Hashes words to a key. The key is the same in each process and version.
#[must_use]
pub fn key(words: &[&[u8]]) -> u64 {
    let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
    for word in words {
        hash.write(word);
        hash.write(&[0xff]);
    }
    hash.finish()
}

/// The hash FNV-1a, followed by a final mixing.
struct Fnv(u64);

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        let mixed = (self.0 ^ self.0 >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 29
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use tempfile::TempDir;

    fn unnamed(sequence: u64, number: u64) -> Entry {
        Entry {
            sequence,
            number,
            name: 0,
        }
    }

    /// Returns a new window, its file and the directory of the file.
    fn new_window(sizes: (usize, usize)) -> (TempDir, PathBuf, Window) {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("w");
        let window = Window::open(&path, 7, sizes).unwrap();
        (home, path, window)
    }

    fn number(window: &Window, sequence: u64) -> Option<u64> {
        window.find(sequence).map(|entry| entry.number)
    }

    #[test]
    fn sequences_are_found_by_the_next_process_until_the_window_has_passed() {
        let (_home, path, mut window) = new_window((4, 0));
        for sequence in 1..=6 {
            window
                .note(unnamed(sequence, sequence + 100), &|_| false)
                .unwrap();
        }
        drop(window);
        let window = Window::open(&path, 7, (4, 0)).unwrap();
        let found: Vec<_> = (0..=7).map(|sequence| number(&window, sequence)).collect();
        assert_eq!(
            found,
            [
                None,
                None,
                None,
                Some(103),
                Some(104),
                Some(105),
                Some(106),
                None
            ]
        );
    }

    #[test]
    fn a_second_process_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("w");
        let first = Window::open(&path, 7, (4, 0)).unwrap();
        let refused = Window::open(&path, 7, (4, 0)).unwrap_err();
        assert!(refused.to_string().contains("another process"), "{refused}");
        drop(first);
        Window::open(&path, 7, (4, 0)).unwrap();
    }

    #[test]
    fn another_stream_or_a_broken_file_begins_again() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("w");
        let note = |key| {
            let mut window = Window::open(&path, key, (4, 0)).unwrap();
            window.note(unnamed(3, 1), &|_| false).unwrap();
        };
        note(7);
        assert_eq!(Window::open(&path, 8, (4, 0)).unwrap().find(3), None);
        note(8);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        assert_eq!(Window::open(&path, 8, (4, 0)).unwrap().find(3), None);
        let mut absurd = whole.clone();
        absurd[16..32].fill(0xff);
        std::fs::write(&path, &absurd).unwrap();
        assert_eq!(Window::open(&path, 8, (4, 0)).unwrap().find(3), None);
        std::fs::write(&path, b"short").unwrap();
        assert_eq!(Window::open(&path, 8, (4, 0)).unwrap().find(3), None);
        std::fs::write(&path, &whole).unwrap();
        assert_eq!(number(&Window::open(&path, 8, (4, 0)).unwrap(), 3), Some(1));
    }

    #[test]
    fn another_capacity_keeps_the_newest_sequences_that_fit() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("w");
        let found = |window: &Window| -> Vec<u64> {
            let all = 0..=60;
            all.filter(|sequence| window.find(*sequence).is_some())
                .collect()
        };
        let mut window = Window::open(&path, 7, (8, 0)).unwrap();
        for sequence in 1..=50 {
            window
                .note(unnamed(sequence, sequence + 100), &|_| false)
                .unwrap();
        }
        drop(window);
        for (capacity, kept, wanted) in [
            (20, 0, 43..=50),
            (5, 0, 46..=50),
            (9, 2, 46..=50),
            (3, 2, 46..=50),
            (4, 1, 46..=50),
            (4, 0, 47..=50),
        ] {
            let window = Window::open(&path, 7, (capacity, kept)).unwrap();
            assert_eq!(found(&window), wanted.collect::<Vec<_>>(), "{capacity}");
            assert_eq!(number(&window, 50), Some(150));
        }
        // The lock must also cover the new file, which has the changed capacity.
        let first = Window::open(&path, 7, (6, 0)).unwrap();
        Window::open(&path, 7, (6, 0)).unwrap_err();
        drop(first);
        let mut window = Window::open(&path, 7, (6, 0)).unwrap();
        window.note(unnamed(51, 151), &|_| false).unwrap();
        drop(window);
        let window = Window::open(&path, 7, (6, 0)).unwrap();
        assert_eq!(found(&window), [47, 48, 49, 50, 51]);
    }

    #[test]
    fn keys_differ_by_where_words_end() {
        assert_ne!(key(&[b"ab", b"c"]), key(&[b"a", b"bc"]));
        assert_eq!(key(&[b"ab"]), key(&[b"ab"]));
    }

    #[test]
    fn sequences_of_messages_that_a_durable_queue_still_has_stay_in_the_window() {
        let (_home, path, mut window) = new_window((4, 2));
        // The message of sequence 2 stays in the queue; the others leave the queue at once.
        for sequence in 1..=50 {
            window
                .note(unnamed(sequence, sequence + 100), &|number| number == 102)
                .unwrap();
        }
        assert_eq!(number(&window, 2), Some(102));
        drop(window);
        let mut window = Window::open(&path, 7, (4, 2)).unwrap();
        let found: Vec<_> = (0..=51)
            .filter(|sequence| window.find(*sequence).is_some())
            .collect();
        assert_eq!(found, [2, 47, 48, 49, 50]);
        // Two held messages have places in the window, and a third has none: `note` must fail.
        let is_held = |number: u64| number == 102 || number > 146;
        window.note(unnamed(51, 151), &is_held).unwrap();
        assert_eq!(
            (number(&window, 47), number(&window, 2)),
            (Some(147), Some(102))
        );
        let refused = window.note(unnamed(52, 152), &is_held);
        assert!(matches!(refused, Err(NoteError::NoPlace)));
        // A message that has left the queue frees its place.
        window
            .note(unnamed(52, 152), &|number| number > 146)
            .unwrap();
        assert_eq!((number(&window, 48), number(&window, 2)), (Some(148), None));
    }

    #[test]
    fn notes_without_a_flush_stay_few() {
        let (_home, _, mut window) = new_window((4096, 0));
        for sequence in 1..=10_000 {
            window.note(unnamed(sequence, 1), &|_| false).unwrap();
            assert!(window.unwritten.len() < MOST_UNWRITTEN, "{sequence}");
        }
        let written = Layout::read(&window.file, 7).unwrap().entries;
        let newest = written.iter().map(|entry| entry.sequence).max().unwrap();
        assert!(newest > 10_000 - MOST_UNWRITTEN as u64, "{newest}");
    }

    #[test]
    fn a_message_that_is_stored_twice_is_found_by_its_name_in_the_window_only() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("w");
        let named = |sequence, name| Entry {
            name,
            ..unnamed(sequence, sequence + 100)
        };
        let sequence = |window: &Window, name| window.find_name(name).map(|entry| entry.sequence);
        // The names differ in the upper word only, as the names of two queues' messages do.
        let [one, other] = [1_u128 << 64 | 5, 2_u128 << 64 | 5];
        let mut window = Window::open(&path, 7, (4, 1)).unwrap();
        window.note(named(1, one), &|_| false).unwrap();
        window.note(named(2, other), &|_| false).unwrap();
        assert_eq!(sequence(&window, one), Some(1));
        // The second copy is noted with its own sequence, so the name stays in the window longer.
        window.note(named(3, one), &|_| false).unwrap();
        drop(window);
        let mut window = Window::open(&path, 7, (4, 1)).unwrap();
        assert_eq!(
            [one, other].map(|name| sequence(&window, name)),
            [Some(3), Some(2)]
        );
        window.note(named(5, 0), &|_| false).unwrap();
        assert_eq!(sequence(&window, one), Some(3));
        // The message of sequence 2 is held, so the window keeps its name.
        window.note(named(6, 0), &|number| number == 102).unwrap();
        window.note(named(7, 0), &|number| number == 102).unwrap();
        assert_eq!(
            [one, other].map(|name| sequence(&window, name)),
            [None, Some(2)]
        );
        assert_eq!(window.names.len(), 1);
        window.note(named(8, 0), &|_| false).unwrap();
        window.note(named(9, 0), &|number| number == 105).unwrap();
        assert_eq!(sequence(&window, other), None);
        assert_eq!(window.names.len(), 0);
    }
}
