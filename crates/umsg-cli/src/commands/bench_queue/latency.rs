//! Latencies in nanoseconds, with three significant digits.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The longest latency that is recorded: 10 minutes. A longer latency is recorded as 10 minutes.
const MOST: u64 = 600_000_000_000;

pub struct Latencies(Histogram<u64>);

/// Latencies, each with its number of messages, in the form that a process prints for its parent.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Counts(Vec<(u64, u64)>);

/// The distribution of the latencies, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Figures {
    pub min: u64,
    pub mean: f64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    #[serde(rename = "p99.9")]
    pub p999: u64,
    #[serde(rename = "p99.99")]
    pub p9999: u64,
    pub max: u64,
}

impl Latencies {
    pub fn new() -> Latencies {
        let histogram = Histogram::new_with_bounds(1, MOST, 3);
        Latencies(histogram.expect("the bounds are constants in the permitted range"))
    }

    pub fn record(&mut self, nanoseconds: u64) {
        self.0.saturating_record(nanoseconds);
    }

    pub fn counts(&self) -> Counts {
        let all = self.0.iter_recorded();
        Counts(
            all.map(|step| (step.value_iterated_to(), step.count_at_value()))
                .collect(),
        )
    }

    pub fn add(&mut self, counts: &Counts) {
        for &(nanoseconds, count) in &counts.0 {
            self.0.saturating_record_n(nanoseconds, count);
        }
    }

    pub fn figures(&self) -> Figures {
        let of = |quantile| self.0.value_at_quantile(quantile);
        match self.0.is_empty() {
            true => Figures::default(),
            false => Figures {
                min: self.0.min(),
                mean: self.0.mean(),
                p50: of(0.5),
                p90: of(0.9),
                p99: of(0.99),
                p999: of(0.999),
                p9999: of(0.9999),
                max: self.0.max(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_survive_the_way_to_another_process() {
        let mut one = Latencies::new();
        (1..=10_000).for_each(|n| one.record(n * 100));
        let line = serde_json::to_string(&one.counts()).unwrap();
        let mut sum = Latencies::new();
        sum.add(&serde_json::from_str(&line).unwrap());
        let figures = sum.figures();
        let near = |is: u64, should: u64| is.abs_diff(should) * 500 <= should;
        assert!(
            near(figures.p50, 500_000) && near(figures.p99, 990_000),
            "{figures:?}"
        );
        assert!(
            near(figures.max, 1_000_000) && figures.min <= 100,
            "{figures:?}"
        );
        assert_eq!(Latencies::new().figures().max, 0);
    }
}
