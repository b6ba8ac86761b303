//! Queues that are closed for sending: each call has a defined answer, blocked calls end, and a process that dies during the change leaves the queue
//! open or closed.

mod support;

use rustix::event::PollFlags;
use std::time::Duration;
use support::child::{Child, Exit};
use support::events::{poll_for, polled, readiness_of};
use support::place::Place;
use support::wait_until;
use umsg::Readiness;
use umsg::posix::{LeaseError, Queue, ReceiveError, Received, SendError, Until};
use umsg_shm::crash;

const STUCK: Duration = Duration::from_secs(20);
const BOTH: Readiness = Readiness {
    readable: true,
    writable: true,
};

fn expect_closed_to_senders(queue: &Queue) {
    assert_eq!(queue.try_send(b"no", 0), Err(SendError::Closed));
    assert_eq!(queue.send(b"no", 9), Err(SendError::Closed));
    assert_eq!(queue.send_timeout(b"no", 9, STUCK), Err(SendError::Closed));
    let batch = [(&b"no"[..], 0), (&b"no"[..], 1)];
    assert_eq!(queue.send_batch(&batch), Err(SendError::Closed));
    assert_eq!(queue.try_reserve(2).unwrap_err(), SendError::Closed);
    assert_eq!(queue.reserve(2).unwrap_err(), SendError::Closed);
    assert_eq!(SendError::Closed.errno(), libc::EPIPE);
}

fn receive_batch(queue: &Queue) -> Result<usize, ReceiveError> {
    queue.receive_batch(&mut [0; 300], &mut [Received::default(); 3])
}

fn expect_end(queue: &Queue) {
    assert_eq!(queue.try_receive_vec(), Err(ReceiveError::Closed));
    assert_eq!(queue.receive_vec(), Err(ReceiveError::Closed));
    assert_eq!(queue.receive_vec_timeout(STUCK), Err(ReceiveError::Closed));
    assert_eq!(queue.receive_lease().unwrap_err(), ReceiveError::Closed);
    assert_eq!(receive_batch(queue).unwrap_err(), ReceiveError::Closed);
    assert_eq!(ReceiveError::Closed.errno(), libc::EPIPE);
}

fn blocked(queue: &Queue) -> (usize, usize) {
    let status = queue.status();
    (status.blocked_senders, status.blocked_receivers)
}

fn expect_blocked(queue: &Queue, expected: (usize, usize)) {
    assert!(wait_until(STUCK, || blocked(queue) == expected));
}

#[test]
fn receivers_get_the_messages_that_are_left_and_then_the_end() {
    let (place, queue) = Place::new().with_queue("/q", 3, 100);
    for (data, priority) in [(b"one", 1), (b"two", 1), (b"top", 7)] {
        queue.try_send(data, priority).unwrap();
    }
    assert_eq!(queue.close_send(), Ok(true));
    assert_eq!(queue.close_send(), Ok(false));
    let diagnosis = umsg::posix::diagnose(&place.namespace, "/q").unwrap();
    assert!(diagnosis.is_healthy(), "{:#?}", diagnosis.problems);
    // The queue is full and closed: the error is that of a closed queue.
    expect_closed_to_senders(&queue);
    for data in [b"top", b"one", b"two"] {
        assert_eq!(queue.receive_vec().unwrap().data, data);
    }
    expect_end(&queue);
    expect_closed_to_senders(&queue);
    let status = queue.status();
    assert!(status.send_closed && !status.damaged);
    assert_eq!(queue.reopen_send(), Ok(true));
    assert_eq!(queue.reopen_send(), Ok(false));
    assert_eq!(queue.try_receive_vec(), Err(ReceiveError::Empty));
    queue.try_send(b"more", 0).unwrap();
    assert_eq!(queue.receive_vec().unwrap().data, b"more");
}

#[test]
fn an_open_lease_keeps_the_stream_from_ending() {
    let (_place, queue) = Place::new().with_queue("/q", 3, 100);
    queue.try_send(b"job", 1).unwrap();
    let mut room = queue.try_reserve(4).unwrap();
    let job = queue.try_receive_lease().unwrap();
    queue.close_send().unwrap();
    assert_eq!(queue.try_receive_vec(), Err(ReceiveError::Empty));
    room.write_at(0, b"late");
    assert_eq!(room.commit(0), Err(SendError::Closed));
    drop(job);
    let job = queue.receive_lease().unwrap();
    std::thread::scope(|scope| {
        let receivers = [(); 3].map(|()| scope.spawn(|| queue.receive_vec()));
        expect_blocked(&queue, (0, 3));
        job.acknowledge().unwrap();
        for receiver in receivers {
            assert_eq!(receiver.join().unwrap(), Err(ReceiveError::Closed));
        }
    });
    expect_end(&queue);
    assert_eq!(queue.attributes().reserved, 0);
}

#[test]
fn a_lease_that_runs_out_after_the_close_is_delivered_before_the_end() {
    let (_place, queue) = Place::new().with_queue("/q", 3, 100);
    queue.try_send(b"job", 1).unwrap();
    let job = queue.try_receive_lease().unwrap();
    job.limit(Duration::from_millis(50)).unwrap();
    queue.close_send().unwrap();
    assert_eq!(queue.receive_vec().unwrap().data, b"job");
    assert_eq!(job.acknowledge(), Err(LeaseError::Ended));
    expect_end(&queue);
}

#[test]
fn blocked_receivers_learn_of_the_end() {
    let (_place, queue) = Place::new().with_queue("/q", 3, 100);
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| queue.receive_vec());
        let leasing = scope.spawn(|| queue.receive_lease().map(drop));
        let timed = scope.spawn(|| queue.receive_vec_timeout(STUCK));
        let batch = scope.spawn(|| receive_batch(&queue));
        expect_blocked(&queue, (0, 4));
        queue.close_send().unwrap();
        assert_eq!(receiver.join().unwrap(), Err(ReceiveError::Closed));
        assert_eq!(leasing.join().unwrap(), Err(ReceiveError::Closed));
        assert_eq!(timed.join().unwrap(), Err(ReceiveError::Closed));
        assert_eq!(batch.join().unwrap(), Err(ReceiveError::Closed));
    });
    assert_eq!(blocked(&queue), (0, 0));
}

#[test]
fn blocked_senders_are_refused_and_their_messages_do_not_follow_the_end() {
    let (_place, queue) = Place::new().with_queue("/q", 2, 100);
    for data in [b"one", b"two"] {
        queue.try_send(data, 1).unwrap();
    }
    let batch = [(&b"no"[..], 0), (&b"no"[..], 1)];
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| queue.send(b"no", 9));
        let timed = scope.spawn(|| queue.send_timeout(b"no", 9, STUCK));
        let together = scope.spawn(|| queue.send_batch(&batch));
        let reserving = scope.spawn(|| queue.reserve(2).map(drop));
        expect_blocked(&queue, (4, 0));
        queue.close_send().unwrap();
        assert_eq!(queue.receive_vec().unwrap().data, b"one");
        assert_eq!(queue.receive_vec().unwrap().data, b"two");
        expect_end(&queue);
        assert_eq!(sender.join().unwrap(), Err(SendError::Closed));
        assert_eq!(timed.join().unwrap(), Err(SendError::Closed));
        assert_eq!(together.join().unwrap(), Err(SendError::Closed));
        assert_eq!(reserving.join().unwrap(), Err(SendError::Closed));
    });
    expect_end(&queue);
    queue.reopen_send().unwrap();
    queue.send_batch(&batch).unwrap();
    assert_eq!(queue.try_send(b"full", 0), Err(SendError::Full));
}

#[test]
fn a_poller_finds_the_end_readable_and_a_closed_queue_writable() {
    let (_place, queue) = Place::new().with_queue("/q", 2, 8);
    let room = PollFlags::OUT | PollFlags::WRNORM;
    let descriptor = queue.pollable().unwrap();
    assert_eq!(polled(descriptor), room);
    std::thread::scope(|scope| {
        let poller = scope.spawn(|| poll_for(descriptor, PollFlags::IN));
        queue.close_send().unwrap();
        assert_eq!(poller.join().unwrap(), PollFlags::IN);
    });
    assert_eq!(readiness_of(polled(descriptor)), BOTH);
    assert_eq!(queue.readiness(), BOTH);
    expect_end(&queue);
    expect_closed_to_senders(&queue);
    assert_eq!(readiness_of(polled(descriptor)), BOTH);
    queue.reopen_send().unwrap();
    assert_eq!(polled(descriptor), room);
    // When a full queue is closed, it becomes writable, because a send returns at once.
    queue.try_send(b"job", 0).unwrap();
    queue.try_send(b"job", 0).unwrap();
    assert!(!readiness_of(polled(descriptor)).writable);
    queue.close_send().unwrap();
    assert_eq!(readiness_of(polled(descriptor)), BOTH);
    // While the message is leased, the end of the stream is not reported.
    assert_eq!(queue.try_receive_vec().unwrap().data, b"job");
    let job = queue.try_receive_lease().unwrap();
    assert_eq!(polled(descriptor), room);
    job.acknowledge().unwrap();
    assert_eq!(readiness_of(polled(descriptor)), BOTH);
}

#[test]
fn a_registered_process_is_notified_of_a_close_while_the_queue_is_empty() {
    let (_place, queue) = Place::new().with_queue("/q", 2, 8);
    let mut waiter = queue.notify_waiter().unwrap();
    queue.close_send().unwrap();
    let notified = waiter.wait_timeout(STUCK).unwrap();
    assert_eq!(notified.pid, std::process::id());
}

#[test]
fn only_a_sender_closes_and_reopens_a_queue() {
    let (place, queue) = Place::new().with_queue("/q", 2, 8);
    let mut options = umsg::posix::OpenOptions::new();
    let reader = options.read(true).namespace(&place.namespace).open("/q");
    let reader = reader.unwrap();
    assert_eq!(reader.close_send(), Err(SendError::NotWritable));
    queue.close_send().unwrap();
    assert_eq!(reader.reopen_send(), Err(SendError::NotWritable));
    assert!(reader.is_send_closed());
}

/// Kills a process at a point of `change`, while a receiver waits in another process. Returns whether the queue is closed.
fn kill(point: &str, change: fn(&Queue) -> Result<bool, SendError>, closed_before: bool) -> bool {
    let (place, queue) = Place::in_turn().with_queue("/q", 2, 8);
    if closed_before {
        queue.close_send().unwrap();
    }
    let mut receiver = Child::run(|| {
        let received = place.open("/q").receive_vec_timeout(STUCK);
        i32::from(received != Err(ReceiveError::Closed))
    });
    if !closed_before {
        expect_blocked(&queue, (0, 1));
    }
    let mut victim = Child::run(|| {
        let queue = place.open("/q");
        crash::arm(point, 1);
        let _ = change(&queue);
        0
    });
    victim.expect(Exit::Signal(libc::SIGKILL), point);
    let is_closed = queue.is_send_closed();
    queue.close_send().unwrap();
    receiver.expect(Exit::Code(0), point);
    expect_end(&queue);
    queue.reopen_send().unwrap();
    queue.try_send(b"one", 0).unwrap();
    queue.try_send(b"two", 0).unwrap();
    assert_eq!(queue.try_send(b"", 0), Err(SendError::Full), "{point}");
    assert!(!queue.status().damaged, "{point}");
    is_closed
}

#[test]
fn a_process_killed_while_it_closes_or_reopens_a_queue_has_done_so_or_not() {
    assert!(kill("SEND_CLOSED_SET", Queue::close_send, false));
    assert!(!kill("SEND_REOPENED", Queue::reopen_send, true));
}

/// No wake-up comes from the dead process.
#[test]
fn waiters_beside_a_process_killed_while_it_closes_a_queue_learn_of_the_end() {
    let (place, queue) = Place::in_turn().with_queue("/q", 1, 8);
    queue.try_send(b"one", 0).unwrap();
    let mut sender = Child::run(|| {
        let sent = place.open("/q").send_timeout(b"no", 0, STUCK);
        i32::from(sent != Err(SendError::Closed))
    });
    expect_blocked(&queue, (1, 0));
    let mut victim = Child::run(|| {
        let queue = place.open("/q");
        crash::arm("SEND_CLOSED_SET", 1);
        let _ = queue.close_send();
        0
    });
    victim.expect(Exit::Signal(libc::SIGKILL), "closing");
    sender.expect(Exit::Code(0), "the sender");
    assert_eq!(queue.receive_vec().unwrap().data, b"one");
    expect_end(&queue);
}

#[test]
fn owned_leases_and_batches_of_a_closed_queue_end() {
    let (_place, queue) = Place::new().with_queue("/q", 2, 8);
    let queue = std::sync::Arc::new(queue);
    queue.try_send(b"one", 0).unwrap();
    queue.close_send().unwrap();
    let one = queue.receive_lease_owned(Until::Forever).unwrap();
    one.acknowledge().unwrap();
    let end = queue.receive_lease_owned(Until::Forever).unwrap_err();
    assert_eq!(end, ReceiveError::Closed);
}
