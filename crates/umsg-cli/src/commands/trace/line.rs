//! Formats a call as text or JSON.

use std::fmt::{self, Display, Formatter};
use std::time::{Duration, SystemTime};

use data_encoding::BASE64;
use jiff::Timestamp;
use serde::Serialize;
use umsg_trace::record::UNKNOWN;
use umsg_trace::{Function, Numbers, Record};

use super::symbols;
use crate::output::{text, time};

/// The record of a call to a function that this command can show.
pub struct Call<'a> {
    pub function: Function,
    pub numbers: Numbers,
    name: &'a [u8],
    data: &'a [u8],
}

impl<'a> Call<'a> {
    pub fn of(record: Record<'a>) -> Option<Call<'a>> {
        Some(Call {
            function: Function::of(record.numbers.function)?,
            numbers: record.numbers,
            name: record.name,
            data: record.data,
        })
    }

    pub fn took(&self) -> Duration {
        Duration::from_nanos(self.numbers.took)
    }

    pub fn failed(&self) -> bool {
        self.numbers.result == -1
    }

    /// Returns the name of a POSIX queue, or `id:N` for a System V queue. Returns an empty text if the queue is unknown.
    pub fn queue(&self) -> String {
        match self.id() {
            Some(id) => format!("id:{id}"),
            None => text::on_one_line(self.name),
        }
    }

    /// Returns the identifier of a System V queue.
    fn id(&self) -> Option<i64> {
        match self.function {
            Function::Msgget => Some(self.numbers.result).filter(|&id| id >= 0),
            // The first argument of all other commands of msgctl is an index, or unused.
            Function::Msgctl => [libc::IPC_RMID, libc::IPC_SET, libc::IPC_STAT]
                .iter()
                .any(|&command| i64::from(command) == self.numbers.arguments[1])
                .then_some(self.numbers.arguments[0]),
            function if function.is_sysv() => Some(self.numbers.arguments[0]),
            _ => None,
        }
    }

    /// Returns the descriptor that mq_open returned.
    fn descriptor(&self) -> Option<i64> {
        let is_named = matches!(self.function, Function::MqOpen | Function::MqUnlink);
        (!is_named && !self.function.is_sysv()).then_some(self.numbers.arguments[0])
    }

    fn depth(&self) -> Option<u32> {
        Some(self.numbers.depth).filter(|&depth| depth != UNKNOWN)
    }

    fn began(&self) -> SystemTime {
        let since = Duration::from_nanos(self.numbers.began);
        SystemTime::UNIX_EPOCH + since
    }

    /// Returns a descriptor with the name of its queue: `3</jobs>`.
    fn shown_descriptor(&self) -> String {
        let number = self.numbers.arguments[0];
        match self.name.is_empty() {
            true => number.to_string(),
            false => format!("{number}<{}>", text::on_one_line(self.name)),
        }
    }

    /// Returns the first bytes of a message of `len` bytes as a C string. An address is not shown.
    fn message(&self, len: i64) -> String {
        if self.failed() {
            return "...".to_owned();
        }
        let is_cut = i64::try_from(self.data.len()).is_ok_and(|shown| shown < len);
        let more = if is_cut { "..." } else { "" };
        format!("\"{}\"{more}", self.data.escape_ascii())
    }

    /// Returns the arguments in the form that they have in a C program.
    fn arguments(&self) -> String {
        let [_, second, third, fourth, fifth] = self.numbers.arguments;
        let first = self.numbers.arguments[0];
        let fd = || self.shown_descriptor();
        let name = || format!("\"{}\"", self.name.escape_ascii());
        match self.function {
            Function::MqOpen => {
                let mut shown = format!("{}, {}", name(), symbols::open(first));
                if first & i64::from(libc::O_CREAT) != 0 {
                    shown += &format!(", {second:04o}, ");
                    shown += &match third {
                        0 => "NULL".to_owned(),
                        _ => format!("{{mq_maxmsg={fourth}, mq_msgsize={fifth}}}"),
                    };
                }
                shown
            }
            Function::MqClose => fd(),
            Function::MqUnlink => name(),
            Function::MqSend => format!("{}, {}, {second}, {third}", fd(), self.message(second)),
            Function::MqTimedSend => format!(
                "{}, {}, {second}, {third}, {}",
                fd(),
                self.message(second),
                limit(fourth, fifth)
            ),
            Function::MqReceive | Function::MqTimedReceive => {
                let message = self.message(self.numbers.result);
                let priority = match third {
                    -1 => "NULL".to_owned(),
                    priority => format!("[{priority}]"),
                };
                let priority = if self.failed() { "..." } else { &priority };
                let mut shown = format!("{}, {message}, {second}, {priority}", fd());
                if self.function == Function::MqTimedReceive {
                    shown += &format!(", {}", limit(fourth, fifth));
                }
                shown
            }
            Function::MqNotify => match second {
                -1 => format!("{}, NULL", fd()),
                how if how == i64::from(libc::SIGEV_SIGNAL) => {
                    format!("{}, {{SIGEV_SIGNAL, sigev_signo={third}}}", fd())
                }
                how => format!("{}, {{{}}}", fd(), symbols::notification(how)),
            },
            Function::MqGetattr if self.failed() => format!("{}, ...", fd()),
            Function::MqGetattr => format!(
                "{}, {{mq_flags={}, mq_maxmsg={third}, mq_msgsize={fourth}, mq_curmsgs={fifth}}}",
                fd(),
                symbols::nonblocking(second)
            ),
            Function::MqSetattr => {
                format!("{}, {{mq_flags={}}}", fd(), symbols::nonblocking(second))
            }
            Function::Msgget => {
                let key = match first {
                    0 => "IPC_PRIVATE".to_owned(),
                    key => format!("{:#x}", key as u32),
                };
                format!("{key}, {}", symbols::get(second))
            }
            Function::Msgsnd if self.failed() => {
                format!("{first}, ..., {third}, {}", symbols::moving(fourth))
            }
            Function::Msgsnd => format!(
                "{first}, {{{second}, {}}}, {third}, {}",
                self.message(third),
                symbols::moving(fourth)
            ),
            Function::Msgrcv => {
                let message = match self.failed() {
                    true => "...".to_owned(),
                    false => format!("{{{fifth}, {}}}", self.message(self.numbers.result)),
                };
                let flags = symbols::moving(fourth);
                format!("{first}, {message}, {second}, {third}, {flags}")
            }
            Function::Msgctl => format!("{first}, {}", symbols::control(second)),
        }
    }
}

/// Formats a time-out of CLOCK_REALTIME.
fn limit(seconds: i64, nanoseconds: i64) -> String {
    match (seconds, nanoseconds) {
        (-1, -1) => "NULL".to_owned(),
        _ => format!("{{{seconds}, {nanoseconds}}}"),
    }
}

/// A call on one line.
pub struct Text<'a>(pub &'a Call<'a>);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Call {
            function, numbers, ..
        } = self.0;
        let began = Timestamp::try_from(self.0.began()).unwrap_or(Timestamp::MAX);
        write!(f, "{} [{}", began.strftime("%H:%M:%S.%6f"), numbers.pid)?;
        if numbers.tid != numbers.pid {
            write!(f, "/{}", numbers.tid)?;
        }
        write!(f, "] {}({}) = ", function.name(), self.0.arguments())?;
        write!(f, "{}", numbers.result)?;
        if self.0.failed() {
            write!(f, " {}", symbols::errno(numbers.errno))?;
        }
        let took = self.0.took();
        write!(f, " <{}.{:09}>", took.as_secs(), took.subsec_nanos())?;
        if let Some(depth) = self.0.depth() {
            write!(f, " depth {depth}")?;
        }
        match numbers.slept {
            0 => Ok(()),
            _ => write!(f, " slept"),
        }
    }
}

/// A call as JSON.
#[derive(Serialize)]
pub struct Json {
    time: String,
    pid: u32,
    tid: u32,
    call: &'static str,
    queue: Option<String>,
    descriptor: Option<i64>,
    id: Option<i64>,
    arguments: String,
    result: i64,
    errno: Option<String>,
    seconds: f64,
    slept: bool,
    depth: Option<u32>,
    /// The first bytes of the message, in base64.
    data: Option<String>,
}

impl Json {
    pub fn of(call: &Call<'_>) -> Json {
        Json {
            time: time::utc(call.began()),
            pid: call.numbers.pid,
            tid: call.numbers.tid,
            call: call.function.name(),
            queue: Some(call.queue()).filter(|name| !name.is_empty()),
            descriptor: call.descriptor(),
            id: call.id(),
            arguments: call.arguments(),
            result: call.numbers.result,
            errno: call.failed().then(|| symbols::errno(call.numbers.errno)),
            seconds: call.took().as_secs_f64(),
            slept: call.numbers.slept != 0,
            depth: call.depth(),
            data: (!call.data.is_empty()).then(|| BASE64.encode(call.data)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(function: Function, result: i64, arguments: [i64; 5], data: &[u8]) -> String {
        let numbers = Numbers {
            result,
            arguments,
            errno: if result == -1 { libc::EAGAIN } else { 0 },
            ..Numbers::default()
        };
        let call = Call {
            function,
            numbers,
            name: b"/q",
            data,
        };
        call.arguments()
    }

    #[test]
    fn arguments_are_shown_as_in_a_program_in_c() {
        let creates = i64::from(libc::O_CREAT | libc::O_RDWR);
        for (line, expected) in [
            (
                shown(Function::MqOpen, 3, [creates, 0o600, 1, 10, 8192], b""),
                r#""/q", O_RDWR|O_CREAT, 0600, {mq_maxmsg=10, mq_msgsize=8192}"#,
            ),
            (
                shown(Function::MqOpen, 3, [0, 0, 0, 0, 0], b""),
                r#""/q", O_RDONLY"#,
            ),
            (
                shown(Function::MqSend, 0, [3, 5, 2, -1, -1], b"hello"),
                r#"3</q>, "hello", 5, 2"#,
            ),
            (
                shown(Function::MqTimedReceive, -1, [3, 8192, -1, 7, 9], b""),
                "3</q>, ..., 8192, ..., {7, 9}",
            ),
            (
                shown(Function::MqReceive, 40, [3, 8192, 2, -1, -1], &[0; 32]),
                &format!("3</q>, \"{}\"..., 8192, [2]", r"\x00".repeat(32)),
            ),
            (
                shown(Function::Msgsnd, 0, [7, 1, 2, 0, 0], b"hi"),
                r#"7, {1, "hi"}, 2, 0"#,
            ),
            (
                shown(Function::Msgrcv, 2, [7, 100, -5, 0, 1], b"hi"),
                r#"7, {1, "hi"}, 100, -5, 0"#,
            ),
        ] {
            assert_eq!(line, expected);
        }
    }

    #[test]
    fn no_record_of_any_numbers_is_a_panic() {
        for number in 0..=u8::MAX {
            for value in [i64::MIN, -1, 0, i64::MAX] {
                let numbers = Numbers {
                    function: number,
                    began: value as u64,
                    took: value as u64,
                    result: value,
                    arguments: [value; 5],
                    errno: value as i32,
                    depth: value as u32,
                    ..Numbers::default()
                };
                let record = Record {
                    numbers,
                    name: b"\xff\x1b",
                    data: b"\xff",
                };
                if let Some(call) = Call::of(record) {
                    assert!(!Text(&call).to_string().contains('\x1b'));
                    assert!(Json::of(&call).seconds >= 0.0);
                }
            }
        }
    }
}
