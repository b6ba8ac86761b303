//! A process that may open a queue's file for writing, and does as much damage as it can.

use super::PATIENCE;
use super::support::{Random, wait_until};
use super::watch::Record;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

const PAGE: usize = 4096;
/// The number of bytes at the start of the file in which nearly every word controls an operation.
const FIXED: usize = 3072;

/// The method of the attacker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Writes through a mapping, at any speed.
    Scribble,
    /// Writes to the file, and cuts it short and lengthens it.
    Cut,
}

/// An attacker's view of a file.
pub struct Vandal<'a> {
    file: File,
    /// The file's words, if the file is mapped.
    words: Option<&'static [AtomicU32]>,
    len: usize,
    /// The pages that were not empty when the attack began, and their contents.
    pristine: Vec<(usize, Vec<u8>)>,
    /// The ids of living processes.
    pids: Vec<u32>,
    record: &'a Record,
    random: Random,
}

impl<'a> Vandal<'a> {
    pub fn new(
        path: &Path,
        manner: Manner,
        pids: &[i32],
        record: &'a Record,
        random: Random,
    ) -> Vandal<'a> {
        // The victim that owns a ring removes it and creates it anew, so there may be no file for a moment.
        let mut file = None;
        let is_open = wait_until(PATIENCE, || {
            file = File::options().read(true).write(true).open(path).ok();
            file.is_some()
        });
        assert!(is_open, "no file that its users may write");
        let file = file.expect("a file");
        let len = file.metadata().expect("metadata").len() as usize;
        let mut pids: Vec<u32> = pids.iter().map(|&pid| pid as u32).collect();
        pids.push(std::process::id());
        Vandal {
            words: (manner == Manner::Scribble).then(|| map(&file, len)),
            pristine: pages_in_use(&file, len),
            file,
            len,
            pids,
            record,
            random,
        }
    }

    /// Attacks until the supervisor orders the end.
    pub fn rage(&mut self) {
        // The rate lies between an occasional word and as many words as the machine can write.
        let pause = [0, 20, 200, 2000][self.random.below(4) as usize];
        while self.record.goes_on() {
            for _ in 0..=self.random.below(8) {
                self.strike();
            }
            if pause != 0 {
                std::thread::sleep(Duration::from_micros(self.random.below(pause)));
            }
        }
        // Clears the owners of locks in the saved pages: after the restore, a process that waits for such a lock may continue.
        self.free_locks();
        self.restore();
    }

    /// Overwrites some words, without restoring them.
    pub fn scribble(&mut self, words: u32) {
        (0..words).for_each(|_| self.overwrite_word());
    }

    fn strike(&mut self) {
        match self.random.below(64) {
            0 => self.overwrite_page(),
            // Restores sound pages for a moment, so that there is more to break.
            1 => self.restore(),
            2 if self.words.is_none() => self.cut(),
            _ => self.overwrite_word(),
        }
    }

    fn cut(&mut self) {
        let len = match self.random.below(4) {
            0 => 0,
            1 => self.random.below(16) as usize * PAGE,
            _ => self.random.below(self.len as u64) as usize,
        };
        self.file.set_len(len as u64).expect("a shorter file");
        std::thread::sleep(Duration::from_micros(self.random.below(300)));
        self.file.set_len(self.len as u64).expect("a longer file");
        self.record.cuts.fetch_add(1, SeqCst);
        if self.random.below(2) == 0 {
            self.restore();
        }
    }

    fn restore(&mut self) {
        for index in 0..self.pristine.len() {
            let (offset, bytes) = self.pristine[index].clone();
            self.write(offset, &bytes);
        }
        self.record.pages.fetch_add(1, SeqCst);
    }

    /// Removes the owners of locks from the saved pages: the processes owned these locks when the pages were read.
    fn free_locks(&mut self) {
        let pages = self.pristine.iter_mut().map(|(_, bytes)| bytes);
        for word in pages.flat_map(|bytes| bytes.chunks_exact_mut(4)) {
            let value = u32::from_ne_bytes(word.try_into().expect("four bytes"));
            if self.pids.contains(&(value & libc::FUTEX_TID_MASK)) {
                word.fill(0);
            }
        }
    }

    fn overwrite_page(&mut self) {
        let offset = self.place() / PAGE * PAGE;
        let mut bytes = vec![0; PAGE];
        match self.random.below(4) {
            0 => {}
            1 => bytes.fill(0xff),
            2 => bytes
                .iter_mut()
                .for_each(|byte| *byte = self.random.next() as u8),
            // Overwrites a page with bytes from another page of the same file.
            _ => {
                let other = self.place() / PAGE * PAGE;
                let read = self.file.read_at(&mut bytes, other as u64);
                bytes.truncate(read.unwrap_or(0));
            }
        }
        self.write(offset, &bytes);
        self.record.pages.fetch_add(1, SeqCst);
    }

    fn overwrite_word(&mut self) {
        let offset = self.place();
        let word = self.word(offset);
        if self.random.below(4) == 0 {
            // Both halves of a word of 64 bits are overwritten.
            let other = self.word(offset ^ 4);
            self.write(offset ^ 4, &other.to_ne_bytes());
        }
        self.write(offset, &word.to_ne_bytes());
        self.record.words.fetch_add(1, SeqCst);
    }

    /// Returns the next offset to overwrite, a multiple of four: mostly in the parts that are in use.
    fn place(&mut self) -> usize {
        let random = &mut self.random;
        let offset = match random.below(8) {
            0..=3 => random.below(FIXED as u64) as usize,
            4..=6 if !self.pristine.is_empty() => {
                let page = random.below(self.pristine.len() as u64) as usize;
                self.pristine[page].0 + random.below(PAGE as u64) as usize
            }
            _ => random.below(self.len as u64 - 8) as usize,
        };
        offset / 4 * 4
    }

    /// Chooses the word to write at an offset: a random or a plausible one.
    fn word(&mut self, offset: usize) -> u32 {
        let there = self.read(offset);
        let elsewhere = self.place();
        let random = &mut self.random;
        let near = random.below(5) as u32;
        let pid = self.pids[random.below(self.pids.len() as u64) as usize];
        match random.below(16) {
            0 => random.next() as u32,
            1 => there ^ 1 << random.below(32),
            2 => there.wrapping_add(near).wrapping_sub(2),
            3 => 0,
            4 => u32::MAX - near,
            5 => random.below(200) as u32,
            6 => (1_u32 << random.below(32))
                .wrapping_add(near)
                .wrapping_sub(2),
            7 => self.len as u32 / (1 << random.below(8)),
            // Words of a lock: a living owner; a living owner with sleepers; the mark of a dead owner; an owner that lends the lock.
            8 => pid,
            9 => pid | libc::FUTEX_WAITERS,
            10 => libc::FUTEX_OWNER_DIED | (random.below(2) as u32) << 31,
            11 => libc::FUTEX_TID_MASK - near,
            _ => self.read(elsewhere),
        }
    }

    fn read(&self, offset: usize) -> u32 {
        match self.words {
            // Relaxed: other threads may be writing these words.
            Some(words) => words[offset / 4].load(Relaxed),
            None => {
                let mut bytes = [0; 4];
                let _ = self.file.read_at(&mut bytes, offset as u64);
                u32::from_ne_bytes(bytes)
            }
        }
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        match self.words {
            Some(words) => {
                for (word, bytes) in words[offset / 4..].iter().zip(bytes.chunks_exact(4)) {
                    let value = u32::from_ne_bytes(bytes.try_into().expect("four bytes"));
                    word.store(value, Relaxed);
                }
            }
            None => {
                let room = self.len.saturating_sub(offset);
                let bytes = &bytes[..bytes.len().min(room)];
                self.file.write_all_at(bytes, offset as u64).expect("room");
            }
        }
    }
}

/// Returns a file's whole words, mapped for as long as the process lives.
fn map(file: &File, len: usize) -> &'static [AtomicU32] {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the mapping is new, has the file's length, and stays. No process truncates the file in this scenario. The words are atomics, because
    // other processes write them.
    unsafe {
        let base = libc::mmap(
            null_mut(),
            len,
            access,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        );
        assert_ne!(base, libc::MAP_FAILED, "a mapping");
        std::slice::from_raw_parts(base.cast::<AtomicU32>(), len / 4)
    }
}

/// Returns the pages of a file that are not empty.
fn pages_in_use(file: &File, len: usize) -> Vec<(usize, Vec<u8>)> {
    let mut pages = real_pages(file, len);
    pages.retain(|(_, bytes)| bytes.iter().any(|byte| *byte != 0));
    pages
}

/// Returns the pages of a file that are not in holes.
pub fn real_pages(file: &File, len: usize) -> Vec<(usize, Vec<u8>)> {
    let mut pages = Vec::new();
    let mut from = 0;
    // SAFETY: the call moves the position of a descriptor of this process, which nothing else uses.
    let seek =
        |from: usize, whence| unsafe { libc::lseek(file.as_raw_fd(), from as libc::off_t, whence) };
    while let Ok(start) = usize::try_from(seek(from, libc::SEEK_DATA)) {
        let end = usize::try_from(seek(start, libc::SEEK_HOLE)).unwrap_or(len);
        for offset in (start / PAGE * PAGE..end).step_by(PAGE) {
            let mut bytes = vec![0; PAGE.min(len - offset)];
            file.read_exact_at(&mut bytes, offset as u64)
                .expect("a page");
            pages.push((offset, bytes));
        }
        from = end;
    }
    pages
}
