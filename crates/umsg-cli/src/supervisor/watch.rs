//! The supervisor's first thread: looks at the leader and at the calls that block, and gives up what programs have closed.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::lead::Lead;
use super::limits::Limits;
use super::serve::Server;

/// The time between two looks, while programs make calls or wait in them.
pub const TICK: Duration = Duration::from_millis(10);

/// How often the supervisor looks for descriptors that programs have closed.
const SWEEP: Duration = Duration::from_secs(1);

/// The part of a processor that the looks at calls may take, as the least number of pauses for each look of the same length.
const PAUSES: u32 = 8;

/// The pause between two looks.
pub struct Pause {
    /// Set while the watch sleeps until a call comes.
    is_long: AtomicBool,
    /// Ends a long pause.
    event: OwnedFd,
}

impl Pause {
    pub fn new() -> std::io::Result<Pause> {
        Ok(Pause {
            is_long: AtomicBool::new(false),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// Ends a long pause. Follows each call that a thread takes.
    #[inline]
    pub fn end(&self) {
        // SeqCst: pairs with `may_be_long`. The caller has changed the leader's word before.
        if self.is_long.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        // A full counter wakes the watch as well.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// Sleeps until the time is over, or a program has written a limit. Does not look at the listener: each call would wake a poller of it.
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
        // A leader that still sees the pause wakes the watch once without need. The order is that of the other accesses.
        self.is_long.store(false, Ordering::SeqCst);
    }

    /// Announces a long pause. Returns whether there is nothing to look at.
    fn may_be_long(&self, server: &Server, word: u64) -> bool {
        // SeqCst: a leader changes the word before it reads `is_long`.
        self.is_long.store(true, Ordering::SeqCst);
        server.lead.word() == word && Lead::turn(word).is_none() && server.waits.is_empty()
    }
}

impl Server {
    pub fn watch(self: &Arc<Self>) -> ! {
        let mut word = self.lead.word();
        // The time of the look that found `word` first.
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
                // Without a thread, the next look tries again.
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
                // Before Linux 6.11, the leader's wait for a call does not return when the last program ends.
                self.end_after_the_last();
                self.sweep();
            }
            pause = TICK.max(begin.elapsed() * PAUSES);
        }
    }
}
