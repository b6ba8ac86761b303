//! Reading snapshots, and restoring what can be read.

use super::home::Home;
use super::input::Input;
use umsg::posix::{OpenOptions, Queue, Snapshot};

pub fn run(home: &Home, data: &[u8]) {
    let mut input = Input::new(data);
    let bytes = match input.byte() {
        0 => altered(home, &mut input),
        _ => input.rest().to_vec(),
    };
    let Ok(snapshot) = Snapshot::read(&mut &bytes[..]) else {
        return;
    };
    let info = snapshot.info();
    assert!(info.messages <= bytes.len());
    assert_eq!(snapshot.messages().len(), info.messages);
    // A snapshot that was read is written as it was.
    let mut again = Vec::new();
    snapshot.write(&mut again).expect("memory");
    Snapshot::read(&mut &again[..]).expect("what was written");
}

/// One of a real queue, some bytes of which are not what they were.
fn altered(home: &Home, input: &mut Input<'_>) -> Vec<u8> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    options.max_messages(4).message_size(100);
    let queue: Queue = options
        .namespace(&home.namespace)
        .open("/saved")
        .expect("a queue");
    for number in 0..3_u32 {
        let _ = queue.try_send(&[number as u8; 30], number);
    }
    let mut bytes = Vec::new();
    queue.snapshot(&mut bytes).expect("a snapshot");
    while !input.is_empty() {
        let at = usize::from(input.half()) % bytes.len();
        bytes[at] ^= input.byte();
    }
    bytes
}
