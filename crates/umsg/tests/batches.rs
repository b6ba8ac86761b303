//! Batches and single messages in any order, compared with a plain model: a vector for each priority.

mod support;

use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant, SystemTime};
use support::due::in_time;
use support::place::Place;
use support::wait_until;
use umsg::posix::{OnFull, OpenOptions, Queue, ReceiveError, Received, SendError, Waiting};

const DEPTH: usize = 12;
const SIZE: usize = 200;

/// A message: its fill byte, its length, its priority.
type Letter = (u8, usize, u32);

#[derive(Clone, Debug)]
enum Step {
    Send(Letter),
    SendBatch(Vec<Letter>),
    SendSome(Vec<Letter>),
    Receive,
    /// Receives up to as many messages as the first number says. The buffer has room for one message, and for as many further bytes as the second
    /// number says.
    ReceiveBatch(usize, usize),
    ReceiveEach(usize),
}

fn letter() -> impl Strategy<Value = Letter> {
    let len = prop_oneof![0..=80_usize, 0..=SIZE];
    let priority = prop_oneof![Just(0), 0..3_u32, 0..32_768_u32];
    (any::<u8>(), len, priority)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        letter().prop_map(Step::Send),
        vec(letter(), 0..=DEPTH).prop_map(Step::SendBatch),
        vec(letter(), 1..=2 * DEPTH).prop_map(Step::SendSome),
        Just(Step::Receive),
        (0..=DEPTH + 2, 0..4 * SIZE).prop_map(|(most, room)| Step::ReceiveBatch(most, room)),
        (1..=DEPTH).prop_map(Step::ReceiveEach),
    ]
}

fn bytes(&(fill, len, _): &Letter) -> Vec<u8> {
    (0..len).map(|at| fill.wrapping_add(at as u8)).collect()
}

/// The expected contents of a queue.
#[derive(Default)]
struct Model(BTreeMap<u32, VecDeque<Vec<u8>>>);

impl Model {
    fn len(&self) -> usize {
        self.0.values().map(VecDeque::len).sum()
    }

    fn bytes(&self) -> usize {
        self.0.values().flatten().map(Vec::len).sum()
    }

    fn room(&self) -> usize {
        DEPTH - self.len()
    }

    fn push(&mut self, letters: &[Letter]) {
        for letter in letters {
            self.0.entry(letter.2).or_default().push_back(bytes(letter));
        }
    }

    /// Takes the next messages that fit into `room` bytes, at most `most` of them.
    fn take(&mut self, most: usize, mut room: usize) -> Vec<(Vec<u8>, u32)> {
        let mut taken = Vec::new();
        while taken.len() < most {
            let Some((&priority, list)) =
                self.0.iter_mut().rev().find(|(_, list)| !list.is_empty())
            else {
                break;
            };
            if list[0].len() > room {
                break;
            }
            let message = list.pop_front().unwrap();
            room -= message.len();
            taken.push((message, priority));
        }
        taken
    }
}

/// Returns the messages of a batch receive.
fn unpack(buffer: &[u8], received: &[Received]) -> Vec<(Vec<u8>, u32)> {
    let mut rest = buffer;
    received
        .iter()
        .map(|message| {
            let (bytes, behind) = rest.split_at(message.len);
            rest = behind;
            (bytes.to_vec(), message.priority)
        })
        .collect()
}

fn with_slices<T>(letters: &[Letter], work: impl FnOnce(&[(&[u8], u32)]) -> T) -> T {
    let messages: Vec<_> = letters
        .iter()
        .map(|letter| (bytes(letter), letter.2))
        .collect();
    let slices: Vec<(&[u8], u32)> = messages
        .iter()
        .map(|(bytes, priority)| (&bytes[..], *priority))
        .collect();
    work(&slices)
}

/// Performs a step on the queue and on the model, and compares the results.
fn play(queue: &Queue, model: &mut Model, step: &Step) {
    match step {
        Step::Send(letter) => {
            let fits = model.room() > 0;
            let sent = queue.try_send(&bytes(letter), letter.2);
            assert_eq!(sent, if fits { Ok(()) } else { Err(SendError::Full) });
            model.push(&[*letter][..usize::from(fits)]);
        }
        Step::SendBatch(letters) => {
            let fits = model.room() >= letters.len();
            let sent = with_slices(letters, |messages| queue.try_send_batch(messages));
            assert_eq!(sent, if fits { Ok(()) } else { Err(SendError::Full) });
            if fits {
                model.push(letters);
            }
        }
        Step::SendSome(letters) => {
            let count = model.room().min(letters.len());
            let sent = with_slices(letters, |messages| queue.try_send_some(messages));
            assert_eq!(
                sent,
                if count > 0 {
                    Ok(count)
                } else {
                    Err(SendError::Full)
                }
            );
            model.push(&letters[..count]);
        }
        Step::Receive => {
            let mut buffer = [0; SIZE];
            let found = queue.try_receive(&mut buffer);
            match model.take(1, SIZE).pop() {
                Some((message, priority)) => {
                    let len = message.len();
                    assert_eq!(found, Ok(Received { len, priority }));
                    assert_eq!(buffer[..len], message);
                }
                None => assert_eq!(found, Err(ReceiveError::Empty)),
            }
        }
        Step::ReceiveBatch(most, room) => {
            let mut buffer = vec![0; SIZE + room];
            let mut received = vec![Received::default(); *most];
            let found = queue.try_receive_batch(&mut buffer, &mut received);
            let expected = model.take(*most, buffer.len());
            match found {
                Ok(count) => assert_eq!(unpack(&buffer, &received[..count]), expected),
                Err(error) => {
                    assert_eq!(error, ReceiveError::Empty);
                    assert!(expected.is_empty() && *most > 0);
                }
            }
        }
        Step::ReceiveEach(most) => {
            if model.len() == 0 {
                return;
            }
            let mut found = Vec::new();
            let count = queue.receive_each(*most, |bytes, priority| {
                found.push((bytes.to_vec(), priority));
            });
            assert_eq!(count, Ok(found.len()));
            assert_eq!(found, model.take(*most, usize::MAX));
        }
    }
    let attributes = queue.attributes();
    assert_eq!(
        (attributes.messages, attributes.bytes),
        (model.len(), model.bytes() as u64)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn batches_and_single_messages_behave_as_a_plain_model(steps in vec(step(), 1..60)) {
        let (_place, queue) = Place::new().with_queue("/q", DEPTH as u32, SIZE as u32);
        let mut model = Model::default();
        for step in &steps {
            play(&queue, &mut model, step);
        }
        let everything = Step::ReceiveBatch(DEPTH, DEPTH * SIZE);
        play(&queue, &mut model, &everything);
        prop_assert_eq!(model.len(), 0);
        prop_assert!(!queue.status().damaged);
    }
}

#[test]
fn a_batch_that_can_never_be_sent_is_refused_whole() {
    let (_place, queue) = Place::new().with_queue("/q", 3, 8);
    let four: [(&[u8], u32); 4] = [(b"a", 0); 4];
    let error = queue.send_batch(&four).unwrap_err();
    assert_eq!(
        error,
        SendError::BatchTooLarge {
            messages: 4,
            max: 3
        }
    );
    assert_eq!(error.errno(), libc::EMSGSIZE);
    let long: [(&[u8], u32); 2] = [(b"short", 0), (b"too long!", 0)];
    assert_eq!(
        queue.send_batch(&long),
        Err(SendError::TooLong { len: 9, max: 8 })
    );
    assert_eq!(
        queue.send_some(&long),
        Err(SendError::TooLong { len: 9, max: 8 })
    );
    let high: [(&[u8], u32); 2] = [(b"a", 0), (b"b", 32_768)];
    assert_eq!(queue.send_batch(&high), Err(SendError::PriorityTooHigh));
    assert_eq!(queue.attributes().messages, 0);
    assert_eq!(queue.send_batch(&[]), Ok(()));
    assert_eq!(queue.send_some(&[]), Ok(0));
    assert_eq!(queue.send_some(&four), Ok(3));
    assert_eq!(queue.try_send_batch(&four[..1]), Err(SendError::Full));
    assert_eq!(queue.try_send_some(&four), Err(SendError::Full));
    let soon = Duration::from_millis(5);
    assert_eq!(
        queue.send_batch_timeout(&four[..2], soon),
        Err(SendError::TimedOut)
    );
    assert_eq!(
        queue.send_some_timeout(&four, soon),
        Err(SendError::TimedOut)
    );
    assert_eq!(queue.status().blocked_senders, 0);
}

#[test]
fn what_waits_for_some_room_until_a_time_of_the_clock_sends_what_fits_before_or_nothing() {
    let (_place, queue) = Place::new().with_queue("/q", 3, 8);
    queue.set_waiting(Waiting::Blocking);
    let four: [(&[u8], u32); 4] = [(b"a", 0), (b"b", 0), (b"c", 0), (b"d", 0)];
    // If there is room, a deadline in the past is no error.
    assert_eq!(
        queue.send_some_deadline(&four, SystemTime::UNIX_EPOCH),
        Ok(3)
    );
    for deadline in [
        SystemTime::UNIX_EPOCH,
        SystemTime::now() + Duration::from_millis(20),
    ] {
        let sent = queue.send_some_deadline(&four[3..], deadline);
        assert_eq!(sent, Err(SendError::TimedOut));
        assert!(SystemTime::now() >= deadline);
    }
    assert_eq!(queue.status().blocked_senders, 0);
    let tomorrow = SystemTime::now() + Duration::from_secs(24 * 3600);
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| queue.send_some_deadline(&four[3..], tomorrow));
        let blocks = wait_until(Duration::from_secs(10), || {
            queue.status().blocked_senders == 1
        });
        // Receives before the assertion: if the assertion failed first, the join would wait for the sender, whose deadline is tomorrow.
        let first = queue.receive_vec();
        assert!(blocks);
        assert_eq!(first.unwrap().data, b"a");
        assert_eq!(sender.join().unwrap(), Ok(1));
    });
    assert_eq!(drain(&queue), owned([(b"b", 0), (b"c", 0), (b"d", 0)]));
}

#[test]
fn a_batch_receive_needs_room_for_one_message_of_any_length() {
    let (_place, queue) = Place::new().with_queue("/q", 3, 8);
    let mut received = [Received::default(); 2];
    let error = queue.try_receive_batch(&mut [0; 7], &mut received);
    assert_eq!(
        error,
        Err(ReceiveError::BufferTooSmall { len: 7, needed: 8 })
    );
    let mut buffer = [0; 8];
    assert_eq!(
        queue.try_receive_batch(&mut buffer, &mut received),
        Err(ReceiveError::Empty)
    );
    let soon = Duration::from_millis(5);
    assert_eq!(
        queue.receive_batch_timeout(&mut buffer, &mut received, soon),
        Err(ReceiveError::TimedOut)
    );
    assert_eq!(queue.receive_batch(&mut buffer, &mut []), Ok(0));
    assert_eq!(queue.receive_each(0, |_, _| ()), Ok(0));
    queue
        .send_batch(&[(b"four", 1), (b"five", 1), (b"s", 1)])
        .unwrap();
    assert_eq!(queue.receive_batch(&mut buffer, &mut received), Ok(2));
    assert_eq!(&buffer, b"fourfive");
    assert_eq!(queue.receive_batch(&mut buffer, &mut received), Ok(1));
}

#[test]
fn a_blocked_batch_receive_takes_the_message_that_it_is_offered() {
    let (_place, queue) = Place::new().with_queue("/q", 8, 8);
    queue.set_waiting(Waiting::Blocking);
    for _ in 0..20 {
        std::thread::scope(|scope| {
            let receiver = scope.spawn(|| {
                let (mut buffer, mut received) = ([0; 64], [Received::default(); 8]);
                let mut total = 0;
                while total < 3 {
                    total += queue.receive_batch(&mut buffer, &mut received).unwrap();
                }
                total
            });
            assert!(wait_until(Duration::from_secs(10), || {
                queue.status().blocked_receivers == 1
            }));
            queue
                .send_batch(&[(b"one", 0), (b"two", 0), (b"three", 0)])
                .unwrap();
            assert_eq!(receiver.join().unwrap(), 3);
        });
    }
    assert_eq!(queue.attributes().messages, 0);
}

#[test]
fn blocked_batches_and_single_messages_get_room_in_the_order_in_which_they_came() {
    let (_place, queue) = Place::new().with_queue("/q", 4, 8);
    queue.set_waiting(Waiting::Blocking);
    let fill: [(&[u8], u32); 4] = [(b"\0", 0); 4];
    queue.try_send_batch(&fill).unwrap();
    std::thread::scope(|scope| {
        let queue = &queue;
        let wait_for = |count| {
            assert!(wait_until(Duration::from_secs(10), || {
                queue.status().blocked_senders == count
            }));
        };
        scope.spawn(|| {
            queue
                .send_batch(&[(&[1], 0), (&[2], 0), (&[3], 0)])
                .unwrap()
        });
        wait_for(1);
        scope.spawn(|| queue.send(&[4], 0).unwrap());
        wait_for(2);
        scope.spawn(|| queue.send_batch(&[(&[5], 0), (&[6], 0)]).unwrap());
        wait_for(3);
        let got: Vec<u8> = (0..10)
            .map(|_| queue.receive_vec().unwrap().data[0])
            .collect();
        assert_eq!(got, [0, 0, 0, 0, 1, 2, 3, 4, 5, 6]);
    });
}

#[test]
fn a_batch_of_the_whole_queue_is_sent_beside_a_stream_of_single_messages() {
    let (_place, queue) = Place::new().with_queue("/q", 4, 8);
    let over = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let (queue, over) = (&queue, &over);
        scope.spawn(|| {
            while over.load(SeqCst) == 0 {
                let _ = queue.send_timeout(&[0], 0, Duration::from_millis(10));
            }
        });
        let receiver = scope.spawn(|| {
            let mut seen = 0;
            while seen < 4 * 50 {
                seen += usize::from(queue.receive_vec().unwrap().data[0] == 1);
            }
        });
        let batch: [(&[u8], u32); 4] = [(&[1], 0); 4];
        for _ in 0..50 {
            queue.send_batch(&batch).unwrap();
        }
        receiver.join().unwrap();
        over.store(1, SeqCst);
    });
}

/// Returns a queue for three messages, with a policy.
fn with_policy(place: &Place, policy: impl FnOnce(&mut OpenOptions)) -> Queue {
    let mut options = place.options(3, 8);
    policy(&mut options);
    options.open("/q").unwrap()
}

/// Receives all messages, as one batch.
fn drain(queue: &Queue) -> Vec<(Vec<u8>, u32)> {
    let (mut buffer, mut received) = ([0; 64], [Received::default(); 8]);
    let count = queue.try_receive_batch(&mut buffer, &mut received).unwrap();
    unpack(&buffer, &received[..count])
}

fn owned<const N: usize>(messages: [(&[u8], u32); N]) -> Vec<(Vec<u8>, u32)> {
    messages
        .map(|(bytes, priority)| (bytes.to_vec(), priority))
        .into()
}

#[test]
fn a_batch_drops_the_oldest_of_a_full_queue_or_fails_as_a_message_does() {
    let place = Place::new();
    let queue = with_policy(&place, |options| {
        options.on_full(OnFull::DropOldest);
    });
    queue
        .send_batch(&[(b"a", 1), (b"b", 5), (b"c", 1)])
        .unwrap();
    queue.send_batch(&[(b"d", 2), (b"e", 0)]).unwrap();
    // Only one queued message (e) has a priority that is not higher than the best priority of the batch. So the queue drops the batch itself.
    queue.send_batch(&[(b"f", 0), (b"g", 0)]).unwrap();
    assert_eq!(queue.status().statistics.dropped, 4);
    assert_eq!(drain(&queue), owned([(b"b", 5), (b"d", 2), (b"e", 0)]));

    let place = Place::new();
    let queue = with_policy(&place, |options| {
        options.on_full(OnFull::Fail);
    });
    queue.send_batch(&[(b"a", 1), (b"b", 5)]).unwrap();
    assert_eq!(
        queue.send_batch(&[(b"c", 1), (b"d", 1)]),
        Err(SendError::Full)
    );
    assert_eq!(queue.send_some(&[(b"c", 1), (b"d", 1)]), Ok(1));
    assert_eq!(queue.send_some(&[(b"d", 1)]), Err(SendError::Full));
}

#[test]
fn a_batch_receive_passes_over_messages_that_are_too_old() {
    let (received, expired) = in_time(Duration::from_millis(600), |time_to_live| {
        let place = Place::new();
        let queue = with_policy(&place, |options| {
            options.time_to_live(time_to_live);
        });
        queue.send_batch(&[(b"old", 1)]).unwrap();
        std::thread::sleep(time_to_live * 2 / 3);
        let begin = Instant::now();
        queue.send_batch(&[(b"new", 5), (b"other", 1)]).unwrap();
        std::thread::sleep(time_to_live / 2);
        let (mut buffer, mut received) = ([0; 64], [Received::default(); 8]);
        let count = queue.try_receive_batch(&mut buffer, &mut received);
        let messages = count.map(|count| unpack(&buffer, &received[..count]));
        (begin, (messages, queue.status().statistics.expired))
    });
    assert_eq!(received, Ok(owned([(b"new", 5), (b"other", 1)])));
    assert_eq!(expired, 1);
}

#[test]
fn a_batch_of_long_messages_keeps_its_blocks_while_the_arena_grows() {
    let (_place, queue) = Place::new().with_queue("/q", 100, 8192);
    let messages: Vec<Vec<u8>> = (0..100_u8)
        .map(|message| vec![message; 8000 + usize::from(message)])
        .collect();
    let batch: Vec<(&[u8], u32)> = messages.iter().map(|data| (&data[..], 0)).collect();
    for _ in 0..2 {
        queue.send_batch(&batch).unwrap();
        for data in &messages {
            assert_eq!(&queue.receive_vec().unwrap().data, data);
        }
    }
}
