//! Parses and prints the arguments by which a command line names a queue or a ring.
//!
//! | written | meant |
//! |---|---|
//! | `/orders`, `orders` | the POSIX queue of this name |
//! | `key:0x1234`, `key:4660`, `0x1234` | the System V queue of this key |
//! | `id:32769` | the System V queue with this identifier |
//! | `ring:/jobs`, `ring:jobs` | the ring of this name, for commands that know rings |
//!
//! Each form has one meaning: an argument that begins with a slash is always a POSIX queue's name. A POSIX queue `/key:1`, `/id:1`, `/0x1` or
//! `/ring:jobs` is named with its slash.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use clap::builder::{OsStringValueParser, TypedValueParser};

use crate::failure::{Code, Failure};
use crate::names::Name;

/// A POSIX queue, a System V queue, or a ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    Queue(Address),
    Ring(Name),
}

/// A POSIX queue or a System V queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Posix(Name),
    SystemV(Label),
}

/// The key or the identifier of a System V queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label {
    Key(i32, Notation),
    Id(i32),
}

/// The form in which a key was given. The command prints the key in the same form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notation {
    /// Hexadecimal, with this number of digits.
    Hex(usize),
    Signed,
    Unsigned,
}

/// Returns clap's parser of an argument that names a POSIX or System V queue.
pub fn address() -> impl TypedValueParser<Value = Address> {
    OsStringValueParser::new().try_map(Address::parse)
}

/// Returns clap's parser of an argument that names a queue or ring.
pub fn subject() -> impl TypedValueParser<Value = Subject> {
    OsStringValueParser::new().try_map(Subject::parse)
}

/// Returns clap's parser of the name of a POSIX queue, for options that accept no System V queue.
pub fn name() -> impl TypedValueParser<Value = Name> {
    address().try_map(|address| match address {
        Address::Posix(name) => Ok(name),
        Address::SystemV(label) => Err(format!(
            "{label} names a System V queue, and a POSIX queue is required here; write the slash to name a POSIX queue, as in /orders"
        )),
    })
}

impl Subject {
    fn parse(argument: OsString) -> Result<Subject, String> {
        match ring(&argument) {
            Some(name) => Ok(Subject::Ring(name)),
            None => Address::parse(argument).map(Subject::Queue),
        }
    }

    /// Returns the name for JSON, as [`Address::lossy`] does.
    pub fn lossy(&self) -> String {
        match self {
            Subject::Queue(queue) => queue.lossy(),
            Subject::Ring(name) => format!("{RING}{}", name.lossy()),
        }
    }
}

/// The prefix of a ring's name.
pub const RING: &str = "ring:";

/// Returns the name of a ring. Returns None if the argument has no prefix `ring:`.
fn ring(argument: &OsStr) -> Option<Name> {
    let name = argument.as_bytes().strip_prefix(RING.as_bytes())?;
    Some(Name::from(OsStr::from_bytes(name)))
}

impl Address {
    /// Parses an argument that names a POSIX or System V queue.
    pub fn parse(argument: OsString) -> Result<Address, String> {
        if let Some(name) = ring(&argument) {
            return Err(format!(
                "this command does not work with rings; a POSIX queue of this name is written /{RING}{}",
                name.to_string().trim_start_matches('/')
            ));
        }
        let label = argument.to_str().and_then(Label::parse);
        match label {
            Some(label) => label.map(Address::SystemV),
            None => Ok(Address::Posix(Name::from(argument))),
        }
    }
}

impl Address {
    /// Returns the argument that names the queue.
    pub fn argument(&self) -> OsString {
        match self {
            Address::Posix(name) => AsRef::<OsStr>::as_ref(name).to_owned(),
            Address::SystemV(label) => label.to_string().into(),
        }
    }

    /// Returns the name for JSON: bytes that are not UTF-8 are replaced, and keys have one form.
    pub fn lossy(&self) -> String {
        match self {
            Address::Posix(name) => name.lossy(),
            Address::SystemV(label) => label.canonical(),
        }
    }
}

impl Name {
    /// Returns the failure for a name that belongs to a ring, where a queue is required.
    pub fn is_a_ring(&self) -> Failure {
        let line =
            format!("{self}: this is the name of a ring, not of a queue; write {RING}{self}");
        Failure::new(Code::Failed, line)
    }

    /// Returns the failure for an option that applies only to System V queues.
    pub fn has_no(&self, what: &str, hint: &str) -> Failure {
        let line = format!("{self}: a POSIX queue has no {what}; {hint}");
        Failure::new(Code::Usage, line)
    }
}

impl Label {
    /// Returns the failure for an option that applies only to POSIX queues, as [`Name::has_no`] does for System V options.
    pub fn has_no(self, what: &str, hint: &str) -> Failure {
        let line = format!("{self}: a System V queue has no {what}; {hint}");
        Failure::new(Code::Usage, line)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Posix(name) => name.fmt(f),
            Address::SystemV(label) => label.fmt(f),
        }
    }
}

impl Label {
    /// Returns the key, in the form of ipcs(1), or the identifier.
    pub fn canonical(self) -> String {
        match self {
            Label::Key(key, _) => format!("key:{key:#010x}"),
            Label::Id(_) => self.to_string(),
        }
    }

    /// Returns the key; None for an identifier.
    pub fn key(self) -> Option<i32> {
        match self {
            Label::Key(key, _) => Some(key),
            Label::Id(_) => None,
        }
    }

    /// Parses the key or identifier of a System V queue. Returns None if the argument is a name.
    fn parse(text: &str) -> Option<Result<Label, String>> {
        let label = if let Some(number) = text.strip_prefix("key:") {
            key(number).map(|(key, notation)| Label::Key(key, notation))
        } else if let Some(number) = text.strip_prefix("id:") {
            number.parse().ok().filter(|id| *id >= 0).map(Label::Id)
        } else if text.starts_with("0x") || text.starts_with("0X") {
            key(text).map(|(key, notation)| Label::Key(key, notation))
        } else {
            return None;
        };
        Some(label.ok_or_else(|| {
            format!("write a System V queue as key:0x1234, key:4660, 0x1234 or id:32769, and the POSIX queue of this name as /{text}")
        }))
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Label::Key(key, Notation::Hex(digits)) => write!(f, "key:0x{key:0digits$x}"),
            Label::Key(key, Notation::Signed) => write!(f, "key:{key}"),
            Label::Key(key, Notation::Unsigned) => write!(f, "key:{}", key.cast_unsigned()),
            Label::Id(id) => write!(f, "id:{id}"),
        }
    }
}

/// Parses a key of 32 bits: in hexadecimal, as ipcs(1) prints it, or as a decimal number with or without a sign.
fn key(text: &str) -> Option<(i32, Notation)> {
    if let Some(digits) = text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        let all_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let key = u32::from_str_radix(digits, 16).ok().filter(|_| all_hex)?;
        return Some((key.cast_signed(), Notation::Hex(digits.len())));
    }
    let number: i64 = text.parse().ok()?;
    let signed = i32::try_from(number)
        .ok()
        .map(|key| (key, Notation::Signed));
    let unsigned = || {
        let key = u32::try_from(number).ok()?;
        Some((key.cast_signed(), Notation::Unsigned))
    };
    signed.or_else(unsigned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Address, String> {
        Address::parse(text.into())
    }

    fn key(key: i32) -> Result<Option<i32>, String> {
        Ok(Some(key))
    }

    fn key_of(text: &str) -> Result<Option<i32>, String> {
        parse(text).map(|address| match address {
            Address::SystemV(label) => label.key(),
            Address::Posix(_) => None,
        })
    }

    #[test]
    fn a_key_is_written_as_ipcs_prints_it_or_as_a_number() {
        assert_eq!(key_of("key:0x00001234"), key(0x1234));
        assert_eq!(key_of("0x1234"), key(0x1234));
        assert_eq!((key_of("key:4660"), key_of("key:-1")), (key(4660), key(-1)));
        assert_eq!(
            (key_of("key:4294967295"), key_of("0xFFFFffff")),
            (key(-1), key(-1))
        );
        for wrong in [
            "key:",
            "key:x",
            "key:0x",
            "0x",
            "0x1g",
            "0x+1",
            "0x123456789",
            "key:4294967296",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_identifier_is_a_number_from_0_up() {
        assert_eq!(parse("id:32769"), Ok(Address::SystemV(Label::Id(32_769))));
        for wrong in ["id:", "id:-1", "id:0x1", "id:2147483648"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn all_else_is_a_name_and_so_is_what_has_a_slash() {
        for name in [
            "/key:1", "/id:1", "/0x1", "orders", "ids", "keys", "0", "32769", "",
        ] {
            assert!(matches!(parse(name), Ok(Address::Posix(_))), "{name}");
        }
    }

    #[test]
    fn a_ring_is_written_as_one_and_is_no_queue() {
        for text in ["ring:/jobs", "ring:jobs"] {
            let Ok(ring) = Subject::parse(text.into()) else {
                panic!("{text}");
            };
            assert_eq!(ring.lossy(), "ring:/jobs");
            assert!(parse(text).unwrap_err().contains("written /ring:jobs"));
        }
        let queue = Subject::parse("/ring:jobs".into());
        assert_eq!(queue, parse("/ring:jobs").map(Subject::Queue));
    }

    #[test]
    fn what_is_printed_is_what_is_written() {
        for text in [
            "key:0x00001234",
            "key:0x1234",
            "key:0xffffffff",
            "key:4660",
            "key:-1",
            "key:4294967295",
            "id:7",
            "/orders",
        ] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
        assert_eq!(parse("0x1234").unwrap().to_string(), "key:0x1234");
        // JSON has one form of a key, whatever the form on the command line.
        assert_eq!(parse("key:4660").unwrap().lossy(), "key:0x00001234");
    }
}
