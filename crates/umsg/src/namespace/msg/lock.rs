//! The lock under which a user's names change: flock(2) on a directory that only the user and root can open (`own_directory.rs`).
//!
//! In a sticky directory, only the owner of a file and root remove its name. Root takes the owner's lock before it removes a name. So if two
//! processes find the same stale name, the slower process does not remove the new file of the faster process. Conflicts between users need no lock:
//! if two users create a name, link(2) and symlink(2) let one user succeed.
//!
//! The kernel releases the lock when its holder dies, at any instruction. A *stopped* holder keeps the lock. If no name changes for
//! [`PATIENCE`], the user's other processes get an error that names the holder. Processes that need no lock continue.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{self, AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::{self, Errno};

use super::files::Files;
use super::own_directory::LOCK;
use crate::namespace::caller;
use crate::namespace::directory::Directory;
use crate::namespace::error::NamespaceError;
use crate::namespace::file_error::FileError;
use umsg_shm::sys::stack::nap;
use umsg_shm::sys::thread::{self, Thread};

/// The time that a change of names waits for other processes that hold the lock and change no names. A change takes some microseconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// If other processes change names during the wait, the longest wait is this number of times longer.
const LONGER: u32 = 10;
/// The first and the longest sleep between two attempts.
const NAPS: [Duration; 2] = [Duration::from_micros(20), Duration::from_millis(2)];

/// The lock, held until it is dropped. While it is held, signal handlers that call [`crate::signals::defer`] are deferred, because a handler that
/// creates a queue would wait for its own thread.
pub(crate) struct Locked {
    /// The user that owns the lock.
    user: u32,
    directory: OwnedFd,
    me: &'static Thread,
}

impl Files {
    /// Waits for the caller's lock. The wait ends when no name has changed for `patience`, and at the latest after ten times `patience`.
    ///
    /// # Errors
    /// `Namespace(Busy)`; `TooManyFiles`; `Namespace(NotWritable)`; `Namespace(NoQueuesDirectory)`.
    pub(crate) fn lock(&self, patience: Duration) -> Result<Locked, FileError> {
        self.lock_in(&self.own()?, caller(), patience)
    }

    /// Waits for the lock of a user. Processes that may remove that user's files call this.
    ///
    /// # Errors
    /// The errors of [`lock`](Self::lock); `NotFound` if the user has no lock, because the user has created no queue; `Denied`.
    pub(crate) fn lock_of(&self, user: u32, patience: Duration) -> Result<Locked, FileError> {
        if user == caller() {
            return self.lock(patience);
        }
        let own = self.own_of(user)?.ok_or(FileError::NotFound)?;
        self.lock_in(&own, user, patience)
    }

    fn lock_in(&self, own: &Path, user: u32, patience: Duration) -> Result<Locked, FileError> {
        let directory = open(&own.join(LOCK)).map_err(|e| FileError::of("open", e))?;
        let mut wait = None;
        let mut goes_on = || {
            wait.get_or_insert_with(|| Wait::begin(self.directory(), patience))
                .goes_on(self.directory())
        };
        loop {
            match attempt(&directory) {
                Ok(me) => {
                    return Ok(Locked {
                        user,
                        directory,
                        me,
                    });
                }
                Err(Errno::WOULDBLOCK | Errno::INTR) if goes_on() => {}
                Err(Errno::WOULDBLOCK | Errno::INTR) => return Err(self.busy(&directory)),
                Err(e) => return Err(FileError::of("flock", e)),
            }
        }
    }

    fn busy(&self, directory: &OwnedFd) -> FileError {
        let path = self.directory().path().to_owned();
        let holder = holder(directory);
        NamespaceError::Busy { path, holder }.into()
    }
}

/// Opens a lock, which is a directory. Other files are not opened.
fn open(lock: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match fs::open(lock, flags, Mode::empty()) {
        // An unusual umask took the owner's permissions away when the directory was created.
        Err(Errno::ACCESS) => {
            fs::chmod(lock, Mode::RWXU)?;
            fs::open(lock, flags, Mode::empty())
        }
        opened => opened,
    }
}

/// A wait for other processes that create and remove queues.
struct Wait {
    patience: Duration,
    last: Instant,
    /// The time at which the wait ends. If a name has changed by then, the wait is extended.
    end: Instant,
    /// The time of the last change of a name.
    changed: Option<(i64, i64)>,
    nap: Duration,
}

impl Wait {
    fn begin(directory: &Directory, patience: Duration) -> Wait {
        let now = Instant::now();
        Wait {
            patience,
            last: now + patience * LONGER,
            end: now + patience,
            changed: changed(directory),
            nap: NAPS[0],
        }
    }

    /// Sleeps for a moment. Returns false if the wait has lasted too long.
    fn goes_on(&mut self, directory: &Directory) -> bool {
        let now = Instant::now();
        if now >= self.end {
            let changed = changed(directory);
            if changed == self.changed || now >= self.last {
                return false;
            }
            (self.changed, self.end) = (changed, now + self.patience);
        }
        nap(self.nap);
        self.nap = (self.nap * 2).min(NAPS[1]);
        true
    }
}

/// Returns the time of the last creation or removal of a name in the directory.
fn changed(directory: &Directory) -> Option<(i64, i64)> {
    let (at, here) = directory.locate(".");
    let stat = fs::statat(at, &here, AtFlags::empty()).ok()?;
    Some((stat.st_mtime, stat.st_mtime_nsec as i64))
}

/// Takes the lock inside the thread's critical section, so that no signal handler runs while the thread holds the lock.
fn attempt(directory: &OwnedFd) -> Result<&'static Thread, Errno> {
    let me = thread::current();
    me.critical.enter();
    fs::flock(directory, FlockOperation::NonBlockingLockExclusive)
        .inspect_err(|_| me.critical.leave())?;
    Ok(me)
}

impl Locked {
    /// Returns whether this is the lock of `user`.
    pub(in crate::namespace) fn is_of(&self, user: u32) -> bool {
        self.user == user
    }
}

impl Drop for Locked {
    /// The unlock is explicit, because closing the file is not enough: a child that another thread forks meanwhile also holds the lock.
    fn drop(&mut self) {
        let _ = fs::flock(&self.directory, FlockOperation::Unlock);
        self.me.critical.leave();
    }
}

/// Returns the id of the process that holds the lock, from /proc/locks. None if /proc/locks does not show the process.
fn holder(directory: &OwnedFd) -> Option<u32> {
    let stat = fs::fstat(directory).ok()?;
    let (major, minor) = (fs::major(stat.st_dev), fs::minor(stat.st_dev));
    let file = format!("{major:02x}:{minor:02x}:{}", stat.st_ino);
    let locks = umsg_shm::sys::file::read("/proc/locks").ok()?;
    let locks = str::from_utf8(&locks).ok()?;
    let held = locks.lines().map(|line| line.split_ascii_whitespace());
    held.filter_map(|mut fields| {
        // An example of a line: `1: FLOCK  ADVISORY  WRITE 4242 00:1a:77 0 EOF`. In the line of a waiting process, an arrow follows the first number.
        let is_flock = fields.nth(1) == Some("FLOCK");
        let process = fields.nth(2)?;
        (is_flock && fields.next() == Some(file.as_str())).then_some(process)
    })
    .find_map(|process| process.parse().ok().filter(|process| *process != 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::testing::TestDir;

    #[test]
    fn a_wait_that_is_too_long_reports_the_holder_of_the_lock() {
        let dir = TestDir::new();
        let files = dir.namespace().msg_files().unwrap();
        let held = files.lock(PATIENCE).unwrap();
        let error = files.lock(PATIENCE / 10).err().unwrap();
        let FileError::Namespace(NamespaceError::Busy { path, holder }) = &error else {
            panic!("{error}");
        };
        assert_eq!(path, &dir.path().join("msg"));
        assert!(holder.is_none_or(|holder| holder == std::process::id()));
        drop(held);
        files.lock(PATIENCE).unwrap();
    }

    #[test]
    fn a_process_that_waits_while_others_make_queues_is_patient() {
        const SHORT: Duration = Duration::from_millis(400);
        let dir = TestDir::new();
        let files = dir.namespace().msg_files().unwrap();
        let mut names = 0..;
        // Returns the result of the waiter, and the longest time in which no name was made.
        let mut attempt = || {
            let held = files.lock(PATIENCE).unwrap();
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| files.lock(SHORT).map(drop));
                let (began, mut longest) = (Instant::now(), Duration::ZERO);
                let mut last = began;
                while began.elapsed() < 3 * SHORT {
                    let name = format!("x{}", names.next().unwrap());
                    std::fs::write(dir.path().join("msg").join(name), b"").unwrap();
                    std::thread::sleep(SHORT / 20);
                    longest = longest.max(last.elapsed());
                    last = Instant::now();
                }
                drop(held);
                longest = longest.max(last.elapsed());
                (waiter.join().unwrap(), longest)
            })
        };
        let began = Instant::now();
        // If this thread loses its processor for a long time, the waiter rightly gives up. The test then repeats the attempt.
        while let (Err(error), longest) = attempt() {
            assert!(longest > SHORT / 2, "{error}");
            assert!(began.elapsed() < Duration::from_secs(60), "{longest:?}");
        }
    }

    #[test]
    fn one_thread_at_a_time_holds_the_lock() {
        let dir = TestDir::new();
        let namespace = dir.namespace();
        let counter = dir.path().join("counter");
        std::fs::write(&counter, "0").unwrap();
        let count = || {
            for _ in 0..50 {
                let _held = namespace.msg_files().unwrap().lock(PATIENCE).unwrap();
                let seen: u32 = std::fs::read_to_string(&counter).unwrap().parse().unwrap();
                std::fs::write(&counter, (seen + 1).to_string()).unwrap();
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(count);
            }
        });
        assert_eq!(std::fs::read_to_string(&counter).unwrap(), "200");
    }
}
