//! The answer of a worker to one operation: all that is compared.

use std::fmt;

use crate::backend::{Answer, Failure, Fd};
use crate::errno::Errno;
use crate::sys::Pid;

/// What came of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It returned this.
    Value(i64),
    /// It returned a descriptor.
    Descriptor(Fd),
    /// It failed.
    Failed(Errno),
    /// The backend has no such call.
    Unsupported,
}

/// The answer to an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// What the call returned.
    pub outcome: Outcome,
    /// What else it said: priority, attributes, status.
    pub details: Vec<i64>,
    /// The bytes that it delivered.
    pub data: Vec<u8>,
    /// The child that was forked: not compared.
    pub child: Pid,
}

impl Reply {
    /// A plain answer.
    pub fn new(outcome: Outcome) -> Reply {
        Reply {
            outcome,
            details: Vec::new(),
            data: Vec::new(),
            child: 0,
        }
    }

    /// The answer of a call, or of one that failed.
    pub fn of<T>(answer: Answer<T>, reply: impl FnOnce(T) -> Reply) -> Reply {
        match answer {
            Ok(value) => reply(value),
            Err(Failure::Errno(errno)) => Reply::new(Outcome::Failed(errno)),
            Err(Failure::Unsupported(_)) => Reply::new(Outcome::Unsupported),
        }
    }

    /// The same, with these details.
    pub fn with(mut self, details: impl IntoIterator<Item = i64>) -> Reply {
        self.details.extend(details);
        self
    }

    /// Whether two sides gave the same answer. `numbers` says whether descriptor numbers have to be the same.
    pub fn agrees(&self, other: &Reply, numbers: bool) -> bool {
        let outcomes = match (self.outcome, other.outcome) {
            (Outcome::Descriptor(_), Outcome::Descriptor(_)) if !numbers => true,
            (one, another) => one == another,
        };
        outcomes && self.details == other.details && self.data == other.data
    }

    /// As the bytes of one record.
    pub fn encode(&self) -> Vec<u8> {
        let (tag, value) = match self.outcome {
            Outcome::Value(value) => (0, value),
            Outcome::Descriptor(fd) => (1, i64::from(fd)),
            Outcome::Failed(errno) => (2, i64::from(errno.0)),
            Outcome::Unsupported => (3, 0),
        };
        let numbers = [tag, value, i64::from(self.child), self.details.len() as i64];
        let mut bytes: Vec<u8> = Vec::with_capacity(64 + self.data.len());
        bytes.extend(
            numbers
                .iter()
                .chain(&self.details)
                .flat_map(|number| number.to_le_bytes()),
        );
        bytes.extend(&self.data);
        bytes
    }

    /// From the bytes of a record; `None` if they are none.
    pub fn decode(bytes: &[u8]) -> Option<Reply> {
        let mut rest = bytes;
        let mut number = || {
            let (first, after) = rest.split_first_chunk::<8>()?;
            rest = after;
            Some(i64::from_le_bytes(*first))
        };
        let [tag, value, child, count] = [number()?, number()?, number()?, number()?];
        let details = (0..count).map(|_| number()).collect::<Option<Vec<i64>>>()?;
        let outcome = match tag {
            0 => Outcome::Value(value),
            1 => Outcome::Descriptor(value as Fd),
            2 => Outcome::Failed(Errno(value as i32)),
            _ => Outcome::Unsupported,
        };
        Some(Reply {
            outcome,
            details,
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
            Outcome::Failed(errno) => write!(f, "{errno}")?,
            Outcome::Unsupported => write!(f, "(no such call)")?,
        }
        if !self.details.is_empty() {
            write!(f, " {:?}", self.details)?;
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

/// A sum that tells one content from another.
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
            Outcome::Failed(Errno::EAGAIN),
            Outcome::Unsupported,
        ];
        for outcome in outcomes {
            let reply = Reply {
                outcome,
                details: vec![i64::MIN, 3],
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
        assert!(!three.agrees(&four, true));
        assert!(three.agrees(&four, false));
        assert!(!three.agrees(&Reply::new(Outcome::Value(3)), false));
    }
}
