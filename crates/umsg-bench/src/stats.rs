//! Medians, spreads and intervals.

/// Returns the median; NaN without samples.
pub fn median(samples: &[f64]) -> f64 {
    quantile(samples, 0.5)
}

/// Returns the value below which the share `q` of the samples is, interpolated; NaN without samples.
pub fn quantile(samples: &[f64], q: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else {
        return f64::NAN;
    };
    let position = q * last as f64;
    let below = position.floor() as usize;
    let above = position.ceil() as usize;
    sorted[below] + (sorted[above] - sorted[below]) * (position - below as f64)
}

/// Returns the spread of the middle half of the samples, in percent of the median.
pub fn spread(samples: &[f64]) -> f64 {
    let middle_half = quantile(samples, 0.75) - quantile(samples, 0.25);
    100.0 * middle_half / median(samples)
}

/// The median of paired differences, with its 95 % confidence interval.
#[derive(Clone, Copy)]
pub struct Interval {
    pub low: f64,
    pub median: f64,
    pub high: f64,
    pairs: usize,
}

impl Interval {
    /// Computes the interval for the median of samples. The interval lies between two of the sorted samples, equally far from the two ends. This
    /// distance is the lower bound of the 95 % interval of the number of heads when a fair coin is thrown once for each sample.
    pub fn of(mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        let pairs = samples.len();
        let Some(last) = pairs.checked_sub(1) else {
            return Self {
                low: f64::NAN,
                median: f64::NAN,
                high: f64::NAN,
                pairs,
            };
        };
        let from_end = ((pairs as f64 - 1.96 * (pairs as f64).sqrt()) / 2.0).max(0.0) as usize;
        Self {
            low: samples[from_end],
            median: median(&samples),
            high: samples[last - from_end],
            pairs,
        }
    }

    /// Returns whether the median is at or below the limit; None if the limit lies within the confidence interval.
    pub fn within(&self, limit: f64) -> Option<bool> {
        if self.high <= limit {
            Some(true)
        } else if self.low > limit {
            Some(false)
        } else {
            None
        }
    }

    pub fn describe(&self) -> String {
        let Self {
            low, high, pairs, ..
        } = self;
        format!("{low:+.2} % to {high:+.2} % (95 % confidence, {pairs} pairs)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_an_even_number_lies_between_the_two_in_the_middle() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
    }

    #[test]
    fn one_outlier_moves_neither_median_nor_spread() {
        assert_eq!(median(&[5.0, 5.0, 900.0, 5.0, 5.0]), 5.0);
        assert_eq!(spread(&[5.0, 5.0, 900.0, 5.0, 5.0]), 0.0);
    }

    #[test]
    fn no_samples_have_no_median() {
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn an_interval_that_holds_the_limit_decides_nothing() {
        let interval = Interval::of((1..=30).map(f64::from).collect());
        assert_eq!(
            (interval.low, interval.median, interval.high),
            (10.0, 15.5, 21.0)
        );
        assert_eq!(interval.within(15.0), None);
        assert_eq!(interval.within(21.0), Some(true));
        assert_eq!(interval.within(9.0), Some(false));
    }
}
