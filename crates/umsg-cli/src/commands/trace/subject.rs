//! The process that is traced.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal};
use umsg::Namespace;
use umsg_trace::request::VARIABLE;

use super::attach::Attached;
use crate::cli::Cli;
use crate::commands::run::Run;
use crate::ending;
use crate::failure::{Code, Failure, Result};
use crate::place;

/// The maximum time between the release of a process's memory and the end of the process.
const TO_END: Duration = Duration::from_secs(1);

/// A program that the command has started, or a process that ran before.
pub enum Subject {
    Started(Mutex<Child>),
    Attached { process: Attached, pidfd: OwnedFd },
}

/// Returns the namespace for the ring: the directory of `--dir`, else that of UMSG_DIR in the running process.
pub fn namespace(cli: &Cli, pid: Option<u32>) -> Result<Namespace> {
    let told = pid.filter(|_| cli.dir.is_none()).and_then(directory_of);
    let opened = match told {
        Some(directory) => Namespace::existing(directory).map_err(Failure::from),
        None => place::namespace(cli),
    };
    match pid {
        Some(_) => opened,
        None => opened.map_err(|failure| failure.coded(Code::NotPrepared)),
    }
}

/// Returns the value that UMSG_DIR had when a process was started.
fn directory_of(pid: u32) -> Option<OsString> {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut variables = environment.split(|&byte| byte == 0);
    let value = variables.find_map(|variable| variable.strip_prefix(b"UMSG_DIR="))?;
    Some(OsString::from_vec(value.to_vec()))
}

/// Returns whether a process belongs to a user other than this command's.
pub fn is_of_another_user(pid: u32) -> bool {
    let own = rustix::process::geteuid().as_raw();
    std::fs::metadata(format!("/proc/{pid}")).is_ok_and(|process| process.uid() != own)
}

impl Subject {
    /// Starts a program that sends records from its first call on.
    pub fn start(cli: &Cli, program: &[OsString], place: &[u8]) -> Result<Subject> {
        let run = Run::plain(program);
        let (mut command, path) = run.prepare(cli)?;
        command.env(VARIABLE, std::ffi::OsStr::from_bytes(place));
        let child = command
            .spawn()
            .map_err(|error| run.not_executed(error, path))?;
        // The terminal sends these signals to the program, too. This command ignores them, so that the program decides whether it ends.
        ending::ignore(&[libc::SIGINT, libc::SIGQUIT]);
        ending::note(&[libc::SIGTERM, libc::SIGHUP]);
        Ok(Subject::Started(Mutex::new(child)))
    }

    /// Asks a running process to send records.
    pub fn attach(pid: u32, place: &[u8]) -> Result<Subject> {
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let number = number.ok_or_else(|| no_process(pid))?;
        let pidfd = rustix::process::pidfd_open(number, PidfdFlags::empty())
            .map_err(|_| no_process(pid))?;
        ending::note(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP]);
        let process = Attached::to(number, place)?;
        super::tell_attached(pid);
        Ok(Subject::Attached { process, pidfd })
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        match self {
            Subject::Started(child) => {
                let child = child.lock().unwrap_or_else(|held| held.into_inner());
                child.id()
            }
            Subject::Attached { process, .. } => process.id(),
        }
    }

    /// Returns whether the process has ended, or the user has ended the command. Fails if the process refuses to send records.
    pub fn is_over(&self) -> Result<bool> {
        let signal = ending::noted();
        match self {
            Subject::Started(child) => {
                let mut child = child.lock().unwrap_or_else(|held| held.into_inner());
                // An error also means that the program has ended: if SIGCHLD is ignored, the system reaps the program.
                let ended = !matches!(child.try_wait(), Ok(None));
                if let Some(signal) = signal.filter(|_| !ended) {
                    pass_on(&child, signal);
                }
                Ok(ended)
            }
            Subject::Attached { process, pidfd } => {
                let [ended] = ending::wait_for([pidfd.as_fd()], Some(Duration::ZERO));
                if ended || signal.is_some() {
                    return Ok(true);
                }
                let checked = process.check();
                // A process that is ending has already released its memory, so the check fails. The wait confirms the end of the process.
                if checked.is_err() && ending::wait_for([pidfd.as_fd()], Some(TO_END))[0] {
                    return Ok(true);
                }
                checked.map(|()| false)
            }
        }
    }

    /// Ends the sending of records. Returns the exit code.
    pub fn end(self) -> Result<u8> {
        // If the records could not be shown, the program still runs. Until the program ends, the command passes signals on to it.
        while matches!(self, Subject::Started(_)) && !self.is_over()? {
            thread::sleep(super::PAUSE);
        }
        match self {
            Subject::Started(child) => {
                let mut child = child.into_inner().unwrap_or_else(|held| held.into_inner());
                let status = child.wait().map_err(|error| {
                    Failure::new(
                        Code::Failed,
                        format_args!("waiting for the program: {error}"),
                    )
                })?;
                let code = status.code().or(status.signal().map(|signal| 128 + signal));
                Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
            }
            Subject::Attached { process, .. } => {
                process.release();
                Ok(0)
            }
        }
    }
}

fn no_process(pid: u32) -> Failure {
    let line =
        format_args!("there is no process {pid}; `umsg who` lists processes that use queues");
    Failure::new(Code::Failed, line)
}

fn pass_on(child: &Child, signal: i32) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let (Some(pid), Some(signal)) = (pid, Signal::from_named_raw(signal)) {
        // An error means that the program has just ended.
        let _ = rustix::process::kill_process(pid, signal);
    }
}
