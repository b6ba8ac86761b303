//! The namespaces of the supervised programs. A program in another IPC namespace of the kernel has other queues ([`umsg::ipc`]).
//!
//! The kernel moves single threads between IPC namespaces, so each thread has its own. A thread's first call tells its IPC namespace, by a link in
//! /proc; the calls that may change it reach the supervisor ([`super::filter`]). Descriptors lead to their queues without a namespace.
//!
//! The supervisor removes the directory of an IPC namespace when no process is in it any more, like the drop-in in the last process.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use umsg::ipc::{Identity, Pin, Resolver};
use umsg::sysv::raw::Table;
use umsg::{Namespace, NamespaceError};

use super::paths::Directory;
use super::watch::TICK;

/// The pause between two searches of /proc for the processes of IPC namespaces, as a multiple of the time that the last search took.
const PAUSES: u32 = 20;

/// The longest pause between two searches.
const MOST: Duration = Duration::from_secs(10);

/// How long the supervisor waits, at its end, for the ends of processes.
const LAST: Duration = Duration::from_secs(2);

/// The queues of an IPC namespace.
pub struct Queues {
    pub sysv: Table,
    /// The device and the inode of the namespace's directory.
    pub identity: (u64, u64),
    pub directory: Directory,
    _pin: Option<Pin>,
}

impl Queues {
    fn new(namespace: Namespace, pin: Option<Pin>) -> Queues {
        // Without a directory, calls fail, and no other command asks for it.
        let found = std::fs::metadata(namespace.path());
        Queues {
            identity: found.map_or((0, 0), |found| (found.dev(), found.ino())),
            sysv: Table::new(namespace),
            directory: Directory::default(),
            _pin: pin,
        }
    }

    pub fn namespace(&self) -> &Namespace {
        self.sysv.namespace()
    }
}

/// All queues of the programs.
pub struct Namespaces {
    base: Arc<Queues>,
    /// None if all IPC namespaces have the same queues.
    resolver: Option<Resolver>,
    others: Mutex<HashMap<Identity, Arc<Queues>>>,
    /// Set once a program has opened /dev/mqueue. Relaxed: the program gets the descriptor later.
    has_directory: AtomicBool,
    /// Set once a program may have moved to another IPC namespace. Relaxed: it is read after the end of the program.
    has_moved: AtomicBool,
    /// The time of the next search for ended IPC namespaces. Held during each search.
    next_search: Mutex<Instant>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Namespaces {
    /// `home` is the value of `$UMSG_IPC_NAMESPACE` for the programs.
    pub fn new(base: Namespace, home: &str) -> Namespaces {
        Namespaces {
            resolver: Resolver::new(base.clone(), home),
            base: Arc::new(Queues::new(base, None)),
            others: Mutex::default(),
            has_directory: AtomicBool::new(false),
            has_moved: AtomicBool::new(false),
            next_search: Mutex::new(Instant::now()),
        }
    }

    /// Returns the queues of the IPC namespace to which a link of /proc leads.
    pub fn at(&self, link: &str) -> Result<Arc<Queues>, NamespaceError> {
        let Some(resolver) = &self.resolver else {
            return Ok(Arc::clone(&self.base));
        };
        let Some(of) = resolver.identify(link)? else {
            return Ok(Arc::clone(&self.base));
        };
        if let Some(known) = lock(&self.others).get(&of) {
            return Ok(Arc::clone(known));
        }
        self.note_move();
        let (namespace, pin) = resolver.follow(link, of)?;
        let new = Arc::new(Queues::new(namespace, Some(pin)));
        // Another thread may have found it meanwhile.
        Ok(Arc::clone(lock(&self.others).entry(of).or_insert(new)))
    }

    /// Notes that a program has opened the directory that stands for /dev/mqueue.
    pub fn note_directory(&self, queues: &Queues, device: u64, inode: u64) {
        queues.directory.note(device, inode);
        self.has_directory.store(true, Ordering::Relaxed);
    }

    pub fn has_directory(&self) -> bool {
        self.has_directory.load(Ordering::Relaxed)
    }

    /// Returns the queues whose directory stands for /dev/mqueue and has this identity.
    pub fn with_directory(&self, identity: (u64, u64)) -> Option<Arc<Queues>> {
        let is_it = |queues: &&Arc<Queues>| queues.directory.identity() == Some(identity);
        let others = lock(&self.others);
        let mut all = std::iter::once(&self.base).chain(others.values());
        all.find(is_it).map(Arc::clone)
    }

    /// Notes that a program may have moved to another IPC namespace.
    pub fn note_move(&self) {
        self.has_moved.store(true, Ordering::Relaxed);
    }

    /// Removes the directories of the IPC namespaces that have ended.
    pub fn sweep(&self) {
        let begin = Instant::now();
        let mut next = lock(&self.next_search);
        if *next <= begin {
            self.search();
            *next = Instant::now() + (begin.elapsed() * PAUSES).min(MOST);
        }
    }

    /// Removes the directories of all IPC namespaces in which no process is left. The last program has lost its filter, and may still be in its IPC
    /// namespace for a moment.
    pub fn end_all(&self) {
        let begin = Instant::now();
        // The caller ends the process: another thread's search is over then, and none begins.
        let _next = lock(&self.next_search);
        let mut pause = TICK;
        while self.search() && self.has_moved.load(Ordering::Relaxed) && begin.elapsed() < LAST {
            std::thread::sleep(pause);
            pause *= 2;
        }
    }

    /// Removes the directories of IPC namespaces that have ended, also of those in which only programs on the drop-in have used queues. Returns
    /// whether any other is left.
    fn search(&self) -> bool {
        let is_left = self.resolver.as_ref().is_some_and(Resolver::sweep);
        // No thread that has made a call lives in the other ones.
        lock(&self.others).retain(|_, queues| queues.namespace().path().exists());
        is_left
    }
}
