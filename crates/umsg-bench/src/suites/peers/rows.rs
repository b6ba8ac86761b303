//! Rows with a column for each peer.

use super::SUITE;
use super::entrant::Entrant;
use super::kill::Role;
use crate::failure::Failure;
use crate::harness::{Samples, Side};
use crate::row::{Better, MOST_SPREAD, Row};

/// One figure of a peer in each round, or the reason for a missing figure.
pub struct Measured {
    pub samples: Samples,
    pub failure: Option<Failure>,
}

/// Returns, for each peer, one figure of each round.
pub fn kinds<T>(sides: &[Side<T>], figure: impl Fn(&T) -> f64) -> Vec<Measured> {
    let one = |side: &Side<T>| Measured {
        samples: side.each(&figure),
        failure: side.failure.clone(),
    };
    sides.iter().map(one).collect()
}

/// Returns the variant, polling or waiting, that has the higher median. Also returns its name if both variants were measured.
pub fn best<T>(
    (polling, waiting): (Side<T>, Side<T>),
    figure: impl Fn(&T) -> f64,
) -> (Side<T>, Option<&'static str>) {
    let of = |side: &Side<T>| side.each(&figure).median();
    match (of(&polling), of(&waiting)) {
        (Some(polls), Some(waits)) if polls > waits => (polling, Some("polling")),
        (Some(_), Some(_)) => (waiting, Some("waiting")),
        (Some(_), None) => (polling, None),
        (None, _) => (waiting, None),
    }
}

/// Makes a row of the first two peers, which are umsg and the kernel, with a column for each other peer.
///
/// # Errors
/// Fails if umsg has no figure because its measurement failed.
pub fn row(
    name: &str,
    unit: &'static str,
    better: Better,
    entrants: &[Box<dyn Entrant + '_>],
    all: &[Measured],
) -> Result<Row, Failure> {
    let [umsg, kernel, others @ ..] = all else {
        return Err(Failure::new("no peers"));
    };
    if let Some(failure) = &umsg.failure {
        return Err(Failure::new(format!("{name}: {failure}")));
    }
    let mut row = Row::compare(SUITE, name, unit, better, &umsg.samples, &kernel.samples)
        .reason("kernel", kernel.failure.as_ref());
    let mut unsteady = Vec::new();
    for (entrant, measured) in entrants[2..].iter().zip(others) {
        let Measured { samples, failure } = measured;
        row = row
            .column(entrant.name(), samples.median())
            .reason(entrant.name(), failure.as_ref());
        if let Some(spread) = samples.spread().filter(|&spread| spread > MOST_SPREAD) {
            unsteady.push(format!("{} {spread:.0} %", entrant.name()));
        }
    }
    match unsteady.is_empty() {
        true => Ok(row),
        false => Ok(row.note(format!(
            "{name}: the middle half of the rounds lies far apart, in percent of the median: {}",
            unsteady.join(", ")
        ))),
    }
}

/// Returns the row with the number of trials that left a process stuck. The row has no ratio, because the number may be zero.
pub fn kill_row(
    entrants: &[Box<dyn Entrant + '_>],
    victim: Role,
    kills: u32,
    stuck: &[Measured],
) -> Result<Row, Failure> {
    let name = format!("{} killed", victim.name());
    let mut row = row(&name, "stuck", Better::Less, entrants, stuck)?;
    row.ratio = None;
    row.unit = format!("of {kills}");
    Ok(row.goal_umsg("no process stuck", 0.0).note(format!(
        "{kills} times one of two busy processes is killed with SIGKILL at a random moment of 10 ms, and another takes its place, with \
         queues of 10, 128 and 1,024 messages in turn (the kernel's: as it allows); stuck: for a second no message comes through. Servers are not killed, only their clients"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::descriptor::Pipe;
    use crate::peers::queue;

    fn measured(samples: &[f64]) -> Measured {
        Measured {
            samples: Samples(samples.to_vec()),
            failure: None,
        }
    }

    fn three() -> Vec<Box<dyn Entrant>> {
        let kernel = queue::kernel(crate::backends::kernel::allowance(10));
        vec![Box::new(queue::umsg()), Box::new(kernel), Box::new(Pipe)]
    }

    #[test]
    fn a_peer_is_a_column_and_its_noise_a_note() {
        let all = [&[1.0][..], &[2.0], &[10.0, 20.0, 30.0]].map(measured);
        let row = row("stream", "M/s", Better::More, &three(), &all).unwrap();
        assert_eq!(
            (row.ratio, row.columns.get("pipe")),
            (Some(0.5), Some(20.0))
        );
        assert!(row.notes[0].ends_with("pipe 50 %"), "{:?}", row.notes);
    }

    #[test]
    fn no_stuck_peer_is_a_goal_that_is_met_without_a_ratio() {
        let all = [&[0.0][..], &[0.0], &[3.0]].map(measured);
        let row = kill_row(&three(), Role::Sender, 40, &all).unwrap().settle();
        assert!(row.resolved && row.ratio.is_none(), "{row:?}");
        assert_eq!(row.goal.unwrap().verdict, crate::row::Verdict::Met);
    }

    #[test]
    fn the_better_way_to_wait_is_taken_and_named_where_there_was_a_choice() {
        let side = |samples: &[f64]| {
            let mut side = Side::new();
            samples.iter().for_each(|&sample| side.round(|| Ok(sample)));
            side
        };
        let named = |polling: &[f64], waiting: &[f64]| {
            let (side, name) = best((side(polling), side(waiting)), |&sample| sample);
            (side.rounds, name)
        };
        assert_eq!(named(&[3.0], &[2.0]), (vec![3.0], Some("polling")));
        assert_eq!(named(&[1.0], &[2.0]), (vec![2.0], Some("waiting")));
        assert_eq!(named(&[], &[2.0]), (vec![2.0], None));
    }
}
