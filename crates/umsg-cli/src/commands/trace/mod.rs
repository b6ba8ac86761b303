//! `umsg trace`.
//!
//! | what | where |
//! |---|---|
//! | the process that is traced: a program that the command starts, or one that runs | [`subject`] |
//! | finding the request for records in a process that runs | [`attach`] |
//! | which calls are shown | [`filter`] |
//! | the forms of a call: a line, JSON | [`mod@line`], [`symbols`] |
//! | the table at the end | [`summary`] |

mod attach;
mod filter;
mod line;
mod silent;
mod subject;
mod summary;
mod symbols;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use umsg::Namespace;
use umsg::ring::{self, Options, ReceiveError, Ring};
use umsg_trace::Record;
use umsg_trace::record::LONGEST;

use crate::cli::Cli;
use crate::failure::{Code, Failure, Result, say};
use crate::output::{Format, json};
use filter::Filter;
use silent::Silent;
use subject::Subject;
use summary::Summary;

/// The capacity of the ring in records. If the ring is full, calls of the program wait for this command.
const ENTRIES: u32 = 4096;
/// The beginning of the ring's name. The process id of the command follows.
const PREFIX: &str = "/umsg-trace-";
/// The interval at which the command checks whether the process has ended.
const PAUSE: Duration = Duration::from_millis(50);

/// Show the calls of a program on message queues
///
/// The command starts PROGRAM as `umsg run` does, or attaches to a process that runs under `umsg run` (--pid). The command shows each call of
/// mq_open, mq_close, mq_unlink, mq_send, mq_receive, mq_notify, mq_getattr, mq_setattr, msgget, msgsnd, msgrcv and msgctl when the call ends. A
/// close(2) of a queue's descriptor appears as mq_close.
///
/// A line shows the time of the call (UTC), the process id, the arguments and the result. If the caller is not the first thread of the process, its
/// thread id follows the process id. Then come the duration in seconds, the number of messages in the queue after the call, and "slept" if the thread
/// slept in the call. At most 32 bytes of a message are shown.
///
/// The traced process sends a record of each call through a ring, which takes about a microsecond. If this command is slower than the traced process,
/// the traced process waits, so that no call is missed. If this command ends or is killed, the traced process continues without records.
///
/// With PROGRAM, the command also traces the children of the program, ends with the program, and returns the program's exit code. With --pid, the
/// command traces one process and the children that this process forks, but no programs that these processes execute. The command then ends with the
/// process, or by Ctrl-C, and does not show calls that began before the attach.
///
/// A call through syscall(2) appears under the name of libc's function. The command does not show: system calls that are made without libc, as in
/// static programs; calls through syscall(2) on descriptors that do not belong to umsg's queues, such as an inherited descriptor of a kernel queue;
/// and calls of other functions, such as poll. If a signal interrupts a call and the call restarts (SA_RESTART), the duration counts from the
/// restart. Do not trace a program that sends from a signal handler: the first record of the process allocates memory, which may deadlock in the
/// handler.
#[derive(Args, Debug)]
#[command(
    override_usage = "umsg trace [OPTIONS] [--] PROGRAM [ARGS]...\n       umsg trace [OPTIONS] --pid PID",
    after_help = "\
A line of the output:
  12:30:15.250161 [4711] mq_send(3</q>, \"hi\", 2, 0) = 0 <0.000000310> depth 1

Examples:
  umsg trace -- ./server --port 80
  umsg trace --failed --pid 4711
  umsg trace --calls mq_send,mq_receive --slower-than 1ms -- ./server
  umsg trace --summary --output calls.txt -- ./server
  umsg trace --json --output calls.jsonl -- ./server

Exit codes:
  With PROGRAM: that of the program, or 128 + N if signal N killed it.
  Also with PROGRAM: 120, 125, 126 and 127 as for `umsg run`.
  With --pid:
  0    the process has ended, or the user ended the command
  1    failed; one line on standard error gives the reason and what to do
  2    the command line is wrong"
)]
pub struct Trace {
    /// Trace this process, which runs under `umsg run`
    #[arg(long, short, value_name = "PID", conflicts_with = "program")]
    pid: Option<u32>,
    #[command(flatten)]
    filter: Filter,
    /// Print only a table of the calls, at the end
    #[arg(long, short = 'c')]
    summary: bool,
    /// Write to this file instead of standard error
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    format: Format,
    /// The program and its arguments; the command looks up a name without a slash in PATH
    #[arg(
        trailing_var_arg = true,
        value_name = "PROGRAM",
        required_unless_present = "pid"
    )]
    program: Vec<OsString>,
}

impl Trace {
    /// Traces the program or the process. Returns the exit code of the command.
    pub fn perform(&self, cli: &Cli) -> Result<u8> {
        let out = Output::open(self.output.as_ref())?;
        let namespace = subject::namespace(cli, self.pid)?;
        if let Some(pid) = self.pid.filter(|&pid| subject::is_of_another_user(pid)) {
            let line = format_args!("process {pid} belongs to another user; trace it as that user");
            return Err(Failure::new(Code::Failed, line));
        }
        let mut ring = Channel::make(&namespace)?;
        let subject = match self.pid {
            Some(pid) => Subject::attach(pid, &ring.place)?,
            None => Subject::start(cli, &self.program, &ring.place)?,
        };
        let mut tracing = Tracing {
            options: self,
            out,
            summary: Summary::default(),
            silent: Silent::below(subject.id()),
        };
        let watched = tracing.watch(&mut ring.ring, &subject);
        if watched.is_err() {
            // The program continues without records: no call waits for room in a closed ring.
            ring.ring.close();
        }
        let ended = subject.end();
        tracing.drain(&mut ring.ring)?;
        tracing.finish()?;
        watched?;
        ended
    }
}

/// The ring through which records come. Dropping the ring removes its name.
struct Channel {
    ring: Ring,
    /// The path of the ring, in the form that the traced process gets.
    place: Vec<u8>,
}

impl Channel {
    fn make(namespace: &Namespace) -> Result<Channel> {
        use std::os::unix::ffi::OsStrExt;
        let name = format!("{PREFIX}{}", std::process::id());
        let mut place = namespace.path().as_os_str().as_bytes().to_vec();
        place.extend(name.as_bytes());
        if place.len() >= umsg_trace::request::PLACE {
            let line = "the path of the namespace is too long for a traced process; choose a shorter one with --dir";
            return Err(Failure::new(Code::NotPrepared, line));
        }
        remove_abandoned(namespace);
        let mut options = Options::new();
        options.entries(ENTRIES).overflow(0);
        options.longest(LONGEST as u32).mode(0o600);
        let ring = options
            .create_in(namespace, &name)
            .map_err(|error| Failure::of("the ring for records", error).coded(Code::NotPrepared))?;
        Ok(Channel { ring, place })
    }
}

/// Removes the rings of commands that were killed.
fn remove_abandoned(namespace: &Namespace) {
    for ring in ring::list(namespace).unwrap_or_default() {
        if ring.name.as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
            // The call refuses a ring whose owner lives.
            let _ = ring::unlink_in(namespace, &ring.name);
        }
    }
}

/// Standard error or a file, with the name of the output for error texts.
struct Output {
    to: BufWriter<Box<dyn Write>>,
    name: String,
}

impl Output {
    fn open(path: Option<&PathBuf>) -> Result<Output> {
        let (to, name): (Box<dyn Write>, _) = match path {
            None => (Box::new(io::stderr()), "standard error".to_owned()),
            Some(path) => {
                let name = path.display().to_string();
                let failed = |error: io::Error| {
                    let line = format_args!("{name}: {error}; choose another file with --output");
                    Failure::new(Code::NotPrepared, line)
                };
                (Box::new(File::create(path).map_err(failed)?), name)
            }
        };
        let to = BufWriter::new(to);
        Ok(Output { to, name })
    }

    /// Returns the failure of a write. If the reader of the output has ended, the command ends, as for standard output.
    fn failed(&self, error: &io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::ReaderGone,
            _ => Failure::new(Code::Failed, format_args!("{}: {error}", self.name)),
        }
    }
}

struct Tracing<'a> {
    options: &'a Trace,
    out: Output,
    summary: Summary,
    silent: Silent,
}

impl Tracing<'_> {
    /// Shows records until the process has ended, or refuses to send records.
    fn watch(&mut self, ring: &mut Ring, subject: &Subject) -> Result {
        while !subject.is_over()? {
            self.silent.look();
            match ring.receive_timeout(PAUSE) {
                Ok(message) => {
                    let bytes = message.payload.to_vec();
                    self.show(&bytes)?;
                    self.drain(ring)?;
                }
                Err(ReceiveError::TimedOut | ReceiveError::Interrupted) => {}
                Err(error) => {
                    let line = format_args!("the ring for records: {error}");
                    return Err(Failure::new(Code::Failed, line));
                }
            }
        }
        Ok(())
    }

    /// Shows the records that are in the ring, at most as many as the ring has room for, because a busy process sends further records meanwhile.
    fn drain(&mut self, ring: &mut Ring) -> Result {
        for _ in 0..ENTRIES {
            let Ok(message) = ring.try_receive() else {
                break;
            };
            let bytes = message.payload.to_vec();
            self.show(&bytes)?;
        }
        self.out.to.flush().map_err(|error| self.out.failed(&error))
    }

    fn show(&mut self, bytes: &[u8]) -> Result {
        // Another process can write to the ring. Bytes that are not a record are skipped.
        let Some(call) = Record::read(bytes).and_then(line::Call::of) else {
            return Ok(());
        };
        self.silent.heard(call.numbers.pid);
        if !self.options.filter.wants(&call) {
            return Ok(());
        }
        if self.options.summary {
            self.summary.count(&call);
            return Ok(());
        }
        let written = match self.options.format.json {
            true => json::print(&mut self.out.to, &line::Json::of(&call)),
            false => writeln!(self.out.to, "{}", line::Text(&call)),
        };
        written.map_err(|error| self.out.failed(&error))
    }

    fn finish(&mut self) -> Result {
        let printed = match self.options.summary {
            true => self
                .summary
                .print(&mut self.out.to, self.options.format.json),
            false => Ok(()),
        };
        printed
            .and_then(|()| self.out.to.flush())
            .map_err(|error| self.out.failed(&error))
    }
}

/// Prints that the command is attached, and how to end it.
fn tell_attached(pid: u32) {
    say(format_args!(
        "process {pid} is traced; Ctrl-C ends the trace"
    ));
}
