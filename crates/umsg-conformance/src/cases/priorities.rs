//! The message of the highest priority is received first. Messages of the same priority are received in the order in which they were sent.

use crate::errno::Errno;
use crate::site::{Message, Queue, Site, message};

subject! { $ priorities, priorities_cases:
    the_highest_priority_comes_first
    within_one_priority_the_order_sent_is_kept
    the_highest_priority_is_32767
    a_priority_of_32768_or_more_is_invalid
    an_invalid_priority_sends_nothing
    a_later_message_of_higher_priority_overtakes
    a_later_message_of_the_same_priority_does_not_overtake
    sends_and_receives_may_alternate
    priorities_at_the_edges_of_words_keep_their_order
    random_priorities_come_out_sorted
    two_alternating_priorities_come_out_sorted
}

/// A plain model of the queue: for each queued message, its priority and its number in the order of the sends.
#[derive(Default)]
struct Model {
    queued: Vec<(u32, u32)>,
    sent: u32,
}

impl Model {
    fn send(&mut self, queue: Queue<'_>, priority: u32) {
        assert_eq!(queue.send(self.sent.to_le_bytes(), priority), Ok(()));
        self.queued.push((priority, self.sent));
        self.sent += 1;
    }

    fn receive(&mut self, queue: Queue<'_>) {
        let best = self
            .queued
            .iter()
            .copied()
            .max_by_key(|&(priority, sent)| (priority, u32::MAX - sent));
        let (priority, sent) = best.expect("a message in the model");
        self.queued.retain(|&entry| entry != (priority, sent));
        assert_eq!(queue.receive(), Ok(message(sent.to_le_bytes(), priority)));
    }
}

/// Returns a generator of pseudo-random numbers below its argument.
fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut random = crate::compare::Random::new(seed);
    move |below| random.below(below)
}

fn the_highest_priority_comes_first(site: &Site) {
    let queue = site.nonblocking(5, 8);
    for priority in [3, 1, 5, 2, 4] {
        assert_eq!(queue.send([priority], u32::from(priority)), Ok(()));
    }
    let received = queue.drain();
    let expected: Vec<Message> = (1..=5)
        .rev()
        .map(|priority| message([priority], u32::from(priority)))
        .collect();
    assert_eq!(received, expected);
}

fn within_one_priority_the_order_sent_is_kept(site: &Site) {
    let queue = site.nonblocking(6, 8);
    for (text, priority) in [("a", 1), ("b", 2), ("c", 1), ("d", 2), ("e", 1), ("f", 2)] {
        assert_eq!(queue.send(text, priority), Ok(()));
    }
    let order: Vec<u8> = queue
        .drain()
        .iter()
        .map(|message| message.data[0])
        .collect();
    assert_eq!(order, b"bdface");
}

fn the_highest_priority_is_32767(site: &Site) {
    let queue = site.queue(2, 8);
    assert_eq!(queue.send(b"top", 32767), Ok(()));
    assert_eq!(queue.receive(), Ok(message("top", 32767)));
}

fn a_priority_of_32768_or_more_is_invalid(site: &Site) {
    let queue = site.queue(2, 8);
    for priority in [32768, 32769, 65535, 65536, 1 << 31, u32::MAX] {
        assert_eq!(queue.send(b"x", priority), Err(Errno::EINVAL), "{priority}");
    }
}

fn an_invalid_priority_sends_nothing(site: &Site) {
    let queue = site.nonblocking(2, 8);
    assert_eq!(queue.send(b"x", 32768), Err(Errno::EINVAL));
    assert_eq!(queue.receive(), Err(Errno::EAGAIN));
}

fn a_later_message_of_higher_priority_overtakes(site: &Site) {
    let queue = site.queue(3, 8);
    assert_eq!(queue.send(b"early", 1), Ok(()));
    assert_eq!(queue.send(b"urgent", 9), Ok(()));
    assert_eq!(queue.receive(), Ok(message("urgent", 9)));
    assert_eq!(queue.receive(), Ok(message("early", 1)));
}

fn a_later_message_of_the_same_priority_does_not_overtake(site: &Site) {
    let queue = site.queue(4, 8);
    assert_eq!(queue.send(b"first", 1), Ok(()));
    assert_eq!(queue.send(b"other", 2), Ok(()));
    assert_eq!(queue.receive(), Ok(message("other", 2)));
    assert_eq!(queue.send(b"second", 1), Ok(()));
    assert_eq!(queue.receive(), Ok(message("first", 1)));
    assert_eq!(queue.receive(), Ok(message("second", 1)));
}

fn sends_and_receives_may_alternate(site: &Site) {
    let (queue, mut model) = (site.queue(10, 8), Model::default());
    for round in 0..200 {
        for step in 0..3 {
            model.send(queue, (round * 7 + step * 5) % 11);
        }
        for _ in 0..3 {
            model.receive(queue);
        }
    }
}

fn priorities_at_the_edges_of_words_keep_their_order(site: &Site) {
    let edges = [
        0, 1, 31, 32, 63, 64, 127, 128, 1023, 1024, 1025, 2047, 2048, 4095, 4096, 16383, 16384,
        32766, 32767,
    ];
    for pair in edges.windows(2) {
        let queue = site.nonblocking(4, 8);
        for priority in [pair[0], pair[1], pair[0], pair[1]] {
            assert_eq!(queue.send(b"x", priority), Ok(()));
        }
        let order: Vec<u32> = queue
            .drain()
            .iter()
            .map(|message| message.priority)
            .collect();
        assert_eq!(order, [pair[1], pair[1], pair[0], pair[0]]);
        queue.close().expect("closing");
    }
}

/// Makes random sends and receives, with priorities below a bound, and compares them with the model.
fn expect_sorted(site: &Site, bound: u64, rounds: u32) {
    let (queue, mut model, mut next) = (site.queue(10, 8), Model::default(), numbers(bound));
    for _ in 0..rounds {
        let sends = next(11 - model.queued.len() as u64);
        for _ in 0..sends {
            model.send(queue, next(bound) as u32);
        }
        let receives = next(model.queued.len() as u64 + 1);
        for _ in 0..receives {
            model.receive(queue);
        }
    }
    while !model.queued.is_empty() {
        model.receive(queue);
    }
    assert_eq!(queue.messages(), 0);
}

fn random_priorities_come_out_sorted(site: &Site) {
    expect_sorted(site, 32768, 500);
    expect_sorted(site, 100, 500);
    expect_sorted(site, 3, 500);
}

fn two_alternating_priorities_come_out_sorted(site: &Site) {
    expect_sorted(site, 2, 1000);
    expect_sorted(site, 1, 1000);
}
