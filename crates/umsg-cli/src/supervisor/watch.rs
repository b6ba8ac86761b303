//! The supervisor's first thread. It looks at the leader and at the calls that block, and removes the records of descriptors that programs have
//! closed.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::lead::Lead;
use super::limits::Limits;
use super::serve::Server;

/// The time between two looks of the watch thread while programs make calls or wait in calls.
pub const TICK: Duration = Duration::from_millis(10);

/// The interval at which the supervisor looks for descriptors that programs have closed.
const SWEEP: Duration = Duration::from_secs(1);

/// The minimum length of the pause after a look, as a multiple of the look's duration. So the looks take at most one ninth of a processor.
const PAUSES: u32 = 8;

/// The pause of the watch thread between two looks.
pub struct Pause {
    /// Set while the watch thread sleeps without looks until a call comes.
    is_long: AtomicBool,
    /// The eventfd that ends a long pause.
    event: OwnedFd,
}

impl Pause {
    pub fn new() -> std::io::Result<Pause> {
        Ok(Pause {
            is_long: AtomicBool::new(false),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// Ends a long pause. The leader calls this function after it has received a call.
    #[inline]
    pub fn end(&self) {
        // SeqCst: pairs with `may_be_long`. The caller has changed the leader's word before this load.
        if self.is_long.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        // If the counter has its highest value, the write fails, but the eventfd is readable and wakes the watch thread.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// Sleeps until the time is over, until `wake`, or until a program has written a limit. Does not poll the listener, because each call would wake
    /// the poller.
    fn sleep(&self, time: Duration, limits: &Limits) {
        let time = Timespec {
            tv_sec: time.as_secs().cast_signed(),
            tv_nsec: time.subsec_nanos().into(),
        };
        let mut polled = [
            PollFd::new(&self.event, PollFlags::IN),
            PollFd::from_borrowed_fd(limits.as_fd(), PollFlags::IN),
        ];
        if poll(&mut polled, Some(&time)).is_ok() && !polled[0].revents().is_empty() {
            let _ = rustix::io::read(&self.event, &mut [0; 8]);
        }
        // If a leader has read the flag before this store, it wakes the watch thread once without need. SeqCst as for the other accesses to the flag.
        self.is_long.store(false, Ordering::SeqCst);
    }

    /// Announces a long pause. Returns whether the pause may be long: true if the supervisor has no call to look at.
    fn may_be_long(&self, server: &Server, word: u64) -> bool {
        // SeqCst: pairs with `end`. A leader changes its word before it reads `is_long`, so this thread sees the new word or the leader sees the
        // flag.
        self.is_long.store(true, Ordering::SeqCst);
        server.lead.word() == word && Lead::turn(word).is_none() && server.waits.is_empty()
    }
}

impl Server {
    pub fn watch(self: &Arc<Self>) -> ! {
        let mut word = self.lead.word();
        // The time at which the watch thread first saw the leader's word with the value `word`.
        let mut since = Instant::now();
        let (mut last_call, mut last_sweep) = (since, since);
        let mut pause = TICK;
        loop {
            let is_long = last_call.elapsed() >= SWEEP && self.pause.may_be_long(self, word);
            let time = if is_long { SWEEP } else { pause };
            self.pause.sleep(time, &self.limits);
            self.settle_limits();
            let begin = Instant::now();
            let now = self.lead.word();
            let is_stuck = now == word && begin - since >= TICK;
            if let Some(turn) = Lead::turn(now).filter(|_| is_stuck) {
                let server = Arc::clone(self);
                // If no thread can be started, the next look tries again.
                let _ = self.workers.perform(Box::new(move || {
                    if server.lead.take_over(turn) {
                        server.lead();
                    }
                }));
            }
            if now != word {
                (word, since) = (now, begin);
            }
            if since == begin || !self.waits.is_empty() {
                last_call = begin;
            }
            self.waits.look(&self.listener);
            if last_sweep.elapsed() >= SWEEP {
                last_sweep = begin;
                // Before Linux 6.11, the leader's wait for a call does not return when the last program ends. So this thread checks for the end.
                self.end_after_the_last();
                self.sweep();
            }
            pause = TICK.max(begin.elapsed() * PAUSES);
        }
    }
}
