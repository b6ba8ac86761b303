//! The pauses between attempts.

use std::time::Duration;

/// The first and the longest pause, before the random shortening.
const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(10);

/// Pauses that double, each shortened by up to a half at random, so that many bridges do not try again at the same moment.
#[derive(Debug, Default)]
pub struct Backoff {
    attempts: u32,
}

impl Backoff {
    /// Returns the pause before the next attempt.
    pub fn pause(&mut self) -> Duration {
        let time = after(self.attempts);
        self.attempts = self.attempts.saturating_add(1);
        time
    }

    /// Begins again with the first pause, because an attempt has succeeded.
    pub fn reset(&mut self) {
        self.attempts = 0;
    }
}

/// Returns the pause after the given number of failed attempts.
#[must_use]
pub fn after(attempts: u32) -> Duration {
    let whole = FIRST.saturating_mul(1 << attempts.min(16)).min(LONGEST);
    whole.mul_f64(0.5 + fastrand::f64() / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_double_up_to_the_longest_and_vary() {
        for (attempts, whole) in [
            (0, 50),
            (1, 100),
            (5, 1600),
            (8, 10_000),
            (u32::MAX, 10_000),
        ] {
            let times: Vec<_> = (0..100).map(|_| after(attempts).as_millis()).collect();
            assert!(times.iter().all(|time| (whole / 2..=whole).contains(time)));
            assert!(times.iter().any(|time| *time != times[0]));
        }
    }
}
