//! The IPC namespaces of the supervised programs. Programs in different IPC namespaces of the kernel use different queues ([`umsg::ipc`]).
//!
//! The kernel moves single threads between IPC namespaces, so each thread has its own IPC namespace. At a thread's first call, the supervisor reads
//! the thread's IPC namespace from a link in /proc. The calls that may change the IPC namespace reach the supervisor ([`super::filter`]). A
//! descriptor refers to its queue in any IPC namespace.
//!
//! When the last process has left an IPC namespace, the supervisor removes the namespace's directory. Under the drop-in, the last process removes it.

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

/// After a search of /proc for the processes of IPC namespaces, the next search waits for this multiple of the search's duration.
const PAUSES: u32 = 20;

/// The longest wait between two searches of /proc for the processes of IPC namespaces.
const MOST: Duration = Duration::from_secs(10);

/// The maximum time for which a supervisor that is about to end waits for processes to leave their IPC namespaces.
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
        // If the directory is missing, calls on the queues fail, and the identity is (0, 0). No directory has this identity, so another `umsg run`
        // never asks for it.
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

/// The queues of all IPC namespaces of the programs.
pub struct Namespaces {
    base: Arc<Queues>,
    /// None if all IPC namespaces share their queues.
    resolver: Option<Resolver>,
    others: Mutex<HashMap<Identity, Arc<Queues>>>,
    /// Set once a program has opened /dev/mqueue. Relaxed: the program gets the descriptor only after this store.
    has_directory: AtomicBool,
    /// Set once a program may have moved to another IPC namespace. Relaxed: the supervisor reads the flag only after the last program has ended.
    has_moved: AtomicBool,
    /// The time of the next search for IPC namespaces without a process. The lock is held during each search.
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
        // If another thread has inserted this IPC namespace meanwhile, that thread's entry stays.
        Ok(Arc::clone(lock(&self.others).entry(of).or_insert(new)))
    }

    /// Records that a program has opened the directory that the supervisor shows as /dev/mqueue.
    pub fn note_directory(&self, queues: &Queues, device: u64, inode: u64) {
        queues.directory.note(device, inode);
        self.has_directory.store(true, Ordering::Relaxed);
    }

    pub fn has_directory(&self) -> bool {
        self.has_directory.load(Ordering::Relaxed)
    }

    /// Returns the IPC namespace's queues whose directory, shown as /dev/mqueue, has this device and inode.
    pub fn with_directory(&self, identity: (u64, u64)) -> Option<Arc<Queues>> {
        let is_it = |queues: &&Arc<Queues>| queues.directory.identity() == Some(identity);
        let others = lock(&self.others);
        let mut all = std::iter::once(&self.base).chain(others.values());
        all.find(is_it).map(Arc::clone)
    }

    /// Records that a program may have moved to another IPC namespace.
    pub fn note_move(&self) {
        self.has_moved.store(true, Ordering::Relaxed);
    }

    /// If the next search is due, removes the directories of IPC namespaces without a process.
    pub fn sweep(&self) {
        let begin = Instant::now();
        let mut next = lock(&self.next_search);
        if *next <= begin {
            self.search();
            *next = Instant::now() + (begin.elapsed() * PAUSES).min(MOST);
        }
    }

    /// Removes the directories of all IPC namespaces without a process. Retries for a short time: the last program has released its filter, but may
    /// still be in its IPC namespace for a moment.
    pub fn end_all(&self) {
        let begin = Instant::now();
        // The lock waits for the search of another thread, and prevents a new one, because the caller ends the process.
        let _next = lock(&self.next_search);
        let mut pause = TICK;
        while self.search() && self.has_moved.load(Ordering::Relaxed) && begin.elapsed() < LAST {
            std::thread::sleep(pause);
            pause *= 2;
        }
    }

    /// Removes the directories of IPC namespaces without a process, including those in which only programs with the drop-in have used queues. Returns
    /// whether directories of other IPC namespaces are left.
    fn search(&self) -> bool {
        let is_left = self.resolver.as_ref().is_some_and(Resolver::sweep);
        // If the directory of an IPC namespace was removed, no supervised thread of that namespace lives. So its entry is not needed any more.
        lock(&self.others).retain(|_, queues| queues.namespace().path().exists());
        is_left
    }
}
