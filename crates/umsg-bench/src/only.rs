//! `--only`: the rows of a suite that are measured.

use std::cell::Cell;

use crate::failure::Failure;
use crate::suite::Suite;

/// The suites that can measure single rows. The other suites take several rows from one measurement.
const SUITES: [Suite; 6] = [
    Suite::Stream,
    Suite::Batch,
    Suite::Pingpong,
    Suite::Poll,
    Suite::Everyday,
    Suite::Realtime,
];

/// The rows whose names contain a pattern, or all rows.
#[derive(Debug, Default)]
pub struct Only {
    pattern: Option<String>,
    found: Cell<bool>,
}

impl Only {
    /// Returns the selection for `--only`. Fails if there is a pattern, and one of the suites can't measure single rows.
    pub fn of(pattern: Option<&str>, suites: &[Suite]) -> Result<Only, Failure> {
        let whole = suites.iter().find(|suite| !SUITES.contains(suite));
        match (pattern, whole) {
            (Some(_), Some(suite)) => Err(Failure::new(format!(
                "--only: {} has no rows that are measured alone; use {}",
                suite.name(),
                SUITES.map(Suite::name).join(", ")
            ))),
            _ => Ok(Only {
                pattern: pattern.map(str::to_lowercase),
                found: Cell::new(false),
            }),
        }
    }

    /// Returns whether every row is measured.
    pub fn is_all(&self) -> bool {
        self.pattern.is_none()
    }

    /// Returns whether the row of this name is measured.
    pub fn has(&self, row: &str) -> bool {
        let pattern = self.pattern.as_deref();
        let has = pattern.is_none_or(|pattern| row.to_lowercase().contains(pattern));
        self.found.set(self.found.get() || has);
        has
    }

    /// Fails if no row was measured.
    pub fn check(&self) -> Result<(), Failure> {
        match &self.pattern {
            Some(pattern) if !self.found.get() => Err(Failure::new(format!(
                "--only: no row has {pattern:?} in its name"
            ))),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_name_in_either_case_selects_rows() {
        let only = Only::of(Some("MQ_OPEN of"), &[Suite::Everyday]).unwrap();
        assert!(only.has("mq_open of a missing queue"));
        assert!(!only.has("mq_open + send + receive + close"));
        assert!(only.check().is_ok());
    }

    #[test]
    fn a_pattern_without_a_row_is_an_error_and_none_at_all_selects_every_row() {
        let only = Only::of(Some("semaphore"), &[Suite::Everyday]).unwrap();
        assert!(!only.has("mq_getattr"));
        assert!(only.check().is_err());
        assert!(Only::default().has("mq_getattr"));
        assert!(Only::default().check().is_ok());
    }

    #[test]
    fn a_suite_that_measures_its_rows_together_is_refused() {
        for suites in [&[Suite::Depth][..], &[Suite::Stream, Suite::Copy]] {
            assert!(Only::of(Some("a"), suites).is_err());
            assert!(Only::of(None, suites).is_ok());
        }
    }
}
