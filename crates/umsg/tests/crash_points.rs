//! A real SIGKILL at every named point of the code, and what must hold afterwards.
//!
//! A scenario is what a victim does until it dies. Meanwhile a bystander has the queue open, and may be blocked in it.
//! After the death a newcomer opens the queue and uses it. Then it is judged: how long anybody stalled, whether every
//! message whose send returned was delivered once, whether the order held, and whether the queue still takes exactly
//! as many messages as it should, in the same memory, however often that was done to it.

mod support;

use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};
use support::child::{Child, Exit, let_calls_be_interrupted};
use support::journal::{Actor, How, Journal, SHORTEST};
use support::place::Place;
use support::shared::Shared;
use support::{Random, milliseconds, now, turn, wait_until};
use umsg::crash::{self, POINTS};
use umsg::posix::{Queue, ReceiveError, SendError, Waiting};

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
const PATIENCE: Duration = Duration::from_millis(700);

/// What the bystander does while the victim dies.
#[derive(Clone, Copy, PartialEq)]
enum Bystander {
    /// Has the queue open and goes on when the victim is dead.
    Idle,
    /// Receives, and is blocked when the victim begins.
    Receives,
    /// Sends, and is blocked when the victim begins.
    Sends,
    /// The same with batches of two.
    SendsBatches,
}

impl Bystander {
    fn sends(self) -> bool {
        matches!(self, Bystander::Sends | Bystander::SendsBatches)
    }
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
    depth: u32,
    size: u32,
    prefill: fn(&mut Actor<'_>),
    bystander: Bystander,
    victim: fn(&mut Actor<'_>),
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
    depth: 62,
    size: 4096,
    prefill: |_| (),
    bystander: Bystander::Idle,
    victim: |_| (),
    nudge: Nudge::Nothing,
    passes: 1,
    fresh: false,
    alone: &[],
    points: &[],
};

/// Any priority, and any length: most fit into their cell, some need the arena, a few make it grow.
fn any(random: &mut Random) -> (u16, usize) {
    let priority = match random.below(3) {
        0 => 0,
        1 => random.below(5) as u16,
        _ => random.below(32_768) as u16,
    };
    let len = match random.below(8) {
        0..4 => random.below(72) as usize,
        4..7 => 73 + random.below(200) as usize,
        _ => 1000 + random.below(3096) as usize,
    };
    (priority, len)
}

fn send_mixed(actor: &mut Actor<'_>, count: usize) {
    let mut random = Random::new(count as u64 + actor.journal.used() as u64);
    for _ in 0..count {
        let (priority, len) = any(&mut random);
        actor.send(How::Try, priority, len).expect("room");
    }
}

fn send_alike(actor: &mut Actor<'_>, count: usize) {
    for _ in 0..count {
        actor.send(How::Try, 3, 16).expect("room");
    }
}

/// Batches of two and three messages in turn, of one priority and of several.
fn send_batches(actor: &mut Actor<'_>, count: usize) {
    let mut random = Random::new(count as u64 + actor.journal.used() as u64);
    for batch in 0..count {
        let mut messages = [(); 3].map(|()| any(&mut random));
        if batch % 4 < 2 {
            messages = messages.map(|(_, len)| (2, len));
        }
        actor
            .send_batch(How::Try, &messages[batch % 2..])
            .expect("room");
    }
}

fn fill(actor: &mut Actor<'_>) {
    while actor.send(How::Try, 3, 100).is_ok() {}
}

fn fill_mixed(actor: &mut Actor<'_>) {
    let mut random = Random::new(7);
    loop {
        let (priority, len) = any(&mut random);
        if actor.send(How::Try, priority % 3, len).is_err() {
            return;
        }
    }
}

fn receive(actor: &mut Actor<'_>, count: usize) {
    for _ in 0..count {
        actor.receive(How::Try).expect("a message");
    }
}

/// Leases what there is: acknowledges one, keeps one, returns one, and so on. What is kept is held until the end.
fn lease(actor: &mut Actor<'_>, rounds: usize) {
    let mut kept = Vec::new();
    for _ in 0..rounds {
        let done = actor.lease(How::Try).expect("a message");
        kept.push(actor.lease(How::Try).expect("a message"));
        let other = actor.lease(How::Try).expect("a message");
        actor.acknowledge(done).expect("a lease");
        other.give_back().expect("a lease");
    }
}

/// Reserves room: sends one message, keeps the room for another, gives that for a third back, and so on.
fn reserve(actor: &mut Actor<'_>, rounds: usize) {
    let mut random = Random::new(actor.journal.used() as u64);
    let mut kept = Vec::new();
    for _ in 0..rounds {
        let (priority, len) = any(&mut random);
        let room = actor.reserve(How::Try, len * 2).expect("room");
        kept.push(actor.reserve(How::Try, len).expect("room"));
        let other = actor.reserve(How::Try, len).expect("room");
        actor.commit(room, priority, len).expect("a reservation");
        drop(other);
    }
}

/// A process that leases some messages and reserves some room, and ends without a word.
fn leave_holds(actor: &mut Actor<'_>) {
    let mut holder = Child::run(|| {
        let leases: Vec<_> = (0..4)
            .map(|_| actor.lease(How::Try).expect("a message"))
            .collect();
        let rooms: Vec<_> = (0..4)
            .map(|_| actor.reserve(How::Try, 500).expect("room"))
            .collect();
        std::mem::forget((leases, rooms));
        0
    });
    holder.expect(Exit::Code(0), "the holder");
}

fn receive_batches(actor: &mut Actor<'_>, count: usize, most: usize) {
    for _ in 0..count {
        actor.receive_batch(How::Try, most).expect("a message");
    }
}

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "leases one message after the other",
        prefill: |actor| send_alike(actor, 30),
        victim: |actor| {
            let _held: Vec<_> = (0..20).map(|_| actor.lease(How::Try)).collect();
        },
        passes: 20,
        points: &["LEASE_HELD", "RECEIVE_TAKEN", "LEASE_TAKEN"],
        ..PLAIN
    },
    Scenario {
        name: "leases from the ring",
        prefill: |actor| send_alike(actor, 40),
        victim: |actor| lease(actor, 8),
        passes: 8,
        points: &[
            "LEASE_HELD",
            "LEASE_TAKEN",
            "LEASE_ENDED",
            "RETURN_MARKED",
            "RETURN_ENDED",
            "RECEIVE_RETURNED",
        ],
        ..PLAIN
    },
    Scenario {
        name: "leases from the store",
        prefill: |actor| send_mixed(actor, 40),
        victim: |actor| lease(actor, 8),
        passes: 8,
        points: &[
            "LEASE_HELD",
            "LEASE_TAKEN",
            "LEASE_ENDED",
            "RETURN_MARKED",
            "RETURN_ENDED",
            "DRAIN_MARKED",
            "DRAIN_LINKED",
            "RECEIVE_UNSTORED",
            "RECEIVE_RETURNED",
        ],
        ..PLAIN
    },
    Scenario {
        name: "leases from a full queue while a sender is blocked",
        depth: 30,
        prefill: fill_mixed,
        bystander: Bystander::Sends,
        victim: |actor| lease(actor, 4),
        alone: &["LEASE_ENDED", "RECEIVE_RETURNED", "ADMIT_ACCEPTED"],
        points: &[
            "LEASE_HELD",
            "LEASE_TAKEN",
            "LEASE_ENDED",
            "RETURN_MARKED",
            "RETURN_ENDED",
            "RECEIVE_RETURNED",
            "ADMIT_ACCEPTED",
        ],
        ..PLAIN
    },
    Scenario {
        name: "is woken with a message to lease",
        victim: |actor| {
            let lease = actor.lease(How::Block).expect("a message");
            actor.acknowledge(lease).expect("a lease");
        },
        nudge: Nudge::Send,
        points: &["WAIT_WOKEN", "LEASE_HELD", "LEASE_ENDED"],
        ..PLAIN
    },
    Scenario {
        name: "leases and waits for another message until its time is over",
        prefill: |actor| send_alike(actor, 1),
        victim: |actor| {
            let _first = actor.lease(How::Try).expect("a message");
            let _ = actor.lease(How::Within(Duration::from_millis(30)));
        },
        points: &["WAIT_LISTED", "WAIT_NAMED", "WAIT_WOKEN"],
        ..PLAIN
    },
    Scenario {
        name: "sends in place into a queue that holds some",
        prefill: |actor| send_mixed(actor, 20),
        victim: |actor| reserve(actor, 10),
        passes: 10,
        points: &[
            "GROW_LENT",
            "RESERVE_SLOT_TAKEN",
            "RESERVE_HELD",
            "DRAIN_MARKED",
            "DRAIN_LINKED",
            "COMMIT_MARKED",
            "COMMIT_ENDED",
            "CANCEL_ENDED",
            "RECEIVE_RETURNED",
        ],
        ..PLAIN
    },
    Scenario {
        name: "sends in place what makes the arena grow",
        victim: |actor| {
            for length in 0..60 {
                let room = actor.reserve(How::Try, 3000 + length * 16).expect("room");
                actor.commit(room, 1, 2000).expect("a reservation");
            }
        },
        passes: 60,
        fresh: true,
        points: &["ARENA_SPLIT", "ARENA_NAMED"],
        ..PLAIN
    },
    Scenario {
        name: "sends in place to a waiting receiver",
        bystander: Bystander::Receives,
        victim: |actor| {
            let room = actor.reserve(How::Try, 100).expect("room");
            actor.commit(room, 3, 90).expect("a reservation");
        },
        alone: &[
            "COMMIT_MARKED",
            "COMMIT_ENDED",
            "SERVE_NOTED",
            "SERVE_OFFERED",
            "SERVE_TAKEN",
        ],
        points: &[
            "COMMIT_MARKED",
            "COMMIT_ENDED",
            "SERVE_NOTED",
            "SERVE_OFFERED",
            "SERVE_TAKEN",
        ],
        ..PLAIN
    },
    Scenario {
        name: "sends in place once the room of the dead has come back",
        depth: 30,
        prefill: |actor| {
            send_mixed(actor, 26);
            leave_holds(actor);
        },
        victim: |actor| {
            // Somebody may have looked in this tick of the clock.
            let room = actor.reserve(How::Within(STUCK), 10).expect("room");
            actor.commit(room, 3, 10).expect("a reservation");
        },
        points: &["RETURN_MARKED", "RECEIVE_RETURNED", "RESERVE_HELD"],
        ..PLAIN
    },
    Scenario {
        name: "receives what the dead held",
        prefill: |actor| {
            send_mixed(actor, 4);
            leave_holds(actor);
        },
        victim: |actor| {
            // Somebody may have looked in this tick of the clock.
            let _ = actor.receive(How::Within(STUCK));
            receive(actor, 3);
        },
        passes: 3,
        points: &["RETURN_MARKED", "RECEIVE_RETURNED", "RECEIVE_FREED"],
        ..PLAIN
    },
    Scenario {
        name: "sends short messages of one priority",
        victim: |actor| send_alike(actor, 20),
        passes: 20,
        points: &[
            "SEND_FILLED",
            "SEND_PUBLISHED",
            "SEND_COUNTED",
            "SEND_UNSERVED",
        ],
        ..PLAIN
    },
    Scenario {
        name: "sends mixed messages into a queue that holds some",
        prefill: |actor| send_mixed(actor, 20),
        victim: |actor| send_mixed(actor, 30),
        passes: 5,
        points: &[
            "SEND_FILLED",
            "SEND_RUN_CHANGED",
            "SEND_PUBLISHED",
            "SEND_COUNTED",
            "SEND_UNSERVED",
            "ARENA_SPLIT",
            "ARENA_NAMED",
        ],
        ..PLAIN
    },
    Scenario {
        name: "sends messages for which the arena grows",
        victim: |actor| {
            for length in 0..60 {
                actor.send(How::Try, 1, 3000 + length * 16).expect("room");
            }
        },
        passes: 60,
        fresh: true,
        points: &["ARENA_SPLIT", "ARENA_NAMED"],
        ..PLAIN
    },
    Scenario {
        name: "sends batches",
        victim: |actor| send_batches(actor, 12),
        passes: 5,
        points: &[
            "BATCH_NOTED",
            "BATCH_STAMPED",
            "BATCH_PUBLISHED",
            "BATCH_COUNTED",
            "SEND_RUN_CHANGED",
            "SEND_COUNTED",
            "SEND_UNSERVED",
            "ARENA_SPLIT",
            "ARENA_NAMED",
        ],
        ..PLAIN
    },
    Scenario {
        name: "sends batches into a queue that holds messages",
        prefill: |actor| send_mixed(actor, 20),
        victim: |actor| send_batches(actor, 12),
        passes: 5,
        points: &[
            "BATCH_NOTED",
            "BATCH_STAMPED",
            "BATCH_PUBLISHED",
            "BATCH_COUNTED",
        ],
        ..PLAIN
    },
    Scenario {
        name: "sends a batch to a waiting receiver",
        bystander: Bystander::Receives,
        victim: |actor| send_batches(actor, 1),
        alone: &[
            "BATCH_PUBLISHED",
            "BATCH_COUNTED",
            "SEND_COUNTED",
            "SEND_UNSERVED",
            "SERVE_OFFERED",
        ],
        points: &[
            "BATCH_STAMPED",
            "BATCH_PUBLISHED",
            "SEND_COUNTED",
            "SEND_UNSERVED",
            "SERVE_OFFERED",
        ],
        ..PLAIN
    },
    Scenario {
        name: "receives from the ring",
        prefill: |actor| send_alike(actor, 30),
        victim: |actor| receive(actor, 20),
        passes: 20,
        points: &[
            "RECEIVE_COPIED",
            "RECEIVE_TAKEN",
            "RECEIVE_RETURNED",
            "RECEIVE_FREED",
            "RECEIVE_ADMITTED",
        ],
        ..PLAIN
    },
    Scenario {
        name: "receives from the store",
        prefill: |actor| send_mixed(actor, 40),
        victim: |actor| receive(actor, 20),
        passes: 15,
        points: &[
            "DRAIN_MARKED",
            "DRAIN_LINKED",
            "RECEIVE_COPIED",
            "RECEIVE_UNSTORED",
            "RECEIVE_RETURNED",
            "RECEIVE_FREED",
            "RECEIVE_ADMITTED",
        ],
        ..PLAIN
    },
    Scenario {
        name: "receives from a full queue while a sender is blocked",
        depth: 30,
        prefill: fill,
        bystander: Bystander::Sends,
        victim: |actor| receive(actor, 6),
        alone: &[
            "RECEIVE_RETURNED",
            "RECEIVE_FREED",
            "RECEIVE_ADMITTED",
            "ADMIT_ACCEPTED",
        ],
        points: &[
            "RECEIVE_COPIED",
            "RECEIVE_RETURNED",
            "RECEIVE_FREED",
            "RECEIVE_ADMITTED",
            "ADMIT_ACCEPTED",
            "DRAIN_MARKED",
            "DRAIN_LINKED",
        ],
        ..PLAIN
    },
    Scenario {
        name: "receives from a full queue of mixed messages while a sender is blocked",
        depth: 30,
        prefill: fill_mixed,
        bystander: Bystander::Sends,
        victim: |actor| receive(actor, 6),
        alone: &[
            "RECEIVE_UNSTORED",
            "RECEIVE_RETURNED",
            "RECEIVE_ADMITTED",
            "ADMIT_ACCEPTED",
        ],
        points: &[
            "RECEIVE_UNSTORED",
            "RECEIVE_RETURNED",
            "RECEIVE_ADMITTED",
            "ADMIT_ACCEPTED",
        ],
        ..PLAIN
    },
    Scenario {
        name: "receives batches from the ring",
        prefill: |actor| send_alike(actor, 40),
        victim: |actor| receive_batches(actor, 8, 3),
        passes: 8,
        points: &[
            "RECEIVE_COPIED",
            "RECEIVE_TAKEN",
            "RECEIVE_RETURNED",
            "RECEIVE_BATCH_TAKEN",
            "RECEIVE_FREED",
            "RECEIVE_ADMITTED",
        ],
        ..PLAIN
    },
    Scenario {
        name: "receives batches from the store",
        prefill: |actor| send_mixed(actor, 40),
        victim: |actor| receive_batches(actor, 8, 3),
        passes: 8,
        points: &[
            "RECEIVE_COPIED",
            "RECEIVE_UNSTORED",
            "RECEIVE_RETURNED",
            "RECEIVE_BATCH_TAKEN",
            "RECEIVE_FREED",
            "RECEIVE_ADMITTED",
        ],
        ..PLAIN
    },
    Scenario {
        name: "receives a batch from a full queue while a batch is blocked",
        depth: 30,
        prefill: fill,
        bystander: Bystander::SendsBatches,
        victim: |actor| receive_batches(actor, 2, 3),
        alone: &[
            "RECEIVE_BATCH_TAKEN",
            "RECEIVE_FREED",
            "RECEIVE_ADMITTED",
            "BATCH_TURN",
        ],
        points: &[
            "RECEIVE_BATCH_TAKEN",
            "RECEIVE_FREED",
            "RECEIVE_ADMITTED",
            "BATCH_TURN",
        ],
        ..PLAIN
    },
    Scenario {
        name: "receives from a full queue while a batch is blocked",
        depth: 30,
        prefill: fill,
        bystander: Bystander::SendsBatches,
        victim: |actor| receive(actor, 6),
        alone: &["BATCH_TURN"],
        points: &[
            "RECEIVE_TAKEN",
            "RECEIVE_FREED",
            "RECEIVE_ADMITTED",
            "BATCH_TURN",
        ],
        ..PLAIN
    },
    Scenario {
        name: "begins to wait for a message",
        victim: |actor| {
            let _ = actor.receive(How::Block);
        },
        points: &[
            "WAIT_NODE_FILLED",
            "WAIT_LISTED",
            "WAIT_UNNAMED",
            "WAIT_NAMED",
        ],
        ..PLAIN
    },
    Scenario {
        name: "begins to wait for a message behind another receiver",
        bystander: Bystander::Receives,
        victim: |actor| {
            let _ = actor.receive(How::Block);
        },
        points: &[
            "WAIT_NODE_FILLED",
            "WAIT_LISTED",
            "WAIT_UNNAMED",
            "WAIT_NAMED",
        ],
        ..PLAIN
    },
    Scenario {
        name: "is woken with a message",
        victim: |actor| {
            let _ = actor.receive(How::Block);
        },
        nudge: Nudge::Send,
        points: &["WAIT_WOKEN", "RECEIVE_RETURNED"],
        ..PLAIN
    },
    Scenario {
        name: "waits for a message until its time is over",
        victim: |actor| {
            let _ = actor.receive(How::Within(Duration::from_millis(3)));
        },
        points: &["WAIT_LISTED", "WAIT_NAMED", "WAIT_WOKEN"],
        ..PLAIN
    },
    Scenario {
        name: "waits for a message until its time is over, behind another receiver",
        bystander: Bystander::Receives,
        victim: |actor| {
            let _ = actor.receive(How::Within(Duration::from_millis(3)));
        },
        points: &["WAIT_WOKEN"],
        ..PLAIN
    },
    Scenario {
        name: "begins to wait for room",
        depth: 30,
        prefill: fill,
        victim: |actor| {
            let _ = actor.send(How::Block, 3, 200);
        },
        points: &[
            "GROW_LENT",
            "PARK_SLOT_TAKEN",
            "PARK_FILLED",
            "WAIT_NODE_FILLED",
            "WAIT_LISTED",
            "WAIT_UNNAMED",
            "WAIT_NAMED",
        ],
        ..PLAIN
    },
    Scenario {
        name: "begins to wait for room behind another sender, with a message that needs a new block",
        depth: 30,
        prefill: fill_mixed,
        bystander: Bystander::Sends,
        victim: |actor| {
            let len = 1000 + 100 * (actor.journal.used() % 20);
            let _ = actor.send(How::Block, 3, len);
        },
        points: &[
            "GROW_LENT",
            "PARK_SLOT_TAKEN",
            "PARK_FILLED",
            "WAIT_NODE_FILLED",
            "WAIT_LISTED",
            "WAIT_UNNAMED",
            "WAIT_NAMED",
        ],
        ..PLAIN
    },
    Scenario {
        name: "is woken with room",
        depth: 30,
        prefill: fill,
        victim: |actor| {
            let _ = actor.send(How::Block, 3, 200);
        },
        nudge: Nudge::Receive,
        points: &["WAIT_WOKEN"],
        ..PLAIN
    },
    Scenario {
        name: "begins to wait for room for a batch",
        depth: 30,
        prefill: fill,
        victim: |actor| {
            let _ = actor.send_batch(How::Block, &[(3, 200); 3]);
        },
        points: &[
            "GROW_LENT",
            "WAIT_NODE_FILLED",
            "WAIT_LISTED",
            "WAIT_UNNAMED",
            "WAIT_NAMED",
        ],
        ..PLAIN
    },
    Scenario {
        name: "begins to wait for room for a batch behind another",
        depth: 30,
        prefill: fill,
        bystander: Bystander::SendsBatches,
        victim: |actor| {
            let _ = actor.send_batch(How::Block, &[(3, 200); 3]);
        },
        points: &["WAIT_LISTED", "WAIT_UNNAMED", "WAIT_NAMED"],
        ..PLAIN
    },
    Scenario {
        name: "is woken with room for a batch",
        depth: 30,
        prefill: |actor| {
            fill(actor);
            receive(actor, 1);
        },
        victim: |actor| {
            let _ = actor.send_batch(How::Block, &[(3, 200), (3, 16)]);
        },
        nudge: Nudge::Receive,
        points: &[
            "WAIT_WOKEN",
            "BATCH_NOTED",
            "BATCH_STAMPED",
            "BATCH_PUBLISHED",
            "BATCH_COUNTED",
            "SEND_COUNTED",
        ],
        ..PLAIN
    },
    Scenario {
        name: "waits for room for a batch until its time is over",
        depth: 30,
        prefill: fill,
        victim: |actor| {
            let time = Duration::from_millis(3);
            let _ = actor.send_batch(How::Within(time), &[(3, 200); 2]);
        },
        points: &["WAIT_WOKEN"],
        ..PLAIN
    },
    Scenario {
        name: "waits for room until its time is over",
        depth: 30,
        prefill: fill,
        victim: |actor| {
            let _ = actor.send(How::Within(Duration::from_millis(3)), 3, 200);
        },
        points: &["PARK_FILLED", "WAIT_WOKEN", "RECEIVE_RETURNED"],
        ..PLAIN
    },
    Scenario {
        name: "sends to a waiting receiver",
        bystander: Bystander::Receives,
        victim: |actor| send_alike(actor, 1),
        alone: &[
            "SEND_PUBLISHED",
            "SEND_COUNTED",
            "SEND_UNSERVED",
            "SERVE_NOTED",
            "SERVE_OFFERED",
            "SERVE_TAKEN",
        ],
        points: &[
            "SEND_PUBLISHED",
            "SEND_COUNTED",
            "SEND_UNSERVED",
            "SERVE_NOTED",
            "SERVE_OFFERED",
            "SERVE_TAKEN",
        ],
        ..PLAIN
    },
    Scenario {
        name: "fills a deep queue",
        depth: 3000,
        size: 256,
        victim: |actor| while actor.send(How::Try, 3, 100).is_ok() {},
        passes: 2,
        fresh: true,
        points: &[
            "GROW_LENT",
            "GROW_COPIED",
            "GROW_DOUBLED",
            "GROW_WRITTEN",
            "GROW_COUNTED",
        ],
        ..PLAIN
    },
];

/// Points at which the creator of a queue dies.
const CREATE_POINTS: &[&str] = &["CREATE_EMPTY", "CREATE_UNNAMED", "CREATE_NAMED"];

/// Points at which a repairer dies, after a first victim died at each of [`DEADLY`].
const REPAIR_POINTS: &[&str] = &[
    "REPAIR_SURVEYED",
    "REPAIR_CLEARED",
    "REPAIR_STORED",
    "REPAIR_FREED",
];

/// Points at which a repairer of the senders' side dies, after a first victim died in a batch.
const TAKE_BACK_POINTS: &[&str] = &["BATCH_TAKEN_BACK"];

/// Points under the receiver lock that leave different things behind: scenario, point.
const DEADLY: &[(&str, &str)] = &[
    ("receives from the ring", "RECEIVE_TAKEN"),
    ("receives from the store", "DRAIN_LINKED"),
    ("receives from the store", "RECEIVE_UNSTORED"),
    (
        "receives from a full queue while a sender is blocked",
        "ADMIT_ACCEPTED",
    ),
    ("sends to a waiting receiver", "SERVE_OFFERED"),
    ("sends to a waiting receiver", "SERVE_TAKEN"),
    ("begins to wait for room", "PARK_FILLED"),
    ("fills a deep queue", "GROW_COUNTED"),
    ("leases from the ring", "LEASE_HELD"),
    ("leases from the store", "LEASE_TAKEN"),
    ("leases from the store", "RETURN_MARKED"),
    ("is woken with a message to lease", "LEASE_HELD"),
    (
        "sends in place into a queue that holds some",
        "RESERVE_HELD",
    ),
    (
        "sends in place into a queue that holds some",
        "COMMIT_MARKED",
    ),
    ("sends in place to a waiting receiver", "COMMIT_MARKED"),
    ("receives what the dead held", "RETURN_MARKED"),
];

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
        assert!(
            stall < STALL.as_nanos() as u64,
            "{what}: somebody stalled for {:.0} ms",
            milliseconds(stall)
        );
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
        let queue = place.create("/q", scenario.depth, scenario.size);
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

    fn actor(&self, role: usize) -> Actor<'_> {
        Actor::new(
            &self.queue,
            &self.journal,
            role,
            self.scenario.size as usize,
        )
    }

    /// A process that opens the queue anew and works on it.
    fn process(&self, role: usize, work: impl FnOnce(&mut Actor<'_>)) -> Child {
        Child::run(|| {
            let_calls_be_interrupted();
            let queue = self.place.open("/q");
            queue.set_waiting(Waiting::Blocking);
            work(&mut Actor::new(
                &queue,
                &self.journal,
                role,
                self.scenario.size as usize,
            ));
            0
        })
    }

    /// Kills a victim at a point (and a repairer at another); then judges everything.
    fn round(&mut self, point: &str, nth: u32, repairer: Option<&str>, figures: &mut Figures) {
        let what = format!("{} / {point} / {nth} / {repairer:?}", self.scenario.name);
        self.journal.reset();
        (self.scenario.prefill)(&mut self.actor(OBSERVER));
        let prefilled = self.journal.used();
        let mut bystander = self.start_bystander(&what);

        let alone = self.scenario.alone.contains(&point);
        if alone {
            // Before the death: a bystander may go on faster than the observer learns of it.
            self.journal.mark.store(now(), SeqCst);
        }
        let mut victim = self.process(VICTIM, |actor| {
            crash::arm(point, nth);
            (self.scenario.victim)(actor);
        });
        self.nudge(&mut victim, &what);
        self.expect_death(&mut victim, point, &what, figures);
        let died_at = now();
        let mut dead_receivers = self.receiving(VICTIM);
        let receipts = self.journal.receipts.load(SeqCst);
        if let Some(second) = repairer {
            let mut repairer = self.process(VICTIM, |actor| {
                crash::arm(second, 1);
                let _ = actor.receive(How::Within(Duration::from_millis(500)));
                let _ = actor.send(How::Within(Duration::from_millis(500)), 0, 16);
            });
            self.expect_death(&mut repairer, second, &what, figures);
            dead_receivers += self.receiving(VICTIM);
        }

        if alone {
            self.expect_progress(died_at, &what, figures);
            self.journal.roles[BYSTANDER]
                .first_after_mark
                .store(0, SeqCst);
        }
        self.journal.mark.store(now(), SeqCst);
        self.run_newcomer(&what, figures);
        self.end_bystander(&mut bystander, &what, figures);
        let losses = if self.may_lose(point) {
            dead_receivers
        } else {
            0
        };
        self.judge(prefilled, losses, &what);
        // What the dead had leased comes back when somebody looks: others may have been received before.
        if self.scenario.bystander.sends() && !self.scenario.name.starts_with("leases") {
            // One after the other, the newcomer and the observer have received everything since the death.
            let received = self.journal.received_after(receipts);
            self.journal.check_turns(
                &received,
                |one, other| self.came_before(prefilled, one, other),
                &what,
            );
        }
        self.check_capacity(&what);
    }

    /// Waits for the death of a victim. Beside a blocked bystander it may have had nothing to do: that one looks at the
    /// queue every slice, and may have been faster.
    fn expect_death(&self, victim: &mut Child, point: &str, what: &str, figures: &mut Figures) {
        match victim.wait(STUCK) {
            Some(Exit::Signal(libc::SIGKILL)) => figures.note_kill(point),
            Some(Exit::Code(0)) if self.scenario.bystander != Bystander::Idle => {}
            other => panic!("{what}: the victim ended with {other:?}"),
        }
    }

    /// Whether a receiver that dies at this point has taken its message from the queue before.
    fn may_lose(&self, point: &str) -> bool {
        let admits = self.scenario.bystander.sends() && point.starts_with("DRAIN_");
        // Before one of a batch is copied, others were taken.
        let batch = self.scenario.name.starts_with("receives batches");
        let receives = point.starts_with("RECEIVE_") && (point != "RECEIVE_COPIED" || batch);
        admits || receives || point == "ADMIT_ACCEPTED" || point == "BATCH_TURN"
    }

    /// How many messages a process of this role may have taken, if it died inside of a receive.
    fn receiving(&self, role: usize) -> usize {
        self.journal.roles[role].receiving.swap(0, SeqCst) as usize
    }

    fn blocked(&self) -> (usize, usize) {
        let status = self.queue.status();
        (status.blocked_senders, status.blocked_receivers)
    }

    fn start_bystander(&self, what: &str) -> Child {
        let kind = self.scenario.bystander;
        let child = self.process(BYSTANDER, |actor| match kind {
            Bystander::Idle => {
                actor.me().ready.store(1, SeqCst);
                let go = wait_until(STUCK * 2, || actor.me().go.load(SeqCst) != 0);
                assert!(go, "the bystander was forgotten");
                use_both_ways(actor);
            }
            Bystander::Receives => loop {
                match actor.receive(How::Block) {
                    Ok(_) => {}
                    Err(ReceiveError::Interrupted) if actor.me().go.load(SeqCst) != 0 => return,
                    Err(ReceiveError::Interrupted) => {}
                    Err(error) => panic!("bystander: {error}"),
                }
            },
            Bystander::Sends | Bystander::SendsBatches => loop {
                let sent = match kind {
                    Bystander::Sends => actor.send(How::Block, 3, 150),
                    _ => actor.send_batch(How::Block, &[(3, 150), (3, 20)]),
                };
                match sent {
                    Ok(_) => {}
                    Err(SendError::Interrupted) if actor.me().go.load(SeqCst) != 0 => return,
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
    fn nudge(&self, victim: &mut Child, what: &str) {
        if self.scenario.nudge == Nudge::Nothing {
            return;
        }
        let waits = wait_until(STUCK, || self.blocked() != (0, 0));
        assert!(waits, "{what}: the victim does not wait");
        let _ = victim;
        match self.scenario.nudge {
            Nudge::Send => drop(self.actor(OBSERVER).send(How::Try, 3, 90)),
            _ => drop(self.actor(OBSERVER).receive(How::Try)),
        }
    }

    fn run_newcomer(&self, what: &str, figures: &mut Figures) {
        let kind = self.scenario.bystander;
        self.journal.roles[BYSTANDER]
            .go
            .store(u32::from(kind == Bystander::Idle), SeqCst);
        let mut newcomer = self.process(NEWCOMER, |actor| match kind {
            Bystander::Idle => use_both_ways(actor),
            Bystander::Receives => {
                for _ in 0..2 {
                    actor.send(How::Within(STUCK), 5, 40).expect("room");
                }
            }
            Bystander::Sends | Bystander::SendsBatches => {
                for _ in 0..2 {
                    actor.receive(How::Within(STUCK)).expect("a message");
                }
            }
        });
        newcomer.expect(Exit::Code(0), what);
        figures.note_stall(
            self.journal.roles[NEWCOMER].longest.load(SeqCst),
            &format!("{what}: newcomer"),
        );
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

    /// Makes everybody notice that dead receivers are dead, and takes out what was offered to them.
    fn take_offers_back(&self, what: &str) {
        let mut actor = self.actor(OBSERVER);
        let is_done = wait_until(STALL, || {
            let _ = actor.send(How::Try, 0, 4);
            std::thread::sleep(Duration::from_millis(105));
            while actor.receive(How::Try).is_ok() {}
            self.blocked().1 == 0
        });
        assert!(is_done, "{what}: offered to the dead for good");
    }

    /// Takes out what is left.
    fn drain(&self) -> Vec<usize> {
        let mut actor = self.actor(OBSERVER);
        std::iter::from_fn(|| actor.receive(How::Try).ok()).collect()
    }

    fn judge(&self, prefilled: usize, losses: usize, what: &str) {
        // Mends the senders' side, if that was left behind.
        let _ = self.actor(OBSERVER).send(How::Try, 0, 4);
        // Whoever asks gets an answer without what the dead held; but for the same question a tick ago.
        let returned = wait_until(STALL, || {
            let attributes = self.queue.attributes();
            attributes.leased + attributes.reserved == 0
        });
        assert!(returned, "{what}: held by the dead for good");
        if self.blocked().1 == 0 {
            self.judge_the_rest(prefilled, what);
        } else {
            self.take_offers_back(what);
        }
        let missing = self.journal.missing(what);
        if losses == 0 && self.scenario.name.contains("batch") {
            let (received, begun) = self.journal.unfinished();
            assert!(
                received == 0 || received == begun,
                "{what}: {received} of a batch of {begun}"
            );
        }
        assert!(
            missing <= losses,
            "{what}: {missing} messages lost, {losses} may be"
        );
        let rest = self.queue.attributes();
        assert_eq!(
            (rest.messages, rest.bytes),
            (0, 0),
            "{what}: attributes of an empty queue"
        );
        assert!(!self.queue.status().damaged, "{what}: marked as damaged");
    }

    /// What is left is counted exactly, and comes out in order.
    fn judge_the_rest(&self, prefilled: usize, what: &str) {
        let before = self.queue.attributes();
        let left = self.drain();
        assert_eq!(before.messages, left.len(), "{what}: attributes");
        let bytes: u64 = left
            .iter()
            .map(|&number| u64::from(self.journal.messages[number].len.load(SeqCst)))
            .sum();
        assert_eq!(before.bytes, bytes, "{what}: attributes");
        let came_before = |one, other| self.came_before(prefilled, one, other);
        self.journal.check_order(&left, came_before, what);
    }

    /// Whether a message was surely sent before another.
    fn came_before(&self, prefilled: usize, one: usize, other: usize) -> bool {
        let phase = |number: usize| {
            let sender = self.journal.messages[number].sender.load(SeqCst) as usize;
            match sender {
                _ if number < prefilled => 0,
                VICTIM => 1,
                // A blocked bystander's messages come before, between or after the victim's and the newcomer's.
                BYSTANDER => 9,
                _ => 2,
            }
        };
        match (phase(one), phase(other)) {
            (9, _) => false,
            (earlier, 9) => earlier == 0,
            (earlier, later) => earlier < later,
        }
    }

    /// Exactly as many messages fit as should, twice, and in no more memory than before.
    fn check_capacity(&mut self, what: &str) {
        let depth = self.scenario.depth as usize;
        for _ in 0..2 {
            self.journal.reset();
            let mut actor = self.actor(OBSERVER);
            let (mut sent, mut bytes) = (0, 0);
            let mut random = Random::new(sent as u64);
            let refused = loop {
                let (priority, len) = any(&mut random);
                match actor.send(How::Try, priority, len.min(256)) {
                    Ok(_) => {
                        sent += 1;
                        bytes += len.clamp(SHORTEST, 256) as u64;
                    }
                    Err(error) => break error,
                }
                assert!(sent <= depth, "{what}: more messages fit than should");
            };
            assert_eq!(refused, SendError::Full, "{what}");
            assert_eq!(sent, depth, "{what}: fewer messages fit than should");
            let attributes = self.queue.attributes();
            assert_eq!(
                (attributes.messages, attributes.bytes),
                (sent, bytes),
                "{what}"
            );
            let received = self.drain();
            assert_eq!(received.len(), depth, "{what}");
            self.journal.check_order(&received, |_, _| false, what);
            assert_eq!(self.journal.missing(what), 0, "{what}: lost at rest");
        }
    }

    /// Slots and memory are the same after any number of kills.
    fn check_memory(&mut self, round: u32, what: &str) {
        let status = self.queue.status();
        let depth = self.scenario.depth as usize;
        // They come in pages of 32, or a sixteenth at a time. The depths leave two to spare: for a bystander that is
        // blocked, and for the victim. A slot that is lost takes one of them.
        let most = (depth + 2).next_multiple_of(32).max(depth + depth / 16);
        assert!(
            status.slots <= most,
            "{what}: {} slots in round {round}",
            status.slots
        );
        if round < 2 {
            self.settled = Some(status.memory);
        } else if let Some(settled) = self.settled {
            // The arena grows by 64 KiB: what is free lies otherwise each time.
            assert!(
                status.memory <= settled + (128 << 10),
                "{what}: grew from {settled} to {} bytes in {round} rounds",
                status.memory
            );
        }
    }
}

/// A send and a receive; of a full queue two receives first, because a message of the dead may take the place of one.
fn use_both_ways(actor: &mut Actor<'_>) {
    match actor.send(How::Try, 4, 80) {
        Ok(_) => {}
        Err(SendError::Full) => {
            actor.receive(How::Within(STUCK)).expect("a message");
            actor.receive(How::Within(STUCK)).expect("a message");
            actor.send(How::Within(STUCK), 4, 80).expect("room");
            return;
        }
        Err(error) => panic!("{error}"),
    }
    actor.receive(How::Within(STUCK)).expect("a message");
}

/// Kills at every point of every scenario that `select` chooses.
fn kill_at_every_point(title: &str, select: impl Fn(&Scenario) -> bool) {
    let _turn = turn();
    let mut figures = Figures::default();
    let mut any = false;
    for scenario in SCENARIOS.iter().filter(|scenario| select(scenario)) {
        any = true;
        for point in scenario.points {
            kill_often(scenario, point, &mut figures);
        }
    }
    assert!(any, "no scenario of that kind");
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
    let mut killed: Vec<&str> = SCENARIOS
        .iter()
        .flat_map(|scenario| scenario.points)
        .copied()
        .collect();
    killed.extend(CREATE_POINTS);
    killed.extend(REPAIR_POINTS);
    killed.extend(TAKE_BACK_POINTS);
    // In tests/crash_policies.rs.
    killed.extend(["ASIDE_HELD", "MOVE_BEGUN"]);
    // In tests/crash_notification.rs.
    killed.extend([
        "NOTICE_FILLED",
        "NOTICE_ARMED",
        "NOTICE_WITHDRAWN",
        "NOTICE_NOTED",
        "NOTICE_FIRED",
        "NOTICE_UNTOLD",
        "NOTICE_RAISED",
    ]);
    // Those of System V queues, of doorbells and of rings have tests of their own.
    let others = ["MSG", "BELL", "RING"];
    let posix = POINTS
        .iter()
        .filter(|(_, name, _)| !others.iter().any(|other| name.starts_with(other)));
    for (_, name, what) in posix {
        assert!(killed.contains(name), "nobody dies at {name} ({what})");
    }
    for name in &killed {
        assert!(
            POINTS.iter().any(|(_, known, _)| known == name),
            "there is no point {name}"
        );
    }
    for (scenario, point) in DEADLY {
        let scenario = SCENARIOS.iter().find(|known| known.name == *scenario);
        assert!(
            scenario.is_some_and(|known| known.points.contains(point)),
            "{point}"
        );
    }
}

#[test]
fn a_killed_sender_leaves_a_whole_message_or_none_and_stops_nobody() {
    kill_at_every_point("killed senders", |scenario| {
        scenario.name.starts_with("sends")
    });
}

#[test]
fn a_killed_receiver_takes_at_most_its_own_message_along_and_stops_nobody() {
    kill_at_every_point("killed receivers", |scenario| {
        scenario.name.starts_with("receives")
    });
}

#[test]
fn what_a_killed_holder_leased_is_delivered_again_and_what_it_reserved_is_free() {
    kill_at_every_point("killed holders", |scenario| {
        scenario.name.starts_with("leases")
    });
}

#[test]
fn a_process_killed_while_it_waits_stops_nobody() {
    kill_at_every_point("killed waiters", |scenario| {
        ["begins", "is woken", "waits"]
            .iter()
            .any(|verb| scenario.name.starts_with(verb))
    });
}

#[test]
fn a_process_killed_while_a_queue_grows_loses_no_slot() {
    kill_at_every_point("killed growers", |scenario| {
        scenario.name.starts_with("fills")
    });
}

#[test]
fn a_repairer_that_is_killed_is_itself_repaired() {
    let _turn = turn();
    let mut figures = Figures::default();
    for (name, point) in DEADLY {
        let scenario = SCENARIOS
            .iter()
            .find(|scenario| scenario.name == *name)
            .unwrap();
        for repairer in REPAIR_POINTS {
            let mut stage = Stage::new(scenario);
            for round in 0..2 {
                if scenario.fresh {
                    stage = Stage::new(scenario);
                }
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
fn who_is_killed_while_taking_back_a_batch_is_itself_repaired() {
    let _turn = turn();
    let mut figures = Figures::default();
    let scenario = SCENARIOS
        .iter()
        .find(|scenario| scenario.name == "sends batches")
        .unwrap();
    for point in ["BATCH_NOTED", "BATCH_STAMPED"] {
        let mut stage = Stage::new(scenario);
        for round in 0..5 {
            stage.round(point, 1 + round, Some(TAKE_BACK_POINTS[0]), &mut figures);
        }
    }
    assert!(figures.kills_at(TAKE_BACK_POINTS[0]) > 0);
    figures.print("killed while taking back");
}

#[test]
fn a_queue_whose_creator_is_killed_exists_whole_or_not_at_all() {
    let _turn = turn();
    for point in CREATE_POINTS {
        for _ in 0..5 {
            let place = Place::new();
            let mut creator = Child::run(|| {
                crash::arm(point, 1);
                drop(place.create("/new", 5, 100));
                0
            });
            creator.expect(Exit::Signal(libc::SIGKILL), point);
            let names: Vec<String> = umsg::posix::list(&place.namespace)
                .unwrap()
                .into_iter()
                .map(|listed| listed.name.into_string().unwrap())
                .collect();
            let exists = *point == "CREATE_NAMED";
            assert_eq!(names, if exists { vec!["/new"] } else { vec![] }, "{point}");
            let files = std::fs::read_dir(place.path().join("mq")).unwrap().count();
            assert_eq!(
                files,
                usize::from(exists),
                "{point}: something was left behind"
            );

            let mut newcomer = Child::run(|| {
                let queue = place.create("/new", 5, 100);
                queue.try_send(b"hello", 1).unwrap();
                0
            });
            newcomer.expect(Exit::Code(0), point);
            let queue = place.open("/new");
            assert_eq!(queue.receive_vec().unwrap().data, b"hello", "{point}");
            assert_eq!(queue.attributes().max_messages, 5, "{point}");
        }
    }
}

#[test]
fn a_sender_that_does_not_block_gets_the_room_that_a_killed_receiver_made() {
    let _turn = turn();
    let place = Place::new();
    let queue = place.create("/q", 4, 64);
    for message in 0..4_u8 {
        queue.try_send(&[message], 0).unwrap();
    }
    let mut victim = Child::run(|| {
        crash::arm("RECEIVE_FREED", 1);
        let _ = place.open("/q").receive(&mut [0; 64]);
        0
    });
    victim.expect(Exit::Signal(libc::SIGKILL), "RECEIVE_FREED");
    assert_eq!(queue.try_send(b"fits", 0), Ok(()));
    assert_eq!(queue.try_send(b"does not", 0), Err(SendError::Full));
}

#[test]
fn a_reservation_gets_the_room_that_a_killed_receiver_made() {
    let _turn = turn();
    let place = Place::new();
    let queue = place.create("/q", 1, 64);
    queue.try_send(b"", 0).unwrap();
    let mut victim = Child::run(|| {
        crash::arm("RECEIVE_FREED", 1);
        let _ = place.open("/q").receive(&mut [0; 64]);
        0
    });
    victim.expect(Exit::Signal(libc::SIGKILL), "RECEIVE_FREED");
    assert!(queue.try_reserve(64).is_ok());
}

#[test]
fn a_lease_that_was_being_returned_when_its_returner_died_leaves_no_count_behind() {
    let _turn = turn();
    let place = Place::new();
    let queue = place.create("/q", 1, 64);
    queue.try_send(b"job", 0).unwrap();
    let lease = queue.receive_lease().unwrap();
    lease.limit(Duration::ZERO).unwrap();
    let mut victim = Child::run(|| {
        crash::arm("RETURN_MARKED", 1);
        let queue = place.open("/q");
        let _ = wait_until(STUCK, || queue.try_receive(&mut [0; 64]).is_ok());
        0
    });
    victim.expect(Exit::Signal(libc::SIGKILL), "RETURN_MARKED");
    lease.acknowledge().unwrap();
    // Each slot in turn.
    for _ in 0..64 {
        queue.try_send(b"next", 0).unwrap();
        let lease = queue.try_receive_lease().unwrap();
        assert_eq!(lease.deliveries(), 1);
        lease.acknowledge().unwrap();
    }
}

#[test]
fn what_a_killed_sender_published_is_counted() {
    let _turn = turn();
    let place = Place::new();
    let queue = place.create("/q", 4, 64);
    let mut victim = Child::run(|| {
        crash::arm("SEND_PUBLISHED", 1);
        let _ = place.open("/q").try_send(b"four", 0);
        0
    });
    victim.expect(Exit::Signal(libc::SIGKILL), "SEND_PUBLISHED");
    let attributes = queue.attributes();
    assert_eq!((attributes.messages, attributes.bytes), (1, 4));
    assert_eq!(queue.receive_vec().unwrap().data, b"four");
    assert_eq!(queue.attributes().messages, 0);
}

/// A victim that dies at `point` in `work`, on a queue of one message whose waits all go through a node.
fn die_waiting(place: &Place, point: &str, work: impl FnOnce(&Queue)) -> Child {
    Child::run(|| {
        let queue = place.open("/q");
        queue.set_waiting(Waiting::Blocking);
        crash::arm(point, 1);
        work(&queue);
        0
    })
}

#[test]
fn nothing_is_offered_to_a_receiver_that_the_kernel_has_marked_as_dead() {
    let _turn = turn();
    let place = Place::new();
    let queue = place.create("/q", 1, 64);
    for _ in 0..10 {
        let mut victim = die_waiting(&place, "WAIT_NAMED", |queue| drop(queue.receive_vec()));
        victim.expect(Exit::Signal(libc::SIGKILL), "WAIT_NAMED");
        queue.try_send(b"for the living", 0).unwrap();
        assert_eq!(
            queue.try_receive(&mut [0; 64]).map(|received| received.len),
            Ok(14)
        );
        assert_eq!(queue.status().blocked_receivers, 0);
    }
}

#[test]
fn a_message_whose_receiver_was_woken_and_died_is_back_at_once() {
    let _turn = turn();
    let place = Place::new();
    let queue = place.create("/q", 1, 64);
    for _ in 0..10 {
        let mut victim = die_waiting(&place, "WAIT_WOKEN", |queue| drop(queue.receive_vec()));
        assert!(wait_until(STUCK, || queue.status().blocked_receivers == 1));
        queue.try_send(b"back", 0).unwrap();
        victim.expect(Exit::Signal(libc::SIGKILL), "WAIT_WOKEN");
        assert_eq!(
            queue.try_receive(&mut [0; 64]).map(|received| received.len),
            Ok(4)
        );
        assert_eq!(queue.status().blocked_receivers, 0);
    }
}

#[test]
fn the_message_of_a_blocked_sender_that_died_is_never_sent() {
    let _turn = turn();
    let place = Place::new();
    let queue = place.create("/q", 1, 64);
    for _ in 0..10 {
        queue.try_send(b"sent", 0).unwrap();
        let mut victim = die_waiting(&place, "WAIT_NAMED", |queue| {
            queue.send(b"never", 0).unwrap()
        });
        victim.expect(Exit::Signal(libc::SIGKILL), "WAIT_NAMED");
        assert_eq!(
            queue.try_receive(&mut [0; 64]).map(|received| received.len),
            Ok(4)
        );
        assert_eq!(queue.try_receive(&mut [0; 64]), Err(ReceiveError::Empty));
        assert_eq!(queue.status().blocked_senders, 0);
    }
}
