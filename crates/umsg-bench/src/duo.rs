//! Two processes that begin their work together, and must end by a deadline.

use std::hint;

use crate::child::{self, Child};
use crate::clock;
use crate::failure::Failure;
use crate::shared::SharedWords;

/// The number of checks at the barrier before a process yields the CPU.
const BARRIER_SPINS: u32 = 1000;

/// The CPUs of the two processes of a pair.
#[derive(Clone, Copy, Debug)]
pub enum Places {
    /// Each process runs on its own CPU.
    Apart(usize, usize),
    /// The two processes run on one CPU.
    Together(usize),
    /// The scheduler chooses between the two CPUs.
    Anywhere(usize, usize),
}

impl Places {
    /// Returns the CPUs that the first and the second process may use.
    fn cpus(self) -> [Vec<usize>; 2] {
        match self {
            Self::Apart(first, second) => [vec![first], vec![second]],
            Self::Together(cpu) => [vec![cpu], vec![cpu]],
            Self::Anywhere(first, second) => [vec![first, second], vec![first, second]],
        }
    }
}

/// A meeting point of the two processes of a pair.
pub struct Barrier(SharedWords);

impl Barrier {
    /// Waits until both processes of the pair have called this function. The deadline of the pair bounds the wait.
    pub fn meet(&self) {
        self.0.increment(0);
        let mut spins = 0;
        while self.0.get(0) < 2 {
            spins += 1;
            if spins < BARRIER_SPINS {
                hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }
}

/// Forks two processes and waits for both processes. Each process gets the barrier, and must call [`Barrier::meet`] once when the process is ready.
///
/// # Errors
/// Fails if a process fails, dies or exceeds the deadline. The other process is then killed, and no process remains.
pub fn run(
    places: Places,
    first: impl FnOnce(&Barrier) -> Result<(), Failure>,
    second: impl FnOnce(&Barrier) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let barrier = Barrier(SharedWords::new(1)?);
    let [first_cpus, second_cpus] = places.cpus();
    let mut children = [
        Child::start(&first_cpus, || first(&barrier))?,
        Child::start(&second_cpus, || second(&barrier))?,
    ];
    child::wait_for_all(&mut children)
}

/// Measures the shortest time, in nanoseconds, that a cache line takes from one process to the other. The time is a lower bound for any exchange of
/// messages. The figure also shows whether the two CPUs of a virtual machine are at present on one core or on two.
pub fn line_transfer(places: Places) -> Result<f64, Failure> {
    const BLOCKS: u64 = 20;
    const TRIPS: u64 = 1_000;
    let line = SharedWords::new(1)?;
    let result = SharedWords::new(1)?;
    let wait_for = |value| {
        while line.get(0) != value {
            hint::spin_loop();
        }
    };
    run(
        places,
        |barrier| {
            barrier.meet();
            let mut best = u64::MAX;
            for block in 0..BLOCKS {
                let start = clock::now();
                for trip in block * TRIPS..(block + 1) * TRIPS {
                    line.set(0, 2 * trip + 1);
                    wait_for(2 * trip + 2);
                }
                best = best.min(clock::now() - start);
            }
            result.set(0, best);
            Ok(())
        },
        |barrier| {
            barrier.meet();
            for trip in 0..BLOCKS * TRIPS {
                wait_for(2 * trip + 1);
                line.set(0, 2 * trip + 2);
            }
            Ok(())
        },
    )?;
    Ok(result.get(0) as f64 / (2 * TRIPS) as f64)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The process ends without printing a message. In a forked child of a test, the lock of the standard streams may be held by a thread that the
    /// fork did not copy.
    #[test]
    fn a_child_that_dies_takes_the_other_one_with_it() {
        let failed = run(
            Places::Together(0),
            |barrier| {
                barrier.meet();
                std::process::abort()
            },
            |barrier| {
                barrier.meet();
                loop {
                    std::thread::sleep(Duration::from_secs(1));
                }
            },
        );
        assert!(failed.unwrap_err().to_string().contains("killed by signal"));
    }
}
