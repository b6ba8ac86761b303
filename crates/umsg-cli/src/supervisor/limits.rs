//! The limits in /proc/sys that programs have open for writing.
//!
//! A program that opens such a limit gets a file in memory ([`umsg::kernel_files::limit`]). Its writes reach the file, and not the supervisor.
//! inotify(7) notes a write before it returns. So the supervisor sets the limit before it answers the next call of any of its programs, and its
//! watch wakes up at once for all other processes. The close of the last descriptor ends the watch of a file.

use std::collections::HashMap;
use std::ffi::CString;
use std::fmt::Display;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::pid_t;
use rustix::fs::{Mode, OFlags, inotify};
use umsg::Namespace;
use umsg::kernel_files::limit::{self, Limit, SetError};

use super::memory;

/// The maximum number of bytes that the kernel reads of a write.
const MOST: usize = 4095;

/// A limit that a program has open for writing.
struct Open {
    limit: Limit,
    /// The same file, as an open file description of the supervisor's own.
    file: OwnedFd,
    can_read: bool,
    /// The thread that has opened the file, and the descriptor that it got.
    holder: Option<(pid_t, RawFd)>,
}

/// The open limits.
pub struct Limits {
    events: OwnedFd,
    open: Mutex<HashMap<i32, Open>>,
    /// False if no program has a limit open. Relaxed: a thread sets the word before its program gets the descriptor.
    any: AtomicBool,
}

fn path_of(file: BorrowedFd<'_>) -> CString {
    // A number has no NUL.
    CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap_or_default()
}

impl Limits {
    pub fn new() -> std::io::Result<Limits> {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        Ok(Limits {
            events: inotify::init(flags)?,
            open: Mutex::default(),
            any: AtomicBool::new(false),
        })
    }

    fn open(&self) -> MutexGuard<'_, HashMap<i32, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches a file that a program is about to get, or has inherited. `can_read` says whether the program can read
    /// the file, too. Returns the number of the watch.
    pub fn watch(&self, limit: Limit, file: BorrowedFd<'_>, can_read: bool) -> Result<i32, i32> {
        let errno = rustix::io::Errno::raw_os_error;
        let path = path_of(file);
        let events = inotify::WatchFlags::MODIFY | inotify::WatchFlags::CLOSE_WRITE;
        let mut open = self.open();
        let number = inotify::add_watch(&self.events, &path, events).map_err(errno)?;
        // A program may have inherited several descriptors of one file.
        if open.contains_key(&number) {
            return Ok(number);
        }
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open(&path, flags, Mode::empty()).map_err(errno)?;
        self.any.store(true, Ordering::Relaxed);
        let holder = None;
        open.insert(
            number,
            Open {
                limit,
                file,
                can_read,
                holder,
            },
        );
        Ok(number)
    }

    /// Notes the descriptor that a program has got.
    pub fn note(&self, watch: i32, thread: pid_t, number: RawFd) {
        if let Some(open) = self.open().get_mut(&watch) {
            open.holder = Some((thread, number));
        }
    }

    /// Gives a watch up: no program has got the file.
    pub fn forget(&self, watch: i32) {
        if self.open().remove(&watch).is_some() {
            let _ = inotify::remove_watch(&self.events, watch);
        }
    }

    /// Sets the limits that programs have written. Reports each refused value.
    #[inline]
    pub fn settle(&self, refused: impl Fn(Limit, &dyn Display)) {
        if self.any.load(Ordering::Relaxed) {
            self.settle_slow(refused);
        }
    }

    #[cold]
    fn settle_slow(&self, refused: impl Fn(Limit, &dyn Display)) {
        let mut open = self.open();
        let mut room = [MaybeUninit::uninit(); 1024];
        let mut events = inotify::Reader::new(&self.events, &mut room);
        while let Ok(event) = events.next() {
            let Some(entry) = open.get_mut(&event.wd()) else {
                continue;
            };
            entry.settle(&refused);
            let is_closed = event.events().contains(inotify::ReadFlags::CLOSE_WRITE);
            // A program may have closed another open file description, of /dev/stdout for example.
            if is_closed && !entry.is_held() {
                open.remove(&event.wd());
                let _ = inotify::remove_watch(&self.events, event.wd());
            }
        }
        self.any.store(!open.is_empty(), Ordering::Relaxed);
    }
}

impl AsFd for Limits {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

impl Open {
    /// Sets the limit to what was written, and has the file show the present value.
    fn settle(&mut self, refused: impl Fn(Limit, &dyn Display)) {
        // The old text is behind the bytes that a program has written at the beginning.
        let most = match self.can_read {
            false => MOST,
            true if limit::is_written(self.file.as_fd()) => self.written().unwrap_or(MOST),
            true => return,
        };
        let mut text = vec![0; most.min(MOST)];
        let len = rustix::io::pread(&self.file, &mut text[..], 0).unwrap_or(0);
        text.truncate(len);
        // The supervisor's own changes below are events, too, and leave a file that can't be read empty.
        if text.is_empty() && !self.can_read {
            return;
        }
        // If the first byte is zero, the write was not at the beginning of the file, which the kernel ignores.
        let is_new = !matches!(text.first(), None | Some(0));
        let Ok(namespace) = Namespace::of_this_process() else {
            return;
        };
        if is_new && let Err(error) = self.limit.set(namespace, &text) {
            match &error {
                SetError::Namespace(error) => refused(self.limit, error),
                SetError::Invalid => {
                    let text = text.escape_ascii();
                    refused(self.limit, &format_args!("\"{text}\" is no valid value"));
                }
            }
        }
        let shown = match self.can_read {
            true => self.limit.text(namespace).unwrap_or_default(),
            false => String::new(),
        };
        // A failure leaves the old value to be read.
        let _ = rustix::fs::ftruncate(&self.file, shown.len() as u64);
        let _ = rustix::io::pwrite(&self.file, shown.as_bytes(), 0);
        limit::mark_unwritten(self.file.as_fd());
    }

    /// Returns whether the thread that has opened the file still has it.
    fn is_held(&self) -> bool {
        let found = self.holder.and_then(|(thread, number)| {
            std::fs::metadata(format!("/proc/{thread}/fd/{number}")).ok()
        });
        let own = rustix::fs::fstat(&self.file).ok();
        found
            .zip(own)
            .is_some_and(|(found, own)| (found.dev(), found.ino()) == (own.st_dev, own.st_ino))
    }

    /// Returns the position up to which the program has written, in bytes. None if it is not known: the program has moved on, or the descriptor.
    fn written(&self) -> Option<usize> {
        let (thread, number) = self.holder?;
        let theirs = memory::copy_descriptor(thread, number).ok()?;
        let same = |file: BorrowedFd<'_>| rustix::fs::fstat(file).map(|it| (it.st_dev, it.st_ino));
        if same(theirs.as_fd()).ok()? != same(self.file.as_fd()).ok()? {
            return None;
        }
        let position = rustix::fs::tell(&theirs).ok()?;
        usize::try_from(position)
            .ok()
            .filter(|position| *position > 0)
    }
}
