//! A ring compared with a plain model: after every sequence of calls both are in the same state.
//!
//! The model is a deque with a bound. The tests check the order of each sender's messages, losses and duplicates, the bound with its three results,
//! the filter, the states and the batches; and that a wait sleeps at most once.

use proptest::prelude::*;
use std::collections::VecDeque;
use std::time::Duration;
use umsg::ring::{Options, Post, ReceiveError, Ring, SendError, Sender, Until, Waiting};

/// The number of senders.
const SENDERS: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    Send {
        sender: usize,
        len: usize,
    },
    SendOrDrop {
        sender: usize,
    },
    SendBatch {
        sender: usize,
        count: usize,
    },
    Receive,
    Drain,
    /// Waits, without sleeping, for messages that have already arrived.
    Wait(u64),
    Enable,
    /// From now on, only the messages of these senders are accepted.
    Accept([bool; SENDERS]),
    Close,
}

fn step() -> impl Strategy<Value = Step> {
    let sender = 0..SENDERS;
    prop_oneof![
        12 => (sender.clone(), 0_usize..=64).prop_map(|(sender, len)| Step::Send { sender, len }),
        3 => sender.clone().prop_map(|sender| Step::SendOrDrop { sender }),
        4 => (sender, 0_usize..6).prop_map(|(sender, count)| Step::SendBatch { sender, count }),
        8 => Just(Step::Receive),
        2 => Just(Step::Drain),
        3 => (0_u64..8).prop_map(Step::Wait),
        2 => Just(Step::Enable),
        1 => any::<[bool; SENDERS]>().prop_map(Step::Accept),
        1 => Just(Step::Close),
    ]
}

/// A plain model of a ring.
struct Model {
    /// The sender, the number and the length of each message.
    messages: VecDeque<(usize, u64, usize)>,
    bound: usize,
    state: Result<(), SendError>,
    accepted: [bool; SENDERS],
    next: u64,
    dropped: u64,
    refused: u64,
}

impl Model {
    /// Returns the result of a send of messages with these lengths.
    fn send(&mut self, sender: usize, lengths: &[usize]) -> Result<(), SendError> {
        if let Err(error) = &self.state {
            return Err(same(error));
        }
        if self.messages.len() + lengths.len() > self.bound {
            return Err(SendError::Full);
        }
        for &len in lengths {
            self.messages.push_back((sender, self.next, len));
            self.next += 1;
        }
        Ok(())
    }

    /// Returns the next message of an accepted sender.
    fn receive(&mut self) -> Option<(usize, u64, usize)> {
        while let Some(message) = self.messages.pop_front() {
            if self.accepted[message.0] {
                return Some(message);
            }
            self.refused += 1;
        }
        None
    }
}

/// Returns a copy of an error. The errors of this test have no fields.
fn same(error: &SendError) -> SendError {
    match error {
        SendError::Disabled => SendError::Disabled,
        SendError::Closed => SendError::Closed,
        _ => SendError::Full,
    }
}

fn post(number: u64, len: usize) -> Post {
    let payload = vec![number as u8; len];
    let post = Post::new(number)
        .res(-(number as i32))
        .flags(!number as u32);
    post.payload(&payload)
}

/// The ring and the model.
struct Pair {
    ring: Ring,
    senders: Vec<Sender>,
    model: Model,
}

impl Pair {
    fn new(entries: u32, overflow: u32, disabled: bool) -> Pair {
        let mut options = Options::new();
        options
            .entries(entries)
            .overflow(overflow)
            .disabled(disabled);
        let ring = options.create().unwrap();
        let senders = (0..SENDERS).map(|_| ring.sender()).collect();
        let state = if disabled {
            Err(SendError::Disabled)
        } else {
            Ok(())
        };
        let model = Model {
            messages: VecDeque::new(),
            bound: (entries + overflow) as usize,
            state,
            accepted: [true; SENDERS],
            next: 0,
            dropped: 0,
            refused: 0,
        };
        Pair {
            ring,
            senders,
            model,
        }
    }

    fn send(&mut self, sender: usize, len: usize) {
        let post = post(self.model.next, len);
        let sent = self.senders[sender].try_send(&post);
        assert_same(&sent, &self.model.send(sender, &[len]));
    }

    fn send_or_drop(&mut self, sender: usize) {
        let sent = self.senders[sender].send_or_drop(&post(self.model.next, 3));
        match self.model.send(sender, &[3]) {
            Err(SendError::Full) => {
                self.model.dropped += 1;
                assert!(!sent.unwrap());
            }
            Ok(()) => assert!(sent.unwrap()),
            expected => assert_same(&sent.map(drop), &expected),
        }
    }

    fn send_batch(&mut self, sender: usize, count: usize) {
        let lengths: Vec<usize> = (0..count).map(|index| index * 13).collect();
        let posts: Vec<Post> = (self.model.next..)
            .zip(&lengths)
            .map(|(number, &len)| post(number, len))
            .collect();
        let sent = self.senders[sender].try_send_batch(&posts);
        let (messages, max) = (count, self.model.bound);
        let expected = match self.model.send(sender, &lengths) {
            Err(SendError::Full) if messages > max => {
                Err(SendError::BatchTooLarge { messages, max })
            }
            other => other,
        };
        assert_same(&sent, &expected);
    }

    fn receive(&mut self) {
        let expected = self.model.receive();
        let tags: Vec<_> = self.senders.iter().map(Sender::tag).collect();
        match self.ring.try_receive() {
            Ok(message) => {
                let (sender, number, len) = expected.expect("the model has none");
                assert_eq!(message.tag, tags[sender]);
                assert_eq!(message.user_data, number);
                assert_eq!(message.res, -(number as i32));
                assert_eq!(message.flags, !number as u32);
                assert_eq!(message.payload, vec![number as u8; len]);
            }
            Err(error) => assert_eq!((error, expected), (ReceiveError::Empty, None)),
        }
    }

    fn drain(&mut self) {
        let all = self.model.messages.len() as u64;
        let mut seen = Vec::new();
        let count = self.ring.drain(|message| {
            seen.push((message.user_data, message.payload.len()));
        });
        assert_eq!(count.unwrap(), all);
        let expected = std::iter::from_fn(|| self.model.receive());
        assert_eq!(
            seen,
            expected.map(|(_, n, len)| (n, len)).collect::<Vec<_>>()
        );
    }

    fn wait(&mut self, count: u64) {
        let there = self.model.messages.len() as u64;
        let max = self.model.bound as u64;
        match self.ring.wait(count, Until::Now) {
            Ok(known) => assert!(count <= known && known <= there.max(count), "{known}"),
            Err(ReceiveError::TooMany { max: most }) => {
                assert_eq!((most, count > max), (max, true));
            }
            Err(error) => assert_eq!((error, there < count), (ReceiveError::Empty, true)),
        }
    }

    fn accept(&mut self, accepted: [bool; SENDERS]) {
        self.model.accepted = accepted;
        let senders = self.senders.iter().map(Sender::tag).zip(accepted);
        let wanted: Vec<_> = senders
            .filter(|(_, yes)| *yes)
            .map(|(tag, _)| tag)
            .collect();
        self.ring.accept_only(move |tag| wanted.contains(&tag));
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Send { sender, len } => self.send(sender, len),
            Step::SendOrDrop { sender } => self.send_or_drop(sender),
            Step::SendBatch { sender, count } => self.send_batch(sender, count),
            Step::Receive => self.receive(),
            Step::Drain => self.drain(),
            Step::Wait(count) => self.wait(count),
            Step::Accept(accepted) => self.accept(accepted),
            Step::Enable => {
                self.ring.enable();
                if matches!(self.model.state, Err(SendError::Disabled)) {
                    self.model.state = Ok(());
                }
            }
            Step::Close => {
                self.ring.close();
                self.model.state = Err(SendError::Closed);
            }
        }
        let status = self.ring.status();
        assert_eq!(status.messages, self.model.messages.len() as u64);
        assert_eq!(status.dropped, self.model.dropped);
        assert_eq!(self.ring.refused(), self.model.refused);
        assert_eq!(status.enabled, self.model.state.is_ok());
    }
}

fn assert_same(sent: &Result<(), SendError>, expected: &Result<(), SendError>) {
    let text = |result: &Result<(), SendError>| format!("{result:?}");
    assert_eq!(text(sent), text(expected));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_ring_does_what_the_model_does(
        (entries, overflow) in (1_u32..5, 0_u32..40),
        disabled in prop::bool::weighted(0.2),
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut pair = Pair::new(entries, overflow, disabled);
        for step in &steps {
            pair.apply(step);
        }
        pair.drain();
    }

    /// A receiver that waits for `n` messages goes to sleep once at most, and each wait ends when the ring has `n` messages.
    #[test]
    fn a_wait_sleeps_once_and_ends_when_as_many_are_there(
        waits in prop::collection::vec(1_u64..20, 1..8),
        senders in 1_usize..4,
        batch in 1_usize..4,
    ) {
        let mut ring = Options::new().entries(64).overflow(400).create().unwrap();
        ring.set_waiting(Waiting::Blocking);
        let total: u64 = waits.iter().sum();
        let share = total.div_ceil(batch as u64) as usize;
        let threads: Vec<_> = (0..senders)
            .map(|index| {
                let sender = ring.sender();
                std::thread::spawn(move || {
                    let posts = vec![Post::new(index as u64); batch];
                    for _ in 0..share {
                        std::thread::sleep(Duration::from_micros(50));
                        sender.send_batch(&posts).unwrap();
                    }
                })
            })
            .collect();
        for (done, &count) in waits.iter().enumerate() {
            let known = ring.wait(count, Until::Forever).unwrap();
            prop_assert!(known >= count && ring.available() >= count);
            prop_assert!(ring.status().slept <= done as u64 + 1, "slept twice");
            for _ in 0..count {
                prop_assert!(ring.try_receive().is_ok());
            }
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
