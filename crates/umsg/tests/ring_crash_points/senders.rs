//! Victims that send to a ring, and its owners.

use crate::support::shared::Zeroed;
use crate::{crash_points, setters};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use umsg::ring::{Post, SendError, Sender, Until};

/// The way in which the owner receives while the victim sends.
#[derive(Clone, Copy, PartialEq)]
pub enum Owner {
    /// Sleeps until there is a message.
    Sleeps,
    /// Waits for three messages at a time.
    WaitsForThree,
    /// Polls the ring's descriptor.
    Polls,
    /// Receives nothing until the victim is dead.
    Dawdles,
    /// Receives a message each millisecond, so that the ring is mostly full.
    IsSlow,
}

pub struct Scenario {
    pub name: &'static str,
    pub entries: u32,
    pub overflow: u32,
    /// The length of the longest payload, in bytes.
    pub longest: u32,
    pub owner: Owner,
    pub victim: fn(&Sender, &Life),
    pub points: &'static [&'static str],
}

impl Scenario {
    /// Returns a scenario with a ring of 16 entries, whose owner sleeps until there is a message.
    const fn new(name: &'static str, victim: fn(&Sender, &Life)) -> Scenario {
        Scenario {
            name,
            entries: 16,
            overflow: 16,
            longest: 64,
            owner: Owner::Sleeps,
            victim,
            points: &[],
        }
    }

    setters! {
        entries => entries: u32,
        overflow => overflow: u32,
        longest => longest: u32,
        owner => owner: Owner,
        dies_at => points: &'static [&'static str],
    }
}

/// The record of a sender that may die, for the judge.
pub struct Life {
    /// The number of messages whose send returned. The next field counts the messages of the send that is in progress.
    pub sent: AtomicU64,
    pub sending: AtomicU64,
    /// Set when the bystander must end.
    pub end: AtomicU32,
    pub pid: AtomicU32,
}

// SAFETY: made of atomics.
unsafe impl Zeroed for Life {}
// SAFETY: made of atomics.
unsafe impl Zeroed for Lives {}

/// The records of the victim, the bystander, and a process that repairs.
pub type Lives = [Life; 3];

pub fn post(number: u64) -> Post {
    let payload = [number as u8; 64];
    Post::new(number).payload(&payload[..number as usize % 65])
}

impl Life {
    /// Sends `count` messages by `send`, and records them. Fails the test if the send fails.
    pub fn send(&self, count: u64, send: impl FnOnce(&[Post]) -> Result<(), SendError>) {
        let first = self.sent.load(SeqCst);
        let posts: Vec<Post> = (first..first + count).map(post).collect();
        self.sending.store(count, SeqCst);
        send(&posts).expect("a living owner");
        self.sent.store(first + count, SeqCst);
        self.sending.store(0, SeqCst);
    }

    /// Sends one message if there is room, and records it.
    pub fn try_send(&self, sender: &Sender) {
        let first = self.sent.load(SeqCst);
        self.sending.store(1, SeqCst);
        let sent = sender.try_send(&post(first)).is_ok();
        self.sent.store(first + u64::from(sent), SeqCst);
        self.sending.store(0, SeqCst);
    }
}

pub fn send_now_and_then(sender: &Sender, life: &Life) {
    for _ in 0..1500 {
        life.send(1, |posts| sender.send(&posts[0]));
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub fn send_batches(sender: &Sender, life: &Life) {
    for _ in 0..1500 {
        life.send(2, |posts| sender.send_batch(posts));
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Sends payloads that do not fit into a cell.
pub fn send_long(sender: &Sender, life: &Life) {
    for _ in 0..100 {
        life.send(1, |posts| {
            let number = life.sent.load(SeqCst);
            let payload = vec![number as u8; LONG + number as usize % 65];
            sender.send_long(&posts[0], &payload, Until::Forever)
        });
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The number of bytes that a long payload has more than a short payload of the same message number.
pub const LONG: usize = 1000;

pub fn flood(sender: &Sender, life: &Life) {
    for _ in 0..3000 {
        life.send(1, |posts| sender.send(&posts[0]));
    }
}

pub const SENDERS: &[Scenario] = &[
    Scenario::new("sends to a sleeper", send_now_and_then).dies_at(crash_points![
        SEND_FILLED SEND_PUBLISHED SEND_COUNTED SEND_UNSERVED RING_DUE RING_SILENCED
    ]),
    Scenario::new(
        "sends to a receiver that waits for several",
        send_now_and_then,
    )
    .owner(Owner::WaitsForThree)
    .dies_at(crash_points![SEND_PUBLISHED SEND_UNSERVED RING_DUE RING_SILENCED]),
    Scenario::new("sends to a poller", send_now_and_then)
        .owner(Owner::Polls)
        .dies_at(crash_points![
            SEND_FILLED SEND_PUBLISHED SEND_COUNTED SEND_UNSERVED RING_DUE RING_PULLED
        ]),
    Scenario::new("sends batches", send_batches).dies_at(crash_points![
        BATCH_NOTED BATCH_STAMPED BATCH_PUBLISHED BATCH_COUNTED SEND_UNSERVED RING_DUE
        RING_SILENCED
    ]),
    Scenario::new("sends more than the entries", flood)
        .entries(8)
        .overflow(4000)
        .owner(Owner::Dawdles)
        .dies_at(crash_points![
            SEND_FILLED SEND_PUBLISHED GROW_LENT GROW_COPIED GROW_DOUBLED GROW_WRITTEN GROW_COUNTED
        ]),
    Scenario::new("sends to a full ring", flood)
        .entries(4)
        .overflow(4)
        .owner(Owner::IsSlow)
        .dies_at(crash_points![
            SEND_PUBLISHED PARK_SLOT_TAKEN PARK_FILLED WAIT_NODE_FILLED WAIT_LISTED WAIT_UNNAMED
            WAIT_NAMED WAIT_WOKEN
        ]),
    Scenario::new("passes descriptors", |sender, life| {
        let file = std::fs::File::open("/dev/null").unwrap();
        for _ in 0..1500 {
            life.send(1, |posts| {
                sender.send_fd(&posts[0], file.as_fd(), Until::Forever)
            });
            std::thread::sleep(Duration::from_millis(1));
        }
    })
    .owner(Owner::Polls)
    .dies_at(crash_points![RING_PASSED SEND_FILLED RING_DUE]),
    Scenario::new("sends long messages", send_long)
        .longest(2000)
        .dies_at(crash_points![ARENA_SPLIT ARENA_NAMED]),
];
