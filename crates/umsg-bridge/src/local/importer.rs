//! The local end of an import, which places messages.

use super::{
    GONE, Key, Placing, kernel, kernel_identity, opened, polled, posix_identity, ring_identity,
    sysv_identity,
};
use crate::config::{Bridge, End};
use crate::crash::{self, Point};
use rustix::io::Errno;
use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use umsg::posix::{self, Origin, SendError};
use umsg::ring::{self, INLINE, Post};
use umsg::sysv::{self, SendError as SysvSendError};
use umsg::{Namespace, posix::Until};

/// The maximum wait for room before another attempt. A queue does not report every change that makes room.
const LONGEST: Duration = Duration::from_secs(1);

/// The pause between two attempts if the queue can't be polled.
const UNPOLLED: Duration = Duration::from_millis(10);

/// The reason why a message was not placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no room.
    Full,
    /// The queue will never take this message.
    Message(String),
    /// The queue takes no message now: it is removed, closed for sending, or corrupted.
    Queue(String),
}

/// A queue that gets imported messages.
#[derive(Debug)]
pub struct Importer {
    queue: Queue,
    /// The identity of the queue, unique among the queues of all machines.
    pub identity: u64,
    /// The hash of the stream and the consumer, used in the queue's arrival records.
    source: u64,
}

#[derive(Debug)]
enum Queue {
    Posix(Box<posix::Queue>, Room),
    Sysv(Box<sysv::Queue>, AsyncFd<OwnedFd>),
    Ring(Box<Ring>),
    Kernel(kernel::Queue),
}

/// A ring that gets imported messages.
#[derive(Debug)]
struct Ring {
    sender: ring::Sender,
    /// The observer of the same ring, which shows whether the ring still has its name.
    observer: ring::Observer,
}

impl Ring {
    fn open(namespace: &Namespace, name: &str) -> Result<Ring, String> {
        let refuse = |error: &dyn std::fmt::Display| format!("`queue` ring:{name}: {error}");
        let observer = ring::Observer::open_in(namespace, name).map_err(|error| refuse(&error))?;
        let sender = ring::Sender::open_in(namespace, name).map_err(|error| refuse(&error))?;
        let ring = Ring { sender, observer };
        // The name may also have moved to another ring between the two calls.
        match ring.fault(namespace, name) {
            None => Ok(ring),
            Some(why) => Err(refuse(&why)),
        }
    }

    /// Returns why the ring gets no message: its name no longer refers to it, or its receiver has ended or closed it. None: the ring gets messages.
    fn fault(&self, namespace: &Namespace, name: &str) -> Option<&'static str> {
        if !self.observer.is_named(namespace, name) {
            return Some(GONE);
        }
        let now = self.sender.status();
        let is_open = now.owner_alive && !now.closed;
        (!is_open).then_some(RECEIVER_ENDED)
    }

    /// Returns the identity of the ring, unique among the rings of all machines.
    fn identity(&self, namespace: &Namespace) -> u64 {
        let created = self.sender.status().created;
        let created = created.duration_since(std::time::UNIX_EPOCH);
        let created = created.unwrap_or_default().as_nanos() as u64;
        ring_identity(namespace, (self.observer.inode(), created))
    }
}

/// The reason why a ring that still has its name gets no message.
const RECEIVER_ENDED: &str = "the receiver of the ring has ended or closed it. Start the program that receives from the ring";

/// The wait for room in a POSIX queue. While a queue is polled, each send of this process also wakes its own poller. So a second handle owns the
/// descriptor, and exists only while the queue is full.
#[derive(Debug)]
struct Room {
    namespace: Namespace,
    name: String,
    polled: RefCell<Option<Rc<Polled>>>,
}

#[derive(Debug)]
struct Polled {
    _queue: posix::Queue,
    descriptor: AsyncFd<OwnedFd>,
}

impl Room {
    /// Returns the descriptor that reports room in the queue. None: the queue no longer has its name, or the process has no free descriptors.
    fn polled(&self) -> Option<Rc<Polled>> {
        let mut polled = self.polled.borrow_mut();
        if polled.is_none() {
            let queue = opened::posix(&self.namespace, (&self.name, None)).ok()?;
            let descriptor = queue.pollable().ok()?.try_clone_to_owned().ok()?;
            let descriptor = polled::register(descriptor, Interest::WRITABLE).ok()?;
            *polled = Some(Rc::new(Polled {
                _queue: queue,
                descriptor,
            }));
        }
        polled.clone()
    }
}

impl Importer {
    /// Opens the queue of an import.
    ///
    /// # Errors
    /// The error is a sentence that names the setting.
    pub fn open(namespace: &Namespace, bridge: &Bridge) -> Result<Importer, String> {
        let new = bridge.create_queue.as_ref();
        let poll = |descriptor: std::io::Result<OwnedFd>| {
            descriptor
                .and_then(|descriptor| polled::register(descriptor, Interest::WRITABLE))
                .map_err(|error| {
                    format!(
                        "`queue` {}: the queue can't be polled: {error}",
                        bridge.queue
                    )
                })
        };
        let (queue, identity) = match &bridge.queue {
            End::Posix(name) => {
                let queue = opened::posix(namespace, (name, new))?;
                let identity = posix_identity(&queue);
                let room = Room {
                    namespace: namespace.clone(),
                    name: name.clone(),
                    polled: RefCell::default(),
                };
                (Queue::Posix(Box::new(queue), room), identity)
            }
            End::Key(_) | End::Id(_) => {
                let queue = opened::sysv(namespace, bridge)?;
                let polled = poll(
                    queue
                        .pollable()
                        .and_then(|polled| polled.try_clone_to_owned()),
                )?;
                let identity = sysv_identity(&queue, namespace);
                (Queue::Sysv(Box::new(queue), polled), identity)
            }
            End::Ring(name) => {
                let ring = Ring::open(namespace, name)?;
                let identity = ring.identity(namespace);
                (Queue::Ring(Box::new(ring)), identity)
            }
            End::Kernel(name) => {
                let queue = kernel::Queue::open(name, new, Interest::WRITABLE)?;
                let identity = kernel_identity(&queue);
                (Queue::Kernel(queue), identity)
            }
        };
        Ok(Importer {
            queue,
            identity,
            source: 0,
        })
    }

    /// Sets the hash of the stream and the consumer, for arrival records.
    pub fn set_source(&mut self, source: u64) {
        self.source = source & ((1 << 48) - 1);
    }

    fn origin(&self, sequence: u64) -> Origin {
        Origin {
            source: self.source,
            number: sequence,
        }
    }

    /// Places a message of the stream, if there is room. Returns the message's number in a POSIX queue, and 0 for other
    /// queues.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn try_place(&self, placing: &Placing, sequence: u64) -> Result<u64, Refusal> {
        match &self.queue {
            Queue::Posix(queue, _) => self.place_posix(queue, placing, sequence),
            Queue::Sysv(queue, _) => match queue.try_send(placing.mtype, &placing.data) {
                Ok(()) => Ok(0),
                Err(SysvSendError::Full) => Err(Refusal::Full),
                Err(error @ (SysvSendError::TooLong { .. } | SysvSendError::InvalidType)) => {
                    Err(Refusal::Message(error.to_string()))
                }
                Err(error) => Err(Refusal::Queue(error.to_string())),
            },
            Queue::Ring(ring) => place_in_ring(&ring.sender, placing),
            Queue::Kernel(queue) => match queue.try_send(&placing.data, placing.priority) {
                Ok(()) => Ok(0),
                Err(Errno::AGAIN | Errno::INTR) => Err(Refusal::Full),
                Err(error @ (Errno::MSGSIZE | Errno::INVAL)) => {
                    Err(Refusal::Message(error.to_string()))
                }
                Err(error) => Err(Refusal::Queue(error.to_string())),
            },
        }
    }

    fn place_posix(
        &self,
        queue: &posix::Queue,
        placing: &Placing,
        sequence: u64,
    ) -> Result<u64, Refusal> {
        let refusal = |error: SendError| match error {
            SendError::Full => Refusal::Full,
            SendError::TooLong { .. } | SendError::PriorityTooHigh => {
                Refusal::Message(error.to_string())
            }
            error => Refusal::Queue(error.to_string()),
        };
        let mut room = queue.try_reserve(placing.data.len()).map_err(refusal)?;
        crash::reached(Point::IMPORT_RESERVED);
        room.write_at(0, &placing.data);
        let origin = self.origin(sequence);
        room.commit_from(placing.priority, origin, placing.sent)
            .map_err(refusal)
    }

    /// Removes the arrival record of a message.
    ///
    /// # Errors
    /// The error is the sentence of the library.
    pub fn forget(&self, sequence: u64) -> Result<(), String> {
        match &self.queue {
            Queue::Posix(queue, _) => {
                let forgotten = queue.forget_arrival(self.origin(sequence));
                forgotten.map_err(|error| error.to_string())
            }
            _ => Ok(()),
        }
    }

    /// Returns the sequences of messages that a bridge placed but did not note before its death.
    ///
    /// # Errors
    /// The error is the sentence of the library.
    pub fn arrivals(&self) -> Result<Vec<u64>, String> {
        match &self.queue {
            Queue::Posix(queue, _) => queue
                .arrivals(self.source)
                .map_err(|error| error.to_string()),
            _ => Ok(Vec::new()),
        }
    }

    /// Returns whether a message of this length has room now. For rings and the kernel's queues, returns true: only a send can tell.
    #[must_use]
    pub fn has_room(&self, len: usize) -> bool {
        match &self.queue {
            Queue::Posix(queue, _) => !matches!(queue.try_reserve(len), Err(SendError::Full)),
            Queue::Sysv(queue, _) => queue.readiness().writable,
            Queue::Ring(_) | Queue::Kernel(_) => true,
        }
    }

    /// Waits until there may be room.
    pub async fn writable(&self) {
        let room;
        let (polled, is_writable): (_, &dyn Fn() -> bool) = match &self.queue {
            Queue::Posix(queue, of_queue) => {
                room = of_queue.polled();
                let Some(room) = &room else {
                    return tokio::time::sleep(UNPOLLED).await;
                };
                (&room.descriptor, &|| queue.readiness().writable)
            }
            Queue::Sysv(queue, polled) => (polled, &|| queue.readiness().writable),
            Queue::Kernel(queue) => {
                let _ = tokio::time::timeout(LONGEST, queue.ready(Interest::WRITABLE)).await;
                return;
            }
            // A ring reports messages to its receiver, but does not report room to senders, so the bridge tries again after a pause.
            Queue::Ring(_) => return tokio::time::sleep(Duration::from_millis(1)).await,
        };
        if let Ok(Ok(mut ready)) = tokio::time::timeout(LONGEST, polled.writable()).await {
            if is_writable() {
                // The last attempt failed although the queue has room: the room came later, or a stopped process owns the queue's lock. The pause
                // avoids a busy loop.
                tokio::time::sleep(Duration::from_millis(1)).await;
            } else {
                ready.clear_ready();
            }
        }
    }

    /// Stops polling the queue, because no message waits for room.
    pub fn rest(&self) {
        if let Queue::Posix(_, room) = &self.queue {
            room.polled.replace(None);
        }
    }

    /// Returns the queue if it is a POSIX queue of umsg.
    #[must_use]
    pub fn posix(&self) -> Option<&posix::Queue> {
        match &self.queue {
            Queue::Posix(queue, _) => Some(queue),
            _ => None,
        }
    }

    /// Fails if the name no longer refers to this queue, or if the queue is a ring without a receiver.
    ///
    /// # Errors
    /// The error is a sentence that names the setting.
    pub fn check(&self, namespace: &Namespace, bridge: &Bridge) -> Result<(), String> {
        let gone = |is_current: bool| (!is_current).then_some(GONE);
        let fault = match (&self.queue, &bridge.queue) {
            (Queue::Posix(queue, _), End::Posix(name)) => {
                gone(opened::is_named(namespace, name, queue))
            }
            (Queue::Sysv(queue, _), _) => gone(!queue.is_removed()),
            (Queue::Kernel(queue), _) => gone(queue.is_current()),
            (Queue::Ring(ring), End::Ring(name)) => ring.fault(namespace, name),
            _ => None,
        };
        match fault {
            None => Ok(()),
            Some(why) => Err(format!("`queue` {}: {why}", bridge.queue)),
        }
    }
}

fn place_in_ring(sender: &ring::Sender, placing: &Placing) -> Result<u64, Refusal> {
    let mut post = Post::new(0);
    if let Some(Key::Ring {
        user_data,
        res,
        flags,
    }) = placing.ring
    {
        post = Post::new(user_data).res(res).flags(flags);
    }
    let sent = match placing.data.len() <= INLINE {
        true => sender.try_send(&post.payload(&placing.data)),
        false => sender.send_long(&post, &placing.data, Until::Now),
    };
    match sent {
        Ok(()) => Ok(0),
        Err(ring::SendError::Full | ring::SendError::Interrupted) => Err(Refusal::Full),
        Err(error @ ring::SendError::TooLong { .. }) => Err(Refusal::Message(error.to_string())),
        Err(error) => Err(Refusal::Queue(error.to_string())),
    }
}
