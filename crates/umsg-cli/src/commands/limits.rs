//! `umsg limits`.

use std::io::Write;

use clap::Args;
use serde::Serialize;
use umsg::{Namespace, NamespaceError};

use crate::cli::Cli;
use crate::failure::{Code, Explain, Failure, Result, say};
use crate::output::table::{Side, Table};
use crate::output::{self, Format, json};
use crate::place;
use crate::values::{self, Ceiling};

/// Memory of a queue without messages, in bytes.
const EMPTY_QUEUE: u64 = 36 << 10;

/// Show or set the limits of the namespace
///
/// The limits belong to the namespace and apply to all its users. The namespace's owner and root can set the limits. A new limit applies to queues
/// that are created later; --max-bytes also limits the growth of existing queues. Limits that are not given keep their values.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  umsg limits
  umsg limits --default-messages 1000 --default-message-size 1K
  umsg limits --max-bytes 4G
  umsg limits --max-bytes none")]
pub struct Limits {
    /// Maximum number of POSIX queues, from 0 to 64K; 0 allows no new queues [default: 64K]
    #[arg(long, value_name = "N", value_parser = values::small_size, allow_hyphen_values = true)]
    max_queues: Option<u32>,
    /// Maximum depth of a new queue, from 1 to 1M messages [default: 1M]
    #[arg(long, value_name = "N", value_parser = values::small_size, allow_hyphen_values = true)]
    max_messages: Option<u32>,
    /// Maximum message size of a new queue, from 1 to 16M bytes [default: 16M]
    #[arg(long, value_name = "BYTES", value_parser = values::small_size, allow_hyphen_values = true)]
    max_message_size: Option<u32>,
    /// Depth of a queue that is created without a depth, from 1 to --max-messages [default: 10]
    #[arg(long, value_name = "N", value_parser = values::small_size, allow_hyphen_values = true)]
    default_messages: Option<u32>,
    /// Message size of a queue that is created without a size, from 1 to --max-message-size bytes [default: 8K]
    #[arg(long, value_name = "BYTES", value_parser = values::small_size, allow_hyphen_values = true)]
    default_message_size: Option<u32>,
    /// Maximum memory of all queues and named rings together, in bytes, at least 36K, or `none`. Only memory that is in use counts [default: none]
    #[arg(long, value_name = "BYTES", value_parser = values::ceiling, allow_hyphen_values = true)]
    max_bytes: Option<Ceiling>,
    /// System V: maximum message size of new queues, from 0 to 16M bytes [default: 8K]
    #[arg(long, value_name = "BYTES", value_parser = values::small_size, allow_hyphen_values = true)]
    msgmax: Option<u32>,
    /// System V: maximum bytes of all messages in a new queue [default: 16K]
    #[arg(long, value_name = "BYTES", value_parser = values::small_size, allow_hyphen_values = true)]
    msgmnb: Option<u32>,
    /// System V: maximum number of queues, from 0 to 32K; 0 allows no new queues [default: 32000]
    #[arg(long, value_name = "N", value_parser = values::small_size, allow_hyphen_values = true)]
    msgmni: Option<u32>,
    /// System V: largest msg_qbytes (bytes of all messages in a queue) that a queue's owner can set. Values up to msgmnb are always allowed
    /// [default: 1G]
    #[arg(long, value_name = "BYTES", value_parser = values::small_size, allow_hyphen_values = true)]
    max_qbytes: Option<u32>,
    /// Refuse modes that only umsg's library can enforce: modes with send-only or receive-only access, such as 0622 and 0644. The option applies to
    /// POSIX and System V queues. The modes 0600, 0660 and 0666 stay allowed, and existing queues keep their mode [default: false]
    #[arg(long, value_name = "true|false")]
    enforced_modes: Option<bool>,
    /// Limit the POSIX queues of each user by RLIMIT_MSGQUEUE (`ulimit -q`) of the process that creates a queue, and count bytes as the kernel does
    /// [default: false]
    #[arg(long, value_name = "true|false")]
    rlimit_msgqueue: Option<bool>,
    #[command(flatten)]
    format: Format,
}

/// The limits in JSON.
#[derive(Serialize)]
struct Shown {
    namespace: String,
    max_queues: u32,
    max_messages: u32,
    max_message_size: u32,
    default_messages: u32,
    default_message_size: u32,
    max_bytes: Option<u64>,
    enforced_modes: bool,
    rlimit_msgqueue: bool,
    msgmax: u32,
    msgmnb: u32,
    msgmni: u32,
    max_qbytes: u32,
}

impl Limits {
    pub fn perform(&self, cli: &Cli) -> Result {
        let namespace = match self.sets_any() {
            true => place::namespace(cli)?,
            false => place::existing(cli)?,
        };
        let found = namespace.limits()?;
        let mut wanted = self.applied_to(&found);
        let mut out = output::standard()?;
        if wanted != found {
            self.check(&wanted)?;
            // `update_limits` passes the current limits, because another process may have changed some since they were read above.
            let set = namespace.update_limits(|limits| *limits = self.applied_to(limits));
            wanted = set.map_err(refused)?;
            self.warn(&namespace, &wanted)?;
        }
        if self.format.json {
            json::print(&mut out, &shown(&namespace, &wanted))?;
        } else {
            let origin = place::origin(cli, namespace.kind());
            writeln!(out, "namespace {} ({origin})", namespace.path().display())?;
            table(&wanted).print(&mut out)?;
        }
        Ok(out.flush()?)
    }

    fn sets_any(&self) -> bool {
        let numbers = [
            self.max_queues,
            self.max_messages,
            self.max_message_size,
            self.default_messages,
            self.default_message_size,
            self.msgmax,
            self.msgmnb,
            self.msgmni,
            self.max_qbytes,
        ];
        let others = self.max_bytes.is_some()
            || self.enforced_modes.is_some()
            || self.rlimit_msgqueue.is_some();
        others || numbers.iter().any(Option::is_some)
    }

    fn applied_to(&self, found: &umsg::Limits) -> umsg::Limits {
        let (number, was) = (Option::unwrap_or, found);
        umsg::Limits {
            max_queues: number(self.max_queues, was.max_queues),
            max_messages: number(self.max_messages, was.max_messages),
            max_message_size: number(self.max_message_size, was.max_message_size),
            default_messages: number(self.default_messages, was.default_messages),
            default_message_size: number(self.default_message_size, was.default_message_size),
            max_bytes: self.max_bytes.map_or(was.max_bytes, |Ceiling(bytes)| bytes),
            enforced_modes: self.enforced_modes.unwrap_or(was.enforced_modes),
            msgmax: number(self.msgmax, was.msgmax),
            msgmnb: number(self.msgmnb, was.msgmnb),
            msgmni: number(self.msgmni, was.msgmni),
            max_qbytes: number(self.max_qbytes, was.max_qbytes),
            rlimit_msgqueue: self.rlimit_msgqueue.unwrap_or(was.rlimit_msgqueue),
            next_id: was.next_id,
        }
    }
}

impl Limits {
    /// Refuses limits that make no sense but that the library would accept, and limits for which the library's error is less clear.
    fn check(&self, wanted: &umsg::Limits) -> Result {
        let refuse = |code, line: String| Err(Failure::new(code, line));
        let most = umsg::Limits::default().max_queues;
        match (self.max_queues, self.max_bytes) {
            (Some(queues), _) if queues > most => {
                let line = format!("--max-queues must be from 0 to {most}, not {queues}");
                return refuse(Code::Usage, line);
            }
            (_, Some(Ceiling(Some(bytes)))) if bytes < EMPTY_QUEUE => {
                let line = format!(
                    "--max-bytes is {bytes}: choose at least {EMPTY_QUEUE}, the size of an empty queue, or `none`; \
                     --max-queues 0 allows no new queues"
                );
                return refuse(Code::Usage, line);
            }
            _ => {}
        }
        let pairs = [
            (
                "messages",
                (wanted.default_messages, self.default_messages),
                (wanted.max_messages, self.max_messages),
            ),
            (
                "message-size",
                (wanted.default_message_size, self.default_message_size),
                (wanted.max_message_size, self.max_message_size),
            ),
        ];
        // If a default exceeds its maximum, new queues get the maximum. The user mostly doesn't mean this, so the command refuses such values. A
        // program may still have set them through /proc/sys.
        for (what, (default, given), (most, also_given)) in pairs {
            let is_given = given.is_some() || also_given.is_some();
            if is_given && default > most && most > 0 {
                let line = format!(
                    "--default-{what} is {default}, more than --max-{what} allows ({most}): lower the first, or raise the second"
                );
                return refuse(Code::Failed, line);
            }
        }
        Ok(())
    }

    /// Warns about new limits that existing queues already exceed: these queues stay.
    fn warn(&self, namespace: &Namespace, wanted: &umsg::Limits) -> Result {
        self.warn_of_sysv(namespace, wanted)?;
        if self.max_queues.is_none() && self.max_bytes.is_none() {
            return Ok(());
        }
        let queues = umsg::posix::list(namespace)?;
        if self.max_queues.is_some() && queues.len() > wanted.max_queues as usize {
            say(too_many("queues", queues.len(), wanted.max_queues));
        }
        let most = wanted.max_bytes.unwrap_or(u64::MAX);
        let bytes = namespace.allocated_bytes()?;
        if self.max_bytes.is_some() && bytes > most {
            say(format_args!(
                "queues and rings already take {bytes} bytes; they stay, but can't grow until they take less than {most} bytes"
            ));
        }
        Ok(())
    }
}

impl Limits {
    /// Warns about new System V limits that existing queues already exceed, as [`Limits::warn`] does for all queues.
    fn warn_of_sysv(&self, namespace: &Namespace, wanted: &umsg::Limits) -> Result {
        if self.msgmni.is_none() {
            return Ok(());
        }
        let queues = umsg::sysv::list(namespace);
        let queues = queues.map_err(|error| Failure::new(Code::Failed, error.explain()))?;
        if queues.len() > wanted.msgmni as usize {
            say(too_many("System V queues", queues.len(), wanted.msgmni));
        }
        Ok(())
    }
}

/// Returns the failure for a refused limit. A value outside the range that every namespace has is an error of the command line.
fn refused(error: NamespaceError) -> Failure {
    let code = match error {
        NamespaceError::InvalidLimit { .. } => Code::Usage,
        _ => Code::Failed,
    };
    Failure::from(error).coded(code)
}

/// Describes the effect of a limit on existing queues.
fn too_many(what: &str, found: usize, limit: u32) -> String {
    let new = match limit {
        0 => "no new queues can be created".to_owned(),
        _ => format!("new queues can be created when there are fewer than {limit}"),
    };
    format!("there are already {found} {what}: they stay, and {new}")
}

fn table(limits: &umsg::Limits) -> Table<3> {
    let mut table = Table::new([
        ("LIMIT", Side::Left),
        ("VALUE", Side::Right),
        ("", Side::Left),
    ]);
    let mut row = |option: &str, value: String, meaning: &str| {
        table.push([option.to_owned(), value, meaning.to_owned()]);
    };
    row("max-queues", limits.max_queues.to_string(), "queues");
    row(
        "max-messages",
        limits.max_messages.to_string(),
        "messages in a queue",
    );
    row(
        "max-message-size",
        limits.max_message_size.to_string(),
        "bytes in a message",
    );
    row(
        "default-messages",
        limits.default_messages.to_string(),
        "messages in a queue created without a depth",
    );
    row(
        "default-message-size",
        limits.default_message_size.to_string(),
        "bytes in a message of a queue created without a size",
    );
    let bytes = limits
        .max_bytes
        .map_or("none".to_owned(), |bytes| bytes.to_string());
    row(
        "max-bytes",
        bytes,
        "bytes of memory in all queues and rings",
    );
    row(
        "enforced-modes",
        limits.enforced_modes.to_string(),
        "refuse modes that only the library enforces",
    );
    row(
        "rlimit-msgqueue",
        limits.rlimit_msgqueue.to_string(),
        "limit a user's queues by RLIMIT_MSGQUEUE",
    );
    for (option, value, meaning) in [
        ("msgmax", limits.msgmax, "System V: bytes in a message"),
        ("msgmnb", limits.msgmnb, "System V: bytes in a new queue"),
        ("msgmni", limits.msgmni, "System V: queues"),
        (
            "max-qbytes",
            limits.max_qbytes,
            "System V: maximum that an owner may set for a queue, or msgmnb",
        ),
    ] {
        row(option, value.to_string(), meaning);
    }
    table
}

fn shown(namespace: &Namespace, limits: &umsg::Limits) -> Shown {
    Shown {
        namespace: place::path(namespace.path()),
        max_queues: limits.max_queues,
        max_messages: limits.max_messages,
        max_message_size: limits.max_message_size,
        default_messages: limits.default_messages,
        default_message_size: limits.default_message_size,
        max_bytes: limits.max_bytes,
        enforced_modes: limits.enforced_modes,
        rlimit_msgqueue: limits.rlimit_msgqueue,
        msgmax: limits.msgmax,
        msgmnb: limits.msgmnb,
        msgmni: limits.msgmni,
        max_qbytes: limits.max_qbytes,
    }
}
