//! The effect of signals on a waiting process, and calls that a signal handler makes.

use std::ptr::{from_ref, null_mut};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use super::blocking_and_waiters::{blocked, full_queue};
use crate::children::{Carried, Child, wait_until};
use crate::errno::Errno;
use crate::site::{Message, Site, message};
use crate::sys::{self, from_now};

subject! { $ signals_and_waiters, signals_and_waiters_cases:
    a_caught_signal_interrupts_a_blocked_receive
    a_caught_signal_interrupts_a_blocked_send
    a_caught_signal_interrupts_a_timed_call
    a_caught_signal_interrupts_whenever_it_comes
    a_handler_with_sa_restart_does_not_interrupt_a_receive
    a_handler_with_sa_restart_does_not_interrupt_a_send
    a_handler_with_sa_restart_does_not_interrupt_a_timed_call
    a_restarted_call_keeps_its_deadline
    a_restarted_receive_waits_behind_the_others
    a_restarted_send_waits_behind_the_others
    a_restarted_call_looks_at_o_nonblock_again
    an_interrupted_receive_takes_nothing
    an_interrupted_send_leaves_nothing
    stop_and_continue_do_not_disturb_a_receiver
    stop_and_continue_do_not_disturb_a_sender
    stop_and_continue_do_not_disturb_a_timed_call
    calls_from_a_signal_handler_work
}

/// The number of times that the handler `count` ran in this process.
static HANDLED: AtomicI32 = AtomicI32::new(0);

extern "C" fn count(_: i32) {
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

/// Starts a child that has a handler for SIGUSR1 and is blocked in a call. The child returns the result of the call, and fails if the handler did not
/// run.
fn blocked_with_handler<'a, T: Carried>(
    site: &'a Site,
    flags: i32,
    work: impl FnOnce() -> Result<T, Errno>,
) -> Child<'a, Result<T, Errno>> {
    blocked(site, || {
        site.ask(site.backend().handle_signal(libc::SIGUSR1, count, flags))?;
        let result = work();
        assert_ne!(
            HANDLED.load(Ordering::Relaxed),
            0,
            "the handler did not run"
        );
        result
    })
}

fn a_caught_signal_interrupts_a_blocked_receive(site: &Site) {
    let queue = site.queue(1, 8);
    let receiver = blocked_with_handler(site, 0, || queue.receive());
    receiver.signal(libc::SIGUSR1);
    assert_eq!(receiver.result(), Err(Errno::EINTR));
}

fn a_caught_signal_interrupts_a_blocked_send(site: &Site) {
    let queue = full_queue(site);
    let sender = blocked_with_handler(site, 0, || queue.send(b"second", 0));
    sender.signal(libc::SIGUSR1);
    assert_eq!(sender.result(), Err(Errno::EINTR));
}

fn a_caught_signal_interrupts_a_timed_call(site: &Site) {
    let (empty, full) = (site.queue(1, 8), full_queue(site));
    let receiver = blocked_with_handler(site, 0, || empty.receive_by(from_now(30_000)));
    receiver.signal(libc::SIGUSR1);
    assert_eq!(receiver.result(), Err(Errno::EINTR));
    let sender = blocked_with_handler(site, 0, || full.send_by(b"second", 0, from_now(30_000)));
    sender.signal(libc::SIGUSR1);
    assert_eq!(sender.result(), Err(Errno::EINTR));
}

fn a_caught_signal_interrupts_whenever_it_comes(site: &Site) {
    const WAITERS: usize = 40;
    // These busy processes compete with the waiters for the processors. So the test notices a waiter that wakes up periodically.
    let busy: Vec<_> = (0..4)
        .map(|_| {
            site.child(|| {
                loop {
                    std::hint::spin_loop();
                }
            })
        })
        .collect::<Vec<Child<'_, ()>>>();
    let queues: Vec<_> = (0..4).map(|_| site.queue(1, 8)).collect();
    for round in 0..5 {
        let receivers: Vec<_> = (0..WAITERS)
            .map(|at| {
                let queue = queues[at % queues.len()];
                blocked_with_handler(site, 0, move || queue.receive())
            })
            .collect();
        thread::sleep(Duration::from_millis(37 * round));
        for receiver in &receivers {
            receiver.signal(libc::SIGUSR1);
        }
        for receiver in receivers {
            assert_eq!(receiver.result(), Err(Errno::EINTR));
        }
    }
    for child in busy {
        child.kill();
    }
}

/// Sends SIGUSR1 several times, and checks that the child stays blocked.
fn expect_undisturbed<T: Carried>(child: &Child<'_, T>) {
    for _ in 0..3 {
        child.signal(libc::SIGUSR1);
        child.expect_still_blocked();
    }
    child.wait_until_blocked();
}

fn a_handler_with_sa_restart_does_not_interrupt_a_receive(site: &Site) {
    let queue = site.queue(1, 8);
    let receiver = blocked_with_handler(site, libc::SA_RESTART, || queue.receive());
    expect_undisturbed(&receiver);
    assert_eq!(queue.send(b"still", 0), Ok(()));
    assert_eq!(receiver.result(), Ok(message("still", 0)));
}

fn a_handler_with_sa_restart_does_not_interrupt_a_send(site: &Site) {
    let queue = full_queue(site);
    let sender = blocked_with_handler(site, libc::SA_RESTART, || queue.send(b"second", 0));
    expect_undisturbed(&sender);
    assert_eq!(queue.receive(), Ok(message("first", 0)));
    assert_eq!(sender.result(), Ok(()));
    assert_eq!(queue.receive(), Ok(message("second", 0)));
}

fn a_handler_with_sa_restart_does_not_interrupt_a_timed_call(site: &Site) {
    let (empty, full) = (site.queue(1, 8), full_queue(site));
    let receiver = blocked_with_handler(site, libc::SA_RESTART, || {
        empty.receive_by(from_now(30_000))
    });
    expect_undisturbed(&receiver);
    assert_eq!(empty.send(b"still", 0), Ok(()));
    assert_eq!(receiver.result(), Ok(message("still", 0)));
    let sender = blocked_with_handler(site, libc::SA_RESTART, || {
        full.send_by(b"second", 0, from_now(30_000))
    });
    expect_undisturbed(&sender);
    assert_eq!(full.receive(), Ok(message("first", 0)));
    assert_eq!(sender.result(), Ok(()));
}

fn a_restarted_call_keeps_its_deadline(site: &Site) {
    let queue = site.queue(1, 8);
    let receiver = site.child(|| {
        let handles = site
            .backend()
            .handle_signal(libc::SIGALRM, count, libc::SA_RESTART);
        site.ask(handles)?;
        // The child sets the timer before its deadline. So the signal comes first, also on a machine that delays the child or its parent.
        sys::start_timer(Duration::from_millis(100));
        let result = queue.receive_by(from_now(600)).map(drop);
        let handled = HANDLED.load(Ordering::Relaxed);
        assert_eq!(handled, 1, "the handler did not run");
        result
    });
    assert_eq!(receiver.result(), Err(Errno::ETIMEDOUT));
}

/// A child blocked in a call. The signal SIGUSR1 interrupts the call, and its handler has SA_RESTART.
struct Restarted<'a, T> {
    child: Child<'a, Result<T, Errno>>,
    /// The number of runs of the handler.
    told: &'static AtomicU32,
}

/// The counter that the handler `tell` increments.
static TOLD: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());

extern "C" fn tell(_: i32) {
    // SAFETY: the word stays mapped until the process ends.
    if let Some(told) = unsafe { TOLD.load(Ordering::Relaxed).as_ref() } {
        told.fetch_add(1, Ordering::Release);
    }
}

impl<T: Carried> Restarted<'_, T> {
    fn blocked<'a>(site: &'a Site, work: impl FnOnce() -> Result<T, Errno>) -> Restarted<'a, T> {
        let told = &sys::shared_words(1).expect("shared memory")[0];
        let child = blocked(site, || {
            TOLD.store(from_ref(told).cast_mut(), Ordering::Relaxed);
            let backend = site.backend();
            site.ask(backend.handle_signal(libc::SIGUSR1, tell, libc::SA_RESTART))?;
            work()
        });
        Restarted { child, told }
    }

    /// Makes the handler run. The call may continue or end.
    fn disturb(&self) {
        let before = self.told.load(Ordering::Acquire);
        self.child.signal(libc::SIGUSR1);
        wait_until(|| self.told.load(Ordering::Acquire) != before);
    }

    /// Makes the handler run, and waits until the call is blocked again.
    fn restart(&self) {
        self.disturb();
        self.child.wait_until_blocked();
    }
}

fn a_restarted_receive_waits_behind_the_others(site: &Site) {
    site.need_descriptors();
    let queue = site.queue(1, 8);
    let first = Restarted::blocked(site, || queue.receive());
    let second = blocked(site, || queue.receive());
    first.restart();
    assert_eq!(queue.send(b"one", 0), Ok(()));
    assert_eq!(second.result(), Ok(message("one", 0)));
    assert_eq!(queue.send(b"two", 0), Ok(()));
    assert_eq!(first.child.result(), Ok(message("two", 0)));
}

fn a_restarted_send_waits_behind_the_others(site: &Site) {
    site.need_descriptors();
    let queue = full_queue(site);
    let second = Restarted::blocked(site, || queue.send(b"second", 0));
    let third = blocked(site, || queue.send(b"third", 0));
    second.restart();
    for expected in ["first", "third", "second"] {
        assert_eq!(queue.receive(), Ok(message(expected, 0)));
    }
    assert_eq!(second.child.result(), Ok(()));
    assert_eq!(third.result(), Ok(()));
}

fn a_restarted_call_looks_at_o_nonblock_again(site: &Site) {
    site.need_descriptors();
    let (empty, full) = (site.queue(1, 8), full_queue(site));
    let receiver = Restarted::blocked(site, || empty.receive());
    let sender = Restarted::blocked(site, || full.send(b"second", 0));
    for queue in [empty, full] {
        queue.set_nonblocking(true);
    }
    receiver.child.expect_still_blocked();
    sender.child.expect_still_blocked();
    receiver.disturb();
    sender.disturb();
    assert_eq!(receiver.child.result(), Err(Errno::EAGAIN));
    assert_eq!(sender.child.result(), Err(Errno::EAGAIN));
}

fn an_interrupted_receive_takes_nothing(site: &Site) {
    let queue = site.queue(1, 8);
    let receiver = blocked_with_handler(site, 0, || queue.receive());
    receiver.signal(libc::SIGUSR1);
    assert_eq!(receiver.result(), Err(Errno::EINTR));
    assert_eq!(queue.send(b"safe", 0), Ok(()));
    assert_eq!(queue.receive(), Ok(message("safe", 0)));
}

fn an_interrupted_send_leaves_nothing(site: &Site) {
    let queue = full_queue(site);
    let sender = blocked_with_handler(site, 0, || queue.send(b"ghost", 9));
    sender.signal(libc::SIGUSR1);
    assert_eq!(sender.result(), Err(Errno::EINTR));
    queue.set_nonblocking(true);
    assert_eq!(queue.drain(), [message("first", 0)]);
    assert_eq!(queue.fill(), 1);
}

/// Stops a child, waits for a while, and continues the child.
fn stop_for_a_while<T: Carried>(child: &Child<'_, T>) {
    child.signal(libc::SIGSTOP);
    wait_until(|| sys::state(child.pid()) == Some(b'T'));
    child.expect_still_blocked();
    child.signal(libc::SIGCONT);
    child.wait_until_blocked();
    child.expect_still_blocked();
}

fn stop_and_continue_do_not_disturb_a_receiver(site: &Site) {
    let queue = site.queue(1, 8);
    let receiver = blocked(site, || queue.receive());
    stop_for_a_while(&receiver);
    assert_eq!(queue.send(b"still", 0), Ok(()));
    assert_eq!(receiver.result(), Ok(message("still", 0)));
    let receiver = blocked(site, || queue.receive());
    receiver.signal(libc::SIGSTOP);
    wait_until(|| sys::state(receiver.pid()) == Some(b'T'));
    assert_eq!(queue.send(b"stopped", 0), Ok(()));
    receiver.expect_still_blocked();
    receiver.signal(libc::SIGCONT);
    assert_eq!(receiver.result(), Ok(message("stopped", 0)));
}

fn stop_and_continue_do_not_disturb_a_sender(site: &Site) {
    let queue = full_queue(site);
    let sender = blocked(site, || queue.send(b"second", 0));
    stop_for_a_while(&sender);
    assert_eq!(queue.receive(), Ok(message("first", 0)));
    assert_eq!(sender.result(), Ok(()));
    assert_eq!(queue.receive(), Ok(message("second", 0)));
}

fn stop_and_continue_do_not_disturb_a_timed_call(site: &Site) {
    let queue = site.queue(1, 8);
    let receiver = blocked(site, || queue.receive_by(from_now(30_000)));
    stop_for_a_while(&receiver);
    assert_eq!(queue.send(b"still", 0), Ok(()));
    assert_eq!(receiver.result(), Ok(message("still", 0)));
}

/// The site that the signal handler `echo` uses: a case can't pass arguments to a signal handler.
static HANDLERS_SITE: std::sync::atomic::AtomicPtr<Site> =
    std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());
static HANDLERS_QUEUE: AtomicI32 = AtomicI32::new(-1);

extern "C" fn echo(_: i32) {
    // SAFETY: the case set the address before the signal could arrive. The site lives as long as the process.
    let site = unsafe { &*HANDLERS_SITE.load(Ordering::Acquire) };
    let backend = site.backend();
    let queue = HANDLERS_QUEUE.load(Ordering::Acquire);
    let mut buffer = [0; 8];
    let Ok((length, priority)) = backend.receive(queue, &mut buffer) else {
        return;
    };
    let _ = backend.send(queue, &buffer[..length], priority + 1);
}

fn calls_from_a_signal_handler_work(site: &Site) {
    let (blocked_on, echoed) = (site.queue(1, 8), site.queue(1, 8));
    HANDLERS_SITE.store(std::ptr::from_ref(site).cast_mut(), Ordering::Release);
    HANDLERS_QUEUE.store(echoed.fd(), Ordering::Release);
    let receiver = blocked(site, || {
        site.ask(
            site.backend()
                .handle_signal(libc::SIGUSR1, echo, libc::SA_RESTART),
        )?;
        blocked_on.receive()
    });
    for round in 0..20 {
        assert_eq!(echoed.send(b"echo", round), Ok(()));
        receiver.signal(libc::SIGUSR1);
        wait_until(|| {
            let got: Option<Message> = echoed.receive_by(from_now(1000)).ok();
            let done = got.as_ref().is_some_and(|got| got.priority == round + 1);
            if let Some(got) = got.filter(|_| !done) {
                echoed.send(&got.data, got.priority).expect("room");
            }
            done
        });
    }
    assert_eq!(blocked_on.send(b"end", 0), Ok(()));
    assert_eq!(receiver.result(), Ok(message("end", 0)));
}
