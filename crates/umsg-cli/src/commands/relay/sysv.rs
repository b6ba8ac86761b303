//! Pairs of System V queues.

use std::fmt::Display;
use std::sync::Arc;

use rustix::io::Errno;
use umsg::sysv::{Change, Lease, OpenError, OpenOptions, Queue, ReceiveError, SendError};
use umsg::sysv::{Until, Want as UmsgWant};
use umsg_carry::kernel::sysv::{Queue as KernelQueue, Room, Want};

use super::crash::{Point, reached};
use super::pair::Way;
use super::worker::{Crew, Halt, Hand};
use crate::address::{Address, Label};

/// The maximum number of messages that the relay looks at to find the first message that a pair carries.
const MOST_SEEN: usize = 1 << 20;

/// The open queues of a pair.
pub struct Ends {
    way: Way,
    want: Want,
    kernel: KernelQueue,
    queue: Arc<Queue>,
    dead_letter: Option<(Label, Queue)>,
}

fn of_kernel(label: Label, error: Errno) -> String {
    let why = match error {
        Errno::NOENT => {
            "the kernel has no queue of this key; create the queue, or give --create".to_owned()
        }
        Errno::INVAL | Errno::IDRM => {
            "the kernel has no queue with this identifier; `ipcs -q` lists the queues".to_owned()
        }
        Errno::ACCESS => {
            "permission denied by the mode of the kernel's queue; run the relay as the queue's owner or as root".to_owned()
        }
        Errno::NOSPC => {
            "the kernel has as many queues as it may have (/proc/sys/kernel/msgmni); remove a queue, or raise the limit".to_owned()
        }
        error => error.to_string(),
    };
    format!("kernel:{label}: {why}")
}

fn open_kernel(label: Label, new: Option<u32>) -> Result<KernelQueue, Errno> {
    match label {
        Label::Key(key, _) => KernelQueue::open(key, new),
        Label::Id(id) => KernelQueue::with_id(id),
    }
}

/// Returns the kernel's limit of a message's bytes (msgmax).
fn msgmax() -> usize {
    let text = std::fs::read_to_string("/proc/sys/kernel/msgmax");
    let number = text.ok().and_then(|text| text.trim().parse().ok());
    number.unwrap_or(8192)
}

impl Ends {
    pub fn open(crew: Crew<'_>) -> Result<Ends, String> {
        let pair = &crew.worker.pair;
        let (Address::SystemV(kernel), Address::SystemV(label)) = (&pair.kernel, &pair.umsg) else {
            return Err("both queues of a System V pair must be System V queues".to_owned());
        };
        let creates = crew.scene.creates;
        let mut options = OpenOptions::new();
        options.namespace(&crew.scene.namespace);
        let mut open = |new: Option<u32>| {
            options.create(new.is_some()).mode(new.unwrap_or(0o600));
            match label {
                Label::Key(key, _) => options.open(*key),
                Label::Id(id) => options.open_id(*id),
            }
        };
        let found = match open(None) {
            Ok(queue) => Some(queue),
            Err(OpenError::NotFound) if creates => None,
            Err(error) => {
                let advice = match error {
                    OpenError::NotFound => "; with --create, this command creates it",
                    _ => "",
                };
                return Err(format!("{label}: {error}{advice}"));
            }
        };
        let like = found.as_ref().and_then(|queue| queue.entry().ok());
        let (opened, is_new) = match open_kernel(*kernel, None) {
            Err(Errno::NOENT) if creates => {
                let mode = like.as_ref().map_or(0o600, |like| like.mode & 0o777);
                let (made, is_new) = match open_kernel(*kernel, Some(mode)) {
                    // Another process has created the queue meanwhile. The queue keeps the limit of its creator.
                    Err(Errno::EXIST) => (open_kernel(*kernel, None), false),
                    made => (made, true),
                };
                (made.map_err(|error| of_kernel(*kernel, error))?, is_new)
            }
            opened => (opened.map_err(|error| of_kernel(*kernel, error))?, false),
        };
        if let Some(like) = like.filter(|_| is_new) {
            // Only root may exceed the system's limit (msgmnb). If the call fails, the queue keeps the default limit.
            let _ = opened.set_qbytes(like.qbytes);
        }
        let queue = match found {
            Some(queue) => queue,
            None => {
                let status = opened.status();
                let status = status.map_err(|error| of_kernel(*kernel, error))?;
                let made = open(Some(status.mode));
                let made = made.map_err(|error| format!("{label}: {error}"))?;
                let change = Change {
                    qbytes: Some(status.qbytes),
                    ..Change::default()
                };
                // If the call fails, the queue keeps the default limit.
                let _ = made.set(&change);
                made
            }
        };
        Ok(Ends {
            way: pair.way,
            want: pair.want,
            kernel: opened,
            queue: Arc::new(queue),
            dead_letter: dead_letter(crew)?,
        })
    }

    /// Carries messages until the pair has to stop.
    pub fn carry(&self, crew: Crew<'_>, hand: &mut Hand) -> Halt {
        let mut room = Room::new(msgmax());
        loop {
            let carried = match self.way {
                // A message in `hand` has left the kernel's queue, so it is placed before the pair may stop.
                _ if hand.is_none() && crew.is_asked() => crew.interrupted(|| true),
                Way::In => self.carry_in(crew, hand, &mut room),
                Way::Out => self.carry_out(crew),
            };
            if let Err(halt) = carried {
                return halt;
            }
        }
    }

    /// Copies a message of the kernel's queue, places the copy in umsg's queue, and removes the message from the kernel's queue. If the kernel can't
    /// copy messages, the function receives the message into `hand`, and its next call places the message.
    fn carry_in(&self, crew: Crew<'_>, hand: &mut Hand, room: &mut Room) -> Result<(), Halt> {
        if let Some((mtype, message)) = hand.take() {
            let placed = self.place(crew, mtype, &message);
            return placed.inspect_err(|_| *hand = Some((mtype, message)));
        }
        match self.kernel.wait(self.want) {
            Ok(None) => {}
            // The wait itself has received a message without bytes.
            Ok(Some(mtype)) => {
                *hand = Some((mtype, Vec::new()));
                reached(Point::IN_TAKEN);
                return Ok(());
            }
            Err(Errno::INTR) => return crew.interrupted(|| true),
            Err(error) => return Err(lost(error)),
        }
        let copied = match self.kernel.copy(room, self.want) {
            Ok(len) => len,
            // Another receiver has taken the message.
            Err(Errno::NOMSG | Errno::INTR) => return Ok(()),
            // The message is longer than the buffer: msgmax was raised since the pair began.
            Err(Errno::TOOBIG) => {
                *room = Room::new(2 * room.len() + 1);
                return Ok(());
            }
            Err(Errno::NOSYS) => return self.take(hand, room),
            // The message is longer than msgmax, which was lowered after the send. The kernel does not copy such a message.
            Err(Errno::INVAL) if self.kernel.status().is_ok() => return self.take(hand, room),
            Err(error) => return Err(lost(error)),
        };
        reached(Point::IN_COPIED);
        let (mtype, message) = room.message(copied);
        let copy = (mtype, message.to_vec());
        self.place(crew, copy.0, &copy.1)?;
        reached(Point::IN_PLACED);
        self.take(hand, room)?;
        if hand.as_ref().is_some_and(|taken| *taken == copy) {
            *hand = None;
        }
        reached(Point::IN_REMOVED);
        Ok(())
    }

    /// Receives the first wanted message of the kernel's queue into `hand`.
    fn take(&self, hand: &mut Hand, room: &mut Room) -> Result<(), Halt> {
        match self.kernel.try_receive(room, self.want) {
            Ok(len) => {
                let (mtype, message) = room.message(len);
                *hand = Some((mtype, message.to_vec()));
                Ok(())
            }
            // Another receiver has taken the message, or a signal interrupted the call.
            Err(Errno::NOMSG | Errno::INTR) => Ok(()),
            Err(Errno::TOOBIG) => {
                *room = Room::new(2 * room.len() + 1);
                Ok(())
            }
            Err(error) => Err(lost(error)),
        }
    }

    /// Places a message in umsg's queue, and waits for room. A message that is too long goes to the dead-letter queue.
    fn place(&self, crew: Crew<'_>, mtype: i64, message: &[u8]) -> Result<(), Halt> {
        let most = self.queue.entry().map_or(u64::MAX, |entry| entry.qbytes);
        let most = most.min(self.queue.msgmax() as u64);
        if message.len() as u64 > most {
            self.bury(
                (mtype, message),
                &format!("{} takes {most}", crew.worker.pair.to()),
            )?;
            crew.worker.board.dead_lettered();
            return Ok(());
        }
        loop {
            match self.queue.send_until(mtype, message, Until::Forever) {
                Ok(()) => break,
                Err(SendError::Interrupted) => crew.interrupted(|| true)?,
                Err(error) => return Err(Halt::Trouble(error.to_string())),
            }
        }
        crew.worker.board.carried(message.len());
        Ok(())
    }

    /// Called after an attempt that found a message that no queue accepts. Fails if the first message of the wanted types is still one that no queue
    /// accepts. Reads the messages without a lease, because a lease counts as a delivery.
    fn check_first(&self, crew: Crew<'_>) -> Result<(), Halt> {
        let seen = self.queue.look(0, MOST_SEEN, 0);
        let seen = seen.map_err(|error| Halt::Trouble(error.to_string()))?;
        let first = seen.iter().find(|message| self.want.takes(message.mtype));
        let len = first.map_or(0, |first| first.len);
        let most = self.most_out()?;
        if len as u64 > most {
            let place = format!("{} takes {most}", crew.worker.pair.to());
            match &self.dead_letter {
                None => return Err(too_long(len, &place)),
                Some((label, dead)) => {
                    let room = dead
                        .entry()
                        .map_or(0, |dead| dead.qbytes - dead.bytes.min(dead.qbytes));
                    if len as u64 > room {
                        return Err(not_buried(
                            len,
                            &place,
                            *label,
                            &"that queue has no room for the message",
                        ));
                    }
                }
            }
        }
        crew.set_blocked(false);
        Ok(())
    }

    /// Returns the size of the longest message that the kernel's queue accepts, in bytes.
    fn most_out(&self) -> Result<u64, Halt> {
        let status = self.kernel.status().map_err(lost)?;
        Ok(status.qbytes.min(msgmax() as u64))
    }

    fn carry_out(&self, crew: Crew<'_>) -> Result<(), Halt> {
        if crew.is_blocked() {
            self.check_first(crew)?;
        }
        let want = match self.want {
            Want::Any => UmsgWant::Any,
            Want::Type(mtype) => UmsgWant::Exactly(mtype),
            Want::Except(mtype) => UmsgWant::Except(mtype),
        };
        let lease = match self.queue.receive_lease_owned(want, Until::Forever) {
            Ok(lease) => lease,
            Err(ReceiveError::Interrupted) => return crew.interrupted(|| true),
            Err(error) => return Err(Halt::Trouble(error.to_string())),
        };
        reached(Point::OUT_LEASED);
        let message = lease.to_vec();
        let most = self.most_out()?;
        if message.len() as u64 > most {
            let place = format!("{} takes {most}", crew.worker.pair.to());
            self.bury((lease.mtype(), &message), &place)
                .inspect_err(|_| crew.set_blocked(true))?;
            acknowledge(lease)?;
            crew.worker.board.dead_lettered();
            return Ok(());
        }
        loop {
            match self.kernel.send(lease.mtype(), &message, true) {
                Ok(()) => break,
                // If `interrupted` fails, the lease is dropped, so that the message returns to its place.
                Err(Errno::INTR) => crew.interrupted(|| true)?,
                Err(error) => return Err(lost(error)),
            }
        }
        reached(Point::OUT_SENT);
        acknowledge(lease)?;
        reached(Point::OUT_ENDED);
        crew.worker.board.carried(message.len());
        Ok(())
    }

    /// Sends a message that is too long to the dead-letter queue.
    fn bury(&self, (mtype, message): (i64, &[u8]), place: &str) -> Result<(), Halt> {
        let len = message.len();
        let Some((label, dead)) = &self.dead_letter else {
            return Err(too_long(len, place));
        };
        dead.try_send(mtype, message)
            .map_err(|error| not_buried(len, place, *label, &error))?;
        reached(Point::DEAD_STORED);
        Ok(())
    }
}

fn too_long(len: usize, place: &str) -> Halt {
    Halt::Trouble(format!(
        "a message of {len} bytes is too long: {place}; receive the message, or give --dead-letter"
    ))
}

fn not_buried(len: usize, place: &str, label: Label, why: &dyn Display) -> Halt {
    Halt::Trouble(format!(
        "a message of {len} bytes is too long: {place}, and the dead-letter queue {label} does not accept the message: {why}"
    ))
}

fn acknowledge(lease: Lease<'static>) -> Result<(), Halt> {
    lease
        .acknowledge()
        .map_err(|error| Halt::Trouble(error.to_string()))
}

/// Makes a [`Halt`] from the error of a system call on the kernel's queue.
fn lost(error: Errno) -> Halt {
    Halt::Trouble(match error {
        Errno::IDRM | Errno::INVAL => "the kernel's queue was removed".to_owned(),
        error => error.to_string(),
    })
}

/// Opens the dead-letter queue for System V messages, and creates it if it is missing. Returns None if no --dead-letter names a System V queue.
fn dead_letter(crew: Crew<'_>) -> Result<Option<(Label, Queue)>, String> {
    let named = crew.scene.dead_letters.iter().find_map(|one| match one {
        Address::SystemV(label) => Some(*label),
        Address::Posix(_) => None,
    });
    let Some(label) = named else { return Ok(None) };
    let mut options = OpenOptions::new();
    options.namespace(&crew.scene.namespace);
    options.create(true).mode(0o600);
    let queue = match label {
        Label::Key(key, _) => options.open(key),
        Label::Id(id) => options.open_id(id),
    };
    let queue = queue.map_err(|error| format!("--dead-letter {label}: {error}"))?;
    Ok(Some((label, queue)))
}

/// Sends a message back to the kernel's queue. Fails if there is no room.
pub fn put_back(label: Label, mtype: i64, message: &[u8]) -> Result<(), Errno> {
    open_kernel(label, None)?.send(mtype, message, false)
}
