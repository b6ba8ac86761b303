//! A C program with a sender and a receiver: messages a second.

use super::format::grouped;
use super::rounds::{alternate, median};
use super::stage::{Stage, answer};
use crate::failure::{Failure, Result};

const ROUNDS: usize = 5;
/// The time of each round, in seconds.
const SECONDS: &str = "1";
/// The capacity of the queue in messages: the kernel's limit for every process.
const DEPTH: &str = "10";
/// A larger capacity, which the kernel refuses to users other than root.
const DEEPER: &str = "1024";

pub fn show(stage: &Stage) -> Result<()> {
    let program = stage.compile("rate", include_str!("rate.c"))?;
    let namespace = stage.namespace()?;
    let rounds = stage.rounds(ROUNDS);
    println!("\n== 1. A C program, from one process to another ==");
    println!(
        "rate.c: 64-byte messages through mq_send and mq_receive, compiled just now by cc without anything of umsg.\n\
         A queue of {DEPTH} messages, as deep as the kernel allows anybody; {rounds} rounds of {SECONDS} s on each in turn, medians."
    );
    let sides = alternate(
        rounds,
        || {
            Round::of(&answer(
                &mut namespace.on_kernel(&program, &[DEPTH, SECONDS]),
            )?)
        },
        || {
            Round::of(&answer(
                &mut namespace.on_umsg(&program, &[DEPTH, SECONDS]),
            )?)
        },
    )?;
    let deeper = (0..stage.rounds(3))
        .map(|_| {
            Round::of(&answer(
                &mut namespace.on_umsg(&program, &[DEEPER, SECONDS]),
            )?)
        })
        .collect::<Result<Vec<_>>>()?;

    println!(
        "\n{:36}{:>12}{:>20}{:>8}",
        "", "messages/s", "CPU a message", "ratio"
    );
    row("kernel:  rate", &sides.kernel, None);
    row(
        "umsg:    umsg run -- rate",
        &sides.umsg,
        Some(&sides.kernel),
    );
    row(
        "umsg, a queue of 1,024 messages",
        &deeper,
        Some(&sides.kernel),
    );
    Ok(())
}

fn row(what: &str, rounds: &[Round], base: Option<&[Round]>) {
    let rate = median(rounds, Round::rate);
    let nanoseconds = median(rounds, |round| round.cpu * 1e9 / round.messages);
    let ratio = base.map(|base| format!("{:.1}", rate / median(base, Round::rate)));
    println!(
        "{what:36}{:>12}{nanoseconds:>17.0} ns{:>8}",
        grouped(rate),
        ratio.unwrap_or_default()
    );
}

/// The output of one run of rate.c.
struct Round {
    messages: f64,
    seconds: f64,
    cpu: f64,
}

impl Round {
    fn of(printed: &str) -> Result<Self> {
        let numbers: Option<Vec<f64>> = printed
            .split_whitespace()
            .map(|word| word.parse().ok())
            .collect();
        match numbers.as_deref() {
            Some(&[messages, seconds, cpu]) => Ok(Self {
                messages,
                seconds,
                cpu,
            }),
            _ => Err(Failure::new(format!("rate printed {printed:?}"))),
        }
    }

    fn rate(&self) -> f64 {
        self.messages / self.seconds
    }
}
