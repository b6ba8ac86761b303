//! The command line of `umsg bridge`.

use crate::config::{
    Bridge, Config, Delivery, Direction, End, NewQueue, NewStream, OnReject, Server, SubjectBy,
};
use crate::failure::Failure;
use crate::status::{self, State};
use crate::{check, log, supervise};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use umsg::Namespace;

/// Carry messages between local queues and NATS JetStream
///
/// An export leases messages of a local queue and publishes them to a stream. The export acknowledges each message when JetStream has acknowledged
/// the message. An import pulls messages of a stream, places them in a local queue, and then acknowledges them. If the bridge, a server or a local
/// program is killed, no message of a POSIX or System V queue is lost, but a message may be carried twice. JetStream drops the second one of an
/// export, within the duplicate window of the stream. The bridge drops the second one of an import into a POSIX queue.
///
/// A file (--config) declares the bridges; options can declare a single bridge. The signal SIGHUP makes the command read the file again. SIGTERM ends
/// the bridges within 8 seconds. Messages that are not acknowledged by then go back to their queue or stream. Secrets are in files or in the
/// environment, never on the command line.
#[derive(Parser, Debug)]
#[command(
    name = "umsg-bridge",
    bin_name = "umsg bridge",
    version,
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  umsg bridge --export /orders --stream ORDERS --subject orders
  umsg bridge --import /orders --stream ORDERS --server nats://hub:4222
  umsg bridge check --config /etc/umsg/bridge.toml
  umsg bridge status

Exit codes:
  0  the bridges ended without an error, or `check` found no fault
  1  `check` found faults; `status` found no bridge, or found a bridge that
     does not run; or a system call failed
  2  the command line or the configuration is wrong"
)]
pub struct Cli {
    /// The directory that holds the queues
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "UMSG_DIR",
        hide_env_values = true
    )]
    dir: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: Run,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run the bridges; this subcommand is the default
    Run(Run),
    /// Check the configuration, and describe what the bridges would do
    Check(Check),
    /// Show the state of the bridges whose queues are in --dir
    Status(Status),
    /// Write the manual pages into a directory, for packages
    #[command(hide = true)]
    Man {
        /// The directory
        directory: PathBuf,
    },
    /// Print completions, for packages
    #[command(hide = true)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// The form of log lines.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Form {
    /// `key=value`
    Text,
    /// JSON
    Json,
}

#[derive(Args, Debug)]
struct Run {
    #[command(flatten)]
    declared: Declared,
    /// The form of the log lines on standard error
    #[arg(long, value_enum, default_value = "text", value_name = "FORM")]
    log: Form,
}

#[derive(Args, Debug)]
struct Check {
    #[command(flatten)]
    declared: Declared,
    /// Check only the file, without servers and queues
    #[arg(long)]
    offline: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "\
WAITING is the number of messages that wait at the source. For an export:
those of the local queue that no process has leased. For an import: those
of the stream that its consumer has not acknowledged, without those that
are in a durable queue.")]
struct Status {
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
    /// The directory of the setting state_dir, if the configuration file has this setting
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

/// The file, or the flags of one bridge.
#[derive(Args, Debug)]
struct Declared {
    /// The file that declares the bridges
    #[arg(long, short, value_name = "FILE", conflicts_with_all = ["export", "import", "stream", "subject", "server", "name", "credentials_file", "ca_file", "subject_by", "mirror", "window", "create_stream", "create_queue", "dead_letter"])]
    config: Option<PathBuf>,
    /// The queue whose messages go to the stream
    #[arg(long, value_name = "QUEUE", conflicts_with = "import")]
    export: Option<End>,
    /// The queue that gets the messages of the stream
    #[arg(long, value_name = "QUEUE")]
    import: Option<End>,
    /// The JetStream stream
    #[arg(long, value_name = "STREAM")]
    stream: Option<String>,
    /// Export: the subject of the messages. Import: carry only messages whose subjects match
    #[arg(long, value_name = "SUBJECT")]
    subject: Option<String>,
    /// The URL of a NATS server; the option may be repeated
    #[arg(long, value_name = "URL")]
    server: Vec<String>,
    /// The name of the bridge in logs and metrics
    #[arg(long, value_name = "NAME", default_value = "bridge")]
    name: String,
    /// The file with the NATS credentials: the user's JWT and seed
    #[arg(long, value_name = "FILE")]
    credentials_file: Option<PathBuf>,
    /// The file with the certificates of certificate authorities, for TLS
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Append the priority (.p.N) or the type (.t.N) to the subject of each message
    #[arg(long, value_name = "priority|type", value_parser = ["priority", "type"])]
    subject_by: Option<String>,
    /// Deliver all messages of the stream to every machine, instead of each message to one machine
    #[arg(long)]
    mirror: bool,
    /// The maximum number of unacknowledged messages
    #[arg(long, value_name = "MESSAGES", default_value_t = 512)]
    window: usize,
    /// Create the stream if it is missing
    #[arg(long)]
    create_stream: bool,
    /// Create the queue if it is missing
    #[arg(long)]
    create_queue: bool,
    /// The queue for messages that the bridge can't deliver
    #[arg(long, value_name = "QUEUE")]
    dead_letter: Option<String>,
}

impl Declared {
    fn read(&self) -> Result<Config, String> {
        match &self.config {
            Some(path) => {
                let text = std::fs::read_to_string(path);
                let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
                Config::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
            }
            None => self.flags(),
        }
    }

    fn flags(&self) -> Result<Config, String> {
        let (direction, queue) = match (&self.export, &self.import) {
            (Some(queue), _) => (Direction::Export, queue.clone()),
            (None, Some(queue)) => (Direction::Import, queue.clone()),
            (None, None) => {
                return Err(
                    "name a file with --config, or a queue with --export or --import".to_owned(),
                );
            }
        };
        let Some(stream) = self.stream.clone() else {
            return Err("name the stream with --stream".to_owned());
        };
        let mut server = Server::default();
        if !self.server.is_empty() {
            server.url.clone_from(&self.server);
        }
        server.credentials_file.clone_from(&self.credentials_file);
        server.ca_file.clone_from(&self.ca_file);
        let bridge = Bridge {
            subject: self.subject.clone(),
            subject_by: match self.subject_by.as_deref() {
                Some("priority") => SubjectBy::Priority,
                Some(_) => SubjectBy::Type,
                None => SubjectBy::Nothing,
            },
            window: self.window,
            dead_letter: self.dead_letter.clone(),
            on_reject: match self.dead_letter {
                Some(_) => OnReject::DeadLetter,
                None => OnReject::Wait,
            },
            delivery: match self.mirror {
                true => Delivery::Mirror,
                false => Delivery::Share,
            },
            create_stream: self.create_stream.then(NewStream::default),
            create_queue: self.create_queue.then(NewQueue::default),
            ..Bridge::new(&self.name, direction, (queue, &stream))
        };
        let config = Config {
            server,
            state_dir: None,
            bridges: vec![bridge],
        };
        config.checked()
    }
}

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match &cli.command {
        None => run(&cli, &cli.run),
        Some(Command::Run(arguments)) => run(&cli, arguments),
        Some(Command::Check(arguments)) => check(&cli, arguments),
        Some(Command::Status(arguments)) => show(&cli, arguments),
        Some(Command::Man { directory }) => man(directory),
        Some(Command::Completions { shell }) => completions(*shell),
    };
    outcome.unwrap_or_else(|failure| {
        eprintln!("umsg bridge: {}", failure.why());
        failure.code()
    })
}

fn namespace(cli: &Cli) -> Result<Namespace, Failure> {
    let found = match &cli.dir {
        Some(dir) => Namespace::at(dir),
        None => Namespace::resolve(),
    };
    found.map_err(|error| Failure::System(error.to_string()))
}

fn run(cli: &Cli, arguments: &Run) -> Result<ExitCode, Failure> {
    if let Form::Json = arguments.log {
        log::use_json();
    }
    // Without this handler, a truncated queue file ends the bridge by SIGBUS.
    let _ = umsg::signals::catch_truncation();
    supervise::run(&namespace(cli)?, &|| arguments.declared.read())?;
    Ok(ExitCode::SUCCESS)
}

fn check(cli: &Cli, arguments: &Check) -> Result<ExitCode, Failure> {
    let config = arguments.declared.read().map_err(Failure::Configuration)?;
    print(&check::describe(&config))?;
    if arguments.offline {
        return Ok(ExitCode::SUCCESS);
    }
    let namespace = namespace(cli)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| Failure::System(error.to_string()))?;
    let tried = runtime.block_on(check::try_out(&config, &namespace));
    let faults = tried.map_err(Failure::System)?;
    for fault in &faults {
        eprintln!("umsg bridge: {fault}");
    }
    Ok(match faults.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn show(cli: &Cli, arguments: &Status) -> Result<ExitCode, Failure> {
    let directory = status::default_directory(arguments.state_dir.as_deref(), &namespace(cli)?);
    let states = status::read(&directory);
    match arguments.json {
        true => {
            let text = serde_json::to_string_pretty(&states);
            let text = text.map_err(|error| Failure::System(error.to_string()))?;
            print(&format!("{text}\n"))?;
        }
        false if states.is_empty() => {}
        false => print(&table(&states))?,
    }
    if states.is_empty() {
        eprintln!(
            "umsg bridge: {}: this user runs no bridge in this namespace. Start a bridge, run the command as the bridge's user, or give the bridge's --dir or --state-dir",
            directory.display()
        );
        return Ok(ExitCode::FAILURE);
    }
    let runs = |state: &State| state.is_fresh() && state.error.is_empty();
    Ok(match states.iter().all(runs) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Writes umsg-bridge(1) and a page for each sub-command.
fn man(directory: &Path) -> Result<ExitCode, Failure> {
    let command = Cli::command().disable_help_subcommand(true);
    std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(command, directory))
        .map_err(|error| Failure::System(format!("{}: {error}", directory.display())))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the completions of the program `umsg-bridge`.
fn completions(shell: clap_complete::Shell) -> Result<ExitCode, Failure> {
    let mut text = Vec::new();
    let mut command = Cli::command().bin_name("umsg-bridge");
    clap_complete::generate(shell, &mut command, "umsg-bridge", &mut text);
    print(&String::from_utf8_lossy(&text))?;
    Ok(ExitCode::SUCCESS)
}

fn table(states: &[State]) -> String {
    let mut rows = vec![
        [
            "NAME",
            "FROM",
            "TO",
            "MESSAGES",
            "REPEATED",
            "IN FLIGHT",
            "WAITING",
            "STATE",
        ]
        .map(str::to_owned),
    ];
    for state in states {
        let (from, to) = match &*state.direction {
            "export" => (&state.queue, &state.stream),
            _ => (&state.stream, &state.queue),
        };
        let words = match (state.is_fresh(), state.error.is_empty()) {
            (false, _) => format!("does not run (process {})", state.pid),
            (true, true) => state.state.clone(),
            (true, false) => format!("{}: {}", state.state, state.error),
        };
        let numbers = [
            state.messages,
            state.duplicates,
            state.in_flight,
            state.backlog,
        ]
        .map(|n| n.to_string());
        let [messages, repeated, flying, waiting] = numbers;
        rows.push([
            state.name.clone(),
            from.clone(),
            to.clone(),
            messages,
            repeated,
            flying,
            waiting,
            words,
        ]);
    }
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..8).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        for (column, cell) in row.iter().enumerate() {
            text += &match column {
                7 => format!("{cell}\n"),
                3..7 => format!("{cell:>width$}  ", width = widths[column]),
                _ => format!("{cell:<width$}  ", width = widths[column]),
            };
        }
    }
    text
}

/// Prints text to standard output. If the reader of the pipe has ended, this is no error.
fn print(text: &str) -> Result<(), Failure> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::System(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}
