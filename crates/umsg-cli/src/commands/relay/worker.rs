//! The thread of a pair. It waits in a queue. The main thread interrupts it when the relay ends, or when the name of a queue leads to another queue
//! or to none.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::inotify::{self, WatchFlags};
use umsg::Namespace;

use super::board::Board;
use super::pair::Pair;
use super::{posix, sysv};
use crate::address::Address;
use crate::ending::wait_for;

/// The time between two attempts of a pair that had an error.
const RETRY: Duration = Duration::from_secs(1);

/// The reason why a pair stops carrying.
#[derive(Debug)]
pub enum Halt {
    /// The relay ends.
    Stop,
    /// The name of a queue leads to another queue or to none: the pair opens its queues again.
    Gone,
    /// An error, after which the pair tries again.
    Trouble(String),
}

/// The state that all pairs share with the main thread.
pub struct Scene {
    pub namespace: Namespace,
    pub creates: bool,
    /// The dead-letter queues for POSIX and for System V messages.
    pub dead_letters: Vec<Address>,
    stops: AtomicBool,
    stopped: OwnedFd,
    /// The event that tells the main thread that a thread of a pair has ended.
    pub over: OwnedFd,
    /// The inotify instance that reports changes of queues' names.
    pub changes: OwnedFd,
}

impl Scene {
    pub fn new(
        namespace: Namespace,
        creates: bool,
        dead_letters: Vec<Address>,
    ) -> std::io::Result<Scene> {
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        Ok(Scene {
            namespace,
            creates,
            dead_letters,
            stops: AtomicBool::new(false),
            stopped: event()?,
            over: event()?,
            changes: inotify::init(flags)?,
        })
    }

    pub fn stop(&self) {
        // Release: pairs with the Acquire in `is_stopped`. A thread that the event wakes sees that the flag is set.
        self.stops.store(true, Ordering::Release);
        raise(&self.stopped);
    }

    pub fn is_stopped(&self) -> bool {
        // Acquire: pairs with the Release in `stop`.
        self.stops.load(Ordering::Acquire)
    }

    /// Waits until the time of the next attempt, or until the relay ends.
    fn pause(&self) {
        wait_for([self.stopped.as_fd()], Some(RETRY));
    }
}

fn raise(event: &OwnedFd) {
    // The write fails only if the counter has its highest value. Then the descriptor is readable already.
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

/// A pair, its counts, and the fields by which the main thread interrupts it.
pub struct Worker {
    pub pair: Pair,
    pub board: Board,
    /// The id of the pair's thread; 0 if no thread runs.
    pub thread: AtomicI32,
    /// The main thread sets this flag when the name of a queue may lead to another queue or to none.
    pub looks: AtomicBool,
    /// Set after a message that no queue accepts. While the flag is set, the pair peeks at the first message, and leases it only if a queue accepts
    /// it now: each lease counts as a delivery.
    pub is_blocked: AtomicBool,
    /// The inotify watches of the queues' names.
    watches: Mutex<Vec<i32>>,
}

/// The open queues of a pair.
pub enum Ends {
    Posix(Box<posix::Ends>),
    Sysv(Box<sysv::Ends>),
}

/// A message that has left its source queue, but is not yet in its destination queue: its priority or type, and its bytes.
pub type Hand = Option<(i64, Vec<u8>)>;

/// The two parameters that all functions of a pair's thread need: the [`Worker`] of the pair, and the [`Scene`] that all pairs share.
#[derive(Clone, Copy)]
pub struct Crew<'a> {
    pub worker: &'a Worker,
    pub scene: &'a Scene,
}

impl Worker {
    pub fn new(pair: Pair, is_json: bool) -> Worker {
        Worker {
            board: Board::new(&pair, is_json),
            pair,
            thread: AtomicI32::new(0),
            looks: AtomicBool::new(false),
            is_blocked: AtomicBool::new(false),
            watches: Mutex::new(Vec::new()),
        }
    }

    /// Returns whether a watch belongs to this pair.
    pub fn has_watch(&self, watch: i32) -> bool {
        let watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        watches.contains(&watch)
    }

    pub fn open(&self, scene: &Scene) -> Result<Ends, String> {
        let crew = Crew {
            worker: self,
            scene,
        };
        match &self.pair.kernel {
            Address::Posix(_) => posix::Ends::open(crew).map(|ends| Ends::Posix(Box::new(ends))),
            Address::SystemV(_) => sysv::Ends::open(crew).map(|ends| Ends::Sysv(Box::new(ends))),
        }
    }

    /// Carries messages until the relay ends.
    pub fn run(&self, scene: &Scene, ends: Ends) {
        let _over = Over(scene);
        let _interruptible = crate::lookout::mark(&self.thread, true);
        let crew = Crew {
            worker: self,
            scene,
        };
        let mut hand = None;
        let mut ends = Some(ends);
        while !scene.is_stopped() {
            let opened = match ends.take() {
                Some(opened) => Ok(opened),
                None => self.open(scene),
            };
            let halt = match opened {
                Ok(Ends::Posix(ends)) => ends.carry(crew, &mut hand),
                Ok(Ends::Sysv(ends)) => ends.carry(crew, &mut hand),
                Err(why) => Halt::Trouble(why),
            };
            if let Halt::Trouble(why) = halt {
                self.board.waits(&why);
                scene.pause();
            }
        }
        if let Some(message) = hand {
            self.put_back(message);
        }
    }

    /// Returns a message to the kernel's queue, because umsg's queue has not accepted it.
    fn put_back(&self, (key, message): (i64, Vec<u8>)) {
        let returned = match &self.pair.kernel {
            Address::Posix(name) => posix::put_back(name, key, &message),
            Address::SystemV(label) => sysv::put_back(*label, key, &message),
        };
        if let Err(error) = returned {
            eprintln!(
                "umsg: {}: a message of {} bytes is lost: umsg's queue did not accept the message, and the message could not be returned to the kernel's queue: {error}",
                self.pair,
                message.len()
            );
        }
    }
}

struct Over<'a>(&'a Scene);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        raise(&self.0.over);
    }
}

impl Crew<'_> {
    /// Returns whether the relay ends, or the name of a queue may have changed. A pair calls this function before each message: while its queues are
    /// neither empty nor full, the pair does not wait, so no signal interrupts it.
    pub fn is_asked(&self) -> bool {
        // Relaxed: the flag is only a hint. `interrupted` reads it again with Acquire.
        self.scene.is_stopped() || self.worker.looks.load(Ordering::Relaxed)
    }

    /// Handles an interruption. Fails if the relay ends, or if the name of a queue leads to another queue or to none.
    pub fn interrupted(&self, is_current: impl Fn() -> bool) -> Result<(), Halt> {
        if self.scene.is_stopped() {
            return Err(Halt::Stop);
        }
        // Acquire: pairs with the Release in `pass_on`. So `is_current` sees the change of the name that caused the flag.
        if self.worker.looks.swap(false, Ordering::Acquire) && !is_current() {
            return Err(Halt::Gone);
        }
        Ok(())
    }

    /// Returns whether a message that no queue accepts has blocked the pair. Relaxed: only the thread of the pair uses the flag.
    pub fn is_blocked(&self) -> bool {
        self.worker.is_blocked.load(Ordering::Relaxed)
    }

    /// Records whether a message that no queue accepts blocks the pair.
    pub fn set_blocked(&self, is_blocked: bool) {
        self.worker.is_blocked.store(is_blocked, Ordering::Relaxed);
    }

    /// Makes the main thread interrupt this thread when the name of an open file is removed.
    pub fn watch_open(&self, file: BorrowedFd<'_>) -> Result<(), String> {
        use std::os::fd::AsRawFd;
        self.watch(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())))
    }

    /// Makes the main thread interrupt this thread when the name of the file at a path is removed.
    pub fn watch(&self, path: &Path) -> Result<(), String> {
        let flags = WatchFlags::ATTRIB | WatchFlags::MOVE_SELF | WatchFlags::DELETE_SELF;
        let watch = inotify::add_watch(&self.scene.changes, path, flags).map_err(|error| {
            format!("the removal of the queue can't be watched: inotify: {error}")
        })?;
        let watches = &self.worker.watches;
        let mut watches = watches.lock().unwrap_or_else(PoisonError::into_inner);
        if !watches.contains(&watch) {
            watches.push(watch);
        }
        Ok(())
    }

    /// Clears the list of watches, before the queues are opened again.
    pub fn forget_watches(&self) {
        let watches = &self.worker.watches;
        watches
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}
