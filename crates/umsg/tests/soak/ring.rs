//! The soak of rings: random violence to the owner of a ring and to processes that send to it, with and without waiting, in batches
//! and with descriptors.
//!
//! After each death, each owner gets each sender's messages whole, in order and without a gap; no process is stuck in a call; and
//! another owner gets the name.

use crate::chaos::harass::{
    self, CALM, Figures, Leaks, Part, Sleeper, Work, commotion, expect_prompt, how, rest,
    take_time, waiting, wakes_sleeper,
};
use crate::chaos::journal::{Deed, How, Journal};
use crate::chaos::points::Face;
use crate::chaos::poll_readable;
use crate::support::child::{Child, Exit};
use crate::support::place::Place;
use crate::support::shared::{Shared, Zeroed};
use crate::support::{Random, now};
use std::collections::HashMap;
use std::ffi::CStr;
use std::fmt::Display;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use umsg::ring::{Message, Options, Post, ReceiveError, Ring, RingError, SendError, Sender, Until};

/// The number of senders: the first roles send, and the last role owns the ring.
const SENDERS: usize = 4;
const NAME: &str = "/soak";

/// The maximum number of messages in a batch.
const BATCH: u64 = 16;

/// The counts of all processes of the soak.
struct Account {
    received: AtomicU64,
    sent: AtomicU64,
    owners: AtomicU64,
    repairs: AtomicU64,
}

// SAFETY: made of atomics.
unsafe impl Zeroed for Account {}

struct Soak {
    place: Place,
    /// The file that is passed on with messages.
    parcel: OwnedFd,
    journal: Shared<Journal>,
    account: Shared<Account>,
}

/// The sender of a process, the number of the next message of the process's handlers, and whether a handler is using the sender.
struct ForHandlers {
    sender: Option<Sender>,
    next: AtomicU64,
    busy: AtomicBool,
}

const PARCEL: &CStr = c"parcel";

/// Makes a file that [`is_parcel`] recognises by its name.
fn parcel() -> OwnedFd {
    // SAFETY: the string ends with a zero byte.
    let descriptor = unsafe { libc::memfd_create(PARCEL.as_ptr(), libc::MFD_CLOEXEC) };
    assert!(descriptor >= 0, "memfd_create");
    // SAFETY: the descriptor is new, and has no other owner.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

/// Returns whether a descriptor of this process, given by its number, belongs to a file of [`parcel`].
fn is_parcel(descriptor: impl Display) -> bool {
    let file = std::fs::read_link(format!("/proc/self/fd/{descriptor}"));
    file.is_ok_and(|file| file.to_string_lossy().contains(&*PARCEL.to_string_lossy()))
}

/// Returns the number of descriptors of this process that belong to files of [`parcel`].
fn parcels() -> usize {
    let entries = std::fs::read_dir("/proc/self/fd").expect("the descriptors");
    let names = entries.map(|entry| entry.expect("a descriptor").file_name());
    names.filter(|name| is_parcel(name.display())).count()
}

fn payload(number: u64) -> ([u8; 64], usize) {
    ([number as u8; 64], number as usize % 65)
}

fn post(number: u64) -> Post {
    let (bytes, len) = payload(number);
    Post::new(number).payload(&bytes[..len])
}

/// Returns whether a call has sent; None if the ring is gone.
fn is_sent(result: Result<(), SendError>) -> Option<bool> {
    match result {
        Ok(()) => Some(true),
        Err(SendError::Full | SendError::TimedOut | SendError::Interrupted) => Some(false),
        Err(SendError::OwnerDead | SendError::Closed) => None,
        // The owner has not taken the descriptors that were passed earlier.
        Err(SendError::TooManyDescriptors) => Some(false),
        Err(error) => panic!("{error}"),
    }
}

/// The record of the receiving end: the number of each sender's next message.
struct Receipts<'a> {
    soak: &'a Soak,
    next: HashMap<umsg::ring::Tag, u64>,
}

impl Receipts<'_> {
    fn note(&mut self, message: Message<'_>) {
        let expected = self.next.entry(message.tag).or_insert(0);
        let number = message.user_data;
        assert_eq!(number, *expected, "a message is missing, or comes twice");
        let (bytes, len) = payload(number);
        assert_eq!(message.payload, &bytes[..len]);
        if let Some(descriptor) = &message.descriptor {
            assert!(is_parcel(descriptor.as_raw_fd()), "another was passed on");
        }
        *expected += 1;
        self.soak.account.received.fetch_add(1, SeqCst);
    }
}

impl Soak {
    fn new() -> Soak {
        Soak {
            place: Place::new(),
            parcel: parcel(),
            journal: Shared::new(),
            account: Shared::new(),
        }
    }

    fn call<T>(&self, part: Part, how: How, call: impl FnOnce(Until) -> T) -> T {
        self.journal.begin(part.index(), how);
        let result = call(how.into());
        self.journal.end(part.index());
        result
    }

    fn goes_on(&self, part: Part) -> bool {
        self.journal.roles[part.index()].go.load(SeqCst) == 0
    }

    /// Makes the ring. Returns None while another owner lives.
    fn make(&self, random: &mut Random) -> Option<Ring> {
        let mut options = Options::new();
        // The ring needs room for a batch.
        options.entries(BATCH as u32 + random.below(64) as u32);
        options.overflow(random.below(2) as u32 * 2000);
        match options.create_in(&self.place.namespace, NAME) {
            Ok(ring) => Some(ring),
            Err(RingError::Owned(_)) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Owns the ring until this role must end, or for a random shorter time. Afterwards, no passed descriptor may be open in this process.
    fn own(&self, tool: &ForHandlers, part: Part, random: &mut Random) {
        if let Some(mut ring) = self.make(random) {
            self.receive(&mut ring, tool, part, random);
            drop(ring);
            let left = parcels();
            assert_eq!(left, 1, "descriptors that were passed on are left open");
        } else {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Receives in each of the possible ways, chosen at random.
    fn receive(&self, ring: &mut Ring, tool: &ForHandlers, part: Part, random: &mut Random) {
        self.account.owners.fetch_add(1, SeqCst);
        ring.set_waiting(waiting(random));
        let mut receipts = Receipts {
            soak: self,
            next: HashMap::new(),
        };
        let mut repairs = 0;
        while self.goes_on(part) && random.below(1000) != 0 {
            if random.below(30) == 0 {
                let more = ring.status().repairs - repairs;
                repairs += more;
                self.account.repairs.fetch_add(more.into(), SeqCst);
            }
            // The wait has a limit, because it is possible that no process sends a message.
            let how = How::Within(Duration::from_millis(random.below(20)));
            match random.below(6) {
                0 => drop(self.call(part, how, |until| ring.wait(1 + random.below(20), until))),
                1 => {
                    let readable = self.call(part, how, |_| poll_readable(ring.pollable(), how));
                    if readable {
                        self.journal.did(Deed::Polled);
                    }
                    while let Ok(message) = ring.try_receive() {
                        receipts.note(message);
                    }
                }
                2 => {
                    let note = |message: Message<'_>| receipts.note(message);
                    let drained = self.call(part, How::Try, |_| ring.drain(note));
                    drained.expect("a sound ring");
                }
                3 => rest(random, false),
                _ => match self.call(part, how, |until| ring.receive_until(until)) {
                    Ok(message) => receipts.note(message),
                    Err(
                        ReceiveError::Empty | ReceiveError::TimedOut | ReceiveError::Interrupted,
                    ) => {}
                    Err(error) => panic!("{error}"),
                },
            }
            rest(random, true);
            commotion(self, tool, part, random);
        }
    }

    /// Sends to a process that owns the ring, until the ring is gone.
    fn send(&self, tool: &ForHandlers, part: Part, random: &mut Random) {
        let Ok(sender) = Sender::open_in(&self.place.namespace, NAME) else {
            std::thread::sleep(Duration::from_millis(1));
            return;
        };
        let mut number = 0;
        while self.goes_on(part) {
            let Some(sent) = self.send_some(&sender, number, part, random) else {
                return;
            };
            number += sent;
            self.account.sent.fetch_add(sent, SeqCst);
            rest(random, sent != 0);
            take_time(random);
            commotion(self, tool, part, random);
        }
    }

    /// Returns the number of messages that were sent; None if the ring is gone.
    fn send_some(
        &self,
        sender: &Sender,
        number: u64,
        part: Part,
        random: &mut Random,
    ) -> Option<u64> {
        let count = match random.below(2) {
            0 => 1,
            _ => 2 + random.below(BATCH - 1),
        };
        let posts: Vec<Post> = (number..number + count).map(post).collect();
        let (bytes, len) = payload(number);
        let how = how(random);
        let sent = self.call(part, how, |until| match (count, random.below(8)) {
            (1, 0) => sender.send_fd(&posts[0], self.parcel.as_fd(), until),
            (1, _) => sender.send_long(&posts[0], &bytes[..len], until),
            _ => sender.send_batch_until(&posts, until),
        });
        is_sent(sent).map(|sent| if sent { count } else { 0 })
    }
}

impl Work for Soak {
    type Tool = ForHandlers;

    fn workers(&self) -> usize {
        SENDERS + 1
    }

    fn senders(&self) -> usize {
        SENDERS
    }

    fn threads(&self, role: usize) -> usize {
        // A ring has one receiver.
        if role < SENDERS { 4 } else { 1 }
    }

    fn face(&self) -> Face {
        Face::Ring
    }

    fn descriptors(&self, role: usize) -> usize {
        // The owner keeps each passed descriptor until it has received the message that names the descriptor.
        if role < SENDERS { 64 } else { 1100 }
    }

    fn journal(&self) -> &Journal {
        &self.journal
    }

    fn open(&self, _random: &mut Random) -> ForHandlers {
        ForHandlers {
            sender: Sender::open_in(&self.place.namespace, NAME).ok(),
            next: AtomicU64::new(0),
            busy: AtomicBool::new(false),
        }
    }

    fn play(&self, tool: &ForHandlers, part: Part, random: &mut Random) {
        while self.goes_on(part) {
            match part.role < SENDERS {
                true => self.send(tool, part, random),
                false => self.own(tool, part, random),
            }
        }
    }

    /// The child continues to use its parent's sender, which has another tag in the child.
    fn visit(&self, tool: &ForHandlers, _index: usize, random: &mut Random) {
        let Some(sender) = tool.sender.clone() else {
            return;
        };
        for number in 0..random.below(10) {
            let until = Until::After(Duration::from_micros(random.below(500)));
            if is_sent(sender.send_until(&post(number), until)) != Some(true) {
                return;
            }
        }
    }

    fn handle(&self, tool: &ForHandlers, _index: usize, _random: &mut Random) {
        let Some(sender) = &tool.sender else {
            return;
        };
        // A handler of another thread may be using the sender.
        if tool.busy.swap(true, SeqCst) {
            return;
        }
        let number = tool.next.load(SeqCst);
        if is_sent(sender.try_send(&post(number))) == Some(true) {
            tool.next.store(number + 1, SeqCst);
            self.account.sent.fetch_add(1, SeqCst);
        }
        tool.busy.store(false, SeqCst);
    }

    /// Reports no lack. The owner checks the ring repeatedly. So a process that waits for room waits at most until such a check, or until the owner's
    /// death.
    fn lacks(&self) -> Option<(bool, bool)> {
        Some((false, false))
    }

    fn describe(&self) -> String {
        match Sender::open_in(&self.place.namespace, NAME) {
            Ok(sender) => format!("{:?}", sender.status()),
            Err(error) => error.to_string(),
        }
    }

    fn judge(&self, round: &mut Figures, what: &str) {
        let owners = self.account.owners.load(SeqCst);
        round.sent = self.account.sent.load(SeqCst);
        round.received = self.account.received.load(SeqCst);
        round.repairs = self.account.repairs.load(SeqCst);
        assert!(
            owners > 0 && round.received > 100,
            "{what}: nothing was tried"
        );
    }

    /// The last owner has dropped the ring, or has died. Fails unless another process can take the name, and nothing is left.
    fn end(self, leaks: Leaks, what: &str) {
        let ring = Options::new()
            .entries(4)
            .overflow(0)
            .create_in(&self.place.namespace, NAME);
        let mut ring = ring.expect("the name");
        expect_promptness(&mut ring, what);
        drop(ring);
        drop((self.journal, self.account, self.parcel));
        leaks.expect_none(&[&self.place.path().join("ring")], what);
    }
}

/// Fails unless the receiver, a blocked sender and a poller wake up at once.
fn expect_promptness(ring: &mut Ring, what: &str) {
    let sender = ring.sender();
    // A poller sleeps only once and does not wake by itself. So its sender waits for a fixed time, not until the poller falls asleep.
    let mut turn = |polls: bool, receive: &mut dyn FnMut(&mut Ring)| {
        let sent = Shared::<AtomicU64>::new();
        let receiver = Sleeper::this_thread();
        let mut child = Child::run(|| {
            match polls {
                true => std::thread::sleep(Duration::from_millis(5)),
                false => receiver.expect_to_fall_asleep(),
            }
            sent.store(now(), SeqCst);
            i32::from(sender.try_send(&Post::new(1)).is_err())
        });
        receive(ring);
        let told = now();
        child.expect(Exit::Code(0), what);
        told.saturating_sub(sent.load(SeqCst))
    };
    expect_prompt(&format!("{what}: the receiver"), || {
        turn(false, &mut |ring| {
            drop(ring.receive_timeout(CALM).expect("a message"))
        })
    });
    expect_prompt(&format!("{what}: a poller"), || {
        turn(true, &mut |ring| {
            assert!(
                poll_readable(ring.pollable(), How::Within(CALM)),
                "{what}: not told"
            );
            ring.try_receive().expect("a message");
            assert!(ring.try_receive().is_err());
        })
    });
    expect_prompt(&format!("{what}: a blocked sender"), || {
        while sender.try_send(&Post::new(2)).is_ok() {}
        let wait = || sender.send(&Post::new(3)).expect("room");
        let is_waiting = || sender.status().blocked_senders == 1;
        let act = || drop(ring.try_receive().expect("a message"));
        wakes_sleeper(what, wait, is_waiting, act)
    });
}

#[test]
fn random_kills_of_senders_and_owners_lose_nothing_and_stop_no_process() {
    harass::soak("rings", 1, Soak::new);
}
