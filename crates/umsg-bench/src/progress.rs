//! The reports on standard error during the measurement: the number of the current suite, and the estimated time of the suites that remain.

use std::cell::{Cell, RefCell};
use std::io::Write as _;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};

use crate::suite::Suite;

/// The progress of a run.
pub struct Progress {
    suites: Vec<Suite>,
    quick: bool,
    start: Instant,
    /// The index of the running suite.
    at: Cell<usize>,
    /// The text before each line: the number and the name of the suite.
    place: RefCell<String>,
    /// Shows the rounds of the row that is measured; hidden if standard error is no terminal. No background thread draws the bar, because it would
    /// disturb the measurement.
    bar: ProgressBar,
}

const BAR: &str = "{msg}, round {pos} of {len} {wide_bar}";

impl Progress {
    /// Returns the progress before the first of these suites begins.
    pub fn new(suites: &[Suite], quick: bool) -> Self {
        Self {
            suites: suites.to_vec(),
            quick,
            start: Instant::now(),
            at: Cell::new(0),
            place: RefCell::default(),
            bar: bar(),
        }
    }

    /// Reports that the suite with this index begins. Prints nothing in a run of one suite.
    pub fn begin(&self, number: usize) {
        self.at.set(number);
        let count = self.suites.len();
        if count == 1 {
            return;
        }
        *self.place.borrow_mut() = format!("[{} of {count}] ", number + 1);
        self.bar.finish_and_clear();
        let mut out = std::io::stderr().lock();
        // A failed write is ignored: the measurement continues.
        let _ = writeln!(
            out,
            "{}{}: {}",
            self.place.borrow(),
            self.suites[number].name(),
            left(self.seconds_left(), &self.suites[number + 1..])
        );
    }

    /// Reports the current measurement and its round.
    pub fn show(&self, what: &str, round: u32, rounds: u32) {
        let line = format!("{}{what}", self.place.borrow());
        if self.bar.is_hidden() {
            if round == 0 {
                let _ = writeln!(std::io::stderr(), "{line}");
            }
            return;
        }
        self.bar.set_length(rounds.into());
        self.bar.set_message(line);
        if round == 0 {
            self.bar.reset();
        }
        self.bar.set_position(u64::from(round) + 1);
        if round + 1 == rounds {
            self.bar.finish_and_clear();
        }
    }

    /// Estimates the seconds for this suite and the later suites, from the time of the finished suites on this machine.
    fn seconds_left(&self) -> f64 {
        let usual = |suites: &[Suite]| -> f64 {
            let seconds = suites.iter().map(|suite| suite.seconds(self.quick));
            seconds.map(f64::from).sum()
        };
        let (done, ahead) = self.suites.split_at(self.at.get());
        let pace = match usual(done) {
            0.0 => 1.0,
            usual => self.start.elapsed().as_secs_f64() / usual,
        };
        pace * usual(ahead)
    }
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::new(1);
    match ProgressStyle::with_template(BAR) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Returns the text about the remaining suites: "about 4 min left; then ring and msg".
fn left(seconds: f64, after: &[Suite]) -> String {
    let time = match seconds {
        short if short < 100.0 => format!("about {short:.0} s left"),
        long => format!("about {:.0} min left", long / 60.0),
    };
    let names: Vec<&str> = after.iter().map(|suite| suite.name()).collect();
    match names.is_empty() {
        true => format!("{time}, the last"),
        false => format!("{time}; then {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_said_with_the_suites_to_come() {
        assert_eq!(
            left(260.0, &[Suite::Ring, Suite::Msg]),
            "about 4 min left; then ring, msg"
        );
        assert_eq!(left(12.3, &[]), "about 12 s left, the last");
    }

    #[test]
    fn the_template_of_the_bar_is_right() {
        assert!(ProgressStyle::with_template(BAR).is_ok());
    }

    #[test]
    fn the_pace_of_what_is_done_counts_for_what_is_left() {
        let progress = Progress::new(&[Suite::Mqueue, Suite::Ring], true);
        let all = progress.seconds_left();
        assert_eq!(
            all,
            f64::from(Suite::Mqueue.seconds(true) + Suite::Ring.seconds(true))
        );
        progress.at.set(1);
        // The first suite took no measurable time.
        assert!(progress.seconds_left() < 1.0);
    }
}
