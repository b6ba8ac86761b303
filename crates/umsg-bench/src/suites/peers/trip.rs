//! A message goes to the other process, the answer comes back, and only then the next message starts.

use crate::backends::Spec;
use crate::clock;
use crate::failure::Failure;
use crate::harness::Plan;
use crate::peers::{Link, Peer, SIZE, Way};
use crate::shared::SharedWords;
use crate::stats;
use crate::suites::duet::{LAST, Letter, time_trips};

use super::pair;

/// The kernel's default depth.
const DEPTH: u32 = 10;

/// The number of round trips before the measurement.
const WARM_UP: u64 = 200;

/// The maximum number of round trips whose times a round keeps.
const KEPT: usize = 1 << 19;

/// The results of one round, in nanoseconds.
pub struct Trip {
    pub median: f64,
    /// The CPU time of both processes and of a server, for a round trip.
    pub cpu: f64,
}

/// The words in which the two members leave their results.
#[derive(Clone, Copy)]
enum Word {
    Median,
    Trips,
    CallerCpu,
    EchoCpu,
    /// Not a result: this word tells the receiver that the message in transit is the last one, for peers whose messages have no contents.
    Over,
}

const WORDS: usize = Word::Over as usize + 1;

pub fn measure<P: Peer>(peer: &P, plan: &Plan, way: Way) -> Result<Trip, Failure> {
    let make = || {
        peer.make(&Spec {
            depth: DEPTH,
            message_size: SIZE as u32,
        })
    };
    let (there, back) = (make()?, make()?);
    let words = SharedWords::new(WORDS)?;
    let budget = pair::budget(plan).as_nanos() as u64;
    let carries = P::ABILITIES.carries;
    let server = peer.server_cpu();
    pair::run::<P>(
        plan,
        |ready| caller([&there, &back], way, carries, ready, budget, &words),
        |ready| echo([&there, &back], way, carries, ready, &words),
    )?;
    let server = peer.server_cpu().saturating_sub(server) as f64;
    let get = |word: Word| words.get(word as usize) as f64;
    Ok(Trip {
        median: (get(Word::Median) - clock::overhead()).max(0.0),
        cpu: (get(Word::CallerCpu) + get(Word::EchoCpu)) / get(Word::Trips)
            + server / (get(Word::Trips) + WARM_UP as f64),
    })
}

fn caller(
    [there, back]: [&impl Link; 2],
    way: Way,
    carries: bool,
    ready: &dyn Fn(),
    budget: u64,
    words: &SharedWords,
) -> Result<(), Failure> {
    let mut receiver = back.receiver(way)?;
    let mut sender = there.sender(way)?;
    let (mut out, mut answer) = (Letter::new(SIZE), Letter::new(SIZE));
    // The vector is filled once, so that no page fault falls into a round trip.
    let mut times = vec![1.0; KEPT];
    times.clear();
    ready();
    let mut trip = |number, stamp| {
        pair::send(&mut sender, way, out.write(number, stamp))?;
        pair::receive(&mut receiver, way, answer.buffer())?;
        match carries {
            true => answer.read(number).map(|_| ()),
            false => Ok(()),
        }
    };
    for number in 0..WARM_UP {
        trip(number, 0)?;
    }
    let cpu = clock::thread_cpu();
    let number = time_trips(&mut times, budget, WARM_UP, |number| trip(number, 0))?;
    let cpu = clock::thread_cpu() - cpu;
    words.set(Word::Over as usize, 1);
    trip(number, LAST)?;
    words.set(Word::CallerCpu as usize, cpu);
    words.set(Word::Trips as usize, times.len() as u64);
    words.set(Word::Median as usize, stats::median(&times) as u64);
    Ok(())
}

fn echo(
    [there, back]: [&impl Link; 2],
    way: Way,
    carries: bool,
    ready: &dyn Fn(),
    words: &SharedWords,
) -> Result<(), Failure> {
    let mut receiver = there.receiver(way)?;
    let mut sender = back.sender(way)?;
    let mut letter = Letter::new(SIZE);
    ready();
    let mut cpu = 0;
    for number in 0.. {
        if number == WARM_UP {
            cpu = clock::thread_cpu();
        }
        pair::receive(&mut receiver, way, letter.buffer())?;
        let over = match carries {
            true => letter.read(number)? == LAST,
            false => words.get(Word::Over as usize) == 1,
        };
        pair::send(&mut sender, way, letter.buffer())?;
        if over {
            break;
        }
    }
    words.set(Word::EchoCpu as usize, clock::thread_cpu() - cpu);
    Ok(())
}
