//! Notification through the native API. The conformance cases and the drop-in's tests check the behaviour that umsg shares with the kernel.

mod support;

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering::SeqCst};
use std::sync::mpsc;
use std::time::Duration;
use support::child::{Child, Exit};
use support::place::Place;
use support::shared::{Shared, Zeroed};
use support::wait_until;
use umsg::QueueError;
use umsg::posix::{Notified, Notify, NotifyError, NotifyKind, Queue, ReceiveError};

/// The limit on every wait: no step of these tests takes as long.
const LONG: Duration = Duration::from_secs(20);

fn receive(queue: &Queue) {
    queue.try_receive(&mut [0; 8]).unwrap();
}

/// Returns a function that reports the sending process, and the receiving end of the report.
fn telling() -> (Notify, mpsc::Receiver<Notified>) {
    let (tell, told) = mpsc::channel();
    (Notify::call(move |by| tell.send(by).unwrap()), told)
}

fn own_pid() -> u32 {
    std::process::id()
}

#[test]
fn a_function_is_called_once_in_a_thread_of_its_own() {
    let (_place, queue) = Place::new().with_queue("/q", 4, 8);
    let (tell, told) = mpsc::channel();
    let registration = queue
        .notify(Notify::call(move |by| {
            tell.send((by, std::thread::current().id())).unwrap();
        }))
        .unwrap();
    assert!(registration.is_armed());
    queue.send(b"1", 0).unwrap();
    let (by, thread) = told.recv_timeout(LONG).unwrap();
    assert_eq!(
        (by.pid, by.uid),
        (own_pid(), rustix::process::getuid().as_raw())
    );
    assert_ne!(thread, std::thread::current().id());
    assert!(!registration.is_armed());
    receive(&queue);
    queue.send(b"2", 0).unwrap();
    assert!(told.recv_timeout(LONG).is_err(), "the function is gone");
}

#[test]
fn a_function_may_register_again() {
    static LEFT: AtomicI32 = AtomicI32::new(5);
    fn register(queue: &'static Queue, done: mpsc::Sender<()>) {
        let again = Notify::call(move |_| {
            receive(queue);
            match LEFT.fetch_sub(1, SeqCst) {
                1 => done.send(()).unwrap(),
                _ => register(queue, done),
            }
        });
        // The registration stays until it fires, or until the process ends.
        std::mem::forget(queue.notify(again).unwrap());
    }
    let place = Place::new();
    let queue: &'static Queue = Box::leak(Box::new(place.create("/q", 4, 8)));
    let (done, all_done) = mpsc::channel();
    register(queue, done);
    while LEFT.load(SeqCst) > 0 {
        let left = LEFT.load(SeqCst);
        assert!(wait_until(LONG, || queue.registered().is_some()));
        queue.send(b"x", 0).unwrap();
        assert!(wait_until(LONG, || LEFT.load(SeqCst) < left));
    }
    all_done.recv_timeout(LONG).unwrap();
}

#[test]
fn a_waiter_learns_which_process_sent() {
    let (place, queue) = Place::new().with_queue("/q", 4, 8);
    let mut awaited = queue.notify_waiter().unwrap();
    assert_eq!(awaited.try_wait(), Err(NotifyError::TimedOut));
    assert_eq!(
        awaited.wait_timeout(Duration::from_millis(5)),
        Err(NotifyError::TimedOut)
    );
    let mut sender = Child::run(|| {
        place.open("/q").send(b"x", 0).unwrap();
        0
    });
    let by = awaited.wait().unwrap();
    assert_eq!(by.pid, sender.pid().cast_unsigned());
    assert_eq!(awaited.try_wait(), Ok(by), "it stays told");
    sender.expect(Exit::Code(0), "the sender");
    assert_eq!(queue.registered(), None);
}

#[test]
fn a_signal_is_raised_before_the_send_of_another_process_returns() {
    let place = Place::new();
    let mut owner = Child::run(|| {
        // SAFETY: the set is filled in, and the mask is that of this process.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, libc::SIGUSR1);
            libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            let queue = place.create("/q", 4, 8);
            for value in 1..50 {
                let how = Notify::Signal {
                    signal: libc::SIGUSR1,
                    value,
                };
                let registration = queue.notify(how).unwrap();
                let mut sender = Child::run(|| {
                    place.open("/q").send(b"x", 0).unwrap();
                    0
                });
                sender.expect(Exit::Code(0), "the sender");
                let mut info: libc::siginfo_t = std::mem::zeroed();
                let now = libc::timespec {
                    tv_sec: 0,
                    tv_nsec: 0,
                };
                let signal = libc::sigtimedwait(&raw const set, &raw mut info, &raw const now);
                assert_eq!((signal, info.si_code), (libc::SIGUSR1, -3));
                assert_eq!(info.si_pid(), sender.pid());
                assert_eq!(info.si_value().sival_ptr.addr(), value);
                assert!(!registration.is_armed());
                receive(&queue);
            }
        }
        0
    });
    owner.expect(Exit::Code(0), "the owner");
}

/// Returns the number of times that this thread has gone to sleep.
fn sleeps() -> i64 {
    // SAFETY: fills in a structure of this frame.
    unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), 0);
        usage.ru_nvcsw
    }
}

/// Returns whether a send to a process that is registered for a signal, and can't run, returns without sleep. The function
/// tries several times, because a thread may have to wait for other reasons on a busy machine.
fn a_send_does_not_sleep_once(cannot_run: fn(&mut Child)) -> bool {
    (0..20).any(|_| {
        let (place, queue) = Place::new().with_queue("/q", 4, 8);
        let mut registrant = Child::run(|| {
            std::mem::forget(place.open("/q").notify(Notify::signal(libc::SIGUSR1)));
            loop {
                std::thread::sleep(LONG);
            }
        });
        assert!(wait_until(LONG, || queue.registered().is_some()));
        cannot_run(&mut registrant);
        let before = sleeps();
        queue.send(b"x", 0).unwrap();
        let after = sleeps();
        registrant.kill();
        after == before
    })
}

#[test]
fn a_send_does_not_wait_for_a_registered_process_that_was_killed() {
    assert!(a_send_does_not_sleep_once(|registrant| registrant.kill()));
}

#[test]
fn a_send_does_not_wait_for_a_registered_process_that_is_stopped() {
    assert!(a_send_does_not_sleep_once(|registrant| {
        registrant.signal(libc::SIGSTOP);
        registrant.expect_to_stop("the registrant");
    }));
}

/// Returns the queue's file, for writing.
fn file_of(place: &Place) -> std::fs::File {
    let path = place.path().join("mq/q");
    std::fs::File::options().write(true).open(path).unwrap()
}

#[test]
fn a_thousand_processes_that_were_notified_and_have_not_run_since_keep_others_from_registering() {
    const FIRED: u32 = 2;
    let (place, queue) = Place::new().with_queue("/q", 4, 8);
    let file = file_of(&place);
    let write = |value: u32, at: u64| file.write_all_at(&value.to_le_bytes(), at).unwrap();
    // From docs/format.md: eight records in the fixed part, and 1,024 before the three regions of 4,164 slots that end the file. The
    // named process lives.
    let behind = [16, 320, 256].map(|len: u64| (4164 * len).next_multiple_of(4096));
    let end = file.metadata().unwrap().len() - behind.iter().sum::<u64>();
    let all = (0..8).map(|index| 6784 + index * 64);
    for record in all.chain((0..1024).map(|index| end - 65_536 + index * 64)) {
        write(own_pid(), record + 12);
        write(FIRED, record);
    }
    write(1024, 1016);
    let error = queue.notify(Notify::Nothing).unwrap_err();
    assert_eq!(error, NotifyError::TooManyUntold);
    assert_eq!(error.errno(), libc::ENOMEM);
    write(0, end - 64);
    let registration = queue.notify(Notify::signal(libc::SIGUSR1)).unwrap();
    assert_eq!(queue.registered().unwrap().pid, own_pid());
    drop(registration);
    assert_eq!(queue.registered(), None);
}

#[test]
fn dropping_a_registration_takes_it_back() {
    let (_place, queue) = Place::new().with_queue("/q", 4, 8);
    let registration = queue.notify(Notify::signal(libc::SIGUSR1)).unwrap();
    let registered = queue.registered().unwrap();
    assert_eq!(registered.pid, own_pid());
    assert_eq!(registered.kind, NotifyKind::Signal(libc::SIGUSR1 as u32));
    assert_eq!(queue.status().registered, Some(registered));
    assert_eq!(queue.notify_waiter().unwrap_err(), NotifyError::Busy);
    drop(registration);
    assert_eq!(queue.registered(), None);
    drop(queue.notify_waiter().unwrap());
    queue.send(b"x", 0).unwrap();
    assert_eq!(queue.registered(), None);
}

#[test]
fn a_registration_that_was_fired_and_not_heard_of_leaves_nothing() {
    let (_place, queue) = Place::new().with_queue("/q", 4, 8);
    for _ in 0..100 {
        let awaited = queue.notify_waiter().unwrap();
        queue.send(b"x", 0).unwrap();
        drop(awaited);
        receive(&queue);
    }
}

#[test]
fn records_of_the_dead_are_used_again() {
    let (place, queue) = Place::new().with_queue("/q", 4, 8);
    for _ in 0..20 {
        let mut waiter = Child::run(|| {
            std::mem::forget(place.open("/q").notify_waiter().unwrap());
            0
        });
        waiter.expect(Exit::Code(0), "the waiter");
        // The message ends the registration of the dead waiter.
        queue.send(b"x", 0).unwrap();
        receive(&queue);
    }
    drop(queue.notify(Notify::Nothing).unwrap());
}

#[test]
fn a_registration_is_not_a_forked_childs() {
    let (place, queue) = Place::new().with_queue("/q", 4, 8);
    let other = place.create("/other", 4, 8);
    let (how, told) = telling();
    let mut awaited = Some(queue.notify_waiter().unwrap());
    let mut registration = Some(other.notify(how).unwrap());
    let mut child = Child::run(|| {
        // `take` changes only the child's copies of the two variables.
        let (mut awaited, registration) = (awaited.take().unwrap(), registration.take().unwrap());
        assert_eq!(awaited.try_wait(), Err(NotifyError::Gone));
        assert!(!registration.is_armed());
        drop((awaited, registration));
        assert_eq!(queue.notify_waiter().unwrap_err(), NotifyError::Busy);
        queue.send(b"x", 0).unwrap();
        other.send(b"x", 0).unwrap();
        0
    });
    child.expect(Exit::Code(0), "the child");
    let pid = child.pid().cast_unsigned();
    assert_eq!(told.recv_timeout(LONG).unwrap().pid, pid);
    assert_eq!(awaited.unwrap().try_wait().unwrap().pid, pid);
}

#[test]
fn a_mapping_outlives_its_queue_as_long_as_a_process_waits_for_it() {
    let (place, queue) = Place::new().with_queue("/q", 4, 8);
    let (how, told) = telling();
    std::mem::forget(queue.notify(how).unwrap());
    drop(queue);
    place.open("/q").send(b"x", 0).unwrap();
    told.recv_timeout(LONG).unwrap();
}

#[test]
fn a_batch_notifies_once_and_a_returned_lease_notifies() {
    let (_place, queue) = Place::new().with_queue("/q", 4, 8);
    let mut awaited = queue.notify_waiter().unwrap();
    queue
        .send_batch(&[(b"a".as_slice(), 0), (b"b".as_slice(), 1)])
        .unwrap();
    awaited.try_wait().unwrap();
    receive(&queue);
    let lease = queue.try_receive_lease().unwrap();
    let mut awaited = queue.notify_waiter().unwrap();
    assert_eq!(awaited.try_wait(), Err(NotifyError::TimedOut));
    lease.give_back().unwrap();
    awaited.try_wait().unwrap();
    receive(&queue);
    let mut awaited = queue.notify_waiter().unwrap();
    let room = queue.try_reserve(8).unwrap();
    assert_eq!(awaited.try_wait(), Err(NotifyError::TimedOut));
    room.commit(0).unwrap();
    awaited.try_wait().unwrap();
}

#[test]
fn a_send_beside_a_registration_never_leaves_a_message_without_notification() {
    const MESSAGES: u32 = 20_000;
    let (place, queue) = Place::new().with_queue("/q", 64, 8);
    let mut senders = [(); 2].map(|()| {
        Child::run(|| {
            let queue = place.open("/q");
            (0..MESSAGES).for_each(|_| queue.send(b"x", 0).unwrap());
            0
        })
    });
    let mut received = 0;
    while received < 2 * MESSAGES {
        let mut awaited = queue.notify_waiter().unwrap();
        loop {
            match queue.try_receive(&mut [0; 8]) {
                Ok(_) => received += 1,
                Err(ReceiveError::Empty) => break,
                Err(other) => panic!("{other:?}"),
            }
        }
        if received < 2 * MESSAGES {
            awaited.wait_timeout(LONG).unwrap();
        }
    }
    for sender in &mut senders {
        sender.expect(Exit::Code(0), "a sender");
    }
}

#[derive(Default)]
struct Seen {
    /// The number of signals that the bystander's handler has seen.
    signals: AtomicU32,
}

// SAFETY: the type is an atomic, for which zeroes are valid.
unsafe impl Zeroed for Seen {}

#[test]
fn a_forged_record_makes_no_process_send_a_signal() {
    let (place, queue) = Place::new().with_queue("/q", 4, 8);
    let seen: Shared<Seen> = Shared::new();
    let mut bystander = Child::run(|| {
        seen.signals.store(1, SeqCst);
        std::thread::sleep(LONG);
        0
    });
    assert!(wait_until(LONG, || seen.signals.load(SeqCst) == 1));
    let file = file_of(&place);
    let write = |value: u32, at: u64| file.write_all_at(&value.to_le_bytes(), at).unwrap();
    for pid in [bystander.pid().cast_unsigned(), own_pid()] {
        // From docs/format.md: a registration by a signal that kills, and the flags that make it fire.
        const NOTICES: u64 = 6784;
        for (at, value) in [
            (4, 0),
            (8, libc::SIGKILL as u32),
            (12, pid),
            (24, 1),
            (0, 8 | 1),
        ] {
            write(value, NOTICES + at);
        }
        write(1 | 2, 888);
        write(2, 128);
        queue.send(b"x", 0).unwrap();
        receive(&queue);
        assert_eq!(queue.registered(), None, "it was fired");
    }
    assert_eq!(bystander.wait(Duration::from_millis(50)), None, "it lives");
    bystander.kill();
}

#[test]
fn a_sender_waits_for_only_one_process_that_does_not_raise_its_signal() {
    let (place, queue) = Place::new().with_queue("/q", 4, 8);
    let file = file_of(&place);
    let write = |value: u32, at: u64| file.write_all_at(&value.to_le_bytes(), at).unwrap();
    let hold_up = || {
        // Imitates a process that is registered for a signal and gets no CPU time.
        for (at, value) in [(4, 0), (8, 10), (12, own_pid()), (24, 9), (0, 8 | 1)] {
            write(value, 6784 + at);
        }
        write(1 | 2, 888);
        write(2, 128);
        let begun = std::time::Instant::now();
        queue.try_send(b"x", 0).unwrap();
        receive(&queue);
        begun.elapsed()
    };
    let first = hold_up();
    // All waits of one call share one limit. The library takes waits that follow each other soon for waits of one call, so the later waits are
    // shorter. On a busy machine, too much time may pass between two waits.
    let later = [(); 5].map(|()| hold_up());
    assert!(
        later.iter().any(|time| *time < first / 2),
        "{first:?}, then {later:?}"
    );
}

#[test]
fn a_forged_record_of_one_queue_does_not_fire_a_registration_with_another() {
    let place = Place::new();
    let mut owner = Child::run(|| {
        let [forged, calls, signals] =
            ["/forged", "/calls", "/signals"].map(|name| place.create(name, 4, 8));
        let file = std::fs::File::options()
            .write(true)
            .open(place.path().join("mq/forged"))
            .unwrap();
        let write = |value: u32, at: u64| file.write_all_at(&value.to_le_bytes(), at).unwrap();
        let (how, told) = telling();
        let by_call = calls.notify(how).unwrap();
        let by_signal = signals.notify(Notify::signal(libc::SIGKILL)).unwrap();
        // The first registrations of their process: each is in the first record of its queue, with the first turn of this record.
        for ticket in [1, 2] {
            for (at, value) in [(4, 2), (12, own_pid()), (24, ticket), (0, 8 | 1)] {
                write(value, 6784 + at);
            }
            write(1 | 2, 888);
            write(2, 128);
            forged.send(b"x", 0).unwrap();
            receive(&forged);
            assert_eq!(forged.registered(), None, "it was fired");
        }
        assert!(by_call.is_armed() && by_signal.is_armed());
        assert!(told.try_recv().is_err());
        calls.send(b"x", 0).unwrap();
        told.recv_timeout(LONG).unwrap();
        0
    });
    owner.expect(Exit::Code(0), "the owner");
}

#[test]
fn a_file_that_is_truncated_under_a_waiter_for_its_queue_ends_no_process() {
    let place = Place::new();
    let path = place.path().join("mq/q");
    let mut owner = Child::run(|| {
        umsg::signals::catch_truncation().unwrap();
        let queue = place.create("/q", 4, 8);
        let (how, told) = telling();
        let registration = queue.notify(how).unwrap();
        std::fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(0)
            .unwrap();
        // The helper checks its records ten times a second, and drops the function that it was to call.
        assert!(
            told.recv_timeout(LONG)
                .is_err_and(|error| error == mpsc::RecvTimeoutError::Disconnected)
        );
        assert!(!registration.is_armed());
        drop(registration);
        assert_eq!(
            queue.notify(Notify::Nothing).unwrap_err(),
            NotifyError::Queue(QueueError::Damaged)
        );
        0
    });
    owner.expect(Exit::Code(0), "the owner");
}

#[test]
fn corrupted_records_make_errors_and_nothing_worse() {
    let place = Place::new();
    let mut random = support::Random::new(5);
    for _ in 0..200 {
        let queue = place.create("/q", 4, 8);
        let mut awaited = queue.notify_waiter().unwrap();
        let file = std::fs::File::options()
            .write(true)
            .open(place.path().join("mq/q"))
            .unwrap();
        for _ in 0..20 {
            let at = match random.below(4) {
                0 => 888,
                1 => 128,
                _ => 6784 + random.below(128) * 4,
            };
            let value = match random.below(3) {
                0 => random.below(16) as u32,
                1 => own_pid(),
                _ => random.below(u64::from(u32::MAX)) as u32,
            };
            file.write_all_at(&value.to_le_bytes(), at).unwrap();
            let _ = queue.try_send(b"x", 0);
            let _ = queue.try_receive(&mut [0; 8]);
            let _ = (queue.registered(), awaited.try_wait(), queue.status());
            drop(queue.notify(Notify::Nothing));
        }
        drop(awaited);
        drop(queue);
        std::fs::remove_file(place.path().join("mq/q")).unwrap();
    }
}

/// A thread of the standard library takes a lock when it starts. A child that is forked at that moment finds the lock taken for ever.
#[test]
fn a_child_that_is_forked_while_threads_start_is_notified() {
    let (_place, queue) = Place::new().with_queue("/q", 4, 8);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let over = Over(&is_over);
        for _ in 0..16 {
            scope.spawn(|| {
                while !is_over.load(SeqCst) {
                    std::thread::spawn(|| {}).join().unwrap();
                }
            });
        }
        for _ in 0..500 {
            let mut child = Child::run(|| {
                let (notify, told) = telling();
                let _registration = queue.notify(notify).expect("no process is registered");
                queue.try_send(b"x", 0).expect("room");
                let is_told = told.recv_timeout(LONG).is_ok();
                receive(&queue);
                i32::from(!is_told)
            });
            child.expect(Exit::Code(0), "the child");
        }
        drop(over);
    });

    /// Ends the threads, also if the test fails.
    struct Over<'a>(&'a AtomicBool);

    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, SeqCst);
        }
    }
}
