//! Reads snapshots, and restores the valid ones.

use super::home::Home;
use super::input::Input;
use std::time::Duration;
use umsg::posix::{OpenOptions, Queue, Snapshot};
use umsg::sysv;

pub fn run(home: &Home, data: &[u8]) {
    let mut input = Input::new(data);
    let bytes = match input.byte() % 5 {
        0 => altered(home, &mut input, false),
        1 => altered_sysv(home, &mut input, false),
        2 => altered(home, &mut input, true),
        3 => altered_sysv(home, &mut input, true),
        _ => input.rest().to_vec(),
    };
    read_sysv(&bytes);
    let Ok(snapshot) = Snapshot::read(&mut &bytes[..]) else {
        return;
    };
    let info = snapshot.info();
    assert!(info.messages <= bytes.len());
    assert_eq!(snapshot.messages().len(), info.messages);
    // A snapshot that was read can be written, and the written bytes can be read again.
    let mut again = Vec::new();
    snapshot.write(&mut again).expect("memory");
    Snapshot::read(&mut &again[..]).expect("what was written");
}

/// A delay that is longer than any run.
const LONG: Duration = Duration::from_secs(3600);

/// Returns a snapshot of a real queue with altered bytes. With `states`, the queue has a delayed message: format 3.
fn altered(home: &Home, input: &mut Input<'_>, states: bool) -> Vec<u8> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    options.max_messages(4).message_size(100);
    let queue: Queue = options
        .namespace(&home.namespace)
        .open(if states { "/saved-3" } else { "/saved" })
        .expect("a queue");
    for number in 0..3_u32 {
        let _ = queue.try_send(&[number as u8; 30], number);
    }
    if states {
        let _ = queue.try_send_after(&[3; 30], 3, LONG);
    }
    let mut bytes = Vec::new();
    queue.snapshot(&mut bytes).expect("a snapshot");
    alter(&mut bytes, input);
    bytes
}

/// Returns a snapshot of a System V queue with altered bytes. With `states`, the queue has a retry delay: format 4.
fn altered_sysv(home: &Home, input: &mut Input<'_>, states: bool) -> Vec<u8> {
    let mut options = sysv::OpenOptions::new();
    options.create(true).namespace(&home.namespace);
    let queue = match states {
        true => options.retry_delay(LONG, LONG).open(0x5a5b),
        false => options.open(0x5a5a),
    };
    let queue = queue.expect("a queue");
    for number in 1..4_u8 {
        let _ = queue.try_send(number.into(), &[number; 30]);
    }
    let mut bytes = Vec::new();
    let snapshot = sysv::Snapshot::of(&queue).expect("a snapshot");
    snapshot.write(&mut bytes).expect("memory");
    alter(&mut bytes, input);
    bytes
}

fn read_sysv(bytes: &[u8]) {
    let Ok(snapshot) = sysv::Snapshot::read(bytes) else {
        return;
    };
    assert_eq!(snapshot.messages().count() as u64, snapshot.info().messages);
    let mut again = Vec::new();
    snapshot.write(&mut again).expect("memory");
    sysv::Snapshot::read(&again[..]).expect("what was written");
}

fn alter(bytes: &mut [u8], input: &mut Input<'_>) {
    while !input.is_empty() {
        let at = usize::from(input.half()) % bytes.len();
        bytes[at] ^= input.byte();
    }
}
