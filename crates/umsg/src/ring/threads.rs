//! Rings with several sending threads.

use super::{INLINE, Options, Post, Sender, Until};
use std::sync::Mutex;
use umsg_shm::threads::traffic::{LONGEST, message, number, pass};

fn send(sender: &Sender, messages: &[Vec<u8>]) {
    for bytes in messages {
        let post = Post::new(number(bytes) as u64);
        sender.send_long(&post, bytes, Until::Forever).unwrap();
    }
}

/// Sends one batch: for each of `messages`, a post with the message's number and its first bytes.
fn send_together(sender: &Sender, messages: &[Vec<u8>]) {
    let post = |bytes: &Vec<u8>| {
        let begin = &bytes[..bytes.len().min(INLINE)];
        Post::new(number(bytes) as u64).flags(1).payload(begin)
    };
    let posts: Vec<_> = messages.iter().map(post).collect();
    sender.send_batch(&posts).unwrap();
}

#[test]
fn long_messages_and_batches_of_short_ones_pass_through_a_full_ring() {
    let ring = Options::new()
        .entries(2)
        .overflow(1)
        .longest(LONGEST as u32)
        .create()
        .unwrap();
    let (one, other) = (ring.sender(), ring.sender());
    let ring = Mutex::new(ring);
    let receive = |_: usize| {
        let mut ring = ring.lock().unwrap();
        let received = ring.receive().unwrap();
        if received.flags == 0 {
            return vec![received.payload.to_vec()];
        }
        let whole = message(received.user_data as usize);
        assert_eq!(received.payload, &whole[..whole.len().min(INLINE)]);
        vec![whole]
    };
    pass(
        &[&|messages| send(&one, messages), &|messages| {
            send_together(&other, messages)
        }],
        &[&receive],
    );
}
