//! The receiving end of a ring.

mod drain;

use super::directory::Name;
use super::doorbell::{Button, Doorbell};
use super::error::ReceiveError;
use super::message::{HEAD, INLINE, Mark, Message, Tag, WITH_DESCRIPTOR, head};
use super::sender::Sender;
use super::shared::Shared;
use crate::error::QueueError;
use crate::until::Until;
use std::fmt::{self, Debug, Formatter};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use umsg_shm::crash::crash_point;
use umsg_shm::posix_engine::{Refused, Taken};
use umsg_shm::sys::clock::Deadline;
use umsg_shm::sys::thread;
use umsg_shm::waiters::pacing::Waiting;

/// The number of messages that [`Ring::drain`] takes under one lock.
const TOGETHER: usize = 32;

/// The only receiving end of a ring. A drop of this value closes the ring, and senders then get an error. Only the process that made the ring can
/// receive. A forked child may send, but its receives fail with [`ReceiveError::NotOwner`] (EPERM).
pub struct Ring {
    pub(super) shared: Arc<Shared>,
    /// Room for received messages, in rows of equal length.
    buffer: Vec<u8>,
    stride: usize,
    taken: Vec<Taken>,
    doorbell: Doorbell,
    /// True if a process polls the descriptor. The descriptor is then readable, except while the ring is empty and its wake word is armed.
    polled: bool,
    filter: Option<Filter>,
    /// Number of messages that the filter refused.
    refused: u64,
    /// The name of a named ring, which the drop removes from the namespace.
    pub(super) name: Option<Name>,
}

/// Shows the ring's name, its capacities, the number of its messages, and whether it is closed.
impl Debug for Ring {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let now = self.status();
        f.debug_struct("Ring")
            .field("name", &self.name.as_ref().map(Name::with_slash))
            .field("entries", &now.entries)
            .field("overflow", &now.overflow)
            .field("messages", &now.messages)
            .field("closed", &now.closed)
            .finish_non_exhaustive()
    }
}

impl Ring {
    pub(super) fn new(shared: Shared, doorbell: Doorbell, name: Option<Name>) -> Ring {
        let stride = shared.engine.segment().layout().message_size;
        let together = if stride <= HEAD + INLINE { TOGETHER } else { 1 };
        Ring {
            shared: Arc::new(shared),
            buffer: vec![0; stride * together],
            stride,
            taken: Vec::with_capacity(together),
            doorbell,
            polled: false,
            filter: None,
            refused: 0,
            name,
        }
    }

    /// Returns whether this process is the ring's owner, which receives. False in a forked child.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// assert!(ring.is_own());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.shared.is_owned()
    }

    /// Returns a sending end for this process's threads and forked children.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// let other = ring.sender();
    /// other.send(&umsg::ring::Post::new(7))?;
    /// assert_eq!(ring.receive()?.user_data, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn sender(&self) -> Sender {
        Sender::new(Arc::clone(&self.shared))
    }

    /// Enables a ring that was made disabled: after the call, the ring accepts senders. In a forked child the call has no effect.
    ///
    /// ```
    /// let ring = umsg::ring::Options::new().disabled(true).create()?;
    /// ring.enable();
    /// ring.sender().send(&umsg::ring::Post::new(7))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn enable(&self) {
        if !self.shared.is_owned() {
            return;
        }
        self.shared.ownership().enable();
        crash_point!(RING_ENABLED);
    }

    /// Closes the ring: after the call, the ring refuses senders, including those that wait for room. Messages that were already sent can still be
    /// received. In a forked child the call has no effect.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// ring.close();
    /// assert!(sender.send(&umsg::ring::Post::new(7)).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close(&self) {
        if !self.shared.is_owned() {
            return;
        }
        self.shared.ownership().close();
        crash_point!(RING_CLOSED);
        self.shared.engine.wake_senders(thread::current());
    }

    /// Sets a filter: if `accept` returns false for the sender of a message, a receive drops the message and counts it in [`refused`](Ring::refused).
    /// Until that receive, the message counts as [`available`](Ring::available). After its deadline, a receive drops at most as many messages as the
    /// ring holds, even if more messages arrive during the receive.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// let wanted = sender.tag();
    /// ring.accept_only(move |tag| tag == wanted);
    /// sender.send(&umsg::ring::Post::new(7))?;
    /// assert_eq!(ring.receive()?.user_data, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn accept_only(&mut self, accept: impl FnMut(Tag) -> bool + Send + 'static) {
        self.filter = Some(Filter(Box::new(accept)));
    }

    /// Returns the number of messages that the filter has dropped.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// ring.accept_only(|_| false);
    /// sender.send(&umsg::ring::Post::new(7))?;
    /// assert!(ring.try_receive().is_err());
    /// assert_eq!(ring.refused(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Takes a descriptor that was [passed](Sender::pass_fd) without a message. `ticket` is the ticket that the sender of the descriptor got. Returns
    /// `None` in a forked child, because the descriptor belongs to the parent.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// use std::os::fd::AsFd;
    ///
    /// let file = std::fs::File::open("/dev/null")?;
    /// let ticket = sender.pass_fd(file.as_fd())?;
    /// assert!(ring.take_fd(ticket).is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn take_fd(&mut self, ticket: i32) -> Option<OwnedFd> {
        self.check_owner().ok()?;
        let button = self.polled.then_some(&*self.shared.button);
        self.doorbell.fetch(ticket, button)
    }

    /// Sets how this receiver waits; the default is [`Waiting::Adaptive`].
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// ring.set_waiting(umsg::posix::Waiting::Blocking);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_waiting(&self, waiting: Waiting) {
        self.shared.engine.pacing.set(waiting);
    }

    /// Returns the number of messages that can be received now.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// sender.send(&umsg::ring::Post::new(7))?;
    /// assert_eq!(ring.available(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn available(&self) -> u64 {
        self.shared.engine.available()
    }

    /// Receives the next message, if the ring has a message.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// assert!(ring.try_receive().is_err());
    /// sender.send(&umsg::ring::Post::new(7))?;
    /// assert_eq!(ring.try_receive()?.user_data, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ReceiveError::Empty`], `Damaged`, `WouldDeadlock`.
    ///
    /// # If the process dies
    /// If the process dies before the call returns, the message is in the ring, or lost if the call had already copied it.
    #[inline]
    pub fn try_receive(&mut self) -> Result<Message<'_>, ReceiveError> {
        self.recv_by(Deadline::Passed)
    }

    /// Receives the next message.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// sender.send(&umsg::ring::Post::new(7))?;
    /// let message = ring.receive()?;
    /// assert_eq!((message.user_data, message.tag), (7, sender.tag()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks while there is no message.
    ///
    /// # Errors
    /// [`ReceiveError::Interrupted`], `Damaged`, `WouldDeadlock`.
    ///
    /// # If the process dies
    /// The death of the process has the same effect as for [`try_receive`](Ring::try_receive).
    #[inline]
    pub fn receive(&mut self) -> Result<Message<'_>, ReceiveError> {
        self.recv_by(Deadline::Never)
    }

    /// Receives the next message; waits for a message at most `timeout`, on the monotonic clock.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// let moment = std::time::Duration::from_millis(1);
    /// assert!(ring.receive_timeout(moment).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ReceiveError::TimedOut`], `Interrupted`, `Damaged`, `WouldDeadlock`.
    pub fn receive_timeout(&mut self, timeout: Duration) -> Result<Message<'_>, ReceiveError> {
        self.recv_by(Deadline::after(timeout))
    }

    /// Receives the next message; waits for a message as long as `until` says.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// sender.send(&umsg::ring::Post::new(7))?;
    /// assert_eq!(ring.receive_until(umsg::ring::Until::Forever)?.user_data, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ReceiveError::Empty`] for [`Until::Now`]; [`ReceiveError::TimedOut`], `Interrupted`, `Damaged`, `WouldDeadlock`.
    pub fn receive_until(&mut self, until: Until) -> Result<Message<'_>, ReceiveError> {
        self.recv_by(until.deadline())
    }

    /// Returns a descriptor that is readable while there are messages, for poll, epoll, tokio and io_uring. After the first call, a sender makes the
    /// descriptor of an empty ring readable. The descriptor stays readable until [`try_receive`](Ring::try_receive) or [`drain`](Ring::drain) finds
    /// the ring empty.
    ///
    /// A process that polls for edges (EPOLLET) has to repeat until `try_receive` returns `Empty` or `drain` returns 0. One `drain` may leave
    /// messages that came during the call, and no further edge reports these messages.
    ///
    /// In a forked child the descriptor belongs to the parent, and shows the parent's messages.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// use rustix::event::{PollFd, PollFlags, poll};
    ///
    /// sender.send(&umsg::ring::Post::new(7))?;
    /// let mut polled = [PollFd::from_borrowed_fd(ring.pollable(), PollFlags::IN)];
    /// assert_eq!(poll(&mut polled, None)?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pollable(&mut self) -> BorrowedFd<'_> {
        if !self.polled && self.is_own() {
            self.polled = true;
            self.update_descriptor();
        }
        self.doorbell.descriptor()
    }

    /// Makes the descriptor of an empty ring unreadable. Rings the doorbell if messages have come in the meantime.
    #[cold]
    fn update_descriptor(&mut self) {
        self.doorbell.empty();
        if !self.shared.engine.arm_for_polling(thread::current()) {
            self.doorbell.ring(&self.shared.button);
        }
    }

    /// Makes the descriptor show messages again, after a wait has used the wake word for itself.
    fn restore_descriptor(&mut self) {
        if self.polled {
            self.update_descriptor();
        }
    }

    #[inline]
    fn recv_by(&mut self, deadline: Deadline) -> Result<Message<'_>, ReceiveError> {
        let taken = self.take(deadline)?;
        self.message(taken)
    }

    /// Returns the message that was taken into the buffer.
    #[inline]
    pub(super) fn message(&mut self, taken: Taken) -> Result<Message<'_>, ReceiveError> {
        let button = self.polled.then_some(&*self.shared.button);
        message(&self.buffer, taken, &mut self.doorbell, button)
            .ok_or(ReceiveError::Queue(QueueError::Damaged))
    }

    /// Checks that this process is not a forked child. A forked child has a copy of the ring, but must not receive.
    #[inline(always)]
    fn check_owner(&self) -> Result<(), ReceiveError> {
        match self.shared.is_owned() {
            true => Ok(()),
            false => Err(ReceiveError::NotOwner),
        }
    }

    /// Takes the next message into the buffer.
    #[inline]
    pub(super) fn take(&mut self, deadline: Deadline) -> Result<Taken, ReceiveError> {
        self.check_owner()?;
        let me = thread::current();
        let engine = &self.shared.engine;
        let at_first = engine.segment().layout().max_messages;
        let (mut waited, mut dropped) = (false, 0);
        let taken = loop {
            match engine.try_receive(me, &mut self.buffer, deadline) {
                // The ring announces messages, but none can be taken: a peer has overwritten the ring.
                Err(Refused::NotNow) if waited && deadline.has_passed() => {
                    self.restore_descriptor();
                    return Err(ReceiveError::TimedOut);
                }
                Err(Refused::NotNow) if deadline != Deadline::Passed => {
                    self.doorbell.take_in(passed(&self.shared));
                    let calm = me.interruptions.calm();
                    if let Err(refused) = engine.wait_for_messages(me, 1, calm, deadline) {
                        let error = error(&self.shared, refused);
                        self.restore_descriptor();
                        return Err(error);
                    }
                    waited = true;
                }
                Err(Refused::NotNow) if self.polled => {
                    self.update_descriptor();
                    return Err(ReceiveError::Empty);
                }
                Err(Refused::NotNow) => {
                    self.doorbell.take_in(passed(&self.shared));
                    return Err(ReceiveError::Empty);
                }
                Ok(taken) if !lets_in(&mut self.filter, &mut self.refused, taken) => {
                    let button = self.polled.then_some(&*self.shared.button);
                    drop_descriptor(&self.buffer, taken, &mut self.doorbell, button);
                    dropped += 1;
                    // A call ends here once it has dropped as many messages as the ring held at first. Otherwise busy senders could delay the call
                    // beyond its deadline.
                    if dropped >= at_first && deadline.has_passed() {
                        self.restore_descriptor();
                        return Err(match deadline {
                            Deadline::Passed => ReceiveError::Empty,
                            _ => ReceiveError::TimedOut,
                        });
                    }
                }
                other => break other.map_err(|refused| error(&self.shared, refused))?,
            }
        };
        if waited && self.polled {
            // The wait has consumed a wake-up, so the call rings for the messages that may remain.
            self.doorbell.ring(&self.shared.button);
        }
        Ok(taken)
    }

    /// Waits until the ring has `at_least` messages, with one wake-up when the last of them comes. Returns the number of messages that the receiver
    /// has noticed; [`available`](Ring::available) counts all messages.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// sender.send(&umsg::ring::Post::new(7))?;
    /// sender.send(&umsg::ring::Post::new(7))?;
    /// assert!(ring.wait(2, umsg::ring::Until::Forever)? >= 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks as long as `until` says. A batch may have to wait for room that the awaited messages take. So if senders send batches, wait for no more
    /// messages than the ring's capacity minus the length of a batch.
    ///
    /// # Errors
    /// [`ReceiveError::TimedOut`], [`ReceiveError::Empty`] for [`Until::Now`], `Interrupted`; [`ReceiveError::TooMany`] for more
    /// messages than entries and overflow hold; `NotOwner`.
    pub fn wait(&mut self, at_least: u64, until: Until) -> Result<u64, ReceiveError> {
        self.check_owner()?;
        let max = self.shared.engine.segment().layout().max_messages as u64;
        if at_least > max {
            return Err(ReceiveError::TooMany { max });
        }
        let me = thread::current();
        let engine = &self.shared.engine;
        let calm = me.interruptions.calm();
        let waited = engine.wait_for_messages(me, at_least, calm, until.deadline());
        let waited = waited.map_err(|refused| error(&self.shared, refused));
        self.restore_descriptor();
        waited.map(|()| self.shared.engine.known().max(at_least))
    }
}

/// Returns how many descriptors senders have passed so far.
#[inline]
fn passed(shared: &Shared) -> u32 {
    shared.ownership().descriptors()
}

/// The function that decides from which senders messages are accepted.
struct Filter(Box<dyn FnMut(Tag) -> bool + Send>);

fn lets_in(filter: &mut Option<Filter>, refused: &mut u64, taken: Taken) -> bool {
    let lets_in = filter.as_mut().is_none_or(|filter| (filter.0)(tag(taken)));
    *refused += u64::from(!lets_in);
    lets_in
}

fn tag(taken: Taken) -> Tag {
    Tag {
        pid: taken.pid,
        index: Mark::of_bits(taken.mark).index,
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // In a forked child, the drop closes nothing, because the ring belongs to the parent.
        if !self.shared.is_owned() {
            self.doorbell.leave();
            return;
        }
        self.close();
        // The doorbell is removed first. If the process dies before the name is removed, the next process that creates a ring with the name finds and
        // removes the stale files.
        self.doorbell.remove_path();
        crash_point!(RING_UNHUNG);
        if let Some(name) = self.name.take() {
            name.remove();
        }
    }
}

/// Returns the message in the buffer. `button`: see [`Doorbell::fetch`].
#[inline]
fn message<'a>(
    wire: &'a [u8],
    taken: Taken,
    doorbell: &mut Doorbell,
    button: Option<&Button>,
) -> Option<Message<'a>> {
    let wire = wire.get(..taken.len)?;
    let (user_data, res, flags) = head(wire)?;
    let mark = Mark::of_bits(taken.mark);
    let (descriptor, res) = match mark.control & WITH_DESCRIPTOR {
        0 => (None, res),
        _ => number_of(doorbell.fetch(res, button)),
    };
    Some(Message {
        user_data,
        res,
        flags,
        payload: &wire[HEAD..],
        tag: tag(taken),
        descriptor,
    })
}

/// Closes the descriptor of a refused message. Otherwise the descriptors of refused messages would fill the doorbell.
#[inline]
fn drop_descriptor(wire: &[u8], taken: Taken, doorbell: &mut Doorbell, button: Option<&Button>) {
    drop(message(wire, taken, doorbell, button));
}

/// Returns a descriptor and its number; -EBADF for a descriptor that did not arrive.
fn number_of(descriptor: Option<OwnedFd>) -> (Option<OwnedFd>, i32) {
    let number = descriptor.as_ref().map_or(-libc::EBADF, AsRawFd::as_raw_fd);
    (descriptor, number)
}

#[cold]
fn error(shared: &Shared, refused: Refused) -> ReceiveError {
    match refused {
        Refused::NotNow | Refused::Closed | Refused::Own(_) => ReceiveError::Empty,
        Refused::TimedOut => ReceiveError::TimedOut,
        Refused::Interrupted => ReceiveError::Interrupted,
        Refused::Fault(fault) => {
            if fault == crate::error::Fault::Damaged {
                shared.engine.note_damage();
            }
            fault.into()
        }
    }
}
