//! The table of calls that `umsg trace --summary` prints at the end.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;
use umsg_trace::Function;

use super::line::Call;
use crate::output::json;
use crate::output::table::{Side, Table};

/// The sums over the traced calls, one sum for each function.
#[derive(Default)]
pub struct Summary {
    of: BTreeMap<Function, Sum>,
}

#[derive(Default)]
struct Sum {
    calls: u64,
    failed: u64,
    slept: u64,
    time: Duration,
    longest: Duration,
}

#[derive(Serialize)]
struct Row {
    call: &'static str,
    calls: u64,
    errors: u64,
    slept: u64,
    seconds: f64,
    longest_seconds: f64,
}

impl Summary {
    pub fn count(&mut self, call: &Call) {
        let sum = self.of.entry(call.function).or_default();
        sum.calls += 1;
        sum.failed += u64::from(call.failed());
        sum.slept += u64::from(call.numbers.slept != 0);
        sum.time = sum.time.saturating_add(call.took());
        sum.longest = sum.longest.max(call.took());
    }

    /// Returns the functions, those with the most time first.
    fn rows(&self) -> Vec<(Function, &Sum)> {
        let mut rows: Vec<_> = self.of.iter().map(|(&of, sum)| (of, sum)).collect();
        rows.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.time));
        rows
    }

    pub fn print(&self, out: &mut impl Write, as_json: bool) -> io::Result<()> {
        if as_json {
            return self.rows().into_iter().try_for_each(|(function, sum)| {
                let row = Row {
                    call: function.name(),
                    calls: sum.calls,
                    errors: sum.failed,
                    slept: sum.slept,
                    seconds: sum.time.as_secs_f64(),
                    longest_seconds: sum.longest.as_secs_f64(),
                };
                json::print(out, &row)
            });
        }
        let all: Duration = self.of.values().map(|sum| sum.time).sum();
        let mut table = Table::new([
            ("CALL", Side::Left),
            ("CALLS", Side::Right),
            ("ERRORS", Side::Right),
            ("SLEPT", Side::Right),
            ("SECONDS", Side::Right),
            ("%", Side::Right),
            ("µs/CALL", Side::Right),
            ("LONGEST µs", Side::Right),
        ]);
        let micros = |time: f64| format!("{:.3}", time * 1e6);
        for (function, sum) in self.rows() {
            let seconds = sum.time.as_secs_f64();
            let share = match all.is_zero() {
                true => 0.0,
                false => 100.0 * seconds / all.as_secs_f64(),
            };
            table.push([
                function.name().to_owned(),
                sum.calls.to_string(),
                sum.failed.to_string(),
                sum.slept.to_string(),
                format!("{seconds:.6}"),
                format!("{share:.1}"),
                micros(seconds / sum.calls as f64),
                micros(sum.longest.as_secs_f64()),
            ]);
        }
        table.print(out)
    }
}
