//! The engines' view of a namespace: its limit of bytes, the liveness ids of its processes, and its poll FIFOs.

use super::life::Registry;
use super::{Namespace, changes};
use rustix::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use umsg_shm::fault::AttachError;
use umsg_shm::memory::{FifoName, Host};
use umsg_shm::sys::clock;
use umsg_shm::sys::liveness::UNREGISTERED;
use umsg_shm::sys::stack::roomy;

/// The time for which the absence of a limit is cached, in nanoseconds. An existing limit is read each time.
const TRUST: u64 = 100_000_000;

/// The interface of a namespace to the engines of its queues.
#[derive(Debug)]
struct NamespaceHost {
    namespace: Namespace,
    /// The registry of liveness ids. None if the path leads to another directory: then ids can be neither registered nor checked.
    registry: Option<Registry>,
    /// The time of the machine's clock until which the absence of a limit is cached.
    unlimited_until: AtomicU64,
}

impl Namespace {
    /// Returns the namespace's interface for its segments.
    pub(crate) fn host(&self) -> Arc<dyn Host> {
        Arc::new(NamespaceHost {
            namespace: self.clone(),
            registry: Registry::of(self),
            unlimited_until: AtomicU64::new(0),
        })
    }

    /// Returns whether the limit permits `more` bytes.
    ///
    /// If the namespace was removed, or its path leads to another directory, every allocation is permitted.
    pub(crate) fn allows(&self, more: usize) -> bool {
        roomy(|| {
            self.max_bytes()
                .is_none_or(|limit| self.is_within(limit, more))
        })
    }

    fn is_within(&self, limit: u64, more: usize) -> bool {
        self.allocated_bytes()
            .is_ok_and(|used| used.saturating_add(more as u64) <= limit)
    }
}

impl NamespaceHost {
    #[cold]
    fn allows_slow(&self, more: usize) -> bool {
        let Some(limit) = self.namespace.max_bytes() else {
            self.unlimited_until
                .store(clock::monotonic().saturating_add(TRUST), Ordering::Relaxed);
            return true;
        };
        self.namespace.is_within(limit, more)
    }
}

impl Host for NamespaceHost {
    fn allows(&self, more: usize) -> bool {
        // Relaxed: a hint that only saves system calls.
        clock::monotonic() < self.unlimited_until.load(Ordering::Relaxed)
            || roomy(|| self.allows_slow(more))
    }

    fn announce_counts(&self, id: i32) {
        changes::announce_counts(&self.namespace, id);
    }

    fn own_life(&self) -> u32 {
        self.registry.as_ref().map_or(UNREGISTERED, Registry::own)
    }

    fn known_life(&self) -> Option<u32> {
        self.registry.as_ref()?.known()
    }

    fn is_over(&self, life: u32) -> bool {
        let registry = self.registry.as_ref();
        registry.is_some_and(|registry| registry.is_over(life))
    }

    fn join(&self) -> Result<(), AttachError> {
        let joined = self.registry.as_ref().map_or(Ok(()), Registry::join);
        joined.map_err(|(call, errno)| AttachError::Unregistered { call, errno })
    }

    fn open_fifo(&self, name: FifoName) -> io::Result<OwnedFd> {
        self.namespace.open_poll_fifo(name)
    }

    fn make_fifo(&self, name: FifoName) -> io::Result<OwnedFd> {
        self.namespace.make_poll_fifo(name)
    }

    fn make_private_fifo(&self) -> io::Result<OwnedFd> {
        self.namespace.make_private_fifo()
    }

    fn leads_to(&self, name: FifoName, fifo: BorrowedFd<'_>) -> bool {
        self.namespace.leads_to(name, fifo)
    }

    fn remove_fifo(&self, name: FifoName) {
        self.namespace.remove_poll_fifo(name);
    }

    fn sweep_fifos(&self) {
        self.namespace.sweep_poll_fifos();
    }
}
