//! Formats times: as ages for people, in UTC for programs.

use std::time::{Duration, SystemTime};

use jiff::fmt::friendly::{Spacing, SpanPrinter};
use jiff::{Span, SpanRound, Timestamp, Unit};

/// Returns a text such as `3s ago` or `5m ago`. For None, returns `never`.
pub fn ago(time: Option<SystemTime>) -> String {
    let Some(time) = time else {
        return "never".to_owned();
    };
    // If the clock was set back, the age is 0.
    let age = SystemTime::now().duration_since(time).unwrap_or_default();
    format!("{} ago", rough(age))
}

/// Returns a text such as `in 3s` or `in 5m`. Returns `now` for a time that has passed, and for None.
pub fn ahead(time: Option<SystemTime>) -> String {
    let left = time.and_then(|time| time.duration_since(SystemTime::now()).ok());
    left.map_or_else(|| "now".to_owned(), |left| format!("in {}", rough(left)))
}

/// Formats a duration as the command line accepts it: `5s`, `500ms`, `1m30s`.
pub fn length(time: Duration) -> String {
    let longest = SpanRound::new().largest(Unit::Day).days_are_24_hours();
    let span = Span::try_from(time).and_then(|span| span.round(longest));
    // The conversion fails only for durations of more than 20,000 years.
    span.map_or_else(
        |_| format!("{}s", time.as_secs()),
        |span| PRINTER.span_to_string(&span),
    )
}

const PRINTER: SpanPrinter = SpanPrinter::new().spacing(Spacing::None);

/// Formats a duration in its largest unit: `5s`, `2h`.
pub fn rough(age: Duration) -> String {
    match age.as_secs() {
        s @ 0..60 => format!("{s}s"),
        s @ 60..3600 => format!("{}m", s / 60),
        s @ 3600..172_800 => format!("{}h", s / 3600),
        s => format!("{}d", s / 86_400),
    }
}

/// Formats a time as in RFC 3339, with milliseconds: `2026-01-31T12:00:00.000Z`. A time after the year 9999 is formatted as the end of that year.
pub fn utc(time: SystemTime) -> String {
    let time = Timestamp::try_from(time).unwrap_or(Timestamp::MAX);
    format!("{time:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_date_and_time_in_utc() {
        let at = |ms| utc(SystemTime::UNIX_EPOCH + Duration::from_millis(ms));
        assert_eq!(at(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(951_782_399_999), "2000-02-28T23:59:59.999Z");
        assert_eq!(at(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(at(1_767_225_600_042), "2026-01-01T00:00:00.042Z");
        assert_eq!(at(4_107_542_400_000), "2100-03-01T00:00:00.000Z");
        assert!(at(u64::MAX).starts_with("9999-12-30T"));
    }

    #[test]
    fn lengths_are_exact_and_taken_back_by_the_command_line() {
        let length = |ms| super::length(Duration::from_millis(ms));
        assert_eq!(
            [length(1), length(1500), length(5000)],
            ["1ms", "1s500ms", "5s"]
        );
        assert_eq!([length(90_000), length(7_200_000)], ["1m30s", "2h"]);
        assert_eq!(length(172_800_000), "2d");
        assert_eq!(super::length(Duration::from_micros(1)), "1µs");
        for time in [0, 1, 90_000_000_001, u64::MAX].map(Duration::from_nanos) {
            assert_eq!(crate::values::duration(&super::length(time)), Ok(time));
        }
    }

    #[test]
    fn ages_are_rough() {
        let rough = |s| super::rough(Duration::from_secs(s));
        assert_eq!([rough(0), rough(59), rough(60)], ["0s", "59s", "1m"]);
        assert_eq!(
            [rough(7199), rough(172_799), rough(172_800)],
            ["1h", "47h", "2d"]
        );
        assert_eq!(ago(None), "never");
    }
}
