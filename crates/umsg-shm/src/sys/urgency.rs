//! Finds out whether a thread has a real-time policy, and keeps a positive answer for some waits.
//!
//! A thread needs a system call to find out its policy. The thread makes this call only after it has spun for a lock without success. A real-time
//! thread keeps the answer for its next waits. In these waits, it lends its priority without another call, and spins for a shorter time. If its
//! policy changes meanwhile, the thread joins the line of real-time threads with its ordinary priority, and lends nothing. A negative answer is never
//! kept.

use super::thread;
use std::cell::Cell;

/// The number of waits for which a positive answer is kept. The next wait after these waits takes longer, because it spins as long as an ordinary
/// thread does and then makes the system call.
const KEPT: u16 = 4_096;

/// The number of further waits in which the thread is treated as a real-time thread.
pub(crate) struct Urgency(Cell<u16>);

impl Urgency {
    pub(crate) const fn unknown() -> Urgency {
        Urgency(Cell::new(0))
    }

    /// Returns whether the thread had a real-time policy when it last asked the kernel. The result is a guess.
    pub(crate) fn is_likely(&self) -> bool {
        self.0.get() != 0
    }

    /// Returns whether the calling thread, which has this id and waits, is treated as a real-time thread.
    pub(crate) fn counts(&self, tid: u32) -> bool {
        let left = match self.0.get() {
            0 if thread::is_real_time(tid) => KEPT,
            left => left,
        };
        self.0.set(left.saturating_sub(1));
        left != 0
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use umsg_testkit::real_time;

    #[test]
    fn a_policy_is_asked_for_until_it_is_real_time_then_rarely() {
        let urgency = Urgency::unknown();
        let tid = thread::current().tid();
        assert!(!urgency.counts(tid) && !urgency.counts(tid));
        if !real_time::is_permitted() {
            return;
        }
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (urgency, tid) = (Urgency::unknown(), thread::current().tid());
                assert!(!urgency.counts(tid) && !urgency.is_likely());
                assert!(real_time::become_urgent(1));
                assert!(urgency.counts(tid) && urgency.is_likely(), "asked again");
                let parameters = libc::sched_param { sched_priority: 0 };
                // SAFETY: 0 is the calling thread, and the call only reads a local.
                let changed = unsafe {
                    libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const parameters)
                };
                assert_eq!(changed, 0);
                let kept = (0..KEPT).filter(|_| urgency.counts(tid)).count();
                assert_eq!(kept, usize::from(KEPT) - 1);
                assert!(!urgency.counts(tid) && !urgency.is_likely());
            });
        });
    }
}
