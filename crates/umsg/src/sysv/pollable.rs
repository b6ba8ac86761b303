//! Queues in event loops, which the kernel's System V queues can't be in.

use super::queue::Queue;
use std::io;
use std::os::fd::BorrowedFd;
use umsg_shm::doorbell::{Edges, Readiness};
use umsg_shm::sys::thread;

impl Queue {
    /// A descriptor for poll(2), select(2), epoll(7) or any event loop: readable (POLLIN) while there is a message of whatever type,
    /// writable (POLLOUT) while there is room for a byte; both once the queue is removed, so that a process that waits finds out. It is opened by the
    /// first call and stays the same until the queue is dropped. What is there is received and sent through the queue: the
    /// descriptor itself is only to be polled and passed on; the queue closes it.
    ///
    /// A poller that wants messages of some types, or more room than one byte, asks for edges: see
    /// [`pollable_with`](Self::pollable_with).
    ///
    /// While a process has the descriptor open, a send or a receive on this queue that empties or fills it, or ends that, costs
    /// a system call. Nobody pays for it else: once all have closed it, or died, the others find out after some hundred messages.
    ///
    /// ```
    /// # let dir = std::env::temp_dir().join(format!("umsg-sysv-poll-{}", std::process::id()));
    /// # std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700).create(&dir)?;
    /// # let namespace = umsg::Namespace::at(&dir)?;
    /// # use rustix::event::{PollFd, PollFlags, poll};
    /// use umsg::sysv::OpenOptions;
    /// # let mut options = OpenOptions::new();
    /// # options.namespace(&namespace);
    /// let queue = options.create(true).open(0x7507)?;
    /// let mut polled = [PollFd::from_borrowed_fd(queue.pollable()?, PollFlags::IN)];
    /// assert_eq!(poll(&mut polled, Some(&Default::default()))?, 0);
    /// queue.send(1, b"something")?;
    /// assert_eq!(poll(&mut polled, None)?, 1);
    /// # std::fs::remove_dir_all(&dir)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// EMFILE, ENFILE; EACCES if the caller may make no file in the namespace; EINVAL if the queue was removed; EOPNOTSUPP of a queue
    /// whose namespace is not known, or on a file system without access control lists, if the queue is another user's; ENOSPC, ENOMEM;
    /// EAGAIN if a process was stopped inside of an operation on this queue; EBADMSG if the queue is damaged.
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
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use rustix::event::{PollFd, PollFlags, poll};
    ///
    /// queue.send(1, b"job")?;
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

    /// What a poll that does not wait would say, without a system call.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// assert!(!queue.readiness().readable && queue.readiness().writable);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn readiness(&self) -> Readiness {
        self.engine.readiness()
    }
}
