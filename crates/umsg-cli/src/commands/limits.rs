//! `umsg limits`.

use std::io::Write;

use clap::Args;
use serde::Serialize;
use umsg::Namespace;

use crate::cli::Cli;
use crate::failure::Result;
use crate::output::table::{Side, Table};
use crate::output::{self, Format, json};
use crate::place;
use crate::values::{self, Ceiling};

/// Show the limits of the namespace, or set them
///
/// Limits are kept in the namespace and hold for everybody who uses it; its owner and root may set them. They bind
/// queues that are made from then on, and --max-bytes the growth of all. Options that are left out stay as they are.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  umsg limits
  umsg limits --default-messages 1000 --default-message-size 1K
  umsg limits --max-bytes 4G
  umsg limits --max-bytes none")]
pub struct Limits {
    /// The most queues at a time; 0 lets no new ones be made
    #[arg(long, value_name = "N", value_parser = values::small_size)]
    max_queues: Option<u32>,
    /// The most messages that a queue may be made for, up to 1M
    #[arg(long, value_name = "N", value_parser = values::small_size)]
    max_messages: Option<u32>,
    /// The largest message that a queue may be made for, up to 16M
    #[arg(long, value_name = "BYTES", value_parser = values::small_size)]
    max_message_size: Option<u32>,
    /// How many messages a queue holds whose maker does not say
    #[arg(long, value_name = "N", value_parser = values::small_size)]
    default_messages: Option<u32>,
    /// How long a message of a queue may be whose maker does not say
    #[arg(long, value_name = "BYTES", value_parser = values::small_size)]
    default_message_size: Option<u32>,
    /// The most memory of all queues together, charged when it is used; or `none`
    #[arg(long, value_name = "BYTES", value_parser = values::ceiling)]
    max_bytes: Option<Ceiling>,
    /// Let processes of other PID namespaces in. Their thread ids may collide, and the death of one process be taken for
    /// another's
    #[arg(long, value_name = "true|false")]
    foreign_pid_namespaces: Option<bool>,
    #[command(flatten)]
    format: Format,
}

/// What programs get.
#[derive(Serialize)]
struct Shown {
    namespace: String,
    max_queues: u32,
    max_messages: u32,
    max_message_size: u32,
    default_messages: u32,
    default_message_size: u32,
    max_bytes: Option<u64>,
    foreign_pid_namespaces: bool,
}

impl Limits {
    pub fn perform(&self, cli: &Cli) -> Result {
        let namespace = place::namespace(cli)?;
        let found = namespace.limits()?;
        let wanted = self.applied_to(&found);
        if wanted != found {
            namespace.set_limits(&wanted)?;
        }
        let mut out = output::standard()?;
        if self.format.json {
            json::print(&mut out, &shown(&namespace, &wanted))?;
        } else {
            let origin = place::origin(cli, namespace.kind());
            writeln!(out, "namespace {} ({origin})", namespace.path().display())?;
            table(&wanted).print(&mut out)?;
        }
        Ok(out.flush()?)
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
            foreign_pid_namespaces: self
                .foreign_pid_namespaces
                .unwrap_or(was.foreign_pid_namespaces),
        }
    }
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
        "messages, unless the maker says",
    );
    row(
        "default-message-size",
        limits.default_message_size.to_string(),
        "bytes, unless the maker says",
    );
    let bytes = limits
        .max_bytes
        .map_or("none".to_owned(), |bytes| bytes.to_string());
    row("max-bytes", bytes, "bytes of memory in all queues");
    row(
        "foreign-pid-namespaces",
        limits.foreign_pid_namespaces.to_string(),
        "processes of other PID namespaces are let in",
    );
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
        foreign_pid_namespaces: limits.foreign_pid_namespaces,
    }
}
