//! Signal handlers that use the very queue that their thread is using, and handlers that interrupt a call.

#[path = "signals/first_call.rs"]
mod first_call;
#[path = "signals/storm.rs"]
mod storm;
mod support;

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use support::place::Place;
use umsg::posix::{Queue, ReceiveError, SendError, Waiting};

/// The queue that the handler uses, and the results of the handler's calls.
static QUEUE: AtomicPtr<Queue> = AtomicPtr::new(std::ptr::null_mut());
static RUNS: AtomicU64 = AtomicU64::new(0);
static DEFERRED: AtomicU64 = AtomicU64::new(0);
static SENT: AtomicU64 = AtomicU64::new(0);
static RECEIVED: AtomicU64 = AtomicU64::new(0);
static WRONG: AtomicBool = AtomicBool::new(false);

/// Sends one message and receives one, at any point of the interrupted thread.
extern "C" fn handler(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: these are the arguments that the kernel gave to this handler.
    if unsafe { umsg::signals::defer(signal, info, context.cast()) } {
        DEFERRED.fetch_add(1, Ordering::Relaxed);
        return;
    }
    // SAFETY: the siginfo is valid while the handler runs. A deferred signal arrives with its original siginfo.
    if unsafe { (*info).si_code } != libc::SI_TIMER {
        WRONG.store(true, Ordering::Relaxed);
    }
    RUNS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the pointer is set before the timer starts and the queue outlives the timer.
    let queue = unsafe { &*QUEUE.load(Ordering::Relaxed) };
    match queue.try_send(b"from the handler", 1) {
        Ok(()) => _ = SENT.fetch_add(1, Ordering::Relaxed),
        Err(SendError::Full) => {}
        Err(_) => WRONG.store(true, Ordering::Relaxed),
    }
    let mut buffer = [0; 64];
    match queue.try_receive(&mut buffer) {
        Ok(_) => _ = RECEIVED.fetch_add(1, Ordering::Relaxed),
        Err(ReceiveError::Empty) => {}
        Err(_) => WRONG.store(true, Ordering::Relaxed),
    }
}

/// A timer that raises SIGALRM in the calling thread, stopped when dropped.
struct Timer(libc::timer_t);

impl Timer {
    fn start(interval: Duration) -> Timer {
        let period = libc::timespec {
            tv_sec: 0,
            tv_nsec: interval.subsec_nanos().into(),
        };
        let times = libc::itimerspec {
            it_interval: period,
            it_value: period,
        };
        let mut timer = std::ptr::null_mut();
        // SAFETY: zeroed memory is a valid sigevent, and the fields that SIGEV_THREAD_ID needs are set; all pointers are
        // to locals.
        unsafe {
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = libc::SIGALRM;
            event.sigev_notify_thread_id = libc::gettid();
            let clock = libc::CLOCK_MONOTONIC;
            assert_eq!(libc::timer_create(clock, &raw mut event, &raw mut timer), 0);
            assert_eq!(
                libc::timer_settime(timer, 0, &raw const times, std::ptr::null_mut()),
                0
            );
        }
        Timer(timer)
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: the timer was created and not deleted since.
        unsafe { libc::timer_delete(self.0) };
    }
}

/// A handler of the type that SA_SIGINFO asks for.
type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);

fn install(signal: i32, handler: Handler, flags: i32) {
    // SAFETY: zeroed memory is a valid sigaction; the handler has the signature that SA_SIGINFO asks for.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | flags;
        assert_eq!(
            libc::sigaction(signal, &raw const action, std::ptr::null_mut()),
            0
        );
    }
}

#[test]
fn a_handler_that_uses_the_interrupted_queue_neither_deadlocks_nor_loses_a_message() {
    let place = Place::new();
    let queue = place.create("/signals", 16, 64);
    QUEUE.store((&raw const queue).cast_mut(), Ordering::Relaxed);
    install(libc::SIGALRM, handler, libc::SA_RESTART);
    let seconds = std::env::var("UMSG_SIGNAL_SECONDS")
        .ok()
        .and_then(|seconds| seconds.parse().ok())
        .unwrap_or(3);
    let timer = Timer::start(Duration::from_micros(100));
    let (sent, received) = hammer(&queue, Duration::from_secs(seconds));
    drop(timer);
    let all_sent = sent + SENT.load(Ordering::Relaxed);
    let all_received = received + RECEIVED.load(Ordering::Relaxed);
    let (runs, deferred) = (
        RUNS.load(Ordering::Relaxed),
        DEFERRED.load(Ordering::Relaxed),
    );
    println!(
        "{runs} handler runs, {deferred} put off, {all_sent} messages sent, {all_received} received"
    );
    assert!(
        !WRONG.load(Ordering::Relaxed),
        "an unexpected error or siginfo in the handler"
    );
    assert!(runs > 100, "the timer hardly ever fired");
    assert!(deferred > 0, "the handler never hit a critical section");
    assert_eq!(all_sent, all_received + queue.attributes().messages as u64);
}

/// Sends and receives until the time is over.
fn hammer(queue: &Queue, time: Duration) -> (u64, u64) {
    let (mut sent, mut received, mut buffer) = (0, 0, [0; 64]);
    let end = Instant::now() + time;
    while Instant::now() < end {
        for _ in 0..100 {
            match queue.try_send(b"from the main loop", 0) {
                Ok(()) => sent += 1,
                Err(SendError::Full) => {}
                Err(error) => panic!("{error}"),
            }
            match queue.try_receive(&mut buffer) {
                Ok(_) => received += 1,
                Err(ReceiveError::Empty) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
    (sent, received)
}

static NOTED: AtomicU64 = AtomicU64::new(0);

extern "C" fn note(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: these are the arguments that the kernel gave to this handler.
    if !unsafe { umsg::signals::defer(signal, info, context.cast()) } {
        NOTED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Sends signals to a thread until a condition holds.
fn signal_until(thread: &AtomicI32, signal: i32, condition: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < end, "waited in vain");
        let id = thread.load(Ordering::Relaxed);
        if id != 0 {
            // SAFETY: the thread may have ended, but this process has not joined it. The signal has a handler.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), id, signal) };
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// A call that spins makes no system call that could return EINTR after the handler.
#[test]
fn a_handler_ends_a_call_that_spins_unless_the_call_is_to_be_restarted() {
    let place = Place::new();
    let queue = place.create("/spinning", 1, 8);
    queue.set_waiting(Waiting::Spinning);
    install(libc::SIGUSR1, note, 0);
    install(libc::SIGUSR2, note, libc::SA_RESTART);
    let id = AtomicI32::new(0);
    let receive = || {
        // SAFETY: has no preconditions.
        id.store(unsafe { libc::gettid() }, Ordering::Relaxed);
        // The wait has a limit, in case no handler ends it.
        let received = queue.receive_timeout(&mut [0; 8], Duration::from_secs(30));
        let received = received.map(|received| received.len);
        id.store(0, Ordering::Relaxed);
        received
    };
    thread::scope(|scope| {
        let restarted = scope.spawn(receive);
        signal_until(&id, libc::SIGUSR2, || NOTED.load(Ordering::Relaxed) >= 20);
        queue.send(b"still", 0).unwrap();
        assert_eq!(restarted.join().unwrap(), Ok(5));
        let interrupted = scope.spawn(receive);
        signal_until(&id, libc::SIGUSR1, || interrupted.is_finished());
        assert_eq!(interrupted.join().unwrap(), Err(ReceiveError::Interrupted));
    });
}
