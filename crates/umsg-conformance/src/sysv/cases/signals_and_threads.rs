//! Signals, stops, threads and their cancellation.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering};
use std::thread;

use libc::{SA_RESTART, SIGUSR1};

use crate::children::{Child, wait_until, wait_until_asleep};
use crate::errno::Errno;
use crate::sys;
use crate::sysv::backend::Functions;
use crate::sysv::site::{Message, Queue, Site, message};

subject_of_sysv! { $ signals_and_threads, signals_and_threads_cases:
    a_caught_signal_interrupts_a_waiting_receive
    a_caught_signal_interrupts_a_waiting_send
    a_handler_with_sa_restart_interrupts_a_receive_too
    a_handler_with_sa_restart_interrupts_a_send_too
    an_interrupted_receive_takes_nothing
    an_interrupted_send_leaves_nothing
    an_ignored_signal_does_not_interrupt
    stop_and_continue_do_not_disturb_a_receiver
    stop_and_continue_do_not_disturb_a_sender
    calls_from_a_signal_handler_work
    threads_of_a_process_wait_each_for_itself
    a_thread_that_takes_a_message_is_named_by_its_process
    a_thread_that_is_handed_a_message_is_named_itself
    a_cancelled_thread_ends_in_a_waiting_receive
    a_cancelled_thread_ends_in_a_waiting_send
    a_cancelled_thread_ends_on_entry
}

extern "C" fn nothing(_: i32) {}

/// Starts a child that has a handler for SIGUSR1, and waits until it is blocked in a receive.
fn receiver<'a>(site: &'a Site, queue: Queue, flags: i32) -> Child<'a, Result<Message, Errno>> {
    site.blocked(move || {
        let handles = site.backend().handle_signal(SIGUSR1, nothing, flags);
        site.ask(handles).expect("a handler");
        queue.receive_waiting(0)
    })
}

/// Makes a full queue. Starts a child that has a handler for SIGUSR1, and waits until it is blocked in a send to that queue. Returns both.
fn sender<'a>(site: &'a Site, flags: i32) -> (Queue<'a>, Child<'a, Result<(), Errno>>) {
    let queue = site.queue_for(4);
    assert_eq!(queue.send(1, "1234"), Ok(()));
    let sender = site.blocked(move || {
        let handles = site.backend().handle_signal(SIGUSR1, nothing, flags);
        site.ask(handles).expect("a handler");
        queue.send_waiting(2, "abcd")
    });
    (queue, sender)
}

fn a_caught_signal_interrupts_a_waiting_receive(site: &Site) {
    let queue = site.queue();
    let receiver = receiver(site, queue, 0);
    receiver.signal(SIGUSR1);
    assert_eq!(receiver.result(), Err(Errno::EINTR));
}

fn a_caught_signal_interrupts_a_waiting_send(site: &Site) {
    let (_, sender) = sender(site, 0);
    sender.signal(SIGUSR1);
    assert_eq!(sender.result(), Err(Errno::EINTR));
}

fn a_handler_with_sa_restart_interrupts_a_receive_too(site: &Site) {
    let queue = site.queue();
    let receiver = receiver(site, queue, SA_RESTART);
    receiver.signal(SIGUSR1);
    assert_eq!(receiver.result(), Err(Errno::EINTR));
}

fn a_handler_with_sa_restart_interrupts_a_send_too(site: &Site) {
    let (_, sender) = sender(site, SA_RESTART);
    sender.signal(SIGUSR1);
    assert_eq!(sender.result(), Err(Errno::EINTR));
}

fn an_interrupted_receive_takes_nothing(site: &Site) {
    let queue = site.queue();
    let receiver = receiver(site, queue, 0);
    receiver.signal(SIGUSR1);
    assert_eq!(receiver.result(), Err(Errno::EINTR));
    assert_eq!(queue.send(1, "kept"), Ok(()));
    assert_eq!(queue.counts(), (1, 4));
    assert_eq!(queue.drain(), [message(1, "kept")]);
}

fn an_interrupted_send_leaves_nothing(site: &Site) {
    let (queue, sender) = sender(site, 0);
    sender.signal(SIGUSR1);
    assert_eq!(sender.result(), Err(Errno::EINTR));
    assert_eq!(queue.drain(), [message(1, "1234")]);
    assert_eq!(queue.counts(), (0, 0));
    assert_eq!(queue.send(3, "four"), Ok(()));
}

fn an_ignored_signal_does_not_interrupt(site: &Site) {
    let queue = site.queue();
    sys::set_disposition(SIGUSR1, libc::SIG_IGN);
    let receiver = site.blocked(|| queue.receive_waiting(0));
    receiver.signal(SIGUSR1);
    receiver.expect_still_blocked();
    assert_eq!(queue.send(1, "x"), Ok(()));
    assert_eq!(receiver.result(), Ok(message(1, "x")));
}

/// Stops and continues a child, and checks that it is still blocked.
fn stop_and_continue<T: crate::children::Carried>(child: &Child<'_, T>) {
    child.signal(libc::SIGSTOP);
    wait_until(|| sys::state(child.pid()) == Some(b'T'));
    child.signal(libc::SIGCONT);
    wait_until(|| sys::is_asleep(child.pid()));
    child.expect_still_blocked();
}

fn stop_and_continue_do_not_disturb_a_receiver(site: &Site) {
    let queue = site.queue();
    let receiver = site.blocked(|| queue.receive_waiting(0));
    stop_and_continue(&receiver);
    assert_eq!(queue.send(1, "x"), Ok(()));
    assert_eq!(receiver.result(), Ok(message(1, "x")));
}

fn stop_and_continue_do_not_disturb_a_sender(site: &Site) {
    let queue = site.queue_for(4);
    assert_eq!(queue.send(1, "1234"), Ok(()));
    let sender = site.blocked(|| queue.send_waiting(2, "abcd"));
    stop_and_continue(&sender);
    assert_eq!(queue.receive(0), Ok(message(1, "1234")));
    assert_eq!(sender.result(), Ok(()));
    assert_eq!(queue.drain(), [message(2, "abcd")]);
}

/// The identifier of the queue to which `send_from_handler` sends, and the site that it uses.
static ANSWERS: AtomicI32 = AtomicI32::new(-1);
static SITE: AtomicPtr<Site> = AtomicPtr::new(ptr::null_mut());

extern "C" fn send_from_handler(_: i32) {
    // SAFETY: the case sets the address before it installs this handler, and the site lives until the process ends.
    let site = unsafe { &*SITE.load(Ordering::Relaxed) };
    let queue = site.at(ANSWERS.load(Ordering::Relaxed));
    let _ = queue.send(77, "handled");
}

fn calls_from_a_signal_handler_work(site: &Site) {
    let [queue, answers] = [site.queue(), site.queue()];
    ANSWERS.store(answers.id(), Ordering::Relaxed);
    SITE.store(ptr::from_ref(site).cast_mut(), Ordering::Relaxed);
    let receiver = site.blocked(|| {
        let handles = site.backend().handle_signal(SIGUSR1, send_from_handler, 0);
        site.ask(handles).expect("a handler");
        queue.receive_waiting(0)
    });
    receiver.signal(SIGUSR1);
    assert_eq!(answers.receive_waiting(0), Ok(message(77, "handled")));
    assert_eq!(receiver.result(), Err(Errno::EINTR));
}

/// Waits until another thread of this process has reported its id and sleeps.
fn wait_for_thread(tid: &AtomicU32) {
    wait_until(|| tid.load(Ordering::Acquire) != 0);
    wait_until_asleep(tid.load(Ordering::Acquire) as i32, || false);
}

fn threads_of_a_process_wait_each_for_itself(site: &Site) {
    let queue = site.queue();
    let tids = [(); 3].map(|()| AtomicU32::new(0));
    thread::scope(|scope| {
        let threads: Vec<_> = (1..)
            .zip(&tids)
            .map(|(mtype, tid)| {
                scope.spawn(move || {
                    tid.store(sys::tid() as u32, Ordering::Release);
                    queue.receive_waiting(mtype)
                })
            })
            .collect();
        tids.iter().for_each(wait_for_thread);
        for mtype in [3, 1, 2] {
            assert_eq!(queue.send(mtype, [mtype as u8]), Ok(()));
        }
        for (mtype, thread) in (1..).zip(threads) {
            let received = thread.join().expect("a thread");
            assert_eq!(received, Ok(message(mtype, [mtype as u8])));
        }
    });
}

fn a_thread_that_takes_a_message_is_named_by_its_process(site: &Site) {
    let queue = site.queue();
    assert_eq!(queue.send(1, "x"), Ok(()));
    let received = thread::scope(|scope| scope.spawn(|| queue.receive(0)).join());
    assert_eq!(received.expect("a thread"), Ok(message(1, "x")));
    let status = queue.status().expect("its status");
    assert_eq!(status.last_receiver, sys::pid());
}

// In the kernel, the sender records the id of the waiting thread as the last receiver.
fn a_thread_that_is_handed_a_message_is_named_itself(site: &Site) {
    let queue = site.queue();
    let tid = AtomicU32::new(0);
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            tid.store(sys::tid() as u32, Ordering::Release);
            queue.receive_waiting(0)
        });
        wait_for_thread(&tid);
        assert_eq!(queue.send(1, "x"), Ok(()));
        assert!(receiver.join().expect("a thread").is_ok());
    });
    let status = queue.status().expect("its status");
    assert_eq!(status.last_receiver, tid.load(Ordering::Acquire) as i32);
    assert_ne!(status.last_receiver, sys::pid());
}

/// The data of a thread that the test cancels.
struct Doomed {
    functions: Functions,
    id: i32,
    sends: bool,
    tid: AtomicU32,
    may_begin: AtomicU32,
}

/// The function has no values that Rust has to drop: the cancellation unwinds through the function, or leaves it by a jump.
extern "C-unwind" fn doomed(argument: *mut c_void) -> *mut c_void {
    // SAFETY: the address is that of a `Doomed` that outlives this thread.
    let doomed = unsafe { &*argument.cast::<Doomed>() };
    doomed.tid.store(sys::tid() as u32, Ordering::Release);
    while doomed.may_begin.load(Ordering::Acquire) == 0 {
        std::hint::spin_loop();
    }
    let mut message = [1_i64, 0];
    let place = ptr::from_mut(&mut message).cast();
    // SAFETY: the buffer has room for the type and a text of eight bytes.
    unsafe {
        if doomed.sends {
            (doomed.functions.msgsnd)(doomed.id, place, 8, 0);
        } else {
            (doomed.functions.msgrcv)(doomed.id, place, 8, 0, 0);
        }
    }
    ptr::null_mut()
}

/// Starts a thread that sends or receives. Cancels the thread before the call, or while the call waits. Returns whether the thread was cancelled.
fn is_cancelled(site: &Site, queue: Queue, sends: bool, before: bool) -> bool {
    site.need_cancellation_points();
    let doomed_thread = Doomed {
        functions: *site.functions(),
        id: queue.id(),
        sends,
        tid: AtomicU32::new(0),
        may_begin: AtomicU32::new(u32::from(!before)),
    };
    let mut thread = 0;
    let argument = ptr::from_ref(&doomed_thread).cast_mut().cast();
    // SAFETY: the thread is joined below, before its data are freed.
    let made = unsafe { crate::sys::start_thread(&mut thread, doomed, argument) };
    assert_eq!(made, Ok(()));
    if before {
        wait_until(|| doomed_thread.tid.load(Ordering::Acquire) != 0);
    } else {
        wait_for_thread(&doomed_thread.tid);
    }
    // SAFETY: the thread has not been joined.
    let cancelled = unsafe { (doomed_thread.functions.pthread_cancel)(thread) };
    assert_eq!(cancelled, 0);
    doomed_thread.may_begin.store(1, Ordering::Release);
    let mut outcome = ptr::null_mut();
    // SAFETY: the thread has not been joined, and the call writes the outcome to a local.
    assert_eq!(unsafe { libc::pthread_join(thread, &mut outcome) }, 0);
    // The value is PTHREAD_CANCELED.
    outcome.addr() == usize::MAX
}

fn a_cancelled_thread_ends_in_a_waiting_receive(site: &Site) {
    let queue = site.queue();
    assert!(is_cancelled(site, queue, false, false));
    assert_eq!(queue.send(1, "kept"), Ok(()));
    assert_eq!(queue.drain(), [message(1, "kept")]);
}

fn a_cancelled_thread_ends_in_a_waiting_send(site: &Site) {
    let queue = site.queue_for(4);
    assert_eq!(queue.send(1, "1234"), Ok(()));
    assert!(is_cancelled(site, queue, true, false));
    assert_eq!(queue.drain(), [message(1, "1234")]);
    assert_eq!(queue.counts(), (0, 0));
}

fn a_cancelled_thread_ends_on_entry(site: &Site) {
    let queue = site.queue();
    assert!(is_cancelled(site, queue, true, true));
    assert_eq!(queue.counts(), (0, 0));
    assert_eq!(queue.send(1, "kept"), Ok(()));
    assert!(is_cancelled(site, queue, false, true));
    assert_eq!(queue.drain(), [message(1, "kept")]);
}
