//! Threads of one process that work at the same time until the end of the round.
//!
//! ```text
//! worker ──fork──▶ child: thread 0, thread 1 ... thread n-1, each counting on a line of its own
//!                         and one that sleeps, reads clock and counts twice, and says stop
//! ```
//!
//! The measured time lies between two readings of the clock while all threads work, so it excludes the start and the end of the threads.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::child::{self, Child};
use crate::clock;
use crate::failure::Failure;
use crate::machine;
use crate::shared::SharedWords;
use crate::supervisor;

/// Bytes of a thread's stack. The stack is small because a crew may have hundreds of threads.
const STACK: usize = 128 * 1024;

/// The warm-up takes the measured time divided by this number.
const WARM_UP: u32 = 4;

/// The CPUs of each thread.
pub type Seats = Vec<Vec<usize>>;

/// Places all threads on one CPU.
pub fn together(threads: usize, cpu: usize) -> Seats {
    vec![vec![cpu]; threads]
}

/// Places the threads on the CPUs in turn, so that consecutive threads have different CPUs.
pub fn spread(threads: usize, cpus: &[usize]) -> Seats {
    let turns = cpus.iter().cycle();
    turns.take(threads).map(|&cpu| vec![cpu]).collect()
}

/// Lets the scheduler choose the CPUs.
pub fn anywhere(threads: usize, cpus: &[usize]) -> Seats {
    vec![cpus.to_vec(); threads]
}

/// The result of a round.
pub struct Yield {
    /// The number of operations that all threads counted together.
    pub count: u64,
    /// The time of the round, in nanoseconds.
    pub elapsed: u64,
    /// CPU time of all threads, in nanoseconds.
    pub cpu: u64,
}

impl Yield {
    /// Returns the rate of all threads together, in thousands of operations a second.
    pub fn rate(&self) -> f64 {
        self.count as f64 / self.elapsed as f64 * 1e6
    }

    /// Returns the CPU time of all threads, in nanoseconds for each counted operation.
    pub fn cpu_each(&self) -> f64 {
        self.cpu as f64 / self.count as f64
    }
}

/// A thread's own count, on a cache line that no other thread writes.
#[repr(align(128))]
#[derive(Default)]
struct Tally(AtomicU64);

/// A thread of the crew: its index, its count, and the flag that ends the round.
pub struct Member<'a> {
    /// The index of the thread, from 0 up.
    pub index: usize,
    tally: &'a Tally,
    over: &'a AtomicBool,
}

impl Member<'_> {
    /// Returns whether the round is over.
    #[inline]
    pub fn is_over(&self) -> bool {
        // Relaxed: the flag publishes no other data. A thread that sees it late works a little longer.
        self.over.load(Ordering::Relaxed)
    }

    /// Adds to the count of this thread's operations.
    #[inline]
    pub fn count(&self, more: u64) {
        // Relaxed: only this thread writes the count, and an approximate count suffices for the reader.
        let before = self.tally.0.load(Ordering::Relaxed);
        self.tally.0.store(before + more, Ordering::Relaxed);
    }
}

/// Runs one thread for each seat, in a separate process: first for a warm-up, and then for the time `budget`. `work` must return soon after the round
/// is over.
///
/// # Errors
/// Fails if a thread fails, or if the process has not ended at the deadline. The process is then killed.
pub fn run(
    seats: &Seats,
    budget: Duration,
    work: impl Fn(&Member<'_>) -> Result<(), Failure> + Sync,
) -> Result<Yield, Failure> {
    let words = SharedWords::new(3)?;
    let mut cpus = seats.concat();
    cpus.sort_unstable();
    cpus.dedup();
    let measure = || {
        let found = measure(seats, budget, &work)?;
        let figures = [found.count, found.elapsed, found.cpu];
        for (index, figure) in figures.into_iter().enumerate() {
            words.set(index, figure);
        }
        Ok(())
    };
    child::wait_for_all(&mut [Child::start(&cpus, measure)?])?;
    Ok(Yield {
        count: words.get(0),
        elapsed: words.get(1),
        cpu: words.get(2),
    })
}

/// Runs in the child: starts the threads, and reads the clock and the counts while they work.
fn measure(
    seats: &Seats,
    budget: Duration,
    work: &(impl Fn(&Member<'_>) -> Result<(), Failure> + Sync),
) -> Result<Yield, Failure> {
    let tallies: Vec<Tally> = seats.iter().map(|_| Tally::default()).collect();
    let (over, start) = (AtomicBool::new(false), Barrier::new(seats.len() + 1));
    thread::scope(|scope| {
        for (index, (cpus, tally)) in seats.iter().zip(&tallies).enumerate() {
            let (over, start) = (&over, &start);
            let member = Member { index, tally, over };
            let body = move || {
                let seated = machine::pin_to(cpus);
                start.wait();
                if let Err(failure) = seated.and_then(|()| work(&member)) {
                    // The process ends at once, because the other threads may wait for this thread for ever.
                    eprintln!("umsg-bench: {failure}");
                    supervisor::exit_child(1);
                }
            };
            let builder = thread::Builder::new().stack_size(STACK);
            builder.spawn_scoped(scope, body)?;
        }
        // Without a higher priority, this thread would wait for a whole round behind hundreds of threads that never sleep.
        machine::come_first();
        start.wait();
        thread::sleep(budget / WARM_UP);
        let before = reading(&tallies);
        thread::sleep(budget);
        let after = reading(&tallies);
        // Relaxed: see `Member::is_over`.
        over.store(true, Ordering::Relaxed);
        Ok(Yield {
            count: after.count - before.count,
            elapsed: after.elapsed - before.elapsed,
            cpu: after.cpu - before.cpu,
        })
    })
}

fn reading(tallies: &[Tally]) -> Yield {
    Yield {
        elapsed: clock::now(),
        cpu: clock::cpu(),
        // Relaxed: see `Member::count`.
        count: tallies
            .iter()
            .map(|tally| tally.0.load(Ordering::Relaxed))
            .sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_apart_as_long_as_there_are_cpus() {
        assert_eq!(spread(3, &[1, 0]), [[1], [0], [1]]);
        assert_eq!(together(2, 5), [[5], [5]]);
    }

    #[test]
    fn each_thread_has_its_own_index_and_learns_when_to_stop() {
        let arrived = SharedWords::new(3).unwrap();
        let found = run(&anywhere(3, &[0]), Duration::from_millis(20), |member| {
            while !member.is_over() {
                member.count(1);
            }
            arrived.increment(member.index);
            Ok(())
        });
        assert!(found.unwrap().count > 0);
        assert_eq!([0, 1, 2].map(|index| arrived.get(index)), [1, 1, 1]);
    }

    #[test]
    fn a_thread_that_fails_ends_those_that_wait_for_it() {
        let failed = run(&anywhere(2, &[0]), Duration::from_millis(1), |member| {
            if member.index == 0 {
                // `abort` prints no message. Printing takes the lock of standard error, which a thread that the fork did not copy may hold.
                std::process::abort();
            }
            loop {
                thread::park();
            }
        });
        assert!(failed.is_err());
    }
}
