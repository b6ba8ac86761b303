//! Two members that work together, each on its own CPU: processes, or threads if the peer supports no more.

use std::hint;
use std::time::Duration;

use crate::backends::Errno;
use crate::failure::Failure;
use crate::harness::Plan;
use crate::peers::{Peer, Receiver, Sender, Way};
use crate::suites::ring::stage::{self, Member, Place};

/// Runs both to their ends. Each gets a closure to call when it is ready, which returns when the other one is ready, too.
pub fn run<P: Peer>(
    plan: &Plan,
    first: impl FnOnce(&dyn Fn()) -> Result<(), Failure> + Send,
    second: impl FnOnce(&dyn Fn()) -> Result<(), Failure> + Send,
) -> Result<(), Failure> {
    let place = match P::ABILITIES.crosses {
        true => Place::Processes,
        false => Place::Threads,
    };
    let [first_cpu, second_cpu] = cpus(plan)?;
    let first = Member {
        cpu: first_cpu,
        work: Box::new(first),
    };
    let second = Member {
        cpu: second_cpu,
        work: Box::new(second),
    };
    stage::run(place, vec![first, second])
}

/// The two CPUs.
pub fn cpus(plan: &Plan) -> Result<[usize; 2], Failure> {
    let second = plan.cpus.second;
    let second = second
        .ok_or_else(|| Failure::new("peers needs two CPUs, and one is all that we may use"))?;
    Ok([plan.cpus.first, second])
}

/// Returns the time that the two work in a round: there are many peers.
pub fn budget(plan: &Plan) -> Duration {
    plan.duo_budget / 4
}

/// Sends, in this way.
#[inline]
pub fn send(end: &mut impl Sender, way: Way, message: &[u8]) -> Result<(), Failure> {
    let sent = match way {
        Way::Polling => loop {
            match end.try_send(message) {
                Err(Errno::AGAIN) => hint::spin_loop(),
                other => break other,
            }
        },
        _ => end.send(message),
    };
    sent.map_err(|errno| Failure::queue("a send failed", errno))
}

/// Receives, in this way.
#[inline]
pub fn receive(end: &mut impl Receiver, way: Way, buffer: &mut [u8]) -> Result<(), Failure> {
    let received = match way {
        Way::Polling => loop {
            match end.try_receive(buffer) {
                Err(Errno::AGAIN) => hint::spin_loop(),
                other => break other,
            }
        },
        _ => end.receive(buffer),
    };
    received.map_err(|errno| Failure::queue("a receive failed", errno))
}
