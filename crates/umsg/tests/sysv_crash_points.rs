//! A real SIGKILL at every named point of the engine of System V queues, and what must hold afterwards: as
//! tests/crash_points.rs does it for POSIX queues.
//!
//! A victim works on a queue until it dies at a point. A bystander has the queue open, and may be blocked in it. After the
//! death a newcomer opens the queue and uses it. Then it is judged: how long anybody stalled, whether every message
//! whose send returned was delivered once, whether they came in order of arrival, whether the counts are right, and
//! whether the queue takes exactly as many messages as it should, in the same memory, however often that was done to it.

mod support;

use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};
use support::child::{Child, Exit, let_calls_be_interrupted};
use support::clerk::Clerk;
use support::journal::{How, Journal, SHORTEST};
use support::place::Place;
use support::shared::Shared;
use support::{Random, milliseconds, now, turn, wait_until};
use umsg::crash::{self, POINTS};
use umsg::sysv::{Change, OpenError, Queue, ReceiveError, SendError, Waiting, Want};

/// Who takes part, as numbers of the journal.
const OBSERVER: usize = 0;
const BYSTANDER: usize = 1;
const VICTIM: usize = 2;
const NEWCOMER: usize = 3;

/// What a stall must stay below. The goal is 200 ms: a slice of 100 ms twice.
const STALL: Duration = Duration::from_secs(1);
/// Nothing in these tests takes as long.
const STUCK: Duration = Duration::from_secs(10);

/// How often a victim is killed at a point, within `PATIENCE`, but at least `LEAST` times.
const ROUNDS: u32 = 20;
const LEAST: u32 = 4;
const PATIENCE: Duration = Duration::from_millis(300);

/// The queue's key, and how many bytes it holds, and messages.
const KEY: i32 = 0x5e1f;
const QBYTES: usize = 16_384;

/// What a blocked receiver wants.
const WANTED: u16 = 3;

/// What the bystander does while the victim dies.
#[derive(Clone, Copy, PartialEq)]
enum Bystander {
    /// Has the queue open and goes on when the victim is dead.
    Idle,
    /// Receives messages of one type, and is blocked when the victim begins.
    Receives,
    /// Sends, and is blocked when the victim begins.
    Sends,
    /// The same with batches of two.
    SendsBatches,
}

/// What the observer does once the victim is blocked.
#[derive(Clone, Copy, PartialEq)]
enum Nudge {
    Nothing,
    Send,
    Receive,
}

struct Scenario {
    name: &'static str,
    prefill: fn(&mut Clerk<'_>),
    bystander: Bystander,
    victim: fn(&mut Clerk<'_>),
    nudge: Nudge,
    /// How often the victim passes each point at least.
    passes: u32,
    /// A queue is used for one round only: what happens once in its life.
    fresh: bool,
    /// Points after which the blocked bystander goes on before anybody else comes.
    alone: &'static [&'static str],
    points: &'static [&'static str],
}

const PLAIN: Scenario = Scenario {
    name: "",
    prefill: |_| (),
    bystander: Bystander::Idle,
    victim: |_| (),
    nudge: Nudge::Nothing,
    passes: 1,
    fresh: false,
    alone: &[],
    points: &[],
};

/// Any type but the one that is waited for, and any length: many fit into their cell, some need the arena, a few make it grow.
fn any(random: &mut Random) -> (u16, usize) {
    let mtype = match random.below(3) {
        0 => 1,
        1 => 4 + random.below(5) as u16,
        _ => 10 + random.below(30_000) as u16,
    };
    let len = match random.below(8) {
        0..4 => random.below(40) as usize,
        4..7 => 40 + random.below(200) as usize,
        _ => 300 + random.below(500) as usize,
    };
    (mtype, len)
}

fn random(clerk: &Clerk<'_>) -> Random {
    Random::new(clerk.journal.used() as u64 + 1)
}

fn send_mixed(clerk: &mut Clerk<'_>, count: usize) {
    let mut random = random(clerk);
    for _ in 0..count {
        let (mtype, len) = any(&mut random);
        clerk.send(How::Try, mtype, len).expect("room");
    }
}

fn send_batches(clerk: &mut Clerk<'_>, count: usize) {
    let mut random = random(clerk);
    for batch in 0..count {
        let mut messages = [(); 3].map(|()| any(&mut random));
        if batch % 4 < 2 {
            messages = messages.map(|(_, len)| (2, len));
        }
        let messages = &messages[batch % 2..];
        clerk.send_batch(How::Try, messages).expect("room");
    }
}

/// Leaves not a byte of room: 16 messages of 1,000 bytes, and short ones.
fn fill(clerk: &mut Clerk<'_>) {
    let mut mtypes = [1, 2, 5, 2000].into_iter().cycle();
    for len in [1000, SHORTEST] {
        while clerk.send(How::Try, mtypes.next().unwrap(), len).is_ok() {}
    }
}

/// Each receiver wants something else.
fn receive(clerk: &mut Clerk<'_>, count: usize) {
    let wants = [
        Want::Any,
        Want::Except(1),
        Want::Lowest(i64::MAX),
        Want::Exactly(1),
    ];
    for want in wants.into_iter().cycle().take(count) {
        match clerk.receive(How::Try, want) {
            Err(ReceiveError::NoMessage) => clerk.receive(How::Try, Want::Any),
            received => received,
        }
        .expect("a message");
    }
}

fn receive_batches(clerk: &mut Clerk<'_>, count: usize, most: usize) {
    for _ in 0..count {
        let received = clerk.receive_batch(How::Try, Want::Any, most);
        received.expect("a message");
    }
}

/// Leases what there is: acknowledges one, keeps one, returns one, and so on. What is kept is held until the end.
fn lease(clerk: &mut Clerk<'_>, rounds: usize) {
    let mut kept = Vec::new();
    for _ in 0..rounds {
        let done = clerk.lease(How::Try, Want::Any).expect("a message");
        kept.push(clerk.lease(How::Try, Want::Except(1)).expect("a message"));
        let other = clerk.lease(How::Try, Want::Any).expect("a message");
        clerk.acknowledge(done).expect("a lease");
        other.give_back().expect("a lease");
    }
}

/// A process that leases some messages, and ends without a word.
fn leave_leases(clerk: &mut Clerk<'_>) {
    let mut holder = Child::run(|| {
        let lease = || clerk.lease(How::Try, Want::Any).expect("a message");
        std::mem::forget([(); 4].map(|()| lease()));
        0
    });
    holder.expect(Exit::Code(0), "the holder");
}

/// A receiver that is given a message, and dies before it has taken it.
fn leave_offer(clerk: &mut Clerk<'_>) {
    let mut dead = Child::run(|| {
        crash::arm("MSG_TAKEN_UP", 1);
        let _ = clerk.receive(How::Block, Want::Exactly(9));
        0
    });
    let waits = wait_until(STUCK, || status(clerk.queue).blocked_receivers == 1);
    assert!(waits, "nobody waits for an offer");
    clerk.send(How::Try, 9, 60).expect("room");
    dead.expect(Exit::Signal(libc::SIGKILL), "who was offered a message");
    clerk.me().receiving.store(0, SeqCst);
}

fn status(queue: &Queue) -> umsg::sysv::Status {
    queue.status().expect("a status")
}

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "sends mixed messages",
        victim: |clerk| send_mixed(clerk, 20),
        passes: 20,
        points: &["MSG_FILLED", "MSG_SENT", "MSG_LINKED"],
        ..PLAIN
    },
    Scenario {
        name: "sends mixed messages into a queue that holds some",
        prefill: |clerk| send_mixed(clerk, 20),
        victim: |clerk| send_mixed(clerk, 20),
        passes: 20,
        points: &["MSG_FILLED", "MSG_SENT", "MSG_LINKED"],
        ..PLAIN
    },
    Scenario {
        name: "sends messages for which the arena grows",
        victim: |clerk| {
            for length in 0..5 {
                clerk.send(How::Try, 1, 3000 + length * 16).expect("room");
            }
        },
        passes: 4,
        fresh: true,
        points: &["ARENA_SPLIT", "ARENA_NAMED", "MSG_FILLED"],
        ..PLAIN
    },
    Scenario {
        name: "sends batches",
        victim: |clerk| send_batches(clerk, 12),
        passes: 12,
        points: &[
            "MSG_FILLED",
            "MSG_BATCH_FILLED",
            "MSG_BATCH_SENT",
            "MSG_LINKED",
        ],
        ..PLAIN
    },
    Scenario {
        name: "sends batches into a queue that holds messages",
        prefill: |clerk| send_mixed(clerk, 20),
        victim: |clerk| send_batches(clerk, 12),
        passes: 12,
        points: &["MSG_BATCH_FILLED", "MSG_BATCH_SENT", "MSG_LINKED"],
        ..PLAIN
    },
    Scenario {
        name: "sends to a waiting receiver",
        prefill: |clerk| send_mixed(clerk, 5),
        bystander: Bystander::Receives,
        victim: |clerk| {
            let _ = clerk.send(How::Try, WANTED, 90);
        },
        alone: &["MSG_SENT", "MSG_NOTED", "MSG_OFFERED"],
        points: &["MSG_FILLED", "MSG_SENT", "MSG_NOTED", "MSG_OFFERED"],
        ..PLAIN
    },
    Scenario {
        name: "sends to others while a receiver waits",
        bystander: Bystander::Receives,
        victim: |clerk| send_mixed(clerk, 10),
        passes: 10,
        points: &["MSG_FILLED", "MSG_SENT", "MSG_LINKED"],
        ..PLAIN
    },
    Scenario {
        name: "sends a batch of which a receiver waits for one",
        bystander: Bystander::Receives,
        victim: |clerk| {
            let batch = [(1, 20), (WANTED, 700), (WANTED, 10), (2, 0)];
            clerk.send_batch(How::Try, &batch).expect("room");
        },
        alone: &["MSG_BATCH_SENT", "MSG_LINKED", "MSG_NOTED", "MSG_OFFERED"],
        points: &[
            "MSG_BATCH_FILLED",
            "MSG_BATCH_SENT",
            "MSG_LINKED",
            "MSG_NOTED",
            "MSG_OFFERED",
        ],
        ..PLAIN
    },
    Scenario {
        name: "sends where somebody died with an offer",
        prefill: leave_offer,
        victim: |clerk| send_mixed(clerk, 1),
        points: &["MSG_PUT_BACK", "MSG_FILLED", "MSG_LINKED"],
        ..PLAIN
    },
    Scenario {
        name: "receives by type and in order of arrival",
        prefill: |clerk| send_mixed(clerk, 40),
        victim: |clerk| receive(clerk, 30),
        passes: 30,
        points: &["MSG_COPIED", "MSG_ENDED"],
        ..PLAIN
    },
    Scenario {
        name: "receives batches",
        prefill: |clerk| send_mixed(clerk, 40),
        victim: |clerk| receive_batches(clerk, 8, 3),
        passes: 24,
        points: &["MSG_ENDED"],
        ..PLAIN
    },
    Scenario {
        name: "receives from a full queue while a sender is blocked",
        prefill: fill,
        bystander: Bystander::Sends,
        victim: |clerk| receive(clerk, 6),
        alone: &["MSG_ENDED", "MSG_ADMITTED", "MSG_SENT", "MSG_LINKED"],
        points: &[
            "MSG_COPIED",
            "MSG_ENDED",
            "MSG_ADMITTED",
            "MSG_SENT",
            "MSG_LINKED",
        ],
        ..PLAIN
    },
    Scenario {
        name: "receives batches from a full queue while a batch is blocked",
        prefill: fill,
        bystander: Bystander::SendsBatches,
        victim: |clerk| receive_batches(clerk, 4, 3),
        alone: &["MSG_ENDED"],
        points: &["MSG_ENDED"],
        ..PLAIN
    },
    Scenario {
        name: "receives what the dead had leased",
        prefill: |clerk| {
            send_mixed(clerk, 4);
            leave_leases(clerk);
        },
        victim: |clerk| {
            // Somebody may have looked in this tick of the clock.
            let _ = clerk.receive(How::Within(STUCK), Want::Any);
            receive(clerk, 3);
        },
        passes: 3,
        points: &["MSG_RETURNED", "MSG_COPIED", "MSG_ENDED"],
        ..PLAIN
    },
    Scenario {
        name: "receives what another was offered and did not take",
        prefill: leave_offer,
        victim: |clerk| {
            let _ = clerk.receive(How::Try, Want::Exactly(9));
        },
        points: &["MSG_PUT_BACK", "MSG_COPIED", "MSG_ENDED"],
        ..PLAIN
    },
    Scenario {
        name: "leases",
        prefill: |clerk| send_mixed(clerk, 40),
        victim: |clerk| lease(clerk, 8),
        passes: 8,
        points: &["MSG_LEASED", "MSG_ACKNOWLEDGED", "MSG_RETURNED"],
        ..PLAIN
    },
    Scenario {
        name: "leases from a full queue while a sender is blocked",
        prefill: fill,
        bystander: Bystander::Sends,
        victim: |clerk| lease(clerk, 4),
        passes: 2,
        alone: &["MSG_ACKNOWLEDGED", "MSG_ADMITTED"],
        points: &[
            "MSG_LEASED",
            "MSG_ACKNOWLEDGED",
            "MSG_RETURNED",
            "MSG_ADMITTED",
        ],
        ..PLAIN
    },
    Scenario {
        name: "leases and gives back what another waits for",
        prefill: |clerk| send_mixed(clerk, 5),
        bystander: Bystander::Receives,
        victim: |clerk| {
            // More than the bystander takes meanwhile.
            clerk
                .send_batch(How::Try, &[(WANTED, 50); 30])
                .expect("room");
            if let Ok(lease) = clerk.lease(How::Try, Want::Exactly(WANTED.into())) {
                lease.give_back().expect("a lease");
            }
        },
        points: &["MSG_LEASED", "MSG_RETURNED"],
        ..PLAIN
    },
    Scenario {
        name: "is woken with a message to lease",
        victim: |clerk| {
            let lease = clerk
                .lease(How::Block, Want::Exactly(3))
                .expect("a message");
            clerk.acknowledge(lease).expect("a lease");
        },
        nudge: Nudge::Send,
        points: &["MSG_WOKEN", "MSG_LEASED", "MSG_ACKNOWLEDGED"],
        ..PLAIN
    },
    Scenario {
        name: "begins to wait for a message",
        victim: |clerk| {
            let _ = clerk.receive(How::Block, Want::Any);
        },
        points: &["MSG_SEATED", "MSG_LISTED", "MSG_NAMED"],
        ..PLAIN
    },
    Scenario {
        name: "begins to wait for a message behind another receiver",
        prefill: |clerk| send_mixed(clerk, 5),
        bystander: Bystander::Receives,
        victim: |clerk| {
            let _ = clerk.receive(How::Block, Want::Exactly(WANTED.into()));
        },
        points: &["MSG_SEATED", "MSG_LISTED", "MSG_NAMED"],
        ..PLAIN
    },
    Scenario {
        name: "is woken with a message",
        prefill: |clerk| send_mixed(clerk, 5),
        victim: |clerk| {
            let _ = clerk.receive(How::Block, Want::Exactly(WANTED.into()));
            let _ = clerk.send(How::Try, 2, 16);
        },
        nudge: Nudge::Send,
        points: &["MSG_WOKEN", "MSG_TAKEN_UP", "MSG_REAPED"],
        ..PLAIN
    },
    Scenario {
        name: "waits for a message until its time is over",
        victim: |clerk| {
            let _ = clerk.receive(How::Within(Duration::from_millis(20)), Want::Any);
        },
        points: &["MSG_LISTED", "MSG_NAMED", "MSG_WOKEN"],
        ..PLAIN
    },
    Scenario {
        name: "waits for a message until its time is over, behind another receiver",
        bystander: Bystander::Receives,
        victim: |clerk| {
            let want = Want::Exactly(WANTED.into());
            let _ = clerk.receive(How::Within(Duration::from_millis(20)), want);
        },
        points: &["MSG_WOKEN"],
        ..PLAIN
    },
    Scenario {
        name: "begins to wait for room",
        prefill: fill,
        victim: |clerk| {
            let _ = clerk.send(How::Block, 2, 200);
        },
        points: &[
            "MSG_FILLED",
            "MSG_PARKED",
            "MSG_SEATED",
            "MSG_LISTED",
            "MSG_NAMED",
        ],
        ..PLAIN
    },
    Scenario {
        name: "begins to wait for room behind another sender, with a message that needs a new block",
        prefill: fill,
        bystander: Bystander::Sends,
        victim: |clerk| {
            let len = 1000 + 100 * (clerk.journal.used() % 20);
            let _ = clerk.send(How::Block, 2, len);
        },
        points: &[
            "MSG_FILLED",
            "MSG_PARKED",
            "MSG_SEATED",
            "MSG_LISTED",
            "MSG_NAMED",
        ],
        ..PLAIN
    },
    Scenario {
        name: "is woken with room",
        prefill: fill,
        victim: |clerk| {
            let _ = clerk.send(How::Block, 2, 200);
        },
        nudge: Nudge::Receive,
        points: &["MSG_WOKEN"],
        ..PLAIN
    },
    Scenario {
        name: "waits for room until its time is over",
        prefill: fill,
        victim: |clerk| {
            let _ = clerk.send(How::Within(Duration::from_millis(20)), 2, 200);
        },
        points: &["MSG_PARKED", "MSG_WOKEN", "MSG_ENDED"],
        ..PLAIN
    },
    Scenario {
        name: "begins to wait for room for a batch",
        prefill: fill,
        victim: |clerk| {
            let _ = clerk.send_batch(How::Block, &[(2, 200); 3]);
        },
        points: &["MSG_SEATED", "MSG_LISTED", "MSG_NAMED"],
        ..PLAIN
    },
    Scenario {
        name: "begins to wait for room for a batch behind another",
        prefill: fill,
        bystander: Bystander::SendsBatches,
        victim: |clerk| {
            let _ = clerk.send_batch(How::Block, &[(2, 200); 3]);
        },
        points: &["MSG_SEATED", "MSG_LISTED", "MSG_NAMED"],
        ..PLAIN
    },
    Scenario {
        name: "is woken with room for a batch",
        prefill: fill,
        victim: |clerk| {
            let _ = clerk.send_batch(How::Block, &[(2, 200), (4, 16)]);
        },
        nudge: Nudge::Receive,
        points: &[
            "MSG_WOKEN",
            "MSG_BATCH_FILLED",
            "MSG_BATCH_SENT",
            "MSG_LINKED",
        ],
        ..PLAIN
    },
    Scenario {
        name: "changes the queue while a receiver waits",
        prefill: |clerk| send_mixed(clerk, 5),
        bystander: Bystander::Receives,
        victim: |clerk| change(clerk.queue),
        points: &["MSG_CHANGED"],
        ..PLAIN
    },
    Scenario {
        name: "changes the queue while a sender waits",
        prefill: fill,
        bystander: Bystander::Sends,
        victim: |clerk| change(clerk.queue),
        points: &["MSG_CHANGED"],
        ..PLAIN
    },
    Scenario {
        name: "changes who may do what",
        prefill: |clerk| send_mixed(clerk, 5),
        victim: |clerk| {
            let mode = Some(0o660);
            let change = Change {
                mode,
                ..Change::default()
            };
            clerk.queue.set(&change).expect("a change");
        },
        points: &["MSGCTL_HANDED_OVER", "MSG_CHANGED", "MSGCTL_APPLIED"],
        ..PLAIN
    },
];

/// A change that changes nothing.
fn change(queue: &Queue) {
    let qbytes = Some(QBYTES as u64);
    let change = Change {
        qbytes,
        ..Change::default()
    };
    queue.set(&change).expect("a change");
}

/// Points at which a repairer dies, after a first victim died at each of [`DEADLY`].
const REPAIR_POINTS: &[&str] = &["MSG_SURVEYED", "MSG_CLEARED", "MSG_ORDERED"];

/// Points under the lock that leave different things behind: scenario, point.
const DEADLY: &[(&str, &str)] = &[
    (
        "sends mixed messages into a queue that holds some",
        "MSG_FILLED",
    ),
    (
        "sends mixed messages into a queue that holds some",
        "MSG_SENT",
    ),
    (
        "sends batches into a queue that holds messages",
        "MSG_BATCH_FILLED",
    ),
    (
        "sends batches into a queue that holds messages",
        "MSG_BATCH_SENT",
    ),
    ("sends to a waiting receiver", "MSG_NOTED"),
    ("sends to a waiting receiver", "MSG_OFFERED"),
    ("sends where somebody died with an offer", "MSG_PUT_BACK"),
    ("receives by type and in order of arrival", "MSG_ENDED"),
    (
        "receives from a full queue while a sender is blocked",
        "MSG_ADMITTED",
    ),
    (
        "receives from a full queue while a sender is blocked",
        "MSG_SENT",
    ),
    ("leases", "MSG_LEASED"),
    ("leases", "MSG_ACKNOWLEDGED"),
    ("leases", "MSG_RETURNED"),
    ("is woken with a message", "MSG_REAPED"),
    ("begins to wait for room", "MSG_PARKED"),
    ("begins to wait for room", "MSG_LISTED"),
];

/// Points at which the creator and the remover of a queue die.
const CREATE_POINTS: &[&str] = &[
    "MSGGET_EMPTY",
    "MSGGET_FILLED",
    "MSGGET_NUMBERED",
    "MSGGET_INDEXED",
    "MSGGET_LABELLED",
];
const REMOVE_POINTS: &[&str] = &["MSG_REMOVED", "MSGCTL_UNLABELLED"];

/// What one test has seen.
#[derive(Default)]
struct Figures {
    kills: u32,
    /// How often at each point.
    at: std::collections::HashMap<String, u32>,
    longest: u64,
    longest_at: String,
}

impl Figures {
    fn note_kill(&mut self, point: &str) {
        self.kills += 1;
        *self.at.entry(point.to_owned()).or_default() += 1;
    }

    fn kills_at(&self, point: &str) -> u32 {
        self.at.get(point).copied().unwrap_or_default()
    }

    fn note_stall(&mut self, stall: u64, what: &str) {
        if stall > self.longest {
            self.longest = stall;
            self.longest_at = what.to_owned();
        }
        let stalled = milliseconds(stall);
        let is_short = stall < STALL.as_nanos() as u64;
        assert!(is_short, "{what}: somebody stalled for {stalled:.0} ms");
    }

    fn print(&self, what: &str) {
        eprintln!(
            "{what}: {} kills, longest stall {:.1} ms ({})",
            self.kills,
            milliseconds(self.longest),
            self.longest_at
        );
    }
}

/// A queue, and all that is used to kill around it.
struct Stage<'a> {
    place: Place,
    queue: Queue,
    journal: Shared<Journal>,
    scenario: &'a Scenario,
    /// Bytes in use after the first rounds.
    settled: Option<u64>,
}

impl<'a> Stage<'a> {
    fn new(scenario: &'a Scenario) -> Stage<'a> {
        let place = Place::new();
        let queue = place.create_typed(KEY);
        // Every wait goes through a node: a spin that pays would pass the points by.
        queue.set_waiting(Waiting::Blocking);
        Stage {
            place,
            queue,
            journal: Shared::new(),
            scenario,
            settled: None,
        }
    }

    fn clerk(&self, role: usize) -> Clerk<'_> {
        Clerk::new(&self.queue, &self.journal, role)
    }

    /// A process that opens the queue anew and works on it.
    fn process(&self, role: usize, work: impl FnOnce(&mut Clerk<'_>)) -> Child {
        Child::run(|| {
            let_calls_be_interrupted();
            let queue = self.place.open_typed(KEY);
            queue.set_waiting(Waiting::Blocking);
            work(&mut Clerk::new(&queue, &self.journal, role));
            0
        })
    }

    /// Kills a victim at a point (and a repairer at another); then judges everything.
    fn round(&mut self, point: &str, nth: u32, repairer: Option<&str>, figures: &mut Figures) {
        let what = format!("{} / {point} / {nth} / {repairer:?}", self.scenario.name);
        self.journal.reset();
        (self.scenario.prefill)(&mut self.clerk(OBSERVER));
        let prefilled = self.journal.used();
        let mut bystander = self.start_bystander(&what);

        let alone = self.scenario.alone.contains(&point);
        if alone {
            // Before the death: a bystander may go on faster than the observer learns of it.
            self.journal.mark.store(now(), SeqCst);
        }
        let mut victim = self.process(VICTIM, |clerk| {
            crash::arm(point, nth);
            (self.scenario.victim)(clerk);
        });
        self.nudge(&what);
        self.expect_death(&mut victim, point, &what, figures);
        let died_at = now();
        let mut losses = self.losses(point);
        if let Some(second) = repairer {
            let mut repairer = self.process(VICTIM, |clerk| {
                crash::arm(second, 1);
                let _ = clerk.receive(How::Within(Duration::from_millis(500)), Want::Any);
                let _ = clerk.send(How::Within(Duration::from_millis(500)), 1, 16);
            });
            self.expect_death(&mut repairer, second, &what, figures);
            // Whoever repairs has not begun what it came for.
            self.journal.roles[VICTIM].receiving.store(0, SeqCst);
        }

        if alone {
            self.expect_progress(died_at, &what, figures);
            let first = &self.journal.roles[BYSTANDER].first_after_mark;
            first.store(0, SeqCst);
        }
        self.journal.mark.store(now(), SeqCst);
        self.run_newcomer(&what, figures);
        self.end_bystander(&mut bystander, &what, figures);
        losses = losses.max(self.losses(point));
        self.judge(prefilled, losses, &what);
        self.check_capacity(&what);
    }

    /// Waits for the death of a victim. It may have had nothing to do: a blocked bystander looks at the queue every slice, and
    /// may have been faster; and where the machine is busy, its time may be over before it waits.
    fn expect_death(&self, victim: &mut Child, point: &str, what: &str, figures: &mut Figures) {
        let may_live = self.scenario.bystander != Bystander::Idle
            || self.scenario.name.contains("until its time is over");
        match victim.wait(STUCK) {
            Some(Exit::Signal(libc::SIGKILL)) => figures.note_kill(point),
            Some(Exit::Code(0)) if may_live => {}
            other => panic!("{what}: the victim ended with {other:?}"),
        }
    }

    /// How many messages a victim that died at this point inside of a receive may have taken. Up to MSG_COPIED a message is
    /// still the queue's, and one that was offered goes back.
    fn losses(&self, point: &str) -> usize {
        let receiving = self.journal.roles[VICTIM].receiving.swap(0, SeqCst) as usize;
        let taken = ["MSG_ENDED", "MSG_ADMITTED", "MSG_SENT", "MSG_LINKED"];
        if taken.contains(&point) { receiving } else { 0 }
    }

    fn blocked(&self) -> (usize, usize) {
        let status = status(&self.queue);
        (status.blocked_senders, status.blocked_receivers)
    }

    fn start_bystander(&self, what: &str) -> Child {
        let kind = self.scenario.bystander;
        let child = self.process(BYSTANDER, |clerk| match kind {
            Bystander::Idle => {
                clerk.me().ready.store(1, SeqCst);
                let go = wait_until(STUCK * 2, || clerk.me().go.load(SeqCst) != 0);
                assert!(go, "the bystander was forgotten");
                use_both_ways(clerk);
            }
            Bystander::Receives => loop {
                match clerk.receive(How::Block, Want::Exactly(WANTED.into())) {
                    Ok(_) => {}
                    Err(ReceiveError::Interrupted) if clerk.me().go.load(SeqCst) != 0 => return,
                    Err(ReceiveError::Interrupted) => {}
                    Err(error) => panic!("bystander: {error}"),
                }
            },
            Bystander::Sends | Bystander::SendsBatches => loop {
                let sent = match kind {
                    Bystander::Sends => clerk.send(How::Block, 6, 150),
                    _ => clerk.send_batch(How::Block, &[(6, 150), (7, 20)]),
                };
                match sent {
                    Ok(_) => {}
                    Err(SendError::Interrupted) if clerk.me().go.load(SeqCst) != 0 => return,
                    Err(SendError::Interrupted) => {}
                    Err(error) => panic!("bystander: {error}"),
                }
            },
        });
        let is_there = wait_until(STUCK, || match kind {
            Bystander::Idle => self.journal.roles[BYSTANDER].ready.load(SeqCst) != 0,
            Bystander::Receives => self.blocked().1 == 1,
            Bystander::Sends | Bystander::SendsBatches => self.blocked().0 == 1,
        });
        assert!(is_there, "{what}: the bystander does not start");
        child
    }

    /// Lets the victim's wait succeed, once it waits.
    fn nudge(&self, what: &str) {
        if self.scenario.nudge == Nudge::Nothing {
            return;
        }
        let waits = wait_until(STUCK, || self.blocked() != (0, 0));
        assert!(waits, "{what}: the victim does not wait");
        let mut clerk = self.clerk(OBSERVER);
        match self.scenario.nudge {
            Nudge::Send => {
                let _ = clerk.send(How::Try, WANTED, 90);
            }
            _ => {
                let _ = clerk.receive(How::Try, Want::Any);
            }
        }
    }

    fn run_newcomer(&self, what: &str, figures: &mut Figures) {
        let kind = self.scenario.bystander;
        let go = u32::from(kind == Bystander::Idle);
        self.journal.roles[BYSTANDER].go.store(go, SeqCst);
        let mut newcomer = self.process(NEWCOMER, |clerk| match kind {
            Bystander::Idle => use_both_ways(clerk),
            Bystander::Receives => {
                for _ in 0..2 {
                    clerk.send(How::Within(STUCK), WANTED, 40).expect("room");
                }
            }
            Bystander::Sends | Bystander::SendsBatches => {
                for _ in 0..2 {
                    let received = clerk.receive(How::Within(STUCK), Want::Any);
                    received.expect("a message");
                }
            }
        });
        newcomer.expect(Exit::Code(0), what);
        let longest = self.journal.roles[NEWCOMER].longest.load(SeqCst);
        figures.note_stall(longest, &format!("{what}: newcomer"));
    }

    /// Waits until the bystander has gone on, and lets it end.
    fn end_bystander(&self, bystander: &mut Child, what: &str, figures: &mut Figures) {
        let me = &self.journal.roles[BYSTANDER];
        if self.scenario.bystander == Bystander::Idle {
            bystander.expect(Exit::Code(0), what);
            figures.note_stall(me.longest.load(SeqCst), &format!("{what}: bystander"));
            return;
        }
        self.expect_progress(self.journal.mark.load(SeqCst), what, figures);
        me.go.store(1, SeqCst);
        let ended = wait_until(STUCK, || {
            bystander.signal(libc::SIGUSR1);
            bystander.wait(Duration::from_millis(2)).is_some()
        });
        assert!(ended, "{what}: the bystander does not end");
        bystander.expect(Exit::Code(0), what);
    }

    /// Waits until the blocked bystander has gone on.
    fn expect_progress(&self, since: u64, what: &str, figures: &mut Figures) {
        let me = &self.journal.roles[BYSTANDER];
        let goes_on = wait_until(STUCK, || me.first_after_mark.load(SeqCst) != 0);
        assert!(goes_on, "{what}: the bystander is stuck");
        let stall = me.first_after_mark.load(SeqCst).saturating_sub(since);
        figures.note_stall(stall, &format!("{what}: blocked bystander"));
    }

    /// Takes out what is left.
    fn drain(&self) -> Vec<usize> {
        let mut clerk = self.clerk(OBSERVER);
        std::iter::from_fn(|| clerk.receive(How::Try, Want::Any).ok()).collect()
    }

    fn judge(&self, prefilled: usize, losses: usize, what: &str) {
        // Whoever asks gets an answer without what the dead held; but for the same question a tick ago.
        let returned = wait_until(STALL, || status(&self.queue).leased == 0);
        assert!(returned, "{what}: held by the dead for good");
        let before = status(&self.queue);
        let entry = before.entry;
        let types = self.queue.types(QBYTES).expect("the types");
        let left = self.drain();
        // A blocked sender of whose death nobody knew may have been let in meanwhile.
        if before.blocked_senders == 0 {
            self.check_counts(&left, (entry.messages, entry.bytes), &types, what);
        }
        self.check_arrivals(&left, prefilled, what);
        let missing = self.settle(losses, what);
        assert!(
            missing <= losses,
            "{what}: {missing} messages lost, {losses} may be"
        );
        if losses == 0 && self.scenario.name.contains("batch") {
            let (received, begun) = self.journal.unfinished();
            let whole = received == 0 || received == begun;
            assert!(whole, "{what}: {received} of a batch of {begun}");
        }
        let rest = status(&self.queue);
        let counted = (rest.entry.messages, rest.entry.bytes, rest.leased_bytes);
        assert_eq!(counted, (0, 0, 0), "{what}: counts of an empty queue");
        assert!(!rest.damaged, "{what}: marked as damaged");
    }

    /// Makes everybody notice that those who wait are dead, and takes out what was offered to them: it is back after a
    /// slice. How many messages are missing.
    fn settle(&self, losses: usize, what: &str) -> usize {
        let mut clerk = self.clerk(OBSERVER);
        let is_done = wait_until(STALL, || {
            if self.blocked().1 != 0 {
                let _ = clerk.send(How::Try, WANTED, SHORTEST);
                std::thread::sleep(Duration::from_millis(105));
            }
            while clerk.receive(How::Try, Want::Any).is_ok() {}
            self.blocked() == (0, 0) && self.journal.missing(what) <= losses
        });
        assert!(
            is_done || self.blocked() == (0, 0),
            "{what}: the dead wait for good"
        );
        self.journal.missing(what)
    }

    /// The queue counted what was in it.
    fn check_counts(&self, left: &[usize], counted: (u64, u64), types: &[(i64, u32)], what: &str) {
        let record = |&number: &usize| &self.journal.messages[number];
        let bytes = left
            .iter()
            .map(|number| u64::from(record(number).len.load(SeqCst)))
            .sum();
        assert_eq!(counted, (left.len() as u64, bytes), "{what}: counts");
        let mut by_type = std::collections::BTreeMap::<i64, u32>::new();
        for number in left {
            let mtype = record(number).priority.load(SeqCst);
            *by_type.entry(mtype.into()).or_default() += 1;
        }
        assert!(
            by_type.into_iter().eq(types.iter().copied()),
            "{what}: counts of types"
        );
    }

    /// What came out of a queue at rest came in order of arrival: each sender's in its order, and everybody's after what was
    /// there before.
    fn check_arrivals(&self, numbers: &[usize], prefilled: usize, what: &str) {
        let sender = |number: usize| self.journal.messages[number].sender.load(SeqCst);
        for (index, &one) in numbers.iter().enumerate() {
            for &other in &numbers[index + 1..] {
                let turned = sender(one) == sender(other) && one > other;
                let late = one >= prefilled && other < prefilled;
                assert!(
                    !turned && !late,
                    "{what}: message {one} was received before {other}"
                );
            }
        }
    }

    /// Exactly as much fits as should, twice, and in no more memory than before.
    fn check_capacity(&mut self, what: &str) {
        for _ in 0..2 {
            self.journal.reset();
            let mut clerk = self.clerk(OBSERVER);
            let mut random = Random::new(5);
            let (mut sent, mut bytes) = (0, 0);
            let (refused, len) = loop {
                let (mtype, len) = any(&mut random);
                let len = len.max(SHORTEST);
                match clerk.send(How::Try, mtype, len) {
                    Ok(_) => (sent, bytes) = (sent + 1, bytes + len),
                    Err(error) => break (error, len),
                }
            };
            assert_eq!(refused, SendError::Full, "{what}");
            assert!(bytes <= QBYTES, "{what}: more fits than should");
            assert!(
                bytes + len > QBYTES,
                "{what}: {bytes} bytes and not {len} more"
            );
            let entry = status(&self.queue).entry;
            assert_eq!(
                (entry.messages, entry.bytes),
                (sent, bytes as u64),
                "{what}"
            );
            let received = self.drain();
            assert_eq!(received.len() as u64, sent, "{what}");
            self.check_arrivals(&received, 0, what);
            assert_eq!(self.journal.missing(what), 0, "{what}: lost at rest");
        }
    }

    /// Memory is the same after any number of kills.
    fn check_memory(&mut self, round: u32, what: &str) {
        let memory = status(&self.queue).memory;
        if round < 2 {
            self.settled = Some(memory);
        } else if let Some(settled) = self.settled {
            // The arena grows by 64 KiB: what is free lies otherwise each time.
            assert!(
                memory <= settled + (128 << 10),
                "{what}: grew from {settled} to {memory} bytes in {round} rounds"
            );
        }
    }
}

/// A send and a receive; of a full queue two receives first, because a message of the dead may take the place of one.
fn use_both_ways(clerk: &mut Clerk<'_>) {
    let receive = |clerk: &mut Clerk<'_>| {
        let received = clerk.receive(How::Within(STUCK), Want::Any);
        received.expect("a message");
    };
    match clerk.send(How::Try, 4, 80) {
        Ok(_) => receive(clerk),
        Err(SendError::Full) => {
            receive(clerk);
            receive(clerk);
            clerk.send(How::Within(STUCK), 4, 80).expect("room");
        }
        Err(error) => panic!("{error}"),
    }
}

/// Kills at every point of every scenario whose name begins with one of `verbs`.
fn kill_at_every_point(title: &str, verbs: &[&str]) {
    let _turn = turn();
    let mut figures = Figures::default();
    let begins = |scenario: &&Scenario| verbs.iter().any(|verb| scenario.name.starts_with(verb));
    for scenario in SCENARIOS.iter().filter(begins) {
        for point in scenario.points {
            kill_often(scenario, point, &mut figures);
        }
    }
    assert!(figures.kills > 0, "no scenario of that kind");
    figures.print(title);
}

fn kill_often(scenario: &Scenario, point: &str, figures: &mut Figures) {
    let begun = Instant::now();
    let before = figures.kills_at(point);
    let mut stage = Stage::new(scenario);
    for round in 0..rounds() {
        if round >= LEAST.min(rounds()) && begun.elapsed() > PATIENCE && rounds() == ROUNDS {
            break;
        }
        if scenario.fresh {
            stage = Stage::new(scenario);
        }
        stage.round(point, 1 + (round * 7) % scenario.passes, None, figures);
        let round = if scenario.fresh { 0 } else { round };
        stage.check_memory(round, &format!("{} / {point}", scenario.name));
    }
    let name = scenario.name;
    assert!(
        figures.kills_at(point) > before,
        "nobody who {name} dies at {point}"
    );
}

/// `UMSG_CRASH_ROUNDS` asks for more or fewer.
fn rounds() -> u32 {
    let asked = std::env::var("UMSG_CRASH_ROUNDS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(ROUNDS)
}

#[test]
fn every_named_point_is_killed_at_in_some_scenario() {
    let in_scenarios = SCENARIOS.iter().flat_map(|scenario| scenario.points);
    let others = [REPAIR_POINTS, CREATE_POINTS, REMOVE_POINTS].concat();
    let killed: Vec<&str> = in_scenarios.chain(&others).copied().collect();
    for (_, name, what) in POINTS.iter().filter(|(_, name, _)| name.starts_with("MSG")) {
        assert!(killed.contains(name), "nobody dies at {name} ({what})");
    }
    for name in &killed {
        let is_known = POINTS.iter().any(|(_, known, _)| known == name);
        assert!(is_known, "there is no point {name}");
    }
    for (name, point) in DEADLY {
        let scenario = SCENARIOS.iter().find(|known| known.name == *name);
        assert!(
            scenario.is_some_and(|known| known.points.contains(point)),
            "{name} / {point}"
        );
    }
}

#[test]
fn a_killed_sender_leaves_a_whole_message_or_none_and_stops_nobody() {
    kill_at_every_point("killed senders", &["sends"]);
}

#[test]
fn a_killed_receiver_takes_at_most_its_own_message_along_and_stops_nobody() {
    kill_at_every_point("killed receivers", &["receives"]);
}

#[test]
fn what_a_killed_holder_leased_is_delivered_again() {
    kill_at_every_point("killed holders", &["leases"]);
}

#[test]
fn a_process_killed_while_it_waits_stops_nobody() {
    kill_at_every_point("killed waiters", &["begins", "is woken", "waits"]);
}

#[test]
fn a_process_killed_while_it_changes_a_queue_stops_nobody() {
    kill_at_every_point("killed administrators", &["changes"]);
}

#[test]
fn a_repairer_that_is_killed_is_itself_repaired() {
    let _turn = turn();
    let mut figures = Figures::default();
    for (name, point) in DEADLY {
        let scenario = SCENARIOS.iter().find(|known| known.name == *name);
        let scenario = scenario.expect("a scenario");
        for repairer in REPAIR_POINTS {
            let mut stage = Stage::new(scenario);
            for round in 0..2 {
                let nth = 1 + (round * 7) % scenario.passes;
                stage.round(point, nth, Some(repairer), &mut figures);
            }
        }
    }
    for point in REPAIR_POINTS {
        assert!(figures.kills_at(point) > 0, "no repairer dies at {point}");
    }
    figures.print("killed repairers");
}

#[test]
fn a_queue_whose_creator_is_killed_exists_whole_or_not_at_all() {
    let _turn = turn();
    for point in CREATE_POINTS {
        let place = Place::new();
        // A namespace has its directory for System V queues from the first one on.
        let other = place.create_typed(1);
        for round in 0..10 {
            let key = KEY + round;
            let mut victim = Child::run(|| {
                crash::arm(point, 1);
                place.create_typed(key);
                0
            });
            victim.expect(Exit::Signal(libc::SIGKILL), point);
            let queue = place.create_typed(key);
            queue.try_send(1, b"there").unwrap();
            let received = place.open_typed(key).try_receive(Want::Any, &mut [0; 64]);
            assert_eq!(received.map(|received| received.len), Ok(5), "{point}");
            // Its own queue, of which there is one.
            let listed = umsg::sysv::list(&place.namespace).unwrap();
            let of_key: Vec<i32> = listed
                .iter()
                .filter(|entry| entry.key == key)
                .map(|entry| entry.id)
                .collect();
            assert_eq!(of_key, [queue.id()], "{point}");
            assert_eq!(listed.len(), round as usize + 2, "{point}");
        }
        other.try_send(1, b"").unwrap();
    }
}

#[test]
fn a_queue_whose_remover_is_killed_is_gone_for_all_who_wait() {
    let _turn = turn();
    for point in REMOVE_POINTS {
        for full in [false, true] {
            let place = Place::new();
            let queue = place.create_typed(KEY);
            while full && queue.try_send(1, &[0; 1000]).is_ok() {}
            let mut waiter = Child::run(|| {
                let queue = place.open_typed(KEY);
                queue.set_waiting(Waiting::Blocking);
                let is_removed = match full {
                    true => queue.send(1, &[0; 1000]) == Err(SendError::Removed),
                    false => queue.receive(Want::Any, &mut [0; 64]) == Err(ReceiveError::Removed),
                };
                i32::from(!is_removed)
            });
            let waits = wait_until(STUCK, || {
                let status = status(&queue);
                status.blocked_receivers + status.blocked_senders == 1
            });
            assert!(waits, "{point}: nobody waits");
            let mut victim = Child::run(|| {
                let queue = place.open_typed(KEY);
                crash::arm(point, 1);
                let _ = queue.remove();
                0
            });
            victim.expect(Exit::Signal(libc::SIGKILL), point);
            waiter.expect(Exit::Code(0), &format!("{point}: who waited"));
            assert_eq!(queue.try_send(1, b""), Err(SendError::Removed), "{point}");
            let gone = umsg::sysv::OpenOptions::new()
                .namespace(&place.namespace)
                .open(KEY);
            assert!(
                matches!(gone, Err(OpenError::NotFound)),
                "{point}: {gone:?}"
            );
            assert_eq!(umsg::sysv::list(&place.namespace).unwrap(), [], "{point}");
            let next = place.create_typed(KEY);
            assert_ne!(next.id(), queue.id(), "{point}");
            next.try_send(1, b"next").unwrap();
        }
    }
}
