//! Two members that work together, each on its own CPU. The members are processes, or threads if the peer works only between threads.

use std::hint;
use std::time::Duration;

use super::SUITE;
use crate::backends::Errno;
use crate::failure::Failure;
use crate::harness::Plan;
use crate::peers::{Peer, Receiver, Sender, Way};
use crate::suites::ring::stage::{self, Member, Place};

/// Runs both members to their ends. Each member gets a closure and calls it when the member is ready. The closure returns when the other member is
/// ready, too.
pub fn run<P: Peer>(
    plan: &Plan,
    first: impl FnOnce(&dyn Fn()) -> Result<(), Failure> + Send,
    second: impl FnOnce(&dyn Fn()) -> Result<(), Failure> + Send,
) -> Result<(), Failure> {
    let place = match P::ABILITIES.crosses {
        true => Place::Processes,
        false => Place::Threads,
    };
    let [first_cpu, second_cpu] = plan.cpus.two(SUITE)?;
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

/// Returns the time for which the two members work in a round. The time is short, because there are many peers.
pub fn budget(plan: &Plan) -> Duration {
    plan.duo_budget / 4
}

/// Repeats the attempt until it does not fail with [`Errno::AGAIN`].
#[inline]
fn polling<T>(mut attempt: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match attempt() {
            Err(Errno::AGAIN) => hint::spin_loop(),
            other => return other,
        }
    }
}

/// Sends a message, and waits in this way.
#[inline]
pub fn send(end: &mut impl Sender, way: Way, message: &[u8]) -> Result<(), Failure> {
    let sent = match way {
        Way::Polling => polling(|| end.try_send(message)),
        _ => end.send(message),
    };
    sent.map_err(|errno| Failure::queue("a send failed", errno))
}

/// Receives a message, and waits in this way.
#[inline]
pub fn receive(end: &mut impl Receiver, way: Way, buffer: &mut [u8]) -> Result<(), Failure> {
    let received = match way {
        Way::Polling => polling(|| end.try_receive(buffer)),
        _ => end.receive(buffer),
    };
    received.map_err(|errno| Failure::queue("a receive failed", errno))
}
