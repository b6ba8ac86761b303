//! pmqtest of rt-tests: the latency of a message to a sleeping thread.

use super::rounds::{alternate, median};
use super::stage::{Stage, answer};
use crate::failure::{Failure, Result};
use crate::programs;

const ROUNDS: usize = 3;
/// The arguments of pmqtest for a thousand messages, one a millisecond.
const ARGUMENTS: [&str; 5] = [
    "--quiet",
    "--loops=1000",
    "--interval=1000",
    "--distance=0",
    "--threads=1",
];

pub fn show(stage: &Stage) -> Result<()> {
    println!("\n== 2. pmqtest, from Debian's rt-tests ==");
    let Some(program) = programs::pmqtest() else {
        println!("Not installed (apt-get install rt-tests): skipped.");
        return Ok(());
    };
    let namespace = stage.namespace()?;
    if let Err(Failure::Failed(why)) =
        answer(&mut namespace.on_kernel(&program, &["--quiet", "--loops=1"]))
    {
        println!(
            "It does not run here, on the kernel's queues either (only root may have its real-time policy): skipped.\n{why}"
        );
        return Ok(());
    }
    let rounds = stage.rounds(ROUNDS);
    println!(
        "It sends a message a millisecond and takes the time until the sleeping receiver has it: what it measures is the\n\
         scheduler's wake-up, no rate, so about the same is to be expected. {rounds} rounds on each in turn, medians."
    );
    let sides = alternate(
        rounds,
        || Latency::of(&answer(&mut namespace.on_kernel(&program, &ARGUMENTS))?),
        || Latency::of(&answer(&mut namespace.on_umsg(&program, &ARGUMENTS))?),
    )?;
    println!("\n{:42}{:>9}{:>9}{:>9}", "", "min µs", "avg µs", "max µs");
    row("kernel:  pmqtest", &sides.kernel);
    row("umsg:    umsg run -- pmqtest", &sides.umsg);
    Ok(())
}

fn row(what: &str, rounds: &[Latency]) {
    println!(
        "{what:42}{:>9}{:>9}{:>9}",
        median(rounds, |latency| latency.min),
        median(rounds, |latency| latency.avg),
        median(rounds, |latency| latency.max),
    );
}

/// The latencies in the last line of pmqtest's output, in microseconds.
#[derive(Debug, PartialEq)]
struct Latency {
    min: f64,
    avg: f64,
    max: f64,
}

impl Latency {
    fn of(printed: &str) -> Result<Self> {
        let number = |label: &str| {
            let (_, rest) = printed.rsplit_once(label)?;
            rest.split([',', '\n']).next()?.trim().parse().ok()
        };
        match (number("Min"), number("Avg"), number("Max")) {
            (Some(min), Some(avg), Some(max)) => Ok(Self { min, avg, max }),
            _ => Err(Failure::new(format!("pmqtest printed {printed:?}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_read() {
        let printed = "#0: ID8536, P0, CPU0, I1000; #1: ID8540, P0, CPU0, TO 0, Cycles 1000\n\
                       #1 -> #0, Min    2, Cur    4, Avg    3, Max   23\n";
        let latency = Latency::of(printed).ok();
        let expected = Latency {
            min: 2.0,
            avg: 3.0,
            max: 23.0,
        };
        assert_eq!(latency, Some(expected));
    }
}
