//! Failures of commands: their texts, hints and exit codes.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use rustix::io::Errno;
use umsg::posix::{OpenError, ReceiveError, SendError, UnlinkError};
use umsg::ring::RingError;
use umsg::{Limits, NamespaceError, QueueError, SegmentError, sysv};

/// The exit codes, as `umsg --help` documents them. clap uses the code 2.
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
    /// The queue is closed for sending and holds no message.
    EndOfStream = 6,
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
    /// The command has already printed the failure.
    Reported(Code),
    /// The program that reads the output ended early. This counts as success.
    ReaderGone,
    /// The program that the command has run ended with this code. The command ends with the same code.
    Exited(u8),
}

pub type Result<T = (), E = Failure> = std::result::Result<T, E>;

impl Failure {
    pub fn new(code: Code, line: impl Display) -> Failure {
        let line = line.to_string();
        Failure::Because { code, line }
    }

    /// Returns a failure that concerns a queue, a program or a file.
    pub fn of(subject: impl Display, error: impl Explain) -> Failure {
        let line = format!("{subject}: {}", error.explain());
        let code = error.code();
        Failure::Because { code, line }
    }

    /// Returns the failure with another exit code.
    pub fn coded(self, code: Code) -> Failure {
        match self {
            Failure::Because { line, .. } => Failure::Because { code, line },
            other => other,
        }
    }

    /// Returns the exit code; None for success.
    pub fn code(&self) -> Option<Code> {
        match self {
            Failure::Because { code, .. } | Failure::Reported(code) => Some(*code),
            Failure::ReaderGone | Failure::Exited(_) => None,
        }
    }

    /// Returns whether the failure is that no message came in time, or that the stream has ended.
    pub fn is_of_no_message(&self) -> bool {
        matches!(self.code(), Some(Code::NotInTime | Code::EndOfStream))
    }

    /// Implements --quiet: removes the line of a failure if no message came, or no room became free, in time, or if the stream has ended.
    pub fn hushed(self, quiet: bool) -> Failure {
        match self {
            Failure::Because {
                code: code @ (Code::NotInTime | Code::EndOfStream),
                ..
            } if quiet => Failure::Reported(code),
            other => other,
        }
    }

    /// Prints the line, and returns a failure with only the exit code.
    pub fn reported(self) -> Failure {
        self.code().map_or(Failure::ReaderGone, Failure::Reported)
    }

    /// Returns the line, without the program's name.
    pub fn line(&self) -> String {
        match self {
            Failure::Because { line, .. } => line.clone(),
            Failure::Reported(_) | Failure::ReaderGone | Failure::Exited(_) => String::new(),
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
            Failure::Exited(code) => return ExitCode::from(*code),
        };
        ExitCode::from(code as u8)
    }
}

/// Prints a line on standard error. Ignores a failed write, because no other stream could report it.
pub fn say(line: impl Display) {
    use io::Write;
    let _ = writeln!(io::stderr(), "umsg: {line}");
}

/// The conversion is only for errors of writing to standard output.
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
pub fn with_hint(error: &impl Display, hint: &str) -> String {
    format!("{}; {hint}", without_full_stop(&error.to_string()))
}

/// Removes the full stop that ends a sentence. If a text ends with the name `..`, the name stays unchanged.
fn without_full_stop(text: &str) -> &str {
    text.strip_suffix('.')
        .filter(|text| !text.ends_with('.'))
        .unwrap_or(text)
}

/// Replaces the library's advice by a hint that names a command. In the text of an error, the advice follows the colon.
pub fn with_command(error: &impl Display, hint: &str) -> String {
    format!("{}; {hint}", without_advice(error))
}

/// Returns the text of an error up to the colon before the library's advice.
pub fn without_advice(error: &impl Display) -> String {
    let text = error.to_string();
    match text.split_once(": ") {
        Some((failure, _)) => failure.to_owned(),
        None => without_full_stop(&text).to_owned(),
    }
}

impl Explain for NamespaceError {
    fn explain(&self) -> String {
        match self {
            NamespaceError::InvalidLimit { limit, .. } => {
                let option = limit.replace('_', "-");
                format!("--{}", self.to_string().replacen(limit, &option, 1))
            }
            NamespaceError::NoQueuesDirectory { path } => {
                let directory = path.display();
                format!(
                    "{directory} is missing; create it with {} as root",
                    setup(path.parent())
                )
            }
            NamespaceError::Stranger {
                path,
                owner,
                trusted: 0,
            } => format!(
                "{} belongs to user {owner}; give --as-owner to act as that user",
                path.display()
            ),
            NamespaceError::NotWritable { errno, .. } if *errno != Errno::ROFS.raw_os_error() => {
                with_command(
                    self,
                    "choose another directory, or run `umsg setup` as root",
                )
            }
            _ => self.to_string(),
        }
    }
}

/// Returns the command that creates the directories of a namespace.
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
            _ => with_open_hint(self, self),
        }
    }
}

/// Appends a hint that names a command to the text of an error of opening a queue or ring.
fn with_open_hint(text: &impl Display, error: &OpenError) -> String {
    let hint = match error {
        OpenError::InvalidName | OpenError::DeniedName | OpenError::NameTooLong => {
            "choose another name"
        }
        OpenError::NotFound => LIST,
        OpenError::AlreadyExists => EXISTS,
        OpenError::PermissionDenied => AS_OWNER,
        OpenError::InvalidAttributes { value, max, .. } if value > max => {
            "`umsg limits` shows and raises the namespace's limits"
        }
        _ => return text.to_string(),
    };
    with_command(text, hint)
}

/// Appends a hint that names a command to the text of an error of a queue's file.
fn with_segment_hint(text: &impl Display, error: &SegmentError) -> String {
    let hint = match error {
        SegmentError::NotAQueue("a directory") => "remove the directory from the namespace",
        SegmentError::NotAQueue(_) => REMOVE,
        SegmentError::OtherVersion { .. } => {
            return format!("{} with `umsg rm`", without_full_stop(&text.to_string()));
        }
        error if error.is_repairable() => CORRUPTED_FILE,
        SegmentError::Damaged(_) => LOST_FILE,
        _ => return text.to_string(),
    };
    with_command(text, hint)
}

/// Appends a hint that names a command to the text of an error that all operations share.
fn with_queue_hint(text: &impl Display, error: QueueError) -> String {
    match error {
        QueueError::NoSpace => with_command(text, NO_SPACE),
        QueueError::OverLimit => with_command(text, MAX_BYTES),
        QueueError::Damaged => with_command(text, CORRUPTED),
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
                    "{}: this user can't remove files in the directory; run the command as root, or as the directory's owner after `chmod u+w`",
                    path.display()
                )
            }
            UnlinkError::Namespace(error) => error.explain(),
            UnlinkError::NotFound => with_command(self, LIST),
            UnlinkError::PermissionDenied => {
                with_command(self, "run the command as the owner or root")
            }
            UnlinkError::System(_) => {
                format!("{self}; remove the file by hand from the directory mq of the namespace")
            }
            _ => self.to_string(),
        }
    }
}

/// Returns a hint for a message that is longer than the queue's message size, `most` bytes.
pub fn longer_messages(most: usize) -> &'static str {
    match most < Limits::default().max_message_size as usize {
        true => "create the queue with a larger --message-size",
        false => "no queue takes longer messages; send the message in parts",
    }
}

impl Explain for SendError {
    fn explain(&self) -> String {
        match self {
            SendError::Full => full(),
            SendError::TimedOut => with_command(self, RECEIVE_OR_WAIT),
            SendError::TooLong { max, .. } => with_hint(self, longer_messages(*max)),
            SendError::Queue(error) => with_queue_hint(self, *error),
            _ => self.to_string(),
        }
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
        match self {
            ReceiveError::Empty => format!("{EMPTY}; {SEND_FIRST}"),
            ReceiveError::TimedOut => with_command(self, SEND_OR_WAIT),
            ReceiveError::Queue(error) => with_queue_hint(self, *error),
            _ => self.to_string(),
        }
    }

    fn code(&self) -> Code {
        match self {
            ReceiveError::Empty | ReceiveError::TimedOut => Code::NotInTime,
            ReceiveError::Closed => Code::EndOfStream,
            _ => Code::Failed,
        }
    }
}

/// Returns a hint for a message that is longer than `most` bytes, the maximum message size of a System V queue.
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
            sysv::OpenError::AlreadyExists => EXISTS,
            sysv::OpenError::PermissionDenied => AS_OWNER,
            sysv::OpenError::ModeNotEnforced { .. } => ENFORCED_MODES,
            sysv::OpenError::TooManyQueues(_) => MSGMNI,
            sysv::OpenError::Segment(
                SegmentError::NoAddressSpace { .. } | SegmentError::FileTooLarge { .. },
            ) => {
                return with_hint(
                    self,
                    "lower --max-qbytes with `umsg limits`, so that new queues need less address space",
                );
            }
            sysv::OpenError::Segment(error) => return with_segment_hint(self, error),
            sysv::OpenError::Queue(error) => return with_queue_hint(self, *error),
            _ => return self.to_string(),
        };
        with_command(self, hint)
    }
}

impl Explain for sysv::SendError {
    fn explain(&self) -> String {
        match self {
            sysv::SendError::Full => full(),
            sysv::SendError::TimedOut => with_command(self, RECEIVE_OR_WAIT),
            sysv::SendError::TooLong { max, .. } => with_hint(self, longer_sysv_messages(*max)),
            sysv::SendError::PermissionDenied => with_hint(self, AS_OWNER),
            sysv::SendError::Queue(error) => with_queue_hint(self, *error),
            _ => self.to_string(),
        }
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
        match self {
            sysv::ReceiveError::NoMessage => format!("{NO_MATCH}; {SEND_FIRST}"),
            sysv::ReceiveError::TimedOut => with_command(self, SEND_OR_WAIT),
            sysv::ReceiveError::PermissionDenied => with_hint(self, AS_OWNER),
            sysv::ReceiveError::Queue(error) => with_queue_hint(self, *error),
            _ => self.to_string(),
        }
    }

    fn code(&self) -> Code {
        match self {
            sysv::ReceiveError::NoMessage | sysv::ReceiveError::TimedOut => Code::NotInTime,
            sysv::ReceiveError::Removed => Code::Removed,
            sysv::ReceiveError::Closed => Code::EndOfStream,
            _ => Code::Failed,
        }
    }
}

impl Explain for sysv::ControlError {
    fn explain(&self) -> String {
        match self {
            sysv::ControlError::Open(error) => error.explain(),
            sysv::ControlError::PermissionDenied | sysv::ControlError::NotOwner => {
                with_hint(self, AS_OWNER)
            }
            sysv::ControlError::TooManyBytes { .. } => {
                with_command(self, "`umsg limits --max-qbytes` raises the limit")
            }
            sysv::ControlError::ModeNotEnforced { .. } => with_command(self, ENFORCED_MODES),
            sysv::ControlError::Queue(error) => with_queue_hint(self, *error),
            sysv::ControlError::Busy => {
                with_command(self, "`umsg doctor` shows the reason and what to do")
            }
            _ => self.to_string(),
        }
    }
}

impl Explain for RingError {
    fn explain(&self) -> String {
        match self {
            RingError::Open(OpenError::Namespace(error)) => error.explain(),
            RingError::Open(OpenError::Segment(error)) => with_segment_hint(self, error),
            RingError::Open(OpenError::Queue(error)) => with_queue_hint(self, *error),
            RingError::NotFound | RingError::Open(OpenError::NotFound) => {
                with_command(self, "`umsg ls` lists the rings")
            }
            RingError::Open(error) => with_open_hint(self, error),
            RingError::Owned(pid) => format!(
                "process {pid} receives from the ring; end that process, or remove the ring's name with --force"
            ),
            RingError::NotARing => with_command(self, REMOVE),
            _ => self.to_string(),
        }
    }
}

/// The reason of a refused send. The command uses the text only after it has excluded that a stopped process holds the queue's lock.
pub const FULL: &str = "the queue is full";
pub const EMPTY: &str = "the queue is empty";
pub const NO_MATCH: &str = "the queue has no matching message";

/// Explains that a queue is closed for sending, and how to reopen the queue.
pub fn closed(queue: impl Display) -> String {
    format!("the queue is closed for sending; `umsg close --reopen {queue}` opens it again")
}

/// Explains that a queue is full, and what the user can do.
fn full() -> String {
    format!(
        "{FULL}; receive from the queue first, or wait with --timeout, unless the queue has --on-full fail"
    )
}

const RECEIVE_OR_WAIT: &str = "receive from the queue first, or wait longer";
const SEND_FIRST: &str = "send a message first, or wait with --timeout";
const SEND_OR_WAIT: &str = "send a message first, or wait longer";
const EXISTS: &str = "with `umsg create`, leave --exclusive out; with `umsg load`, give --into-existing; or remove the queue first with `umsg rm`";
const AS_OWNER: &str = "ask the owner, or run the command as the owner or root";
const CORRUPTED: &str = "`umsg doctor QUEUE --repair` rebuilds the queue or ring";
const CORRUPTED_FILE: &str = "`umsg doctor QUEUE --repair` rebuilds the queue or ring, and `umsg rm` removes it with its messages";
const LOST_FILE: &str =
    "no repair is possible, and `umsg rm` removes the queue or ring with its messages";
const REMOVE: &str =
    "`umsg doctor QUEUE --repair` may rebuild a damaged header; `umsg rm` removes the file";
const LIST: &str = "`umsg ls` lists the queues";
const ENFORCED_MODES: &str = "use a mode such as 0600, 0660 or 0666, or allow other modes with `umsg limits --enforced-modes false`";
const MAX_QUEUES: &str =
    "remove queues with `umsg rm`, or raise the limit with `umsg limits --max-queues`";
const MSGMNI: &str = "remove queues with `umsg rm`, or raise the limit with `umsg limits --msgmni`";
const MAX_BYTES: &str = "receive messages, remove queues with `umsg rm`, or raise the limit with `umsg limits --max-bytes`";
const NO_SPACE: &str =
    "receive messages, or remove queues with `umsg rm`; `df` shows the free space";

/// The directory of the shared namespace, unless `umsg setup --dir` names another directory.
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
    fn a_hint_follows_the_whole_text_and_replaces_one_full_stop() {
        assert_eq!(
            with_hint(&"it must not be /. or /..", "x"),
            "it must not be /. or /..; x"
        );
        assert_eq!(with_hint(&"The end.", "x"), "The end; x");
        let denied = OpenError::DeniedName.explain();
        assert!(
            denied.contains("/. or /..") && denied.ends_with("; choose another name"),
            "{denied}"
        );
    }

    #[test]
    fn a_command_takes_the_place_of_the_librarys_advice() {
        assert_eq!(
            OpenError::NotFound.explain(),
            "no queue has this name; `umsg ls` lists the queues"
        );
        let corrupted = OpenError::Segment(SegmentError::Damaged("its length")).explain();
        assert!(!corrupted.contains("repair or remove"), "{corrupted}");
        assert!(
            corrupted.starts_with("the queue's file is corrupted (its length); `umsg doctor"),
            "{corrupted}"
        );
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
            "--default-messages must be from 1 to 5, not 10"
        );
    }
}
