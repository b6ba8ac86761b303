//! The command that `umsg recv --exec` runs for a message: its arguments, environment, input and end.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use crate::ending::{Ending, wait_for};
use crate::failure::{Code, Failure, Result};
use crate::inherited;
use crate::inlet::{Held, Rank};
use crate::output::text;
use crate::program;

/// The placeholder in an argument that is replaced by the message.
const PLACE: &[u8] = b"{}";

/// The time between SIGTERM and SIGKILL for a command that exceeds its time limit.
const GRACE: Duration = Duration::from_secs(5);

/// The reason that is reported if a second signal to umsg has killed the command.
const KILLED: &str = "the command was killed";

/// A command that can be run for any number of messages.
pub struct Job<'a> {
    name: &'a OsStr,
    path: PathBuf,
    arguments: &'a [OsString],
    environment: &'a [(&'static str, OsString)],
    time: Option<Duration>,
}

/// The outcome of a command.
pub enum End {
    Done,
    /// The message returns to the queue.
    Failed(Trouble),
}

/// The reason why a command has not completed its message.
pub struct Trouble {
    pub why: String,
    /// The exit status of the command; None if the command did not run.
    pub status: Option<ExitStatus>,
}

impl Trouble {
    fn before_start(why: &str) -> Result<End, Broken> {
        let why = why.to_owned();
        Ok(End::Failed(Trouble { why, status: None }))
    }
}

/// The command can't be started, for any message.
pub struct Broken {
    pub code: Code,
    pub why: String,
}

impl<'a> Job<'a> {
    /// Finds the program of the command. So a missing program is reported before any message is received.
    pub fn new(
        command: &'a [OsString],
        environment: &'a [(&'static str, OsString)],
        time: Option<Duration>,
    ) -> Result<Job<'a>> {
        let (name, arguments) = command
            .split_first()
            .ok_or_else(|| Failure::new(Code::Usage, "--exec needs a command"))?;
        let path = program::find(name).map_err(|fault| {
            let shown = text::on_one_line(name.as_bytes());
            Failure::new(
                fault.kind.code(),
                format_args!("{shown}: the command {}", fault.kind),
            )
        })?;
        Ok(Job {
            name,
            path,
            arguments,
            environment,
            time,
        })
    }

    /// Runs the command for a message, and waits for its end.
    pub fn run(&self, message: &Held<'_>, ending: &Ending) -> Result<End, Broken> {
        let bytes = message.to_vec();
        let Some(arguments) = self.arguments_with(&bytes) else {
            let why = "the message has a NUL byte, which no argument can have; leave {} out and read standard input";
            return Trouble::before_start(why);
        };
        let input = input(&bytes).map_err(|error| Broken {
            code: Code::Failed,
            why: format!("can't create a file in memory (memfd) for the message: {error}"),
        })?;
        let mut command = Command::new(&self.path);
        command.arg0(self.name).args(arguments).stdin(input);
        command.process_group(0);
        self.set_environment(&mut command, message);
        inherited::restore_on_exec(&mut command);
        inherited::end_with_this_thread(&mut command);
        ending.unblock_in(&mut command);
        match command.spawn() {
            Ok(child) => self.wait(child, ending.urgent()),
            Err(error) => not_started(&error),
        }
    }

    /// Replaces `{}` by the message, without a line feed at its end. Returns None if the message can't be an argument.
    fn arguments_with(&self, message: &[u8]) -> Option<Vec<OsString>> {
        let message = message.strip_suffix(b"\n").unwrap_or(message);
        let has_place = |argument: &OsString| find(argument.as_bytes()).is_some();
        if message.contains(&0) && self.arguments.iter().any(has_place) {
            return None;
        }
        let filled = self
            .arguments
            .iter()
            .map(|argument| fill(argument, message));
        Some(filled.collect())
    }

    fn set_environment(&self, command: &mut Command, message: &Held<'_>) {
        let (of_other, rank) = match message.rank() {
            Rank::Priority(priority) => ("UMSG_TYPE", ("UMSG_PRIORITY", priority.to_string())),
            Rank::Type(mtype) => ("UMSG_PRIORITY", ("UMSG_TYPE", mtype.to_string())),
        };
        command
            .env_remove(of_other)
            .env(rank.0, rank.1)
            .env("UMSG_DELIVERIES", message.deliveries().to_string())
            .env("UMSG_SENDER", message.pid().to_string())
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
    }

    /// Waits until the command ends, or until the time limit or a second signal requires its end.
    fn wait(&self, mut child: Child, urgent: BorrowedFd<'_>) -> Result<End, Broken> {
        let status = match watch(&child) {
            Some(watched) => self.supervise(&mut child, &watched, urgent),
            // Without a pidfd, the command has no time limit.
            None => child.wait().map(|status| (status, None)),
        };
        let (status, ended) = status.map_err(|error| Broken {
            code: Code::Failed,
            why: format!("can't wait for the command: {error}"),
        })?;
        let why = match ended {
            None if status.success() => return Ok(End::Done),
            None => described(status),
            Some(why) if why == KILLED => why,
            Some(why) => format!("{why}: {}", described(status)),
        };
        let status = Some(status);
        Ok(End::Failed(Trouble { why, status }))
    }

    /// Returns the exit status. If umsg had to end the command, also returns the reason.
    fn supervise(
        &self,
        child: &mut Child,
        watched: &OwnedFd,
        urgent: BorrowedFd<'_>,
    ) -> io::Result<(ExitStatus, Option<String>)> {
        let mut deadline = self.time.and_then(|time| Instant::now().checked_add(time));
        let mut overdue = None;
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let [ended, urgent] = wait_for([watched.as_fd(), urgent], left);
            let is_late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if ended {
                return Ok((child.wait()?, overdue));
            }
            if urgent || (is_late && overdue.is_some()) {
                end(child, Signal::KILL);
                let why = overdue.unwrap_or_else(|| KILLED.to_owned());
                return Ok((child.wait()?, Some(why)));
            }
            if is_late {
                end(child, Signal::TERM);
                overdue = Some("the command exceeded its time".to_owned());
                deadline = Some(Instant::now() + GRACE);
            }
        }
    }
}

fn watch(child: &Child) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(child.id()).ok()?)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Sends a signal to the process group of the command. This process has not yet waited for the command, so the kernel has not given the command's id
/// to another process.
fn end(child: &Child, signal: Signal) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // The call fails if the group has no process left.
        let _ = kill_process_group(pid, signal);
    }
}

/// Returns a file in memory with the message, positioned at its start, for the command's standard input.
pub fn input(message: &[u8]) -> io::Result<Stdio> {
    let mut file = File::from(memfd_create("umsg-message", MemfdFlags::CLOEXEC)?);
    file.write_all(message)?;
    file.rewind()?;
    Ok(Stdio::from(file))
}

fn not_started(error: &io::Error) -> Result<End, Broken> {
    let code = match error.raw_os_error() {
        Some(libc::E2BIG) => {
            let why =
                "the message is too long for an argument; leave {} out and read standard input";
            return Trouble::before_start(why);
        }
        Some(libc::ENOENT) => Code::NotFound,
        Some(libc::EACCES | libc::ENOEXEC) => Code::NotExecutable,
        _ => Code::Failed,
    };
    let why = format!("the command can't be started: {error}");
    Err(Broken { code, why })
}

fn described(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(0), _) => "the command ended with exit code 0".to_owned(),
        (Some(code), _) => format!("the command failed with exit code {code}"),
        (None, Some(signal)) => format!("signal {signal} ended the command"),
        (None, None) => "the command failed".to_owned(),
    }
}

fn find(argument: &[u8]) -> Option<usize> {
    argument.windows(PLACE.len()).position(|part| part == PLACE)
}

fn fill(argument: &OsStr, message: &[u8]) -> OsString {
    let (mut rest, mut filled) = (argument.as_bytes(), Vec::new());
    while let Some(at) = find(rest) {
        filled.extend_from_slice(&rest[..at]);
        filled.extend_from_slice(message);
        rest = &rest[at + PLACE.len()..];
    }
    filled.extend_from_slice(rest);
    OsString::from_vec(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job<'a>(arguments: &'a [OsString]) -> Job<'a> {
        Job {
            name: OsStr::new("x"),
            path: PathBuf::new(),
            arguments,
            environment: &[],
            time: None,
        }
    }

    #[test]
    fn the_message_replaces_each_place_and_is_not_replaced_itself() {
        let arguments = ["{}{}", "a{}b", "plain", "{"].map(OsString::from);
        let filled = job(&arguments).arguments_with(b"<{}>\n").unwrap();
        assert_eq!(filled, ["<{}><{}>", "a<{}>b", "plain", "{"]);
    }

    #[test]
    fn a_nul_matters_only_in_an_argument() {
        let [with, without] = ["{}", "x"].map(OsString::from);
        assert!(job(&[with]).arguments_with(b"a\0b").is_none());
        assert!(job(&[without]).arguments_with(b"a\0b").is_some());
    }
}
