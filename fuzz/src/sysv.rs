//! Makes calls on a System V queue while words of its segment are overwritten.

use super::home::Home;
use super::input::Input;
use super::segment::{ONE_HUB, Segment};
use std::path::PathBuf;
use std::time::Duration;
use umsg::sysv::{Change, OpenOptions, Queue, Received, Want};

const KEY: i32 = 0xf422;
const CAPACITY: u64 = 4000;
const SIZE: usize = 8192;
/// The maximum number of calls and words that one input may request.
const MOST: usize = 200;

pub fn run(home: &Home, data: &[u8]) {
    let mut input = Input::new(data);
    let (queue, path) = make(home);
    let segment = Segment::open(&path, ONE_HUB);
    for number in 0..8_i64 {
        let _ = queue.try_send(1 + number % 4, &[number as u8; 200][..number as usize * 25]);
    }
    for _ in 0..MOST {
        if input.is_empty() {
            break;
        }
        match input.byte() {
            0..128 => segment.scribble(&mut input),
            call => act(home, &queue, call, &mut input),
        }
    }
    drop(queue);
    clear(home);
}

/// Removes the files of all System V queues by system calls, not by the library, because the input may have made some queues invalid.
pub(crate) fn clear(home: &Home) {
    for entry in std::fs::read_dir(home.path("msg")).expect("a directory") {
        let path = entry.expect("an entry").path();
        std::fs::remove_file(path).expect("what is no directory");
    }
}

/// Creates a queue. Returns it with the path of its file.
pub(crate) fn make(home: &Home) -> (Queue, PathBuf) {
    let mut options = OpenOptions::new();
    options.create(true).namespace(&home.namespace);
    let queue = options.open(KEY).expect("a new queue");
    let change = Change {
        qbytes: Some(CAPACITY),
        ..Change::default()
    };
    queue.set(&change).expect("a smaller queue");
    let path = home.path("msg").join((queue.id() % 32_768).to_string());
    (queue, path)
}

/// Opens the existing queue of the key, and uses it.
pub(crate) fn use_what_is_there(home: &Home, input: &mut Input<'_>) {
    let mut options = OpenOptions::new();
    options.namespace(&home.namespace);
    if let Ok(queue) = options.open(KEY) {
        (128..=255)
            .step_by(8)
            .for_each(|call| act(home, &queue, call, input));
    }
    let _ = umsg::sysv::totals(&home.namespace);
    let _ = options.create(true).open(KEY + 1);
}

fn want(input: &mut Input<'_>) -> Want {
    let mtype = i64::from(input.byte() % 8) + 1;
    match input.byte() % 5 {
        0 => Want::Exactly(mtype),
        1 => Want::Except(mtype),
        2 => Want::Lowest(mtype),
        _ => Want::Any,
    }
}

/// Makes one of the calls that never wait, or wait only up to a time limit.
fn act(home: &Home, queue: &Queue, call: u8, input: &mut Input<'_>) {
    let mut buffer = vec![0; SIZE];
    let len = usize::from(input.half()) % 1000;
    let mtype = i64::from(input.byte()) + 1;
    let want = want(input);
    let soon = Duration::from_micros(u64::from(input.byte()));
    match call % 18 {
        0 => drop(queue.try_send(mtype, &buffer[..len])),
        1 => drop(queue.send_timeout(mtype, &buffer[..len], soon)),
        2 => drop(queue.try_receive(want, &mut buffer)),
        3 => drop(queue.receive_timeout(want, &mut buffer, soon)),
        4 => drop(queue.try_receive_truncated(want, &mut buffer[..len])),
        5 => drop(queue.try_send_batch(&[(mtype, &buffer[..len]), (1, b"")])),
        6 => drop(queue.send_batch_timeout(&[(1, b""), (mtype, &buffer[..len])], soon)),
        7 => drop(queue.try_receive_batch(want, &mut buffer, &mut [Received::default(); 5])),
        8 => {
            let received = &mut [Received::default(); 5];
            let _ = queue.receive_batch_timeout(want, &mut buffer, received, soon);
        }
        9 => {
            if let Ok(lease) = queue.try_receive_lease(want) {
                assert!(lease.to_vec().len() <= SIZE);
                let _ = lease.acknowledge();
            }
        }
        10 => drop(queue.receive_lease_timeout(want, soon)),
        11 => {
            if let Ok(lease) = queue.try_receive_lease(want) {
                let _ = lease.limit(soon);
                std::mem::forget(lease);
            }
        }
        12 => drop(queue.status()),
        13 => drop(queue.messages(usize::MAX)),
        14 => drop(queue.types(usize::MAX)),
        15 => drop(queue.copy(len as u32, &mut buffer)),
        16 => drop((queue.pollable(), queue.readiness())),
        _ => {
            let change = Change {
                qbytes: Some(len as u64),
                ..Change::default()
            };
            let _ = queue.set(&change);
            let _ = umsg::sysv::list(&home.namespace);
        }
    }
}
