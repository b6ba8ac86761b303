//! Queues for tokio: `send` and `receive` wait without blocking a thread.
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
//! A call first tries the operation. If there is no message, or no room, the call waits on the queue's [descriptor](crate::posix::Queue::pollable),
//! which the runtime polls along with its sockets. Each attempt completes at once or does nothing. So a future that is dropped, by a time-out or by
//! `select!`, loses no message and sends none. The peer needs no tokio: it can be any task, thread or process that uses this library.
//!
//! Receiving from rings: [`AsyncRing`](crate::ring::AsyncRing).
//!
//! # Blocking
//! The calls never block, with one exception: if a process was stopped inside an operation on the queue, an attempt takes up to
//! a second.

pub mod posix;
pub mod sysv;

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A queue's descriptor, registered with the runtime.
#[derive(Debug)]
struct Polled(AsyncFd<OwnedFd>);

impl Polled {
    fn new(descriptor: BorrowedFd<'_>) -> io::Result<Polled> {
        let descriptor = descriptor.try_clone_to_owned()?;
        let both = Interest::READABLE | Interest::WRITABLE;
        // SAFETY: the registration owns the descriptor, closes it when the registration ends, and always returns the same descriptor.
        Ok(Polled(unsafe {
            AsyncFd::register_with_interest(descriptor, both)?
        }))
    }

    /// Repeats an attempt, at once and whenever the queue may be ready for it, until the attempt gives a result. Returns `interrupted` if the
    /// runtime shuts down. An attempt also fails if a peer was stopped, so after a failed attempt, `may` says whether a new attempt might succeed
    /// at once.
    async fn until<T, E>(
        &self,
        interest: Interest,
        may: impl Fn() -> bool,
        mut attempt: impl FnMut() -> Option<Result<T, E>>,
        interrupted: E,
    ) -> Result<T, E> {
        if let Some(outcome) = attempt() {
            return outcome;
        }
        loop {
            // The readiness is read before the attempt, so that an event that arrives during the attempt is not lost.
            let Ok(mut ready) = self.0.ready(interest).await else {
                return Err(interrupted);
            };
            if let Some(outcome) = attempt() {
                return outcome;
            }
            if may() {
                tokio::task::yield_now().await;
            } else {
                ready.clear_ready();
            }
        }
    }
}
