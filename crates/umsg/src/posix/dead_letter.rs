//! The dead-letter queue: the destination of messages that a queue could not keep or deliver.
//!
//! The engine decides which messages are set aside (see `posix_engine/policy.rs` in `umsg-shm`). This module moves the messages that were set aside.
//!
//! The caller that moves a message acts with its own rights. Every process that may use the queue can have written the words
//! that the caller reads in the segment. Two rules keep such a process from using the caller's rights:
//!
//! - The name comes from a label that only the owner of the queue's file can have made (`namespace/dead_letters.rs`).
//! - The dead-letter queue belongs to the same owner as the queue. So no message reaches a queue of another user, even if a process has set up a
//!   queue for that purpose, or another user has taken the name.
//!
//! While one of these rules is broken, a message stays set aside. [`Undelivered`] names the broken rule.
//!
//! A move takes effect exactly once, even if its process dies at any step; see `posix/transfer.rs`. The move adds a history to the message.

use super::options::OpenOptions;
use super::queue::Queue;
use super::transfer;
use crate::error::OpenError;
use crate::last_close;
use crate::namespace::{DeadLetterLabel, Namespace};
use rustix::fd::BorrowedFd;
use rustix::fs::Stat;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use umsg_shm::crash::crash_point;
use umsg_shm::posix_engine::segment::Segment;
use umsg_shm::posix_engine::{Chore, Departure, Engine, LeaseHandle, Origin};
use umsg_shm::sys::clock::{self, Deadline};
use umsg_shm::sys::liveness::Liveness;
use umsg_shm::sys::{process, thread};

/// The time for which each step of a move waits for a lock whose owner is stopped. The time is short, because the calls that move messages have
/// deadlines.
const PATIENCE: Duration = Duration::from_millis(10);

/// The maximum number of messages that one call moves. The number is small, because the program makes the call for another purpose.
const MOST: u32 = 16;

/// Sends the messages that an engine has set aside to the dead-letter queue.
struct Mover {
    name: OsString,
    namespace: Namespace,
    /// The user that owns the file of the queue, and must own the file of the dead-letter queue.
    owner: u32,
    /// The name of the queue, with its slash; empty if unknown.
    source: Vec<u8>,
    /// The number that identifies the queue in records of arrivals: [`transfer::number`].
    number: u64,
    /// The machine's clock at the last failed attempt, in nanoseconds: one attempt in each tick of the coarse clock is enough.
    failed_at: AtomicU64,
    /// Moves whose end could not be recorded yet, each with its success or failure. A forked child has a copy of this list and of `unknown`, but must
    /// not end these moves: see [`Engine::end_move`].
    unfinished: Mutex<Vec<(LeaseHandle, bool)>>,
    /// Moves that dead processes began, and whose results are unknown yet.
    unknown: Mutex<Vec<LeaseHandle>>,
}

/// Returns the engine's chore for a queue with a dead-letter queue: the closure that moves set-aside messages to the dead-letter queue.
pub(super) fn chore(
    engine: &Engine,
    (namespace, source): (Option<&Namespace>, Option<&OsStr>),
    file: &Stat,
) -> Option<Chore> {
    let mover = Mover {
        owner: file.st_uid,
        source: source.map_or(Vec::new(), |name| name.as_bytes().to_vec()),
        number: transfer::number(file.st_ino, engine),
        name: OsString::from_vec(engine.policy().dead_letter.clone()?),
        namespace: namespace?.clone(),
        failed_at: AtomicU64::new(0),
        unfinished: Mutex::default(),
        unknown: Mutex::default(),
    };
    Some(Chore::new(move |engine| mover.run(engine)))
}

/// Reads the name of a queue's dead-letter queue from the queue's label, and stores the name in this process's `segment`.
pub(super) fn believe(segment: &mut Segment, namespace: Option<&Namespace>, file: &Stat) {
    let label = DeadLetterLabel {
        inode: file.st_ino,
        number: segment.policy().label,
    };
    if let Some(namespace) = namespace.filter(|_| label.number != 0) {
        let name = name(namespace, label, file.st_uid);
        segment.set_dead_letter(name.map(OsString::into_vec));
    }
}

fn name(namespace: &Namespace, label: DeadLetterLabel, owner: u32) -> Option<OsString> {
    Some(namespace.dead_letters(label, owner)?.with_slash())
}

/// The reason why messages stay set aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Undelivered {
    /// The queue's header names a dead-letter queue that the queue's owner did not set. A process has overwritten the header, or the
    /// owner of the file or of its label has changed since.
    #[error(
        "the queue's header names a dead-letter queue that the queue's owner did not set: repair the queue, or create it again"
    )]
    Unnamed,
    /// There is no dead-letter queue.
    #[error("the dead-letter queue does not exist")]
    Missing,
    /// The dead-letter queue belongs to another user than the queue.
    #[error("the queue and the dead-letter queue have different owners")]
    OtherOwner,
    /// The caller may not send to the dead-letter queue.
    #[error("the dead-letter queue's mode does not let this user send to it")]
    Denied,
    /// The dead-letter queue can't be used.
    #[error("the dead-letter queue can't be opened")]
    Unusable,
}

/// Returns the reason why the caller can't move a queue's set-aside messages. Returns `None` if the caller can move them as soon as the dead-letter
/// queue has room.
pub(super) fn undelivered(queue: &Queue) -> Option<Undelivered> {
    let segment = queue.engine.segment();
    let policy = segment.policy();
    // Relaxed: the number is only displayed.
    let aside = segment.fixed().leases.aside.load(Ordering::Relaxed);
    let is_any = policy.sets_aside() && aside != 0;
    if !is_any {
        return None;
    }
    match (&policy.dead_letter, &queue.namespace) {
        (Some(name), Some(namespace)) => {
            open(OsStr::from_bytes(name), namespace, queue.owner.0).err()
        }
        _ => Some(Undelivered::Unnamed),
    }
}

/// Returns the reason that [`undelivered`] returns, for a queue that is given by its file. Does not check whether messages are set aside.
pub(super) fn undelivered_of(file: BorrowedFd<'_>, namespace: &Namespace) -> Option<Undelivered> {
    let label = last_close::dead_letter_label(file)?;
    let owner = rustix::fs::fstat(file).ok()?.st_uid;
    match name(namespace, label, owner) {
        Some(name) => open(&name, namespace, owner).err(),
        None => Some(Undelivered::Unnamed),
    }
}

/// Writes the number of the queue's label into the queue's file, if the label exists and another number has replaced it. Returns whether the number
/// was written.
pub(super) fn relabel(file: BorrowedFd<'_>, namespace: &Namespace) -> bool {
    let Ok(stat) = rustix::fs::fstat(file) else {
        return false;
    };
    let is = last_close::dead_letter_label(file);
    match namespace.label_of(stat.st_ino, stat.st_uid) {
        Some(label) if is != Some(label) => last_close::set_dead_letter_label(file, label),
        _ => false,
    }
}

/// Opens a dead-letter queue to send to it. The dead-letter queue existed when the queue was created. If it is missing, the caller does not create
/// another one, because the new queue would belong to the user of the first caller. The caller reads nothing of a file that belongs to a user other
/// than `owner`.
fn open(name: &OsStr, namespace: &Namespace, owner: u32) -> Result<Queue, Undelivered> {
    match OpenOptions::open_of_owner(namespace, name, Some(owner)) {
        Ok(Some(queue)) => Ok(queue),
        Ok(None) => Err(Undelivered::OtherOwner),
        Err(OpenError::NotFound) => Err(Undelivered::Missing),
        Err(OpenError::PermissionDenied) => Err(Undelivered::Denied),
        Err(_) => Err(Undelivered::Unusable),
    }
}

impl Mover {
    fn run(&self, engine: &Engine) {
        let now = clock::monotonic_coarse();
        // Relaxed: the word only limits the rate of attempts.
        if self.failed_at.load(Ordering::Relaxed) == now {
            return;
        }
        if self.move_some(engine).is_none() {
            self.failed_at.store(now, Ordering::Relaxed);
        }
    }

    /// Moves some of the messages that are set aside. Returns `None` if a step can't be done now: then the message stays set aside.
    fn move_some(&self, engine: &Engine) -> Option<()> {
        self.finish(engine)?;
        // The dead-letter queue is opened for each move: a kept handle would continue to send to a removed queue.
        let queue = open(&self.name, &self.namespace, self.owner).ok()?;
        self.find_out(engine, &queue)?;
        transfer::forget_left_arrivals(engine, self.number, &queue, PATIENCE).ok()?;
        let me = thread::current();
        for _ in 0..MOST {
            let by = Deadline::after(PATIENCE);
            let Some(departure) = engine.begin_to_move(me, by).ok()? else {
                return Some(());
            };
            if departure.was_left {
                self.unknown.try_lock().ok()?.push(departure.handle);
                self.find_out(engine, &queue)?;
                continue;
            }
            let sent = self.send(engine, &departure, &queue);
            let has_ended = self.end(engine, departure.handle, sent)?;
            sent.then_some(())?;
            crash_point!(MOVE_ENDED);
            if has_ended {
                self.forget_arrival(&departure.handle, &queue);
            }
        }
        Some(())
    }

    /// Finds out whether the messages of dead movers have arrived. A message that has not arrived is set aside again.
    fn find_out(&self, engine: &Engine, to: &Queue) -> Option<()> {
        loop {
            // try_lock: a signal handler may have interrupted the thread that holds this lock.
            let Some(handle) = self.unknown.try_lock().ok()?.pop() else {
                return Some(());
            };
            let by = Deadline::after(PATIENCE);
            let has_arrived = to
                .engine
                .has_arrived(thread::current(), self.origin(&handle), by);
            let Ok(has_arrived) = has_arrived else {
                self.unknown.try_lock().ok()?.push(handle);
                return None;
            };
            if self.end(engine, handle, has_arrived)? && has_arrived {
                self.forget_arrival(&handle, to);
            }
        }
    }

    fn origin(&self, handle: &LeaseHandle) -> Origin {
        Origin {
            queue: self.number,
            ticket: handle.ticket,
        }
    }

    /// Frees the dead-letter queue's record of an arrival. If the call fails, the next move frees the record.
    fn forget_arrival(&self, handle: &LeaseHandle, to: &Queue) {
        let by = Deadline::after(PATIENCE);
        let _ = to
            .engine
            .forget_arrival(thread::current(), self.origin(handle), by);
    }

    /// Sends a copy of the message, with the message's history, to the dead-letter queue. Returns whether the message has arrived.
    fn send(&self, engine: &Engine, departure: &Departure, to: &Queue) -> bool {
        let mut history = departure.history;
        history.set_source(&self.source);
        if history.uid.is_none() && engine.segment().is_home() {
            history.uid = process::user_at(history.pid, history.sent_at);
        }
        let origin = self.origin(&departure.handle);
        let copy = (origin, &history, departure.trace.as_ref());
        transfer::send_copy(engine, &departure.handle, to, copy, PATIENCE).is_ok()
    }

    /// Records the end of a move, now or later. Returns false if this process is not the mover of the message. The caller must then not record the
    /// end of the arrival, either.
    fn end(&self, engine: &Engine, handle: LeaseHandle, sent: bool) -> Option<bool> {
        let by = Deadline::after(PATIENCE);
        match engine.end_move(thread::current(), &handle, sent, by) {
            Ok(has_ended) => Some(has_ended),
            Err(_) => {
                self.unfinished.try_lock().ok()?.push((handle, sent));
                None
            }
        }
    }

    fn finish(&self, engine: &Engine) -> Option<()> {
        loop {
            // try_lock: a signal handler may have interrupted the thread that holds this lock.
            let (handle, sent) = match self.unfinished.try_lock().ok()?.pop() {
                Some(unfinished) => unfinished,
                None => return Some(()),
            };
            self.end(engine, handle, sent)?;
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::namespace::testing::forking;
    use umsg_shm::sys::thread::Thread;

    /// Returns a queue whose only message is set aside, and its dead-letter queue.
    fn set_aside(namespace: &Namespace, me: &Thread) -> [Queue; 2] {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true);
        options.max_messages(4).message_size(8).namespace(namespace);
        options.max_deliveries(1).dead_letter("/dead");
        let queue = options.open("/q").unwrap();
        queue.try_send(b"job", 0).unwrap();
        let lease = queue.engine.try_lease(me, Deadline::Never).unwrap();
        assert_eq!(queue.engine.give_back(me, &lease), Ok(true));
        let mut options = OpenOptions::new();
        options.read(true).write(true).namespace(namespace);
        [queue, options.open("/dead").unwrap()]
    }

    fn mover(queue: &Queue, namespace: &Namespace) -> Mover {
        Mover {
            name: "/dead".into(),
            namespace: namespace.clone(),
            owner: queue.owner.0,
            source: b"/q".to_vec(),
            number: transfer::number(queue.identity.1, &queue.engine),
            failed_at: AtomicU64::new(0),
            unfinished: Mutex::default(),
            unknown: Mutex::default(),
        }
    }

    /// Runs a mover in a forked child.
    #[allow(unsafe_code, reason = "fork")]
    fn run_in_child(mover: &Mover, queue: &Queue) {
        let _forking = forking();
        // SAFETY: the child calls the library, and leaves with _exit.
        let child = unsafe { libc::fork() };
        if child == 0 {
            mover.run(&queue.engine);
            // SAFETY: `_exit` takes any number. The child runs no destructor and no exit handler of its parent.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: the call waits for the child.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }

    #[test]
    fn a_forked_child_ends_no_move_of_its_parent() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let namespace = Namespace::at(dir.path()).unwrap();
        let me = thread::current();
        let [queue, dead] = set_aside(&namespace, me);
        let mover = mover(&queue, &namespace);
        let departure = queue.engine.begin_to_move(me, Deadline::Never);
        let departure = departure.unwrap().unwrap();
        // The state of a process that could not find out whether the message had arrived, and could not record that the message had not arrived.
        // After the fork, the process moves the message again.
        mover.unknown.lock().unwrap().push(departure.handle);
        let unfinished = (departure.handle, false);
        mover.unfinished.lock().unwrap().push(unfinished);
        run_in_child(&mover, &queue);
        assert!(mover.send(&queue.engine, &departure, &dead));
        // The message has arrived, and this process has not recorded the arrival yet.
        mover.unfinished.lock().unwrap().clear();
        run_in_child(&mover, &queue);
        mover.run(&queue.engine);
        assert_eq!(dead.attributes().messages, 1, "the message is there twice");
        assert_eq!(queue.status().set_aside, 0);
        assert_eq!(dead.try_receive_vec().unwrap().data, b"job");
        let arrivals = dead.engine.arrivals(me, mover.number, Deadline::Never);
        assert_eq!(arrivals, Ok(vec![]), "a record of an arrival is left");
    }
}
