//! Cyclic wake-ups: a thread sends at fixed times to a thread that sleeps in mq_receive(3).

use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::threads::become_fifo;
use crate::clock;
use crate::failure::Failure;
use crate::machine;
use crate::suites::calls::{NAME, Named, Queue, SIZE};
use crate::trial::Setting;

const PRIORITY: i32 = 80;

/// Nanoseconds between two sends.
const CYCLE: u64 = 1_000_000;

/// The stamp of the last message.
const LAST: u64 = u64::MAX;

pub fn on_one_core(setting: &Setting) -> Result<Vec<f64>, Failure> {
    measure(setting, [setting.first(), setting.first()])
}

pub fn on_two_cores(setting: &Setting) -> Result<Vec<f64>, Failure> {
    match setting.first() == setting.last() {
        true => Err(Failure::new("two CPUs are needed, and one is available")),
        false => measure(setting, [setting.first(), setting.last()]),
    }
}

/// Returns the nanoseconds from the start of each send until the receiver has the message.
fn measure(setting: &Setting, cpus: [usize; 2]) -> Result<Vec<f64>, Failure> {
    let named = Named::create(NAME)?;
    let queue = named.queue();
    let over = AtomicBool::new(false);
    machine::pin_to(&setting.cpus)?;
    // If the system refused the receiver its real-time scheduler, the sender would wait for ever. So this thread checks the permission first.
    thread::scope(|scope| scope.spawn(|| become_fifo(cpus[0], PRIORITY)).join())
        .map_err(|_| panicked())??;
    thread::scope(|scope| {
        for &cpu in &setting.cpus {
            let over = &over;
            scope.spawn(move || load(cpu, over));
        }
        let receiver = scope.spawn(|| receive(queue, cpus[1]));
        let sent = scope.spawn(|| send(queue, cpus[0], setting)).join();
        let received = receiver.join();
        // Relaxed: the flag publishes no other data, and the threads may see it late.
        over.store(true, Ordering::Relaxed);
        sent.map_err(|_| panicked())??;
        received.map_err(|_| panicked())?
    })
}

fn panicked() -> Failure {
    Failure::new("a thread panicked")
}

/// Keeps a CPU busy, in user space and in system calls.
fn load(cpu: usize, over: &AtomicBool) {
    // Without the binding, the thread still loads some CPU.
    let _ = machine::pin(cpu);
    // Relaxed: see `measure`.
    while !over.load(Ordering::Relaxed) {
        clock::spin(5_000);
        // SAFETY: getppid has no conditions.
        unsafe { libc::syscall(libc::SYS_getppid) };
    }
}

fn send(queue: &Queue, cpu: usize, setting: &Setting) -> Result<(), Failure> {
    become_fifo(cpu, PRIORITY)?;
    let mut next = clock::now();
    let end = next + setting.budget.as_nanos() as u64;
    while next < end {
        next += CYCLE;
        sleep_until(next);
        queue.send(&message(clock::now()))?;
    }
    queue.send(&message(LAST))
}

fn receive(queue: &Queue, cpu: usize) -> Result<Vec<f64>, Failure> {
    become_fifo(cpu, PRIORITY)?;
    let mut times = Vec::with_capacity(1 << 20);
    loop {
        let message = queue.receive()?;
        let now = clock::now();
        let mut stamp = [0; size_of::<u64>()];
        stamp.copy_from_slice(&message[..size_of::<u64>()]);
        match u64::from_ne_bytes(stamp) {
            LAST => return Ok(times),
            sent => times.push(now.saturating_sub(sent) as f64),
        }
    }
}

fn message(stamp: u64) -> [u8; SIZE] {
    let mut message = [0; SIZE];
    message[..size_of::<u64>()].copy_from_slice(&stamp.to_ne_bytes());
    message
}

/// Sleeps until a time of CLOCK_MONOTONIC.
fn sleep_until(nanoseconds: u64) {
    let time = libc::timespec {
        tv_sec: (nanoseconds / 1_000_000_000) as libc::time_t,
        tv_nsec: (nanoseconds % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: the time is a valid local, and the call takes null for a remaining time that is not wanted.
    unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &raw const time,
            ptr::null_mut(),
        )
    };
}
