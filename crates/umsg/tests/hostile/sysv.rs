//! Victims that use a System V queue by all calls that end without help from another process.

use super::face::{
    Face, SIZE, Turns, Victim, check_batch, len, look_at_doorbell, time, use_again, use_in_turns,
};
use super::support::Random;
use super::support::place::Place;
use super::watch::Watch;
use crate::{end_lease, victims_of_a_queue};
use std::path::PathBuf;
use std::time::Duration;
use umsg::diagnosis::Repaired;
use umsg::sysv::{Change, ControlError, OpenOptions, Queue, ReceiveError, Received, Want};

pub const KEY: i32 = 0x0bad;
/// The capacity of the queue, in bytes.
const CAPACITY: u64 = 24 << 10;

pub struct SysV;

impl Face for SysV {
    fn prepare(&self, place: &Place) {
        let queue = place.create_sysv(KEY);
        queue.set(&capacity(CAPACITY)).expect("a smaller queue");
        for number in 0..12 {
            let len = number * 100;
            queue
                .try_send(1 + number as i64 % 5, &vec![7; len])
                .expect("room");
        }
    }

    fn file(&self, place: &Place) -> Option<PathBuf> {
        let entries = place.path().join("msg").read_dir().ok()?;
        let mut paths = entries.map(|entry| entry.expect("an entry").path());
        paths.find(|path| {
            let is_hidden = path
                .file_name()
                .is_some_and(|name| name.as_encoded_bytes()[0] == b'.');
            let metadata = path.symlink_metadata().expect("metadata");
            metadata.is_file() && !is_hidden && metadata.len() > 0
        })
    }

    victims_of_a_queue!(sysv, KEY);

    fn expect_to_work(&self, place: &Place) {
        let Ok(queue) = options_in(place).open(KEY) else {
            // The header of the queue's file names another key. Only the file's name contradicts the header, and any process could have made this
            // name.
            return;
        };
        // A peer may close the queue, which is no damage.
        queue.reopen_send().expect("an open queue");
        let mut buffer = vec![0; queue.msgmax()];
        loop {
            match queue.try_receive(Want::Any, &mut buffer) {
                Ok(_) => {}
                Err(ReceiveError::NoMessage) => break,
                Err(error) => panic!("{error}"),
            }
        }
        // A capacity of 0 or 1 bytes becomes 1.
        match queue.set(&capacity(CAPACITY)) {
            // The header claims that the queue was made for fewer bytes, and nothing contradicts the header.
            Err(ControlError::TooManyBytes { .. }) => return,
            changed => changed.expect("a change"),
        }
        queue.try_send(5, b"").expect("room");
        queue
            .try_receive(Want::Exactly(5), &mut buffer)
            .expect("the message");
    }

    fn remake(&self, place: &Place) {
        // A file that names no key any more, or is no queue, does not occupy the key.
        let mut options = options_in(place);
        if let Ok(queue) = options.open(KEY) {
            let _ = queue.remove();
        }
        options.create(true);
        let queue = options.open(KEY + 1).expect("a new queue");
        queue.try_send(1, b"unharmed").expect("a new queue");
        let mut buffer = [0; 8192];
        let received = queue.receive(Want::Any, &mut buffer).expect("its message");
        assert_eq!(
            (&buffer[..received.len], received.mtype),
            (&b"unharmed"[..], 1)
        );
    }
}

fn options_in(place: &Place) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.namespace(&place.namespace);
    options
}

fn capacity(bytes: u64) -> Change {
    Change {
        qbytes: Some(bytes),
        ..Change::default()
    }
}

impl Victim<'_, Queue> {
    fn act(&mut self, role: usize, random: &mut Random) {
        match (random.below(16), role % 2) {
            (0, _) => self.look(random),
            (1, _) => self.look_after(random),
            (2..6, 0) => self.send_batch(random),
            (2..4, 1) => self.lease(random),
            (4..6, 1) => self.receive_batch(random),
            (_, 0) => self.send(random),
            _ => self.receive(random),
        }
    }

    fn send(&mut self, random: &mut Random) {
        let (queue, mtype, time) = (self.queue, mtype(random), time(random));
        let bytes = &self.buffer.room()[..len(random)];
        match random.below(3) {
            0 => self
                .watch
                .timed(time, || queue.send_timeout(mtype, bytes, time)),
            _ => self.watch.call(|| queue.try_send(mtype, bytes)),
        };
    }

    fn send_batch(&mut self, random: &mut Random) {
        let (queue, time) = (self.queue, time(random));
        let bytes = &self.buffer.room()[..len(random)];
        let batch: Vec<_> = (0..random.below(6))
            .map(|_| (mtype(random), bytes))
            .collect();
        match random.below(2) {
            0 => self.watch.call(|| queue.try_send_batch(&batch)),
            _ => self
                .watch
                .timed(time, || queue.send_batch_timeout(&batch, time)),
        };
    }

    fn receive(&mut self, random: &mut Random) {
        let (queue, time, watch) = (self.queue, time(random), self.watch);
        let want = want(random);
        self.buffer.fill(|room| {
            let received = match random.below(4) {
                0 => watch.timed(time, || queue.receive_timeout(want, room, time)),
                1 => watch.call(|| queue.try_receive_truncated(want, &mut room[..50])),
                _ => watch.call(|| queue.try_receive(want, room)),
            };
            if let Some(received) = received {
                assert!(received.len <= SIZE, "{received:?}");
            }
        });
    }

    fn receive_batch(&mut self, random: &mut Random) {
        let (queue, time, watch) = (self.queue, time(random), self.watch);
        let want = want(random);
        let mut received = vec![Received::default(); random.below(8) as usize];
        self.buffer.fill(|room| {
            let count = match random.below(2) {
                0 => watch.call(|| queue.try_receive_batch(want, room, &mut received)),
                _ => watch.timed(time, || {
                    queue.receive_batch_timeout(want, room, &mut received, time)
                }),
            };
            let received = &received[..count.unwrap_or(0)];
            check_batch(room, received.iter().map(|received| received.len));
        });
    }

    fn lease(&mut self, random: &mut Random) {
        let (queue, time, watch) = (self.queue, time(random), self.watch);
        let want = want(random);
        let lease = match random.below(2) {
            0 => watch.call(|| queue.try_receive_lease(want)),
            _ => watch.timed(time, || queue.receive_lease_timeout(want, time)),
        };
        let Some(lease) = lease else { return };
        assert!(lease.len() <= queue.msgmax());
        end_lease!(lease, watch, random);
    }

    /// Makes calls that only inspect the queue.
    fn look(&mut self, random: &mut Random) {
        let (queue, watch) = (self.queue, self.watch);
        match random.below(8) {
            0 => drop(watch.call(|| queue.status())),
            1 => drop(watch.call(|| queue.entry())),
            2 => drop(watch.ask(|| queue.readiness())),
            3 => drop(watch.call(|| queue.peek(random.below(20) as u32))),
            4 => drop(watch.call(|| queue.types(usize::MAX))),
            5 => drop(watch.ask(|| (queue.is_removed(), queue.key(), queue.id()))),
            6 => drop(watch.call(|| umsg::sysv::list(&self.place.namespace))),
            _ => drop(watch.call(|| queue.messages(usize::MAX))),
        }
    }

    /// Polls, and changes the queue.
    fn look_after(&mut self, random: &mut Random) {
        let (queue, watch) = (self.queue, self.watch);
        match random.below(3) {
            0 => {
                if let Some(descriptor) = watch.call(|| queue.pollable()) {
                    look_at_doorbell(descriptor);
                }
            }
            1 => {
                let change = Change {
                    qbytes: Some(CAPACITY / (1 + random.below(2))),
                    mode: (random.below(4) == 0).then_some(0o600),
                    ..Change::default()
                };
                watch.call(|| queue.set(&change));
            }
            _ => self.buffer.fill(|room| {
                watch.call(|| queue.copy(random.below(20) as u32, room));
            }),
        }
    }
}

fn mtype(random: &mut Random) -> i64 {
    match random.below(8) {
        0 => 1 + random.below(i64::MAX as u64) as i64,
        _ => 1 + random.below(6) as i64,
    }
}

fn want(random: &mut Random) -> Want {
    match random.below(6) {
        0 => Want::Exactly(mtype(random)),
        1 => Want::Except(mtype(random)),
        2 => Want::Lowest(mtype(random)),
        _ => Want::Any,
    }
}
