//! Limits the number of messages that are shown per second.

use std::time::{Duration, Instant};

/// The number of messages that may be shown now; at most the number for one second.
pub struct Budget {
    rate: f64,
    left: f64,
    at: Instant,
}

impl Budget {
    pub fn new(rate: u32) -> Budget {
        let rate = f64::from(rate);
        let at = Instant::now();
        Budget {
            rate,
            left: rate,
            at,
        }
    }

    /// Returns whether one more message may be shown, and subtracts it.
    pub fn spend(&mut self) -> bool {
        let since = self.at.elapsed();
        self.at += since;
        self.spend_after(since)
    }

    fn spend_after(&mut self, since: Duration) -> bool {
        self.left = (self.left + self.rate * since.as_secs_f64()).min(self.rate);
        let has_any = self.left >= 1.0;
        if has_any {
            self.left -= 1.0;
        }
        has_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_second_has_more_than_the_rate_and_the_first_one() {
        let mut budget = Budget::new(10);
        let mut shown = |since: u64, tries: usize| {
            let tries = (0..tries).map(|n| if n == 0 { since } else { 0 });
            tries
                .filter(|since| budget.spend_after(Duration::from_millis(*since)))
                .count()
        };
        assert_eq!(shown(0, 100), 10);
        assert_eq!(shown(500, 100), 5);
        assert_eq!(shown(60_000, 100), 10);
        assert_eq!(shown(50, 100), 0);
    }
}
