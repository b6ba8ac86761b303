//! What a command says when it fails, and the exit codes.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use rustix::io::Errno;
use umsg::posix::{OpenError, ReceiveError, SendError, UnlinkError};
use umsg::ring::RingError;
use umsg::{Limits, NamespaceError, QueueError, SegmentError, sysv};

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

/// The text of an error, and what helps.
fn with_hint(error: &impl Display, hint: impl Into<Option<&'static str>>) -> String {
    match hint.into() {
        Some(hint) => format!("{}; {hint}", error.to_string().trim_end_matches('.')),
        None => error.to_string(),
    }
}

impl Explain for NamespaceError {
    fn explain(&self) -> String {
        match self {
            NamespaceError::InvalidLimit { limit, .. } => {
                let option = limit.replace('_', "-");
                format!("--{}", self.to_string().replacen(limit, &option, 1))
            }
            NamespaceError::NotANamespace { .. } => {
                with_hint(self, "`umsg create` makes a first queue")
            }
            NamespaceError::NoQueuesDirectory { path } => {
                format!("{self}; {} as root makes it", setup(path.parent()))
            }
            NamespaceError::NotWritable { errno, .. } if *errno != Errno::ROFS.raw_os_error() => {
                with_hint(
                    self,
                    "`umsg setup` as root makes a directory that all users share",
                )
            }
            _ => self.to_string(),
        }
    }
}

/// The command with which root mends a namespace.
fn setup(namespace: Option<&Path>) -> String {
    match namespace {
        Some(path) if path != Path::new(SHARED) => format!("`umsg setup --dir {}`", path.display()),
        _ => "`umsg setup`".to_owned(),
    }
}

impl Explain for OpenError {
    fn explain(&self) -> String {
        match self {
            OpenError::Namespace(error) => error.explain(),
            _ => with_hint(self, open_hint(self)),
        }
    }
}

/// What helps after an error of opening a queue or ring.
fn open_hint(error: &OpenError) -> Option<&'static str> {
    Some(match error {
        OpenError::InvalidName | OpenError::DeniedName | OpenError::NameTooLong => {
            "choose another name"
        }
        OpenError::NotFound => LIST,
        OpenError::AlreadyExists => "leave --exclusive out to use it, or `umsg rm` it first",
        OpenError::PermissionDenied => AS_OWNER,
        OpenError::SecondName => REMOVE,
        OpenError::ModeNotEnforced { .. } => ENFORCED_MODES,
        OpenError::InvalidAttributes { value, max, .. } if value > max => {
            "`umsg limits` shows and raises the namespace's limits"
        }
        OpenError::TooManyQueues(_) => {
            "`umsg rm` removes queues, `umsg limits --max-queues` raises the limit"
        }
        OpenError::Segment(error) => return segment_hint(error),
        OpenError::Queue(error) => return queue_hint(*error),
        _ => return None,
    })
}

/// What helps after an error of a queue's file.
fn segment_hint(error: &SegmentError) -> Option<&'static str> {
    Some(match error {
        SegmentError::NotAQueue("a directory") => "remove it from the namespace's directory",
        SegmentError::NotAQueue(_) | SegmentError::OtherVersion { .. } => REMOVE,
        error if error.is_repairable() => DAMAGED_FILE,
        SegmentError::Damaged(_) => LOST_FILE,
        _ => return None,
    })
}

/// What helps after an error that all operations share.
fn queue_hint(error: QueueError) -> Option<&'static str> {
    Some(match error {
        QueueError::NoSpace => "`umsg rm` removes queues, `df` shows how much room there is",
        QueueError::OverLimit => {
            "`umsg rm` removes queues, `umsg limits --max-bytes` raises the limit"
        }
        QueueError::Damaged => DAMAGED,
        _ => return None,
    })
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
            UnlinkError::NotFound => with_hint(self, LIST),
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
            SendError::Queue(error) => return with_hint(self, queue_hint(*error)),
            _ => return self.to_string(),
        };
        with_hint(self, hint)
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
            ReceiveError::Queue(error) => return with_hint(self, queue_hint(*error)),
            _ => return self.to_string(),
        };
        with_hint(self, hint)
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
            sysv::OpenError::NotFound | sysv::OpenError::NoSuchId => LIST,
            sysv::OpenError::AlreadyExists => {
                "leave --exclusive out to use it, or `umsg rm` it first"
            }
            sysv::OpenError::PermissionDenied => AS_OWNER,
            sysv::OpenError::ModeNotEnforced { .. } => ENFORCED_MODES,
            sysv::OpenError::TooManyQueues(_) => {
                "`umsg rm` removes queues, `umsg limits --msgmni` raises the limit"
            }
            sysv::OpenError::Segment(
                SegmentError::NoAddressSpace { .. } | SegmentError::FileTooLarge { .. },
            ) => "`umsg limits --max-qbytes` makes new queues smaller",
            sysv::OpenError::Segment(error) => return with_hint(self, segment_hint(error)),
            sysv::OpenError::Queue(error) => return with_hint(self, queue_hint(*error)),
            _ => return self.to_string(),
        };
        with_hint(self, hint)
    }
}

impl Explain for sysv::SendError {
    fn explain(&self) -> String {
        let hint = match self {
            sysv::SendError::Full => "receive from it first, or wait with --timeout",
            sysv::SendError::TimedOut => "receive from it first, or wait longer",
            sysv::SendError::TooLong { max, .. } => longer_sysv_messages(*max),
            sysv::SendError::PermissionDenied => AS_OWNER,
            sysv::SendError::Queue(error) => return with_hint(self, queue_hint(*error)),
            _ => return self.to_string(),
        };
        with_hint(self, hint)
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
            sysv::ReceiveError::Queue(error) => return with_hint(self, queue_hint(*error)),
            _ => return self.to_string(),
        };
        with_hint(self, hint)
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
            sysv::ControlError::TooManyBytes { .. } => {
                "`umsg limits --max-qbytes` raises the limit"
            }
            sysv::ControlError::ModeNotEnforced { .. } => ENFORCED_MODES,
            sysv::ControlError::Queue(error) => return with_hint(self, queue_hint(*error)),
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
            RingError::Open(error) => with_hint(self, open_hint(error)),
            RingError::NotFound => with_hint(self, LIST),
            RingError::Owned(_) => {
                format!("{self}; end that process, or remove the ring's name with --force")
            }
            RingError::NotARing => with_hint(self, REMOVE),
            _ => self.to_string(),
        }
    }
}

const AS_OWNER: &str = "run this as the queue's owner or as root";
const DAMAGED: &str = "see `umsg doctor`, which can repair it";
const DAMAGED_FILE: &str = "`umsg doctor --repair` rebuilds it from its intact messages, `umsg rm` removes it with its messages";
const LOST_FILE: &str = "`umsg rm` removes it with its messages, which no repair can find";
const REMOVE: &str = "`umsg rm` removes it";
const LIST: &str = "`umsg ls` shows those that exist";
const ENFORCED_MODES: &str = "`umsg limits --enforced-modes` changes the limit";

/// The directory of the queues that all users share, unless `umsg setup --dir` names another.
const SHARED: &str = "/dev/shm/umsg";

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn the_advice_to_set_up_names_the_directory_unless_it_is_the_usual_one() {
        let advice = |path: &str| {
            let path = PathBuf::from(path);
            NamespaceError::NoQueuesDirectory { path }.explain()
        };
        assert!(advice("/dev/shm/umsg/mq").contains("`umsg setup` as root"));
        assert!(advice("/dev/shm/x/mq").contains("`umsg setup --dir /dev/shm/x` as root"));
    }

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
