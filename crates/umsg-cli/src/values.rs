//! Numbers as they are written on a command line.

use std::time::Duration;

/// Bytes or a count: digits, perhaps with K, M or G, or KiB, MiB, GiB, which all mean powers of 1024.
pub fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        _ => return Err("a number may end in K, M or G, such as 16K".to_owned()),
    };
    let number: u64 = digits.parse().map_err(|_| match text.starts_with('-') {
        true => "a negative number makes no sense here".to_owned(),
        false => "give a number, such as 8192, 16K or 1M".to_owned(),
    })?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| "the number is too large".to_owned())
}

/// A [`size`] of at most 32 bits.
pub fn small_size(text: &str) -> Result<u32, String> {
    u32::try_from(size(text)?).map_err(|_| "the number is too large".to_owned())
}

/// A limit that may be absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ceiling(pub Option<u64>);

/// A [`size`], or `none`.
pub fn ceiling(text: &str) -> Result<Ceiling, String> {
    match text {
        "none" => Ok(Ceiling(None)),
        _ => size(text).map(|bytes| Ceiling(Some(bytes))),
    }
}

/// Of a message.
pub fn priority(text: &str) -> Result<u32, String> {
    text.parse()
        .ok()
        .filter(|&priority| priority <= 32_767)
        .ok_or_else(|| "give a priority from 0 to 32767".to_owned())
}

/// Permission bits in octal, with or without `0` or `0o` before them.
pub fn mode(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix("0o").unwrap_or(text);
    let all_octal =
        !digits.is_empty() && digits.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
    u32::from_str_radix(digits, 8)
        .ok()
        .filter(|&mode| all_octal && mode <= 0o777)
        .ok_or_else(|| "give permission bits in octal, such as 0660".to_owned())
}

/// Seconds, with decimals if wanted.
pub fn seconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .and_then(|seconds: f64| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "give seconds, from 0 up, such as 5 or 0.25".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_powers_of_1024() {
        assert_eq!(size("0"), Ok(0));
        assert_eq!(size("16K"), Ok(16 << 10));
        assert_eq!(size("1m"), Ok(1 << 20));
        assert_eq!(size("2GiB"), Ok(2 << 30));
        for wrong in ["", "K", "1KB", "1.5M", "-1", "99999999999999999G"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
        assert!(small_size("4G").is_err());
    }

    #[test]
    fn a_ceiling_may_be_none() {
        assert_eq!(ceiling("none"), Ok(Ceiling(None)));
        assert_eq!(ceiling("1G"), Ok(Ceiling(Some(1 << 30))));
        assert!(ceiling("some").is_err());
    }

    #[test]
    fn priorities_are_those_of_posix() {
        assert_eq!((priority("0"), priority("32767")), (Ok(0), Ok(32_767)));
        for wrong in ["", "-1", "32768", "high"] {
            assert!(priority(wrong).is_err(), "{wrong}");
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
    fn seconds_may_have_decimals_and_no_sign() {
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        for wrong in ["", "-1", "NaN", "inf", "1s"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
