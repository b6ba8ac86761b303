//! Cuts a history that shows a difference down to a short one that still does.

use std::time::{Duration, Instant};

use super::operation::Step;

/// How long to go on cutting.
const PATIENCE: Duration = Duration::from_secs(60);

/// Leaves out what can be left out. `differs` says whether a history still shows a difference, and up to which step.
pub fn shrink(steps: Vec<Step>, mut differs: impl FnMut(&[Step]) -> bool) -> Vec<Step> {
    let until = Instant::now() + PATIENCE;
    let mut steps = steps;
    let mut chunk = (steps.len() / 2).max(1);
    loop {
        let mut at = 0;
        let before = steps.len();
        while at < steps.len() {
            if Instant::now() >= until {
                return steps;
            }
            let end = (at + chunk).min(steps.len());
            let shorter = [&steps[..at], &steps[end..]].concat();
            if differs(&shorter) {
                steps = shorter;
            } else {
                at = end;
            }
        }
        if chunk == 1 && steps.len() == before {
            return steps;
        }
        chunk = (chunk / 2).max(1);
    }
}
