//! Signals that a sender raises in another process, which consents to them.

#[path = "consent/pages.rs"]
mod pages;
mod support;

use std::fs::File;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering::SeqCst};
use std::time::Duration;
use support::child::{Child, Exit};
use support::place::Place;
use support::shared::{Shared, Zeroed};
use support::wait_until;
use umsg::posix::{Notify, Queue};
use umsg_testkit::needs_root;
use umsg_testkit::signals::block;
use umsg_testkit::users::{NOBODY, become_user};

/// The limit on every wait: no step of these tests takes as long.
const LONG: Duration = Duration::from_secs(20);
/// The time after which a sender tries again to learn a process's consents.
const AGAIN: Duration = Duration::from_millis(20);
/// The offset of a queue's first record of a registration, and of the flags with which the record fires: see docs/format.md.
const NOTICE: u64 = 6784;
const REGISTERED: u64 = 888;
const ATTENTION: u64 = 128;

/// The observations of a registered process.
#[derive(Default)]
struct Told {
    /// The number of received signals, and the sender and value of the last signal.
    signals: AtomicU32,
    sender: AtomicU32,
    value: AtomicU32,
    /// The number of calls that register, and the number of those that have returned.
    registrations: AtomicU32,
    returned: AtomicU32,
    /// Set to end the loop of registrations.
    is_over: AtomicU32,
    number: AtomicI64,
}

// SAFETY: the type consists of atomics, for which zeroes are valid.
unsafe impl Zeroed for Told {}

/// Returns a real-time signal: the kernel queues each instance of such a signal.
fn counted() -> i32 {
    libc::SIGRTMIN()
}

/// Takes the signals that are pending.
fn take(set: &libc::sigset_t, told: &Told) {
    // SAFETY: reads and fills locals.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        while libc::sigtimedwait(set, &raw mut info, &raw const now) > 0 {
            assert_eq!(info.si_code, -3, "SI_MESGQ");
            told.sender.store(info.si_pid().cast_unsigned(), SeqCst);
            let value = info.si_value().sival_ptr.addr();
            told.value.store(value as u32, SeqCst);
            told.signals.fetch_add(1, SeqCst);
        }
    }
}

/// Registers again after each notification, and takes its signals.
fn keep_registered(queue: &Queue, told: &Told) -> i32 {
    let set = block(counted());
    while told.is_over.load(SeqCst) == 0 {
        take(&set, told);
        if queue.registered().is_none() {
            while queue.try_receive(&mut [0; 8]).is_ok() {}
            // The sender raises the signal before the message can be received: the signal is pending by now.
            take(&set, told);
            let how = Notify::Signal {
                signal: counted(),
                value: told.registrations.fetch_add(1, SeqCst) as usize,
            };
            std::mem::forget(queue.notify(how).unwrap());
            told.returned.fetch_add(1, SeqCst);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    take(&set, told);
    0
}

/// A process that keeps itself registered with `/q`.
struct Target {
    child: Child,
    told: Shared<Told>,
}

impl Target {
    fn begin(place: &Place, queue: &Queue) -> Target {
        let told: Shared<Told> = Shared::new();
        let child = Child::run(|| keep_registered(&place.open("/q"), &told));
        let target = Target { child, told };
        target.expect_registered(queue);
        target
    }

    #[track_caller]
    fn expect_registered(&self, queue: &Queue) {
        assert!(wait_until(LONG, || queue.registered().is_some()));
    }

    /// Sends a message, and expects exactly one signal, whose sender is this process.
    #[track_caller]
    fn expect_signal(&self, queue: &Queue) {
        self.expect_registered(queue);
        let before = self.signals();
        queue.send(b"x", 0).unwrap();
        self.expect_registered(queue);
        assert_eq!(self.signals(), before + 1);
        assert_eq!(self.told.sender.load(SeqCst), std::process::id());
        let registrations = self.told.registrations.load(SeqCst);
        assert_eq!(self.told.value.load(SeqCst), registrations - 2);
    }

    /// Makes this process learn the consents of the target.
    #[track_caller]
    fn meet(&self, queue: &Queue) {
        for _ in 0..3 {
            self.expect_signal(queue);
            std::thread::sleep(AGAIN);
        }
    }

    /// Stops the target while it is registered: only a sender can raise its signal then.
    #[track_caller]
    fn stop(&self, queue: &Queue) {
        self.expect_registered(queue);
        // The registration is visible before the call that registers drops the queue's lock. A target that is stopped in between keeps the lock.
        let count = |count: &AtomicU32| count.load(SeqCst);
        let told = &self.told;
        let has_returned = || count(&told.returned) == count(&told.registrations);
        assert!(wait_until(LONG, has_returned));
        self.child.signal(libc::SIGSTOP);
        self.child.expect_to_stop("the target");
        assert!(queue.registered().is_some() && !self.is_pending());
    }

    fn go_on(&self) {
        self.child.signal(libc::SIGCONT);
    }

    fn signals(&self) -> u32 {
        self.told.signals.load(SeqCst)
    }

    fn is_pending(&self) -> bool {
        is_pending(self.child.pid(), counted())
    }
}

fn is_pending(pid: i32, signal: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
    let pending = u64::from_str_radix(pending.unwrap().trim(), 16).unwrap();
    pending >> (signal - 1) & 1 != 0
}

/// Returns whether this kernel lets a sender raise signals through a thread's descriptor (Linux 6.9).
fn can_raise() -> bool {
    // SAFETY: the descriptor leads to this thread, and is closed at once.
    let number = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::gettid(), libc::O_EXCL) };
    if number < 0 {
        eprintln!("left out: the kernel has no descriptors of threads");
        return false;
    }
    // SAFETY: the descriptor has no other owner.
    drop(unsafe { OwnedFd::from_raw_fd(number as RawFd) });
    true
}

/// Returns the file of a queue, for writing.
fn file_of(place: &Place, name: &str) -> File {
    let path = place.path().join("mq").join(name);
    File::options().read(true).write(true).open(path).unwrap()
}

fn record_of(file: &File) -> [u8; 64] {
    let mut record = [0; 64];
    file.read_exact_at(&mut record, NOTICE).unwrap();
    record
}

/// Writes an armed record, and the flags that make it fire.
fn forge(file: &File, record: &[u8; 64]) {
    file.write_all_at(record, NOTICE).unwrap();
    file.write_all_at(&3_u32.to_le_bytes(), REGISTERED).unwrap();
    file.write_all_at(&2_u32.to_le_bytes(), ATTENTION).unwrap();
}

/// Returns a record of a registration with these words, armed for the first time.
fn record(pid: u32, ticket: u64, descriptor: u32, place: u32) -> [u8; 64] {
    let mut record = [0; 64];
    let mut set = |at: usize, value: u32| {
        record[at..at + 4].copy_from_slice(&value.to_le_bytes());
    };
    set(0, 8 | 1);
    set(8, counted() as u32);
    set(12, pid);
    set(24, ticket as u32);
    set(40, descriptor);
    set(44, place);
    record
}

#[test]
fn a_sender_raises_the_signal_of_a_process_that_it_knows() {
    if !can_raise() {
        return;
    }
    let (place, queue) = Place::new().with_queue("/q", 4, 8);
    let target = Target::begin(&place, &queue);
    target.meet(&queue);
    for _ in 0..3 {
        let before = target.signals();
        target.stop(&queue);
        queue.send(b"x", 0).unwrap();
        assert!(target.is_pending(), "the send has raised it");
        assert_eq!(queue.registered(), None);
        target.go_on();
        target.expect_registered(&queue);
        assert_eq!(target.signals(), before + 1);
        assert_eq!(target.told.sender.load(SeqCst), std::process::id());
    }
}

#[test]
fn each_registration_gives_one_signal() {
    const ROUNDS: u32 = 500;
    let (place, queue) = Place::new().with_queue("/q", 4, 8);
    let target = Target::begin(&place, &queue);
    for _ in 0..ROUNDS {
        target.expect_signal(&queue);
    }
    assert_eq!(target.signals(), ROUNDS);
}

#[test]
fn a_withdrawn_registration_gives_a_signal_or_none() {
    let (place, queue) = Place::new().with_queue("/q", 4, 8);
    let told: Shared<Told> = Shared::new();
    let mut child = Child::run(|| {
        let set = block(counted());
        let queue = place.open("/q");
        while told.is_over.load(SeqCst) == 0 {
            while queue.try_receive(&mut [0; 8]).is_ok() {}
            let registration = queue.notify(Notify::signal(counted())).unwrap();
            told.registrations.fetch_add(1, SeqCst);
            std::thread::yield_now();
            drop(registration);
            take(&set, &told);
            let (signals, registrations) = (&told.signals, &told.registrations);
            assert!(signals.load(SeqCst) <= registrations.load(SeqCst));
        }
        0
    });
    let is_enough = || {
        let _ = queue.try_send(b"x", 0);
        told.signals.load(SeqCst) > 200
    };
    assert!(wait_until(LONG, is_enough));
    told.is_over.store(1, SeqCst);
    child.expect(Exit::Code(0), "the registrant");
}

#[test]
fn a_record_that_is_written_again_gives_no_signal_after_signal() {
    if !can_raise() {
        return;
    }
    let (place, queue) = Place::new().with_queue("/q", 4, 8);
    let target = Target::begin(&place, &queue);
    target.meet(&queue);
    let before = target.signals();
    target.stop(&queue);
    let file = file_of(&place, "q");
    let record = record_of(&file);
    for _ in 0..10 {
        queue.send(b"x", 0).unwrap();
        while queue.try_receive(&mut [0; 8]).is_ok() {}
        forge(&file, &record);
    }
    target.go_on();
    target.told.is_over.store(1, SeqCst);
    let mut child = target.child;
    child.expect(Exit::Code(0), "the target");
    // The sender raised one signal. The target may have raised a second signal by itself.
    let signals = target.told.signals.load(SeqCst) - before;
    assert!((1..=2).contains(&signals), "{signals} signals");
}

#[test]
fn the_record_of_another_queue_or_registration_gives_no_signal() {
    let (place, queue) = Place::new().with_queue("/q", 4, 8);
    let forged = place.create("/forged", 4, 8);
    let target = Target::begin(&place, &queue);
    target.meet(&queue);
    target.stop(&queue);
    let (own, other) = (file_of(&place, "q"), file_of(&place, "forged"));
    let real = record_of(&own);
    forge(&other, &real);
    forged.send(b"x", 0).unwrap();
    assert_eq!(forged.registered(), None, "it was fired");
    assert!(!target.is_pending());
    // Records with a wrong ticket (offset 24), and records with a wrong place (offset 44).
    for (at, value) in [
        (24, 1),
        (24, 200),
        (44, 0),
        (44, 2),
        (44, 101),
        (44, u32::MAX),
    ] {
        let mut record = real;
        record[at..at + 4].copy_from_slice(&u32::to_le_bytes(value));
        if record == real {
            continue;
        }
        forge(&own, &record);
        queue.send(b"x", 0).unwrap();
        while queue.try_receive(&mut [0; 8]).is_ok() {}
        assert!(!target.is_pending(), "{at}: {value}");
    }
}

#[test]
fn a_process_that_runs_another_program_gets_no_signal_for_the_old_one() {
    let (place, queue) = Place::new().with_queue("/q", 4, 8);
    let told: Shared<Told> = Shared::new();
    let child = Child::run(|| {
        keep_registered(&place.open("/q"), &told);
        let set = block(counted());
        let words = [c"sleep".as_ptr(), c"1000".as_ptr(), std::ptr::null()];
        // SAFETY: the strings end with a zero byte, and the list ends with null.
        unsafe {
            libc::sigprocmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
            libc::execvp(words[0], words.as_ptr());
        }
        1
    });
    let mut target = Target { child, told };
    target.meet(&queue);
    target.expect_registered(&queue);
    target.told.is_over.store(1, SeqCst);
    let runs_it = || {
        let line = std::fs::read(format!("/proc/{}/cmdline", target.child.pid())).unwrap();
        line.starts_with(b"sleep")
    };
    assert!(wait_until(LONG, runs_it));
    for _ in 0..3 {
        queue.try_send(b"x", 0).unwrap();
        while queue.try_receive(&mut [0; 8]).is_ok() {}
    }
    std::thread::sleep(Duration::from_millis(50));
    target.child.expect_alive();
}

/// Sends as a new process that has learned the target's consents, changes something about itself, and sends again.
fn still_notifies(change: impl Fn(&Target)) {
    let (place, queue) = Place::new().with_queue("/q", 4, 8);
    let target = Target::begin(&place, &queue);
    let mut sender = Child::lead(|| {
        target.meet(&queue);
        change(&target);
        for _ in 0..3 {
            target.expect_signal(&queue);
        }
        0
    });
    sender.expect(Exit::Code(0), "the sender");
}

#[test]
fn a_sender_that_gives_up_its_user_notifies() {
    needs_root!();
    still_notifies(|_| become_user(NOBODY));
}

fn close_all_descriptors() {
    // SAFETY: the test uses none of these descriptors afterwards.
    unsafe { libc::close_range(3, u32::MAX, 0) };
}

#[test]
fn a_sender_that_closes_all_its_descriptors_notifies() {
    still_notifies(|_| close_all_descriptors());
}

#[test]
fn a_sender_signals_no_process_that_the_program_opens_at_the_same_number() {
    still_notifies(|_| {
        let bystander = Child::run(|| {
            block(counted());
            std::thread::sleep(LONG);
            0
        });
        // SAFETY: the calls put descriptors of a process at the numbers of the library's descriptors.
        unsafe {
            let open = libc::syscall(libc::SYS_pidfd_open, bystander.pid(), 0) as RawFd;
            let entries = std::fs::read_dir("/proc/self/fd").unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name());
            let numbers: Vec<RawFd> = names
                .map(|name| name.to_str().unwrap().parse().unwrap())
                .collect();
            for number in numbers {
                if number > 2 && number != open {
                    libc::dup2(open, number);
                }
            }
        }
        std::thread::sleep(Duration::from_millis(50));
        assert!(!is_pending(bystander.pid(), counted()));
        // The bystander has to live as long as the sender, and dies with it.
        std::mem::forget(bystander);
    });
}

#[test]
fn a_child_of_a_sender_raises_signals_too() {
    if !can_raise() {
        return;
    }
    let (place, queue) = Place::new().with_queue("/q", 4, 8);
    let target = Target::begin(&place, &queue);
    target.meet(&queue);
    target.stop(&queue);
    let mut child = Child::run(|| {
        queue.send(b"x", 0).unwrap();
        assert!(target.is_pending());
        0
    });
    child.expect(Exit::Code(0), "the child");
}

/// Fails unless a target that calls `change` after its first registration is notified.
fn is_notified_after(change: impl Fn()) {
    let (place, queue) = Place::new().with_queue("/q", 4, 8);
    let told: Shared<Told> = Shared::new();
    let child = Child::run(|| {
        let queue = place.open("/q");
        told.is_over.store(1, SeqCst);
        let registration = queue.notify(Notify::signal(counted())).unwrap();
        drop(registration);
        change();
        told.is_over.store(0, SeqCst);
        keep_registered(&queue, &told)
    });
    let target = Target { child, told };
    // The test ignores the first registration, which the target drops.
    assert!(wait_until(LONG, || target.told.registrations.load(SeqCst) > 0));
    target.meet(&queue);
    let mut other = Child::run(|| {
        target.meet(&queue);
        0
    });
    other.expect(Exit::Code(0), "another sender");
}

#[test]
fn a_process_that_closes_all_its_descriptors_is_notified() {
    is_notified_after(close_all_descriptors);
}

#[test]
fn a_process_that_gives_up_its_user_is_notified() {
    needs_root!();
    is_notified_after(|| become_user(NOBODY));
}

#[test]
fn a_process_that_forbids_others_to_look_at_it_is_notified() {
    // SAFETY: the call changes a setting of the child.
    is_notified_after(|| unsafe { assert_eq!(libc::prctl(libc::PR_SET_DUMPABLE, 0), 0) });
}

#[test]
fn a_forked_child_of_a_registered_process_consents_for_itself() {
    let place = Place::new();
    let queue = place.create("/q", 4, 8);
    let told: Shared<Told> = Shared::new();
    let child = Child::lead(|| {
        drop(queue.notify(Notify::signal(counted())).unwrap());
        let mut inner = Child::run(|| keep_registered(&queue, &told));
        match inner.wait(LONG) {
            Some(Exit::Code(code)) => code,
            _ => 1,
        }
    });
    let mut target = Target { child, told };
    // The parent's registration ends at once. The child has a registration of its own.
    let has_begun = || target.told.registrations.load(SeqCst) > 0;
    assert!(wait_until(LONG, has_begun));
    target.meet(&queue);
    target.told.is_over.store(1, SeqCst);
    target.child.expect(Exit::Code(0), "the parent");
}

#[test]
fn processes_of_other_pid_namespaces_notify_each_other() {
    needs_root!();
    let (place, queue) = Place::new().with_queue("/q", 4, 8);
    let told: Shared<Told> = Shared::new();
    let mut apart = Child::lead(|| {
        // SAFETY: the call changes only the namespaces of later children.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWPID) }, 0, "unshare");
        let mut inner = Child::run(|| keep_registered(&place.open("/q"), &told));
        match inner.wait(LONG) {
            Some(Exit::Code(code)) => code,
            _ => 1,
        }
    });
    for round in 1..=5 {
        let is_registered =
            || told.registrations.load(SeqCst) == round && queue.registered().is_some();
        assert!(wait_until(LONG, is_registered));
        queue.send(b"x", 0).unwrap();
        assert!(wait_until(LONG, || told.signals.load(SeqCst) == round));
        std::thread::sleep(AGAIN);
    }
    told.is_over.store(1, SeqCst);
    apart.expect(Exit::Code(0), "the target");
    let target = Target::begin(&place, &queue);
    let mut apart = Child::lead(|| {
        // SAFETY: the call changes only the namespaces of later children.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWPID) }, 0, "unshare");
        let mut inner = Child::run(|| {
            let queue = place.open("/q");
            for _ in 0..5 {
                let before = target.signals();
                queue.send(b"x", 0).unwrap();
                assert!(wait_until(LONG, || target.signals() == before + 1));
                target.expect_registered(&queue);
                std::thread::sleep(AGAIN);
            }
            0
        });
        match inner.wait(LONG) {
            Some(Exit::Code(code)) => code,
            _ => 1,
        }
    });
    apart.expect(Exit::Code(0), "the sender");
}

#[test]
fn a_sender_keeps_few_descriptors_of_processes() {
    /// The number of processes whose consents a sender remembers.
    const MOST: usize = 16;
    let (place, queue) = Place::new().with_queue("/q", 4, 8);
    let mut sender = Child::lead(|| {
        let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let before = descriptors();
        for _ in 0..MOST + 8 {
            let mut target = Target::begin(&place, &queue);
            target.expect_signal(&queue);
            target.expect_signal(&queue);
            target.child.kill();
        }
        assert!(descriptors() <= before + MOST + 1);
        0
    });
    sender.expect(Exit::Code(0), "the sender");
}
