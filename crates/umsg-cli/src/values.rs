//! Parses the values of options: numbers, times, patterns and modes.

use std::fmt::{self, Display, Formatter};
use std::time::{Duration, SystemTime};

use glob::{Pattern, PatternError};
use jiff::fmt::friendly::SpanParser;
use jiff::{SpanRelativeTo, Timestamp};

use crate::output::time;

/// Parses a size or a count: digits, optionally followed by a unit. K, Ki and KiB (likewise M, G) are powers of 1024. KB, MB and GB are powers of
/// 1000, as in GNU programs.
pub fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "ki" | "kib" => 1 << 10,
        "m" | "mi" | "mib" => 1 << 20,
        "g" | "gi" | "gib" => 1 << 30,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        _ => return Err("a number may end in K, M or G, such as 16K, 16KiB or 16KB".to_owned()),
    };
    let number: u64 = digits.parse().map_err(|_| match text.starts_with('-') {
        true => "a negative number is not allowed; give a number from 0 up".to_owned(),
        false => "give a number, such as 8192, 16K or 1M".to_owned(),
    })?;
    number
        .checked_mul(unit)
        .ok_or_else(|| "the number is too large".to_owned())
}

/// Parses a [`size`] of at most 32 bits.
pub fn small_size(text: &str) -> Result<u32, String> {
    u32::try_from(size(text)?).map_err(|_| "the number is too large".to_owned())
}

/// A limit, or None for no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ceiling(pub Option<u64>);

/// Parses a [`size`] or `none`.
pub fn ceiling(text: &str) -> Result<Ceiling, String> {
    match text {
        "none" => Ok(Ceiling(None)),
        word if word.starts_with(|first: char| first.is_ascii_alphabetic()) => {
            Err("give a number of bytes, such as 4G, or `none` for no limit".to_owned())
        }
        _ => size(text).map(|bytes| Ceiling(Some(bytes))),
    }
}

/// Parses a pattern of names: `*` matches any characters, `?` matches one character, all other characters match themselves.
pub fn pattern(text: &str) -> Result<Pattern, PatternError> {
    let mut pattern = String::new();
    let mut last = ' ';
    for character in text.chars() {
        match character {
            '[' | ']' => pattern.extend(['[', character, ']']),
            '*' if last == '*' => {}
            character => pattern.push(character),
        }
        last = character;
    }
    Pattern::new(&pattern)
}

/// Parses a message's priority.
pub fn priority(text: &str) -> Result<u32, String> {
    text.parse()
        .ok()
        .filter(|&priority| priority <= 32_767)
        .ok_or_else(|| "give a priority from 0 to 32767".to_owned())
}

/// Parses a System V message's type.
pub fn message_type(text: &str) -> Result<i64, String> {
    text.parse()
        .ok()
        .filter(|&mtype| mtype >= 1)
        .ok_or_else(|| "give a type: a positive integer".to_owned())
}

/// Parses permission bits in octal, with an optional prefix `0` or `0o`.
pub fn mode(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix("0o").unwrap_or(text);
    let all_octal =
        !digits.is_empty() && digits.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
    u32::from_str_radix(digits, 8)
        .ok()
        .filter(|&mode| all_octal && mode <= 0o777)
        .ok_or_else(|| "give permission bits in octal, such as 0660".to_owned())
}

/// Parses a duration: seconds, or numbers with units in jiff's friendly format.
pub fn duration(text: &str) -> Result<Duration, String> {
    let time = match text.parse() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => with_units(text).ok(),
    };
    time.ok_or_else(|| match is_negative(text) {
        true => "the time is negative; give a time from 0 up, such as 5s".to_owned(),
        false => {
            "give seconds, such as 5 or 0.25, or a time with the units ms, s, m, h and d, such as 500ms or 1h30m".to_owned()
        }
    })
}

/// Returns whether a text is a number with a minus sign, with or without a unit.
fn is_negative(text: &str) -> bool {
    let behind = text.strip_prefix('-');
    behind.is_some_and(|number| number.starts_with(|first: char| first.is_ascii_digit()))
}

fn with_units(text: &str) -> Result<Duration, jiff::Error> {
    let span = SpanParser::new().parse_span(text)?;
    span.to_duration(SpanRelativeTo::days_are_24_hours())?
        .try_into()
}

/// Parses a time to live: a positive [`duration`] within the range of the queue's format.
pub fn time_to_live(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    match time.as_nanos() {
        0 => Err(
            "with a time of 0 no message could be received; give a longer time, such as 500ms"
                .to_owned(),
        ),
        nanoseconds if u64::try_from(nanoseconds).is_err() => Err(
            "the longest time is 584 years; leave --ttl out to keep messages for ever".to_owned(),
        ),
        _ => Ok(time),
    }
}

/// The delay after a message's first delivery, and the maximum delay. Each further delivery doubles the delay up to the maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryDelay {
    pub first: Duration,
    pub most: Duration,
}

impl RetryDelay {
    /// Returns the delay after this number of deliveries.
    pub fn after(self, deliveries: u32) -> Duration {
        let doublings = deliveries.saturating_sub(1).min(31);
        self.first.saturating_mul(1 << doublings).min(self.most)
    }
}

impl From<(Duration, Duration)> for RetryDelay {
    fn from((first, most): (Duration, Duration)) -> RetryDelay {
        RetryDelay { first, most }
    }
}

impl Display for RetryDelay {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&time::length(self.first))?;
        match self.most == self.first {
            true => Ok(()),
            false => write!(f, "..{}", time::length(self.most)),
        }
    }
}

/// Parses a delay that stays the same, such as 5s, or doubles up to a limit, such as 1s..5m.
pub fn retry_delay(text: &str) -> Result<RetryDelay, String> {
    let (first, most) = text.split_once("..").unwrap_or((text, text));
    let delay = |text| {
        delay(text).map_err(|why| format!("{why}; a first delay and a limit are written as 1s..5m"))
    };
    let (first, most) = (delay(first)?, delay(most)?);
    match most {
        _ if first.is_zero() => Err("give a delay above 0, or leave the option out".to_owned()),
        most if most < first => Err("the limit must be at least the first delay".to_owned()),
        most => Ok(RetryDelay { first, most }),
    }
}

/// Parses a [`duration`] within the range of the queue's format.
pub fn delay(text: &str) -> Result<Duration, String> {
    let delay = duration(text)?;
    match u64::try_from(delay.as_nanos()) {
        Ok(_) => Ok(delay),
        Err(_) => Err("the longest delay is 584 years".to_owned()),
    }
}

/// Parses a time: as RFC 3339 writes it, or `@` and seconds since 1970.
pub fn moment(text: &str) -> Result<SystemTime, String> {
    let parsed = match text.strip_prefix('@') {
        Some(seconds) => seconds
            .parse()
            .ok()
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            .and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since)),
        None => text.parse::<Timestamp>().ok().map(SystemTime::from),
    };
    parsed.ok_or_else(|| {
        "give a time with its zone, such as 2026-01-31T12:00:00Z or 2026-01-31T12:00:00+01:00, or seconds since 1970, such as @1769860800; `date -Is -d 'tomorrow 8:00'` prints such a time".to_owned()
    })
}

/// Parses a count of at least 1.
pub fn times(text: &str) -> Result<u32, String> {
    match small_size(text)? {
        0 => Err("give a number from 1 up, or leave the option out".to_owned()),
        times => Ok(times),
    }
}

/// Parses an order of priorities: `strict`, which gives 0, or `fair:N`, which gives N.
pub fn priorities(text: &str) -> Result<u32, String> {
    if text == "strict" {
        return Ok(0);
    }
    text.strip_prefix("fair:")
        .and_then(|after| after.parse().ok())
        .filter(|after| (1..=65_535).contains(after))
        .ok_or_else(|| {
            "give `strict`, or `fair:N` with N from 1 to 65535, such as fair:4".to_owned()
        })
}

/// Parses a number of commands that run at once.
pub fn jobs(text: &str) -> Result<usize, String> {
    size(text)
        .ok()
        .and_then(|jobs| usize::try_from(jobs).ok())
        .filter(|jobs| (1..=MOST_JOBS).contains(jobs))
        .ok_or_else(|| format!("give a number from 1 to {MOST_JOBS}"))
}

/// The maximum of [`jobs`]. Each job takes a thread and a process.
const MOST_JOBS: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_powers_of_1024_except_those_of_1000() {
        assert_eq!(size("0"), Ok(0));
        assert_eq!(size("16K"), Ok(16 << 10));
        assert_eq!(size("1m"), Ok(1 << 20));
        assert_eq!(size("2GiB"), Ok(2 << 30));
        assert_eq!((size("64k"), size("1Ki")), (Ok(64 << 10), Ok(1 << 10)));
        assert_eq!((size("1KB"), size("3MB")), (Ok(1000), Ok(3_000_000)));
        for wrong in ["", "K", "1KBi", "1T", "1.5M", "-1", "99999999999999999G"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
        assert!(small_size("4G").is_err());
    }

    #[test]
    fn a_ceiling_may_be_none() {
        assert_eq!(ceiling("none"), Ok(Ceiling(None)));
        assert_eq!(ceiling("1G"), Ok(Ceiling(Some(1 << 30))));
        for word in ["some", "unlimited"] {
            assert!(ceiling(word).unwrap_err().contains("`none`"), "{word}");
        }
    }

    #[test]
    fn priorities_are_those_of_posix() {
        assert_eq!((priority("0"), priority("32767")), (Ok(0), Ok(32_767)));
        for wrong in ["", "-1", "32768", "high"] {
            assert!(priority(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_order_of_priorities_is_strict_or_fair() {
        assert_eq!(
            (priorities("strict"), priorities("fair:65535")),
            (Ok(0), Ok(65_535))
        );
        for wrong in ["", "fair", "fair:", "fair:0", "fair:65536", "fair:-1", "4"] {
            assert!(priorities(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn types_are_those_of_system_v() {
        assert_eq!(message_type("1"), Ok(1));
        assert_eq!(message_type("9223372036854775807"), Ok(i64::MAX));
        for wrong in ["", "0", "-1", "9223372036854775808", "any"] {
            assert!(message_type(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn modes_are_octal() {
        for text in ["640", "0640", "0o640"] {
            assert_eq!(mode(text), Ok(0o640), "{text}");
        }
        for wrong in ["", "0o", "8", "+7", "1777", "rw"] {
            assert!(mode(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_are_seconds_unless_they_say_otherwise() {
        let ms = |text| duration(text).map(|time| time.as_millis());
        assert_eq!((ms("0.25"), ms("0")), (Ok(250), Ok(0)));
        for (text, expected) in [
            ("500ms", 500),
            ("5s", 5000),
            ("1.5m", 90_000),
            ("2min", 120_000),
            ("1h", 3_600_000),
            ("1d", 86_400_000),
            ("1h30m", 5_400_000),
            ("1 s", 1000),
        ] {
            assert_eq!(ms(text), Ok(expected), "{text}");
        }
        assert!(duration("1e19").is_ok());
        for wrong in [
            "", "-1", "-1s", "NaN", "inf", "s", "1M", "5x", "1e99", "1.5d",
        ] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_time_to_live_is_one_that_a_queue_can_hold() {
        assert_eq!(time_to_live("500ms"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "0s", "0.0000000001s", "213504d", "soon"] {
            assert!(time_to_live(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_retry_delay_is_fixed_or_doubles_up_to_a_limit() {
        let fixed = retry_delay("5s").unwrap();
        assert_eq!(
            (fixed.to_string().as_str(), fixed.after(9).as_secs()),
            ("5s", 5)
        );
        let doubling = retry_delay("500ms..3s").unwrap();
        assert_eq!(doubling.to_string(), "500ms..3s");
        let ms = |deliveries| doubling.after(deliveries).as_millis();
        assert_eq!(
            [1, 2, 3, 4, u32::MAX].map(ms),
            [500, 1000, 2000, 3000, 3000]
        );
        for wrong in [
            "",
            "0",
            "0..5s",
            "5s..1s",
            "5s..",
            "..5s",
            "1s..2s..3s",
            "213504d",
        ] {
            assert!(retry_delay(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_time_has_its_zone() {
        let since = |text| {
            let time = moment(text).map(|time| time.duration_since(SystemTime::UNIX_EPOCH));
            time.map(|since| since.unwrap().as_millis())
        };
        for text in [
            "2026-01-31T12:00:00Z",
            "2026-01-31T13:00:00+01:00",
            "2026-01-31 13:00:00+01",
            "@1769860800",
        ] {
            assert_eq!(since(text), Ok(1_769_860_800_000), "{text}");
        }
        assert_eq!(since("@0.25"), Ok(250));
        for wrong in ["", "12:00", "2026-01-31T12:00:00", "@", "@-1", "tomorrow"] {
            assert!(moment(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_counted_begins_at_one() {
        assert_eq!(times("3"), Ok(3));
        assert!(times("0").is_err() && times("-1").is_err());
    }
}
