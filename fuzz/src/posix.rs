//! Makes calls on a POSIX queue while words of its segment are overwritten.

use super::home::Home;
use super::input::Input;
use super::segment::{Segment, TWO_SIDES};
use std::time::Duration;
use umsg::posix::{OnFull, OpenOptions, Queue, Received, UnlinkError};

const NAME: &str = "/fuzzed";
const SIZE: usize = 300;
/// The maximum number of calls and words that one input may request.
const MOST: usize = 200;

pub fn run(home: &Home, data: &[u8]) {
    let mut input = Input::new(data);
    let queue = make(home, input.byte());
    let segment = Segment::open(&home.path("mq/fuzzed"), TWO_SIDES);
    for number in 0..8_usize {
        let message = vec![number as u8; number * SIZE / 8];
        let _ = queue.try_send(&message, number as u32 % 3);
    }
    for _ in 0..MOST {
        if input.is_empty() {
            break;
        }
        match input.byte() {
            0..128 => segment.scribble(&mut input),
            call => act(&queue, call, &mut input),
        }
    }
    drop(queue);
    match umsg::posix::unlink_in(&home.namespace, NAME) {
        // An overwritten word of the header may say that the queue is removed.
        Ok(()) | Err(UnlinkError::NotFound) => {}
        Err(error) => panic!("{error}"),
    }
}

/// Makes a queue with a message. The caller alters the queue's file.
pub(crate) fn leave(home: &Home) {
    let queue = make(home, 0);
    queue.try_send(b"left", 3).expect("room");
}

fn make(home: &Home, how: u8) -> Queue {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    options.max_messages(12).message_size(SIZE as u32);
    options.namespace(&home.namespace);
    if how & 1 != 0 {
        options.open("/rest").expect("a dead-letter queue");
        options.dead_letter("/rest").max_deliveries(2);
    }
    if how & 2 != 0 {
        options.on_full(OnFull::DropOldest);
    }
    if how & 4 != 0 {
        options.time_to_live(Duration::from_micros(100));
    }
    options.open(NAME).expect("a new queue")
}

/// Opens the existing queue of this name, and uses it.
pub(crate) fn use_what_is_there(home: &Home, input: &mut Input<'_>) {
    let mut options = OpenOptions::new();
    options.read(true).write(true).namespace(&home.namespace);
    if let Ok(queue) = options.open(NAME) {
        (128..=255)
            .step_by(8)
            .for_each(|call| act(&queue, call, input));
    }
    let _ = umsg::posix::list(&home.namespace);
}

/// Makes one of the calls that never wait, or wait only up to a time limit.
fn act(queue: &Queue, call: u8, input: &mut Input<'_>) {
    let size = queue.attributes().message_size;
    let mut buffer = vec![0; size];
    let len = usize::from(input.half()) % (size + 1);
    let priority = u32::from(input.half());
    let soon = Duration::from_micros(u64::from(input.byte()));
    match call % 20 {
        0 => drop(queue.try_send(&buffer[..len], priority)),
        1 => drop(queue.send_timeout(&buffer[..len], priority, soon)),
        2 => drop(
            queue
                .try_receive(&mut buffer)
                .map(|received| check(received, size)),
        ),
        3 => drop(queue.receive_timeout(&mut buffer, soon)),
        4 => drop(queue.try_send_batch(&[(&buffer[..len], priority), (b"", 0)])),
        5 => drop(queue.send_batch_timeout(&[(b"", 1), (&buffer[..len], priority)], soon)),
        6 => drop(queue.try_send_some(&[(&buffer[..len], priority), (b"", 0)])),
        7 => drop(queue.try_receive_batch(&mut buffer, &mut [Received::default(); 5])),
        8 => drop(queue.receive_batch_timeout(&mut buffer, &mut [Received::default(); 5], soon)),
        9 => {
            if let Ok(room) = queue.try_reserve(len) {
                let _ = room.commit(priority);
            }
        }
        10 => drop(queue.reserve_timeout(len, soon)),
        11 => {
            if let Ok(lease) = queue.try_receive_lease() {
                assert!(lease.to_vec().len() <= size);
                let _ = lease.acknowledge();
            }
        }
        12 => drop(queue.receive_lease_timeout(soon)),
        13 => {
            if let Ok(lease) = queue.try_receive_lease() {
                let _ = lease.limit(soon);
                std::mem::forget(lease);
            }
        }
        14 => drop(queue.status()),
        15 => drop(queue.messages(usize::MAX)),
        16 => drop(queue.peek(len)),
        17 => drop(queue.snapshot(&mut Vec::new())),
        18 => drop((queue.pollable(), queue.readiness())),
        _ => {
            if let Ok(mut told) = queue.notify_waiter() {
                let _ = told.wait_timeout(soon);
            }
        }
    }
}

fn check(received: Received, size: usize) {
    assert!(
        received.len <= size && received.priority < 32_768,
        "{received:?}"
    );
}
