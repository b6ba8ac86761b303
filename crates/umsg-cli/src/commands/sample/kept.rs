//! The queues that stay mapped between two samples.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use super::figures::Reason;

/// Queues of one kind, by name or identifier.
pub struct Kept<K, Q> {
    queues: HashMap<K, Entry<Q>>,
    /// The number of the current sample.
    sample: u64,
    /// The time after which the gatherer tries again to open a queue that could not be opened.
    retry: Duration,
}

struct Entry<Q> {
    /// The inode number of the queue's file. If the number has changed, the queue was replaced. 0 for System V queues: a new System V queue has
    /// another identifier, and so another entry.
    inode: u64,
    queue: Result<Q, Refused>,
    /// The number of the last sample that found the queue.
    seen: u64,
}

/// A queue that could not be opened.
struct Refused {
    why: Reason,
    at: Instant,
}

impl<K: Hash + Eq, Q> Kept<K, Q> {
    pub fn new(retry: Duration) -> Kept<K, Q> {
        Kept {
            queues: HashMap::new(),
            sample: 0,
            retry,
        }
    }

    pub fn begin(&mut self) {
        self.sample += 1;
    }

    /// Returns the queue. Opens the queue if it is new or was replaced. Returns None if the queue no longer exists.
    pub fn queue<B: ?Sized + Hash + Eq + ToOwned<Owned = K>>(
        &mut self,
        name: &B,
        inode: u64,
        open: impl FnOnce() -> Result<Q, Option<Reason>>,
    ) -> Option<Result<&Q, Reason>>
    where
        K: Borrow<B>,
    {
        let retry = self.retry;
        let is_kept = |entry: &Entry<Q>| {
            let refused = entry.queue.as_ref().err();
            entry.inode == inode && refused.is_none_or(|refused| refused.at.elapsed() < retry)
        };
        if !self.queues.get(name).is_some_and(is_kept) {
            // The entry is removed first, so that the old queue is unmapped before the new one is opened.
            self.queues.remove(name);
            let at = Instant::now();
            let queue = match open() {
                Ok(queue) => Ok(queue),
                Err(Some(why)) => Err(Refused { why, at }),
                Err(None) => return None,
            };
            let seen = self.sample;
            let entry = Entry { inode, queue, seen };
            self.queues.insert(name.to_owned(), entry);
        }
        let entry = self.queues.get_mut(name)?;
        entry.seen = self.sample;
        Some(entry.queue.as_ref().map_err(|refused| refused.why))
    }

    /// Returns a queue that is open since an earlier sample.
    pub fn known<B: ?Sized + Hash + Eq>(&self, name: &B) -> Option<&Q>
    where
        K: Borrow<B>,
    {
        self.queues.get(name)?.queue.as_ref().ok()
    }

    /// Unmaps the queues that the current sample has not found.
    pub fn end(&mut self) {
        let sample = self.sample;
        self.queues.retain(|_, entry| entry.seen == sample);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRY: Duration = Duration::from_secs(60);

    /// Takes a sample of these names and inodes, and returns the names that were opened.
    fn sample(kept: &mut Kept<String, u64>, found: &[(&str, u64)]) -> Vec<String> {
        let mut opened = Vec::new();
        kept.begin();
        for &(name, inode) in found {
            let queue = kept.queue(name, inode, || {
                opened.push(name.to_owned());
                Ok(inode)
            });
            assert_eq!(queue.unwrap().unwrap(), &inode);
        }
        kept.end();
        opened
    }

    #[test]
    fn a_queue_is_opened_once_and_again_if_it_was_replaced() {
        let mut kept = Kept::new(RETRY);
        assert_eq!(sample(&mut kept, &[("/a", 1), ("/b", 2)]), ["/a", "/b"]);
        assert!(sample(&mut kept, &[("/a", 1), ("/b", 2)]).is_empty());
        assert_eq!(sample(&mut kept, &[("/a", 3), ("/b", 2)]), ["/a"]);
        assert!(sample(&mut kept, &[("/b", 2)]).is_empty());
        assert_eq!(kept.queues.len(), 1, "a removed queue is not kept");
        assert_eq!(sample(&mut kept, &[("/a", 3)]), ["/a"]);
    }

    #[test]
    fn a_queue_that_can_not_be_opened_is_not_tried_at_each_sample() {
        let mut kept = Kept::<String, u64>::new(RETRY);
        let mut tried = 0;
        for _ in 0..3 {
            kept.begin();
            let queue = kept.queue("/a", 1, || {
                tried += 1;
                Err(Some(Reason::Permission))
            });
            assert!(matches!(queue, Some(Err(Reason::Permission))));
            kept.end();
        }
        assert_eq!(tried, 1);
        assert!(kept.queue("/gone", 1, || Err(None)).is_none());
    }
}
