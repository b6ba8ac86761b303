//! The cases: the work that a trial repeats, and how it is timed.

use std::ffi::c_int;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::backends::Errno;
use crate::child::{self, Child};
use crate::clock;
use crate::failure::Failure;
use crate::machine;
use crate::shared::SharedWords;
use crate::stats;
use crate::suites::calls::{self, Identifier, KEY, NAME, Named, OTHER, Queue, SIZE};
use crate::trial::Setting;

const MESSAGE: [u8; SIZE] = [0x5a; SIZE];

/// The message that tells the receiving process to end.
const LAST: [u8; SIZE] = [0xff; SIZE];

/// The number of System V queues that exist while the rows of totals are measured.
const MANY: usize = 1_024;

/// The nanoseconds between two readings of the clock: long compared with the reading, short compared with a tick of the scheduler.
const CHUNK: u64 = 20_000;

/// The minimum number of processes that are started to measure the first operation of a process.
const FEWEST: usize = 5;

/// The estimated time of a notification with the pause after it, in nanoseconds. The budget divided by this time gives the number of
/// notifications.
const NOTIFICATION: u64 = 400_000;

/// The pause before a send. During the pause, the receiver falls asleep.
const PAUSE: Duration = Duration::from_micros(300);

type Figure = Result<f64, Failure>;

/// Repeats an operation until the budget is used up, and returns the median of its nanoseconds.
fn repeat(setting: &Setting, mut operation: impl FnMut() -> Result<(), Failure>) -> Figure {
    let mut time = |count: u64| {
        let start = clock::now();
        for _ in 0..count {
            operation()?;
        }
        Ok::<u64, Failure>(clock::now() - start)
    };
    time(1)?;
    let count = (CHUNK / time(1)?.max(1)).clamp(1, 1_000);
    let end = clock::now() + setting.budget.as_nanos() as u64;
    let mut times = Vec::new();
    while times.is_empty() || clock::now() < end {
        times.push(time(count)? as f64 / count as f64);
    }
    Ok(stats::median(&times))
}

/// Fails unless an operation failed with this error number.
fn expect<T>(what: &str, result: Result<T, Errno>, expected: i32) -> Result<(), Failure> {
    match result {
        Err(Errno(found)) if found == expected => Ok(()),
        Err(errno) => Err(Failure::queue(what, errno)),
        Ok(_) => Err(Failure::new(format!("{what} succeeds"))),
    }
}

pub fn open_and_close(setting: &Setting) -> Figure {
    drop(Queue::create(NAME)?);
    let time = repeat(setting, || Queue::open(NAME, 0).map(drop));
    calls::unlink(NAME)?;
    time
}

fn create_and_unlink() -> Result<(), Failure> {
    drop(Queue::create(NAME)?);
    calls::unlink(NAME)
}

pub fn create_in_a_row(setting: &Setting) -> Figure {
    repeat(setting, create_and_unlink)
}

/// Measures the time in which a new process creates and removes its first queue.
pub fn create_first(setting: &Setting) -> Figure {
    let words = SharedWords::new(1)?;
    let end = clock::now() + setting.budget.as_nanos() as u64;
    let mut times = Vec::new();
    while times.len() < FEWEST || clock::now() < end {
        let child = Child::start(&[setting.first()], || {
            let start = clock::now();
            create_and_unlink()?;
            words.set(0, clock::now() - start);
            Ok(())
        })?;
        child::wait_for_all(&mut [child])?;
        times.push(words.get(0) as f64);
    }
    Ok(stats::median(&times))
}

pub fn create_and_use(setting: &Setting) -> Figure {
    repeat(setting, || {
        let queue = Queue::create(NAME)?;
        queue.send(&MESSAGE)?;
        queue.receive()?;
        drop(queue);
        calls::unlink(NAME)
    })
}

pub fn open_and_use(setting: &Setting) -> Figure {
    drop(Queue::create(NAME)?);
    let time = repeat(setting, || {
        let queue = Queue::open(NAME, 0)?;
        queue.send(&MESSAGE)?;
        queue.receive().map(drop)
    });
    calls::unlink(NAME)?;
    time
}

pub fn send_and_receive(setting: &Setting) -> Figure {
    let named = Named::create(NAME)?;
    repeat(setting, || {
        named.queue().send(&MESSAGE)?;
        named.queue().receive().map(drop)
    })
}

pub fn open_missing(setting: &Setting) -> Figure {
    repeat(setting, || {
        let opened = Queue::open(NAME, 0).map_err(|_| Errno::last());
        expect("mq_open of a missing queue", opened, libc::ENOENT)
    })
}

pub fn attributes(setting: &Setting) -> Figure {
    let named = Named::create(NAME)?;
    repeat(setting, || named.queue().attributes())
}

pub fn receive_from_empty(setting: &Setting) -> Figure {
    let _named = Named::create(NAME)?;
    let queue = Queue::open(NAME, libc::O_NONBLOCK)?;
    repeat(setting, || {
        expect("mq_receive", queue.try_receive(), libc::EAGAIN)
    })
}

pub fn receive_late(setting: &Setting) -> Figure {
    let named = Named::create(NAME)?;
    repeat(setting, || {
        let received = named.queue().receive_late();
        expect("mq_timedreceive", received, libc::ETIMEDOUT)
    })
}

pub fn register(setting: &Setting) -> Figure {
    let named = Named::create(NAME)?;
    repeat(setting, || {
        named.queue().notify(libc::SIGUSR1)?;
        named.queue().notify_no_more()
    })
}

static SIGNALLED: AtomicBool = AtomicBool::new(false);

extern "C" fn on_signal(_: c_int) {
    SIGNALLED.store(true, Ordering::Release);
}

pub fn notify_self(setting: &Setting) -> Figure {
    let named = Named::create(NAME)?;
    let queue = named.queue();
    let handler = on_signal as extern "C" fn(c_int) as libc::sighandler_t;
    // SAFETY: the handler stores to an atomic, which is safe in a handler.
    unsafe { libc::signal(libc::SIGUSR1, handler) };
    repeat(setting, || {
        SIGNALLED.store(false, Ordering::Release);
        queue.notify(libc::SIGUSR1)?;
        queue.send(&MESSAGE)?;
        while !SIGNALLED.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
        queue.receive().map(drop)
    })
}

/// Nanoseconds of a send that notifies another process, and nanoseconds until that process has taken the signal.
struct Notified {
    sent: f64,
    taken: f64,
}

pub fn notify_other_send(setting: &Setting) -> Figure {
    notify_other(setting).map(|notified| notified.sent)
}

pub fn notify_other_taken(setting: &Setting) -> Figure {
    notify_other(setting).map(|notified| notified.taken)
}

/// Measures the notification of another process. That process registers, reports on a second queue, sleeps until the signal, and reports the
/// time.
fn notify_other(setting: &Setting) -> Result<Notified, Failure> {
    let (named, back) = (Named::create(NAME)?, Named::create(OTHER)?);
    let (queue, back) = (named.queue(), back.queue());
    let rounds = (setting.budget.as_nanos() as u64 / NOTIFICATION).max(10);
    let receiver = Child::start(&[setting.last()], || {
        let signal = blocked(libc::SIGUSR1);
        for _ in 0..rounds {
            queue.notify(libc::SIGUSR1)?;
            back.send(&MESSAGE)?;
            // SAFETY: the set is initialised, and no siginfo is asked for.
            if unsafe { libc::sigwaitinfo(&raw const signal, ptr::null_mut()) } < 0 {
                return Err(Failure::system("sigwaitinfo"));
            }
            let taken = clock::now();
            queue.receive()?;
            back.send(&taken.to_ne_bytes())?;
        }
        Ok(())
    })?;
    let (mut sent, mut taken) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        back.receive()?;
        thread::sleep(PAUSE);
        let start = clock::now();
        queue.send(&MESSAGE)?;
        sent.push((clock::now() - start) as f64);
        let mut time = [0; size_of::<u64>()];
        time.copy_from_slice(&back.receive()?[..size_of::<u64>()]);
        taken.push(u64::from_ne_bytes(time).saturating_sub(start) as f64);
    }
    child::wait_for_all(&mut [receiver])?;
    Ok(Notified {
        sent: stats::median(&sent),
        taken: stats::median(&taken),
    })
}

/// Blocks a signal in the calling process, and returns the set with only this signal.
fn blocked(signal: c_int) -> libc::sigset_t {
    // SAFETY: sigemptyset initialises the set that the other calls use.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut());
        set
    }
}

/// Measures a round trip of two processes on one CPU, each asleep in epoll_wait(2) until it receives a message.
pub fn epoll_trip(setting: &Setting) -> Figure {
    let _named = [Named::create(NAME)?, Named::create(OTHER)?];
    let ends = |inward, outward| {
        let open = |name| Queue::open(name, libc::O_NONBLOCK);
        Polled::new(open(inward)?, open(outward)?)
    };
    let echo = Child::start(&[setting.first()], || {
        let mut polled = ends(NAME, OTHER)?;
        while polled.receive()? != LAST {
            polled.send(MESSAGE)?;
        }
        Ok(())
    })?;
    let mut polled = ends(OTHER, NAME)?;
    let time = repeat(setting, || {
        polled.send(MESSAGE)?;
        polled.receive().map(drop)
    });
    polled.send(LAST)?;
    child::wait_for_all(&mut [echo])?;
    time
}

/// The queue that a process polls, the queue to which it sends, and the epoll set with the polled queue.
struct Polled {
    inward: Queue,
    outward: Queue,
    set: OwnedFd,
}

impl Polled {
    fn new(inward: Queue, outward: Queue) -> Result<Self, Failure> {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: 0,
        };
        // SAFETY: the call takes flags; the set is a new descriptor, and the event a local.
        unsafe {
            let set = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            if set < 0 {
                return Err(Failure::system("epoll_create1"));
            }
            let set = OwnedFd::from_raw_fd(set);
            let queue = inward.descriptor();
            match libc::epoll_ctl(set.as_raw_fd(), libc::EPOLL_CTL_ADD, queue, &raw mut event) {
                0 => Ok(Self {
                    inward,
                    outward,
                    set,
                }),
                _ => Err(Failure::system("epoll_ctl")),
            }
        }
    }

    fn send(&self, message: [u8; SIZE]) -> Result<(), Failure> {
        self.outward.send(&message)
    }

    fn receive(&mut self) -> Result<[u8; SIZE], Failure> {
        loop {
            let mut event = libc::epoll_event { events: 0, u64: 0 };
            // SAFETY: the call writes at most one event, to a local.
            unsafe { libc::epoll_wait(self.set.as_raw_fd(), &raw mut event, 1, -1) };
            match self.inward.try_receive() {
                Err(Errno::AGAIN) => {}
                received => return received.map_err(|errno| Failure::queue("mq_receive", errno)),
            }
        }
    }
}

pub fn get_and_remove_private(setting: &Setting) -> Figure {
    repeat(setting, || Identifier::create(libc::IPC_PRIVATE).map(drop))
}

pub fn get_existing(setting: &Setting) -> Figure {
    let _queue = Identifier::create(KEY)?;
    repeat(setting, || calls::get(KEY, 0).map(drop))
}

pub fn get_and_use(setting: &Setting) -> Figure {
    let _queue = Identifier::create(KEY)?;
    repeat(setting, || calls::send_and_receive(calls::get(KEY, 0)?))
}

fn beside(
    queues: usize,
    setting: &Setting,
    operation: impl FnMut() -> Result<(), Failure>,
) -> Figure {
    let queues = (0..queues).map(|_| Identifier::create(libc::IPC_PRIVATE));
    let _queues = queues.collect::<Result<Vec<_>, _>>()?;
    // The queues should have existed for a while: umsg keeps the result of a scan only if the last change of the directory is at least 20 ms old.
    thread::sleep(Duration::from_millis(50));
    repeat(setting, operation)
}

pub fn totals_beside_one(setting: &Setting) -> Figure {
    beside(1, setting, || calls::control_all(libc::MSG_INFO))
}

pub fn totals_beside_many(setting: &Setting) -> Figure {
    beside(MANY, setting, || calls::control_all(libc::MSG_INFO))
}

pub fn limits_beside_one(setting: &Setting) -> Figure {
    beside(1, setting, || calls::control_all(libc::IPC_INFO))
}

pub fn limits_beside_many(setting: &Setting) -> Figure {
    beside(MANY, setting, || calls::control_all(libc::IPC_INFO))
}

pub fn listing_beside_many(setting: &Setting) -> Figure {
    beside(MANY, setting, || calls::read_all(c"/proc/sysvipc/msg"))
}

/// Forks a process that runs `work` on any of the CPUs, and waits for its end.
fn fork_and_wait(work: impl FnOnce() -> c_int) -> Result<(), Failure> {
    // SAFETY: the process has one thread.
    match unsafe { libc::fork() } {
        -1 => Err(Failure::system("fork")),
        // SAFETY: the call ends the child at once.
        0 => unsafe { libc::_exit(work()) },
        child => {
            let mut status = 0;
            // SAFETY: the call waits for a child of this process, and writes to a local.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            match status {
                0 => Ok(()),
                _ => Err(Failure::new("a forked process failed")),
            }
        }
    }
}

pub fn fork_and_send(setting: &Setting) -> Figure {
    let named = Named::create(NAME)?;
    machine::pin_to(&setting.cpus)?;
    repeat(setting, || {
        fork_and_wait(|| named.queue().send(&MESSAGE).is_err().into())?;
        named.queue().receive().map(drop)
    })
}

pub fn fork_and_exec(setting: &Setting) -> Figure {
    machine::pin_to(&setting.cpus)?;
    repeat(setting, || {
        fork_and_wait(|| {
            let arguments = [c"true".as_ptr(), ptr::null()];
            // SAFETY: the path and the list of arguments end with zero.
            unsafe { libc::execv(c"/bin/true".as_ptr(), arguments.as_ptr()) };
            1
        })
    })
}
