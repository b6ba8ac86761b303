//! Queues in event loops.

use super::queue::Queue;
use std::io;
use std::os::fd::BorrowedFd;
use umsg_shm::doorbell::{Edges, Readiness};
use umsg_shm::sys::thread;

impl Queue {
    /// A descriptor for poll(2), select(2), epoll(7) or any event loop: readable (POLLIN) while there is a message, writable (POLLOUT)
    /// while there is room, whatever the handle may do. It shows the queue to every process that has it, is opened by the first
    /// call and stays the same until the queue is dropped. What is there is received and sent through the queue: the descriptor itself
    /// is only to be polled and passed on; the queue closes it.
    ///
    /// Messages and room are shown as Linux shows those of its own queues, one thing apart: where all messages are
    /// [leased](Queue::receive_lease) and the queue has no room left, the descriptor is writable, though nothing can be sent.
    ///
    /// Where another user's processes may use the queue, a thread of the library passes on to this process's pollers what those change.
    ///
    /// While a process has the descriptor open, a send or a receive on this queue that empties or fills it, or ends that, costs
    /// a system call. Nobody pays for it else: once all have closed it, or died, the others find out after some hundred messages.
    ///
    /// ```
    /// # let dir = std::env::temp_dir().join(format!("umsg-poll-{}", std::process::id()));
    /// # std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700).create(&dir)?;
    /// # let namespace = umsg::Namespace::at(&dir)?;
    /// # use rustix::event::{PollFd, PollFlags, poll};
    /// use umsg::posix::OpenOptions;
    /// # let mut options = OpenOptions::new();
    /// # options.namespace(&namespace);
    /// let queue = options.read(true).write(true).create(true).open("/news")?;
    /// let mut polled = [PollFd::from_borrowed_fd(queue.pollable()?, PollFlags::IN)];
    /// assert_eq!(poll(&mut polled, Some(&Default::default()))?, 0);
    /// queue.send(b"something", 0)?;
    /// assert_eq!(poll(&mut polled, None)?, 1);
    /// # std::fs::remove_dir_all(&dir)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// EMFILE, ENFILE; EACCES if the caller may make no file in the namespace; EOPNOTSUPP of a queue whose namespace is not known;
    /// ENOSPC, ENOMEM; EAGAIN if a process was stopped
    /// inside of an operation on this queue; EBADMSG if the queue is damaged.
    ///
    /// # If the process dies
    /// If a poller dies, other processes ring in vain for a while. If a process dies that rings, a poller is told.
    #[inline]
    pub fn pollable(&self) -> io::Result<BorrowedFd<'_>> {
        self.pollable_with(Edges::Changes)
    }

    /// As [`pollable`](Self::pollable), for a process that asks for edges (EPOLLET) and wants to be told of more than changes. From then on this
    /// costs every process that uses the queue, until no process has the descriptor open any more.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// use rustix::event::{PollFd, PollFlags, poll};
    ///
    /// queue.send(b"job", 0)?;
    /// let descriptor = queue.pollable_with(umsg::Edges::Messages)?;
    /// let mut polled = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    /// assert_eq!(poll(&mut polled, None)?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`pollable`](Self::pollable).
    #[inline]
    pub fn pollable_with(&self, edges: Edges) -> io::Result<BorrowedFd<'_>> {
        self.engine.pollable(thread::current(), edges.flags())
    }

    /// What a poll that does not wait would say, without a system call. Shown as to a poller: a message that is being handed to a
    /// blocked receiver is not there.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// assert!(!queue.readiness().readable && queue.readiness().writable);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn readiness(&self) -> Readiness {
        self.engine.repair_receivers(thread::current());
        self.engine.readiness(thread::current())
    }
}
