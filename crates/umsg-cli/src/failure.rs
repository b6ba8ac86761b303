//! Failures of commands: their texts, hints and exit codes.

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
    /// No message arrived, or no room became free, within the allowed time.
    NotInTime = 3,
    /// The queue was removed while the command waited.
    Removed = 4,
    /// `umsg doctor`: a queue or ring has a problem.
    ProblemFound = 5,
    /// `umsg run`: the drop-in can't be loaded into the program.
    NotInterceptable = 120,
    /// `umsg run` failed before it started the program, as in env(1).
    NotPrepared = 125,
    NotExecutable = 126,
    NotFound = 127,
}

/// The reason why a command ends early.
#[derive(Debug)]
pub enum Failure {
    /// One line, and a code.
    Because { code: Code, line: String },
    /// The command has already reported the failure.
    Reported(Code),
    /// The program that reads the output ended early. This counts as success.
    ReaderGone,
}

pub type Result<T = (), E = Failure> = std::result::Result<T, E>;

impl Failure {
    pub fn new(code: Code, line: impl Display) -> Failure {
        let line = line.to_string();
        Failure::Because { code, line }
    }

    /// A failure that concerns a queue, a program or a file.
    pub fn of(subject: impl Display, error: impl Explain) -> Failure {
        let line = format!("{subject}: {}", error.explain());
        let code = error.code();
        Failure::Because { code, line }
    }

    /// Replaces the exit code.
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

/// Converts only errors of writing to standard output.
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

/// Explains an error of the library in a sentence, with a hint.
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

/// Appends a hint to the text of an error.
fn with_hint(error: &impl Display, hint: impl Into<Option<&'static str>>) -> String {
    match hint.into() {
        Some(hint) => format!("{}; {hint}", error.to_string().trim_end_matches('.')),
        None => error.to_string(),
    }
}

/// Replaces the library's advice, which follows the colon in the text of an error, by a hint that names a command.
fn with_command(error: &impl Display, hint: &str) -> String {
    let text = error.to_string();
    let failure = text
        .split_once(": ")
        .map_or(text.as_str(), |(failure, _)| failure);
    format!("{failure}; {hint}")
}

impl Explain for NamespaceError {
    fn explain(&self) -> String {
        match self {
            NamespaceError::InvalidLimit { limit, .. } => {
                let option = limit.replace('_', "-");
                format!("--{}", self.to_string().replacen(limit, &option, 1))
            }
            NamespaceError::NotANamespace { .. } => {
                with_hint(self, "`umsg create` creates a first queue")
            }
            NamespaceError::NoQueuesDirectory { path } => {
                let directory = path.display();
                format!(
                    "{directory} is missing; create it with {} as root",
                    setup(path.parent())
                )
            }
            NamespaceError::NotWritable { errno, .. } if *errno != Errno::ROFS.raw_os_error() => {
                with_hint(
                    self,
                    "or create a directory for all users with `umsg setup` as root",
                )
            }
            _ => self.to_string(),
        }
    }
}

/// Names the command that creates the directories of a namespace.
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
            OpenError::TooManyQueues(_) => with_command(self, MAX_QUEUES),
            OpenError::ModeNotEnforced { .. } => with_command(self, ENFORCED_MODES),
            OpenError::Segment(error) => with_segment_hint(self, error),
            OpenError::Queue(error) => with_queue_hint(self, *error),
            _ => with_hint(self, open_hint(self)),
        }
    }
}

/// Returns a hint for an error of opening a queue or ring.
fn open_hint(error: &OpenError) -> Option<&'static str> {
    Some(match error {
        OpenError::InvalidName | OpenError::DeniedName | OpenError::NameTooLong => {
            "choose another name"
        }
        OpenError::NotFound => LIST,
        OpenError::AlreadyExists => "use it without --exclusive, or remove it first with `umsg rm`",
        OpenError::PermissionDenied => AS_OWNER,
        OpenError::InvalidAttributes { value, max, .. } if value > max => {
            "`umsg limits` shows and raises the namespace's limits"
        }
        _ => return None,
    })
}

/// Appends a hint for an error of a queue's file.
fn with_segment_hint(text: &impl Display, error: &SegmentError) -> String {
    let hint = match error {
        SegmentError::NotAQueue("a directory") => "remove it from the namespace's directory",
        SegmentError::NotAQueue(_) | SegmentError::OtherVersion { .. } => REMOVE,
        error if error.is_repairable() => DAMAGED_FILE,
        SegmentError::Damaged(_) => LOST_FILE,
        _ => return text.to_string(),
    };
    with_hint(text, hint)
}

/// Appends a hint for an error that all operations share.
fn with_queue_hint(text: &impl Display, error: QueueError) -> String {
    match error {
        QueueError::NoSpace => with_command(text, NO_SPACE),
        QueueError::OverLimit => with_command(text, MAX_BYTES),
        QueueError::Damaged => with_hint(text, DAMAGED),
        _ => text.to_string(),
    }
}

impl Explain for UnlinkError {
    fn explain(&self) -> String {
        match self {
            UnlinkError::Name(error) => error.explain(),
            UnlinkError::Namespace(NamespaceError::NotWritable { path, errno })
                if *errno != Errno::ROFS.raw_os_error() =>
            {
                format!(
                    "{}: this user can't remove files there; run the command as root, or as the directory's owner after chmod u+w",
                    path.display()
                )
            }
            UnlinkError::Namespace(error) => error.explain(),
            UnlinkError::NotFound => with_hint(self, LIST),
            UnlinkError::PermissionDenied => {
                format!("{self}; run the command as that user or as root")
            }
            UnlinkError::System(_) => {
                format!("{self}; inspect the file in the directory mq of the namespace")
            }
            _ => self.to_string(),
        }
    }
}

/// Returns a hint for a message that is longer than the message size of the queue, `most` bytes.
pub fn longer_messages(most: usize) -> &'static str {
    match most < Limits::default().max_message_size as usize {
        true => "create the queue with a larger --message-size",
        false => "no queue takes longer messages; send the message in parts",
    }
}

impl Explain for SendError {
    fn explain(&self) -> String {
        let hint = match self {
            SendError::Full => "receive from the queue first, or wait with --timeout",
            SendError::TimedOut => "receive from the queue first, or wait longer",
            SendError::TooLong { max, .. } => longer_messages(*max),
            SendError::Queue(error) => return with_queue_hint(self, *error),
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
            ReceiveError::Empty => "send a message first, or wait with --timeout",
            ReceiveError::TimedOut => "send a message first, or wait longer",
            ReceiveError::Queue(error) => return with_queue_hint(self, *error),
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

/// Returns a hint for a message that is longer than the limit of a System V queue, `most` bytes.
pub fn longer_sysv_messages(most: usize) -> &'static str {
    match most < Limits::default().max_message_size as usize {
        true => "raise msgmax with `umsg limits --msgmax`, and create the queue again",
        false => "no queue takes longer messages; send the message in parts",
    }
}

impl Explain for sysv::OpenError {
    fn explain(&self) -> String {
        let hint = match self {
            sysv::OpenError::Namespace(error) => return error.explain(),
            sysv::OpenError::NotFound | sysv::OpenError::NoSuchId => LIST,
            sysv::OpenError::AlreadyExists => {
                "use it without --exclusive, or remove it first with `umsg rm`"
            }
            sysv::OpenError::PermissionDenied => AS_OWNER,
            sysv::OpenError::ModeNotEnforced { .. } => return with_command(self, ENFORCED_MODES),
            sysv::OpenError::TooManyQueues(_) => return with_command(self, MSGMNI),
            sysv::OpenError::Segment(
                SegmentError::NoAddressSpace { .. } | SegmentError::FileTooLarge { .. },
            ) => "`umsg limits --max-qbytes` makes new queues smaller",
            sysv::OpenError::Segment(error) => return with_segment_hint(self, error),
            sysv::OpenError::Queue(error) => return with_queue_hint(self, *error),
            _ => return self.to_string(),
        };
        with_hint(self, hint)
    }
}

impl Explain for sysv::SendError {
    fn explain(&self) -> String {
        let hint = match self {
            sysv::SendError::Full => "receive from the queue first, or wait with --timeout",
            sysv::SendError::TimedOut => "receive from the queue first, or wait longer",
            sysv::SendError::TooLong { max, .. } => longer_sysv_messages(*max),
            sysv::SendError::PermissionDenied => AS_OWNER,
            sysv::SendError::Queue(error) => return with_queue_hint(self, *error),
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
            sysv::ReceiveError::NoMessage => "send a message first, or wait with --timeout",
            sysv::ReceiveError::TimedOut => "send a message first, or wait longer",
            sysv::ReceiveError::PermissionDenied => AS_OWNER,
            sysv::ReceiveError::Queue(error) => return with_queue_hint(self, *error),
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
                return with_command(self, "`umsg limits --max-qbytes` raises the limit");
            }
            sysv::ControlError::ModeNotEnforced { .. } => {
                return with_command(self, ENFORCED_MODES);
            }
            sysv::ControlError::Queue(error) => return with_queue_hint(self, *error),
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
            RingError::Open(OpenError::Segment(error)) => with_segment_hint(self, error),
            RingError::Open(OpenError::Queue(error)) => with_queue_hint(self, *error),
            RingError::Open(error) => with_hint(self, open_hint(error)),
            RingError::NotFound => with_hint(self, "`umsg ls` lists the rings"),
            RingError::Owned(_) => {
                format!("{self}; end that process, or remove the ring's name with --force")
            }
            RingError::NotARing => with_hint(self, REMOVE),
            _ => self.to_string(),
        }
    }
}

const AS_OWNER: &str = "run the command as the queue's owner or as root";
const DAMAGED: &str = "`umsg doctor --repair` can repair it";
const DAMAGED_FILE: &str = "`umsg doctor --repair` rebuilds it from its intact messages; `umsg rm` removes it with its messages";
const LOST_FILE: &str = "no repair can find its messages; `umsg rm` removes it with its messages";
const REMOVE: &str = "`umsg rm` removes it";
const LIST: &str = "`umsg ls` lists the queues";
const ENFORCED_MODES: &str = "use a mode such as 0600, 0660 or 0666, or allow other modes with `umsg limits --enforced-modes false`";
const MAX_QUEUES: &str =
    "remove queues with `umsg rm`, or raise the limit with `umsg limits --max-queues`";
const MSGMNI: &str = "remove queues with `umsg rm`, or raise the limit with `umsg limits --msgmni`";
const MAX_BYTES: &str = "receive messages, remove queues with `umsg rm`, or raise the limit with `umsg limits --max-bytes`";
const NO_SPACE: &str =
    "receive messages, or remove queues with `umsg rm`; `df` shows the free space";

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
