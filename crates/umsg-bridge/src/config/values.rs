//! The notations of values: times, sizes, lists.

use serde::Deserialize;
use serde::de::{Deserializer, Error};
use std::time::Duration;

/// A time: `"30s"`, `"2m"`, `"500ms"`, `"1h"`, `"7d"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause(pub Duration);

/// A number of bytes: `8192`, `"64K"`, `"1M"`, `"10G"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

/// Splits a number from its unit.
fn split(text: &str) -> Option<(u64, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

impl std::str::FromStr for Pause {
    type Err = String;

    fn from_str(text: &str) -> Result<Pause, String> {
        let milliseconds = split(text).and_then(|(number, unit)| {
            let of = [
                ("ms", 1),
                ("s", 1000),
                ("m", 60_000),
                ("h", 3_600_000),
                ("d", 86_400_000),
            ];
            let (_, factor) = of.iter().find(|(known, _)| *known == unit)?;
            number.checked_mul(*factor).filter(|time| *time > 0)
        });
        let refusal = || {
            format!(
                "{text:?} is not a time: write a positive number and ms, s, m, h or d, as in \"30s\""
            )
        };
        milliseconds
            .map(|time| Pause(Duration::from_millis(time)))
            .ok_or_else(refusal)
    }
}

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let bytes = split(text).and_then(|(number, unit)| {
            let of = [("", 0), ("K", 10), ("M", 20), ("G", 30), ("T", 40)];
            let (_, shift) = of.iter().find(|(known, _)| *known == unit)?;
            number.checked_mul(1 << shift)
        });
        bytes.map(Size).ok_or_else(|| {
            format!("{text:?} is not a size: write a number of bytes, or a number with K, M, G or T after it")
        })
    }
}

/// A time as it is written. The type has one form, so that the error for another form says what to write.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a time in quotes, such as \"30s\"")]
enum Time {
    Text(String),
}

impl<'de> Deserialize<'de> for Pause {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Pause, D::Error> {
        let Time::Text(text) = Time::deserialize(from)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected a number of bytes, or a string such as \"64K\""
)]
enum Written {
    Number(u64),
    Text(String),
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Size, D::Error> {
        match Written::deserialize(from)? {
            Written::Number(bytes) => Ok(Size(bytes)),
            Written::Text(text) => text.parse().map_err(D::Error::custom),
        }
    }
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected a string in quotes, or a list of strings"
)]
enum Several {
    One(String),
    More(Vec<String>),
}

/// Reads one text, or a list.
pub fn one_or_more<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    Ok(match Several::deserialize(from)? {
        Several::One(one) => vec![one],
        Several::More(more) => more,
    })
}

/// Returns the default window, in messages.
pub fn window() -> usize {
    512
}

/// Returns the default time until a redelivery.
pub fn ack_wait() -> Pause {
    Pause(Duration::from_secs(30))
}

/// Returns the default window of redeliveries, in sequences. Its file takes 2 MiB, and its memory about 4.5 MiB.
pub fn dedupe() -> usize {
    1 << 16
}

/// Returns the default number of replicas.
pub fn one() -> usize {
    1
}

/// Returns the default capacity of a queue that the bridge makes.
pub fn messages() -> u32 {
    10_000
}

/// Returns the default message size of a queue that the bridge makes.
pub fn message_size() -> Size {
    Size(8192)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_have_units() {
        assert_eq!("2m".parse(), Ok(Pause(Duration::from_secs(120))));
        assert_eq!("64K".parse(), Ok(Size(65_536)));
        for bad in [
            "",
            "5",
            "s",
            "0s",
            "-1s",
            "1.5s",
            "5 s",
            "99999999999999999999s",
            "18446744073709551615d",
        ] {
            assert!(bad.parse::<Pause>().is_err(), "{bad}");
        }
        for bad in ["", "K", "1k", "99999999999999999999", "99999999999T"] {
            assert!(bad.parse::<Size>().is_err(), "{bad}");
        }
    }
}
