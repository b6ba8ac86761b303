//! The answer of a worker to one operation. The coordinator compares the answers of both sides.

use std::fmt;

use crate::backend::{Answer, Failure, Fd};
use crate::errno::Errno;
use crate::sys::Pid;

/// The outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The call returned this value.
    Value(i64),
    /// The call returned a descriptor.
    Descriptor(Fd),
    /// The call returned an identifier.
    Identifier(i32),
    /// The call failed.
    Failed(Errno),
    /// The backend can't express the call.
    Unsupported,
}

/// The answer to an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The value that the call returned, or its errno.
    pub outcome: Outcome,
    /// The further results of the call, such as priority, attributes and status.
    pub details: Vec<i64>,
    /// The times that the call reported, in seconds.
    pub times: Vec<i64>,
    /// The bytes that the call delivered.
    pub data: Vec<u8>,
    /// The process id of the forked child. Process ids are not compared.
    pub child: Pid,
}

impl Reply {
    /// Creates an answer with this outcome and no details.
    pub fn new(outcome: Outcome) -> Reply {
        Reply {
            outcome,
            details: Vec::new(),
            times: Vec::new(),
            data: Vec::new(),
            child: 0,
        }
    }

    /// Returns the answer to a call. If the call succeeded, `reply` makes the answer from the result.
    pub fn of<T>(answer: Answer<T>, reply: impl FnOnce(T) -> Reply) -> Reply {
        match answer {
            Ok(value) => reply(value),
            Err(Failure::Errno(errno)) => Reply::new(Outcome::Failed(errno)),
            Err(Failure::Unsupported(_)) => Reply::new(Outcome::Unsupported),
        }
    }

    /// Adds these details to the answer.
    pub fn with(mut self, details: impl IntoIterator<Item = i64>) -> Reply {
        self.details.extend(details);
        self
    }

    /// Returns whether two sides gave the same answer.
    pub fn agrees(&self, other: &Reply, leeway: Leeway) -> bool {
        use Outcome::{Descriptor, Identifier};
        let outcomes = match (self.outcome, other.outcome) {
            (Descriptor(_), Descriptor(_)) | (Identifier(_), Identifier(_)) if !leeway.numbers => {
                true
            }
            (one, another) => one == another,
        };
        let times = self.times.len() == other.times.len()
            && self
                .times
                .iter()
                .zip(&other.times)
                .all(|(&one, &another)| leeway.covers(one, another));
        outcomes && times && self.details == other.details && self.data == other.data
    }

    /// Encodes the answer as the bytes of one record.
    pub fn encode(&self) -> Vec<u8> {
        let (tag, value) = match self.outcome {
            Outcome::Value(value) => (0, value),
            Outcome::Descriptor(fd) => (1, i64::from(fd)),
            Outcome::Failed(errno) => (2, i64::from(errno.0)),
            Outcome::Unsupported => (3, 0),
            Outcome::Identifier(id) => (4, i64::from(id)),
        };
        let counts = [self.details.len(), self.times.len()].map(|count| count as i64);
        let numbers = [tag, value, i64::from(self.child), counts[0], counts[1]];
        let mut bytes: Vec<u8> = Vec::with_capacity(64 + self.data.len());
        bytes.extend(
            numbers
                .iter()
                .chain(&self.details)
                .chain(&self.times)
                .flat_map(|number| number.to_le_bytes()),
        );
        bytes.extend(&self.data);
        bytes
    }

    /// Decodes the bytes of a record. Returns `None` if the bytes are invalid.
    pub fn decode(bytes: &[u8]) -> Option<Reply> {
        let mut rest = bytes;
        let mut number = || {
            let (first, after) = rest.split_first_chunk::<8>()?;
            rest = after;
            Some(i64::from_le_bytes(*first))
        };
        let [tag, value, child] = [number()?, number()?, number()?];
        let counts = [number()?, number()?];
        let [details, times] =
            counts.map(|count| (0..count).map(|_| number()).collect::<Option<Vec<i64>>>());
        let (details, times) = (details?, times?);
        let outcome = match tag {
            0 => Outcome::Value(value),
            1 => Outcome::Descriptor(value as Fd),
            2 => Outcome::Failed(Errno(value as i32)),
            4 => Outcome::Identifier(value as i32),
            _ => Outcome::Unsupported,
        };
        Some(Reply {
            outcome,
            details,
            times,
            data: rest.to_vec(),
            child: child as Pid,
        })
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.outcome {
            Outcome::Value(value) => write!(f, "{value}")?,
            Outcome::Descriptor(fd) => write!(f, "descriptor {fd}")?,
            Outcome::Identifier(id) => write!(f, "identifier {id}")?,
            Outcome::Failed(errno) => write!(f, "{errno}")?,
            Outcome::Unsupported => write!(f, "(no such call)")?,
        }
        if !self.details.is_empty() {
            write!(f, " {:?}", self.details)?;
        }
        if !self.times.is_empty() {
            write!(f, " at {:?}", self.times)?;
        }
        if self.data.is_empty() {
            return Ok(());
        }
        let start: String = self
            .data
            .iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let dots = if self.data.len() > 8 { "..." } else { "" };
        write!(
            f,
            " {} bytes {start}{dots} (sum {:x})",
            self.data.len(),
            sum(&self.data)
        )
    }
}

/// The differences that are allowed between two answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leeway {
    /// True if descriptors and identifiers have to be equal.
    pub numbers: bool,
    /// The maximum difference of two times, in seconds.
    pub seconds: u64,
}

impl Leeway {
    /// Returns whether the difference of two times is allowed. Zero means that the event has not occurred, so it differs from every time.
    fn covers(self, one: i64, another: i64) -> bool {
        one == another || one != 0 && another != 0 && one.abs_diff(another) <= self.seconds
    }
}

/// Returns the answer of a call that returned this value.
pub fn returned(value: i64) -> Reply {
    Reply::new(Outcome::Value(value))
}

/// Returns the answer of a call that returns 0 or fails.
pub fn plain(answer: Answer<()>) -> Reply {
    Reply::of(answer, |()| returned(0))
}

/// Returns a checksum of the bytes.
fn sum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |sum: u32, &byte| {
        (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_survives_the_socket() {
        let outcomes = [
            Outcome::Value(-7),
            Outcome::Descriptor(5),
            Outcome::Identifier(32768),
            Outcome::Failed(Errno::EAGAIN),
            Outcome::Unsupported,
        ];
        for outcome in outcomes {
            let reply = Reply {
                outcome,
                details: vec![i64::MIN, 3],
                times: vec![1_700_000_000],
                data: b"bytes".to_vec(),
                child: 99,
            };
            assert_eq!(Reply::decode(&reply.encode()), Some(reply));
        }
        assert_eq!(Reply::decode(b"short"), None);
    }

    #[test]
    fn descriptors_agree_by_number_or_by_being_descriptors() {
        let [three, four] = [3, 4].map(|fd| Reply::new(Outcome::Descriptor(fd)));
        let leeway = |numbers| Leeway {
            numbers,
            seconds: 0,
        };
        assert!(!three.agrees(&four, leeway(true)));
        assert!(three.agrees(&four, leeway(false)));
        assert!(!three.agrees(&Reply::new(Outcome::Value(3)), leeway(false)));
    }

    #[test]
    fn times_agree_if_they_are_near_each_other_and_both_are_times() {
        let at = |times: &[i64]| Reply {
            times: times.to_vec(),
            ..returned(0)
        };
        let leeway = Leeway {
            numbers: true,
            seconds: 1,
        };
        assert!(at(&[100, 7]).agrees(&at(&[101, 7]), leeway));
        assert!(!at(&[100]).agrees(&at(&[102]), leeway));
        assert!(!at(&[1]).agrees(&at(&[0]), leeway));
        assert!(!at(&[1]).agrees(&at(&[1, 1]), leeway));
    }
}
