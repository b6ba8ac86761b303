//! The steps that a run will take, and the time that each needs: the time in the last run on this machine, or else the time that the source code
//! names.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// Steps in their order.
pub struct Plan {
    /// The file that keeps the times of the last run, in seconds.
    file: PathBuf,
    times: BTreeMap<String, u64>,
    steps: Vec<(&'static str, Duration)>,
}

/// The state of a run at the beginning of a step.
#[derive(Debug, PartialEq, Eq)]
pub struct Progress {
    /// The number of the step, from 1 on.
    pub step: usize,
    pub steps: usize,
    /// The estimated time for this step and those after it.
    pub left: Duration,
}

impl Plan {
    /// Creates a plan of steps, each with the seconds that it takes where no earlier run is known.
    pub fn new(file: PathBuf, steps: &[(&'static str, u64)]) -> Self {
        let times = fs::read(&file).ok();
        let times = times.and_then(|text| serde_json::from_slice(&text).ok());
        let times: BTreeMap<String, u64> = times.unwrap_or_default();
        let expected = |(what, seconds): &(&'static str, u64)| {
            let seconds = times.get(*what).unwrap_or(seconds);
            (*what, Duration::from_secs(*seconds))
        };
        Self {
            steps: steps.iter().map(expected).collect(),
            file,
            times,
        }
    }

    /// Returns the state at the beginning of a step; None for a step that is not in the plan.
    pub fn progress(&self, what: &str) -> Option<Progress> {
        let index = self.steps.iter().position(|(step, _)| *step == what)?;
        Some(Progress {
            step: index + 1,
            steps: self.steps.len(),
            left: self.steps[index..].iter().map(|(_, time)| *time).sum(),
        })
    }

    /// Records the time of a step that succeeded.
    pub fn record(&mut self, what: &str, took: Duration) {
        if self.progress(what).is_some() {
            self.times.insert(what.to_owned(), took.as_secs());
        }
    }

    /// Keeps the times for the next run. If this fails, only the estimate of the next run is worse.
    pub fn keep(&self) {
        if let Ok(text) = serde_json::to_vec(&self.times) {
            let _ = fs::write(&self.file, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: [(&str, u64); 2] = [("build", 60), ("test", 30)];

    #[test]
    fn the_time_left_is_that_of_the_last_run() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("times");
        let mut first = Plan::new(file.clone(), &STEPS);
        let at = |plan: &Plan, what| plan.progress(what).map(|at| (at.step, at.left.as_secs()));
        assert_eq!(at(&first, "build"), Some((1, 90)));
        assert_eq!(at(&first, "test"), Some((2, 30)));
        assert_eq!(at(&first, "other"), None);
        first.record("test", Duration::from_secs(7));
        first.record("other", Duration::from_secs(7));
        first.keep();
        let second = Plan::new(file, &STEPS);
        assert_eq!(at(&second, "build"), Some((1, 67)));
        assert_eq!(second.times.len(), 1);
    }
}
