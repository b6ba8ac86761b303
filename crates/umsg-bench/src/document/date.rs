//! The date, in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

/// Now, as in 2026-11-22T09:30:00Z.
pub fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    format(since.map_or(0, |since| since.as_secs()))
}

/// Seconds since 1970. Days are counted in eras of 400 years that begin on the 1st of March, so that a leap day is the last.
fn format(seconds: u64) -> String {
    const ERA: u64 = 146_097;
    let (days, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day) = (days / ERA, days % ERA);
    let year = (day - day / 1_460 + day / 36_524 - day / (ERA - 1)) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // Months from March: 153 days are five of them.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, year) = match month {
        0..10 => (month + 3, era * 400 + year),
        _ => (month - 9, era * 400 + year + 1),
    };
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_at_the_ends_of_years_and_of_february() {
        assert_eq!(format(0), "1970-01-01T00:00:00Z");
        assert_eq!(format(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(format(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(format(1_735_689_599), "2024-12-31T23:59:59Z");
        assert_eq!(format(1_795_339_800), "2026-11-22T09:30:00Z");
    }
}
