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
    /// Opens the file, or begins a new one: if there is none, or if the file is of another stream, another queue or another capacity.
    ///
    /// # Errors
    /// The errors of the file.
    pub fn open(
        path: &Path,
        key: u64,
        (capacity, most_kept): (usize, usize),
    ) -> io::Result<Window> {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600);
        let file = options.open(path)?;
        // The file is locked, because two processes would not see each other's notes. The lock ends with the process.
        let lock = rustix::fs::FlockOperation::NonBlockingLockExclusive;
        rustix::fs::flock(&file, lock).map_err(|_| {
            io::Error::other("another process runs a bridge of this name in this namespace")
        })?;
        let mut head = [0; HEAD];
        head[..8].copy_from_slice(MAGIC);
        head[8..16].copy_from_slice(&key.to_le_bytes());
        head[16..24].copy_from_slice(&(capacity as u64).to_le_bytes());
        head[24..32].copy_from_slice(&(most_kept as u64).to_le_bytes());
        let mut bytes = vec![0; HEAD + (capacity + most_kept) * ENTRY];
        let is_ours = file.read_exact_at(&mut bytes, 0).is_ok() && bytes[..HEAD] == head;
        if !is_ours {
            bytes.fill(0);
            // In this order, a death leaves an empty file or a complete file.
            file.set_len(0)?;
            file.set_len(bytes.len() as u64)?;
            file.write_all_at(&head, 0)?;
        }
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        let mut entries: Vec<(u64, u64)> = bytes[HEAD..]
            .chunks_exact(ENTRY)
            .map(|entry| (word(&entry[..8]), word(&entry[8..])))
            .collect();
        let kept = entries.split_off(capacity);
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
    fn another_stream_or_capacity_begins_again() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("w");
        Window::open(&path, 7, (4, 0))
            .unwrap()
            .note(3, 1, &|_| false)
            .unwrap();
        assert_eq!(Window::open(&path, 8, (4, 0)).unwrap().find(3), None);
        Window::open(&path, 8, (4, 0))
            .unwrap()
            .note(3, 1, &|_| false)
            .unwrap();
        assert_eq!(Window::open(&path, 8, (8, 0)).unwrap().find(3), None);
        std::fs::write(&path, b"short").unwrap();
        assert_eq!(Window::open(&path, 8, (8, 0)).unwrap().find(3), None);
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
