//! A real SIGKILL at every named point of a ring, and what must hold afterwards.
//!
//! A sender dies: what it had sent is there, in order and whole, and at most one more send of it; a bystander's messages are all
//! there; nobody is held up; a newcomer sends; and the ring takes exactly as many messages as it should. The owner dies: whoever
//! sends is told so, also who was waiting for room; another process makes a ring of that name, and nothing is left behind.

mod support;

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use support::child::{Child, Exit};
use support::place::Place;
use support::shared::{Shared, Zeroed};
use support::{turn, wait_until};
use umsg::crash::{self, POINTS};
use umsg::ring::{Options, Post, RecvError, Ring, SendError, Sender, Until, Waiting};

/// What a stall must stay below. The goal is 200 ms: a slice of 100 ms twice.
const STALL: Duration = Duration::from_secs(1);
/// Nothing in these tests takes as long.
const STUCK: Duration = Duration::from_secs(10);
/// How often a victim is killed at each point.
const ROUNDS: u32 = 5;
const NAME: &str = "/ring";

/// What the owner does while the victim sends.
#[derive(Clone, Copy, PartialEq)]
enum Owner {
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

struct Scenario {
    name: &'static str,
    entries: u32,
    overflow: u32,
    owner: Owner,
    victim: fn(&Sender, &Life),
    points: &'static [&'static str],
}

/// What a sender that may die leaves for its judge.
struct Life {
    /// Messages whose send returned, and that are being sent.
    sent: AtomicU64,
    sending: AtomicU64,
    /// The bystander is to end.
    end: AtomicU32,
    pid: AtomicU32,
}

// SAFETY: made of atomics.
unsafe impl Zeroed for Life {}
// SAFETY: made of atomics.
unsafe impl Zeroed for [Life; 2] {}

fn post(number: u64) -> Post {
    let payload = [number as u8; 64];
    Post::new(number).payload(&payload[..number as usize % 65])
}

impl Life {
    fn send(&self, count: u64, send: impl FnOnce(&[Post]) -> Result<(), SendError>) {
        let first = self.sent.load(SeqCst);
        let posts: Vec<Post> = (first..first + count).map(post).collect();
        self.sending.store(count, SeqCst);
        send(&posts).expect("a living owner");
        self.sent.store(first + count, SeqCst);
        self.sending.store(0, SeqCst);
    }
}

fn send_now_and_then(sender: &Sender, life: &Life) {
    for _ in 0..1500 {
        life.send(1, |posts| sender.send(&posts[0]));
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn send_batches(sender: &Sender, life: &Life) {
    for _ in 0..1500 {
        life.send(2, |posts| sender.send_batch(posts));
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn flood(sender: &Sender, life: &Life) {
    for _ in 0..3000 {
        life.send(1, |posts| sender.send(&posts[0]));
    }
}

const SENDERS: &[Scenario] = &[
    Scenario {
        name: "sends to a sleeper",
        entries: 16,
        overflow: 16,
        owner: Owner::Sleeps,
        victim: send_now_and_then,
        points: &[
            "SEND_FILLED",
            "SEND_PUBLISHED",
            "SEND_COUNTED",
            "SEND_UNSERVED",
            "RING_DUE",
            "RING_SILENCED",
        ],
    },
    Scenario {
        name: "sends to who waits for several",
        entries: 16,
        overflow: 16,
        owner: Owner::WaitsForThree,
        victim: send_now_and_then,
        points: &[
            "SEND_PUBLISHED",
            "SEND_UNSERVED",
            "RING_DUE",
            "RING_SILENCED",
        ],
    },
    Scenario {
        name: "sends to who polls",
        entries: 16,
        overflow: 16,
        owner: Owner::Polls,
        victim: send_now_and_then,
        points: &[
            "SEND_FILLED",
            "SEND_PUBLISHED",
            "SEND_COUNTED",
            "SEND_UNSERVED",
            "RING_DUE",
            "RING_PULLED",
        ],
    },
    Scenario {
        name: "sends batches",
        entries: 16,
        overflow: 16,
        owner: Owner::Sleeps,
        victim: send_batches,
        points: &[
            "BATCH_NOTED",
            "BATCH_STAMPED",
            "BATCH_PUBLISHED",
            "BATCH_COUNTED",
            "SEND_UNSERVED",
            "RING_DUE",
            "RING_SILENCED",
        ],
    },
    Scenario {
        name: "sends more than the entries",
        entries: 8,
        overflow: 4000,
        owner: Owner::Dawdles,
        victim: flood,
        points: &[
            "SEND_FILLED",
            "SEND_PUBLISHED",
            "GROW_LENT",
            "GROW_COPIED",
            "GROW_DOUBLED",
            "GROW_WRITTEN",
            "GROW_COUNTED",
        ],
    },
    Scenario {
        name: "sends to a full ring",
        entries: 4,
        overflow: 4,
        owner: Owner::IsSlow,
        victim: flood,
        points: &[
            "SEND_PUBLISHED",
            "PARK_SLOT_TAKEN",
            "PARK_FILLED",
            "WAIT_NODE_FILLED",
            "WAIT_LISTED",
            "WAIT_UNNAMED",
            "WAIT_NAMED",
            "WAIT_WOKEN",
        ],
    },
    Scenario {
        name: "passes descriptors",
        entries: 16,
        overflow: 16,
        owner: Owner::Polls,
        victim: |sender, life| {
            let file = std::fs::File::open("/dev/null").unwrap();
            for _ in 0..1500 {
                life.send(1, |posts| {
                    sender.send_fd(&posts[0], file.as_fd(), Until::Forever)
                });
                std::thread::sleep(Duration::from_millis(1));
            }
        },
        points: &["RING_PASSED", "SEND_FILLED", "RING_DUE"],
    },
];

/// The receiving end, and what came of whom.
struct Judge {
    ring: Ring,
    next: HashMap<u32, u64>,
    longest: Duration,
}

impl Judge {
    fn note(next: &mut HashMap<u32, u64>, pid: u32, number: u64, payload: &[u8]) {
        let expected = next.entry(pid).or_default();
        assert_eq!(number, *expected, "a message is missing, or comes twice");
        assert_eq!(payload, vec![number as u8; number as usize % 65]);
        *expected += 1;
    }

    /// Receives what there is, as the owner of a scenario does. It is to get something soon.
    fn receive(&mut self, owner: Owner) {
        let begun = Instant::now();
        match owner {
            Owner::Polls => self.poll(STUCK),
            Owner::WaitsForThree => drop(self.ring.wait(3, Until::After(STUCK)).expect("stuck")),
            Owner::IsSlow => std::thread::sleep(Duration::from_millis(1)),
            Owner::Sleeps | Owner::Dawdles => {}
        }
        if matches!(owner, Owner::Polls | Owner::WaitsForThree) {
            self.empty();
        } else {
            let message = self
                .ring
                .recv_timeout(STUCK)
                .expect("the ring stands still");
            let (tag, number) = (message.tag, message.user_data);
            Judge::note(&mut self.next, tag.pid, number, message.payload);
        }
        self.longest = self.longest.max(begun.elapsed());
    }

    fn poll(&mut self, patience: Duration) {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let descriptor = self.ring.pollable();
        let patience = Timespec {
            tv_sec: patience.as_secs() as i64,
            tv_nsec: 0,
        };
        let mut polled = [PollFd::new(&descriptor, PollFlags::IN)];
        let readable = poll(&mut polled, Some(&patience)).unwrap();
        assert_eq!(readable, 1, "the descriptor is never readable");
    }

    fn empty(&mut self) {
        let next = &mut self.next;
        self.ring
            .drain(|message| {
                Judge::note(next, message.tag.pid, message.user_data, message.payload);
            })
            .unwrap();
    }

    fn of(&self, pid: u32) -> u64 {
        self.next.get(&pid).copied().unwrap_or(0)
    }
}

/// Sends until it is told to end; waits for room where there is none.
fn stand_by(place: &Place, life: &Life) -> i32 {
    let sender = Sender::open_in(&place.namespace, NAME).unwrap();
    while life.end.load(SeqCst) == 0 {
        life.send(1, |posts| sender.send(&posts[0]));
        std::thread::sleep(Duration::from_millis(2));
    }
    0
}

/// One death of a sender. Answers the longest that the owner was kept waiting; none if the victim has ended without coming by.
fn kill_a_sender(scenario: &Scenario, point: &str, nth: u32) -> Option<Duration> {
    let what = format!("{} / {point} {nth}", scenario.name);
    let place = Place::new();
    let lives = Shared::<[Life; 2]>::new();
    let [victims, bystanders] = &*lives;
    let mut options = Options::new();
    options
        .entries(scenario.entries)
        .overflow(scenario.overflow);
    let ring = options.create_in(&place.namespace, NAME).unwrap();
    ring.set_waiting(Waiting::Blocking);
    let mut judge = Judge {
        ring,
        next: HashMap::new(),
        longest: Duration::ZERO,
    };
    if scenario.owner == Owner::Polls {
        judge.ring.pollable();
    }
    let mut bystander = Child::run(|| stand_by(&place, bystanders));
    let mut victim = Child::run(|| {
        let sender = Sender::open_in(&place.namespace, NAME).unwrap();
        crash::arm(point, nth);
        (scenario.victim)(&sender, victims);
        0
    });
    let end = Instant::now() + STUCK;
    while victim.wait(Duration::ZERO).is_none() {
        assert!(Instant::now() < end, "{what}: the victim is stuck");
        match scenario.owner {
            Owner::Dawdles => std::thread::sleep(Duration::from_millis(1)),
            owner => judge.receive(owner),
        }
    }
    let died = victim.wait(STUCK) == Some(Exit::Signal(libc::SIGKILL));
    if !died {
        // On a busy machine the owner may find each message while it gives way, and never sleep.
        victim.expect(Exit::Code(0), &what);
    }
    // The others go on: what the bystander sends from now on comes.
    let enough = bystanders.sent.load(SeqCst) + 5;
    while judge.of(bystander.pid() as u32) < enough {
        judge.receive(scenario.owner);
    }
    bystanders.end.store(1, SeqCst);
    assert!(
        wait_until(STUCK, || {
            judge.empty();
            bystander.wait(Duration::ZERO).is_some()
        }),
        "{what}: the bystander is stuck"
    );
    bystander.expect(Exit::Code(0), &what);
    use_the_ring(&place, &mut judge, &what);
    // Also what the dead had sent and was not counted is there once somebody has sent.
    assert_eq!(
        judge.of(bystander.pid() as u32),
        bystanders.sent.load(SeqCst),
        "{what}"
    );
    let (sent, sending) = (victims.sent.load(SeqCst), victims.sending.load(SeqCst));
    let received = judge.of(victim.pid() as u32);
    assert!(
        received == sent || received == sent + sending,
        "{what}: {received} received of {sent} sent and {sending} begun"
    );
    check_capacity(&mut judge.ring, scenario, &what);
    died.then_some(judge.longest)
}

/// A newcomer finds the ring and sends.
fn use_the_ring(place: &Place, judge: &mut Judge, what: &str) {
    let life = Shared::<[Life; 2]>::new();
    let mut newcomer = Child::run(|| {
        let sender = Sender::open_in(&place.namespace, NAME).unwrap();
        (0..5).for_each(|_| life[0].send(1, |posts| sender.send(&posts[0])));
        0
    });
    newcomer.expect(Exit::Code(0), what);
    judge.empty();
    assert_eq!(judge.of(newcomer.pid() as u32), 5, "{what}");
}

fn check_capacity(ring: &mut Ring, scenario: &Scenario, what: &str) {
    let most = (scenario.entries + scenario.overflow) as usize;
    let sender = ring.sender();
    for _ in 0..2 {
        let fit = (0..=most)
            .take_while(|_| sender.try_send(&Post::new(1)).is_ok())
            .count();
        assert_eq!(fit, most, "{what}");
        assert_eq!(ring.drain(|_| ()).unwrap(), most as u64, "{what}");
    }
}

fn kill_senders(names: &[&str]) {
    let _turn = turn();
    let scenarios = SENDERS
        .iter()
        .filter(|scenario| names.contains(&scenario.name));
    for scenario in scenarios {
        for point in scenario.points {
            let stalls = (0..rounds()).filter_map(|round| {
                let nth = match *point {
                    // Once in this ring's life.
                    point if point.starts_with("GROW") => 1,
                    _ => 1 + round * 3 % 7,
                };
                kill_a_sender(scenario, point, nth)
            });
            let Some(longest) = stalls.max() else {
                panic!("nobody who {} dies at {point}", scenario.name);
            };
            eprintln!("{} / {point}: stalled {longest:.1?} at most", scenario.name);
            assert!(longest < STALL, "{} / {point}: {longest:?}", scenario.name);
        }
    }
}

/// `UMSG_CRASH_ROUNDS` asks for more or fewer.
fn rounds() -> u32 {
    let asked = std::env::var("UMSG_CRASH_ROUNDS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(ROUNDS)
}

#[test]
fn a_sender_that_is_killed_at_any_point_leaves_a_whole_message_or_none_and_stops_nobody() {
    kill_senders(&[
        "sends to a sleeper",
        "sends to who waits for several",
        "sends batches",
    ]);
}

#[test]
fn a_sender_that_is_killed_keeps_nothing_from_who_polls() {
    kill_senders(&["sends to who polls", "passes descriptors"]);
}

#[test]
fn a_sender_that_is_killed_while_a_ring_overflows_or_is_full_loses_no_room() {
    kill_senders(&["sends more than the entries", "sends to a full ring"]);
}

/// Where the owner dies, and what it does.
struct Reign {
    point: &'static str,
    nth: u32,
    reign: fn(&Place),
    /// A dead owner's ring is there before.
    after_another: bool,
}

const REIGN: Reign = Reign {
    point: "",
    nth: 1,
    reign: |_| (),
    after_another: false,
};

fn create(place: &Place) -> Ring {
    let mut options = Options::new();
    options.entries(2).overflow(2).disabled(true);
    options.create_in(&place.namespace, NAME).unwrap()
}

/// Receives a message each millisecond.
fn reign(place: &Place) {
    let mut ring = create(place);
    ring.enable();
    loop {
        let _ = ring.recv();
        std::thread::sleep(Duration::from_millis(1));
    }
}

const OWNERS: &[Reign] = &[
    Reign {
        point: "RING_NAMED",
        reign: |place| drop(create(place)),
        ..REIGN
    },
    Reign {
        point: "RING_MADE",
        reign: |place| drop(create(place)),
        ..REIGN
    },
    Reign {
        point: "RING_CLEARED",
        reign: |place| drop(create(place)),
        after_another: true,
        ..REIGN
    },
    Reign {
        point: "RING_ENABLED",
        reign,
        ..REIGN
    },
    Reign {
        point: "RECEIVE_COPIED",
        nth: 20,
        reign,
        ..REIGN
    },
    Reign {
        point: "RECEIVE_TAKEN",
        nth: 1,
        reign,
        ..REIGN
    },
    Reign {
        point: "RECEIVE_FREED",
        nth: 20,
        reign,
        ..REIGN
    },
    Reign {
        point: "RECEIVE_ADMITTED",
        nth: 20,
        reign,
        ..REIGN
    },
    Reign {
        point: "ADMIT_ACCEPTED",
        nth: 5,
        reign,
        ..REIGN
    },
    Reign {
        point: "RING_ARMED",
        reign: |place| {
            let mut ring = create(place);
            ring.set_waiting(Waiting::Blocking);
            let _ = ring.wait(1, Until::Forever);
        },
        ..REIGN
    },
    Reign {
        point: "RING_CLOSED",
        reign: |place| {
            let ring = create(place);
            ring.enable();
            std::thread::sleep(Duration::from_millis(20));
            drop(ring);
        },
        ..REIGN
    },
    Reign {
        point: "RING_UNHUNG",
        reign: |place| {
            let ring = create(place);
            ring.enable();
            std::thread::sleep(Duration::from_millis(20));
            drop(ring);
        },
        ..REIGN
    },
];

/// Sends for ever, waiting for room; ends when it is told that nobody receives.
fn send_until_refused(place: &Place, in_batches: bool) -> i32 {
    let opened = wait_until(STUCK, || Sender::open_in(&place.namespace, NAME).is_ok());
    if !opened {
        return 1;
    }
    let Ok(sender) = Sender::open_in(&place.namespace, NAME) else {
        return 0;
    };
    loop {
        let posts = [post(1), post(2)];
        let sent = match in_batches {
            true => sender.send_batch(&posts),
            false => sender.send(&posts[0]),
        };
        match sent {
            Ok(()) => {}
            Err(SendError::Disabled) => std::thread::sleep(Duration::from_micros(100)),
            Err(SendError::OwnerDead | SendError::Closed) => return 0,
            Err(error) => panic!("{error}"),
        }
    }
}

/// What is in the rings' directory.
fn left(place: &Place) -> usize {
    std::fs::read_dir(place.path().join("ring"))
        .unwrap()
        .count()
}

fn kill_an_owner(reign: &Reign) {
    let place = Place::new();
    let point = reign.point;
    if reign.after_another {
        let mut first = Child::run(|| {
            std::mem::forget(create(&place));
            0
        });
        first.expect(Exit::Code(0), point);
    }
    let mut senders = [false, false, true]
        .map(|in_batches| Child::run(|| send_until_refused(&place, in_batches)));
    let mut owner = Child::run(|| {
        crash::arm(point, reign.nth);
        (reign.reign)(&place);
        0
    });
    owner.expect(Exit::Signal(libc::SIGKILL), point);
    let dead = Instant::now();
    for sender in &mut senders {
        sender.expect(Exit::Code(0), point);
    }
    eprintln!("owner / {point}: senders knew after {:.1?}", dead.elapsed());
    assert!(dead.elapsed() < STALL, "{point}: senders are not told");
    // Another process makes a ring of that name, and it works.
    let mut ring = Options::new().create_in(&place.namespace, NAME).unwrap();
    let sender = Sender::open_in(&place.namespace, NAME).unwrap();
    let file = std::fs::File::open("/dev/null").unwrap();
    sender
        .send_fd(&Post::new(7), file.as_fd(), Until::Now)
        .unwrap();
    let message = ring.try_recv().unwrap();
    assert_eq!((message.user_data, message.descriptor.is_some()), (7, true));
    assert_eq!(left(&place), 2, "{point}: a name and a doorbell");
    drop(ring);
    assert_eq!(left(&place), 0, "{point}: something is left behind");
}

#[test]
fn an_owner_that_is_killed_at_any_point_is_missed_by_its_senders_and_replaced() {
    let _turn = turn();
    for reign in OWNERS {
        kill_an_owner(reign);
    }
}

#[test]
fn of_many_that_find_an_owner_dead_one_gets_the_name_and_keeps_it() {
    let _turn = turn();
    let place = Place::new();
    for _ in 0..20 {
        let mut first = Child::run(|| {
            std::mem::forget(create(&place));
            0
        });
        first.expect(Exit::Code(0), "the first owner");
        let go = Shared::<[Life; 2]>::new();
        let mut heirs: Vec<Child> = (0..4)
            .map(|_| {
                Child::run(|| {
                    while go[0].end.load(SeqCst) == 0 {
                        std::hint::spin_loop();
                    }
                    match Options::new().create_in(&place.namespace, NAME) {
                        Ok(ring) => {
                            go[0].pid.store(std::process::id(), SeqCst);
                            go[0].sent.fetch_add(1, SeqCst);
                            std::mem::forget(ring);
                            loop {
                                std::thread::sleep(STUCK);
                            }
                        }
                        Err(_) => 0,
                    }
                })
            })
            .collect();
        go[0].end.store(1, SeqCst);
        let ended = |heirs: &mut Vec<Child>| {
            let ends = heirs.iter_mut().map(|heir| heir.wait(Duration::ZERO));
            ends.filter(|end| end.is_some()).count()
        };
        assert!(
            wait_until(STUCK, || ended(&mut heirs) == 3),
            "several heirs"
        );
        assert!(
            wait_until(STUCK, || go[0].sent.load(SeqCst) == 1),
            "no heir"
        );
        let ring = Sender::open_in(&place.namespace, NAME).unwrap();
        assert_eq!(ring.status().owner, go[0].pid.load(SeqCst));
    }
}

#[test]
fn every_point_of_a_ring_is_killed_at() {
    let senders = SENDERS.iter().flat_map(|scenario| scenario.points).copied();
    let killed: Vec<&str> = senders
        .chain(OWNERS.iter().map(|reign| reign.point))
        .collect();
    for (_, name, what) in POINTS {
        let is_ours = name.starts_with("RING_");
        assert!(
            !is_ours || killed.contains(name),
            "nobody dies at {name} ({what})"
        );
    }
    for name in killed {
        assert!(
            POINTS.iter().any(|(_, known, _)| *known == name),
            "there is no point {name}"
        );
    }
}

#[test]
fn a_descriptor_whose_sender_died_before_its_message_is_in_nobodys_way() {
    let _turn = turn();
    let place = Place::new();
    let mut ring = Options::new().create_in(&place.namespace, NAME).unwrap();
    let file = std::fs::File::open("/dev/null").unwrap();
    let mut victim = Child::run(|| {
        let sender = Sender::open_in(&place.namespace, NAME).unwrap();
        crash::arm("RING_PASSED", 1);
        let _ = sender.send_fd(&Post::new(1), file.as_fd(), Until::Now);
        0
    });
    victim.expect(Exit::Signal(libc::SIGKILL), "the sender");
    assert_eq!(ring.try_recv().unwrap_err(), RecvError::Empty);
    let sender = ring.sender();
    sender
        .send_fd(&Post::new(2), file.as_fd(), Until::Now)
        .unwrap();
    let message = ring.try_recv().unwrap();
    assert_eq!((message.user_data, message.descriptor.is_some()), (2, true));
}
