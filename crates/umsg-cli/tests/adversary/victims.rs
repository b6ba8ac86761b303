//! The victims: their objects in a namespace, and all their operations on these objects.
//!
//! A place is the path of an object in the namespace, such as `mq/v-private`. The place of a System V queue is the path of its label symlink.

use std::fmt::Debug;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use umsg::Namespace;
use umsg::posix::{self, Awaited};
use umsg::ring::{self, Post, Ring, Sender};
use umsg::sysv::{self, Want};

use super::actor::{Answer, readable_within};

/// The maximum time of each wait of a victim.
const PATIENCE: Duration = Duration::from_secs(30);

/// The kind of an object to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Queue,
    /// A queue that is removed with its last user.
    Transient,
    Key(i32),
    Private,
    Ring,
}

/// An object of a victim.
#[derive(Clone, Debug)]
pub struct Object {
    pub what: What,
    /// The object's place. The place of a queue without a key is known only when the queue is made.
    pub place: String,
    pub mode: u32,
}

impl Object {
    fn new(what: What, place: &str, mode: u32) -> Object {
        let place = place.to_owned();
        Object { what, place, mode }
    }

    /// Returns the name that calls take: `/v-private` for the place `mq/v-private`.
    fn name(&self) -> &str {
        self.place.find('/').map_or("", |at| &self.place[at..])
    }
}

/// Returns the objects that exist all the time. Their names begin with `owner`.
pub fn kept(owner: &str) -> Vec<Object> {
    let queue = |name: &str, mode| Object::new(What::Queue, &format!("mq/{owner}-{name}"), mode);
    let goes = |name: &str, mode| Object::new(What::Transient, &format!("mq/{owner}-{name}"), mode);
    let key = |number: i32, mode| {
        let number = i32::from(owner.as_bytes()[0]) << 8 | number;
        Object::new(What::Key(number), &format!("msg/k-{number:08x}"), mode)
    };
    let ring = |name: &str, mode| Object::new(What::Ring, &format!("ring/{owner}-{name}"), mode);
    vec![
        queue("private", 0o600),
        queue("strict", 0o600),
        queue("letterbox", 0o622),
        queue("board", 0o644),
        queue("team", 0o660),
        queue("open", 0o666),
        queue("told", 0o600),
        queue("wait", 0o600),
        goes("goes", 0o600),
        goes("goes-open", 0o666),
        key(1, 0o600),
        key(2, 0o666),
        Object::new(What::Private, "", 0o600),
        ring("ring", 0o600),
        ring("ring-open", 0o622),
    ]
}

/// Returns the objects that a newcomer makes, uses and removes.
pub fn new(owner: &str) -> Vec<Object> {
    let number = i32::from(owner.as_bytes()[0]) << 8 | 0xff;
    vec![
        Object::new(What::Queue, &format!("mq/{owner}-new"), 0o600),
        Object::new(What::Transient, &format!("mq/{owner}-new-goes"), 0o600),
        Object::new(What::Key(number), &format!("msg/k-{number:08x}"), 0o600),
        Object::new(What::Private, "", 0o600),
        Object::new(What::Ring, &format!("ring/{owner}-new"), 0o600),
    ]
}

/// An object in use.
enum Handle {
    Queue(&'static posix::Queue),
    Typed(Box<sysv::Queue>),
    Receiver(Box<Ring>),
    Sender(Sender),
}

/// The role of a process for the kept objects. The receiver makes the objects.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    Receiver,
    Sender,
}

/// Installs the protection from truncated files. Without the protection, SIGBUS ends a process that touches such a file, for example when it looks
/// for queues without users.
pub fn catch_truncation() -> Result<(), String> {
    umsg::signals::catch_truncation().map_err(|error| error.to_string())
}

/// A process that has all objects of a victim open.
pub struct Keeper {
    held: Vec<(Object, Handle)>,
    told: Option<(&'static posix::Queue, Option<Awaited<'static>>)>,
}

/// Adds the place and the step to the error of a failed step.
fn at<T, E: Debug>(place: &str, what: &str, result: Result<T, E>) -> Result<T, String> {
    result.map_err(|error| format!("{place}: {what}: {error:?}"))
}

fn open_queue(space: &Namespace, object: &Object) -> Result<posix::Queue, posix::OpenError> {
    let mut options = posix::OpenOptions::new();
    options.read(true).write(true).create(true);
    options.mode(object.mode).max_messages(4).message_size(32);
    options.namespace(space);
    if object.place.ends_with("-strict") {
        options
            .max_deliveries(3)
            .dead_letter(object.name().replace("strict", "private"));
    }
    options.remove_on_last_close(object.what == What::Transient);
    options.open(object.name())
}

fn open_typed(
    space: &Namespace,
    object: &Object,
    key: i32,
) -> Result<sysv::Queue, sysv::OpenError> {
    let mut options = sysv::OpenOptions::new();
    options.namespace(space).create(true).mode(object.mode);
    options.open(key)
}

/// Returns the place of a queue without a key: the queue's symlink is named by the queue's index.
fn private_place(queue: &sysv::Queue) -> String {
    format!("msg/p-{}", queue.id() & 0x7fff)
}

fn make(space: &Namespace, object: &mut Object, end: End) -> Result<Handle, String> {
    let place = object.place.clone();
    Ok(match (object.what, end) {
        (What::Queue | What::Transient, _) => {
            let queue = at(&place, "open", open_queue(space, object))?;
            Handle::Queue(Box::leak(Box::new(queue)))
        }
        (What::Key(key), _) => Handle::Typed(Box::new(at(
            &place,
            "open",
            open_typed(space, object, key),
        )?)),
        (What::Private, End::Receiver) => {
            let queue = open_typed(space, object, sysv::PRIVATE);
            let queue = at("IPC_PRIVATE", "make", queue)?;
            object.place = private_place(&queue);
            Handle::Typed(Box::new(queue))
        }
        (What::Private, End::Sender) => {
            // The target of a label symlink is the queue's identifier.
            let id = std::fs::read_link(space.path().join(&place));
            let id = at(&place, "label", id)?;
            let id = at(&place, "label", id.to_string_lossy().parse())?;
            let queue = sysv::OpenOptions::new().namespace(space).open_id(id);
            Handle::Typed(Box::new(at(&place, "open by identifier", queue)?))
        }
        (What::Ring, End::Receiver) => {
            let mut options = ring::Options::new();
            let ring = options.mode(object.mode).create_in(space, object.name());
            Handle::Receiver(Box::new(at(&place, "make", ring)?))
        }
        (What::Ring, End::Sender) => {
            Handle::Sender(at(&place, "open", Sender::open_in(space, object.name()))?)
        }
    })
}

impl Keeper {
    /// Opens all objects. The receiver reports the place of the queue without a key; the sender gets it in `objects`.
    pub fn open(space: &Namespace, objects: &[Object], end: End) -> Result<Keeper, String> {
        let mut keeper = Keeper {
            held: Vec::new(),
            told: None,
        };
        for object in objects {
            let mut object = object.clone();
            let handle = make(space, &mut object, end)?;
            if let (Handle::Queue(queue), true) = (&handle, object.place.ends_with("-told")) {
                keeper.told = Some((*queue, None));
            }
            keeper.held.push((object, handle));
        }
        Ok(keeper)
    }

    /// Carries out an order: `places`, `register`, `send N SKIPPED` or `receive N SKIPPED`. `N` is the number of the round, and `SKIPPED` is a place
    /// to skip.
    pub fn act(&mut self, order: &str) -> Answer {
        let words: Vec<&str> = order.split(' ').collect();
        match words[..] {
            ["places"] => return Ok(self.private()),
            ["register"] => self.register(),
            ["send", round, skipped] => self.send(round.as_bytes(), skipped),
            ["receive", round, skipped] => self.receive(round.as_bytes(), skipped),
            _ => Err(format!("no order: {order:?}")),
        }
        .map(|()| String::new())
    }

    /// Returns the place of the queue without a key.
    fn private(&self) -> String {
        let mut objects = self.held.iter().map(|(object, _)| object);
        let private = objects.find(|object| object.what == What::Private);
        private.map_or_else(String::new, |object| object.place.clone())
    }

    fn register(&mut self) -> Result<(), String> {
        if let Some((queue, awaited)) = &mut self.told {
            *awaited = None;
            *awaited = Some(at("told", "notify", queue.notify_waiter())?);
        }
        Ok(())
    }

    fn send(&self, message: &[u8], skipped: &str) -> Result<(), String> {
        let held = self.held.iter();
        for (object, handle) in held.filter(|(object, _)| object.place != skipped) {
            let place = object.place.as_str();
            match handle {
                Handle::Queue(queue) => {
                    at(place, "send", queue.send_timeout(message, 0, PATIENCE))?
                }
                Handle::Typed(queue) => {
                    at(place, "send", queue.send_timeout(1, message, PATIENCE))?
                }
                Handle::Sender(sender) => {
                    let post = Post::new(0).payload(message);
                    at(place, "send", sender.send_timeout(&post, PATIENCE))?;
                }
                Handle::Receiver(_) => {}
            }
        }
        Ok(())
    }

    fn receive(&mut self, message: &[u8], skipped: &str) -> Result<(), String> {
        if let Some((_, Some(awaited))) = &mut self.told {
            at("told", "notification", awaited.wait_timeout(PATIENCE))?;
        }
        let held = self.held.iter_mut();
        for (object, handle) in held.filter(|(object, _)| object.place != skipped) {
            let place = object.place.as_str();
            let received = match handle {
                Handle::Queue(queue) if place.ends_with("-wait") => {
                    let mut buffer = [0; 32];
                    let received = queue.receive_timeout(&mut buffer, PATIENCE);
                    let received = at(place, "receive", received)?;
                    buffer[..received.len].to_vec()
                }
                Handle::Queue(queue) => receive_queue(place, queue)?,
                Handle::Typed(queue) => receive_typed(place, queue)?,
                Handle::Receiver(ring) => receive_ring(place, ring)?,
                Handle::Sender(_) => continue,
            };
            if received != message {
                let received = String::from_utf8_lossy(&received);
                return Err(format!("{place}: received {received:?}"));
            }
        }
        Ok(())
    }
}

/// Polls and receives until there is a message. `attempt` returns the length of the message, or None while the queue is empty.
fn receive_polled<'q>(
    place: &str,
    descriptor: impl Fn() -> Result<BorrowedFd<'q>, String>,
    attempt: impl Fn(&mut [u8]) -> Result<Option<usize>, String>,
) -> Result<Vec<u8>, String> {
    let end = Instant::now() + PATIENCE;
    let mut buffer = [0; 32];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if !readable_within(descriptor()?, left) {
            return Err(format!("{place}: never readable"));
        }
        if let Some(len) = attempt(&mut buffer)? {
            return Ok(buffer[..len].to_vec());
        }
    }
}

fn receive_queue(place: &str, queue: &posix::Queue) -> Result<Vec<u8>, String> {
    let attempt = |buffer: &mut [u8]| match queue.try_receive(buffer) {
        Err(posix::ReceiveError::Empty) => Ok(None),
        other => Ok(Some(at(place, "receive", other)?.len)),
    };
    receive_polled(place, || at(place, "pollable", queue.pollable()), attempt)
}

fn receive_typed(place: &str, queue: &sysv::Queue) -> Result<Vec<u8>, String> {
    let attempt = |buffer: &mut [u8]| match queue.try_receive(Want::Any, buffer) {
        Err(sysv::ReceiveError::NoMessage) => Ok(None),
        other => Ok(Some(at(place, "receive", other)?.len)),
    };
    receive_polled(place, || at(place, "pollable", queue.pollable()), attempt)
}

fn receive_ring(place: &str, ring: &mut Ring) -> Result<Vec<u8>, String> {
    let end = Instant::now() + PATIENCE;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if !readable_within(ring.pollable(), left) {
            return Err(format!("{place}: never readable"));
        }
        match ring.try_receive() {
            Err(ring::ReceiveError::Empty) => {}
            other => return Ok(at(place, "receive", other)?.payload.to_vec()),
        }
    }
}

/// Performs all steps of a new process: it uses all kept objects except the skipped one, and makes, uses and removes other objects. Every call on the
/// `spoiled` place may be refused.
pub fn come_new(
    space: &Namespace,
    owner: &str,
    kept: &[Object],
    skipped: &str,
    spoiled: &str,
) -> Result<(), String> {
    for object in kept.iter().filter(|object| object.place != skipped) {
        visit(space, object)?;
    }
    for object in new(owner) {
        match use_new(space, &object) {
            Err(_) if object.place == spoiled => {}
            other => other?,
        }
    }
    at("mq", "list", posix::list(space))?;
    at("msg", "list", sysv::list(space))?;
    at("ring", "list", ring::list(space))?;
    Ok(())
}

/// Uses an object that its keepers have open.
fn visit(space: &Namespace, object: &Object) -> Result<(), String> {
    let place = object.place.as_str();
    if matches!(object.what, What::Queue | What::Transient) {
        let queue = at(place, "open", open_queue(space, object))?;
        return use_queue(place, &queue);
    }
    match make(space, &mut object.clone(), End::Sender)? {
        Handle::Typed(queue) => use_typed(place, &queue),
        _ => Ok(()),
    }
}

fn use_queue(place: &str, queue: &posix::Queue) -> Result<(), String> {
    let message = b"visit";
    at(place, "send", queue.send_timeout(message, 0, PATIENCE))?;
    let received = receive_queue(place, queue)?;
    (received == message)
        .then_some(())
        .ok_or_else(|| format!("{place}: received {received:?}"))
}

fn use_typed(place: &str, queue: &sysv::Queue) -> Result<(), String> {
    let message = b"visit";
    at(place, "send", queue.send_timeout(1, message, PATIENCE))?;
    let received = receive_typed(place, queue)?;
    (received == message)
        .then_some(())
        .ok_or_else(|| format!("{place}: received {received:?}"))
}

fn use_new(space: &Namespace, object: &Object) -> Result<(), String> {
    let place = object.place.as_str();
    match object.what {
        What::Queue | What::Transient => {
            let queue = at(place, "make", open_queue(space, object))?;
            use_queue(place, &queue)?;
            at(place, "notify", queue.notify_waiter().map(drop))?;
            drop(queue);
            let is_there = space.path().join(place).symlink_metadata().is_ok();
            match (object.what, is_there) {
                (What::Transient, true) => Err(format!("{place}: still there")),
                (What::Transient, false) => Ok(()),
                _ => at(place, "unlink", posix::unlink_in(space, object.name())),
            }
        }
        What::Key(key) => {
            let queue = at(place, "make", open_typed(space, object, key))?;
            use_typed(place, &queue)?;
            at(place, "remove", queue.remove())
        }
        What::Private => {
            let queue = at(
                "IPC_PRIVATE",
                "make",
                open_typed(space, object, sysv::PRIVATE),
            )?;
            use_typed("IPC_PRIVATE", &queue)?;
            at("IPC_PRIVATE", "remove", queue.remove())
        }
        What::Ring => {
            let mut options = ring::Options::new();
            let ring = options.mode(object.mode).create_in(space, object.name());
            let mut ring = at(place, "make", ring)?;
            let sender = at(place, "open", Sender::open_in(space, object.name()))?;
            let post = Post::new(0).payload(b"visit");
            at(place, "send", sender.send_timeout(&post, PATIENCE))?;
            receive_ring(place, &mut ring).map(drop)
        }
    }
}
