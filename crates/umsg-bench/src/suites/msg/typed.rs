//! One thread receives by type from a queue that holds many messages.
//!
//! The suite times bursts of receives, and does nothing else between two readings of the clock. Before the next burst, it sends the received
//! messages again, untimed, so that the queue keeps its depth.

use std::time::Duration;

use super::mixed_up;
use super::sides::{Ablation, Sides, Workload};
use crate::backends::typed::{SIZE, TypedQueue, Want, kernel};
use crate::clock;
use crate::failure::Failure;
use crate::harness::Plan;
use crate::row::{Better, Row};
use crate::stats;
use crate::suites::pairs::{receive_failed, send_failed};
use crate::suites::priorities::{Priorities as _, Random};

/// The numbers of messages that stay in the queue.
const DEPTHS: [u64; 2] = [1_000, 15_000];

/// The bytes of all messages in the largest queue that is measured.
pub const MOST_BYTES: u64 = (DEPTHS[DEPTHS.len() - 1] + BURST) * SIZE;

/// The number of receives between two readings of the clock, and of messages in the queue beyond the depth.
const BURST: u64 = 64;

/// The goal at the greatest depth: the minimum of the kernel's time divided by umsg's time. At that depth, the kernel walks along all messages.
const GOAL: f64 = 500.0;

/// The type of all messages of the backlog, if the backlog has one type.
const OTHER: i64 = 2;
/// The received type, if the backlog has one type.
const WANTED: i64 = 1;

/// The lowest type of a queue in which all messages have different types. Type 1 is not used: the kernel ends its search at a message of type 1.
const LOWEST: i64 = 2;

/// The messages in the queue, and the messages that are received.
#[derive(Clone, Copy)]
enum Crowd {
    /// The backlog has one type. The messages after the backlog have another type, and are received by their type.
    OneType,
    /// The messages are those of `OneType`. The messages after the backlog are received as messages of any type except the backlog's.
    OneTypeExcept,
    /// All messages have different types. One of the last messages is received by its type.
    TypesNewest,
    /// The messages are those of `TypesNewest`. A message at any place is received by its type.
    TypesRandom,
    /// The messages are those of `TypesNewest`. A message of the lowest type is received.
    TypesLowest,
}

impl Crowd {
    const ALL: [Self; 5] = [
        Self::OneType,
        Self::OneTypeExcept,
        Self::TypesNewest,
        Self::TypesRandom,
        Self::TypesLowest,
    ];

    fn is_of_one_type(self) -> bool {
        matches!(self, Self::OneType | Self::OneTypeExcept)
    }

    fn describe(self, depth: u64) -> String {
        match self {
            Self::OneType => format!("a type behind {depth} messages of another"),
            Self::OneTypeExcept => format!("except one type, behind {depth} messages of it"),
            Self::TypesNewest => format!("a new message among {depth} types"),
            Self::TypesRandom => format!("any message among {depth} types"),
            Self::TypesLowest => format!("the lowest of {depth} types"),
        }
    }
}

pub fn rows(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for depth in DEPTHS {
        let allowed = kernel::deepest(depth + BURST)?;
        for crowd in Crowd::ALL {
            rows.push(row(plan, crowd, depth, allowed)?);
        }
    }
    Ok(rows)
}

/// Returns the rows of the suite "guard".
pub fn guard(plan: &Plan) -> Result<Row, Failure> {
    let depth = DEPTHS[DEPTHS.len() - 1];
    row(plan, Crowd::OneType, depth, kernel::deepest(depth + BURST)?)
}

fn row(plan: &Plan, crowd: Crowd, depth: u64, allowed: u64) -> Result<Row, Failure> {
    let name = crowd.describe(depth);
    let budget = plan.budget;
    let ours = Receives {
        crowd,
        depth,
        budget,
    };
    let kernels = Receives {
        depth: depth.min(allowed - BURST),
        ..ours
    };
    let sides = Sides::measure(plan, &name, &ours, &kernels, Ablation::LeaveOut)?;
    let row = sides
        .row(name, "ns", Better::Less, |&receive| receive)
        .note("of the receive alone")
        .note(kernel::describe(kernels.depth, depth));
    Ok(match crowd {
        Crowd::TypesRandom => row.note(
            "no goal: the kernel walks half of its list on average, and umsg's time is that of lines that no near cache holds",
        ),
        // The goal applies only if the kernel's queue has the same depth: the ratio to a less deep queue means little.
        _ if kernels.depth == DEPTHS[DEPTHS.len() - 1] => row.goal_ratio(GOAL),
        _ => row,
    })
}

#[derive(Clone, Copy)]
struct Receives {
    crowd: Crowd,
    depth: u64,
    budget: Duration,
}

impl Workload for Receives {
    /// The nanoseconds of a receive.
    type Found = f64;

    fn round<Q: TypedQueue>(&self) -> Result<f64, Failure> {
        let queue = Q::make((self.depth + BURST) * SIZE)?;
        let mut crowded = Crowded {
            queue: &queue,
            crowd: self.crowd,
            depth: self.depth,
            random: Random::FIRST,
        };
        crowded.fill()?;
        // After this burst, the caches are warm, and no work is left over from filling.
        crowded.burst()?;
        let end = clock::now() + self.budget.as_nanos() as u64;
        let mut bursts = Vec::new();
        while bursts.is_empty() || clock::now() < end {
            bursts.push(crowded.burst()?);
        }
        Ok(stats::median(&bursts))
    }
}

/// A queue with its messages. The text of each message is the message's type.
struct Crowded<'a, Q> {
    queue: &'a Q,
    crowd: Crowd,
    depth: u64,
    random: Random,
}

/// A receive, and the type of the message that the receive must find.
type Wish = (Want, i64);

impl<Q: TypedQueue> Crowded<'_, Q> {
    fn fill(&mut self) -> Result<(), Failure> {
        for index in 0..self.depth {
            self.send(if self.crowd.is_of_one_type() {
                OTHER
            } else {
                self.scattered(index)
            })?;
        }
        Ok(())
    }

    /// Makes a burst of receives, and returns the nanoseconds of a receive. If the backlog has one type, the messages for the burst are sent before
    /// it; otherwise the received messages are sent again after it.
    fn burst(&mut self) -> Result<f64, Failure> {
        let wishes = self.wishes();
        if self.crowd.is_of_one_type() {
            self.send_all(&wishes)?;
        }
        let start = clock::now();
        for &(want, mtype) in &wishes {
            let received = self.queue.try_receive(want).map_err(receive_failed)?;
            if received != mtype as u64 {
                return Err(mixed_up(mtype as u64, received));
            }
        }
        let taken = (clock::now() - start) as f64 - clock::overhead();
        if !self.crowd.is_of_one_type() {
            self.send_all(&wishes)?;
        }
        Ok(taken / BURST as f64)
    }

    fn wishes(&mut self) -> Vec<Wish> {
        let burst = 0..BURST as i64;
        match self.crowd {
            Crowd::OneType => burst.map(|_| (Want::Exactly(WANTED), WANTED)).collect(),
            Crowd::OneTypeExcept => burst.map(|_| (Want::Except(OTHER), WANTED)).collect(),
            Crowd::TypesNewest => self.newest_types(),
            Crowd::TypesRandom => self.random_types(),
            Crowd::TypesLowest => {
                let highest = LOWEST + self.depth as i64;
                let wish = |index| (Want::Lowest(highest), LOWEST + index);
                burst.map(wish).collect()
            }
        }
    }

    /// Returns the type of the message with this index in the filled queue. The types are in an order that neither increases nor decreases. The
    /// factor is a prime that divides no depth, so each type occurs once.
    fn scattered(&self, index: u64) -> i64 {
        LOWEST + (index * 7919 % self.depth) as i64
    }

    /// Returns the types of the messages that were sent last when the queue was filled. These messages are sent again after each burst.
    fn newest_types(&self) -> Vec<Wish> {
        let newest = (self.depth - BURST..self.depth).map(|index| self.scattered(index));
        newest.map(|mtype| (Want::Exactly(mtype), mtype)).collect()
    }

    /// Returns random types, all different. If bursts took the types in turn, the next types would always be those of the oldest messages, which come
    /// first in the kernel's list.
    fn random_types(&mut self) -> Vec<Wish> {
        let mut wishes: Vec<Wish> = Vec::with_capacity(BURST as usize);
        while wishes.len() < BURST as usize {
            let mtype = LOWEST + i64::from(self.random.next()) % self.depth as i64;
            if wishes.iter().all(|&(_, other)| other != mtype) {
                wishes.push((Want::Exactly(mtype), mtype));
            }
        }
        wishes
    }

    fn send_all(&self, wishes: &[Wish]) -> Result<(), Failure> {
        wishes.iter().try_for_each(|&(_, mtype)| self.send(mtype))
    }

    fn send(&self, mtype: i64) -> Result<(), Failure> {
        self.queue
            .try_send(mtype, mtype as u64)
            .map_err(send_failed)
    }
}
