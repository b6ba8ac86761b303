//! Queues with fair priorities. A stream of urgent messages keeps no other message waiting for ever. Only the order of delivery differs from that of
//! other queues.

mod support;

use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};
use support::child::{Child, Exit};
use support::due::in_time;
use support::place::Place;
use support::wait_until;
use umsg::posix::{OnFull, Queue, Received};
use umsg_shm::crash;

const STUCK: Duration = Duration::from_secs(20);
const URGENT: u32 = 9;

fn fair(place: &Place, after: u32, max_messages: u32) -> Queue {
    let mut options = place.options(max_messages, 8);
    options.fair_priorities(after).open("/q").unwrap()
}

fn priorities(queue: &Queue, count: usize) -> Vec<u32> {
    let receive = || queue.try_receive_vec().unwrap().priority;
    std::iter::repeat_with(receive).take(count).collect()
}

/// Returns the number of deliveries until the message of priority 0 comes, while there always are urgent messages. None if the message is not among
/// the first 1,000.
fn deliveries_until_the_lowest_comes(after: u32) -> Option<usize> {
    let place = Place::new();
    let queue = fair(&place, after, 8);
    queue.try_send(b"low", 0).unwrap();
    queue.try_send(b"urgent", URGENT).unwrap();
    (1..=1000).find(|_| {
        queue.try_send(b"urgent", URGENT).unwrap();
        queue.try_receive_vec().unwrap().priority == 0
    })
}

#[test]
fn urgent_messages_that_never_end_keep_a_lower_one_waiting_in_strict_order_only() {
    assert_eq!(deliveries_until_the_lowest_comes(0), None);
    for after in [1, 3, 100] {
        let deliveries = deliveries_until_the_lowest_comes(after);
        assert_eq!(deliveries, Some(after as usize + 1));
    }
}

#[test]
fn lower_priorities_take_turns() {
    let place = Place::new();
    let queue = fair(&place, 2, 20);
    assert_eq!(queue.status().fair_priorities, Some(2));
    for (priority, messages) in [(1, 2), (5, 2), (URGENT, 8), (3, 1)] {
        for _ in 0..messages {
            queue.try_send(b"", priority).unwrap();
        }
    }
    let expected = [9, 9, 5, 9, 9, 3, 9, 9, 1, 9, 9, 1, 5];
    assert_eq!(priorities(&queue, 13), expected);
    // If all messages have one priority, no lower priority is passed over.
    for _ in 0..10 {
        queue.try_send(b"", 7).unwrap();
    }
    assert_eq!(priorities(&queue, 7), [7; 7]);
    queue.try_send(b"", 2).unwrap();
    assert_eq!(priorities(&queue, 4), [7, 7, 2, 7]);
}

#[test]
fn receivers_that_wait_get_messages_in_turns() {
    let place = Place::new();
    let queue = fair(&place, 1, 8);
    std::thread::scope(|scope| {
        let receive = || queue.receive_vec_timeout(STUCK).unwrap().priority;
        let receivers = [(); 3].map(|()| scope.spawn(receive));
        assert!(wait_until(STUCK, || queue.status().blocked_receivers == 3));
        let batch = [URGENT, URGENT, URGENT, 1].map(|priority| (&b""[..], priority));
        queue.send_batch(&batch).unwrap();
        let mut received = receivers.map(|receiver| receiver.join().unwrap());
        received.sort_unstable();
        assert_eq!(received, [1, URGENT, URGENT]);
    });
    assert_eq!(priorities(&queue, 1), [URGENT]);
}

#[test]
fn what_expires_has_no_turn() {
    let (order, expired) = in_time(Duration::from_millis(100), |time_to_live| {
        let place = Place::new();
        let mut options = place.options(10, 8);
        options.fair_priorities(1).time_to_live(time_to_live);
        let queue = options.open("/q").unwrap();
        queue.try_send(b"", 1).unwrap();
        std::thread::sleep(time_to_live * 2);
        let begin = Instant::now();
        for priority in [URGENT, URGENT, URGENT, 2, 2] {
            queue.try_send(b"", priority).unwrap();
        }
        let receive = || Some(queue.try_receive_vec().ok()?.priority);
        let order: Vec<_> = std::iter::from_fn(receive).collect();
        (begin, (order, queue.status().statistics.expired))
    });
    assert_eq!(order, [URGENT, 2, URGENT, 2, URGENT]);
    assert_eq!(expired, 1);
}

#[test]
fn a_queue_that_is_full_drops_the_lowest_priority_also_in_its_turn() {
    let place = Place::new();
    let mut options = place.options(2, 8);
    options.fair_priorities(1);
    let queue = options.on_full(OnFull::DropOldest).open("/q").unwrap();
    for priority in [URGENT, URGENT, 1, URGENT, URGENT] {
        queue.try_send(b"", priority).unwrap();
    }
    assert_eq!(queue.attributes().messages, 2);
    assert_eq!(priorities(&queue, 2), [URGENT, URGENT]);
}

#[test]
fn a_number_that_no_queue_can_have_is_refused() {
    let place = Place::new();
    let mut options = place.options(2, 8);
    let error = options.fair_priorities(65_536).open("/q").unwrap_err();
    let text = "fair_priorities must be from 1 to 65535, not 65536; no queue can have more";
    assert!(error.to_string().contains(text), "{error}");
    drop(options.fair_priorities(65_535).open("/q").unwrap());
}

/// A plain model of a queue with fair priorities: a map.
#[derive(Clone, Default)]
struct Plain {
    queued: BTreeMap<u32, VecDeque<u64>>,
    passed: u32,
    last: u32,
}

impl Plain {
    fn len(&self) -> usize {
        self.queued.values().map(VecDeque::len).sum()
    }

    fn receive(&mut self, after: u32) -> Option<(u64, u32)> {
        let (&highest, _) = self.queued.last_key_value()?;
        let lower: Vec<u32> = self
            .queued
            .range(..highest)
            .map(|lower| *lower.0)
            .rev()
            .collect();
        let mut priority = highest;
        if !lower.is_empty() && self.passed == after {
            let next = lower.iter().find(|&&lower| lower < self.last);
            priority = *next.unwrap_or(&lower[0]);
            (self.passed, self.last) = (0, priority);
        } else if !lower.is_empty() {
            self.passed += 1;
        }
        let messages = self.queued.get_mut(&priority)?;
        let number = messages.pop_front()?;
        if messages.is_empty() {
            self.queued.remove(&priority);
        }
        Some((number, priority))
    }

    fn put_back(&mut self, (number, priority): (u64, u32)) {
        self.queued.entry(priority).or_default().push_front(number);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Send(u32),
    Receive,
    Lease,
    LeaseAndReturn,
    ReceiveBatch(usize),
    Peek(usize, usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => prop_oneof![0..4_u32, Just(32_767)].prop_map(Step::Send),
        2 => Just(Step::Receive),
        1 => Just(Step::Lease),
        1 => Just(Step::LeaseAndReturn),
        1 => (1..6_usize).prop_map(Step::ReceiveBatch),
        1 => (0..3_usize, 0..20_usize).prop_map(|(skip, most)| Step::Peek(skip, most)),
    ]
}

fn number_of(data: &[u8]) -> u64 {
    u64::from_le_bytes(data.try_into().unwrap())
}

const CAPACITY: usize = 16;

/// Plays the steps on a queue and on the plain model. Several handles of the queue take turns.
fn play(after: u32, steps: &[Step]) -> Result<(), TestCaseError> {
    let place = Place::new();
    let handles = [fair(&place, after, CAPACITY as u32), place.open("/q")];
    let mut plain = Plain::default();
    for (number, (step, queue)) in steps.iter().zip(handles.iter().cycle()).enumerate() {
        let number = number as u64;
        match *step {
            Step::Send(priority) if plain.len() < CAPACITY => {
                queue.try_send(&number.to_le_bytes(), priority).unwrap();
                plain.queued.entry(priority).or_default().push_back(number);
            }
            Step::Send(_) => {}
            Step::Receive => {
                let received = queue.try_receive_vec().ok();
                let received = received.map(|message| (number_of(&message.data), message.priority));
                prop_assert_eq!(received, plain.receive(after));
            }
            Step::Lease | Step::LeaseAndReturn => {
                let lease = queue.try_receive_lease().ok();
                let received = lease
                    .as_ref()
                    .map(|lease| (number_of(&lease.to_vec()), lease.priority()));
                prop_assert_eq!(received, plain.receive(after));
                match (lease, received) {
                    (Some(lease), Some(_)) if matches!(step, Step::Lease) => {
                        lease.acknowledge().unwrap()
                    }
                    (_, Some(received)) => plain.put_back(received),
                    _ => {}
                }
            }
            Step::ReceiveBatch(most) => {
                let mut received = Vec::new();
                while received.len() < most
                    && let Some(next) = plain.receive(after)
                {
                    received.push(next);
                }
                let (mut buffer, mut batch) = ([0; 8 * CAPACITY], vec![Received::default(); most]);
                let count = queue
                    .try_receive_batch(&mut buffer, &mut batch)
                    .unwrap_or(0);
                let numbers = buffer.chunks(8).map(number_of);
                let priorities = batch[..count].iter().map(|message| message.priority);
                let found: Vec<_> = numbers.zip(priorities).collect();
                prop_assert_eq!(found, received);
            }
            Step::Peek(skip, most) => {
                let mut ahead = plain.clone();
                let later = std::iter::from_fn(|| ahead.receive(after));
                let expected: Vec<_> = later.take(most).collect();
                let in_order =
                    |message: umsg::posix::Peeked| (number_of(&message.data), message.priority);
                let peeked = queue.messages(most).unwrap().into_iter().map(in_order);
                prop_assert_eq!(peeked.collect::<Vec<_>>(), expected.clone());
                let one = queue.peek(skip).unwrap().map(in_order);
                prop_assert!(skip >= most || one == expected.get(skip).copied());
            }
        }
    }
    let diagnosis = umsg::posix::diagnose(&place.namespace, "/q").unwrap();
    prop_assert!(diagnosis.is_healthy(), "{:#?}", diagnosis.problems);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_order_is_that_of_the_rule(after in 1..4_u32, steps in vec(step(), 1..120)) {
        play(after, &steps)?;
    }
}

/// Kills a process at a point of a delivery. Returns the priorities that come afterwards.
fn kill(point: &str, work: fn(&Queue)) -> Vec<u32> {
    let place = Place::in_turn();
    let queue = fair(&place, 1, 8);
    for priority in [URGENT, URGENT, URGENT, 1, 1] {
        queue.try_send(b"", priority).unwrap();
    }
    let mut victim = Child::run(|| {
        let queue = place.open("/q");
        crash::arm(point, 1);
        work(&queue);
        0
    });
    victim.expect(Exit::Signal(libc::SIGKILL), point);
    let left = queue.receive_vec_timeout(STUCK).unwrap().priority;
    let others = queue.attributes().messages;
    let all = std::iter::once(left)
        .chain(priorities(&queue, others))
        .collect();
    for _ in 0..8 {
        queue.try_send(b"room", 0).unwrap();
    }
    assert!(queue.try_send(b"", 0).is_err(), "{point}: a slot too many");
    assert!(!queue.status().damaged, "{point}");
    all
}

#[test]
fn a_receiver_that_is_killed_takes_no_turn_from_a_lower_priority() {
    let receive: fn(&Queue) = |queue| drop(queue.try_receive_vec());
    let lease: fn(&Queue) = |queue| {
        let lease = queue.try_receive_lease().unwrap();
        let _ = lease.acknowledge();
    };
    // At this point, the message is not received: nothing has changed.
    assert_eq!(kill("RECEIVE_COPIED", receive), [9, 1, 9, 1, 9]);
    // At this point, the message is received, and the delivery is not counted.
    assert_eq!(kill("RECEIVE_UNSTORED", receive), [9, 1, 9, 1]);
    // From this point on, the delivery is counted.
    assert_eq!(kill("TURN_COUNTED", receive), [1, 9, 1, 9]);
    assert_eq!(kill("RECEIVE_FREED", receive), [1, 9, 1, 9]);
    // The leased message comes back, and its next delivery is counted again.
    assert_eq!(kill("TURN_COUNTED", lease), [1, 9, 1, 9, 9]);
}
