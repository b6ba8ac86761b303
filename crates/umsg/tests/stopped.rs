//! Calls while a stopped process holds a lock, and the time for which these calls wait.

mod support;

use std::time::{Duration, Instant};
use support::child::{Child, Exit, let_calls_be_interrupted, stop};
use support::place::Place;
use support::wait_until;
use umsg::diagnosis::{Lock, Owner};
use umsg::posix::{self, Queue, ReceiveError, SendError};
use umsg::sysv::{self, Want};
use umsg_shm::crash;

const KEY: i32 = 0x57;
const PATIENCE: Duration = Duration::from_secs(30);

/// The time after which a call that does not block gives up waiting for a stopped owner.
const GIVES_UP: Duration = Duration::from_secs(1);
/// The time-out of calls with a time-out.
const TIMED: Duration = Duration::from_millis(100);
/// The maximum time by which a call may return too late. One of several tries has to meet this limit, because the machine may be busy during the
/// other tries.
const LATE: Duration = Duration::from_millis(100);
const TRIES: u32 = 5;

/// Stops a process at a point at which it holds a lock, and calls `judge` meanwhile.
fn beside_one_stopped_at(point: &str, work: impl FnOnce(), judge: impl FnOnce()) {
    let mut owner = Child::run(|| {
        crash::arm_fuse(point, stop);
        work();
        0
    });
    owner.expect_to_stop(point);
    judge();
    owner.signal(libc::SIGCONT);
    owner.expect(Exit::Code(0), "the owner that was stopped");
}

/// Returns the error of `call`. The call has to return after `time`, and not much later. Each try has a new thread: a thread whose wait has timed out
/// waits less the next time.
fn returns_after<E: Send>(
    what: &str,
    time: Duration,
    call: impl Fn() -> Result<(), E> + Sync,
) -> E {
    let mut late = Duration::MAX;
    for _ in 0..TRIES {
        let begun = Instant::now();
        let answer = std::thread::scope(|scope| scope.spawn(&call).join().unwrap());
        let took = begun.elapsed();
        let Err(error) = answer else {
            panic!("{what} got the lock of a stopped owner");
        };
        assert!(took >= time, "{what}: after {took:?} already");
        late = late.min(took - time);
        if late < LATE {
            eprintln!("{what} beside a stopped owner: {took:.2?}");
            return error;
        }
    }
    panic!("{what}: {late:?} too late at best");
}

#[test]
fn calls_beside_a_stopped_sender_return_in_time() {
    let (place, queue) = Place::new().with_queue("/q", 10, 8);
    let judge = || {
        let error = returns_after("try_send", GIVES_UP, || queue.try_send(b"", 0));
        assert_eq!(error, SendError::Full);
        let send = || queue.send_timeout(b"", 0, TIMED);
        let error = returns_after("send_timeout", TIMED, send);
        assert_eq!(error, SendError::TimedOut);
    };
    let work = || place.open("/q").try_send(b"first", 0).unwrap();
    beside_one_stopped_at("SEND_FILLED", work, judge);
    assert_eq!(queue.try_receive(&mut [0; 8]).unwrap().len, 5);
    assert!(!queue.status().damaged);
}

#[test]
fn calls_beside_a_stopped_receiver_return_in_time() {
    let (place, queue) = Place::new().with_queue("/q", 10, 8);
    for _ in 0..3 {
        queue.try_send(b"m", 0).unwrap();
    }
    let judge = || {
        let receive = || queue.try_receive(&mut [0; 8]).map(drop);
        let error = returns_after("try_receive", GIVES_UP, receive);
        assert_eq!(error, ReceiveError::Empty);
        let receive = || queue.receive_timeout(&mut [0; 8], TIMED).map(drop);
        let error = returns_after("receive_timeout", TIMED, receive);
        assert_eq!(error, ReceiveError::TimedOut);
    };
    let work = || assert_eq!(place.open("/q").try_receive(&mut [0; 8]).unwrap().len, 1);
    beside_one_stopped_at("RECEIVE_TAKEN", work, judge);
    assert_eq!(count(&queue), 2);
    assert!(!queue.status().damaged);
}

fn count(queue: &Queue) -> usize {
    std::iter::from_fn(|| queue.try_receive(&mut [0; 8]).ok()).count()
}

#[test]
fn calls_beside_a_stopped_user_of_a_system_v_queue_return_in_time() {
    let (place, queue) = Place::new().with_sysv_queue(KEY);
    let judge = || {
        let error = returns_after("try_send", GIVES_UP, || queue.try_send(1, b""));
        assert_eq!(error, sysv::SendError::Full);
        let receive = || queue.try_receive(Want::Any, &mut [0; 8]).map(drop);
        let error = returns_after("try_receive", GIVES_UP, receive);
        assert_eq!(error, sysv::ReceiveError::NoMessage);
    };
    let work = || place.open_sysv(KEY).try_send(1, b"first").unwrap();
    beside_one_stopped_at("MSG_FILLED", work, judge);
    assert_eq!(queue.try_receive(Want::Any, &mut [0; 8]).unwrap().len, 5);
}

/// The messages that other processes receive after the offer is withdrawn.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Taken {
    None,
    All,
}

impl Taken {
    /// Returns what the interrupted call receives. None if the call ends with EINTR.
    fn expected(self) -> Option<&'static [u8]> {
        (self == Taken::None).then_some(b"first")
    }
}

/// Blocks a child in `receive`, and stops it without a lock of the queue. `offer` sends the message that the child gets, and waits until the offer is
/// withdrawn. Then a signal interrupts the child's call. `receive` returns None if its error is EINTR.
fn interrupt_after_a_withdrawn_offer(
    expected: Option<&[u8]>,
    receive: impl FnOnce() -> Option<Vec<u8>>,
    is_blocked: impl Fn() -> bool,
    has_lock: impl Fn(u32) -> bool,
    offer: impl FnOnce(),
) {
    let mut receiver = Child::run(|| {
        let_calls_be_interrupted();
        i32::from(receive().as_deref() != expected)
    });
    assert!(wait_until(PATIENCE, is_blocked));
    let pid = receiver.pid().cast_unsigned();
    // The receiver has the lock for a moment at the end of each slice.
    let is_stopped_without_lock = || {
        std::thread::sleep(Duration::from_millis(50));
        receiver.signal(libc::SIGSTOP);
        receiver.expect_to_stop("the receiver");
        let has_lock = has_lock(pid);
        if has_lock {
            receiver.signal(libc::SIGCONT);
        }
        !has_lock
    };
    assert!(wait_until(PATIENCE, is_stopped_without_lock));
    offer();
    receiver.signal(libc::SIGUSR1);
    receiver.signal(libc::SIGCONT);
    receiver.expect(Exit::Code(0), "the receiver");
}

/// Returns whether a process owns one of these locks.
fn owns_one(locks: &[Lock], pid: u32) -> bool {
    let is_its = |lock: &Lock| matches!(&lock.owner, Owner::Thread(who) if who.pid == pid);
    locks.iter().any(is_its)
}

fn interrupt_a_posix_receive(taken: Taken) {
    let (place, queue) = Place::in_turn().with_queue("/q", 1, 8);
    interrupt_after_a_withdrawn_offer(
        taken.expected(),
        || {
            let queue = place.open("/q");
            queue.set_waiting(posix::Waiting::Blocking);
            match queue.receive_vec() {
                Err(ReceiveError::Interrupted) => None,
                received => Some(received.unwrap().data),
            }
        },
        || queue.status().blocked_receivers == 1,
        |pid| owns_one(&posix::diagnose(&place.namespace, "/q").unwrap().locks, pid),
        || {
            queue.try_send(b"first", 0).unwrap();
            queue.try_send(b"second", 0).unwrap();
            // A sender that waits withdraws the offer.
            let is_withdrawn = || {
                let sent = queue.send_timeout(b"third", 0, 2 * TIMED);
                assert_eq!(sent, Err(SendError::TimedOut));
                queue.attributes().messages == 2
            };
            assert!(wait_until(PATIENCE, is_withdrawn));
            if taken == Taken::All {
                assert_eq!(count(&queue), 2);
            }
        },
    );
    let left = usize::from(taken == Taken::None);
    assert_eq!(count(&queue), left);
    assert!(!queue.status().damaged);
}

#[test]
fn a_signal_ends_no_receive_whose_message_was_put_back() {
    interrupt_a_posix_receive(Taken::None);
}

#[test]
fn a_signal_ends_a_receive_whose_message_was_put_back_and_taken_by_another() {
    interrupt_a_posix_receive(Taken::All);
}

fn interrupt_a_system_v_receive(taken: Taken) {
    let (place, queue) = Place::in_turn().with_sysv_queue(KEY);
    interrupt_after_a_withdrawn_offer(
        taken.expected(),
        || {
            let queue = place.open_sysv(KEY);
            queue.set_waiting(posix::Waiting::Blocking);
            match queue.receive_vec(Want::Any) {
                Err(sysv::ReceiveError::Interrupted) => None,
                received => Some(received.unwrap().data),
            }
        },
        || queue.status().unwrap().blocked_receivers == 1,
        |pid| owns_one(&sysv::diagnose(&place.namespace, KEY).unwrap().locks, pid),
        || {
            queue.try_send(1, b"first").unwrap();
            // Each call withdraws offers that are too old.
            let is_withdrawn = || queue.status().unwrap().entry.messages == 1;
            assert!(wait_until(PATIENCE, is_withdrawn));
            if taken == Taken::All {
                assert!(queue.try_receive(Want::Any, &mut [0; 8]).is_ok());
            }
        },
    );
    let status = queue.status().unwrap();
    assert_eq!((status.entry.messages, status.damaged), (0, false));
}

#[test]
fn a_signal_ends_no_receive_of_a_system_v_queue_whose_message_was_put_back() {
    interrupt_a_system_v_receive(Taken::None);
}

#[test]
fn a_signal_ends_a_receive_of_a_system_v_queue_whose_message_was_put_back_and_taken_by_another() {
    interrupt_a_system_v_receive(Taken::All);
}
