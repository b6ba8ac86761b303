//! Queues in event loops.

use super::queue::Queue;
use std::io;
use std::os::fd::BorrowedFd;
use umsg_shm::doorbell::{Edges, Readiness};
use umsg_shm::sys::thread;

impl Queue {
    /// Returns a descriptor for poll(2), select(2), epoll(7) or any event loop. The descriptor is readable (POLLIN) while there is a message, and
    /// writable (POLLOUT) while there is room. The descriptor shows both states in every process that has the descriptor, whatever the access of the
    /// handle.
    ///
    /// The first call opens the descriptor, and later calls return the same descriptor. A drop of the queue closes the descriptor. Use the descriptor
    /// only to poll it, and to pass it on. Send and receive through the queue.
    ///
    /// The descriptor shows messages and room as Linux does for its own queues, with one exception. If all messages are
    /// [leased](Queue::receive_lease) and the queue has no room left, the descriptor is writable, although a send would wait. A poller of
    /// edges (EPOLLET) gets an event when there is room again.
    ///
    /// If processes of other users may use the queue, a thread of the library tells this process's pollers of their sends and receives.
    ///
    /// Time or a death may bring a message, room or the end of the stream: a delayed message reaches its delivery time, the holder of a lease or of a
    /// reservation dies, or the last producer dies. A thread of this process checks for these changes, and makes the descriptor ready within a tenth
    /// of a second. If a process polls before the queue has its first delayed message or lease, the process has no such thread yet. The first delayed
    /// message or lease then makes the descriptor ready once, although a receive finds no message. That receive starts the thread.
    ///
    /// While a process has the descriptor open, a send or receive costs a system call if it makes the queue empty or full, or ends that state. Other
    /// calls cost no more than usual. When every polling process has closed the descriptor or died, the other processes notice this change after at
    /// most some hundred messages.
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
    /// EMFILE, ENFILE; EACCES if the caller may not create files in the namespace; EOPNOTSUPP if the queue's namespace is not known;
    /// ENOSPC, ENOMEM; EAGAIN if a process was stopped inside an operation on this queue; EBADMSG if the queue is corrupted.
    ///
    /// # If the process dies
    /// If a poller dies, other processes continue to make system calls for it for a while. If a process dies while it makes the descriptor ready, a
    /// poller still gets the event.
    #[inline]
    pub fn pollable(&self) -> io::Result<BorrowedFd<'_>> {
        self.pollable_with(Edges::Changes)
    }

    /// Returns a descriptor as [`pollable`](Self::pollable) does, for an edge-triggered poller (EPOLLET) that must also be woken when the readiness
    /// stays the same. After this call, every process that uses the queue pays a system call for each event that `edges` selects. The cost ends when
    /// no process has the descriptor open any more.
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
    /// The errors of [`pollable`](Self::pollable).
    #[inline]
    pub fn pollable_with(&self, edges: Edges) -> io::Result<BorrowedFd<'_>> {
        self.engine.pollable(thread::current(), edges.flags())
    }

    /// Spins for some microseconds until there is a message, as a call does before it sleeps. The call returns at once if recent spins have found no
    /// message, if the machine has one processor, or with [`Waiting::Blocking`](super::Waiting::Blocking). Returns whether there seems to be a
    /// message. For event loops.
    #[doc(hidden)]
    #[must_use]
    pub fn look_for_message(&self) -> bool {
        self.engine.look_for_message(thread::current())
    }

    /// Returns the result of a poll that does not wait, without a system call. A message that is being handed to a blocked receiver does not count,
    /// as for pollers.
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
