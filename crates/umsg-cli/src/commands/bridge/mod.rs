//! `umsg bridge`, which executes the separate program umsg-bridge. So the command `umsg` stays small.

pub mod options;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;

use crate::cli::{Cli, OwnIdentity};
use crate::failure::{Failure, Result};
use crate::program::{self, Kind};
use crate::{inherited, place};

const PROGRAM: &str = "umsg-bridge";
/// The environment variable that has the path of umsg-bridge.
const VARIABLE: &str = "UMSG_BRIDGE";

/// Carry messages between local queues and NATS JetStream
///
/// An export leases messages of a local queue and publishes them to a stream. The export acknowledges each message when JetStream has acknowledged
/// the message. An import pulls messages of a stream, places them in a local queue, and then acknowledges them. If the bridge, a server or a local
/// program is killed, no message of a POSIX or System V queue is lost, but a message may be carried twice. JetStream drops the second one of an
/// export, within the duplicate window of the stream. The bridge drops the second one of an import into a POSIX queue.
///
/// The local end is a POSIX queue (/orders), a System V queue (key:0x1234, id:5), a ring (ring:/jobs) or a queue of the kernel (kernel:/orders).
///
/// A file (--config) declares the bridges; options can declare a single bridge. The signal SIGHUP makes the command read the file again. SIGTERM ends
/// the bridges within 8 seconds. Messages that are not acknowledged by then go back to their queue or stream. Secrets are in files or in the
/// environment, never on the command line.
///
/// The command replaces itself with the program umsg-bridge, which is installed separately.
#[derive(Args, Debug)]
#[command(
    override_usage = "umsg bridge [run] --config FILE [--log json]
       umsg bridge [run] --export QUEUE --stream STREAM --subject S [OPTIONS]
       umsg bridge [run] --import QUEUE --stream STREAM [OPTIONS]
       umsg bridge check --config FILE [--offline]
       umsg bridge status [--json]",
    after_help = "\
Options of one bridge:
  --server URL             a NATS server, nats://HOST:4222 or tls://HOST:4222;
                           may be repeated [default: nats://127.0.0.1:4222]
  --subject SUBJECT        export: the subject of the messages; import: carry
                           only messages whose subjects match
  --subject-by priority    append .p.PRIORITY to the subject of each message;
                           --subject-by type appends .t.TYPE
  --name NAME              the name in logs and metrics [default: bridge]
  --credentials-file FILE  the NATS credentials: the user's JWT and seed
  --ca-file FILE           the certificates of certificate authorities, for TLS
  --mirror                 every machine gets all messages of the stream
  --window MESSAGES        the maximum number of unacknowledged messages
                           [default: 512]
  --dead-letter QUEUE      the queue for messages that the bridge can't deliver
  --create-stream          create the stream if it is missing
  --create-queue           create the queue if it is missing
The file has more settings: see the chapter \"Several machines\" of the guide.

Examples:
  umsg bridge --export /orders --stream ORDERS --subject orders
  umsg bridge --import /orders --stream ORDERS --server nats://hub:4222
  umsg bridge check --config /etc/umsg/bridge.toml
  umsg bridge status

Exit codes:
  0    the bridges ended without an error, or `check` found no fault
  1    `check` found faults; `status` found no bridge, or found a bridge that
       does not run; or a system call failed
  2    the command line or the configuration is wrong
  127  umsg-bridge was not found

Environment:
  UMSG_DIR     the directory that holds the queues, unless --dir is given
  UMSG_BRIDGE  the path of umsg-bridge. By default, umsg looks for umsg-bridge
               in its own directory, then in PATH"
)]
pub struct Bridge {
    #[command(flatten)]
    _own_identity: OwnIdentity,
    /// run (the default), check or status, and the options of this subcommand
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGUMENTS"
    )]
    arguments: Vec<OsString>,
}

impl Bridge {
    pub fn perform(&self, cli: &Cli) -> Result {
        let mut command = Command::new(find()?);
        command.args(&self.arguments);
        if cli.dir.is_some() {
            let namespace = place::namespace(cli)?;
            command.env("UMSG_DIR", namespace.path());
        }
        inherited::restore_on_exec(&mut command);
        // `exec` returns only on failure.
        let fault = Kind::NotExecuted(command.exec()).of(PathBuf::from(command.get_program()));
        let line = format!("{} {}", fault.file.display(), fault.kind);
        Err(Failure::new(fault.kind.code(), line))
    }
}

/// Finds umsg-bridge: the file in `$UMSG_BRIDGE`, else the file in this program's directory, else the file in PATH.
fn find() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE).filter(|named| !named.is_empty()) {
        return program::find(named).map_err(|fault| {
            let line = format!("{VARIABLE}: {} {}", fault.file.display(), fault.kind);
            Failure::new(fault.kind.code(), line)
        });
    }
    let beside = std::env::current_exe()
        .unwrap_or_default()
        .with_file_name(PROGRAM);
    if beside.is_file() {
        return Ok(beside);
    }
    program::find(PROGRAM).map_err(|fault| {
        let line = format!(
            "{PROGRAM} is neither at {} nor in PATH: install it (cargo install umsg-bridge, or the package umsg-bridge), or set {VARIABLE} to its path",
            beside.display()
        );
        Failure::new(fault.kind.code(), line)
    })
}
