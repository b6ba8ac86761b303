//! Victims that use a POSIX queue by all calls that end without help from another process.

use super::face::{
    Face, SIZE, Turns, Victim, check_batch, len, look_at_doorbell, time, use_again, use_in_turns,
};
use super::support::Random;
use super::support::place::Place;
use super::watch::Watch;
use crate::{end_lease, victims_of_a_queue};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};
use umsg::diagnosis::Repaired;
use umsg::posix::{OnFull, OpenOptions, Queue, ReceiveError, Received, SendError};

pub const NAME: &str = "/victim";
const DEPTH: u32 = 48;
/// The number of messages that a queue sets aside without using its capacity.
const ASIDE: usize = 1024;

pub struct Posix {
    /// True for a queue with policies: expired messages, and messages that are leased too often, go to another queue; the oldest messages make
    /// room.
    pub with_policies: bool,
}

impl Face for Posix {
    fn prepare(&self, place: &Place) {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true);
        options.max_messages(DEPTH).message_size(SIZE as u32);
        options.namespace(&place.namespace);
        if self.with_policies {
            let _target = options.open("/rest").expect("a queue");
            options.on_full(OnFull::DropOldest).dead_letter("/rest");
            options.time_to_live(Duration::from_millis(20));
            options.max_deliveries(2);
        }
        let queue = options.open(NAME).expect("a queue");
        for number in 0..DEPTH / 2 {
            let len = number as usize * SIZE / DEPTH as usize;
            queue.try_send(&vec![7; len], number % 3).expect("room");
        }
    }

    fn file(&self, place: &Place) -> Option<PathBuf> {
        Some(place.path().join("mq").join(&NAME[1..]))
    }

    victims_of_a_queue!(posix, NAME);

    fn expect_to_work(&self, place: &Place) {
        let queue = place.open(NAME);
        // A peer may close the queue, which is no damage.
        queue.reopen_send().expect("an open queue");
        let mut buffer = vec![0; queue.attributes().message_size];
        let mut receive = || match queue.try_receive(&mut buffer) {
            Ok(_) => true,
            Err(ReceiveError::Empty) => false,
            Err(error) => panic!("{error}"),
        };
        while receive() {}
        if let Err(error) = queue.try_send(b"", 3) {
            // The dead-letter queue becomes full during the attack. After a long attack, messages that are set aside use the whole capacity.
            let status = queue.status();
            let all = ASIDE + status.attributes.max_messages;
            if error == SendError::Full && status.set_aside >= all {
                return;
            }
            let found = umsg::posix::diagnose(&place.namespace, NAME);
            panic!("{error}: {:#?}, {found:#?}", queue.status());
        }
        // The message may have expired in a queue with a time to live.
        receive();
    }

    fn remake(&self, place: &Place) {
        umsg::posix::unlink_in(&place.namespace, NAME).expect("an existing name");
        let queue = place.create(NAME, 2, 100);
        queue.try_send(b"unharmed", 1).expect("a new queue");
        let message = queue.receive_vec().expect("its message");
        assert_eq!((&message.data[..], message.priority), (&b"unharmed"[..], 1));
    }
}

fn options_in(place: &Place) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).namespace(&place.namespace);
    options
}

impl Victim<'_, Queue> {
    fn act(&mut self, role: usize, random: &mut Random) {
        match (random.below(16), role % 2) {
            (0, _) => self.look(random),
            (1, _) => self.look_after(random),
            (2..4, 0) => self.reserve(random),
            (2..4, _) => self.lease(random),
            (4..7, 0) => self.send_batch(random),
            (4..7, _) => self.receive_batch(random),
            (_, 0) => self.send(random),
            _ => self.receive(random),
        }
    }

    fn send(&mut self, random: &mut Random) {
        let (queue, priority) = (self.queue, priority(random));
        let bytes = &self.buffer.room()[..len(random)];
        let time = time(random);
        match random.below(4) {
            0 => self
                .watch
                .timed(time, || queue.send_timeout(bytes, priority, time)),
            1 => {
                let until = SystemTime::now() + time;
                self.watch
                    .timed(time, || queue.send_deadline(bytes, priority, until))
            }
            _ => self.watch.call(|| queue.try_send(bytes, priority)),
        };
    }

    fn send_batch(&mut self, random: &mut Random) {
        let queue = self.queue;
        let bytes = &self.buffer.room()[..len(random)];
        let batch: Vec<_> = (0..random.below(8))
            .map(|_| (bytes, priority(random)))
            .collect();
        let time = time(random);
        match random.below(4) {
            0 => drop(self.watch.call(|| queue.try_send_batch(&batch))),
            1 => drop(self.watch.call(|| queue.try_send_some(&batch))),
            2 => drop(
                self.watch
                    .timed(time, || queue.send_some_timeout(&batch, time)),
            ),
            _ => drop(
                self.watch
                    .timed(time, || queue.send_batch_timeout(&batch, time)),
            ),
        }
    }

    fn reserve(&mut self, random: &mut Random) {
        let (queue, time) = (self.queue, time(random));
        let wanted = len(random);
        let room = match random.below(2) {
            0 => self.watch.call(|| queue.try_reserve(wanted)),
            _ => self
                .watch
                .timed(time, || queue.reserve_timeout(wanted, time)),
        };
        let Some(mut room) = room else { return };
        assert_eq!(room.len(), wanted);
        assert_eq!(room.write_at(0, &self.buffer.room()[..wanted]), wanted);
        room.truncate(wanted - random.below(wanted as u64 + 1) as usize);
        match random.below(3) {
            0 => self.watch.let_go(|| drop(room)),
            _ => drop(self.watch.end(|| room.commit(priority(random)))),
        }
    }

    fn receive(&mut self, random: &mut Random) {
        let (queue, time, watch) = (self.queue, time(random), self.watch);
        self.buffer.fill(|room| {
            let received = match random.below(4) {
                0 => watch.timed(time, || queue.receive_timeout(room, time)),
                1 => {
                    let until = SystemTime::now() + time;
                    watch.timed(time, || queue.receive_deadline(room, until))
                }
                _ => watch.call(|| queue.try_receive(room)),
            };
            let Some(Received { len, priority }) = received else {
                return;
            };
            assert!(len <= SIZE && priority < 32_768, "{len}, {priority}");
        });
    }

    fn receive_batch(&mut self, random: &mut Random) {
        let (queue, time, watch) = (self.queue, time(random), self.watch);
        let mut received = vec![Received::default(); random.below(8) as usize];
        self.buffer.fill(|room| {
            let count = match random.below(2) {
                0 => watch.call(|| queue.try_receive_batch(room, &mut received)),
                _ => watch.timed(time, || {
                    queue.receive_batch_timeout(room, &mut received, time)
                }),
            };
            let received = &received[..count.unwrap_or(0)];
            check_batch(room, received.iter().map(|received| received.len));
        });
    }

    fn lease(&mut self, random: &mut Random) {
        let (queue, time, watch) = (self.queue, time(random), self.watch);
        let lease = match random.below(2) {
            0 => watch.call(|| queue.try_receive_lease()),
            _ => watch.timed(time, || queue.receive_lease_timeout(time)),
        };
        let Some(lease) = lease else { return };
        assert!(lease.len() <= SIZE);
        end_lease!(lease, watch, random);
    }

    /// Makes calls that only inspect the queue.
    fn look(&mut self, random: &mut Random) {
        let (queue, watch) = (self.queue, self.watch);
        match random.below(6) {
            0 => drop(watch.ask(|| queue.attributes())),
            1 => drop(watch.ask(|| queue.status())),
            2 => drop(watch.ask(|| queue.readiness())),
            3 => drop(watch.call(|| queue.peek(random.below(60) as usize))),
            4 => {
                let seen = watch.call(|| queue.messages(usize::MAX));
                let seen = seen.unwrap_or_default();
                assert!(seen.iter().all(|message| message.data.len() <= SIZE));
            }
            _ => drop(watch.call(|| queue.snapshot(&mut std::io::sink()))),
        }
    }

    /// Polls, and registers for a notification.
    fn look_after(&mut self, random: &mut Random) {
        let (queue, watch) = (self.queue, self.watch);
        match random.below(4) {
            0 => {
                if let Some(descriptor) = watch.call(|| queue.pollable()) {
                    look_at_doorbell(descriptor);
                }
            }
            1 => drop(watch.ask(|| queue.registered())),
            _ => {
                let Some(mut told) = watch.call(|| queue.notify_waiter()) else {
                    return;
                };
                watch.call(|| told.try_wait());
                let time = time(random);
                watch.timed(time, || told.wait_timeout(time));
                watch.let_go(|| drop(told));
            }
        }
    }
}

fn priority(random: &mut Random) -> u32 {
    match random.below(3) {
        0 => random.below(32_768) as u32,
        _ => random.below(3) as u32,
    }
}
