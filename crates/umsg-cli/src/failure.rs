//! What a command says when it fails, and the exit codes.

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

use rustix::io::Errno;
use umsg::posix::{OpenError, ReceiveError, SendError, UnlinkError};
use umsg::ring::RingError;
use umsg::{Limits, NamespaceError, sysv};

/// The exit codes, as `umsg --help` documents them. 2 is clap's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    Failed = 1,
    Usage = 2,
    /// No message, or no room, within the time allowed.
    NotInTime = 3,
    /// While the command waited, the queue lost its name.
    Removed = 4,
    /// Of `umsg doctor`: something is wrong with a queue.
    ProblemFound = 5,
    /// Of `umsg run`: the program would not see the drop-in.
    NotInterceptable = 120,
    /// Of `umsg run`, as env(1): it failed itself, before the program.
    NotPrepared = 125,
    NotExecutable = 126,
    NotFound = 127,
}

/// Why a command ends early.
#[derive(Debug)]
pub enum Failure {
    /// One line, and a code.
    Because { code: Code, line: String },
    /// The command has already reported the failure.
    Reported(Code),
    /// The reader of the output ended early, which is no failure.
    ReaderGone,
}

pub type Result<T = (), E = Failure> = std::result::Result<T, E>;

impl Failure {
    pub fn new(code: Code, line: impl Display) -> Failure {
        let line = line.to_string();
        Failure::Because { code, line }
    }

    /// About a queue, a program or a file.
    pub fn of(subject: impl Display, error: impl Explain) -> Failure {
        let line = format!("{subject}: {}", error.explain());
        let code = error.code();
        Failure::Because { code, line }
    }

    /// With another exit code.
    pub fn coded(self, code: Code) -> Failure {
        match self {
            Failure::Because { line, .. } => Failure::Because { code, line },
            other => other,
        }
    }

    /// The line, without the program's name.
    pub fn line(&self) -> String {
        match self {
            Failure::Because { line, .. } => line.clone(),
            Failure::Reported(_) | Failure::ReaderGone => String::new(),
        }
    }

    /// Prints the line on standard error, and returns the exit code.
    pub fn report(&self) -> ExitCode {
        let code = match self {
            Failure::Because { code, line } => {
                say(line);
                *code
            }
            Failure::Reported(code) => *code,
            Failure::ReaderGone => return ExitCode::SUCCESS,
        };
        ExitCode::from(code as u8)
    }
}

/// Prints a line on standard error. Errors are ignored: no other stream could report them.
pub fn say(line: impl Display) {
    use io::Write;
    let _ = writeln!(io::stderr(), "umsg: {line}");
}

/// Errors of writing standard output, and no others.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::ReaderGone,
            _ => Failure::new(Code::Failed, format_args!("standard output: {error}")),
        }
    }
}

impl From<NamespaceError> for Failure {
    fn from(error: NamespaceError) -> Failure {
        Failure::new(Code::Failed, error.explain())
    }
}

/// An error of the library as a sentence, with what to do.
pub trait Explain {
    fn explain(&self) -> String;

    fn code(&self) -> Code {
        Code::Failed
    }
}

impl<T: Explain> Explain for &T {
    fn explain(&self) -> String {
        (**self).explain()
    }

    fn code(&self) -> Code {
        (**self).code()
    }
}

impl Explain for NamespaceError {
    fn explain(&self) -> String {
        match self {
            NamespaceError::InvalidLimit { limit, .. } => {
                let option = limit.replace('_', "-");
                format!("--{}", self.to_string().replacen(limit, &option, 1))
            }
            _ => self.to_string(),
        }
    }
}

impl Explain for OpenError {
    fn explain(&self) -> String {
        match self {
            OpenError::Namespace(error) => error.explain(),
            _ => with_hint(self.to_string(), self),
        }
    }
}

/// What helps after an error of opening a queue or ring, behind what it says.
fn with_hint(text: String, error: &OpenError) -> String {
    let hint = match error {
        OpenError::InvalidName | OpenError::DeniedName | OpenError::NameTooLong => {
            "choose another name"
        }
        OpenError::AlreadyExists => "leave --exclusive out to use it, or `umsg rm` it first",
        OpenError::PermissionDenied => AS_OWNER,
        OpenError::NotAQueue("a directory") => "remove it from the namespace's directory",
        OpenError::NotAQueue(_) => NO_QUEUE,
        error if error.is_repairable() => DAMAGED_FILE,
        OpenError::Damaged(_) => LOST_FILE,
        _ => return text,
    };
    format!("{text}; {hint}")
}

impl Explain for UnlinkError {
    fn explain(&self) -> String {
        match self {
            UnlinkError::Name(error) => error.explain(),
            UnlinkError::Namespace(NamespaceError::NotWritable { path, errno })
                if *errno != Errno::ROFS.raw_os_error() =>
            {
                format!(
                    "{}: this user can't remove files there; run this as root, or as the directory's owner with write permission \
                     (chmod u+w)",
                    path.display()
                )
            }
            UnlinkError::Namespace(error) => error.explain(),
            UnlinkError::PermissionDenied => format!("{self}; run this as that user or as root"),
            UnlinkError::System(_) => {
                format!("{self}; look at it in the namespace's directory, under mq")
            }
            _ => self.to_string(),
        }
    }
}

/// What helps if a queue's messages, of so many bytes at most, are too short.
pub fn longer_messages(most: usize) -> &'static str {
    match most < Limits::default().max_message_size as usize {
        true => "create the queue with a larger --message-size",
        false => "no queue takes longer messages; send it in parts",
    }
}

impl Explain for SendError {
    fn explain(&self) -> String {
        let hint = match self {
            SendError::Full => "receive from it first, or wait with --timeout",
            SendError::TimedOut => "receive from it first, or wait longer",
            SendError::TooLong { max, .. } => longer_messages(*max),
            SendError::Damaged => DAMAGED,
            _ => return self.to_string(),
        };
        format!("{self}; {hint}")
    }

    fn code(&self) -> Code {
        match self {
            SendError::Full | SendError::TimedOut => Code::NotInTime,
            _ => Code::Failed,
        }
    }
}

impl Explain for ReceiveError {
    fn explain(&self) -> String {
        let hint = match self {
            ReceiveError::Empty => "send to it first, or wait with --timeout",
            ReceiveError::TimedOut => "send to it first, or wait longer",
            ReceiveError::Damaged => DAMAGED,
            _ => return self.to_string(),
        };
        format!("{self}; {hint}")
    }

    fn code(&self) -> Code {
        match self {
            ReceiveError::Empty | ReceiveError::TimedOut => Code::NotInTime,
            _ => Code::Failed,
        }
    }
}

/// What helps if a System V queue's messages, of so many bytes at most, are too short.
pub fn longer_sysv_messages(most: usize) -> &'static str {
    match most < Limits::default().max_message_size as usize {
        true => "raise it with `umsg limits --msgmax`, and create the queue again",
        false => "no queue takes longer messages; send it in parts",
    }
}

impl Explain for sysv::OpenError {
    fn explain(&self) -> String {
        let hint = match self {
            sysv::OpenError::Namespace(error) => return error.explain(),
            sysv::OpenError::AlreadyExists => {
                "leave --exclusive out to use it, or `umsg rm` it first"
            }
            sysv::OpenError::PermissionDenied => AS_OWNER,
            sysv::OpenError::NotAQueue(_) => NO_QUEUE,
            error if error.is_repairable() => DAMAGED_FILE,
            sysv::OpenError::Damaged(_) => LOST_FILE,
            _ => return self.to_string(),
        };
        format!("{self}; {hint}")
    }
}

impl Explain for sysv::SendError {
    fn explain(&self) -> String {
        let hint = match self {
            sysv::SendError::Full => "receive from it first, or wait with --timeout",
            sysv::SendError::TimedOut => "receive from it first, or wait longer",
            sysv::SendError::TooLong { max, .. } => longer_sysv_messages(*max),
            sysv::SendError::PermissionDenied => AS_OWNER,
            sysv::SendError::Damaged => DAMAGED,
            _ => return self.to_string(),
        };
        format!("{self}; {hint}")
    }

    fn code(&self) -> Code {
        match self {
            sysv::SendError::Full | sysv::SendError::TimedOut => Code::NotInTime,
            sysv::SendError::Removed => Code::Removed,
            _ => Code::Failed,
        }
    }
}

impl Explain for sysv::ReceiveError {
    fn explain(&self) -> String {
        let hint = match self {
            sysv::ReceiveError::NoMessage => "send one first, or wait with --timeout",
            sysv::ReceiveError::TimedOut => "send one first, or wait longer",
            sysv::ReceiveError::PermissionDenied => AS_OWNER,
            sysv::ReceiveError::Damaged => DAMAGED,
            _ => return self.to_string(),
        };
        format!("{self}; {hint}")
    }

    fn code(&self) -> Code {
        match self {
            sysv::ReceiveError::NoMessage | sysv::ReceiveError::TimedOut => Code::NotInTime,
            sysv::ReceiveError::Removed => Code::Removed,
            _ => Code::Failed,
        }
    }
}

impl Explain for sysv::ControlError {
    fn explain(&self) -> String {
        let hint = match self {
            sysv::ControlError::Open(error) => return error.explain(),
            sysv::ControlError::PermissionDenied => AS_OWNER,
            sysv::ControlError::Damaged => DAMAGED,
            sysv::ControlError::Busy => "`umsg doctor` shows the reason and what to do",
            _ => return self.to_string(),
        };
        format!("{self}; {hint}")
    }
}

impl Explain for RingError {
    fn explain(&self) -> String {
        match self {
            RingError::Open(OpenError::Namespace(error)) => error.explain(),
            RingError::Open(error) => with_hint(self.to_string(), error),
            RingError::Owned(_) => {
                format!("{self}; end that process, or remove the ring's name with --force")
            }
            RingError::NotARing => format!("{self}; remove it with `umsg rm`"),
            _ => self.to_string(),
        }
    }
}

const AS_OWNER: &str = "run this as the queue's owner or as root";
const DAMAGED: &str = "see `umsg doctor`, which can repair it";
const DAMAGED_FILE: &str = "`umsg doctor --repair` rebuilds it from its intact messages, `umsg rm` removes it with its messages";
const LOST_FILE: &str = "`umsg rm` removes it with its messages, which no repair can find";
const NO_QUEUE: &str = "`umsg rm` removes it";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_out_of_range_is_named_by_its_option() {
        let error = NamespaceError::InvalidLimit {
            limit: "default_messages",
            value: 10,
            least: 1,
            most: 5,
        };
        assert_eq!(
            error.explain(),
            "--default-messages is 10: choose between 1 and 5"
        );
    }
}
