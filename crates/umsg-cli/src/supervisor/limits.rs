//! The limits in /proc/sys that programs have open for writing.
//!
//! A program that opens a limit for writing gets a file in memory ([`umsg::kernel_files::limit`]). The program's writes change only this file, and
//! make no call to the supervisor. But inotify(7) records a write before the write returns. So the supervisor sets the limit before it answers the
//! next call of a supervised program. For other processes, the supervisor's watch thread wakes up and sets the limit at once. When the last
//! descriptor for writing is closed, the supervisor ends the inotify watch of the file.
//!
//! If a program opens a limit for reading and writing, the file shows the present number after some [`TABS`]. A write at the beginning replaces tabs,
//! so the written text ends before the old number: `5` written over the number 10 is 5, and not 50. The position of the descriptor doesn't matter.

use std::collections::HashMap;
use std::ffi::CString;
use std::fmt::Display;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use libc::pid_t;
use rustix::event::epoll;
use rustix::fs::{Mode, OFlags, inotify};
use umsg::kernel_files::limit::{self, Limit, SetError};

use super::namespaces::Queues;

/// The kernel reads at most this number of bytes of a write to a limit.
const MOST: usize = 4095;

/// The bytes before the number in a file that is open for reading and writing: one more than the longest number has digits. Programs that read a
/// number skip tabs, and programs that write a number begin with another byte.
const TABS: [u8; 11] = [b'\t'; 11];

/// A limit that a program has open for writing.
struct Open {
    limit: Limit,
    /// The queues of the IPC namespace in which the program opened the limit.
    queues: Arc<Queues>,
    /// The file in memory that the program writes. The descriptor has an open file description of its own, which belongs to the supervisor.
    file: OwnedFd,
    can_read: bool,
    /// The thread that opened the file, and the number of its descriptor. None until the program has the descriptor.
    holder: Option<(pid_t, RawFd)>,
}

/// The limits that programs have open for writing.
pub struct Limits {
    /// An epoll set that contains `events`, once `events` exists. It is ready when `events` is ready.
    ready: OwnedFd,
    /// The inotify instance. It is created with the first watch, because the number of instances of a user is limited.
    events: OnceLock<OwnedFd>,
    open: Mutex<HashMap<i32, Open>>,
    /// False if no program has a limit open. Relaxed: a thread sets the flag before its program gets the descriptor.
    any: AtomicBool,
}

fn path_of(file: BorrowedFd<'_>) -> CString {
    // The path is made of a number, so it has no NUL byte.
    CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap_or_default()
}

impl Limits {
    pub fn new() -> std::io::Result<Limits> {
        Ok(Limits {
            ready: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            events: OnceLock::new(),
            open: Mutex::default(),
            any: AtomicBool::new(false),
        })
    }

    fn open(&self) -> MutexGuard<'_, HashMap<i32, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the inotify instance, and creates it if it is missing. The caller holds the lock of `open`, so that only one instance is created.
    fn events(&self) -> rustix::io::Result<&OwnedFd> {
        if let Some(events) = self.events.get() {
            return Ok(events);
        }
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let events = inotify::init(flags)?;
        let data = epoll::EventData::new_u64(0);
        epoll::add(&self.ready, &events, data, epoll::EventFlags::IN)?;
        Ok(self.events.get_or_init(|| events))
    }

    /// Watches the file of a limit that a program is about to get, or has inherited. `can_read` says whether the program can also read the file.
    /// Returns the number of the watch.
    pub fn watch(
        &self,
        queues: &Arc<Queues>,
        limit: Limit,
        file: BorrowedFd<'_>,
        can_read: bool,
    ) -> Result<i32, i32> {
        let errno = rustix::io::Errno::raw_os_error;
        let path = path_of(file);
        let watched = inotify::WatchFlags::MODIFY | inotify::WatchFlags::CLOSE_WRITE;
        let mut open = self.open();
        let events = self.events().map_err(errno)?;
        // From now on, `settle` reads all events. It also reads the events of a watch that is removed below.
        self.any.store(true, Ordering::Relaxed);
        let number = inotify::add_watch(events, &path, watched).map_err(errno)?;
        // A program may have inherited several descriptors of one file.
        if open.contains_key(&number) {
            return Ok(number);
        }
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open(&path, flags, Mode::empty()).map_err(|error| {
            let _ = inotify::remove_watch(events, number);
            errno(error)
        })?;
        let entry = Open {
            limit,
            queues: Arc::clone(queues),
            file,
            can_read,
            holder: None,
        };
        if can_read {
            entry.show();
        }
        open.insert(number, entry);
        Ok(number)
    }

    /// Records the descriptor that a program has got for a watched file.
    pub fn note(&self, watch: i32, thread: pid_t, number: RawFd) {
        if let Some(open) = self.open().get_mut(&watch) {
            open.holder = Some((thread, number));
        }
    }

    /// Removes the watch of a file, because the supervisor could not give the file to the program.
    pub fn forget(&self, watch: i32) {
        let is_known = self.open().remove(&watch).is_some();
        if let Some(events) = self.events.get().filter(|_| is_known) {
            let _ = inotify::remove_watch(events, watch);
        }
    }

    /// Sets the limits that programs have written. Calls `refused` for each value that is refused.
    #[inline]
    pub fn settle(&self, refused: impl Fn(Limit, &dyn Display)) {
        if self.any.load(Ordering::Relaxed) {
            self.settle_slow(refused);
        }
    }

    #[cold]
    fn settle_slow(&self, refused: impl Fn(Limit, &dyn Display)) {
        let mut open = self.open();
        let Some(events) = self.events.get() else {
            return;
        };
        let mut room = [MaybeUninit::uninit(); 1024];
        let mut reader = inotify::Reader::new(events, &mut room);
        while let Ok(event) = reader.next() {
            let Some(entry) = open.get(&event.wd()) else {
                continue;
            };
            entry.settle(&refused);
            let is_closed = event.events().contains(inotify::ReadFlags::CLOSE_WRITE);
            // The closed descriptor may be that of another open file description of the same file, for example of /dev/stdout. So the supervisor
            // watches the limit as long as its program has the recorded descriptor.
            if is_closed && !entry.is_held() {
                open.remove(&event.wd());
                let _ = inotify::remove_watch(events, event.wd());
            }
        }
        self.any.store(!open.is_empty(), Ordering::Relaxed);
    }
}

impl AsFd for Limits {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

impl Open {
    /// Sets the limit to the value that the program wrote, and makes the file show the present value.
    fn settle(&self, refused: impl Fn(Limit, &dyn Display)) {
        let is_written = || limit::is_written(self.file.as_fd());
        // A file without read permission is empty until a program writes to it. So any text in it is new.
        let is_new = !self.can_read || is_written();
        let mut text = vec![0; MOST];
        let len = rustix::io::pread(&self.file, &mut text[..], 0).unwrap_or(0);
        text.truncate(len);
        if !is_new {
            // If the text begins with tabs, the supervisor wrote it. Otherwise the drop-in of another process wrote the text, a number without tabs.
            // Then the supervisor adds the tabs.
            if !text.starts_with(&TABS) && !is_written() {
                self.show();
            }
            return;
        }
        if text.is_empty() && !self.can_read {
            return;
        }
        // Like the kernel, ignores a write that is not at the beginning of the file. Such a write leaves the first byte unchanged or zero.
        let first = text.first().copied().unwrap_or(0);
        let is_ignored = first == 0 || self.can_read && first == TABS[0];
        if !is_ignored {
            self.set(&text, refused);
        }
        self.show();
    }

    /// Sets the limit to the number at the beginning of `text`.
    fn set(&self, text: &[u8], refused: impl Fn(Limit, &dyn Display)) {
        let written = match text.get(..TABS.len()) {
            Some(beginning) if self.can_read => beginning,
            _ => text,
        };
        // If no white space ends the written text, digits of the old number may follow the new number.
        let has_end = written.last().is_some_and(u8::is_ascii_whitespace);
        if written.len() < text.len() && !has_end {
            refused(
                self.limit,
                &"the limit keeps its value: the program wrote more than 10 characters to a file that is open for reading and writing. Open the file write-only, or write a shorter text",
            );
            return;
        }
        match self.limit.set(self.queues.namespace(), written) {
            Ok(_) => {}
            Err(SetError::Namespace(error)) => refused(self.limit, &error),
            Err(SetError::Invalid) => {
                let text = written.trim_ascii_end().escape_ascii();
                refused(self.limit, &format_args!("\"{text}\" is no valid value"));
            }
        }
    }

    /// If a program can read the file, makes the file show the present value. Otherwise empties the file.
    fn show(&self) {
        let shown = match self
            .can_read
            .then(|| self.limit.text(self.queues.namespace()))
        {
            None => Vec::new(),
            Some(Ok(text)) => [TABS.as_slice(), text.as_bytes()].concat(),
            // If the limit's present value can't be read, the file keeps the old text.
            Some(Err(_)) => return,
        };
        // If the write fails, the file also keeps the old text.
        if rustix::io::pwrite(&self.file, &shown, 0).is_ok() {
            let _ = rustix::fs::ftruncate(&self.file, shown.len() as u64);
            limit::mark_unwritten(self.file.as_fd());
        }
    }

    /// Returns whether the thread that opened the file still has its descriptor.
    fn is_held(&self) -> bool {
        let found = self.holder.and_then(|(thread, number)| {
            std::fs::metadata(format!("/proc/{thread}/fd/{number}")).ok()
        });
        let own = rustix::fs::fstat(&self.file).ok();
        found
            .zip(own)
            .is_some_and(|(found, own)| (found.dev(), found.ino()) == (own.st_dev, own.st_ino))
    }
}
