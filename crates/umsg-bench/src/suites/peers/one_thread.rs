//! One thread that sends a message and receives it, over and over.

use crate::backends::Spec;
use crate::child::{self, Child};
use crate::clock;
use crate::failure::Failure;
use crate::harness::Plan;
use crate::peers::{Link, Peer, SIZE, Way};
use crate::shared::SharedWords;
use crate::suites::duet::Letter;

use super::pair;

/// The depth of the queue, which never has more than one message.
const DEPTH: u32 = 10;

/// The number of pairs before the measurement.
const WARM_UP: u64 = 200;

/// The number of pairs between two readings of the clock.
const CHUNK: u64 = 32;

/// Measures the nanoseconds of a pair, in a separate process: this process must not keep the state of a peer's library, because forked processes
/// would inherit that state.
pub fn measure<P: Peer>(peer: &P, plan: &Plan) -> Result<f64, Failure> {
    let link = peer.make(&Spec {
        depth: DEPTH,
        message_size: SIZE as u32,
    })?;
    let words = SharedWords::new(2)?;
    let budget = plan.budget.as_nanos() as u64;
    let work = || {
        let way = match P::ABILITIES.polls {
            true => Way::Polling,
            false => Way::Waiting,
        };
        let mut letter = Letter::new(SIZE);
        let mut receiver = link.receiver(way)?;
        let mut sender = link.sender(way)?;
        let mut next = 0;
        let mut pairs = |count: u64| {
            for number in next..next + count {
                pair::send(&mut sender, way, letter.write(number, 0))?;
                pair::receive(&mut receiver, way, letter.buffer())?;
            }
            next += count;
            Ok::<_, Failure>(())
        };
        pairs(WARM_UP)?;
        let start = clock::now();
        let (mut done, mut now) = (0, start);
        while now < start + budget {
            pairs(CHUNK)?;
            done += CHUNK;
            now = clock::now();
        }
        words.set(0, done);
        words.set(1, now - start);
        Ok(())
    };
    child::wait_for_all(&mut [Child::start(&[plan.cpus.first], work)?])?;
    Ok(words.get(1) as f64 / words.get(0) as f64)
}
