//! The local end of a bridge, as the configuration writes it: `/orders`, `key:0x1234`, `ring:/jobs`.
//!
//! | written | meant |
//! |---|---|
//! | `/orders` | the POSIX queue of this name |
//! | `key:0x1234`, `key:4660` | the System V queue of this key |
//! | `id:32769` | the System V queue with this identifier |
//! | `ring:/jobs` | the ring of this name |
//! | `kernel:/orders` | the kernel's POSIX queue of this name |

use serde::Deserialize;
use std::fmt;
use std::str::FromStr;

/// The local end of a bridge.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum End {
    /// A POSIX queue, by its name with its slash.
    Posix(String),
    /// A System V queue, by its key.
    Key(i32),
    /// A System V queue, by its identifier.
    Id(i32),
    /// A ring, by its name with its slash.
    Ring(String),
    /// A POSIX queue of the kernel, by its name with its slash.
    Kernel(String),
}

impl FromStr for End {
    type Err = String;

    fn from_str(text: &str) -> Result<End, String> {
        let number = |digits: &str| match digits.strip_prefix("0x") {
            Some(hex) => u32::from_str_radix(hex, 16).ok().map(|key| key as i32),
            None => digits.parse::<i32>().ok(),
        };
        let name = |name: &str| {
            let rest = name.strip_prefix('/')?;
            let fits = !rest.is_empty() && rest.len() < 255 && !rest.contains(['/', '\0']);
            fits.then(|| name.to_owned())
        };
        let end = match text.split_once(':') {
            Some(("key", key)) => number(key).filter(|key| *key != 0).map(End::Key),
            Some(("id", id)) => number(id).map(End::Id),
            Some(("ring", ring)) => name(ring).map(End::Ring),
            Some(("kernel", queue)) => name(queue).map(End::Kernel),
            _ => name(text).map(End::Posix),
        };
        if text
            .split_once(':')
            .is_some_and(|(kind, key)| kind == "key" && number(key) == Some(0))
        {
            return Err(format!(
                "{text:?} is the key of queues without a name (IPC_PRIVATE): write another key, or id:NUMBER"
            ));
        }
        end.ok_or_else(|| format!(
            "{text:?} is not a queue: write /NAME, key:NUMBER, id:NUMBER, ring:/NAME or kernel:/NAME"
        ))
    }
}

impl TryFrom<String> for End {
    type Error = String;

    fn try_from(text: String) -> Result<End, String> {
        text.parse()
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Posix(name) => write!(f, "{name}"),
            End::Key(key) => write!(f, "key:{key:#x}"),
            End::Id(id) => write!(f, "id:{id}"),
            End::Ring(name) => write!(f, "ring:{name}"),
            End::Kernel(name) => write!(f, "kernel:{name}"),
        }
    }
}

impl End {
    /// Returns whether the messages of this end have types instead of priorities.
    #[must_use]
    pub fn is_sysv(&self) -> bool {
        matches!(self, End::Key(_) | End::Id(_))
    }

    /// Returns whether the end leases messages, so that a death of the bridge loses none.
    #[must_use]
    pub fn leases(&self) -> bool {
        matches!(self, End::Posix(_) | End::Key(_) | End::Id(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_read_as_it_is_printed() {
        for text in ["/q", "key:0x1234", "id:5", "ring:/r", "kernel:/k", "/key:1"] {
            assert_eq!(text.parse::<End>().unwrap().to_string(), text);
        }
        for bad in [
            "q", "/", "", "key:0", "key:x", "ring:r", "kernel:", "/a/b", "id:",
        ] {
            assert!(bad.parse::<End>().is_err(), "{bad}");
        }
    }
}
