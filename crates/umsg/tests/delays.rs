//! Messages that are sent or returned for a later delivery: none comes too early, none is lost by a death, and none blocks another.

mod support;

use rustix::event::PollFlags;
use std::time::{Duration, Instant, SystemTime};
use support::child::{Child, Exit};
use support::due::{LAG, TIMES, by_time, in_time, until_all_are_due};
use support::events::is_ready_within;
use support::place::Place;
use support::wait_until;
use umsg::posix::{DeadReason, Queue, ReceiveError, Redrive, SendError};
use umsg_shm::crash;

const STUCK: Duration = Duration::from_secs(20);
const DELAY: Duration = Duration::from_millis(60);
const LONG: Duration = Duration::from_secs(1000);

fn counts(queue: &Queue) -> (usize, usize, usize) {
    let now = queue.attributes();
    (now.messages, now.leased, now.delayed)
}

fn received(queue: &Queue) -> Vec<u8> {
    queue.receive_vec_timeout(STUCK).unwrap().data
}

#[test]
fn a_message_that_is_returned_for_later_does_not_block_younger_ones() {
    let (_place, queue, begin, delay, seen, others) = in_time(DELAY, |delay| {
        let (place, queue) = Place::new().with_queue("/q", 3, 8);
        queue.try_send(b"first", 5).unwrap();
        queue.try_send(b"second", 5).unwrap();
        let job = queue.try_receive_lease().unwrap();
        let begin = Instant::now();
        job.return_after(delay).unwrap();
        let seen = counts(&queue);
        let second = queue.try_receive_vec().unwrap().data;
        queue.try_send(b"third", 5).unwrap();
        let others = [second, received(&queue)];
        (begin, (place, queue, begin, delay, seen, others))
    });
    assert_eq!(seen, (1, 0, 1), "it came too early");
    assert_eq!(others, [b"second".to_vec(), b"third".to_vec()]);
    assert_eq!(queue.status().statistics.returned, 1);
    let job = queue.receive_lease_timeout(STUCK).unwrap();
    assert!(begin.elapsed() >= delay);
    assert_eq!((job.to_vec(), job.deliveries()), (b"first".to_vec(), 2));
    job.acknowledge().unwrap();
    assert_eq!(counts(&queue), (0, 0, 0));
}

#[test]
fn a_delayed_message_counts_as_one_that_was_sent_and_has_not_left() {
    let (_place, queue) = Place::new().with_queue("/q", 3, 8);
    let seen = || {
        let now = queue.glance();
        [now.sent, now.sent_bytes, now.removed, now.removed_bytes]
    };
    queue.send_after(b"later", 0, DELAY).unwrap();
    assert_eq!(seen(), [1, 5, 0, 0]);
    assert_eq!(received(&queue), b"later");
    assert_eq!(seen(), [1, 5, 1, 5]);
    queue.try_send(b"now", 0).unwrap();
    assert_eq!(seen(), [2, 8, 1, 5]);
    let job = queue.try_receive_lease().unwrap();
    assert_eq!(seen(), [2, 8, 1, 5]);
    job.return_after(DELAY).unwrap();
    assert_eq!(seen(), [2, 8, 1, 5]);
    assert_eq!(received(&queue), b"now");
    assert_eq!(seen(), [2, 8, 2, 8]);
}

#[test]
fn a_message_that_comes_back_has_its_old_place() {
    let (_place, queue) = Place::new().with_queue("/q", 3, 8);
    queue.try_send(b"first", 5).unwrap();
    queue.try_send(b"second", 5).unwrap();
    let job = queue.try_receive_lease().unwrap();
    job.return_after(Duration::from_millis(1)).unwrap();
    std::thread::sleep(DELAY);
    assert_eq!(received(&queue), b"first");
    assert_eq!(received(&queue), b"second");
}

#[test]
fn a_delayed_message_takes_room_and_its_place_when_it_is_due() {
    let (_place, queue, begin, delay, (seen, diagnosis, sent, got)) = in_time(DELAY, |delay| {
        let (place, queue) = Place::new().with_queue("/q", 2, 8);
        let begin = Instant::now();
        queue.send_after(b"later", 5, delay).unwrap();
        queue.try_send(b"now", 5).unwrap();
        let seen = counts(&queue);
        let diagnosis = umsg::posix::diagnose(&place.namespace, "/q").unwrap();
        let sent = queue.try_send(b"full", 5);
        let got = (received(&queue), queue.try_receive_vec());
        let seen = (seen, diagnosis, sent, got);
        (begin, (place, queue, begin, delay, seen))
    });
    assert_eq!(seen, (1, 0, 1));
    assert!(diagnosis.is_healthy(), "{:#?}", diagnosis.problems);
    assert_eq!(sent, Err(SendError::Full));
    assert_eq!(got, (b"now".to_vec(), Err(ReceiveError::Empty)));
    // A blocked receiver wakes up for the delayed message.
    assert_eq!(received(&queue), b"later");
    assert!(begin.elapsed() >= delay);
    assert_eq!(
        queue.send_after(b"x", 32_768, DELAY).unwrap_err(),
        SendError::PriorityTooHigh
    );
    queue.try_send(b"a", 0).unwrap();
    queue.try_send(b"b", 0).unwrap();
    assert_eq!(queue.try_send(b"full", 0), Err(SendError::Full));
}

/// Sends a message for later, lets its delivery time pass while no process uses the queue, and sends a younger message by `send`.
fn expect_in_order_of_time(place: &Place, queue: &Queue, send: impl FnOnce(&Queue), what: &str) {
    queue
        .send_after(b"due", 5, Duration::from_millis(1))
        .unwrap();
    std::thread::sleep(DELAY);
    send(queue);
    let messages = queue.messages(9).unwrap();
    let order: Vec<_> = messages.iter().map(|peeked| &peeked.data[..]).collect();
    assert_eq!(order, [&b"due"[..], b"young"], "{what}");
    assert_eq!(received(queue), b"due", "{what}");
    assert_eq!(received(queue), b"young", "{what}");
    assert_eq!(counts(queue), (0, 0, 0), "{what}");
    let diagnosis = umsg::posix::diagnose(&place.namespace, "/q").unwrap();
    assert!(diagnosis.is_healthy(), "{what}: {:#?}", diagnosis.problems);
}

#[test]
fn a_due_message_comes_before_those_that_are_sent_after_that_time() {
    let (place, queue) = Place::new().with_queue("/q", 4, 8);
    let order = |send: fn(&Queue), what: &str| {
        expect_in_order_of_time(&place, &queue, send, what);
    };
    order(|queue| queue.try_send(b"young", 5).unwrap(), "a send");
    order(|queue| queue.send(b"young", 5).unwrap(), "a blocking send");
    order(
        |queue| queue.send_batch(&[(b"young", 5)]).unwrap(),
        "a batch",
    );
    // A reservation that was made before the delayed message.
    let mut room = queue.reserve(5).unwrap();
    room.write_at(0, b"young");
    let commit = |_: &Queue| room.commit(5).unwrap();
    expect_in_order_of_time(&place, &queue, commit, "a commit");
    // A message that comes from a dead-letter queue.
    let mut options = place.options(4, 8);
    options.max_deliveries(1).dead_letter("/dead");
    let jobs = options.open("/jobs").unwrap();
    jobs.try_send(b"young", 5).unwrap();
    jobs.try_receive_lease().unwrap().give_back().unwrap();
    let redrive = |_: &Queue| {
        let done = place.open("/dead").redrive(&Redrive::new().to("/q"));
        assert_eq!(done.unwrap().messages, 1);
    };
    expect_in_order_of_time(&place, &queue, redrive, "a redrive");
    // This step is the last one: once a process polls the queue, sends take another path.
    let _polled = queue.pollable().unwrap();
    order(|queue| queue.try_send(b"young", 5).unwrap(), "polled");
    order(
        |queue| queue.send_batch(&[(b"young", 5)]).unwrap(),
        "a polled batch",
    );
}

#[test]
fn messages_that_became_due_together_come_in_the_order_of_their_times_and_sends() {
    let (_place, queue) = Place::new().with_queue("/q", 20, 8);
    until_all_are_due(
        |position, time| queue.try_send_at(&[position], 5, time).unwrap(),
        || while queue.receive_vec_timeout(DELAY).is_ok() {},
    );
    let order: Vec<u8> = TIMES.iter().map(|_| received(&queue)[0]).collect();
    assert_eq!(order, by_time());
    assert_eq!(counts(&queue), (0, 0, 0));
}

#[test]
fn a_process_killed_while_it_puts_due_messages_in_order_loses_none() {
    let (_place, queue) = Place::in_turn().with_queue("/q", 20, 8);
    until_all_are_due(
        |position, time| queue.try_send_at(&[position], 5, time).unwrap(),
        || while queue.receive_vec_timeout(DELAY).is_ok() {},
    );
    let mut victim = Child::run(|| {
        crash::arm("DUE_SORTED", 1);
        let _ = queue.receive_vec_timeout(STUCK);
        0
    });
    victim.expect(Exit::Signal(libc::SIGKILL), "DUE_SORTED");
    let order: Vec<u8> = TIMES.iter().map(|_| received(&queue)[0]).collect();
    assert_eq!(order, by_time());
    assert_eq!(counts(&queue), (0, 0, 0));
    assert!(!queue.status().damaged);
}

/// Performs an action. Returns its result, and the times of its beginning and its end.
fn timed<T>(act: impl FnOnce() -> T) -> (T, [SystemTime; 2]) {
    let begin = SystemTime::now();
    let result = act();
    (result, [begin, SystemTime::now()])
}

#[track_caller]
fn expect_within(time: SystemTime, [begin, end]: [SystemTime; 2], later: Duration) {
    assert!(
        begin + later <= time + LAG && time <= end + later + LAG,
        "{time:?} is not in {begin:?} to {end:?}, {later:?} later"
    );
}

#[test]
fn a_delayed_message_shows_its_send_and_its_due_time() {
    let long = LONG;
    let (_place, queue, delay, of_later, of_soon, [delayed, first]) = in_time(DELAY, |delay| {
        let (place, queue) = Place::new().with_queue("/q", 4, 8);
        let ((), of_later) = timed(|| queue.send_after(b"later", 5, long).unwrap());
        let begin = Instant::now();
        let ((), of_soon) = timed(|| queue.send_after(b"soon", 5, delay).unwrap());
        let delayed = [9, 1].map(|most| queue.delayed_messages(most).unwrap());
        (begin, (place, queue, delay, of_later, of_soon, delayed))
    });
    let data: Vec<_> = delayed.iter().map(|peeked| &peeked.data[..]).collect();
    assert_eq!(data, [&b"soon"[..], b"later"]);
    assert_eq!(first, delayed[..1]);
    expect_within(delayed[1].sent, of_later, Duration::ZERO);
    expect_within(delayed[1].due.unwrap(), of_later, long);
    // The delivery time has come, and the times of the message are still the same.
    assert!(wait_until(STUCK, || queue.peek(0).unwrap().is_some()));
    let shown = queue.peek(0).unwrap().unwrap();
    expect_within(shown.sent, of_soon, Duration::ZERO);
    expect_within(shown.due.unwrap(), of_soon, delay);
    assert_eq!(queue.delayed_messages(9).unwrap().len(), 1);
    let lease = queue.try_receive_lease().unwrap();
    expect_within(lease.sent(), of_soon, Duration::ZERO);
    let ((), of_return) = timed(|| lease.return_after(long / 2).unwrap());
    let returned = &queue.delayed_messages(1).unwrap()[0];
    assert_eq!((&returned.data[..], returned.returns), (&b"soon"[..], 1));
    expect_within(returned.sent, of_soon, Duration::ZERO);
    expect_within(returned.due.unwrap(), of_return, long / 2);
    // A message that was not delayed has no delivery time.
    queue.try_send(b"now", 5).unwrap();
    assert_eq!(queue.peek(0).unwrap().unwrap().due, None);
}

#[test]
fn the_time_to_live_of_a_delayed_message_begins_when_it_is_due() {
    let place = Place::new();
    let mut options = place.options(4, 8);
    let live = 4 * DELAY;
    options.time_to_live(live).dead_letter("/dead");
    let queue = options.open("/q").unwrap();
    let ((), of_send) = timed(|| queue.send_after(b"later", 5, 2 * DELAY).unwrap());
    let end = of_send[0] + 2 * DELAY + live;
    // By now, more than the time to live has passed since the send, but not since the delivery time.
    let left = (end - DELAY).duration_since(SystemTime::now());
    std::thread::sleep(left.unwrap_or_default());
    let lease = queue.try_receive_lease();
    if SystemTime::now() + LAG < end {
        lease.unwrap().give_back().unwrap();
    } else {
        drop(lease);
    }
    let left = (of_send[1] + 2 * DELAY + live + LAG).duration_since(SystemTime::now());
    std::thread::sleep(left.unwrap_or_default());
    assert_eq!(queue.try_receive_vec(), Err(ReceiveError::Empty));
    let dead = place.open("/dead").peek(0).unwrap().unwrap();
    let history = dead.history.unwrap();
    assert_eq!(history.reason, DeadReason::Expired);
    expect_within(history.sent, of_send, Duration::ZERO);
}

#[test]
fn a_snapshot_keeps_the_time_to_live_of_a_message_that_was_delayed() {
    let (_place, queue) = Place::new().with_queue("/q", 4, 8);
    let ((), of_send) = timed(|| queue.send_after(b"later", 5, DELAY).unwrap());
    assert!(wait_until(STUCK, || queue.peek(0).unwrap().is_some()));
    let snapshot = umsg::posix::Snapshot::of(&queue).unwrap();
    let sent = snapshot.messages().next().unwrap().sent;
    expect_within(sent, of_send, DELAY);
}

#[test]
fn a_receiver_that_sleeps_already_gets_a_message_that_is_sent_for_later() {
    let (_place, queue) = Place::new().with_queue("/q", 2, 8);
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| (received(&queue), Instant::now()));
        assert!(wait_until(STUCK, || queue.status().blocked_receivers == 1));
        let begin = Instant::now();
        queue.send_after(b"later", 0, DELAY).unwrap();
        let (data, end) = receiver.join().unwrap();
        assert_eq!(data, b"later");
        assert!(end - begin >= DELAY);
    });
}

#[test]
fn the_delay_of_a_queue_doubles_up_to_its_limit() {
    let place = Place::new();
    let mut options = place.options(2, 8);
    options.retry_delay(DELAY / 2, DELAY);
    let queue = options.open("/q").unwrap();
    assert_eq!(queue.status().retry_delay, Some((DELAY / 2, DELAY)));
    queue.try_send(b"job", 0).unwrap();
    for (deliveries, delay) in [(1, DELAY / 2), (2, DELAY), (3, DELAY), (4, DELAY)] {
        let job = queue.receive_lease_timeout(STUCK).unwrap();
        assert_eq!(job.deliveries(), deliveries);
        let begin = Instant::now();
        drop(job);
        let again = queue.receive_lease_timeout(STUCK).unwrap();
        assert!(begin.elapsed() >= delay, "{deliveries}");
        // The next round needs a new message with the same number of deliveries.
        again.acknowledge().unwrap();
        queue.try_send(b"job", 0).unwrap();
        for _ in 0..deliveries {
            let job = queue.receive_lease_timeout(STUCK).unwrap();
            job.return_after(Duration::ZERO).unwrap();
        }
    }
}

#[test]
fn the_lease_of_a_dead_process_is_delivered_after_the_queues_delay() {
    let place = Place::in_turn();
    let mut options = place.options(2, 8);
    options.retry_delay(DELAY, DELAY);
    let queue = options.open("/q").unwrap();
    queue.try_send(b"job", 0).unwrap();
    let mut holder = Child::run(|| {
        std::mem::forget(place.open("/q").try_receive_lease().unwrap());
        0
    });
    holder.expect(Exit::Code(0), "the holder");
    let begin = Instant::now();
    assert_eq!(received(&queue), b"job");
    assert!(begin.elapsed() >= DELAY / 2, "found dead, then delayed");
}

#[test]
fn a_message_for_later_outlives_its_sender() {
    let (place, queue) = Place::in_turn().with_queue("/q", 2, 8);
    let mut sender = Child::run(|| {
        place.open("/q").send_after(b"later", 3, DELAY).unwrap();
        0
    });
    sender.expect(Exit::Code(0), "the sender");
    assert_eq!(received(&queue), b"later");
}

#[test]
fn a_delayed_message_comes_before_the_end_of_a_closed_queue() {
    let (_place, queue, before) = in_time(DELAY, |delay| {
        let (place, queue) = Place::new().with_queue("/q", 2, 8);
        let begin = Instant::now();
        queue.send_after(b"later", 0, delay).unwrap();
        queue.close_send().unwrap();
        let before = queue.try_receive_vec();
        (begin, (place, queue, before))
    });
    assert_eq!(queue.send_after(b"no", 0, DELAY), Err(SendError::Closed));
    assert_eq!(
        before,
        Err(ReceiveError::Empty),
        "before the delayed message"
    );
    assert_eq!(received(&queue), b"later");
    assert_eq!(queue.receive_vec(), Err(ReceiveError::Closed));
}

#[test]
fn a_message_that_was_delivered_too_often_is_not_delayed() {
    let place = Place::new();
    let mut options = place.options(2, 8);
    options.max_deliveries(1).dead_letter("/dead");
    let queue = options.open("/q").unwrap();
    queue.try_send(b"job", 0).unwrap();
    queue
        .try_receive_lease()
        .unwrap()
        .return_after(LONG)
        .unwrap();
    assert_eq!(place.open("/dead").try_receive_vec().unwrap().data, b"job");
    assert_eq!(counts(&queue), (0, 0, 0));
}

#[test]
fn messages_that_two_threads_delay_come_once_each_to_a_blocked_receiver() {
    let (_place, queue) = Place::new().with_queue("/q", 2, 8);
    for round in 0..100 {
        queue.try_send(b"first", 0).unwrap();
        queue.try_send(b"second", 0).unwrap();
        let jobs = [(); 2].map(|()| queue.try_receive_lease().unwrap());
        std::thread::scope(|scope| {
            let receiver = scope.spawn(|| [(); 2].map(|()| received(&queue)));
            for (index, job) in jobs.into_iter().enumerate() {
                let delay = Duration::from_micros((round * (index + 1)) as u64 * 20);
                scope.spawn(move || job.return_after(delay).unwrap());
            }
            let mut all = receiver.join().unwrap();
            all.sort();
            assert_eq!(all, [b"first".to_vec(), b"second".to_vec()]);
        });
        assert_eq!(counts(&queue), (0, 0, 0));
    }
}

#[test]
fn a_delayed_send_waits_for_room_as_long_as_it_is_told() {
    let (_place, queue) = Place::new().with_queue("/q", 1, 8);
    let (soon, past) = (Duration::from_millis(30), SystemTime::UNIX_EPOCH);
    queue.try_send_after(b"first", 0, LONG).unwrap();
    assert_eq!(queue.try_send_after(b"x", 0, LONG), Err(SendError::Full));
    assert_eq!(queue.try_send_at(b"x", 0, past), Err(SendError::Full));
    let begin = Instant::now();
    let timed_out = Err(SendError::TimedOut);
    assert_eq!(queue.send_after_timeout(b"x", 0, LONG, soon), timed_out);
    assert!(begin.elapsed() >= soon);
    assert_eq!(queue.send_at_timeout(b"x", 0, past, soon), timed_out);
    assert_eq!(queue.send_after_deadline(b"x", 0, LONG, past), timed_out);
    assert_eq!(queue.send_at_deadline(b"x", 0, past, past), timed_out);
    assert_eq!(counts(&queue), (0, 0, 1));
}

#[test]
fn the_time_of_a_message_passes_while_its_sender_waits_for_room_and_its_delay_does_not() {
    let (_place, queue) = Place::new().with_queue("/q", 1, 8);
    let time = SystemTime::now() + DELAY;
    for (is_time, least) in [(true, Duration::ZERO), (false, DELAY)] {
        queue.try_send(b"first", 0).unwrap();
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| match is_time {
                true => queue.send_at_timeout(b"second", 0, time, STUCK),
                false => queue.send_after_timeout(b"second", 0, DELAY, STUCK),
            });
            assert!(wait_until(STUCK, || queue.status().blocked_senders == 1));
            std::thread::sleep(DELAY);
            let begin = Instant::now();
            assert_eq!(received(&queue), b"first");
            assert_eq!(received(&queue), b"second");
            assert!(begin.elapsed() >= least, "{is_time}");
            sender.join().unwrap().unwrap();
        });
    }
}

#[test]
fn a_poller_is_told_when_a_delayed_message_is_due() {
    let place = Place::in_turn();
    let mut options = place.options(4, 8);
    let queue = options.retry_delay(DELAY, DELAY).open("/q").unwrap();
    let descriptor = queue.pollable().unwrap();
    queue.try_send(b"job", 0).unwrap();
    for later in [false, true] {
        assert!(is_ready_within(STUCK, descriptor, PollFlags::IN));
        let lease = queue.try_receive_lease().unwrap();
        let begin = Instant::now();
        match later {
            false => drop(lease),
            true => lease.return_after(DELAY).unwrap(),
        }
        // A process with a helper thread for delivery times is not woken before the delivery time of a message.
        assert!(is_ready_within(STUCK, descriptor, PollFlags::IN));
        assert!(begin.elapsed() >= DELAY);
    }
    assert_eq!(queue.try_receive_vec().unwrap().data, b"job");
    // Other processes delay messages, too.
    let mut sender = Child::run(|| {
        place.open("/q").send_after(b"later", 0, DELAY).unwrap();
        0
    });
    sender.expect(Exit::Code(0), "the sender");
    assert!(is_ready_within(STUCK, descriptor, PollFlags::IN));
    assert_eq!(queue.try_receive_vec().unwrap().data, b"later");
}

#[test]
fn a_poller_learns_of_messages_that_are_delayed_after_its_poll_began() {
    let (place, queue, is_ready, received) = in_time(DELAY, |delay| {
        let (place, queue) = Place::in_turn().with_queue("/q", 4, 8);
        let descriptor = queue.pollable().unwrap();
        let is_ready = || is_ready_within(Duration::ZERO, descriptor, PollFlags::IN);
        let before = is_ready();
        let begin = Instant::now();
        place.open("/q").send_after(b"later", 0, delay).unwrap();
        let sent = is_ready();
        let received = queue.try_receive_vec();
        let ready = [before, sent, is_ready()];
        (begin, (place, queue, ready, received))
    });
    // The first delayed message wakes the poller once, although there is nothing to receive.
    assert_eq!(is_ready, [false, true, false]);
    assert_eq!(received, Err(ReceiveError::Empty));
    let descriptor = queue.pollable().unwrap();
    let other = place.open("/q");
    assert!(is_ready_within(STUCK, descriptor, PollFlags::IN));
    assert_eq!(queue.try_receive_vec().unwrap().data, b"later");
    // From now on a helper thread waits for the delivery times, and nothing wakes the poller too early.
    for _ in 0..2 {
        let begin = Instant::now();
        other.send_after(b"later", 0, DELAY).unwrap();
        assert!(is_ready_within(STUCK, descriptor, PollFlags::IN));
        assert!(begin.elapsed() >= DELAY);
        assert_eq!(queue.try_receive_vec().unwrap().data, b"later");
    }
}

#[test]
fn a_poller_is_told_to_look_even_if_another_looks_first_and_ends() {
    let (place, queue) = Place::in_turn().with_queue("/q", 4, 8);
    let other = place.open("/q");
    queue.pollable().unwrap();
    let descriptor = other.pollable().unwrap();
    place.open("/q").send_after(b"far", 0, LONG).unwrap();
    assert_eq!(queue.try_receive_vec(), Err(ReceiveError::Empty));
    // The second poller has not checked the queue yet. The helper of the first poller makes the doorbell readable again.
    assert!(is_ready_within(STUCK, descriptor, PollFlags::IN));
    assert_eq!(other.try_receive_vec(), Err(ReceiveError::Empty));
    drop(queue);
    place.open("/q").send_after(b"soon", 0, DELAY).unwrap();
    assert!(is_ready_within(STUCK, descriptor, PollFlags::IN));
    assert_eq!(other.try_receive_vec().unwrap().data, b"soon");
}

#[test]
fn a_poller_is_told_of_due_messages_after_a_repair_of_the_queue() {
    let (place, queue) = Place::in_turn().with_queue("/q", 4, 8);
    let descriptor = queue.pollable().unwrap();
    queue.send_after(b"early", 0, 3 * DELAY).unwrap();
    queue.send_after(b"late", 0, 20 * DELAY).unwrap();
    // The offset of the mark of corruption is in docs/format.md. The helper for deadlines finds the mark at the delivery time of the first message.
    let path = place.path().join("mq/q");
    let file = std::fs::File::options().write(true).open(path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[1], 48).unwrap();
    std::thread::sleep(6 * DELAY);
    let repaired = umsg::posix::repair(&place.namespace, "/q").unwrap();
    assert!(repaired.after.is_healthy(), "{repaired:#?}");
    assert_eq!(received(&queue), b"early");
    assert!(is_ready_within(STUCK, descriptor, PollFlags::IN));
    assert_eq!(queue.try_receive_vec().unwrap().data, b"late");
}

/// Kills a process at a point of `work`, then checks that the message is delivered once, late or at once as the caller expects.
fn kill(point: &str, before: fn(&Queue), work: fn(&Queue)) {
    let (place, queue) = Place::in_turn().with_queue("/q", 3, 8);
    before(&queue);
    let mut victim = Child::run(|| {
        let queue = place.open("/q");
        crash::arm(point, 1);
        work(&queue);
        0
    });
    victim.expect(Exit::Signal(libc::SIGKILL), point);
    assert_eq!(received(&queue), b"job", "{point}");
    assert_eq!(
        queue.try_receive_vec(),
        Err(ReceiveError::Empty),
        "{point}: twice"
    );
    assert_eq!(counts(&queue), (0, 0, 0), "{point}");
    for _ in 0..3 {
        queue.try_send(b"room", 0).unwrap();
    }
    assert_eq!(queue.try_send(b"", 0), Err(SendError::Full), "{point}");
    assert!(!queue.status().damaged, "{point}");
}

#[test]
fn a_process_killed_while_it_delays_a_message_or_delivers_it_loses_none() {
    let send: fn(&Queue) = |queue| queue.try_send(b"job", 3).unwrap();
    let return_later: fn(&Queue) = |queue| {
        let job = queue.try_receive_lease().unwrap();
        job.return_after(DELAY).unwrap();
    };
    let send_later: fn(&Queue) = |queue| queue.send_after(b"job", 3, DELAY).unwrap();
    let receive: fn(&Queue) = |queue| {
        let _ = queue.receive_vec_timeout(STUCK);
    };
    kill("DELAY_HELD", send, return_later);
    kill("DELAY_HELD", |_| {}, send_later);
    kill("DUE_MARKED", send_later, receive);
    kill(
        "DUE_MARKED",
        |queue| {
            queue.try_send(b"job", 3).unwrap();
            let job = queue.try_receive_lease().unwrap();
            job.return_after(DELAY).unwrap();
        },
        receive,
    );
}
