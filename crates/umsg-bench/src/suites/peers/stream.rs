//! One process sends, and another process receives, as fast as they can.

use crate::backends::Spec;
use crate::clock;
use crate::failure::Failure;
use crate::harness::Plan;
use crate::peers::{Link, Peer, SIZE, Sender as _, Way};
use crate::shared::SharedWords;
use crate::suites::duet::{LAST, Letter};
use crate::suites::stream::{self, WORDS, Word};

use super::pair;

/// The number of messages that may be sent and not yet received, for peers with a setting for this number.
const DEPTH: u32 = 1024;

/// The number of messages before the measurement.
const WARM_UP: u64 = 2_000;

/// The number of messages after which the sender checks whether the round is over.
const LOOK: u64 = 64;

/// The results of one round.
pub struct Flow {
    /// The rate, in million messages a second.
    pub rate: f64,
    /// The CPU time of both processes and of a server, in nanoseconds a message.
    pub cpu: f64,
}

pub fn measure<P: Peer>(peer: &P, plan: &Plan, way: Way) -> Result<Flow, Failure> {
    let link = peer.make(&Spec {
        depth: DEPTH,
        message_size: SIZE as u32,
    })?;
    let words = SharedWords::new(WORDS)?;
    let budget = pair::budget(plan).as_nanos() as u64;
    let server = peer.server_cpu();
    pair::run::<P>(
        plan,
        |ready| sender(&link, way, ready, budget, &words),
        |ready| receiver(&link, way, ready, &words),
    )?;
    let server = peer.server_cpu().saturating_sub(server) as f64;
    let messages = words.get(Word::Messages as usize) as f64;
    let flow = stream::Flow::of(&words);
    Ok(Flow {
        rate: flow.rate,
        cpu: flow.cpu + server / (messages + WARM_UP as f64),
    })
}

fn sender(
    link: &impl Link,
    way: Way,
    ready: &dyn Fn(),
    budget: u64,
    words: &SharedWords,
) -> Result<(), Failure> {
    let mut end = link.sender(way)?;
    let mut letter = Letter::new(SIZE);
    ready();
    for number in 0..WARM_UP {
        pair::send(&mut end, way, letter.write(number, 0))?;
    }
    let cpu = clock::thread_cpu();
    let over = clock::now() + budget;
    let mut number = WARM_UP;
    while !number.is_multiple_of(LOOK) || clock::now() < over {
        pair::send(&mut end, way, letter.write(number, 0))?;
        number += 1;
    }
    pair::send(&mut end, way, letter.write(number, LAST))?;
    end.flush()
        .map_err(|errno| Failure::queue("the last of a stream", errno))?;
    words.set(Word::SenderCpu as usize, clock::thread_cpu() - cpu);
    Ok(())
}

fn receiver(
    link: &impl Link,
    way: Way,
    ready: &dyn Fn(),
    words: &SharedWords,
) -> Result<(), Failure> {
    let mut end = link.receiver(way)?;
    let mut letter = Letter::new(SIZE);
    ready();
    for number in 0..WARM_UP {
        pair::receive(&mut end, way, letter.buffer())?;
        letter.read(number)?;
    }
    let cpu = clock::thread_cpu();
    let start = clock::now();
    let mut number = WARM_UP;
    loop {
        pair::receive(&mut end, way, letter.buffer())?;
        if letter.read(number)? == LAST {
            break;
        }
        number += 1;
    }
    words.set(Word::Nanoseconds as usize, clock::now() - start);
    words.set(Word::Messages as usize, number + 1 - WARM_UP);
    words.set(Word::ReceiverCpu as usize, clock::thread_cpu() - cpu);
    Ok(())
}
