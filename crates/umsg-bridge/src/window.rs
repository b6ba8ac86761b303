//! The window in which redeliveries are recognised: the last sequences that were placed in the queue, in a file beside the namespace's queues.
//!
//! The entry of a sequence stands at the sequence modulo the capacity, so that an entry is one write of 16 bytes, and a lookup is one read of memory.
//! A write to a file outlasts the death of the process. Neither the write nor the queue outlasts a crash of the machine.
//!
//! | bytes | |
//! |---|---|
//! | 0..8 | `UMSGBRW1` |
//! | 8..16 | the key: which stream, since when, and which queue. A file with another key begins empty: the sequences of a new stream, and the messages of a new queue, have nothing to do with the old ones |
//! | 16..24 | the capacity, in sequences |
//! | 24..32 | the number of kept entries |
//! | 64.. | entries: the sequence, and the number of the message in the queue |
//! | behind them | kept entries: sequences that would have left the window, whose messages a durable queue still has |
//!
//! An entry is kept before another sequence takes its place, so that a death between the two writes leaves it twice, and never absent.
//!
//! A file of another capacity is copied to a new file, which takes the name when it is complete. The newest sequences that fit stay.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::hash::Hasher;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

const MAGIC: &[u8; 8] = b"UMSGBRW1";
const HEAD: usize = 64;
const ENTRY: usize = 16;

/// The sequences, in memory and in the file.
#[derive(Debug)]
pub struct Window {
    file: File,
    entries: Vec<(u64, u64)>,
    kept: Vec<(u64, u64)>,
    /// The places of the kept entries, by sequence.
    places: HashMap<u64, usize>,
    /// The kept entry that is looked at first.
    next: usize,
}

impl Window {
    /// Opens the file, or begins a new one: if there is none, or if the file is of another stream or another queue. A file of another capacity keeps
    /// the newest sequences that fit.
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
                    entries: vec![(0, 0); capacity],
                    kept: vec![(0, 0); most_kept],
                };
                layout.take(&found.unwrap_or_default());
                let beside = path.with_extension("window.new");
                let file = lock(&beside)?;
                file.set_len(0)?;
                file.write_all_at(&layout.bytes(key), 0)?;
                // A death before this step leaves the old file.
                std::fs::rename(&beside, path)?;
                (file, layout)
            }
        };
        let places = kept.iter().enumerate();
        let places = places
            .filter(|(_, entry)| entry.0 != 0)
            .map(|(at, entry)| (entry.0, at));
        Ok(Window {
            places: places.collect(),
            file,
            entries,
            kept,
            next: 0,
        })
    }

    /// Notes that the message of a sequence is in the queue, under this number. `is_held` tells of a message that must stay in the window: a durable
    /// queue still has it, so that the server may deliver it again.
    ///
    /// # Errors
    /// `StorageFull`, and nothing is noted: `is_held` holds for more messages than there are places. The errors of the file: the window then knows the
    /// sequence only as long as the process lives.
    pub fn note(
        &mut self,
        sequence: u64,
        number: u64,
        is_held: &dyn Fn(u64) -> bool,
    ) -> io::Result<()> {
        let at = (sequence % self.entries.len() as u64) as usize;
        let old = self.entries[at];
        if old.0 != 0 && old.0 != sequence && !self.kept.is_empty() && is_held(old.1) {
            self.keep(old, is_held)?;
        }
        self.entries[at] = (sequence, number);
        self.write(at, (sequence, number))
    }

    /// Keeps an entry in the place of one that is not held any more. There are as many places as the queue has for messages.
    fn keep(&mut self, entry: (u64, u64), is_held: &dyn Fn(u64) -> bool) -> io::Result<()> {
        let most = self.kept.len();
        let is_free = |at: usize| self.kept[at].0 == 0 || !is_held(self.kept[at].1);
        let Some(at) = (0..most)
            .map(|n| (self.next + n) % most)
            .find(|at| is_free(*at))
        else {
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                "more messages are unconsumed than the queue can hold",
            ));
        };
        self.next = at + 1;
        self.places.remove(&self.kept[at].0);
        self.places.insert(entry.0, at);
        self.kept[at] = entry;
        self.write(self.entries.len() + at, entry)
    }

    fn write(&self, at: usize, (sequence, number): (u64, u64)) -> io::Result<()> {
        let mut entry = [0; ENTRY];
        entry[..8].copy_from_slice(&sequence.to_le_bytes());
        entry[8..].copy_from_slice(&number.to_le_bytes());
        self.file.write_all_at(&entry, (HEAD + at * ENTRY) as u64)
    }

    /// Returns the numbers of all messages in the window.
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        let all = self.entries.iter().chain(&self.kept);
        all.filter(|entry| entry.0 != 0).map(|entry| entry.1)
    }

    /// Returns the number of the message of a sequence that was placed. None if no message was placed, or if the sequence has left the window.
    #[must_use]
    pub fn find(&self, sequence: u64) -> Option<u64> {
        let at = (sequence % self.entries.len() as u64) as usize;
        let (noted, number) = self.entries[at];
        match noted == sequence && sequence != 0 {
            true => Some(number),
            false => self.places.get(&sequence).map(|at| self.kept[*at].1),
        }
    }
}

/// Opens a file of a window, and locks it, because two processes would not see each other's notes. The lock ends with the process.
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

/// The contents of a file.
#[derive(Debug, Default)]
struct Layout {
    entries: Vec<(u64, u64)>,
    kept: Vec<(u64, u64)>,
}

impl Layout {
    /// Reads a file with this key. None: the file is empty, of another key, or incomplete.
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
        let mut entries: Vec<(u64, u64)> = bytes
            .chunks_exact(ENTRY)
            .map(|entry| (word(&entry[..8]), word(&entry[8..])))
            .collect();
        let kept = entries.split_off(capacity as usize);
        Some(Layout { entries, kept })
    }

    fn is_of(&self, capacity: usize, most_kept: usize) -> bool {
        (self.entries.len(), self.kept.len()) == (capacity, most_kept)
    }

    /// Takes the entries of another layout. The newest ones have the first choice of a place. The places of kept entries are for those that were kept, and
    /// then for the newest others.
    fn take(&mut self, other: &Layout) {
        let newest_first = |entries: &[(u64, u64)]| {
            let mut used: Vec<_> = entries.iter().filter(|entry| entry.0 != 0).copied().collect();
            used.sort_unstable_by(|one, two| two.cmp(one));
            used
        };
        let (newest, kept) = (newest_first(&other.entries), newest_first(&other.kept));
        let mut left = [Vec::new(), Vec::new()];
        for (left, entries) in left.iter_mut().zip([newest, kept]) {
            for entry in entries {
                let at = (entry.0 % self.entries.len() as u64) as usize;
                match self.entries[at].0 {
                    0 => self.entries[at] = entry,
                    _ => left.push(entry),
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
        for (sequence, number) in self.entries.iter().chain(&self.kept) {
            bytes.extend(sequence.to_le_bytes());
            bytes.extend(number.to_le_bytes());
        }
        bytes
    }
}

/// Mixes words into a key, the same in each process and version.
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

    #[test]
    fn sequences_are_found_by_the_next_process_until_the_window_has_passed() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("w");
        let mut window = Window::open(&path, 7, (4, 0)).unwrap();
        for sequence in 1..=6 {
            window.note(sequence, sequence + 100, &|_| false).unwrap();
        }
        drop(window);
        let window = Window::open(&path, 7, (4, 0)).unwrap();
        let found: Vec<_> = (0..=7).map(|sequence| window.find(sequence)).collect();
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
            window.note(3, 1, &|_| false).unwrap();
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
        assert_eq!(Window::open(&path, 8, (4, 0)).unwrap().find(3), Some(1));
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
            window.note(sequence, sequence + 100, &|_| false).unwrap();
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
            assert_eq!(window.find(50), Some(150));
        }
        // The new file is locked, too.
        let first = Window::open(&path, 7, (6, 0)).unwrap();
        Window::open(&path, 7, (6, 0)).unwrap_err();
        drop(first);
        let mut window = Window::open(&path, 7, (6, 0)).unwrap();
        window.note(51, 151, &|_| false).unwrap();
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
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("w");
        let mut window = Window::open(&path, 7, (4, 2)).unwrap();
        // The message of the sequence 2 stays, the others leave at once.
        for sequence in 1..=50 {
            window
                .note(sequence, sequence + 100, &|number| number == 102)
                .unwrap();
        }
        assert_eq!(window.find(2), Some(102));
        drop(window);
        let mut window = Window::open(&path, 7, (4, 2)).unwrap();
        let found: Vec<_> = (0..=51)
            .filter(|sequence| window.find(*sequence).is_some())
            .collect();
        assert_eq!(found, [2, 47, 48, 49, 50]);
        // Two have places, a third has none: the bridge must not forget it silently.
        let is_held = |number: u64| number == 102 || number > 146;
        window.note(51, 151, &is_held).unwrap();
        assert_eq!((window.find(47), window.find(2)), (Some(147), Some(102)));
        window.note(52, 152, &is_held).unwrap_err();
        // A message that has left makes room.
        window.note(52, 152, &|number| number > 146).unwrap();
        assert_eq!((window.find(48), window.find(2)), (Some(148), None));
    }
}
