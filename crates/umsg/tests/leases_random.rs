//! Random uses of leases and reservations, checked by a plain model. After each step the queue's attributes and all queued
//! messages, in order of delivery, are those of the model.
//!
//! One test uses several handles in a process; another uses several processes, some of which are killed.

mod support;

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use support::child::Child;
use support::place::Place;
use support::{Random, wait_until};
use umsg::posix::{Lease, LeaseError, Queue, Reservation};

const STUCK: Duration = Duration::from_secs(10);
const MOST: usize = 12;
const LONGEST: u32 = 5000;
const HOLDERS: usize = 3;

/// A command to a lease's owner: the operation and three numbers.
type Command = [u32; 4];

const SEND: u32 = 0;
const RECEIVE: u32 = 1;
const RESERVE: u32 = 2;
const COMMIT: u32 = 3;
const CANCEL: u32 = 4;
const LEASE: u32 = 5;
const ACKNOWLEDGE: u32 = 6;
const GIVE_BACK: u32 = 7;
const EXPIRE: u32 = 8;
const OPERATIONS: u32 = 9;

/// The result of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Reply {
    /// True if the operation succeeded.
    done: bool,
    priority: u32,
    deliveries: u32,
    bytes: Vec<u8>,
}

fn done(done: bool) -> Reply {
    Reply {
        done,
        ..Reply::default()
    }
}

/// Returns the bytes of a message.
fn text(number: u32, len: u32) -> Vec<u8> {
    (0..len)
        .map(|index| (number * 31 + index * 7) as u8)
        .collect()
}

/// A user of the queue: a handle, and its leases and reservations.
struct Holder<'q> {
    queue: &'q Queue,
    leases: Vec<Lease<'q>>,
    rooms: Vec<Reservation<'q>>,
}

impl<'q> Holder<'q> {
    fn new(queue: &'q Queue) -> Holder<'q> {
        Holder {
            queue,
            leases: Vec::new(),
            rooms: Vec::new(),
        }
    }

    fn act(&mut self, [operation, a, b, c]: Command) -> Reply {
        match operation {
            SEND => done(self.queue.try_send(&text(a, c), b).is_ok()),
            RECEIVE => self.receive(),
            RESERVE => match self.queue.try_reserve(c as usize) {
                Ok(room) => {
                    self.rooms.push(room);
                    done(true)
                }
                Err(_) => done(false),
            },
            COMMIT => self.commit(a, b, c),
            CANCEL => {
                drop(self.rooms.swap_remove(a as usize));
                done(true)
            }
            LEASE => self.lease(),
            ACKNOWLEDGE => {
                let lease = self.leases.swap_remove(a as usize);
                done(lease.acknowledge().is_ok())
            }
            GIVE_BACK => {
                let lease = self.leases.swap_remove(a as usize);
                done(lease.give_back().is_ok())
            }
            _ => self.expire(a),
        }
    }

    fn receive(&self) -> Reply {
        let mut buffer = vec![0; LONGEST as usize];
        match self.queue.try_receive(&mut buffer) {
            Ok(received) => Reply {
                done: true,
                priority: received.priority,
                deliveries: 0,
                bytes: buffer[..received.len].to_vec(),
            },
            Err(_) => done(false),
        }
    }

    fn lease(&mut self) -> Reply {
        let Ok(lease) = self.queue.try_receive_lease() else {
            return done(false);
        };
        let reply = Reply {
            done: true,
            priority: lease.priority(),
            deliveries: lease.deliveries(),
            bytes: lease.to_vec(),
        };
        self.leases.push(lease);
        reply
    }

    /// Commits message `number` in the last reservation, with the length of the room, but at most `len`.
    fn commit(&mut self, number: u32, priority: u32, len: u32) -> Reply {
        let mut room = self.rooms.pop().expect("a reservation");
        let len = len.min(room.len() as u32);
        assert_eq!(room.write_at(0, &text(number, len)), len as usize);
        room.truncate(len as usize);
        assert_eq!(room.len(), len as usize);
        done(room.commit(priority).is_ok())
    }

    /// Makes a lease end by its time limit.
    fn expire(&mut self, which: u32) -> Reply {
        let lease = self.leases.swap_remove(which as usize);
        let leased = || self.queue.attributes().leased;
        let before = leased();
        lease.limit(Duration::ZERO).expect("a lease");
        assert!(wait_until(STUCK, || leased() < before), "held for good");
        done(lease.acknowledge() == Err(LeaseError::Ended))
    }
}

/// A message in the model.
#[derive(Clone, Debug)]
struct Message {
    priority: u32,
    /// The position of the message among all messages.
    sequence: u64,
    deliveries: u32,
    bytes: Vec<u8>,
}

/// A plain model of a queue.
#[derive(Default)]
struct Model {
    /// Sorted by priority, the highest last, and within a priority by sequence.
    queued: BTreeMap<(u32, std::cmp::Reverse<u64>), Message>,
    sequence: u64,
    /// The messages of each holder, and the lengths of its reservations.
    leases: Vec<Vec<Message>>,
    rooms: Vec<Vec<u32>>,
    /// The messages that came, with the reservations, and their bytes.
    came: [u64; 2],
    /// The messages that left, with the cancelled reservations, and their bytes.
    left: [u64; 2],
}

impl Model {
    fn new() -> Model {
        Model {
            leases: vec![Vec::new(); HOLDERS],
            rooms: vec![Vec::new(); HOLDERS],
            ..Model::default()
        }
    }

    fn held(&self) -> (usize, usize) {
        let leased = self.leases.iter().map(Vec::len).sum();
        (self.rooms.iter().map(Vec::len).sum(), leased)
    }

    fn has_room(&self) -> bool {
        let (reserved, leased) = self.held();
        self.queued.len() + reserved + leased < MOST
    }

    fn push(&mut self, message: Message) {
        let place = (message.priority, std::cmp::Reverse(message.sequence));
        self.queued.insert(place, message);
    }

    fn send(&mut self, number: u32, priority: u32, len: u32) {
        self.sequence += 1;
        self.came[1] += u64::from(len);
        self.push(Message {
            priority,
            sequence: self.sequence,
            deliveries: 0,
            bytes: text(number, len),
        });
    }

    /// Turns a command of random numbers into a command that this holder can carry out.
    fn possible(&self, who: usize, [operation, a, b, c]: Command) -> Command {
        let (leases, rooms) = (self.leases[who].len() as u32, self.rooms[who].len() as u32);
        let len = if c % 2 == 0 {
            c % 100
        } else {
            c % (LONGEST + 1)
        };
        match operation % OPERATIONS {
            COMMIT if rooms != 0 => [COMMIT, a % 1000, b % 3, len],
            CANCEL if rooms != 0 => [CANCEL, a % rooms, 0, 0],
            held @ (ACKNOWLEDGE | GIVE_BACK | EXPIRE) if leases != 0 => [held, a % leases, 0, 0],
            RECEIVE => [RECEIVE, 0, 0, 0],
            RESERVE => [RESERVE, 0, 0, len],
            LEASE | ACKNOWLEDGE | GIVE_BACK | EXPIRE => [LEASE, 0, 0, 0],
            _ => [SEND, a % 1000, b % 3, len],
        }
    }

    /// Executes a command on the model. Returns the result that the queue must give.
    fn act(&mut self, who: usize, [operation, a, b, c]: Command) -> Reply {
        match operation {
            SEND | RESERVE if !self.has_room() => done(false),
            SEND => {
                self.came[0] += 1;
                self.send(a, b, c);
                done(true)
            }
            RESERVE => {
                self.came[0] += 1;
                self.rooms[who].push(c);
                done(true)
            }
            COMMIT => {
                let room = self.rooms[who].pop().expect("a reservation");
                self.send(a, b, c.min(room));
                done(true)
            }
            CANCEL => {
                self.left[0] += 1;
                self.rooms[who].swap_remove(a as usize);
                done(true)
            }
            RECEIVE => self.take().map_or(done(false), |message| {
                self.remove(&message);
                answer(&message, 0)
            }),
            LEASE => {
                let Some(mut message) = self.take() else {
                    return done(false);
                };
                message.deliveries += 1;
                let reply = answer(&message, message.deliveries);
                self.leases[who].push(message);
                reply
            }
            _ => {
                let message = self.leases[who].swap_remove(a as usize);
                match operation {
                    ACKNOWLEDGE => self.remove(&message),
                    _ => self.push(message),
                }
                done(true)
            }
        }
    }

    fn take(&mut self) -> Option<Message> {
        Some(self.queued.pop_last()?.1)
    }

    fn remove(&mut self, message: &Message) {
        self.left[0] += 1;
        self.left[1] += message.bytes.len() as u64;
    }

    /// Applies the death of a holder: its messages come back, and its room is free.
    fn bury(&mut self, who: usize) {
        self.left[0] += std::mem::take(&mut self.rooms[who]).len() as u64;
        for message in std::mem::take(&mut self.leases[who]) {
            self.push(message);
        }
    }

    /// Returns whether the queue agrees with the model.
    fn agrees(&self, queue: &Queue) -> bool {
        let attributes = queue.attributes();
        let bytes: usize = self
            .queued
            .values()
            .map(|message| message.bytes.len())
            .sum();
        let counts = (attributes.messages, attributes.bytes as usize);
        let glance = queue.glance();
        counts == (self.queued.len(), bytes)
            && [glance.sent, glance.sent_bytes] == self.came
            && [glance.removed, glance.removed_bytes] == self.left
            && (attributes.reserved, attributes.leased) == self.held()
    }

    /// Fails unless the queue has exactly the messages of the model, in order of delivery.
    fn check_order(&self, queue: &Queue) {
        let seen = queue.messages(usize::MAX).expect("a look");
        let seen: Vec<_> = seen
            .iter()
            .map(|seen| (seen.priority, &seen.data))
            .collect();
        let queued = self.queued.values().rev();
        let expected: Vec<_> = queued
            .map(|message| (message.priority, &message.bytes))
            .collect();
        assert!(seen == expected, "another order, or other messages");
    }
}

fn answer(message: &Message, deliveries: u32) -> Reply {
    Reply {
        done: true,
        priority: message.priority,
        deliveries,
        bytes: message.bytes.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn several_handles_agree_with_a_plain_model(
        steps in prop::collection::vec((0..HOLDERS, any::<Command>()), 1..150),
    ) {
        let place = Place::new();
        let observer = place.create("/q", MOST as u32, LONGEST);
        let queues: Vec<Queue> = (0..HOLDERS).map(|_| place.open("/q")).collect();
        let mut holders: Vec<Holder<'_>> = queues.iter().map(Holder::new).collect();
        let mut model = Model::new();
        for (who, numbers) in steps {
            let command = model.possible(who, numbers);
            let reply = holders[who].act(command);
            prop_assert_eq!(reply, model.act(who, command), "{:?}", command);
            prop_assert!(model.agrees(&observer), "{:?}: {:?}", command, observer.attributes());
            model.check_order(&observer);
        }
        // The end of a process ends its leases and reservations.
        for (who, holder) in holders.drain(..).enumerate() {
            drop(holder);
            model.bury(who);
            prop_assert!(model.agrees(&observer), "{:?}", observer.attributes());
            model.check_order(&observer);
        }
    }
}

/// A holder in a separate process, and the connection to it.
struct Process {
    child: Child,
    line: UnixStream,
}

impl Process {
    fn start(place: &Place) -> Process {
        let (line, mut theirs) = UnixStream::pair().expect("a line");
        let child = Child::run(|| {
            let queue = place.open("/q");
            let mut holder = Holder::new(&queue);
            let mut command = [0; 16];
            while theirs.read_exact(&mut command).is_ok() {
                let reply = holder.act(decode(&command));
                theirs.write_all(&encode(&reply)).expect("a line");
            }
            0
        });
        Process { child, line }
    }

    fn act(&mut self, command: Command) -> Reply {
        let bytes: Vec<u8> = command.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.line.write_all(&bytes).expect("a line");
        let mut head = [0; 16];
        self.line.read_exact(&mut head).expect("an answer");
        let [done, priority, deliveries, len] = decode(&head);
        let mut bytes = vec![0; len as usize];
        self.line.read_exact(&mut bytes).expect("an answer");
        Reply {
            done: done == 1,
            priority,
            deliveries,
            bytes,
        }
    }
}

fn decode(bytes: &[u8; 16]) -> [u32; 4] {
    let mut words = bytes.chunks_exact(4);
    std::array::from_fn(|_| {
        let word = words.next().expect("four words");
        u32::from_le_bytes(word.try_into().expect("four bytes"))
    })
}

fn encode(reply: &Reply) -> Vec<u8> {
    let len = reply.bytes.len() as u32;
    let head = [u32::from(reply.done), reply.priority, reply.deliveries, len];
    let head = head.iter().flat_map(|word| word.to_le_bytes());
    head.chain(reply.bytes.iter().copied()).collect()
}

#[test]
fn several_processes_some_of_which_are_killed_agree_with_a_plain_model() {
    let mut kills = 0;
    for seed in 1..=12 {
        let mut random = Random::new(seed);
        let place = Place::new();
        let observer = place.create("/q", MOST as u32, LONGEST);
        let mut processes: Vec<Process> = (0..HOLDERS).map(|_| Process::start(&place)).collect();
        let mut model = Model::new();
        for step in 0..150 {
            let who = random.below(HOLDERS as u64) as usize;
            if random.below(20) == 0 {
                processes[who].child.kill();
                model.bury(who);
                kills += 1;
                assert!(
                    wait_until(STUCK, || model.agrees(&observer)),
                    "seed {seed}, step {step}: {:?} after a death",
                    observer.attributes()
                );
                model.check_order(&observer);
                processes[who] = Process::start(&place);
                continue;
            }
            let numbers = std::array::from_fn(|_| random.next() as u32);
            let command = model.possible(who, numbers);
            let reply = processes[who].act(command);
            let what = format!("seed {seed}, step {step}, {command:?}");
            assert_eq!(reply, model.act(who, command), "{what}");
            assert!(
                model.agrees(&observer),
                "{what}: {:?}",
                observer.attributes()
            );
            model.check_order(&observer);
        }
    }
    assert!(kills > 0);
}
