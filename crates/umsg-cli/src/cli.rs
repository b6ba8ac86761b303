//! The command line as a whole.

use std::path::PathBuf;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};

use crate::commands::{
    bench_queue::BenchQueue, bridge::Bridge, close::Close, completions::Completions,
    create::Create, doctor::Doctor, dump::Dump, gc::Gc, limits::Limits, load::Load, ls::Ls,
    man::Man, metrics::Metrics, peek::Peek, recv::Recv, redrive::Redrive, relay::Relay, rm::Rm,
    run::Run, send::Send, setup::Setup, stat::Stat, top::Top, trace::Trace, watch::Watch, who::Who,
};

/// Message queues in shared memory: POSIX and System V, without the kernel's limits, without root, without a daemon
///
/// A queue keeps its messages until they are received. A POSIX queue delivers the message of the highest priority first, and messages of one priority
/// in order of arrival. In a System V queue, each message has a type, a positive integer. The queue delivers the oldest message, or the oldest
/// message of the types that the receiver selects.
///
/// A queue is a file of shared memory in a directory, the namespace. The queue stays until it is removed or the machine restarts. `umsg run` starts
/// an existing program so that its calls, such as mq_send and msgsnd, use umsg's queues. The other commands show and change queues from the shell.
///
/// A ring is a queue with many senders and one receiver, for programs that use umsg's library. `umsg send` and `umsg recv` do
/// not work with rings; `umsg ls`, `stat`, `who`, `rm`, `gc` and `doctor` do.
#[derive(Parser, Debug)]
#[command(name = "umsg", version, propagate_version = true, after_long_help = REFERENCE, after_help = EXAMPLES)]
pub struct Cli {
    /// The directory that holds the queues [default: $UMSG_DIR, else /dev/shm/umsg if root owns it, else /dev/shm/umsg-UID]
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        help_heading = "Options of all commands"
    )]
    pub dir: Option<PathBuf>,
    /// As root, act as the user who owns the directory, so that new files belong to that user
    #[arg(long, global = true, help_heading = "Options of all commands")]
    pub as_owner: bool,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    Run(Run),
    #[command(alias = "new")]
    Create(Create),
    Close(Close),
    #[command(aliases = ["remove", "delete", "unlink"])]
    Rm(Rm),
    Gc(Gc),
    #[command(alias = "check")]
    Doctor(Doctor),
    #[command(alias = "list")]
    Ls(Ls),
    #[command(aliases = ["status", "info", "show"])]
    Stat(Stat),
    #[command(aliases = ["ps", "users"])]
    Who(Who),
    Send(Send),
    #[command(alias = "receive")]
    Recv(Recv),
    Peek(Peek),
    #[command(alias = "requeue")]
    Redrive(Redrive),
    #[command(alias = "save")]
    Dump(Dump),
    #[command(alias = "restore")]
    Load(Load),
    Watch(Watch),
    Trace(Trace),
    Top(Top),
    Metrics(Metrics),
    BenchQueue(BenchQueue),
    Bridge(Bridge),
    Relay(Relay),
    Limits(Limits),
    Setup(Setup),
    Man(Man),
    Completions(Completions),
}

impl Command {
    /// Returns whether root may run the command in another user's directory without --as-owner: commands that only read, and `top`, which changes a
    /// queue only after a confirmation.
    pub fn only_reads(&self) -> bool {
        match self {
            Command::Ls(_)
            | Command::Stat(_)
            | Command::Who(_)
            | Command::Peek(_)
            | Command::Watch(_)
            | Command::Top(_)
            | Command::Metrics(_) => true,
            Command::Doctor(doctor) => !doctor.repair,
            _ => false,
        }
    }
}

/// Replaces clap's tip if `umsg recv` is called with --priority, which only `umsg send` has.
pub fn advised(mut error: clap::Error) -> clap::Error {
    let text = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
    let (argument, usage) = (text(ContextKind::InvalidArg), text(ContextKind::Usage));
    let is_unknown = error.kind() == ErrorKind::UnknownArgument;
    if is_unknown && usage.contains("umsg recv") && ["--priority", "-p"].contains(&&argument[..]) {
        let tip = "a POSIX queue delivers the message of the highest priority first: leave the option out; from a System V queue, select with --type, --except or --lowest";
        let tip = StyledStr::from(tip);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
    error
}

/// Accepts and hides the options of all commands, for a command on which these options have no effect.
#[derive(clap::Args, Debug)]
pub struct Nowhere {
    #[arg(id = "dir", long = "dir", hide = true)]
    _dir: Option<PathBuf>,
    #[command(flatten)]
    _own_identity: OwnIdentity,
}

/// Accepts and hides --as-owner, which `run` and `setup` refuse with advice.
#[derive(clap::Args, Debug, Default)]
pub struct OwnIdentity {
    #[arg(id = "as_owner", long = "as-owner", hide = true)]
    _as_owner: bool,
}

macro_rules! examples {
    () => {
        "\
Examples:
  umsg run -- ./program --its-option   an existing program, on umsg's queues
  umsg create /orders --max-messages 64K --message-size 1K
  umsg send /orders 'first order'
  umsg ls
  umsg recv /orders
  umsg create key:0x1234               a System V queue

"
    };
}

const EXAMPLES: &str = concat!(
    examples!(),
    "`umsg --help` explains names, sizes, exit codes and the environment."
);

const REFERENCE: &str = concat!(
    examples!(),
    "\
Names:
  A queue's name is a slash and up to 255 bytes without another slash. The
  first slash may be left out: `orders` means /orders.

  A System V queue is named by its key, key:0x1234, key:4660 or just 0x1234,
  or by its identifier, id:32769; `umsg ls` shows both. A POSIX queue with
  such a name is written with its slash: /key:1.

  The name of a ring is written as ring:/jobs. Only programs create rings. The
  owner of a ring is the process that receives from it; `umsg rm` removes rings
  whose owners have died.

Numbers:
  Sizes and counts may end in K, M or G, also written Ki or KiB, for powers of
  1024: 64K is 65536. KB, MB and GB are powers of 1000.
  Times are seconds, such as 5 or 0.25, or end in ms, s, m, h or d: 500ms.

Where the queues are:
  umsg uses the first of these directories that applies: --dir; $UMSG_DIR;
  /dev/shm/umsg, if root owns it (`umsg setup` creates /dev/shm/umsg).
  Otherwise, each user has a private directory: /dev/shm/umsg-UID, or
  /dev/shm/umsg-UID-DIGITS (16 random digits) if another user has taken
  the name /dev/shm/umsg-UID. `umsg ls` prints the directory.

  Root may name the directory of another user with --dir. Commands that only
  read (`umsg ls`, `stat`, `who`, `peek`, `watch`, `metrics`, and `doctor`
  without --repair), and `top`, then act as that user. Other commands
  refuse such a directory unless --as-owner is given. `umsg run` and
  `umsg setup` do not take --as-owner: use runuser(1).

JSON:
  Commands that print data have --json. With --json, a command prints one
  object, or for messages one object per line. Later versions may add fields;
  existing fields keep their names and meaning. Times are in UTC, in the form of
  RFC 3339. \"data\" has the bytes of a message: as text if \"encoding\" is
  \"utf-8\", in base64 if \"encoding\" is \"base64\". In names, bytes that are not
  UTF-8 are replaced; `umsg ls --null` prints these bytes unchanged.

Exit codes:
  0    success, even if the program that reads the output ends early (except
       for `umsg recv`)
  1    failure; one line on standard error gives the reason and what to do
  2    the command line is wrong
  3    no message, or no room, within the time allowed
  4    the queue was removed while the command waited
  5    `umsg doctor`: a queue or ring has a problem
  6    `umsg recv`: the end of the stream: the queue is closed for sending, and
       holds no message; with --follow or --all, the exit code is 0 instead
  `umsg run` exits as the program does, or with
  120  the program can't use umsg's queues, for example a set-user-ID program
  125  umsg run failed before it could start the program
  126  the program was found but can't be executed
  127  the program was not found

Environment:
  UMSG_DIR      the directory that holds the queues
  UMSG_PRELOAD  the path of the drop-in, the library that `umsg run` loads into
                programs. By default, umsg looks for libumsg_preload.so in its
                own directory, ../lib, ../lib/umsg and ../lib/umsg/musl, and
                takes the first file that was built for the program's C library
  UMSG_RUN      the path of the command umsg, which the drop-in runs to start
                static programs; `umsg run` sets the variable
  UMSG_WAIT     how a program under `umsg run` waits: adaptive, blocking or
                spinning [default: adaptive]
  UMSG_DEBUG    1: a program under `umsg run` prints on standard error why its
                calls on queues failed
  UMSG_DEV_MQUEUE
                off: programs under `umsg run` see the kernel's queues in
                /dev/mqueue instead of umsg's queues
  UMSG_IPC_NAMESPACE
                the IPC namespace to which UMSG_DIR belongs, or `share` if all
                IPC namespaces use the queues in UMSG_DIR; `umsg run` sets it"
);
