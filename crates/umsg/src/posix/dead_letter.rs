//! The dead-letter queue: the destination of messages that a queue could not keep or deliver.
//!
//! The caller that moves a message acts with its own rights. Every process that may use the queue can have written the words
//! that the caller reads in the segment. Two rules keep such a process from using the caller's rights:
//!
//! - The name comes from a label that only the owner of the queue's file can have made (`namespace/dead_letters.rs`).
//! - The dead-letter queue belongs to the same owner as the queue. So no message reaches a queue of another user, even if a
//!   queue was made for that purpose or another user has taken the name meanwhile.
//!
//! A message stays set aside while one of these rules is broken; [`Undelivered`] names the rule.

use super::options::OpenOptions;
use super::queue::Queue;
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
use umsg_shm::leases::InPlace;
use umsg_shm::posix_engine::segment::Segment;
use umsg_shm::posix_engine::{Chore, Engine, LeaseHandle};
use umsg_shm::sys::clock::{self, Deadline};
use umsg_shm::sys::thread;

/// Time that each step of a move waits for a lock whose owner is stopped. The calls that move messages have deadlines.
const PATIENCE: Duration = Duration::from_millis(10);

/// The largest number of messages that one call moves: moving is not the call's purpose.
const MOST: u32 = 16;

/// Sends the messages that an engine has set aside to the dead-letter queue.
struct Mover {
    name: OsString,
    namespace: Namespace,
    /// The user that owns the file of the queue, and must own the file of the dead-letter queue.
    owner: u32,
    /// The machine's clock at the last failed attempt, in nanoseconds: one attempt a tick of the coarse clock is enough.
    failed_at: AtomicU64,
    /// Moves whose end could not be recorded yet, each with its success or failure.
    unfinished: Mutex<Vec<(LeaseHandle, bool)>>,
}

/// Returns the chore that moves messages, for a queue with a dead-letter queue.
pub(super) fn chore(engine: &Engine, namespace: Option<&Namespace>, owner: u32) -> Option<Chore> {
    let mover = Mover {
        owner,
        name: OsString::from_vec(engine.policy().dead_letter.clone()?),
        namespace: namespace?.clone(),
        failed_at: AtomicU64::new(0),
        unfinished: Mutex::default(),
    };
    Some(Chore::new(move |engine| mover.run(engine)))
}

/// Reads the label of a queue, and stores the name in the segment.
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
    /// The queue's owner has named no dead-letter queue, though the queue's memory names one. A process has overwritten the memory, or the
    /// owner of the file or of its label has changed since.
    #[error(
        "the queue's owner has named no dead-letter queue, or the owner of the queue's file has changed"
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

/// Returns the reason why the caller can't move a queue's set-aside messages. `None`: the caller can move them as soon as the
/// dead-letter queue has room.
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

/// Returns the same as [`undelivered`], from a queue's file.
pub(super) fn undelivered_of(file: BorrowedFd<'_>, namespace: &Namespace) -> Option<Undelivered> {
    let label = last_close::dead_letter_label(file)?;
    let owner = rustix::fs::fstat(file).ok()?.st_uid;
    match name(namespace, label, owner) {
        Some(name) => open(&name, namespace, owner).err(),
        None => Some(Undelivered::Unnamed),
    }
}

/// Writes the number of the queue's label into its file, if the label exists and another number has replaced it. Returns whether
/// the number was written.
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

/// Opens a dead-letter queue to send to it. The dead-letter queue existed when the queue was created. A caller that finds it
/// missing does not make another one, because that queue would belong to the first caller. The caller reads nothing of a file
/// that belongs to a user other than `owner`.
fn open(name: &OsStr, namespace: &Namespace, owner: u32) -> Result<Queue, Undelivered> {
    match OpenOptions::open_of_owner(namespace, name, owner) {
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

    /// Moves some messages. `None` if a step can't be done now: the message stays set aside.
    fn move_some(&self, engine: &Engine) -> Option<()> {
        self.finish(engine)?;
        // Opened for each move: a kept handle would continue to send to a removed queue.
        let queue = open(&self.name, &self.namespace, self.owner).ok()?;
        let me = thread::current();
        for _ in 0..MOST {
            let by = Deadline::after(PATIENCE);
            let Some(handle) = engine.begin_to_move(me, by).ok()? else {
                return Some(());
            };
            let sent = send(engine, &handle, &queue).is_some();
            // If the process dies before this call, the message is in two queues.
            self.end(engine, handle, sent)?;
            sent.then_some(())?;
        }
        Some(())
    }

    /// Records the end of a move, now or later.
    fn end(&self, engine: &Engine, handle: LeaseHandle, sent: bool) -> Option<()> {
        let by = Deadline::after(PATIENCE);
        if engine
            .end_move(thread::current(), &handle, sent, by)
            .is_ok()
        {
            return Some(());
        }
        self.unfinished.try_lock().ok()?.push((handle, sent));
        None
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

/// Sends a copy. The call moves no set-aside message of the dead-letter queue itself: two queues may be each other's dead-letter
/// queue.
fn send(engine: &Engine, handle: &LeaseHandle, to: &Queue) -> Option<()> {
    let mut data = vec![0; handle.len];
    InPlace::new(engine.place(handle).ok()?, handle.len).read_at(0, &mut data);
    to.check_to_send(data.len()).ok()?;
    let by = Deadline::after(PATIENCE);
    to.engine
        .try_send(thread::current(), &data, handle.key, by)
        .ok()
}
