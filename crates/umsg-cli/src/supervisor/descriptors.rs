//! The descriptors of the supervised programs that refer to queues.
//!
//! For each recorded descriptor of a program, the supervisor keeps its own descriptor of the same open file description. So it can compare, by
//! kcmp(2), whether a program's descriptor number still refers to that description. Programs close descriptors without a call to the supervisor:
//! [`Descriptors::sweep`] finds the closed ones.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libc::pid_t;
use rustix::fs::{FileType, Mode, OFlags};
use umsg::SegmentError;
use umsg::posix::{OpenError, Queue, name_of_file, withdraw_notification};

use super::cookies::{Cookie, Mailbox, WITHDRAWN};
use super::memory;

/// A queue, as one open file description of a program refers to it.
pub struct Opened {
    pub file: OwnedFd,
    pub queue: Arc<Queue>,
    /// The maximum length of a message, in bytes.
    pub message_size: usize,
    access: OFlags,
    /// True if `file` is the FIFO through which the queue is polled. False if `file` is the queue's own file.
    pub is_pollable: bool,
}

impl Opened {
    pub fn new(file: OwnedFd, queue: Arc<Queue>) -> Result<Opened, i32> {
        let flags = rustix::fs::fcntl_getfl(&file).map_err(rustix::io::Errno::raw_os_error)?;
        Ok(Opened {
            access: flags & OFlags::RWMODE,
            message_size: queue.attributes().message_size,
            file,
            queue,
            is_pollable: false,
        })
    }

    /// Opens the FIFO of the queue, which poll(2) needs.
    pub fn pollable(&self) -> std::io::Result<Opened> {
        let fifo = self.queue.pollable()?.as_raw_fd();
        let flags = rustix::fs::fcntl_getfl(&self.file)? & OFlags::NONBLOCK;
        let flags = flags | OFlags::RDWR | OFlags::CLOEXEC;
        let path = format!("/proc/self/fd/{fifo}");
        Ok(Opened {
            file: rustix::fs::open(path, flags, Mode::empty())?,
            queue: Arc::clone(&self.queue),
            message_size: self.message_size,
            access: self.access,
            is_pollable: true,
        })
    }

    /// Returns the same queue with another open file description of its FIFO.
    fn over(&self, file: OwnedFd) -> Opened {
        Opened {
            file,
            queue: Arc::clone(&self.queue),
            message_size: self.message_size,
            access: self.access,
            is_pollable: true,
        }
    }

    /// Returns the same queue with a file in memory, which shows the queue's state as a file of /dev/mqueue does. The access mode stays the same.
    pub fn shown_as(&self, file: OwnedFd) -> Opened {
        Opened {
            file,
            queue: Arc::clone(&self.queue),
            message_size: self.message_size,
            access: self.access,
            is_pollable: false,
        }
    }

    pub fn can_read(&self) -> bool {
        self.access != OFlags::WRONLY
    }

    pub fn can_write(&self) -> bool {
        self.access != OFlags::RDONLY
    }

    /// Returns whether the file has O_NONBLOCK. The function asks the kernel each time, because the program shares the open file description and may
    /// change the flag by fcntl(2).
    pub fn is_nonblocking(&self) -> bool {
        rustix::fs::fcntl_getfl(&self.file).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
    }
}

/// The process that is registered for a notification of a queue, and the descriptor by which it registered.
pub struct Registered {
    process: pid_t,
    number: RawFd,
    /// The device and inode of the queue.
    queue: (u64, u64),
    /// The files to which the descriptor may refer: the queue's own file, and later the FIFO through which the queue is polled.
    opened: Mutex<Vec<Arc<Opened>>>,
    /// The cookie of a registration with SIGEV_THREAD.
    cookie: Option<Arc<Cookie>>,
}

impl Registered {
    pub fn new(
        process: pid_t,
        number: RawFd,
        opened: Arc<Opened>,
        cookie: Option<Arc<Cookie>>,
    ) -> Registered {
        Registered {
            process,
            number,
            queue: opened.queue.identity(),
            opened: Mutex::new(vec![opened]),
            cookie,
        }
    }

    fn opened(&self) -> MutexGuard<'_, Vec<Arc<Opened>>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn withdraw(&self) {
        withdraw_notification(self.queue);
        if let Some(cookie) = &self.cookie {
            cookie.send(WITHDRAWN);
        }
    }

    /// Returns whether the process still has the descriptor. The kernel ends a registration when the process closes the descriptor, so the supervisor
    /// does the same.
    pub fn is_open(&self) -> bool {
        let leads_to = |opened: &Arc<Opened>| {
            memory::is_same_file(self.process, self.number, opened.file.as_fd())
        };
        self.opened().iter().any(leads_to)
    }
}

/// The descriptors and registrations that the supervisor has recorded. While the supervisor holds the lock of a map, it makes no call that another
/// process can delay.
#[derive(Default)]
pub struct Descriptors {
    /// The recorded queues, by thread and descriptor number.
    known: Mutex<HashMap<(pid_t, RawFd), Arc<Opened>>>,
    registrations: Mutex<Registrations>,
    /// The queues that programs poll, by the identity of the FIFO. An entry stays after all recorded descriptors are closed, because a forked child
    /// may use its copy of a descriptor much later.
    polled: Mutex<HashMap<(u64, u64), Arc<Opened>>>,
    /// This lock is held while a descriptor of a program is replaced.
    replacing: Mutex<()>,
    /// The number of openings in progress: a program may already use the queue, but the queue is not yet in `known`.
    opening: AtomicU32,
}

/// Counts an opening in progress, from before the program gets the descriptor until the queue is in `known`.
pub struct Opening<'a>(&'a AtomicU32);

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `may_know`. A thread that sees the lower count also sees the entry in `known`.
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// The registrations of programs, by the identity of the queue. The lock of this map is held while a process registers. The registration may have to
/// wait for a lock of the queue; all other calls of mq_notify then wait, too.
#[derive(Default)]
pub struct Registrations {
    all: HashMap<(u64, u64), Arc<Registered>>,
    pub mailboxes: Vec<Arc<Mailbox>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn identity(file: impl AsFd) -> Result<(u64, u64), i32> {
    let stat = rustix::fs::fstat(file).map_err(|_| libc::EBADF)?;
    Ok((stat.st_dev, stat.st_ino))
}

impl Descriptors {
    /// Returns the queue to which a thread's descriptor refers. `Ok(None)` means that the descriptor refers to no queue. Then the kernel performs the
    /// call.
    pub fn find(&self, thread: pid_t, number: RawFd) -> Result<Option<Arc<Opened>>, i32> {
        let known = lock(&self.known).get(&(thread, number)).map(Arc::clone);
        if let Some(known) = known
            && memory::is_same_file(thread, number, known.file.as_fd())
        {
            return Ok(Some(known));
        }
        self.find_slow(thread, number)
    }

    #[cold]
    fn find_slow(&self, thread: pid_t, number: RawFd) -> Result<Option<Arc<Opened>>, i32> {
        lock(&self.known).remove(&(thread, number));
        let file = memory::copy_descriptor(thread, number)?;
        let Some(found) = self.identify(file)? else {
            return Ok(None);
        };
        self.note(thread, number, &found);
        Ok(Some(found))
    }

    /// Finds the queue to which a file belongs. The file may be any file of a program, for example a file on a file system that does not respond.
    fn identify(&self, file: OwnedFd) -> Result<Option<Arc<Opened>>, i32> {
        let me = std::process::id().cast_signed();
        let same =
            |known: &Arc<Opened>| memory::is_same_file(me, file.as_raw_fd(), known.file.as_fd());
        let all: Vec<_> = lock(&self.known).values().map(Arc::clone).collect();
        if let Some(known) = all.into_iter().find(same) {
            return Ok(Some(known));
        }
        let stat = rustix::fs::fstat(&file).map_err(|_| libc::EBADF)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {}
            FileType::Fifo => {
                let polled = lock(&self.polled);
                let polled = polled.get(&(stat.st_dev, stat.st_ino));
                return Ok(polled.map(|polled| Arc::new(polled.over(file))));
            }
            _ => return Ok(None),
        }
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let Ok(path) = rustix::fs::readlink(path, Vec::new()) else {
            return Ok(None);
        };
        let path = path.as_bytes();
        let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
        if name_of_file(Path::new(OsStr::from_bytes(path))).is_none() {
            return Ok(None);
        }
        match Queue::from_fd(file.as_fd()) {
            Ok(queue) => Opened::new(file, Arc::new(queue)).map(|opened| Some(Arc::new(opened))),
            Err(
                OpenError::NotFound
                | OpenError::Segment(SegmentError::NotAQueue(_) | SegmentError::System { .. }),
            ) => Ok(None),
            Err(error) => Err(error.errno()),
        }
    }

    /// Marks that a program is about to get the descriptor of a queue. The program continues as soon as it has the descriptor. So another thread of
    /// the supervisor may get the program's next call before the queue is recorded.
    pub fn opening(&self) -> Opening<'_> {
        // Relaxed: the program gets the descriptor by a later system call of this thread, and makes its next call after that.
        self.opening.fetch_add(1, Ordering::Relaxed);
        Opening(&self.opening)
    }

    /// Returns whether one of these descriptor numbers may refer to a queue.
    pub fn may_know(&self, numbers: &[RawFd]) -> bool {
        // Acquire: pairs with the Release at the end of an opening. The load comes before the search in `known`: if no opening is in progress, each
        // queue that the calling program has open is in `known`.
        let is_opening = self.opening.load(Ordering::Acquire) != 0;
        !numbers.is_empty()
            && (is_opening
                || lock(&self.known)
                    .keys()
                    .any(|(_, number)| numbers.contains(number)))
    }

    pub fn note(&self, thread: pid_t, number: RawFd, opened: &Arc<Opened>) {
        lock(&self.known).insert((thread, number), Arc::clone(opened));
    }

    pub fn replacing(&self) -> MutexGuard<'_, ()> {
        lock(&self.replacing)
    }

    pub fn registrations(&self) -> MutexGuard<'_, Registrations> {
        lock(&self.registrations)
    }

    /// Records that a descriptor will refer to the FIFO of its queue. So a registration by this descriptor stays valid.
    pub fn expect_pollable(&self, number: RawFd, opened: &Arc<Opened>) {
        if let Some(registered) = self.registrations().all.get(&opened.queue.identity())
            && registered.number == number
            && registered.is_open()
        {
            registered.opened().push(Arc::clone(opened));
        }
    }

    /// Records that a descriptor now refers to the FIFO of its queue.
    pub fn note_pollable(&self, thread: pid_t, number: RawFd, opened: &Arc<Opened>) {
        if let Ok(identity) = identity(&opened.file) {
            lock(&self.polled).insert(identity, Arc::clone(opened));
        }
        self.note(thread, number, opened);
    }

    /// Removes the entries of descriptors that programs have closed, and of threads that have ended.
    pub fn sweep(&self) {
        let all: Vec<_> = lock(&self.known)
            .iter()
            .map(|(key, opened)| (*key, Arc::clone(opened)))
            .collect();
        for ((thread, number), opened) in all {
            if memory::is_same_file(thread, number, opened.file.as_fd()) {
                continue;
            }
            let mut known = lock(&self.known);
            let is_it = |now: &Arc<Opened>| Arc::ptr_eq(now, &opened);
            if known.get(&(thread, number)).is_some_and(is_it) {
                known.remove(&(thread, number));
            }
            // The entries are dropped after the lock is released, because dropping the last reference closes the queue.
        }
        self.registrations().sweep();
    }
}

impl Registrations {
    pub fn note(&mut self, registered: Arc<Registered>) {
        self.all.insert(registered.queue, registered);
    }

    /// Withdraws the registration of a process for a notification of a queue, if there is one.
    pub fn withdraw(&mut self, process: pid_t, queue: &Queue) {
        let identity = queue.identity();
        let is_theirs = |registered: &Arc<Registered>| registered.process == process;
        if self.all.get(&identity).is_some_and(is_theirs)
            && let Some(registered) = self.all.remove(&identity)
        {
            registered.withdraw();
        }
    }

    fn sweep(&mut self) {
        self.all.retain(|_, registered| {
            let stays = registered.is_open();
            if !stays {
                registered.withdraw();
            }
            stays
        });
        self.mailboxes.retain(|mailbox| mailbox.is_open());
    }
}
