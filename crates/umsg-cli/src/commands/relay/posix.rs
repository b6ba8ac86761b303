//! Pairs of POSIX queues.

use std::ffi::OsStr;
use std::fmt::Display;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use umsg::posix::{OpenError, OpenOptions, Queue, ReceiveError, Reservation, SendError, Until};
use umsg::{Namespace, posix};
use umsg_carry::kernel::posix::{Access, New, Queue as KernelQueue};

use super::crash::{Point, reached};
use super::pair::Way;
use super::worker::{Crew, Halt, Hand};
use crate::address::Address;
use crate::names::Name;

/// The limits of a dead-letter queue that the relay creates: the number of messages, and the bytes of a message. High limits cost nothing, because
/// only messages in the queue take memory.
const DEAD_LETTERS: (u32, u32) = (65_536, 16 << 20);

/// The open queues of a pair.
pub struct Ends {
    way: Way,
    kernel: KernelQueue,
    queue: Arc<Queue>,
    /// The path of the file of umsg's queue. For a queue with remove-on-last-close: the path of its directory.
    file: PathBuf,
    dead_letter: Option<(String, Arc<Queue>)>,
}

fn bytes(name: &Name) -> &[u8] {
    AsRef::<OsStr>::as_ref(name).as_bytes()
}

fn of_kernel(name: &Name, error: Errno) -> String {
    let why = match error {
        Errno::NOENT => {
            "the kernel has no queue of this name; create the queue, or give --create".to_owned()
        }
        Errno::ACCESS => "permission denied by the mode of the kernel's queue; run the relay as the queue's owner or as root".to_owned(),
        Errno::MFILE => "the kernel's memory for queues is used up (RLIMIT_MSGQUEUE, `ulimit -q`); remove a queue, or raise the limit".to_owned(),
        Errno::INVAL => {
            let limit = |name: &str| {
                let value = std::fs::read_to_string(format!("/proc/sys/fs/mqueue/{name}"));
                value.unwrap_or_default().trim().to_owned()
            };
            format!(
                "the kernel creates no queue with these attributes (at most {} bytes per message); raise /proc/sys/fs/mqueue/msgsize_max, or create the queue as root",
                limit("msgsize_max")
            )
        }
        error => error.to_string(),
    };
    format!("kernel:{name}: {why}")
}

/// Opens umsg's queue for one direction. Returns None if no queue has this name.
fn existing(namespace: &Namespace, name: &Name, way: Way) -> Result<Option<Queue>, String> {
    let mut options = options(namespace, way);
    match options.create(false).open(name) {
        Ok(queue) => Ok(Some(queue)),
        Err(OpenError::NotFound) => Ok(None),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

fn options(namespace: &Namespace, way: Way) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.namespace(namespace);
    options.read(way == Way::Out).write(way == Way::In);
    options
}

/// Creates umsg's queue with the mode and the attributes of the kernel's queue.
fn copied(
    namespace: &Namespace,
    name: &Name,
    (way, kernel): (Way, &KernelQueue),
) -> Result<Queue, String> {
    let limit = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    let mode = kernel
        .mode()
        .map_err(|error| format!("kernel:{name}: {error}"))?;
    let mut options = options(namespace, way);
    options
        .create(true)
        .mode(mode)
        .max_messages(limit(kernel.max_messages()))
        .message_size(limit(kernel.message_size() as u64));
    options
        .open(name)
        .map_err(|error| format!("{name}: {error}"))
}

/// Creates the kernel's queue with the mode and the attributes of umsg's queue. If umsg has no such queue, the kernel's queue gets the system's
/// defaults. Only root may exceed the system's limit of messages: for another user, the queue gets that limit. Fails with EEXIST if the queue exists.
fn made(name: &Name, access: (Access, bool), like: Option<&Queue>) -> Result<KernelQueue, Errno> {
    let attributes = like.map(Queue::attributes);
    let mode = like.map_or(0o600, |queue| queue.mode() & 0o777);
    let limits = attributes.map(|given| (given.max_messages as u64, given.message_size as u64));
    let open = |limits| {
        let new = New {
            limits,
            mode,
            must_be_new: true,
        };
        KernelQueue::open(bytes(name), access, Some(new))
    };
    let opened = open(limits).or_else(|error| match (error, limits) {
        (Errno::INVAL | Errno::MFILE, Some((messages, size))) => {
            let most = std::fs::read_to_string("/proc/sys/fs/mqueue/msg_max");
            let most = most.ok().and_then(|text| text.trim().parse().ok());
            open(Some((
                most.map_or(messages, |most| messages.min(most)),
                size,
            )))
        }
        _ => Err(error),
    });
    let queue = opened?;
    // Sets the exact mode, even if the umask has removed bits.
    if like.is_some() {
        queue.set_mode(mode)?;
    }
    Ok(queue)
}

impl Ends {
    pub fn open(crew: Crew<'_>) -> Result<Ends, String> {
        let pair = &crew.worker.pair;
        let (Address::Posix(kernel), Address::Posix(name)) = (&pair.kernel, &pair.umsg) else {
            return Err("both queues of a POSIX pair must be POSIX queues".to_owned());
        };
        let (namespace, creates, way) = (&crew.scene.namespace, crew.scene.creates, pair.way);
        let access = match way {
            Way::In => (Access::Receive, false),
            Way::Out => (Access::Send, true),
        };
        let found = existing(namespace, name, way)?;
        let opened = match KernelQueue::open(bytes(kernel), access, None) {
            Err(Errno::NOENT) if creates => match made(kernel, access, found.as_ref()) {
                // Another process has created the queue meanwhile. The queue keeps the mode and the limits of its creator.
                Err(Errno::EXIST) => KernelQueue::open(bytes(kernel), access, None),
                made => made,
            }
            .map_err(|error| of_kernel(kernel, error))?,
            opened => opened.map_err(|error| of_kernel(kernel, error))?,
        };
        let queue = match found {
            Some(queue) => queue,
            None if creates => copied(namespace, name, (way, &opened))?,
            None => {
                return Err(format!(
                    "{name}: there is no queue of this name; create the queue (`umsg create {name}`), or give --create"
                ));
            }
        };
        let file = name
            .file()
            .map(|file| namespace.path().join("mq").join(file));
        let ends = Ends {
            way,
            dead_letter: dead_letter(crew)?,
            kernel: opened,
            queue: Arc::new(queue),
            file: file.unwrap_or_default(),
        };
        ends.check_lengths(kernel, name)?;
        crew.forget_watches();
        crew.watch_open(ends.kernel.as_fd())
            .map_err(|why| format!("kernel:{kernel}: {why}"))?;
        crew.watch(&ends.file)
            .map_err(|why| format!("{name}: {why}"))?;
        // The names are checked once here, because a removal before the start of the inotify watch causes no event.
        match ends.names() {
            (true, true) => Ok(ends),
            (false, _) => Err(format!(
                "kernel:{kernel}: the queue was removed while the relay opened it"
            )),
            (_, false) => Err(format!(
                "{name}: the queue was removed while the relay opened it"
            )),
        }
    }

    /// Fails if the kernel's queue can deliver a message that is too long for umsg's queue and for the dead-letter queue.
    fn check_lengths(&self, kernel: &Name, name: &Name) -> Result<(), String> {
        let (given, taken) = (self.kernel.message_size(), self.message_size());
        if self.way == Way::Out || given <= taken {
            return Ok(());
        }
        match &self.dead_letter {
            None => Err(format!(
                "{name}: takes messages of at most {taken} bytes, and a message of kernel:{kernel} may have {given}; create {name} with --message-size {given}, or give --dead-letter"
            )),
            Some((dead, queue)) if queue.attributes().message_size < given => Err(format!(
                "{dead}: takes messages of at most {} bytes, and a message of kernel:{kernel} may have {given}; create the dead-letter queue with --message-size {given}",
                queue.attributes().message_size
            )),
            Some(_) => Ok(()),
        }
    }

    fn message_size(&self) -> usize {
        self.queue.attributes().message_size
    }

    /// Checks whether the names of both queues still lead to the opened queues. The first result is for the kernel's queue, the second one for umsg's
    /// queue.
    fn names(&self) -> (bool, bool) {
        let leads = |path: &Path| {
            let found = std::fs::symlink_metadata(path);
            found.is_ok_and(|file| (file.dev(), file.ino()) == self.queue.identity())
        };
        // A queue with remove-on-last-close is a directory that contains the queue's file.
        let is_ours = leads(&self.file) || leads(&self.file.join("queue"));
        (self.kernel.is_current(), is_ours)
    }

    fn goal_is_current(&self) -> bool {
        match (self.way, self.names()) {
            (Way::In, (_, is_ours)) => is_ours,
            (Way::Out, (is_the_kernels, _)) => is_the_kernels,
        }
    }

    /// Handles an interruption. Fails if the relay ends, or if the name of a queue now leads to another queue or to none. If `waits` is false, the
    /// source queue was removed and the pair carries its remaining messages. Then only the name of the destination queue is checked.
    fn interrupted(&self, crew: Crew<'_>, waits: bool) -> Result<(), Halt> {
        crew.interrupted(|| match waits {
            true => self.names() == (true, true),
            false => self.goal_is_current(),
        })
    }

    /// Carries messages until the pair has to stop.
    pub fn carry(&self, crew: Crew<'_>, hand: &mut Hand) -> Halt {
        let mut buffer = vec![0; self.kernel.message_size()];
        let mut waits = true;
        loop {
            let carried = match self.way {
                // A message in `hand` has left the kernel's queue, so it is placed before the pair may stop.
                _ if hand.is_none() && crew.is_asked() => self.interrupted(crew, waits),
                Way::In => self.carry_in(crew, hand, (&mut buffer, waits)),
                Way::Out => self.carry_out(crew, waits),
            };
            match carried {
                Ok(()) => {}
                // The source queue was removed or replaced. The pair first carries the messages that are left in the source queue.
                Err(Halt::Gone) if waits && self.goal_is_current() => waits = false,
                Err(halt) => return halt,
            }
        }
    }

    fn carry_in(
        &self,
        crew: Crew<'_>,
        hand: &mut Hand,
        (buffer, waits): (&mut [u8], bool),
    ) -> Result<(), Halt> {
        if let Some((priority, message)) = hand.take() {
            let priority = priority as u32;
            let rooms = self
                .rooms(crew, waits)
                .inspect_err(|_| *hand = Some((i64::from(priority), message.clone())))?;
            return self.place(crew, (rooms, hand), (priority, &message));
        }
        self.wait_for_message(crew, waits)?;
        // The room is reserved before the receive, because a message that has left the kernel's queue must have a place in umsg's queue.
        let rooms = self.rooms(crew, waits)?;
        reached(Point::IN_RESERVED);
        match self.kernel.receive(buffer) {
            Ok((len, priority)) => {
                reached(Point::IN_TAKEN);
                self.place(crew, (rooms, hand), (priority, &buffer[..len]))
            }
            // Another receiver has taken the message, or a signal interrupted the call.
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(error) => Err(Halt::Trouble(error.to_string())),
        }
    }

    fn wait_for_message(&self, crew: Crew<'_>, waits: bool) -> Result<(), Halt> {
        let now = Timespec::default();
        let limit = if waits { None } else { Some(&now) };
        loop {
            let mut polled = [PollFd::new(&self.kernel, PollFlags::IN)];
            match poll(&mut polled, limit) {
                Ok(0) => return Err(Halt::Gone),
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => self.interrupted(crew, waits)?,
                Err(error) => return Err(Halt::Trouble(format!("poll: {error}"))),
            }
        }
    }

    /// Reserves room in umsg's queue, and in the dead-letter queue if the kernel's messages may be too long for umsg's queue.
    fn rooms(&self, crew: Crew<'_>, waits: bool) -> Result<Rooms, Halt> {
        let (given, taken) = (self.kernel.message_size(), self.message_size());
        let reserve = |queue: &Arc<Queue>, len| {
            loop {
                match queue.reserve_owned(len, Until::Forever) {
                    Ok(room) => return Ok(room),
                    Err(SendError::Interrupted) => self.interrupted(crew, waits)?,
                    Err(error) => return Err(Halt::Trouble(error.to_string())),
                }
            }
        };
        let dead_letter = match &self.dead_letter {
            Some((_, queue)) if given > taken => Some(reserve(queue, given)?),
            _ => None,
        };
        Ok(Rooms {
            queue: reserve(&self.queue, given.min(taken))?,
            dead_letter,
        })
    }

    fn place(
        &self,
        crew: Crew<'_>,
        (rooms, hand): (Rooms, &mut Hand),
        (priority, message): (u32, &[u8]),
    ) -> Result<(), Halt> {
        let is_dead = message.len() > rooms.queue.len();
        let room = match (is_dead, rooms.dead_letter) {
            (true, Some(room)) => room,
            _ => rooms.queue,
        };
        // A message in `hand` may come from the kernel's previous queue of this name, which had longer messages.
        if message.len() > room.len() {
            *hand = Some((i64::from(priority), message.to_vec()));
            return Err(Halt::Trouble(format!(
                "a message of {} bytes can't be carried: the relay received it from the kernel's previous queue of this name, and has room for at most {} bytes, because the kernel's new queue has a smaller message size. Remove the kernel's queue, and create it with the larger message size",
                message.len(),
                room.len()
            )));
        }
        let mut room = room;
        room.write_at(0, message);
        room.truncate(message.len());
        if let Err(error) = room.commit(priority) {
            *hand = Some((i64::from(priority), message.to_vec()));
            return Err(Halt::Trouble(error.to_string()));
        }
        reached(Point::IN_PLACED);
        match is_dead {
            true => crew.worker.board.dead_lettered(),
            false => crew.worker.board.carried(message.len()),
        }
        Ok(())
    }

    fn carry_out(&self, crew: Crew<'_>, waits: bool) -> Result<(), Halt> {
        // A lease counts as a delivery. So the pair leases a message only if the kernel's queue has room.
        if crew.is_blocked() {
            self.check_first(crew)?;
        }
        self.wait_for_room(crew, waits)?;
        let until = if waits { Until::Forever } else { Until::Now };
        let lease = match self.queue.receive_lease_owned(until) {
            Ok(lease) => lease,
            Err(ReceiveError::Interrupted) => return self.interrupted(crew, waits),
            Err(ReceiveError::Empty) => return Err(Halt::Gone),
            Err(error) => return Err(Halt::Trouble(error.to_string())),
        };
        reached(Point::OUT_LEASED);
        if lease.len() > self.kernel.message_size() {
            return self.bury(crew, lease);
        }
        let (len, message) = (lease.len(), lease.to_vec());
        loop {
            match self.kernel.send(&message, lease.priority()) {
                Ok(()) => break,
                // If `interrupted` fails, the lease is dropped, so that the message returns to its place.
                Err(Errno::INTR) => self.interrupted(crew, waits)?,
                Err(error) => return Err(Halt::Trouble(error.to_string())),
            }
        }
        reached(Point::OUT_SENT);
        lease
            .acknowledge()
            .map_err(|error| Halt::Trouble(error.to_string()))?;
        reached(Point::OUT_ENDED);
        crew.worker.board.carried(len);
        Ok(())
    }

    /// Waits until the kernel's queue has room. Another sender may take the room before the relay sends.
    fn wait_for_room(&self, crew: Crew<'_>, waits: bool) -> Result<(), Halt> {
        loop {
            let mut polled = [PollFd::new(&self.kernel, PollFlags::OUT)];
            match poll(&mut polled, None) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => self.interrupted(crew, waits)?,
                Err(error) => return Err(Halt::Trouble(format!("poll: {error}"))),
            }
        }
    }

    /// Called after an attempt that found a message that no queue accepts. Fails if the first message is still one that no queue accepts. Reads the
    /// message without a lease.
    fn check_first(&self, crew: Crew<'_>) -> Result<(), Halt> {
        let first = self.queue.peek(0);
        let first = first.map_err(|error| Halt::Trouble(error.to_string()))?;
        let len = first.map_or(0, |first| first.data.len());
        let most = self.kernel.message_size();
        if len > most {
            match &self.dead_letter {
                None => return Err(too_long(len, most)),
                Some((name, dead)) => {
                    let dead = dead.attributes();
                    if dead.messages >= dead.max_messages || len > dead.message_size {
                        return Err(not_buried(
                            len,
                            most,
                            name,
                            &"that queue has no room for the message",
                        ));
                    }
                }
            }
        }
        crew.set_blocked(false);
        Ok(())
    }

    /// Moves a message that is too long for the kernel's queue to the dead-letter queue.
    fn bury(&self, crew: Crew<'_>, lease: posix::Lease<'static>) -> Result<(), Halt> {
        let (len, most) = (lease.len(), self.kernel.message_size());
        let Some((name, dead)) = &self.dead_letter else {
            crew.set_blocked(true);
            return Err(too_long(len, most));
        };
        dead.try_send(&lease.to_vec(), lease.priority())
            .map_err(|error| {
                crew.set_blocked(true);
                not_buried(len, most, name, &error)
            })?;
        reached(Point::DEAD_STORED);
        lease
            .acknowledge()
            .map_err(|error| Halt::Trouble(error.to_string()))?;
        crew.worker.board.dead_lettered();
        Ok(())
    }
}

fn too_long(len: usize, most: usize) -> Halt {
    Halt::Trouble(format!(
        "a message of {len} bytes is too long: the kernel's queue takes {most}; receive the message, or give --dead-letter"
    ))
}

fn not_buried(len: usize, most: usize, name: &str, why: &dyn Display) -> Halt {
    Halt::Trouble(format!(
        "a message of {len} bytes is too long: the kernel's queue takes {most}, and the dead-letter queue {name} does not accept the message: {why}"
    ))
}

/// The reserved room for the next message.
struct Rooms {
    queue: Reservation<'static>,
    dead_letter: Option<Reservation<'static>>,
}

/// Opens the dead-letter queue for POSIX messages, and creates it if it is missing. Returns None if no --dead-letter names a POSIX queue.
fn dead_letter(crew: Crew<'_>) -> Result<Option<(String, Arc<Queue>)>, String> {
    let named = crew.scene.dead_letters.iter().find_map(|one| match one {
        Address::Posix(name) => Some(name),
        Address::SystemV(_) => None,
    });
    let Some(name) = named else { return Ok(None) };
    let mut options = OpenOptions::new();
    options.namespace(&crew.scene.namespace);
    options.write(true).create(true).mode(0o600);
    options
        .max_messages(DEAD_LETTERS.0)
        .message_size(DEAD_LETTERS.1);
    let queue = options.open(name);
    let queue = queue.map_err(|error| format!("--dead-letter {name}: {error}"))?;
    Ok(Some((name.to_string(), Arc::new(queue))))
}

/// Sends a message back to the kernel's queue. Fails if there is no room.
pub fn put_back(name: &Name, priority: i64, message: &[u8]) -> Result<(), Errno> {
    let queue = KernelQueue::open(bytes(name), (Access::Send, false), None)?;
    queue.send(message, priority as u32)
}
