//! A row of results: the figures of both sides, their ratio, and whether the rounds agree well enough.

use serde::{Deserialize, Serialize, Serializer};

use crate::columns::Columns;
use crate::failure::Failure;
use crate::harness::Samples;
use crate::stats;

/// The largest spread of the middle half of a side's rounds, in percent of their median. With a larger spread, the figures of the row are doubtful.
pub const MOST_SPREAD: f64 = 25.0;

/// Whether less or more of a figure is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Less is better, as for a time, a share, or an amount of memory.
    Less,
    /// More is better, as for a rate.
    More,
}

/// The verdict on a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The goal was met.
    Met,
    /// The goal was not met.
    Missed,
    /// It is not certain whether the goal was met: some rounds reached the goal and others did not, or the figures are doubtful.
    #[serde(rename = "not resolved")]
    Open,
}

impl Verdict {
    /// Returns the verdict for a goal that was met (`Some(true)`), was missed (`Some(false)`) or is undecided (`None`).
    pub fn of(met: Option<bool>) -> Self {
        match met {
            Some(true) => Self::Met,
            Some(false) => Self::Missed,
            None => Self::Open,
        }
    }

    /// Returns the verdict on the middle half of the rounds. The verdict is definite only if all values of that half lie on one side of the goal.
    fn of_range((low, high): (f64, f64), limit: f64, better: Better) -> Self {
        let (worst, best) = match better {
            Better::Less => (-high, -low),
            Better::More => (low, high),
        };
        let limit = match better {
            Better::Less => -limit,
            Better::More => limit,
        };
        Self::of(if worst >= limit {
            Some(true)
        } else if best < limit {
            Some(false)
        } else {
            None
        })
    }

    /// Combines two verdicts: the worse one counts.
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Missed, _) | (_, Self::Missed) => Self::Missed,
            (Self::Open, _) | (_, Self::Open) => Self::Open,
            _ => Self::Met,
        }
    }

    /// Returns the verdict as text.
    pub fn name(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "missed",
            Self::Open => "not resolved",
        }
    }
}

/// The goal, and whether it was reached.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Goal {
    pub text: String,
    pub verdict: Verdict,
}

/// The figures of all rounds, in the order in which they were taken.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rounds {
    pub umsg: Samples,
    pub kernel: Samples,
}

/// A row of a suite's results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    pub suite: String,
    pub row: String,
    pub unit: String,
    pub better: Better,
    #[serde(serialize_with = "rounded_option")]
    pub umsg: Option<f64>,
    #[serde(serialize_with = "rounded_option")]
    pub kernel: Option<f64>,
    /// The factor by which umsg is better: above 1, umsg is better.
    #[serde(serialize_with = "rounded_option")]
    pub ratio: Option<f64>,
    /// False if there is a doubt about the figures: `doubts` then holds the reasons.
    pub resolved: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<Goal>,
    /// Further columns, in the order of the table.
    pub columns: Columns,
    pub rounds: Rounds,
    pub notes: Vec<String>,
}

impl Row {
    /// Makes a row of medians, with the ratio of these medians.
    pub fn compare(
        suite: &'static str,
        row: impl Into<String>,
        unit: &'static str,
        better: Better,
        umsg: &Samples,
        kernel: &Samples,
    ) -> Self {
        let (umsg_median, kernel_median) = (umsg.median(), kernel.median());
        let ratio = umsg_median
            .zip(kernel_median)
            .map(|(umsg, kernel)| ratio(better, umsg, kernel));
        Self {
            suite: suite.to_owned(),
            row: row.into(),
            unit: unit.to_owned(),
            better,
            umsg: umsg_median,
            kernel: kernel_median,
            ratio,
            resolved: true,
            doubts: Vec::new(),
            goal: None,
            columns: Columns::default(),
            rounds: Rounds {
                umsg: umsg.clone(),
                kernel: kernel.clone(),
            },
            notes: Vec::new(),
        }
    }

    /// Adds a column. If its figure was not measured, the cell is empty.
    pub fn column(mut self, key: &'static str, value: Option<f64>) -> Self {
        self.columns.push(key, value);
        self
    }

    /// Adds two columns: the spreads of both sides, in percent.
    pub fn spreads(self, umsg: &Samples, kernel: &Samples) -> Self {
        self.column("umsg_spread", umsg.spread())
            .column("kernel_spread", kernel.spread())
    }

    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Adds a note with the reason if a side has no figures.
    pub fn reason(self, side: &str, failure: Option<&Failure>) -> Self {
        match failure {
            Some(failure) => self.note(format!("no {side}: {failure}")),
            None => self,
        }
    }

    /// Marks the figures as doubtful, for this reason.
    pub fn doubt(mut self, doubt: impl Into<String>) -> Self {
        self.resolved = false;
        self.doubts.push(doubt.into());
        self
    }

    /// Sets a goal whose verdict depends on more than the figures of this row.
    pub fn goal(mut self, text: impl Into<String>, verdict: Verdict) -> Self {
        let text = text.into();
        self.goal = Some(Goal { text, verdict });
        self
    }

    /// Sets the smallest ratio as the goal. Without a ratio there is no goal.
    pub fn goal_ratio(self, at_least: f64) -> Self {
        let verdict = self.judge_ratio(at_least);
        self.goal_if(format!("ratio >= {at_least}"), verdict)
    }

    /// Sets a goal for umsg's own figure: at most `limit`, or at least `limit` if more is better.
    pub fn goal_umsg(self, text: impl Into<String>, limit: f64) -> Self {
        let verdict = self.judge_umsg(limit);
        self.goal_if(text, verdict)
    }

    /// Sets a goal that needs a figure. Without a figure, the goal is not judged.
    pub fn goal_if(self, text: impl Into<String>, verdict: Option<Verdict>) -> Self {
        match verdict {
            Some(verdict) => self.goal(text, verdict),
            None => self,
        }
    }

    /// Judges whether the ratio is at least `at_least`.
    pub fn judge_ratio(&self, at_least: f64) -> Option<Verdict> {
        self.ratio?;
        let range = self.ratio_range()?;
        Some(Verdict::of_range(range, at_least, Better::More))
    }

    /// Judges umsg's figure by this limit: whether it is at most the limit, or at least the limit if more is better.
    pub fn judge_umsg(&self, limit: f64) -> Option<Verdict> {
        let range = self.rounds.umsg.middle_half()?;
        Some(Verdict::of_range(range, limit, self.better))
    }

    /// Returns the ratios between which the middle half of the rounds lies. Each round of one side is compared with the adjacent round of the other
    /// side.
    pub fn ratio_range(&self) -> Option<(f64, f64)> {
        let pairs = self.rounds.umsg.0.iter().zip(&self.rounds.kernel.0);
        let ratios = pairs.map(|(&umsg, &kernel)| ratio(self.better, umsg, kernel));
        Samples(ratios.collect()).middle_half()
    }

    /// Marks the figures as doubtful and the goal as open, because other processes were busy during the measurement. `doubt` is the reason as text.
    pub fn disbelieve(mut self, doubt: impl Into<String>) -> Self {
        if let Some(goal) = &mut self.goal {
            goal.verdict = Verdict::Open;
        }
        self.doubt(doubt)
    }

    /// Marks figures as doubtful if their rounds differ too much, or if some rounds meet the goal and others miss it.
    pub fn settle(mut self) -> Self {
        if let Some(Goal {
            text,
            verdict: Verdict::Open,
        }) = &self.goal
        {
            let doubt = format!("the rounds do not agree about the goal, {text}");
            self = self.doubt(doubt);
        }
        let sides = [
            ("umsg", self.rounds.umsg.spread()),
            ("the kernel", self.rounds.kernel.spread()),
        ];
        for (side, spread) in sides {
            if let Some(spread) = spread.filter(|&spread| spread > MOST_SPREAD) {
                self = self.doubt(format!(
                    "the middle half of the rounds of {side} lies {spread:.0} % apart, more than {MOST_SPREAD:.0} %"
                ));
            }
        }
        self
    }
}

fn ratio(better: Better, umsg: f64, kernel: f64) -> f64 {
    match better {
        Better::Less => kernel / umsg,
        Better::More => umsg / kernel,
    }
}

impl Samples {
    /// Returns whether there is only one sample. In that case, either the figure does not depend on time, or the suite itself computes a confidence
    /// interval.
    pub fn is_single(&self) -> bool {
        self.0.len() == 1
    }

    /// Returns the values between which the middle half of the rounds lies.
    pub fn middle_half(&self) -> Option<(f64, f64)> {
        let Self(samples) = self;
        (!samples.is_empty()).then(|| {
            (
                stats::quantile(samples, 0.25),
                stats::quantile(samples, 0.75),
            )
        })
    }
}

/// Rounds to a thousandth, because no figure of the benchmark is more exact.
pub fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn rounded_option<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    value.map(rounded).serialize(serializer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(better: Better, umsg: &[f64], kernel: &[f64]) -> Row {
        let [umsg, kernel] = [umsg, kernel].map(|side| Samples(side.to_vec()));
        Row::compare("suite", "row", "ns", better, &umsg, &kernel)
    }

    #[test]
    fn a_goal_is_met_or_missed_only_if_the_middle_half_of_the_rounds_agrees() {
        let row = row(Better::Less, &[9.9, 10.0, 10.1], &[101.0, 100.0, 99.0]);
        assert_eq!(row.judge_ratio(9.0), Some(Verdict::Met));
        assert_eq!(row.judge_ratio(11.0), Some(Verdict::Missed));
        assert_eq!(row.judge_ratio(10.0), Some(Verdict::Open));
        assert_eq!(row.judge_umsg(10.06), Some(Verdict::Met));
        assert_eq!(row.judge_umsg(9.0), Some(Verdict::Missed));
        let open = row.goal_ratio(10.0).settle();
        assert!(!open.resolved && open.doubts[0].contains("ratio >= 10"));
    }

    #[test]
    fn more_is_better_of_a_rate() {
        let row = row(Better::More, &[20.0, 20.0, 20.0], &[2.0, 2.0, 2.0]);
        assert_eq!(row.ratio, Some(10.0));
        assert_eq!(row.judge_umsg(15.0), Some(Verdict::Met));
        assert_eq!(row.judge_umsg(25.0), Some(Verdict::Missed));
    }

    #[test]
    fn figures_whose_rounds_differ_by_a_quarter_are_doubted() {
        let settled = |umsg| row(Better::Less, umsg, &[50.0]).settle();
        assert!(settled(&[10.0, 11.0, 12.0]).resolved);
        let noisy = settled(&[10.0, 20.0, 30.0]);
        assert!(!noisy.resolved);
        assert!(noisy.doubts[0].starts_with("the middle half of the rounds of umsg"));
    }

    #[test]
    fn a_side_without_figures_is_neither_judged_nor_doubted() {
        let row = row(Better::Less, &[10.0], &[]).goal_ratio(10.0).settle();
        assert!(row.resolved && row.goal.is_none() && row.ratio.is_none());
    }
}
