//! Kills one of two busy processes, and checks whether the surviving processes can continue.
//!
//! ```text
//!  sender ──▶ queue ──▶ receiver       both as fast as they can
//!    ✗ SIGKILL, after 0 to 10 ms       (or the receiver)
//!  another sender ──▶ queue ──▶ the same receiver: both must get on
//! ```
//!
//! Each trial has its own queue. After the kill, a new process (the newcomer) takes the role of the killed process. The trial succeeds when the
//! survivor and the newcomer have each handled more messages than were in the queue at the kill. The trial fails when the survivor or the newcomer
//! handles no message for a second. During that second, the next trial begins; a stuck process does not disturb the next trial, because it sleeps.

use std::thread;
use std::time::Duration;

use crate::backends::Spec;
use crate::child::Child;
use crate::clock;
use crate::failure::Failure;
use crate::found::KillTrial;
use crate::harness::Plan;
use crate::peers::{Link, Peer, Receiver as _, SIZE, Sender as _, Way};
use crate::shared::SharedWords;
use crate::suites::duet::Letter;

use super::SUITE;

/// The depths of successive trials: from the kernel's default, at which sender and receiver often wait for each other, up to a depth at which they
/// seldom wait.
pub const DEPTHS: [u32; 3] = [10, 128, 1024];

/// The number of messages that each process handles before any process is killed.
const WARM_UP: u64 = 64;

/// Nanoseconds within which both processes have to handle their first message.
const START: u64 = 10_000_000_000;

/// The maximum time of work before the kill, in nanoseconds.
const WORK: u64 = 10_000_000;

/// The number of messages that a process must handle after the kill, as a proof that it works: more than any peer with a bounded queue can hold.
const ENOUGH: u64 = 1_200;

/// Nanoseconds without a message after which a process is stuck.
const PATIENCE: u64 = 1_000_000_000;

/// The nanoseconds for which a trial has the CPUs to itself after the kill. A process that is not stuck finishes within this time.
const GLANCE: u64 = 50_000_000;

/// The interval between two checks of the tallies.
const LOOK: Duration = Duration::from_micros(200);

/// The roles of the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Sender,
    Receiver,
}

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Self::Sender => "sender",
            Self::Receiver => "receiver",
        }
    }
}

/// Kills a process of the role `victim` in each of `kills` trials, and counts the trials in which the surviving process got stuck.
pub fn measure<P: Peer>(
    peer: &P,
    plan: &Plan,
    victim: Role,
    kills: u32,
) -> Result<KillTrial, Failure> {
    let name = format!("{}, {} killed", peer.name(), victim.name());
    let mut random = Random(clock::now());
    let (mut open, mut stuck) = (Vec::new(), 0);
    for kill in 0..kills {
        plan.progress_of(&format!("peers: {name}"), kill, kills);
        let depth = DEPTHS[kill as usize % DEPTHS.len()];
        let work = Duration::from_nanos(random.next() % WORK);
        let mut trial = Trial::kill_one(peer, plan, victim, depth, work)?;
        let end = clock::now() + GLANCE;
        while trial.state() == State::Open && clock::now() < end {
            thread::sleep(LOOK);
        }
        open.push(trial);
        stuck += close(&mut open);
    }
    while !open.is_empty() {
        thread::sleep(LOOK);
        stuck += close(&mut open);
    }
    Ok(KillTrial {
        peer: name,
        kills,
        stuck,
    })
}

/// Ends the decided trials. Returns the number of trials with a stuck process.
fn close<L>(open: &mut Vec<Trial<L>>) -> u32 {
    let mut stuck = 0;
    open.retain_mut(|trial| {
        let state = trial.state();
        stuck += u32::from(state == State::Stuck);
        state == State::Open
    });
    stuck
}

#[derive(PartialEq, Eq)]
enum State {
    Open,
    Over,
    Stuck,
}

/// The remaining processes of one trial. The processes end with the trial, before the link.
struct Trial<L> {
    _children: [Child; 2],
    _link: L,
    tallies: SharedWords,
    /// The survivor's tally at the time of the kill.
    before: u64,
    /// The index of the survivor's tally in `tallies`.
    lived: usize,
    /// The number of messages that the slower of the two processes has handled since the kill.
    least: u64,
    /// The time of the last change of `least`.
    grown: u64,
}

/// The counter of the process that starts after the kill. The first two processes use the counters of their roles.
const NEWCOMER: usize = 2;

impl<L: Link> Trial<L> {
    fn kill_one<P: Peer<Link = L>>(
        peer: &P,
        plan: &Plan,
        victim: Role,
        depth: u32,
        work: Duration,
    ) -> Result<Self, Failure> {
        let cpus = plan.cpus.two(SUITE)?;
        let carries = P::ABILITIES.carries;
        let link = peer.make(&Spec {
            depth,
            message_size: SIZE as u32,
        })?;
        let tallies = SharedWords::new(3 * APART)?;
        let start = |role, place| {
            let cpu = [cpus[role as usize]];
            Child::start(&cpu, || busy(&link, role, carries, &tallies, place))
        };
        let sender = start(Role::Sender, Role::Sender as usize)?;
        let receiver = start(Role::Receiver, Role::Receiver as usize)?;
        let end = clock::now() + START;
        while (0..2).any(|place| tallies.get(place * APART) < WARM_UP) {
            if clock::now() > end {
                return Err(Failure::new(
                    "the sender and the receiver did not start to exchange messages",
                ));
            }
            thread::sleep(LOOK);
        }
        thread::sleep(work);
        let (lived, survivor) = match victim {
            Role::Sender => {
                drop(sender);
                (Role::Receiver, receiver)
            }
            Role::Receiver => {
                drop(receiver);
                (Role::Sender, sender)
            }
        };
        let lived = lived as usize;
        let before = tallies.get(lived * APART);
        let newcomer = start(victim, NEWCOMER)?;
        Ok(Self {
            _children: [survivor, newcomer],
            before,
            lived,
            least: 0,
            grown: clock::now(),
            tallies,
            _link: link,
        })
    }
}

impl<L> Trial<L> {
    fn state(&mut self) -> State {
        let lived = self.tallies.get(self.lived * APART) - self.before;
        let least = lived.min(self.tallies.get(NEWCOMER * APART));
        if least >= ENOUGH {
            return State::Over;
        }
        let now = clock::now();
        if least > self.least {
            (self.least, self.grown) = (least, now);
        }
        match now > self.grown + PATIENCE {
            true => State::Stuck,
            false => State::Open,
        }
    }
}

/// The distance between two tallies, in words. At this distance, the tallies share no cache line.
const APART: usize = 16;

/// Sends or receives until the process itself is killed.
fn busy(
    link: &impl Link,
    role: Role,
    carries: bool,
    tallies: &SharedWords,
    place: usize,
) -> Result<(), Failure> {
    let mut letter = Letter::new(SIZE);
    let failed = |errno| Failure::queue(role.name(), errno);
    match role {
        Role::Sender => {
            let mut end = link.sender(Way::Waiting)?;
            for number in 1.. {
                end.send(letter.write(number, 0)).map_err(failed)?;
                tallies.set(place * APART, number);
            }
        }
        Role::Receiver => {
            let mut end = link.receiver(Way::Waiting)?;
            for number in 1.. {
                end.receive(letter.buffer()).map_err(failed)?;
                if carries {
                    // The message may come from the killed sender or from the new one, but must be complete.
                    letter.read(letter.number())?;
                }
                tallies.set(place * APART, number);
            }
        }
    }
    Ok(())
}

/// Random moments for the kills.
struct Random(u64);

impl Random {
    /// Returns the next number of Marsaglia's xorshift.
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
