//! Queues in event loops. The kernel's System V queues can't be polled.

use super::queue::Queue;
use std::io;
use std::os::fd::BorrowedFd;
use umsg_shm::doorbell::{Edges, Readiness};
use umsg_shm::sys::thread;

impl Queue {
    /// Returns a descriptor for poll(2), select(2), epoll(7) or any event loop.
    ///
    /// The descriptor is readable (POLLIN) while there is a message of any type, and writable (POLLOUT) while there is room for a byte.
    /// After the removal of the queue, the descriptor is readable and writable, so that a poller notices the removal.
    ///
    /// The first call opens the descriptor, which stays the same until the queue is dropped. The queue closes the descriptor. Programs only poll the
    /// descriptor and pass it on; they send and receive through the queue.
    ///
    /// A poller that wants messages of certain types, or more room than one byte, asks for edges: see
    /// [`pollable_with`](Self::pollable_with).
    ///
    /// Time or a death may bring a message, room or the end of the stream: the delivery time of a delayed message comes, the holder of a lease dies,
    /// the last producer dies. A thread of this process looks for these changes, and makes the descriptor ready within a tenth of a second. If a
    /// process polls before the queue has its first delayed message or lease, the process has no such thread yet. That first message or lease makes
    /// the descriptor ready once, although a receive finds no message. That receive starts the thread.
    ///
    /// While a process has the descriptor open, a send or receive that changes the readiness costs a system call. When all pollers have closed the
    /// descriptor or died, this cost ends after at most some hundred messages.
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
    /// - EMFILE, ENFILE, ENOSPC, ENOMEM.
    /// - EACCES if the caller may not create files in the namespace.
    /// - EAGAIN if a process was stopped inside of an operation on this queue.
    /// - EBADMSG if the queue is corrupted.
    /// - EINVAL if the queue was removed.
    /// - EOPNOTSUPP if the queue's namespace is not known, or if the queue belongs to another user and the file system has no access
    ///   control lists.
    ///
    /// # If the process dies
    /// If a poller dies, other processes continue to make system calls for it for a while. If a process dies while it makes the descriptor ready, a
    /// poller still gets the event.
    #[inline]
    pub fn pollable(&self) -> io::Result<BorrowedFd<'_>> {
        self.pollable_with(Edges::Changes)
    }

    /// Returns the descriptor as [`pollable`](Self::pollable) does, for an edge-triggered poller (EPOLLET) that must also be woken when the readiness
    /// stays the same. Every process that uses the queue pays a system call for each event that `edges` selects, until no process has the descriptor
    /// open.
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
    /// The errors of [`pollable`](Self::pollable).
    #[inline]
    pub fn pollable_with(&self, edges: Edges) -> io::Result<BorrowedFd<'_>> {
        self.engine.pollable(thread::current(), edges.flags())
    }

    /// Returns the readiness that a poll without waiting reports. The function makes no system call.
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
