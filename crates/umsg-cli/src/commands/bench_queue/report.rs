//! The result of a run of `umsg bench-queue`.

use std::io::{self, Write};

use serde::Serialize;

use super::latency::Figures;
use crate::output::table::{Side, Table};
use crate::output::text;

/// If the measured rate is at least this share of the requested rate, the requested rate is reported as reached.
const REACHED: f64 = 0.95;

/// The combined results of all processes. Latencies are in nanoseconds.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    pub rate: u64,
    pub size: u32,
    pub depth: u32,
    pub senders: u32,
    pub receivers: u32,
    pub wait: &'static str,
    /// The time that the slowest sender took.
    pub seconds: f64,
    pub sent: u64,
    pub received: u64,
    #[serde(rename = "latency_nanoseconds")]
    pub latency: Figures,
    #[serde(rename = "latency_from_schedule_nanoseconds")]
    pub from_schedule: Figures,
    pub sends_blocked: u64,
    pub receives_blocked: u64,
    pub sender_cpu_seconds: f64,
    pub receiver_cpu_seconds: f64,
}

impl Report {
    pub fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let mut line = |title: &str, text: String| writeln!(out, "{title:<18}{text}");
        let counted = |number: u32, noun| text::counted(number, noun);
        line(
            "load",
            format!(
                "{}, {}, {} of {} bytes, depth {}, waits {}",
                counted(self.senders, "sender"),
                counted(self.receivers, "receiver"),
                match self.rate {
                    0 => "as many messages as possible".to_owned(),
                    rate => format!("{rate} messages a second"),
                },
                self.size,
                self.depth,
                self.wait
            ),
        )?;
        let reached = self.sent as f64 / self.seconds;
        line(
            "sent",
            format!(
                "{} messages in {:.3} s: {reached:.0} a second",
                self.sent, self.seconds
            ),
        )?;
        line("received", format!("{} messages", self.received))?;
        let (sends, receives) = (self.sends_blocked, self.receives_blocked);
        line("blocked", format!("{sends} sending, {receives} receiving"))?;
        let (senders, receivers) = (self.sender_cpu_seconds, self.receiver_cpu_seconds);
        line(
            "CPU time",
            format!("{senders:.3} s sending, {receivers:.3} s receiving"),
        )?;
        if self.rate != 0 && reached < self.rate as f64 * REACHED {
            let line =
                "not reached: the queue, its receivers or this machine are too slow for the rate";
            writeln!(out, "{line}")?;
        }
        writeln!(out)?;
        self.table().print(out)
    }

    fn table(&self) -> Table<9> {
        let mut table = Table::new([
            ("", Side::Left),
            ("MIN", Side::Right),
            ("MEAN", Side::Right),
            ("50 %", Side::Right),
            ("90 %", Side::Right),
            ("99 %", Side::Right),
            ("99.9 %", Side::Right),
            ("99.99 %", Side::Right),
            ("MAX", Side::Right),
        ]);
        for (title, of) in [
            ("latency", self.latency),
            ("from schedule", self.from_schedule),
        ] {
            let whole = [
                of.min,
                of.mean as u64,
                of.p50,
                of.p90,
                of.p99,
                of.p999,
                of.p9999,
                of.max,
            ];
            let [min, mean, p50, p90, p99, p999, p9999, max] = whole.map(shown);
            table.push([title.to_owned(), min, mean, p50, p90, p99, p999, p9999, max]);
        }
        table
    }
}

/// Formats a time in the unit that leaves at most four digits before the decimal point.
fn shown(nanoseconds: u64) -> String {
    match nanoseconds {
        0..10_000 => format!("{nanoseconds}ns"),
        10_000..10_000_000 => format!("{:.1}us", nanoseconds as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.1}ms", nanoseconds as f64 / 1e6),
        _ => format!("{:.1}s", nanoseconds as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_fitting_units() {
        let times = [0, 9_999, 10_000, 9_999_949, 10_000_000, 600_000_000_000];
        let shown = times.map(shown);
        assert_eq!(
            shown,
            ["0ns", "9999ns", "10.0us", "9999.9us", "10.0ms", "600.0s"]
        );
    }
}
