//! The sending end of a ring.

use super::directory;
use super::error::SendError;
use super::message::{Mark, Post, Tag, WITH_DESCRIPTOR};
use super::shared::Shared;
use crate::until::{Until, realtime};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use umsg_shm::crash::crash_point;
use umsg_shm::posix_engine::batch::Batch;
use umsg_shm::posix_engine::{Refused, marked};
use umsg_shm::sys::clock::Deadline;
use umsg_shm::sys::required;
use umsg_shm::sys::thread;

/// A sending end of a ring. Each clone has its own [`tag`](Sender::tag). Threads may share a sender.
///
/// A process that has received a message sees all that the sender wrote before the send.
#[derive(Debug)]
pub struct Sender {
    pub(super) shared: Arc<Shared>,
    index: u32,
}

impl Clone for Sender {
    fn clone(&self) -> Self {
        Sender::new(Arc::clone(&self.shared))
    }
}

impl Sender {
    pub(super) fn new(shared: Arc<Shared>) -> Sender {
        // Relaxed: the index only has to be unique.
        let index = shared.ownership().add_sender();
        Sender { shared, index }
    }

    /// Opens a named ring for sending, in the namespace that [`Namespace::resolve`](crate::Namespace::resolve) gives.
    ///
    /// ```no_run
    /// let sender = umsg::ring::Sender::open("/jobs")?;
    /// sender.send(&umsg::ring::Post::new(7))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`RingError`](super::RingError).
    pub fn open(name: impl AsRef<OsStr>) -> Result<Sender, super::RingError> {
        directory::open(
            &crate::Namespace::resolve().map_err(crate::error::OpenError::from)?,
            name.as_ref(),
        )
    }

    /// Opens a named ring for sending, in a namespace.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let mut ring = umsg::ring::Options::new().create_in(&namespace, "/r")?;
    /// # let sender = ring.sender();
    /// let sender = umsg::ring::Sender::open_in(&namespace, "/r")?;
    /// sender.send(&umsg::ring::Post::new(7))?;
    /// assert_eq!(ring.receive()?.user_data, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`RingError`](super::RingError).
    pub fn open_in(
        namespace: &crate::Namespace,
        name: impl AsRef<OsStr>,
    ) -> Result<Sender, super::RingError> {
        required::check_for_rings().map_err(crate::error::OpenError::from)?;
        directory::open(namespace, name.as_ref())
    }

    /// Returns the tag by which the receiver distinguishes this sender from others.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// let post = umsg::ring::Post::new(7);
    /// sender.send(&post)?;
    /// assert_eq!(ring.receive()?.tag, sender.tag());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn tag(&self) -> Tag {
        Tag {
            pid: thread::current().pid(),
            index: self.index,
        }
    }

    /// Returns the longest payload that the ring takes, in bytes.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// assert!(sender.longest() >= 64, "bytes");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn longest(&self) -> usize {
        self.shared.longest()
    }

    /// Sends a message.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// let post = umsg::ring::Post::new(7);
    /// sender.send(&post)?;
    /// assert_eq!(ring.receive()?.user_data, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks while the ring and its overflow are full. Blocked senders get room in the order of their threads' scheduling priority; for equal
    /// priorities, in the order in which they began to wait.
    ///
    /// # Errors
    /// All errors of [`SendError`] except `Full` and `TimedOut`.
    ///
    /// # If the process dies
    /// If the process dies before the call returns, the message was sent completely, or not at all. The messages of other senders are not delayed.
    #[inline]
    pub fn send(&self, post: &Post) -> Result<(), SendError> {
        self.send_wire(post.wire(), 0, Deadline::Never)
    }

    /// Sends a message if the ring has room now; does not wait for room.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// let post = umsg::ring::Post::new(7);
    /// sender.try_send(&post)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Does not wait for room. If a process was stopped inside a send, the call returns after a second.
    ///
    /// # Errors
    /// [`SendError::Full`] and the other errors of [`SendError`] except `TimedOut`.
    #[inline]
    pub fn try_send(&self, post: &Post) -> Result<(), SendError> {
        self.send_wire(post.wire(), 0, Deadline::Passed)
    }

    /// Sends a message; waits for room at most `timeout`, on the monotonic clock.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// let post = umsg::ring::Post::new(7);
    /// let second = std::time::Duration::from_secs(1);
    /// sender.send_timeout(&post, second)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SendError::TimedOut`] and the other errors of [`SendError`] except `Full`.
    pub fn send_timeout(&self, post: &Post, timeout: Duration) -> Result<(), SendError> {
        self.send_wire(post.wire(), 0, Deadline::after(timeout))
    }

    /// Sends a message; waits for room as long as `until` says.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// let post = umsg::ring::Post::new(7);
    /// sender.send_until(&post, umsg::ring::Until::Now)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`send_timeout`](Sender::send_timeout); [`SendError::Full`] for [`Until::Now`].
    pub fn send_until(&self, post: &Post, until: Until) -> Result<(), SendError> {
        self.send_wire(post.wire(), 0, until.deadline())
    }

    /// Sends a message; waits for room at most until `deadline`, on the system's clock.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// let post = umsg::ring::Post::new(7);
    /// let soon = std::time::SystemTime::now() + std::time::Duration::from_secs(1);
    /// sender.send_deadline(&post, soon)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`send_timeout`](Sender::send_timeout).
    pub fn send_deadline(&self, post: &Post, deadline: SystemTime) -> Result<(), SendError> {
        self.send_wire(post.wire(), 0, realtime(deadline))
    }

    /// Sends a message if the ring has room now; otherwise drops the message and counts it in [`Status::dropped`](super::Status::dropped). Returns
    /// true if the message was sent.
    ///
    /// ```
    /// let ring = umsg::ring::Options::new().entries(1).overflow(0).create()?;
    /// let sender = ring.sender();
    /// let post = umsg::ring::Post::new(7);
    /// assert!(sender.send_or_drop(&post)?);
    /// assert!(!sender.send_or_drop(&post)?, "dropped and counted");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`try_send`](Sender::try_send) without `Full`.
    pub fn send_or_drop(&self, post: &Post) -> Result<bool, SendError> {
        self.or_drop(self.try_send(post))
    }

    /// Sends or drops a message as [`send_or_drop`](Sender::send_or_drop) does, with a payload as for
    /// [`send_long`](Sender::send_long).
    ///
    /// ```
    /// let mut ring = umsg::ring::Options::new().longest(1024).create()?;
    /// let post = umsg::ring::Post::new(7);
    /// assert!(ring.sender().send_long_or_drop(&post, &[1; 1024])?);
    /// assert_eq!(ring.receive()?.payload.len(), 1024);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`send_long`](Sender::send_long), without `Full` and `TimedOut`.
    pub fn send_long_or_drop(&self, post: &Post, payload: &[u8]) -> Result<bool, SendError> {
        self.or_drop(self.send_long(post, payload, Until::Now))
    }

    fn or_drop(&self, sent: Result<(), SendError>) -> Result<bool, SendError> {
        match sent {
            Ok(()) => Ok(true),
            Err(SendError::Full) => {
                self.shared.ownership().count_dropped();
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Sends a message with a payload of any length up to [`longest`](Sender::longest), instead of the payload of `post`.
    ///
    /// ```
    /// let mut ring = umsg::ring::Options::new().longest(1024).create()?;
    /// let post = umsg::ring::Post::new(7);
    /// ring.sender().send_long(&post, &[1; 1024], umsg::ring::Until::Forever)?;
    /// assert_eq!(ring.receive()?.payload.len(), 1024);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks as long as `until` says.
    ///
    /// # Errors
    /// The errors of [`send`](Sender::send), and [`SendError::TooLong`].
    pub fn send_long(&self, post: &Post, payload: &[u8], until: Until) -> Result<(), SendError> {
        self.check_len(payload.len())?;
        self.send_wire(&post.wire_with(payload), 0, until.deadline())
    }

    fn check_len(&self, len: usize) -> Result<(), SendError> {
        let max = self.longest();
        if len > max {
            return Err(SendError::TooLong { len, max });
        }
        Ok(())
    }

    /// Sends a message with a descriptor. The receiver gets a new descriptor of the same open file in
    /// [`Message::descriptor`](super::Message::descriptor), and the number of that descriptor in `res`. The sender keeps its own
    /// descriptor.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// use std::os::fd::AsFd;
    ///
    /// let file = std::fs::File::open("/dev/null")?;
    /// let post = umsg::ring::Post::new(7);
    /// sender.send_fd(&post, file.as_fd(), umsg::ring::Until::Forever)?;
    /// assert!(ring.receive()?.descriptor.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks as long as `until` says.
    ///
    /// # Errors
    /// The errors of [`send`](Sender::send); [`SendError::TooManyDescriptors`] if the receiver has not taken in earlier
    /// descriptors; [`SendError::Descriptor`] if the descriptor can't be passed.
    ///
    /// # If the process dies
    /// If the process dies before the call returns, the message was sent with its descriptor, or not at all.
    pub fn send_fd(
        &self,
        post: &Post,
        descriptor: BorrowedFd<'_>,
        until: Until,
    ) -> Result<(), SendError> {
        let post = post.res(self.pass_fd(descriptor)?);
        self.send_wire(post.wire(), WITH_DESCRIPTOR, until.deadline())
    }

    /// Passes a descriptor without a message. Returns a ticket, by which the receiver finds the descriptor with
    /// [`Ring::take_fd`](super::Ring::take_fd).
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
    ///
    /// # Errors
    /// [`SendError::TooManyDescriptors`] and [`SendError::Descriptor`] as for [`send_fd`](Sender::send_fd), `Disabled`, `Closed`,
    /// `OwnerDead`.
    pub fn pass_fd(&self, descriptor: BorrowedFd<'_>) -> Result<i32, SendError> {
        self.shared.check_state()?;
        // The ticket is never negative, because the C functions return errors as negative values.
        let ticket = self.shared.ownership().add_descriptor().cast_signed() & i32::MAX;
        let passed = self.shared.button.pass(ticket, descriptor);
        crash_point!(RING_PASSED);
        passed.map_err(|error| match self.shared.check_receiver() {
            Err(error) => error,
            Ok(()) if error == Errno::AGAIN => SendError::TooManyDescriptors,
            // The receiver's socket is closed: the owner is executing another program, but its process does not show the change yet. Or another
            // process has noticed the change, and has removed the socket.
            Ok(()) if matches!(error, Errno::CONNREFUSED | Errno::NOENT) => SendError::OwnerDead,
            Ok(()) => SendError::Descriptor(error.into()),
        })?;
        Ok(ticket)
    }

    /// Sends a message, and posts the outcome to another ring, usually a ring of the sender itself. The post is `completion`, with a `res` of 0 or of
    /// the negative error number.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// let mut mine = umsg::ring::Options::new().create()?;
    /// let post = umsg::ring::Post::new(7);
    /// let done = umsg::ring::Post::new(8);
    /// sender.send_completing(&post, umsg::ring::Until::Forever, &mine.sender(), &done)?;
    /// assert_eq!(mine.receive()?.user_data, 8);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks on this ring as long as `until` says, and never on the other ring.
    ///
    /// # Errors
    /// The errors of [`try_send`](Sender::try_send) to the other ring. The completion has the outcome of the message itself.
    pub fn send_completing(
        &self,
        post: &Post,
        until: Until,
        own: &Sender,
        completion: &Post,
    ) -> Result<(), SendError> {
        let sent = self.send_wire(post.wire(), 0, until.deadline());
        let res = sent.map_or_else(|error| -error.errno(), |()| 0);
        own.try_send(&completion.res(res))
    }

    /// Sends several messages as one batch. The batch takes one reservation and at most one wake-up, and a receiver finds all messages of the batch
    /// or none. Waits until there is room for all.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// sender.send_batch(&[umsg::ring::Post::new(1), umsg::ring::Post::new(2)])?;
    /// assert_eq!(ring.available(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`send`](Sender::send); [`SendError::BatchTooLarge`] if the batch has more messages than the ring and its overflow can hold.
    pub fn send_batch(&self, posts: &[Post]) -> Result<(), SendError> {
        self.send_batch_until(posts, Until::Forever)
    }

    /// Sends a batch as [`send_batch`](Sender::send_batch) does, if the ring has room for all of its messages now; does not wait for room.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// sender.try_send_batch(&[umsg::ring::Post::new(1), umsg::ring::Post::new(2)])?;
    /// assert_eq!(ring.available(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`try_send`](Sender::try_send).
    pub fn try_send_batch(&self, posts: &[Post]) -> Result<(), SendError> {
        self.send_batch_until(posts, Until::Now)
    }

    /// Sends a batch as [`send_batch`](Sender::send_batch) does; waits as long as `until` says.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// let posts = [umsg::ring::Post::new(1), umsg::ring::Post::new(2)];
    /// sender.send_batch_until(&posts, umsg::ring::Until::Now)?;
    /// assert_eq!(ring.available(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`send_batch`](Sender::send_batch), and [`SendError::TimedOut`].
    pub fn send_batch_until(&self, posts: &[Post], until: Until) -> Result<(), SendError> {
        self.shared.check_state()?;
        let me = thread::current();
        self.shared.check_owner(me)?;
        let layout = self.shared.engine.segment().layout();
        if posts.is_empty() {
            return Ok(());
        }
        let (messages, max) = (posts.len(), layout.max_messages);
        if messages > max {
            return Err(SendError::BatchTooLarge { messages, max });
        }
        let longest = posts.iter().map(|post| post.wire().len()).max();
        self.check_len(longest.unwrap_or(0) - super::message::HEAD)?;
        let batch = Posts {
            posts,
            label: self.label(0),
        };
        self.shared
            .engine
            .send_batch(me, &batch, until.deadline())
            .map_err(|refused| self.error(refused))
    }

    #[inline(always)]
    fn label(&self, control: u16) -> usize {
        let index = self.index;
        marked(Mark { index, control }.to_bits())
    }

    #[inline(always)]
    pub(super) fn send_wire(
        &self,
        wire: &[u8],
        control: u16,
        deadline: Deadline,
    ) -> Result<(), SendError> {
        let shared = &*self.shared;
        shared.prefetch();
        let me = thread::current();
        shared.check_state()?;
        shared.check_owner(me)?;
        if wire.len() > shared.engine.segment().layout().message_size {
            self.check_len(wire.len() - super::message::HEAD)?;
        }
        let label = self.label(control);
        let result = match deadline {
            Deadline::Passed => shared.engine.try_send(me, wire, label, deadline),
            _ => shared.engine.send(me, wire, label, deadline),
        };
        result.map_err(|refused| self.error(refused))
    }

    #[cold]
    fn error(&self, refused: Refused) -> SendError {
        match refused {
            Refused::NotNow | Refused::Closed | Refused::Own(_) => SendError::Full,
            // The wait may have ended before its deadline, because the ring has no receiving process any more.
            Refused::TimedOut => match self.shared.check_receiver() {
                Err(error) => error,
                Ok(()) => SendError::TimedOut,
            },
            Refused::Interrupted => SendError::Interrupted,
            Refused::Fault(fault) => {
                if fault == crate::error::Fault::Damaged {
                    self.shared.engine.note_damage();
                }
                fault.into()
            }
        }
    }
}

/// The messages of a batch, for the engine.
struct Posts<'a> {
    posts: &'a [Post],
    label: usize,
}

impl Batch for Posts<'_> {
    fn len(&self) -> usize {
        self.posts.len()
    }

    #[inline(always)]
    fn message(&self, index: usize) -> (&[u8], usize) {
        (self.posts[index].wire(), self.label)
    }
}
