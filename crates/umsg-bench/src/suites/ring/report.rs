//! Percentiles, as they were published.

use hdrhistogram::Histogram;

use crate::clock;
use crate::failure::Failure;

/// The percentiles of the published tables.
const PERCENTILES: [f64; 15] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9,
];

/// The findings of one round of one way.
#[derive(Debug)]
pub struct Figures {
    /// The times of the sender and of the receiver, in nanoseconds.
    sides: [Histogram<u64>; 2],
    pub expected: u64,
    /// The CPU time of both ends, as a share of the round; 1 is one whole CPU.
    pub cpu: [f64; 2],
}

impl Figures {
    /// Computes the figures from samples in nanoseconds. Each sample includes one reading of the clock.
    pub fn new(
        sender: Vec<u64>,
        receiver: Vec<u64>,
        expected: u64,
        cpu: [f64; 2],
    ) -> Result<Self, Failure> {
        Ok(Self {
            sides: [histogram(sender)?, histogram(receiver)?],
            expected,
            cpu,
        })
    }

    /// Returns the time within which this share of the messages was sent (side 0) or received (side 1).
    pub fn quantile(&self, side: usize, share: f64) -> f64 {
        self.sides[side].value_at_quantile(share) as f64
    }

    /// Returns the number of sent messages.
    pub fn sent(&self) -> u64 {
        self.sides[0].len()
    }

    /// Returns the number of sent messages as a share of the messages that the cadence required.
    pub fn rate(&self) -> f64 {
        self.sent() as f64 / self.expected as f64
    }
}

fn histogram(samples: Vec<u64>) -> Result<Histogram<u64>, Failure> {
    let wrong = |error: &dyn std::fmt::Display| Failure::new(format!("histogram: {error}"));
    let mut histogram = Histogram::new(3).map_err(|error| wrong(&error))?;
    let reading = clock::overhead() as u64;
    for sample in samples {
        histogram
            .record(sample.saturating_sub(reading))
            .map_err(|error| wrong(&error))?;
    }
    Ok(histogram)
}

/// Returns the samples of all rounds, of the senders (side 0) or of the receivers (side 1).
fn together(rounds: &[Figures], side: usize) -> Option<Histogram<u64>> {
    let (first, others) = rounds.split_first()?;
    let mut all = first.sides[side].clone();
    for other in others {
        // All histograms have one range and one precision, so they can be added.
        let _ = all.add(&other.sides[side]);
    }
    Some(all)
}

/// Returns the published percentiles over all rounds, of the senders (side 0) or of the receivers (side 1).
pub fn percentiles(rounds: &[Figures], side: usize) -> Option<Vec<(f64, u64)>> {
    let all = together(rounds, side)?;
    let each = |percentile| (percentile, all.value_at_percentile(percentile));
    Some(PERCENTILES.into_iter().map(each).collect())
}

/// Prints the table of one way, over all rounds.
pub fn print(heading: &str, rounds: &[Figures]) {
    println!("\n{heading}");
    for (side, name) in ["sender", "receiver"].into_iter().enumerate() {
        let Some(all) = together(rounds, side) else {
            return;
        };
        println!("latencies for: {name} (msg={})", all.len());
        println!("    percentiles (nsec):");
        lines(&all).iter().for_each(|line| println!("{line}"));
    }
    let sum = |figure: fn(&Figures) -> u64| rounds.iter().map(figure).sum::<u64>();
    let (sent, expected) = (sum(Figures::sent), sum(|round| round.expected));
    println!(
        "sent {sent} of {expected} expected messages ({:.1} %)",
        100.0 * sent as f64 / expected as f64
    );
}

/// Formats the percentiles, three to a line.
fn lines(all: &Histogram<u64>) -> Vec<String> {
    let cells: Vec<String> = PERCENTILES
        .iter()
        .map(|&percentile| {
            let value = all.value_at_percentile(percentile);
            format!("{percentile:>7.4}th=[{value:>5}]")
        })
        .collect();
    cells
        .chunks(3)
        .enumerate()
        .map(|(line, cells)| {
            let end = if 3 * (line + 1) < PERCENTILES.len() {
                ","
            } else {
                ""
            };
            format!("     | {}{end}", cells.join(", "))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_stand_three_to_a_line_as_published() {
        let mut all = Histogram::new(3).unwrap();
        (1..=1000).for_each(|value| all.record(value).unwrap());
        let lines = lines(&all);
        assert_eq!(lines.len(), 5);
        assert_eq!(
            lines[0],
            "     |  1.0000th=[   10],  5.0000th=[   50], 10.0000th=[  100],"
        );
        assert_eq!(
            lines[4],
            "     | 99.0000th=[  990], 99.5000th=[  995], 99.9000th=[ 1000]"
        );
    }
}
