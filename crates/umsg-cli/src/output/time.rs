//! Times: how long ago for people, UTC for programs.

use std::time::{Duration, SystemTime};

/// `3s ago`, `5m ago`; None is `never`.
pub fn ago(time: Option<SystemTime>) -> String {
    let Some(time) = time else {
        return "never".to_owned();
    };
    // The clock may have been set back since.
    let age = SystemTime::now().duration_since(time).unwrap_or_default();
    format!("{} ago", rough(age))
}

/// `5s`, `500ms`, `2m`: as the command line takes it, in the largest unit that says it exactly.
pub fn length(time: Duration) -> String {
    let ms = time.as_millis();
    if !time.subsec_nanos().is_multiple_of(1_000_000) {
        return format!("{}s", time.as_secs_f64());
    }
    let units = [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "m"),
        (1000, "s"),
        (1, "ms"),
    ];
    let found = units.iter().find(|(unit, _)| ms.is_multiple_of(*unit));
    found.map_or_else(String::new, |(unit, name)| format!("{}{name}", ms / unit))
}

fn rough(age: Duration) -> String {
    match age.as_secs() {
        s @ 0..60 => format!("{s}s"),
        s @ 60..3600 => format!("{}m", s / 60),
        s @ 3600..172_800 => format!("{}h", s / 3600),
        s => format!("{}d", s / 86_400),
    }
}

/// As in RFC 3339, with milliseconds: `2026-01-31T12:00:00.000Z`.
pub fn utc(time: SystemTime) -> String {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = date(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        second / 3600,
        second / 60 % 60,
        second % 60,
        since.subsec_millis()
    )
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar. Years begin in March here, so that
/// the leap day is a year's last. Source: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms".
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = (from_march + 2) % 12 + 1;
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
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
    }

    #[test]
    fn lengths_are_exact() {
        let length = |ms| super::length(Duration::from_millis(ms));
        assert_eq!(
            [length(1), length(1500), length(5000)],
            ["1ms", "1500ms", "5s"]
        );
        assert_eq!([length(90_000), length(7_200_000)], ["90s", "2h"]);
        assert_eq!(length(172_800_000), "2d");
        assert_eq!(super::length(Duration::from_micros(1)), "0.000001s");
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
