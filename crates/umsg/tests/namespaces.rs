//! Processes of several PID and time namespaces that use one queue, with equal thread ids.
//!
//! The process of the test uses no queue itself. So the home of a forked child is the set of namespaces in which it first uses a queue, as for a
//! program in a container. If that child forks a process into other namespaces, that process is in foreign namespaces.

mod support;

use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::child::{Child, Exit};
use support::place::Place;
use umsg_testkit::users::{NOBODY, become_user, is_root};

use support::shared::{Shared, Zeroed};
use support::wait_until;
use umsg::SegmentError;
use umsg::posix::{OpenError, OpenOptions, Queue, ReceiveError, SendError};
use umsg::sysv;

const STUCK: Duration = Duration::from_secs(60);
const PID: i32 = libc::CLONE_NEWPID;
const TIME: i32 = 0x80;
/// The maximum number of messages of a test.
const MESSAGES: usize = 1 << 20;

/// Runs `work` in new namespaces of these kinds, as their first process: its process and thread ids are 1.
fn apart(kinds: i32, work: impl FnOnce() -> i32) -> Child {
    Child::lead(|| {
        // SAFETY: the call changes only the namespaces of later children.
        assert_eq!(unsafe { libc::unshare(kinds) }, 0, "unshare");
        if kinds & TIME != 0 {
            std::fs::write("/proc/self/timens_offsets", "boottime 100000 0").unwrap();
        }
        let mut inner = Child::run(work);
        match inner.wait(STUCK) {
            Some(Exit::Code(code)) => code,
            _ => 1,
        }
    })
}

/// The fate of each message.
struct Ledger {
    next: AtomicU64,
    ready: AtomicU64,
    over: AtomicU64,
    /// The number of calls that failed with an error other than "full" or "empty".
    wrong: AtomicU64,
    sent: [AtomicU32; MESSAGES],
    received: [AtomicU32; MESSAGES],
}

// SAFETY: made of atomics, for which zeroes are a value.
unsafe impl Zeroed for Ledger {}

impl Ledger {
    fn note(&self, what: &[AtomicU32; MESSAGES], number: u32) {
        match what.get(number as usize) {
            Some(count) => count.fetch_add(1, Ordering::SeqCst),
            None => self.wrong.fetch_add(1, Ordering::SeqCst) as u32,
        };
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst) != 0 || self.next.load(Ordering::SeqCst) >= MESSAGES as u64
    }

    /// Sends and receives until the test is over.
    fn work(&self, queue: &dyn Both) -> i32 {
        while !self.is_over() {
            let number = self.next.fetch_add(1, Ordering::SeqCst) as u32;
            match queue.send(number) {
                Ok(true) => self.note(&self.sent, number),
                Ok(false) => {}
                Err(error) => self.complain(&error),
            }
            self.receive(queue);
        }
        0
    }

    fn receive(&self, queue: &dyn Both) -> bool {
        match queue.receive() {
            Ok(Some(number)) => {
                self.note(&self.received, number);
                return true;
            }
            Ok(None) => {}
            Err(error) => self.complain(&error),
        }
        false
    }

    fn complain(&self, error: &str) {
        if self.wrong.fetch_add(1, Ordering::SeqCst) < 5 {
            eprintln!("{error}");
        }
    }

    /// Fails if a message was received twice or corrupted, or if more messages were lost than killed receivers can have held.
    fn expect_in_order(&self, kills: usize) {
        let count = |all: &[AtomicU32; MESSAGES], most: u32| {
            let above = |one: &&AtomicU32| one.load(Ordering::SeqCst) > most;
            all.iter().filter(above).count()
        };
        assert_eq!(self.wrong.load(Ordering::SeqCst), 0, "failed calls");
        assert_eq!(count(&self.received, 1), 0, "received twice");
        let lost = self
            .sent
            .iter()
            .zip(&self.received)
            .filter(|(sent, received)| {
                sent.load(Ordering::SeqCst) != 0 && received.load(Ordering::SeqCst) == 0
            });
        let (lost, received) = (lost.count(), count(&self.received, 0));
        assert!(lost <= kills, "{lost} of {received} lost, {kills} kills");
        assert!(received > 0);
    }
}

/// A queue that carries numbers.
trait Both {
    /// Returns false if the queue is full, or a lock can't be taken.
    fn send(&self, number: u32) -> Result<bool, String>;

    /// Returns None if the queue is empty, or a lock can't be taken.
    fn receive(&self) -> Result<Option<u32>, String>;
}

/// A message repeats its number in each of its words; a damaged message does not.
type Message = [u8; 48];

fn message(number: u32) -> Message {
    let mut message = [0; size_of::<Message>()];
    let words = message.chunks_mut(4);
    words.for_each(|word| word.copy_from_slice(&number.to_le_bytes()));
    message
}

fn number_of(bytes: &Message, len: usize) -> Result<Option<u32>, String> {
    let number = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    match len == bytes.len() && *bytes == message(number) {
        true => Ok(Some(number)),
        false => Err(format!("a damaged message of {len} bytes: {bytes:?}")),
    }
}

impl Both for Queue {
    fn send(&self, number: u32) -> Result<bool, String> {
        match self.try_send(&message(number), number % 5) {
            Ok(()) => Ok(true),
            Err(SendError::Full) => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }

    fn receive(&self) -> Result<Option<u32>, String> {
        let mut bytes = message(0);
        match self.try_receive(&mut bytes) {
            Ok(received) => number_of(&bytes, received.len),
            Err(ReceiveError::Empty) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Both for sysv::Queue {
    fn send(&self, number: u32) -> Result<bool, String> {
        match self.try_send(1 + i64::from(number % 5), &message(number)) {
            Ok(()) => Ok(true),
            Err(sysv::SendError::Full) => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }

    fn receive(&self) -> Result<Option<u32>, String> {
        let mut bytes = message(0);
        match self.try_receive(sysv::Want::Any, &mut bytes) {
            Ok(received) => number_of(&bytes, received.len),
            Err(sysv::ReceiveError::NoMessage) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }
}

type Open = fn(&Place) -> Box<dyn Both>;

const KINDS: [Open; 2] = [
    |place| Box::new(place.create("/q", 10, size_of::<Message>() as u32)),
    |place| Box::new(place.create_sysv(1)),
];

const KILLS: usize = 60;

/// Kills workers one after the other while another worker with their thread id continues.
fn kill_workers(ledger: &Ledger, begin: impl Fn() -> Child) {
    let before = |number: u64| ledger.next.load(Ordering::SeqCst) > number;
    for kill in 0..KILLS {
        let mut victim = begin();
        let now = ledger.next.load(Ordering::SeqCst);
        assert!(wait_until(STUCK, || before(now + 200) || ledger.is_over()));
        std::thread::sleep(Duration::from_micros(kill as u64 * 137 % 5000));
        victim.kill();
    }
}

/// Receives the remaining messages, after all killed processes are known to be dead.
fn drain(ledger: &Ledger, queue: &dyn Both) -> i32 {
    let end = Instant::now() + Duration::from_secs(3);
    while ledger.receive(queue) || Instant::now() < end {
        std::thread::yield_now();
    }
    0
}

#[test]
fn containers_whose_threads_have_equal_ids_share_a_queue_while_some_are_killed() {
    umsg_testkit::needs_root!();
    for open in KINDS {
        share_and_kill(&Place::new(), open);
    }
}

#[test]
fn containers_share_a_queue_outside_of_tmpfs_while_some_are_killed() {
    umsg_testkit::needs_root!();
    for open in KINDS {
        share_and_kill(&on_disk(), open);
    }
}

/// Returns a namespace next to cargo's target directory, which is usually on a disk.
fn on_disk() -> Place {
    Place::below(env!("CARGO_TARGET_TMPDIR"))
}

fn share_and_kill(place: &Place, open: fn(&Place) -> Box<dyn Both>) {
    let ledger = Shared::<Ledger>::new();
    let worker = || {
        apart(PID, || {
            let queue = open(place);
            ledger.ready.fetch_add(1, Ordering::SeqCst);
            ledger.work(&*queue)
        })
    };
    let mut steady = worker();
    assert!(wait_until(STUCK, || ledger.ready.load(Ordering::SeqCst) != 0));
    kill_workers(&ledger, worker);
    ledger.over.store(1, Ordering::SeqCst);
    steady.expect(Exit::Code(0), "the one that was not killed");
    apart(PID, || drain(&ledger, &*open(place))).expect(Exit::Code(0), "the last");
    ledger.expect_in_order(KILLS);
}

#[test]
fn children_forked_into_other_pid_namespaces_share_an_inherited_queue_while_some_are_killed() {
    umsg_testkit::needs_root!();
    for open in KINDS {
        let (place, ledger) = (Place::new(), Shared::<Ledger>::new());
        let mut parent = Child::lead(|| {
            let queue = open(&place);
            let worker = || apart(PID, || ledger.work(&*queue));
            let mut steady = worker();
            // A process that stays in the home namespaces.
            let mut at_home = Child::run(|| ledger.work(&*queue));
            kill_workers(&ledger, worker);
            ledger.over.store(1, Ordering::SeqCst);
            steady.expect(Exit::Code(0), "the one that was not killed");
            at_home.expect(Exit::Code(0), "the one at home");
            drain(&ledger, &*queue)
        });
        assert_eq!(parent.wait(2 * STUCK), Some(Exit::Code(0)));
        ledger.expect_in_order(KILLS);
    }
}

/// A holder in namespaces of these kinds keeps a lease and is then killed. Meanwhile, another process repeatedly tries to receive the message.
fn a_lease_follows_its_holders_life(place: &Place, holder: i32, other: i32) {
    let ledger = Shared::<Ledger>::new();
    let mut holder = apart(holder, || {
        let queue = place.create("/q", 3, 8);
        queue.try_send(b"leased", 0).unwrap();
        let _lease = queue.try_receive_lease().unwrap();
        ledger.ready.store(1, Ordering::SeqCst);
        std::thread::sleep(STUCK);
        0
    });
    assert!(wait_until(STUCK, || ledger.ready.load(Ordering::SeqCst) == 1));
    let mut looker = apart(other, || {
        let queue = place.open("/q");
        let mut bytes = [0; 8];
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(300) {
            assert_eq!(queue.try_receive(&mut bytes), Err(ReceiveError::Empty));
        }
        ledger.ready.store(2, Ordering::SeqCst);
        let received = queue.receive_timeout(&mut bytes, Duration::from_secs(30));
        assert_eq!(received.map(|received| received.len), Ok(6));
        0
    });
    assert!(wait_until(STUCK, || ledger.ready.load(Ordering::SeqCst) == 2));
    holder.kill();
    assert_eq!(looker.wait(STUCK), Some(Exit::Code(0)));
}

#[test]
fn a_lease_comes_back_when_its_holder_in_another_pid_namespace_dies_and_not_before() {
    if is_root() {
        a_lease_follows_its_holders_life(&Place::new(), PID, PID);
        a_lease_follows_its_holders_life(&on_disk(), PID, PID);
    }
}

#[test]
fn a_lease_comes_back_when_its_holder_in_another_time_namespace_dies_and_not_before() {
    if is_root() && std::path::Path::new("/proc/self/timens_offsets").exists() {
        a_lease_follows_its_holders_life(&Place::new(), TIME, 0);
        a_lease_follows_its_holders_life(&Place::new(), 0, TIME);
    }
}

#[test]
fn a_queue_that_is_used_in_one_pid_namespace_has_no_files_for_lives() {
    let place = Place::new();
    let mut user = Child::run(|| {
        let queue = place.create("/q", 3, 8);
        queue.try_send(b"x", 0).unwrap();
        queue.try_receive(&mut [0; 8]).unwrap();
        0
    });
    user.expect(Exit::Code(0), "the user");
    assert_eq!(lives(&place), 0);
}

/// Returns the number of files for lives.
fn lives(place: &Place) -> usize {
    let names = std::fs::read_dir(place.path()).unwrap();
    let is_life = |name: &std::io::Result<std::fs::DirEntry>| {
        let name = name.as_ref().unwrap().file_name();
        name.to_string_lossy().starts_with(".life-")
    };
    names.filter(is_life).count()
}

/// Opens the queue and the System V queue as another user, which can't register a life, at home or in another PID namespace.
fn opens_as_another(place: &Place, is_expected: bool) -> i32 {
    become_user(NOBODY);
    let mut options = OpenOptions::new();
    options.read(true).write(true).namespace(&place.namespace);
    let opened = options.open("/q").map(drop);
    let sysv_queue = sysv::OpenOptions::new().namespace(&place.namespace).open(1);
    let is_refused = matches!(&opened, Err(OpenError::Segment(SegmentError::Unregistered { error, .. })) if error.raw_os_error() == Some(libc::EACCES))
        && matches!(
            &sysv_queue,
            Err(sysv::OpenError::Segment(SegmentError::Unregistered { .. }))
        );
    assert_eq!(
        (opened.is_ok() && sysv_queue.is_ok(), is_refused),
        (is_expected, !is_expected),
        "{opened:?}, {sysv_queue:?}"
    );
    // An inspection needs no life, and takes no lock.
    options.counted(false).open("/q").unwrap().status();
    0
}

#[test]
fn a_process_of_whose_death_others_would_not_learn_opens_no_queue_of_several_pid_namespaces() {
    umsg_testkit::needs_root!();
    let place = Place::new();
    let make = || {
        // SAFETY: the call changes a setting of this process, which is a child of the test.
        unsafe { libc::umask(0) };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).mode(0o666);
        options.namespace(&place.namespace).open("/q").unwrap();
        let mut options = sysv::OpenOptions::new();
        options.namespace(&place.namespace).create(true).mode(0o666);
        options.open(1).unwrap();
        0
    };
    Child::run(make).expect(Exit::Code(0), "the maker");
    for directory in ["", "mq", "msg"] {
        let path = place.path().join(directory);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut other = Child::run(|| opens_as_another(&place, true));
    other.expect(Exit::Code(0), "another user, before");
    apart(PID, || {
        let listed = umsg::posix::list(&place.namespace).unwrap();
        listed[0].queue.as_ref().unwrap().status();
        opens_as_another(&place, false)
    })
    .expect(
        Exit::Code(0),
        "another user in another PID namespace, which can't be registered",
    );
    let mut other = Child::run(|| opens_as_another(&place, true));
    other.expect(
        Exit::Code(0),
        "another user, at home, after looks and failures elsewhere",
    );
    let mut guest = apart(PID, || {
        place.open("/q").try_send(b"x", 0).unwrap();
        place.open_sysv(1).try_send(1, b"x").unwrap();
        i32::from(lives(&place) == 0)
    });
    guest.expect(Exit::Code(0), "root of another PID namespace");
    for mut other in [
        Child::run(|| opens_as_another(&place, false)),
        apart(PID, || opens_as_another(&place, false)),
    ] {
        other.expect(Exit::Code(0), "another user, after");
    }
}

#[test]
fn a_receiver_killed_while_it_waits_in_another_pid_namespace_stops_no_other() {
    umsg_testkit::needs_root!();
    let (place, ledger) = (Place::new(), Shared::<Ledger>::new());
    let receiver = || {
        apart(PID, || {
            let queue = place.create("/q", 3, 8);
            ledger.ready.fetch_add(1, Ordering::SeqCst);
            let received = queue.receive_timeout(&mut [0; 8], Duration::from_secs(30));
            i32::from(received.is_err())
        })
    };
    let mut living = receiver();
    for round in 0..20 {
        let mut victim = receiver();
        assert!(wait_until(STUCK, || ledger.ready.load(Ordering::SeqCst) == round + 2));
        std::thread::sleep(Duration::from_millis(5));
        victim.kill();
    }
    living.expect_alive();
    let mut sender = Child::run(|| {
        let queue = place.open("/q");
        queue.try_send(b"one", 0).unwrap();
        0
    });
    sender.expect(Exit::Code(0), "the sender");
    assert_eq!(living.wait(STUCK), Some(Exit::Code(0)));
}

#[test]
fn a_sender_learns_of_the_death_of_a_rings_receiver_in_another_pid_namespace_and_not_before() {
    umsg_testkit::needs_root!();
    let (place, ledger) = (Place::new(), Shared::<Ledger>::new());
    let mut receiver = apart(PID, || {
        let options = umsg::ring::Options::new();
        let mut ring = options.create_in(&place.namespace, "/r").unwrap();
        ledger.ready.store(1, Ordering::SeqCst);
        assert_eq!(ring.receive().unwrap().user_data, 7);
        ledger.ready.store(2, Ordering::SeqCst);
        std::thread::sleep(STUCK);
        0
    });
    assert!(wait_until(STUCK, || ledger.ready.load(Ordering::SeqCst) == 1));
    // The pause gives the owner of the ring time to fall asleep.
    std::thread::sleep(Duration::from_millis(50));
    let mut sender = apart(PID, || {
        let sender = umsg::ring::Sender::open_in(&place.namespace, "/r").unwrap();
        sender.try_send(&umsg::ring::Post::new(7)).unwrap();
        assert!(wait_until(STUCK, || ledger.ready.load(Ordering::SeqCst) == 2));
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(200) {
            sender.try_send(&umsg::ring::Post::new(8)).unwrap();
            std::thread::sleep(Duration::from_millis(15));
        }
        ledger.ready.store(3, Ordering::SeqCst);
        let is_told = || {
            let sent = sender.try_send(&umsg::ring::Post::new(9));
            matches!(sent, Err(umsg::ring::SendError::OwnerDead))
        };
        i32::from(!wait_until(Duration::from_secs(30), is_told))
    });
    assert!(wait_until(STUCK, || ledger.ready.load(Ordering::SeqCst) == 3));
    receiver.kill();
    assert_eq!(sender.wait(STUCK), Some(Exit::Code(0)));
}
