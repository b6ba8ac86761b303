//! The namespace's limit of bytes, asked when memory comes into use.

use crate::namespace::Namespace;
use crate::sys::clock;
use crate::sys::stack::roomy;
use std::sync::atomic::{AtomicU64, Ordering};

/// How long "there is no limit" is believed, in nanoseconds. A limit that is set is asked each time.
const TRUST: u64 = 100_000_000;

/// Which namespace a segment's memory counts in.
#[derive(Debug)]
pub(crate) struct Quota {
    namespace: Namespace,
    /// The reading of the machine's clock until which there is known to be no limit.
    unlimited_until: AtomicU64,
}

impl Quota {
    pub(crate) fn of(namespace: Namespace) -> Quota {
        Quota {
            namespace,
            unlimited_until: AtomicU64::new(0),
        }
    }

    pub(crate) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Whether `more` bytes may come into use.
    pub(crate) fn allows(&self, more: usize) -> bool {
        // Relaxed: a hint that only saves asking.
        clock::monotonic() < self.unlimited_until.load(Ordering::Relaxed)
            || roomy(|| self.allows_slow(more))
    }

    #[cold]
    fn allows_slow(&self, more: usize) -> bool {
        // A namespace that can't be asked any more (removed, or out of sight) has no say.
        let Some(limit) = self.namespace.max_bytes() else {
            self.unlimited_until
                .store(clock::monotonic().saturating_add(TRUST), Ordering::Relaxed);
            return true;
        };
        self.namespace
            .allocated_bytes()
            .is_ok_and(|used| used.saturating_add(more as u64) <= limit)
    }
}
