//! A flag that forked children share, as they share the O_NONBLOCK of an open file.
//!
//! A flag is a word of a page that is mapped shared. The first word of the page counts the used words. So a process and its forked child, which
//! share the page, take different words. A word is never used again. A process unmaps the page when it drops the last of its flags in the page.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

const WORDS: usize = 1024;
const PAGE_BYTES: usize = WORDS * size_of::<AtomicU32>();

/// The page from which the next word is taken. No thread waits for this lock: if the lock is taken, `Flag::new` maps another page.
static CURRENT: Mutex<Option<Arc<Page>>> = Mutex::new(None);

pub(crate) struct Flag {
    page: Arc<Page>,
    word: usize,
}

impl Flag {
    /// Creates a flag.
    ///
    /// # Errors
    /// Fails if there is no memory for the flag.
    pub(crate) fn new(value: bool) -> io::Result<Flag> {
        let flag = match CURRENT.try_lock() {
            Ok(mut current) => match current.as_ref().and_then(Page::take_word) {
                Some(flag) => flag,
                None => current.insert(Page::map()?).first_word()?,
            },
            // Another thread holds the lock, or held it when this process was forked.
            Err(_) => Page::map()?.first_word()?,
        };
        flag.set(value);
        Ok(flag)
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> bool {
        // Relaxed: the flag publishes no other data.
        self.page.words()[self.word].load(Ordering::Relaxed) != 0
    }

    pub(crate) fn set(&self, value: bool) {
        // Relaxed: the flag publishes no other data, as in `get`.
        self.page.words()[self.word].store(value.into(), Ordering::Relaxed);
    }
}

/// A mapped page.
struct Page(NonNull<[AtomicU32; WORDS]>);

// SAFETY: the page consists of atomics, which threads may share, and stays mapped until `self` is dropped.
unsafe impl Send for Page {}
// SAFETY: the page consists of atomics, which threads may share, and stays mapped until `self` is dropped.
unsafe impl Sync for Page {}

impl Page {
    fn map() -> io::Result<Arc<Page>> {
        // SAFETY: the call requests no address, so it replaces no existing mapping.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGE_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        match NonNull::new(start) {
            Some(start) if start.as_ptr() != libc::MAP_FAILED => Ok(Arc::new(Page(start.cast()))),
            _ => Err(io::Error::last_os_error()),
        }
    }

    #[inline(always)]
    fn words(&self) -> &[AtomicU32; WORDS] {
        // SAFETY: the page is mapped and aligned. The page contains only atomics, and starts with zeroes, which are valid values.
        unsafe { self.0.as_ref() }
    }

    /// Takes the next word. Returns None if no word is left.
    fn take_word(self: &Arc<Page>) -> Option<Flag> {
        // Relaxed: the counter publishes no other data. The counter may exceed the number of words; each process then maps another page.
        let word = self.words()[0].fetch_add(1, Ordering::Relaxed) as usize + 1;
        (word < WORDS).then(|| Flag {
            page: Arc::clone(self),
            word,
        })
    }

    fn first_word(self: &Arc<Page>) -> io::Result<Flag> {
        self.take_word()
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: this is the whole mapping that `map` made, and no reference to it is left.
        unsafe { libc::munmap(self.0.as_ptr().cast(), PAGE_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_apart_from_each_other() {
        let flags: Vec<Flag> = (0..3 * WORDS)
            .map(|index| Flag::new(index % 3 == 0).unwrap())
            .collect();
        for (index, flag) in flags.iter().enumerate() {
            assert_eq!(flag.get(), index % 3 == 0);
            flag.set(index % 2 == 0);
        }
        for (index, flag) in flags.iter().enumerate() {
            assert_eq!(flag.get(), index % 2 == 0);
        }
    }

    #[test]
    fn a_flag_can_be_had_while_another_thread_makes_one() {
        let _busy = CURRENT
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let flag = Flag::new(true).unwrap();
        assert!(flag.get());
    }
}
