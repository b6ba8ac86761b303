//! Children of a case: processes that work for the case and return a result. The case can wait until a child is blocked.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::backend::Basics;
use crate::errno::Errno;
use crate::sys::{self, End, Forked, Pause, Pid};

/// The longest time that a case waits for an event that must happen.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The time that a case watches for an event that must not happen.
pub const A_WHILE: Duration = Duration::from_millis(150);

/// Forks a child that calls `work` and returns the result.
///
/// # Panics
/// If no process can be made.
pub fn start<'a, B: Basics + ?Sized, T: Carried>(
    backend: &'a B,
    work: impl FnOnce() -> T,
) -> Child<'a, T> {
    let (reading, writing) = sys::pipe().expect("a pipe");
    let started = &sys::shared_words(1).expect("shared memory")[0];
    let held = backend.hold();
    let forked = sys::fork().expect("a process");
    drop(held);
    match forked {
        Forked::Child => {
            started.store(1, Ordering::Release);
            let result = work();
            sys::write_record(writing.as_raw_fd(), &result.encode()).expect("a result");
            sys::leave(0)
        }
        Forked::Parent(pid) => {
            drop(writing);
            Child {
                pid,
                started,
                result: reading,
                kind: PhantomData,
            }
        }
    }
}

/// Forks a child that becomes another user first. Needs root.
///
/// # Panics
/// If no process can be made.
pub fn start_as<'a, B: Basics + ?Sized, T: Carried>(
    backend: &'a B,
    user: sys::User,
    work: impl FnOnce() -> T,
) -> Child<'a, T> {
    start(backend, || {
        backend.assume(user).expect("becoming another user");
        work()
    })
}

/// A forked child of a case.
pub struct Child<'a, T> {
    pid: Pid,
    started: &'static AtomicU32,
    result: OwnedFd,
    kind: PhantomData<(&'a (), T)>,
}

impl<T: Carried> Child<'_, T> {
    /// Returns the child's process id.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns whether the child has returned its result.
    pub fn is_done(&self) -> bool {
        sys::readable(self.result.as_raw_fd(), Duration::ZERO)
    }

    /// Waits until the child sleeps in the call under test.
    ///
    /// # Panics
    /// If the child ends before it blocks.
    pub fn wait_until_blocked(&self) {
        wait_until(|| self.started.load(Ordering::Acquire) == 1);
        wait_until_asleep(self.pid, || self.is_done());
    }

    /// Checks that the child stays blocked for [`A_WHILE`].
    ///
    /// # Panics
    /// If the child ends.
    pub fn expect_still_blocked(&self) {
        assert!(
            !sys::readable(self.result.as_raw_fd(), A_WHILE),
            "it is no longer blocked"
        );
    }

    /// Sends the child a signal.
    pub fn signal(&self, signal: i32) {
        sys::kill(self.pid, signal);
    }

    /// Kills the child and waits for its end.
    pub fn kill(self) {
        sys::kill(self.pid, libc::SIGKILL);
        self.expect_killed();
    }

    /// Waits until the child is killed.
    ///
    /// # Panics
    /// If the child is not killed, or ends in another way.
    pub fn expect_killed(self) {
        assert_eq!(
            sys::wait(self.pid, PATIENCE),
            Some(End::Signal(libc::SIGKILL))
        );
    }

    /// Waits until the child returns its result and ends.
    ///
    /// # Panics
    /// If the child does not end, or ends with a failure.
    pub fn result(self) -> T {
        if !sys::readable(self.result.as_raw_fd(), PATIENCE) {
            self.kill();
            panic!("a child is still blocked after {} s", PATIENCE.as_secs());
        }
        let mut buffer = vec![0; 70_000];
        let length = sys::read_record(self.result.as_raw_fd(), &mut buffer).expect("a result");
        let end = sys::wait(self.pid, PATIENCE);
        assert_eq!(
            end,
            Some(End::Exit(0)),
            "a child ended before it had a result"
        );
        T::decode(&buffer[..length])
    }
}

/// Waits until a condition holds.
///
/// # Panics
/// If the condition does not hold in time.
pub fn wait_until(condition: impl Fn() -> bool) {
    let mut pause = Pause::new(PATIENCE);
    while !condition() {
        assert!(pause.again(), "waited {} s in vain", PATIENCE.as_secs());
    }
}

thread_local! {
    /// The threads and processes for which this thread has called [`wait_until_asleep`].
    static BLOCKED: RefCell<BTreeSet<Pid>> = RefCell::default();
}

/// Waits until a thread sleeps in the call under test and stays asleep.
///
/// A thread also sleeps while it waits for a lock, and a waiter that briefly takes a lock may lose the processor at that moment. So a few checks
/// suffice only if all waiters sleep; otherwise the thread has to stay asleep for many checks.
///
/// # Panics
/// If the thread finishes its work before it sleeps.
pub fn wait_until_asleep(id: Pid, is_done: impl Fn() -> bool) {
    /// The number of consecutive checks that must find the thread asleep: the first number applies if all waiters sleep, the second number otherwise.
    const LOOKS: (u32, u32) = (3, 60);
    let (mut quiet, mut seen) = (0, 0);
    wait_until(|| is_done() || sys::is_asleep(id));
    let begin = Instant::now();
    BLOCKED.with_borrow_mut(|blocked| {
        blocked.retain(|&known| !sys::is_gone(known));
        while quiet < LOOKS.0 && seen < LOOKS.1 {
            assert!(!is_done(), "it is done and should have blocked");
            assert!(begin.elapsed() < PATIENCE, "it does not stay asleep");
            seen = if sys::is_asleep(id) { seen + 1 } else { 0 };
            let is_quiet = seen > 0
                && blocked
                    .iter()
                    .all(|&known| sys::is_asleep(known) || sys::is_gone(known));
            quiet = if is_quiet { quiet + 1 } else { 0 };
            std::thread::sleep(Duration::from_millis(2));
        }
        blocked.insert(id);
    });
}

/// A result that a child can hand to its parent.
pub trait Carried: Sized {
    /// Encodes the value as at least one byte.
    fn encode(&self) -> Vec<u8>;
    /// Decodes a value from the bytes of `encode`.
    fn decode(bytes: &[u8]) -> Self;
}

impl Carried for () {
    fn encode(&self) -> Vec<u8> {
        vec![0]
    }
    fn decode(_: &[u8]) {}
}

impl Carried for i64 {
    fn encode(&self) -> Vec<u8> {
        self.to_le_bytes().to_vec()
    }
    fn decode(bytes: &[u8]) -> i64 {
        i64::from_le_bytes(bytes.try_into().expect("eight bytes"))
    }
}

impl Carried for bool {
    fn encode(&self) -> Vec<u8> {
        vec![u8::from(*self)]
    }
    fn decode(bytes: &[u8]) -> bool {
        bytes == [1]
    }
}

impl<T: Carried> Carried for Result<T, Errno> {
    fn encode(&self) -> Vec<u8> {
        match self {
            Ok(value) => [vec![1], value.encode()].concat(),
            Err(errno) => [vec![0], errno.0.to_le_bytes().to_vec()].concat(),
        }
    }
    fn decode(bytes: &[u8]) -> Self {
        match bytes.split_first().expect("at least one byte") {
            (1, value) => Ok(T::decode(value)),
            (_, errno) => Err(Errno(i32::from_le_bytes(
                errno.try_into().expect("four bytes"),
            ))),
        }
    }
}
