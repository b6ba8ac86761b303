//! Priority inversion: whether a thread of medium priority delays a thread of high priority, while a thread of low priority holds a
//! lock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::threads::become_fifo;
use crate::clock;
use crate::failure::Failure;
use crate::machine;
use crate::suites::calls::{NAME, Named, Queue, SIZE};
use crate::suites::priorities::{Priorities as _, Random};
use crate::trial::Setting;

const LOW: i32 = 1;
const MEDIUM: i32 = 50;
const HIGH: i32 = 90;

/// The pause of the thread of high priority between two calls.
const CYCLE: Duration = Duration::from_millis(1);

/// Nanoseconds for which the thread of medium priority takes the CPU.
const BURST: u64 = 100_000_000;

/// The minimum pause between two bursts, in microseconds. Up to a third is added at random.
const PAUSE: u64 = 20_000;

const MESSAGE: [u8; SIZE] = [0; SIZE];

/// Returns the nanoseconds of each send and receive of the thread of high priority.
pub fn measure(setting: &Setting) -> Result<Vec<f64>, Failure> {
    let named = Named::create(NAME)?;
    let queue = named.queue();
    let over = AtomicBool::new(false);
    let cpu = setting.first();
    let end = clock::now() + setting.budget.as_nanos() as u64;
    // The calling thread needs another CPU, because the threads of SCHED_FIFO leave it no time on their own CPU.
    machine::pin_to(&setting.cpus)?;
    thread::scope(|scope| {
        let threads = [
            scope.spawn(|| low(queue, cpu, &over)),
            scope.spawn(|| medium(cpu, &over)),
        ];
        let high = scope.spawn(|| high(queue, cpu, end)).join();
        // Relaxed: the flag publishes no other data, and the threads may see it late.
        over.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().map_err(|_| panicked())??;
        }
        high.map_err(|_| panicked())?
    })
}

fn panicked() -> Failure {
    Failure::new("a thread panicked")
}

/// Sends and receives without pause.
fn low(queue: &Queue, cpu: usize, over: &AtomicBool) -> Result<(), Failure> {
    become_fifo(cpu, LOW)?;
    // Relaxed: see `measure`.
    while !over.load(Ordering::Relaxed) {
        // The thread of high priority may run between the two calls. The queue may then be full or empty, and the call fails. The failure is
        // expected.
        let _ = queue.send_late(&MESSAGE);
        let _ = queue.receive_late();
    }
    Ok(())
}

/// Takes the CPU for a burst now and then.
fn medium(cpu: usize, over: &AtomicBool) -> Result<(), Failure> {
    become_fifo(cpu, MEDIUM)?;
    let mut random = Random::FIRST;
    // Relaxed: see `measure`.
    while !over.load(Ordering::Relaxed) {
        let longer = u64::from(random.next()) % (PAUSE / 3);
        thread::sleep(Duration::from_micros(PAUSE + longer));
        let end = clock::now() + BURST;
        while clock::now() < end && !over.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    }
    Ok(())
}

fn high(queue: &Queue, cpu: usize, end: u64) -> Result<Vec<f64>, Failure> {
    become_fifo(cpu, HIGH)?;
    let mut times = Vec::with_capacity(1 << 20);
    while clock::now() < end {
        thread::sleep(CYCLE);
        let start = clock::now();
        queue.send(&MESSAGE)?;
        queue.receive()?;
        times.push((clock::now() - start) as f64);
    }
    Ok(times)
}
