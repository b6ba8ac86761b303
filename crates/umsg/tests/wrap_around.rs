//! Counters that are about to wrap around. Each test writes a queue's counters into its file, at the offsets of docs/format.md, so that
//! they pass a power of two within the first messages. The queue then has to behave like a queue that counts from 0.
//!
//! Positions, tickets and message numbers have 64 bits, which no process uses up: a hundred million a second take 5,800 years.

mod support;

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, SystemTime};
use support::Random;
use support::place::Place;
use umsg::posix::{Notify, Queue, Received};
use umsg::ring::{Options, Post, Ring, Sender, Until};
use umsg::sysv;

/// The values that counters pass: the ends of u32 and u48, half of those, and the sign of i64.
const ENDS: [u64; 5] = [1 << 31, 1 << 32, 1 << 47, 1 << 48, 1 << 63];
/// The counters start this far before the values of [`ENDS`].
const BEFORE: u64 = 24;
/// The word of a lock whose owner died: the next operation repairs the queue.
const ORPHANED: u32 = 1 << 30;
const SOON: Duration = Duration::from_millis(1);

/// The file of a queue, of which a test reads and writes words.
struct Words(File);

impl Words {
    fn of(path: &Path) -> Words {
        let file = File::options().read(true).write(true).open(path);
        Words(file.unwrap())
    }

    fn u32(&self, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        self.0.read_exact_at(&mut bytes, offset).unwrap();
        u32::from_ne_bytes(bytes)
    }

    fn u64(&self, offset: u64) -> u64 {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, offset).unwrap();
        u64::from_ne_bytes(bytes)
    }

    fn set_u32(&self, offset: u64, value: u32) {
        self.0.write_all_at(&value.to_ne_bytes(), offset).unwrap();
    }

    fn set_u64(&self, offset: u64, value: u64) {
        self.0.write_all_at(&value.to_ne_bytes(), offset).unwrap();
    }
}

/// Offsets in the file of a POSIX queue or a ring: sections 1, 2 and 4 of docs/format.md.
mod posix_format {
    pub const BELL: u64 = 132;
    pub const RUN: u64 = 256;
    pub const RING_MASK: u64 = 384;
    pub const SLOTS: u64 = 388;
    pub const SENDER_LOCK: u64 = 512;
    pub const RECEIVER_LOCK: u64 = 768;
    /// The counters that `count_from` sets to the base: `sent`, `removed_seen`, `batch_end`, `removed`, `drained`, `sent_seen`; tickets of waiters,
    /// numbers of stored messages, tickets of holds.
    pub const AT_BASE: [u64; 9] = [536, 568, 584, 648, DRAINED, 824, 896, 904, 1056];
    /// The counters that are ahead of the base by the number of slots: `freed_seen`, `freed`.
    pub const AT_FREED: [u64; 2] = [560, 640];
    pub const DRAINED: u64 = 792;
    pub const NOTICES: u64 = 6784;
    pub const RING: u64 = 536_576;
}

/// Sets the counters of a new queue or ring as if this even number of messages had passed through it.
fn count_from(words: &Words, base: u64) {
    use posix_format::*;
    let (mask, slots) = (u64::from(words.u32(RING_MASK)), words.u32(SLOTS));
    for slot in 0..slots {
        let entry = base.wrapping_add(slot.into()) & mask;
        words.set_u32(RING + entry * 4, slot);
    }
    for offset in AT_BASE {
        words.set_u64(offset, base);
    }
    for offset in AT_FREED {
        words.set_u64(offset, base + u64::from(slots));
    }
    words.set_u64(RUN, base << 16);
    // The counters of turns: of a ring's doorbell, and of registrations for notifications.
    words.set_u32(BELL, 0u32.wrapping_sub(16));
    for notice in 0..8 {
        words.set_u32(NOTICES + notice * 64, 0u32.wrapping_sub(8));
    }
}

/// Two queues with the same messages: one counts from 0, the other from a high number. Both queues have to return the same results.
struct Twins<Q> {
    queues: [Q; 2],
    words: [Words; 2],
}

impl<Q> Twins<Q> {
    #[track_caller]
    fn same<T: PartialEq + std::fmt::Debug>(&self, what: &str, call: impl Fn(&Q) -> T) -> T {
        let [one, other] = self.queues.each_ref().map(call);
        assert_eq!(one, other, "{what}");
        one
    }
}

fn posix_twins(place: &Place, base: u64) -> Twins<Queue> {
    let queues = ["/one", "/other"].map(|name| place.create(name, 60, 200));
    let words = ["one", "other"].map(|name| Words::of(&place.path().join("mq").join(name)));
    count_from(&words[1], base);
    Twins { queues, words }
}

fn receive(queue: &Queue) -> Result<(Vec<u8>, u32), i32> {
    let mut buffer = vec![0; 200];
    match queue.receive_timeout(&mut buffer, SOON) {
        Ok(received) => Ok((buffer[..received.len].to_vec(), received.priority)),
        Err(error) => Err(error.errno()),
    }
}

fn receive_batch(queue: &Queue) -> Result<Vec<u8>, i32> {
    let (mut buffer, mut received) = ([0; 2000], [Received::default(); 7]);
    match queue.try_receive_batch(&mut buffer, &mut received) {
        Ok(count) => {
            let len: usize = received[..count].iter().map(|one| one.len).sum();
            Ok(buffer[..len].to_vec())
        }
        Err(error) => Err(error.errno()),
    }
}

/// Adds a lease of each queue to `held`. Fails unless both leases have the same message. If one call fails, the other must fail with the same error.
fn hold_both<L, E: std::fmt::Debug + PartialEq>(
    leases: [Result<L, E>; 2],
    bytes: impl Fn(&L) -> Vec<u8>,
    held: &mut Vec<[L; 2]>,
    what: &str,
) {
    match leases {
        [Ok(one), Ok(other)] => {
            assert_eq!(bytes(&one), bytes(&other), "{what}");
            held.push([one, other]);
        }
        [one, other] => assert_eq!(one.err(), other.err(), "{what}"),
    }
}

#[test]
fn a_queue_whose_counters_pass_their_ends_does_what_a_new_one_does() {
    for end in ENDS {
        let place = Place::new();
        let twins = posix_twins(&place, end - BEFORE);
        let mut random = Random::new(end);
        let mut held = Vec::new();
        for step in 0..600_u32 {
            let what = format!("end {end:#x}, step {step}");
            let message = vec![step as u8; random.below(200) as usize];
            let priority = random.below(3) as u32;
            match random.below(16) {
                0..5 => drop(twins.same(&what, |queue| {
                    queue
                        .send_timeout(&message, priority, SOON)
                        .map_err(|e| e.errno())
                })),
                5..9 => drop(twins.same(&what, receive)),
                9 => drop(twins.same(&what, |queue| {
                    let batch = [(&message[..], priority), (b"two", 0), (b"three", 2)];
                    queue.try_send_batch(&batch).map_err(|e| e.errno())
                })),
                10 => drop(twins.same(&what, receive_batch)),
                11 => {
                    let leases = twins
                        .queues
                        .each_ref()
                        .map(|queue| queue.try_receive_lease());
                    hold_both(leases, |lease| lease.to_vec(), &mut held, &what);
                }
                12 if !held.is_empty() => {
                    let pair = held.swap_remove(random.below(held.len() as u64) as usize);
                    match random.below(2) {
                        0 => pair.map(|lease| lease.give_back().unwrap()),
                        _ => pair.map(|lease| lease.acknowledge().unwrap()),
                    };
                }
                13 => drop(twins.same(&what, |queue| {
                    let mut room = queue.try_reserve(message.len()).map_err(|e| e.errno())?;
                    room.write_at(0, &message);
                    match priority {
                        0 => {
                            drop(room);
                            Ok(())
                        }
                        _ => room.commit(priority).map_err(|e| e.errno()),
                    }
                })),
                14 => {
                    for words in &twins.words {
                        words.set_u32(posix_format::SENDER_LOCK, ORPHANED);
                        words.set_u32(posix_format::RECEIVER_LOCK, ORPHANED);
                    }
                }
                _ => drop(twins.same(&what, |queue| {
                    let Ok(_registration) = queue.notify(Notify::signal(0)) else {
                        return false;
                    };
                    let _ = queue.try_send(b"told", 1);
                    _registration.is_armed()
                })),
            }
            twins.same(&what, |queue| queue.attributes().messages);
        }
        drop(held);
        while twins.same("the rest", receive).is_ok() {}
        let status = twins.queues[1].status();
        let repairs = status.statistics;
        assert!(repairs.sender_repairs > 3 && repairs.receiver_repairs > 3);
        assert!(!status.damaged);
        assert!(twins.words[1].u64(posix_format::DRAINED) > end);
    }
}

/// Sends a thousand messages in one thread while this thread receives them, through a queue with room for few.
fn stream(send: impl Fn(u32) + Send, mut receive: impl FnMut() -> u32) {
    std::thread::scope(|scope| {
        scope.spawn(move || (0..1000).for_each(send));
        for number in 0..1000 {
            assert_eq!(receive(), number);
        }
    });
}

#[test]
fn waiters_are_served_while_a_counter_passes_its_end() {
    for end in ENDS {
        let (place, queue) = Place::new().with_queue("/q", 3, 4);
        count_from(&Words::of(&place.path().join("mq/q")), end - BEFORE);
        let receive = || {
            let mut buffer = [0; 4];
            queue.receive(&mut buffer).unwrap();
            u32::from_ne_bytes(buffer)
        };
        stream(
            |number: u32| queue.send(&number.to_ne_bytes(), 0).unwrap(),
            receive,
        );
    }
}

/// Returns a named ring of few entries, and a sender of it.
fn ring(place: &Place) -> (Ring, Sender, Words) {
    let mut options = Options::new();
    options.entries(3).overflow(2);
    let ring = options.create_in(&place.namespace, "/r").unwrap();
    let sender = Sender::open_in(&place.namespace, "/r").unwrap();
    let words = Words::of(&place.path().join("ring/r"));
    (ring, sender, words)
}

#[test]
fn a_ring_whose_counters_pass_their_ends_wakes_and_is_woken() {
    for end in ENDS {
        let place = Place::new();
        let (mut ring, sender, words) = ring(&place);
        count_from(&words, end - BEFORE);
        ring.set_waiting(umsg::ring::Waiting::Blocking);
        stream(
            |number| sender.send(&Post::new(number.into())).unwrap(),
            || ring.receive().unwrap().user_data as u32,
        );
        // Waits for two messages, and receives both at once.
        for round in 0..20 {
            sender
                .send_batch(&[Post::new(round), Post::new(round)])
                .unwrap();
            let soon = Until::Time(SystemTime::now() + Duration::from_secs(20));
            assert_eq!(ring.wait(2, soon).unwrap(), 2);
            assert_eq!(
                ring.drain(|message| assert_eq!(message.user_data, round))
                    .unwrap(),
                2
            );
        }
        assert!(!ring.status().damaged);
    }
}

/// The offset of the counter of descriptors' tickets in the file of a ring: section 2 of docs/format.md, Ownership.
const DESCRIPTORS: u64 = 6692;

#[test]
fn tickets_of_descriptors_begin_again_and_are_never_negative() {
    let place = Place::new();
    let (mut ring, sender, words) = ring(&place);
    for last in [i32::MAX as u32, u32::MAX] {
        words.set_u32(DESCRIPTORS, last - 1);
        for _ in 0..4 {
            let file = File::open("/dev/null").unwrap();
            let ticket = sender.pass_fd(file.as_fd()).unwrap();
            assert!(ticket >= 0, "{ticket} would be an error in C");
            assert!(ring.take_fd(ticket).is_some());
            sender
                .send_fd(&Post::new(1), file.as_fd(), Until::Now)
                .unwrap();
            assert!(ring.try_receive().unwrap().descriptor.is_some());
        }
    }
}

/// Offsets in the file of a System V queue: sections 10 and 11 of docs/format.md.
mod sysv_format {
    pub const LOCK: u64 = 256;
    pub const SEQUENCE: u64 = 280;
    /// The counters of the tickets of waiters, and of leases.
    pub const TICKETS: [u64; 2] = [376, 672];
    /// The field `version` of the queue's rights.
    pub const RIGHTS: u64 = 132;
    /// The limits of the index and of the sequence number in `.next`.
    pub const INDICES: u32 = 32_768;
    pub const SEQUENCES: u32 = 65_535;
}

fn sysv_twins(place: &Place, base: u64) -> Twins<sysv::Queue> {
    let queues = [1, 2].map(|key| place.create_sysv(key));
    let words = [0, 1].map(|id| Words::of(&place.path().join(format!("msg/{id}"))));
    words[1].set_u64(sysv_format::SEQUENCE, base);
    for offset in sysv_format::TICKETS {
        words[1].set_u64(offset, base);
    }
    // Bit 31 of this word marks a queue that is closed for sending.
    words[1].set_u32(sysv_format::RIGHTS, (u32::MAX >> 1) - 3);
    Twins { queues, words }
}

#[test]
fn a_system_v_queue_whose_counters_pass_their_ends_does_what_a_new_one_does() {
    for end in ENDS {
        let place = Place::new();
        let twins = sysv_twins(&place, end - BEFORE);
        let mut random = Random::new(end);
        let mut held = Vec::new();
        for step in 0..600_u32 {
            let what = format!("end {end:#x}, step {step}");
            let message = vec![step as u8; random.below(600) as usize];
            let mtype = 1 + random.below(4) as i64;
            let want = match random.below(4) {
                0 => sysv::Want::Any,
                1 => sysv::Want::Except(mtype),
                2 => sysv::Want::Lowest(mtype),
                _ => sysv::Want::Exactly(mtype),
            };
            let receive = |queue: &sysv::Queue| {
                let mut buffer = vec![0; 600];
                let received = queue.receive_timeout(want, &mut buffer, SOON);
                received
                    .map(|got| (buffer[..got.len].to_vec(), got.mtype))
                    .map_err(|e| e.errno())
            };
            match random.below(12) {
                0..5 => drop(twins.same(&what, |queue| {
                    queue
                        .send_timeout(mtype, &message, SOON)
                        .map_err(|e| e.errno())
                })),
                5..8 => drop(twins.same(&what, receive)),
                8 => {
                    let leases = twins
                        .queues
                        .each_ref()
                        .map(|queue| queue.try_receive_lease(want));
                    hold_both(leases, |lease| lease.to_vec(), &mut held, &what);
                }
                9 if !held.is_empty() => {
                    let pair = held.swap_remove(random.below(held.len() as u64) as usize);
                    match random.below(2) {
                        0 => pair.map(|lease| lease.give_back().unwrap()),
                        _ => pair.map(|lease| lease.acknowledge().unwrap()),
                    };
                }
                10 => twins
                    .words
                    .iter()
                    .for_each(|words| words.set_u32(sysv_format::LOCK, ORPHANED)),
                _ => drop(twins.same(&what, |queue| {
                    let change = sysv::Change {
                        mode: Some(0o600),
                        ..sysv::Change::default()
                    };
                    queue.set(&change).is_ok()
                })),
            }
            twins.same(&what, |queue| queue.entry().unwrap().messages);
        }
        drop(held);
        let status = twins.queues[1].status().unwrap();
        assert!(!status.damaged && status.statistics.repairs > 3);
        assert!(twins.words[1].u64(sysv_format::SEQUENCE) > end);
    }
}

#[test]
fn identifiers_begin_again_and_leave_out_those_that_are_in_use() {
    let place = Place::new();
    let make = || {
        let mut options = sysv::OpenOptions::new();
        options.create(true).namespace(&place.namespace);
        options.open(sysv::PRIVATE).unwrap()
    };
    let note = |index: u32, sequence: u32| {
        let last = u64::from(sequence) * u64::from(sysv_format::INDICES) + u64::from(index);
        let user = rustix::process::geteuid().as_raw();
        let path = place.path().join(format!("own/{user}/next"));
        std::fs::write(path, (last + 1).to_le_bytes()).unwrap();
    };
    let kept = make();
    kept.send(1, b"kept").unwrap();
    assert_eq!(kept.id(), 0);
    note(61, sysv_format::SEQUENCES - 1);
    let last = make();
    let greatest = (sysv_format::SEQUENCES - 1) * sysv_format::INDICES;
    assert_eq!(last.id() as u32, greatest + 62);
    assert_eq!(make().id() as u32, greatest + 63);
    // The next index would be 0, which is in use.
    let first = make();
    assert_eq!(first.id(), 1);
    for queue in [kept, last, first] {
        let id = queue.id();
        let mut options = sysv::OpenOptions::new();
        let again = options.namespace(&place.namespace).open_id(id).unwrap();
        assert_eq!(again.id(), id);
        queue.remove().unwrap();
        assert!(again.is_removed());
    }
}
