//! The dead-letter queue: where a queue's messages go that it could not keep or deliver.

use super::in_place::InPlace;
use super::options::OpenOptions;
use super::queue::Queue;
use crate::error::OpenError;
use crate::sys::clock::{self, Deadline};
use crate::sys::thread;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long a move waits for a lock of the queue whose owner is stopped.
const PATIENCE: Duration = Duration::from_millis(10);

/// Messages that a call moves at most: they are not what it was made for.
const MOST: u32 = 16;

/// What a handle knows of its queue's dead-letter queue.
#[derive(Debug, Default)]
pub(super) struct DeadLetters {
    queue: OnceLock<Box<Queue>>,
    /// CLOCK_MONOTONIC of the last attempt that failed, in nanoseconds: one a tick of the coarse clock is enough.
    failed_at: AtomicU64,
}

impl Queue {
    /// Sends to the dead-letter queue what was set aside, if the queue has one.
    #[inline(always)]
    pub(super) fn move_dead_letters(&self) {
        if self.engine.policy().dead_letter.is_some() && self.engine.has_set_aside() {
            self.move_dead_letters_slow();
        }
    }

    #[cold]
    fn move_dead_letters_slow(&self) {
        let failed_at = &self.dead_letters.failed_at;
        // Relaxed: how often to try.
        if failed_at.load(Ordering::Relaxed) == clock::monotonic_coarse() {
            return;
        }
        for _ in 0..MOST {
            if !self.engine.has_set_aside() {
                return;
            }
            match self.move_one() {
                Some(true) => {}
                Some(false) => {
                    failed_at.store(clock::monotonic_coarse(), Ordering::Relaxed);
                    return;
                }
                None => return,
            }
        }
    }

    /// Moves a message. None if there is none to be moved, false if it can't be now: it stays set aside.
    fn move_one(&self) -> Option<bool> {
        let me = thread::current();
        let grip = self
            .engine
            .begin_to_move(me, Deadline::after(PATIENCE))
            .ok()??;
        let sent = self.engine.place(&grip).is_ok_and(|place| {
            let mut data = vec![0; grip.len];
            InPlace::new(place, grip.len).read_at(0, &mut data);
            self.dead_letter_queue()
                .is_ok_and(|queue| queue.takes_dead_letter(&data, grip.key))
        });
        // It is in two queues if the process dies between.
        let _ = self.engine.end_move(me, &grip, sent);
        Some(sent)
    }

    /// Whether the message is sent. What this queue has set aside itself is left where it is: two queues may be each
    /// other's.
    fn takes_dead_letter(&self, data: &[u8], key: usize) -> bool {
        let sent = |()| {
            let me = thread::current();
            self.engine.try_send(me, data, key, Deadline::Passed).ok()
        };
        self.check_to_send(data.len()).ok().and_then(sent).is_some()
    }

    /// The dead-letter queue. It was there when this queue was created; who finds it missing does not make another one,
    /// because that would belong to whoever comes first.
    fn dead_letter_queue(&self) -> Result<&Queue, OpenError> {
        if let Some(queue) = self.dead_letters.queue.get() {
            return Ok(queue);
        }
        let (Some(name), Some(namespace)) = (
            &self.engine.policy().dead_letter,
            self.engine.segment().namespace(),
        ) else {
            return Err(OpenError::NotFound);
        };
        let queue = OpenOptions::new()
            .write(true)
            .namespace(namespace)
            .open(OsStr::from_bytes(name))?;
        Ok(self.dead_letters.queue.get_or_init(|| Box::new(queue)))
    }
}
