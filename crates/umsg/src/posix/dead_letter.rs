//! The dead-letter queue: where a queue's messages go that it could not keep or deliver.
//!
//! The caller that moves a message acts with its own rights, and every process that may use the queue can have written
//! what the caller reads in the segment. Two things keep the caller from acting for such a process:
//!
//! - the name comes from a label that only the owner of the queue's file can have made (`namespace/dead_letters.rs`);
//! - the dead-letter queue belongs to the same owner as the queue. So nobody's messages are sent on to another user's
//!   queue: neither by a queue that was made to do that, nor because another user has taken the name meanwhile.
//!
//! A message stays set aside as long as one of these does not hold; [`Undelivered`] says which.

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

/// How long each step of a move waits for a lock whose owner is stopped: the calls that make it have deadlines.
const PATIENCE: Duration = Duration::from_millis(10);

/// Messages that a call moves at most: they are not what it was made for.
const MOST: u32 = 16;

/// Sends what an engine has set aside to the dead-letter queue.
struct Mover {
    name: OsString,
    namespace: Namespace,
    /// The user that owns the file of the queue, and must own that of the dead-letter queue.
    owner: u32,
    /// The machine's clock at the last attempt that failed, in nanoseconds: one a tick of the coarse clock is enough.
    failed_at: AtomicU64,
    /// Moves whose end could not be noted yet, and whether they succeeded.
    unfinished: Mutex<Vec<(LeaseHandle, bool)>>,
}

/// The chore of moving, for a queue that has a dead-letter queue.
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

/// Reads the label of a queue.
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

/// Why messages stay set aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Undelivered {
    /// The queue's owner has named no dead-letter queue, though the queue's memory says so: a process wrote that there, or the
    /// file or its label changed hands.
    #[error(
        "its owner has named no dead-letter queue, or the queue's file has another owner since"
    )]
    Unnamed,
    /// There is no dead-letter queue.
    #[error("the dead-letter queue does not exist")]
    Missing,
    /// The dead-letter queue belongs to another user than the queue.
    #[error("the dead-letter queue belongs to another user than the queue")]
    OtherOwner,
    /// The caller may not send to the dead-letter queue.
    #[error("the dead-letter queue's mode does not let this user send to it")]
    Denied,
    /// The dead-letter queue can't be used.
    #[error("the dead-letter queue can't be opened")]
    Unusable,
}

/// What keeps the caller from moving what a queue has set aside. None: nothing, as long as the dead-letter queue has room.
pub(super) fn undelivered(queue: &Queue) -> Option<Undelivered> {
    let segment = queue.engine.segment();
    let policy = segment.policy();
    // Relaxed: a figure for people.
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

/// As [`undelivered`], of a queue's file.
pub(super) fn undelivered_of(file: BorrowedFd<'_>, namespace: &Namespace) -> Option<Undelivered> {
    let label = last_close::dead_letter_label(file)?;
    let owner = rustix::fs::fstat(file).ok()?.st_uid;
    match name(namespace, label, owner) {
        Some(name) => open(&name, namespace, owner).err(),
        None => Some(Undelivered::Unnamed),
    }
}

/// Writes the number of the queue's label into its file, if the label is there and another number was scribbled over it.
/// Whether it did.
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

/// Opens a dead-letter queue to send to it. It was there when the queue was created; a caller that finds it missing does
/// not make another one, because that would belong to the first caller. The caller reads nothing of a file that belongs to another user than
/// `owner`.
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
        // Relaxed: how often to try.
        if self.failed_at.load(Ordering::Relaxed) == now {
            return;
        }
        if self.move_some(engine).is_none() {
            self.failed_at.store(now, Ordering::Relaxed);
        }
    }

    /// None if something can't be done now: it stays set aside.
    fn move_some(&self, engine: &Engine) -> Option<()> {
        self.finish(engine)?;
        // Opened each time: a process that keeps it would go on sending to one that was removed.
        let queue = open(&self.name, &self.namespace, self.owner).ok()?;
        let me = thread::current();
        for _ in 0..MOST {
            let by = Deadline::after(PATIENCE);
            let Some(handle) = engine.begin_to_move(me, by).ok()? else {
                return Some(());
            };
            let sent = send(engine, &handle, &queue).is_some();
            // It is in two queues if the process dies between.
            self.end(engine, handle, sent)?;
            sent.then_some(())?;
        }
        Some(())
    }

    /// Notes the end of a move, now or later.
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
            // Not waited for: a signal handler may have interrupted a process that holds it.
            let (handle, sent) = match self.unfinished.try_lock().ok()?.pop() {
                Some(unfinished) => unfinished,
                None => return Some(()),
            };
            self.end(engine, handle, sent)?;
        }
    }
}

/// Sends a copy. What the dead-letter queue has set aside itself is left where it is: two queues may be each other's.
fn send(engine: &Engine, handle: &LeaseHandle, to: &Queue) -> Option<()> {
    let mut data = vec![0; handle.len];
    InPlace::new(engine.place(handle).ok()?, handle.len).read_at(0, &mut data);
    to.check_to_send(data.len()).ok()?;
    let by = Deadline::after(PATIENCE);
    to.engine
        .try_send(thread::current(), &data, handle.key, by)
        .ok()
}
