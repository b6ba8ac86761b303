//! `umsg recv`.

use std::ffi::OsString;
use std::io::{self, Write};
use std::time::Duration;

use clap::Args;
use umsg::Namespace;
use umsg::sysv::Want;

use super::answers::{Answer, Answers};
use super::jobs::{self, Plan};
use super::patience::Patience;
use crate::address::{Address, address};
use crate::attached::Attached;
use crate::cli::Cli;
use crate::failure::{Code, Failure, Result, say};
use crate::inlet::{Held, Inlet};
use crate::opened::{Opened, Purpose};
use crate::output::direct::Direct;
use crate::output::message::{Form, Style};
use crate::output::{self, Format, json};
use crate::place;
use crate::values::{self, RetryDelay};

/// Receive messages: print each message and remove it from the queue, or run a command for each message
///
/// A message leaves the queue when it is printed completely. If printing fails, for example on a full disk, the message returns to the queue as the
/// first of its priority or type. If the command is killed, the message returns when another process next finds the queue empty or full: that process
/// then looks for dead receivers. With --json, "deliveries" is the number of deliveries of the message, including this one.
///
/// A program that reads the output can lose messages: a printed message has left the queue, even if the program dies before it has used the message.
/// With --follow into a pipe, the command keeps each message in the queue until the program has read it from the pipe. A program that dies then loses
/// at most the messages that it had read but not yet used. With --exec or --ack, no message is lost: each message stays in the queue until its work
/// is done.
///
/// With --exec, umsg runs COMMAND for each message. The message is the standard input of COMMAND. `{}` in the arguments of COMMAND is replaced by the
/// message, without its final line feed. If the exit code of COMMAND is 0, the message leaves the queue. After any other exit code, or a signal, the
/// message returns to the queue. With --follow, the message returns at once; otherwise it returns when umsg ends, so that each message is tried once.
/// The message also returns if umsg is killed; COMMAND then gets SIGTERM. Create the queue with --max-deliveries and --dead-letter, so that a message
/// whose command always fails moves to another queue. With --follow, if several commands fail one after the other, umsg waits before it starts the
/// next command, at most 5 s. If --retry-delay is given here or when the queue is created, only the messages of the failed commands wait, and umsg
/// continues with the other messages.
///
/// COMMAND runs in a process group of its own. After a SIGINT or SIGTERM, umsg receives no further message, waits for the running
/// commands, and ends. A second signal kills the running commands; their messages return.
///
/// A message with a NUL byte, and a message that is too long for an argument (128 KiB), can't replace `{}`: COMMAND is not
/// run, and the message returns. COMMAND can read any message from its standard input.
///
/// From a System V queue, the command receives the oldest message, or the oldest message that matches --type, --except or --lowest.
///
/// If the queue is closed for sending and its last message was received, the stream has ended. The command then ends with exit code 6. With
/// --follow or --all, the exit code is 0. See `umsg close`.
///
/// If the queue is removed while the command waits, the command ends with exit code 4 within two seconds.
#[derive(Args, Debug)]
#[command(mut_arg("nonblocking", |arg| arg.help("Do not wait: exit with code 3 if the queue has no matching message")))]
#[command(after_help = "\
Examples:
  umsg recv /orders                one message; waits for a message
  umsg recv /orders --timeout 5    exits with 3 after 5 s without a message
  umsg recv /orders --all          all messages in the queue; does not wait
  umsg recv /orders --follow --json | jq .data
  umsg recv /pictures --output raw > picture.png
  umsg recv key:0x1234 --type 2    the oldest message of type 2
  umsg recv /jobs --follow --jobs 4 --exec ./work
  umsg recv /jobs --follow --retry-delay 1s..5m --exec ./work
  umsg recv /urls --all --timeout-per-job 30s --exec curl -fsSO {}

Exit codes:
  0    received all requested messages; with --exec also after SIGINT or
       SIGTERM, if no message went back to the queue
  1    failed; or messages went back to the queue for another reason than the
       answer `retry`; or the program that reads the output ended. Standard error
       gives the reason and what to do
  2    the command line is wrong
  3    no message within the time allowed, or a stopped process holds the
       queue's lock; standard error gives the reason
  4    the queue was removed
  6    the end of the stream: the queue is closed for sending, and holds no
       message; with --follow or --all, the exit code is 0 instead
  126  the command of --exec can't be executed
  127  the command of --exec was not found

Environment of COMMAND:
  UMSG_QUEUE       the name of the queue
  UMSG_PRIORITY    the priority of the message, from a POSIX queue
  UMSG_TYPE        the type of the message, from a System V queue
  UMSG_DELIVERIES  the number of deliveries of the message, including this one
  UMSG_SENDER      the process id of the sender
  UMSG_DIR         the directory of the queue")]
pub struct Recv {
    /// The queue: a name, or for System V key:0x1234 or id:32769
    #[arg(value_name = "QUEUE", value_parser = address())]
    queue: Address,
    #[command(flatten)]
    types: Types,
    /// Receive this many messages, and wait for each
    #[arg(long, short, value_name = "N", default_value_t = 1, value_parser = values::size,
          allow_hyphen_values = true, conflicts_with_all = ["all", "follow"])]
    count: u64,
    /// Receive until the queue is empty, without waiting. Delayed messages, and messages that other receivers have leased,
    /// stay in the queue
    #[arg(long, conflicts_with_all = ["follow", "timeout"])]
    all: bool,
    /// Receive until no message arrives within --timeout, the queue is removed, a closed queue is empty, or the program that reads the output ends.
    /// With --exec, after that program has ended, umsg ends at the first COMMAND that fails
    #[arg(long, short)]
    follow: bool,
    #[command(flatten)]
    patience: Patience,
    /// Print nothing on standard error if no message came in time (exit code 3) or the stream has ended (exit code 6). With --exec, also print no
    /// lines about single messages, and no summary
    #[arg(long, short)]
    quiet: bool,
    /// Print at most this many bytes of each message; the rest is lost
    #[arg(long, value_name = "BYTES", value_parser = values::size, allow_hyphen_values = true)]
    truncate: Option<u64>,
    /// The form in which a message is printed
    #[arg(long, short, value_enum, default_value_t = Style::Text, value_name = "STYLE", conflicts_with = "json")]
    output: Style,
    /// Print a NUL byte after each message, instead of a line feed
    #[arg(long, short = '0', conflicts_with = "json")]
    null: bool,
    /// Keep each message in the queue until a line on standard input answers it. The line `ok` or an empty line removes the message from the queue,
    /// `retry` returns it
    #[arg(long)]
    ack: bool,
    /// With --follow: write further messages before the reader has read the earlier ones from the pipe. The command is then faster, but if the reader
    /// dies, the messages in the pipe are lost
    #[arg(long, requires = "follow", conflicts_with = "ack")]
    ahead: bool,
    /// Run this command for each message; all further arguments are those of the command. With --json, print at the end the numbers of acknowledged
    /// and returned messages, and the last 1,000 failures
    #[arg(long, value_name = "COMMAND", num_args = 1.., allow_hyphen_values = true,
          conflicts_with_all = ["truncate", "output", "null", "ack", "ahead"])]
    exec: Option<Vec<OsString>>,
    /// With --exec: run up to N commands at once
    #[arg(long, short, value_name = "N", default_value_t = 1, value_parser = values::jobs, allow_hyphen_values = true,
          requires = "exec")]
    jobs: usize,
    /// With --exec: send SIGTERM to a command after this time, and SIGKILL 5 s later; the message of the command goes back to the queue
    #[arg(long, value_name = "TIME", value_parser = values::duration, allow_hyphen_values = true, requires = "exec")]
    timeout_per_job: Option<Duration>,
    /// With --exec or --ack: wait this long before a returned message is delivered again. Give a time, such as 5s, or the first delay and a limit,
    /// such as 1s..5m. With a limit, the delay doubles with each delivery [default: the --retry-delay of the queue]
    #[arg(long, value_name = "TIME[..LIMIT]", value_parser = values::retry_delay, allow_hyphen_values = true)]
    retry_delay: Option<RetryDelay>,
    #[command(flatten)]
    format: Format,
}

/// The options that select System V messages.
#[derive(Args, Debug)]
pub struct Types {
    /// System V: receive the oldest message of this type
    #[arg(long = "type", short = 't', value_name = "N", value_parser = values::message_type, allow_hyphen_values = true,
          conflicts_with_all = ["except", "lowest"])]
    exactly: Option<i64>,
    /// System V: receive the oldest message of any type but this one
    #[arg(long, value_name = "N", value_parser = values::message_type, allow_hyphen_values = true, conflicts_with = "lowest")]
    except: Option<i64>,
    /// System V: receive the oldest message of the lowest type in the queue, if that type is at most N
    #[arg(long, value_name = "N", value_parser = values::message_type, allow_hyphen_values = true)]
    lowest: Option<i64>,
}

impl Types {
    fn want(&self) -> Want {
        let (exactly, except) = (
            self.exactly.map(Want::Exactly),
            self.except.map(Want::Except),
        );
        let lowest = self.lowest.map(Want::Lowest);
        exactly.or(except).or(lowest).unwrap_or(Want::Any)
    }
}

impl Recv {
    pub fn perform(&self, cli: &Cli) -> Result {
        let outcome = match &self.exec {
            Some(command) => self.work(cli, command),
            None => self.print(cli),
        };
        outcome.map_err(|failure| failure.hushed(self.quiet))
    }

    fn print(&self, cli: &Cli) -> Result {
        if self.retry_delay.is_some() && !self.ack {
            let line = "--retry-delay needs --exec or --ack, the options that return messages to the queue";
            return Err(Failure::new(Code::Usage, line));
        }
        let out = Direct::open()?;
        let mut answers = match self.ack {
            true => Some(Answers::open(&self.queue)?),
            false => None,
        };
        let namespace = place::existing(cli)?;
        let from = self.open(&namespace)?;
        from.lookout().interrupt_if(move || out.is_abandoned());
        let most = self.truncate.and_then(|most| usize::try_from(most).ok());
        let form = Form::new(self.queue.lossy(), self.output, self.format.json, most);
        let form = form.ended_by(if self.null { 0 } else { b'\n' });
        let steps = Steps {
            out,
            in_step: self.follow && !self.ahead && out.step_by_step(),
        };
        let mut left = self.how_many();
        while left != Some(0) && self.hand_over(&from, &form, steps, answers.as_mut())? {
            left = left.map(|left| left - 1);
        }
        Ok(())
    }

    fn work(&self, cli: &Cli, command: &[OsString]) -> Result {
        self.format.check()?;
        let namespace = place::existing(cli)?;
        let from = self.open(&namespace)?;
        let plan = Plan {
            name: self.queue.to_string(),
            command,
            environment: vec![
                ("UMSG_QUEUE", self.queue.argument()),
                ("UMSG_DIR", namespace.path().into()),
            ],
            jobs: self.jobs,
            time: self.timeout_per_job,
            patience: &self.patience,
            count: self.how_many(),
            all: self.all,
            follow: self.follow,
            retry_delay: self.retry_delay,
            quiet: self.quiet,
        };
        let (summary, outcome) = jobs::work(&plan, &from, self.queue.lossy())?;
        let outcome = outcome.map_err(|failure| failure.hushed(self.quiet));
        if let Err(failure) = &outcome {
            failure.report();
        }
        if self.format.json {
            let mut out = output::standard()?;
            json::print(&mut out, &summary)?;
            out.flush()?;
        } else if !self.quiet {
            say(summary.line(&plan.name));
        }
        outcome.map_err(Failure::reported)
    }

    fn open<'a>(&'a self, namespace: &'a Namespace) -> Result<Inlet<'a>> {
        match (&self.queue, self.types.want()) {
            (Address::Posix(name), Want::Any) => {
                Opened::open(namespace, name, Purpose::Receive).map(Inlet::Posix)
            }
            (Address::Posix(name), _) => {
                Err(name.has_no("types", "leave --type, --except and --lowest out"))
            }
            (Address::SystemV(label), want) => {
                let from = Attached::open(namespace, *label)?;
                Ok(Inlet::SystemV { from, want })
            }
        }
    }

    fn how_many(&self) -> Option<u64> {
        (!self.all && !self.follow).then_some(self.count)
    }

    /// Receives and prints one message. The message is leased until it is printed. In some modes, the lease lasts longer: until the reader has read
    /// the message from the pipe, or until standard input has answered it. If the command fails or dies earlier, the message returns to the queue.
    /// Returns false if no further message is to be received.
    fn hand_over(
        &self,
        from: &Inlet<'_>,
        form: &Form,
        steps: Steps,
        answers: Option<&mut Answers>,
    ) -> Result<bool> {
        let Some(message) = self.next(from, steps.out)? else {
            return Ok(false);
        };
        if let Err(error) = steps.write(&form.render(&message)) {
            return Err(self.returned(from, message, &format!("standard output: {error}")));
        }
        match answers.map(|answers| answers.next(steps.out)) {
            Some(Ok(Answer::Retry)) => {
                from.give_back(message, self.retry_delay);
                return Ok(true);
            }
            Some(Err(why)) => return Err(self.returned(from, message, &why)),
            Some(Ok(Answer::Done)) | None => {}
        }
        match message.acknowledge() {
            Ok(()) => Ok(true),
            Err(error) => Err(Failure::new(
                Code::Failed,
                format_args!(
                    "{}: {error}; the last printed message may be received again",
                    self.queue
                ),
            )),
        }
    }

    /// Receives the next message. Returns None if the queue is empty (with `--all`), or at the end of the stream (with `--follow`).
    fn next<'a>(&self, from: &'a Inlet<'_>, out: Direct) -> Result<Option<Held<'a>>> {
        let read = || match out.is_abandoned() {
            true => Err(self.abandoned()),
            false => Ok(()),
        };
        if !self.all {
            let message = from.receive(&self.patience, read)?;
            return match (message, self.follow) {
                (None, false) => Err(from.ended()),
                (message, _) => Ok(message),
            };
        }
        read()?;
        from.take()
    }

    fn abandoned(&self) -> Failure {
        let line = format!(
            "{}: the reader of standard output has ended; messages not yet printed stay in the queue",
            self.queue
        );
        Failure::new(Code::Failed, line)
    }

    /// Returns a message to the queue because it was not printed, read or answered.
    fn returned(&self, from: &Inlet<'_>, message: Held<'_>, why: &str) -> Failure {
        let (name, what) = (&self.queue, from.give_back(message, None));
        Failure::new(Code::Failed, format_args!("{name}: {why}; {what}"))
    }
}

/// The output. If `in_step` is set, the command waits after each message until the reader has taken the message.
#[derive(Clone, Copy)]
struct Steps {
    out: Direct,
    in_step: bool,
}

impl Steps {
    fn write(self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        match self.in_step {
            true => self.out.wait_until_taken(),
            false => Ok(()),
        }
    }
}
