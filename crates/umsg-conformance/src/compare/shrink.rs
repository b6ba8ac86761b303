//! Shortens a history that shows a difference, as long as it still shows a difference.

use std::time::{Duration, Instant};

/// The maximum time for removing steps.
const PATIENCE: Duration = Duration::from_secs(60);

/// Removes the steps that the difference does not need. `differs` returns whether a history still shows a difference.
pub fn shrink<S: Copy>(steps: Vec<S>, mut differs: impl FnMut(&[S]) -> bool) -> Vec<S> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::operation::Operation;
    use crate::compare::posix::Call;

    type Step = crate::compare::operation::Step<Call>;

    fn steps(count: usize) -> Vec<Step> {
        (0..count)
            .map(|at| Step {
                worker: at,
                operation: Operation::Exit,
            })
            .collect()
    }

    #[test]
    fn only_what_is_needed_is_left() {
        let needs = |steps: &[Step], worker| steps.iter().any(|step| step.worker == worker);
        let left = shrink(steps(100), |steps| {
            needs(steps, 17) && needs(steps, 18) && needs(steps, 93)
        });
        let workers: Vec<usize> = left.iter().map(|step| step.worker).collect();
        assert_eq!(workers, [17, 18, 93]);
    }

    #[test]
    fn a_history_of_which_everything_is_needed_stays_as_it_is() {
        assert_eq!(shrink(steps(9), |steps| steps.len() == 9).len(), 9);
    }
}
