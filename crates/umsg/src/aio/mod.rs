//! Queues for tokio: `send` and `receive` that wait without a thread.
//!
//! ```
//! # let dir = std::env::temp_dir().join(format!("umsg-aio-{}", std::process::id()));
//! # std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700).create(&dir)?;
//! # let namespace = umsg::Namespace::at(&dir)?;
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! # let mut options = umsg::posix::OpenOptions::new();
//! # options.namespace(&namespace);
//! use std::time::Duration;
//! use tokio::time::timeout;
//!
//! let queue = options.read(true).write(true).create(true).open("/jobs")?;
//! let queue = umsg::aio::posix::Queue::new(queue)?;
//! queue.send(b"paint the wall", 0).await?;
//! let job = timeout(Duration::from_secs(1), queue.receive_vec()).await??;
//! assert_eq!(job.data, b"paint the wall");
//! assert!(timeout(Duration::from_millis(1), queue.receive_vec()).await.is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # std::fs::remove_dir_all(&dir)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A call first tries; it waits only if there is no message, or no room, by the queue's [descriptor](crate::posix::Queue::pollable), which
//! the runtime polls along with its sockets. What is tried is done at once, or not at all: so a future that is dropped, by a time-out
//! or by `select!`, has received nothing that would be lost, and has sent nothing. A process that is on the other side need not know of it:
//! another task, thread or process, with these calls or with any others.
//!
//! Receiving from rings: [`AsyncRing`](crate::ring::AsyncRing).
//!
//! # Blocking
//! The calls never block, one case apart: if a process was stopped inside of an operation on the queue, an attempt takes up to a second.

pub mod posix;
pub mod sysv;

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A queue's descriptor, as the runtime polls it.
#[derive(Debug)]
struct Polled(AsyncFd<OwnedFd>);

impl Polled {
    fn new(descriptor: BorrowedFd<'_>) -> io::Result<Polled> {
        let descriptor = descriptor.try_clone_to_owned()?;
        let both = Interest::READABLE | Interest::WRITABLE;
        // SAFETY: the descriptor is the registration's own, which closes it when it ends, and always the same.
        Ok(Polled(unsafe {
            AsyncFd::register_with_interest(descriptor, both)?
        }))
    }

    /// Tries, and tries again whenever the queue may be ready for it, until it succeeds; None: the runtime shuts down. `may` says after
    /// an attempt in vain whether it might succeed all the same, because a peer was stopped.
    async fn until<T>(
        &self,
        interest: Interest,
        may: impl Fn() -> bool,
        mut attempt: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        loop {
            // Before the attempt: what is told meanwhile is not forgotten.
            let mut ready = self.0.ready(interest).await.ok()?;
            if let Some(outcome) = attempt() {
                return Some(outcome);
            }
            if may() {
                tokio::task::yield_now().await;
            } else {
                ready.clear_ready();
            }
        }
    }
}
