//! The thread for all work that may wait for a lock: diagnosing a queue, reading messages, and changing a queue.

use std::ffi::OsStr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use umsg::diagnosis::Diagnosis;
use umsg::posix::{self, ReceiveError, Redrive};
use umsg::sysv::{self, Want};
use umsg::{Namespace, ring};

use crate::address::{Address, Label, Subject};
use crate::attached::Attached;
use crate::commands::doctor;
use crate::failure::{Code, Explain, Failure, Result};
use crate::names::Name;
use crate::opened::{Opened, Purpose};
use crate::output::text::counted;

/// The maximum number of messages that are read, and the approximate maximum of their bytes. Receivers wait during the copy.
const MOST: usize = 1000;
const MOST_BYTES: usize = 4 << 20;

/// A task of the thread.
#[derive(Clone, Debug)]
pub enum Task {
    /// Diagnoses a queue: its waiters, held messages and repairs.
    Examine(Subject),
    /// Copies the messages.
    Read(Subject),
    /// Receives and drops the messages, if the queue still has this file.
    Purge(Subject, Option<(u64, u64)>),
    /// Removes the queue, if it still has this file.
    Remove(Subject, Option<(u64, u64)>),
    /// Sends dead letters back: all of them, or the one with this ID.
    Requeue(Subject, Option<u64>),
}

/// The result of a task.
#[derive(Debug)]
pub enum Done {
    Examined(Subject, Result<Box<Diagnosis>, String>),
    /// The first messages, and the number of messages in the queue.
    Read(Subject, Result<(Vec<Message>, u64), String>),
    /// A text about the outcome of a change.
    Told(Result<String, String>),
}

/// A message that was read.
#[derive(Clone, Debug)]
pub struct Message {
    /// The priority or type of the message.
    pub rank: i64,
    /// The ID, if the message has one; dead letters always have one.
    pub id: Option<u64>,
    pub len: usize,
    pub pid: u32,
    pub sent: SystemTime,
    pub returns: u32,
    /// For a dead letter: the queue from which it comes, and the reason for its move.
    pub dead: Option<String>,
    pub data: Vec<u8>,
}

impl Message {
    /// Returns whether the message contains this text, without regard to the case of ASCII letters.
    pub fn contains(&self, text: &str) -> bool {
        let wanted = text.as_bytes();
        wanted.is_empty()
            || self
                .data
                .windows(wanted.len())
                .any(|part| part.eq_ignore_ascii_case(wanted))
    }
}

/// The worker thread. The thread ends when this value is dropped.
pub struct Worker {
    tasks: Sender<Task>,
    done: Receiver<(Done, Duration)>,
    /// The number of tasks that the thread has not completed.
    pending: usize,
}

impl Worker {
    /// Starts the thread. Each task calls `namespace`, because the directory may have been replaced since the previous task.
    pub fn start(namespace: impl Fn() -> Result<Namespace> + Send + 'static) -> Worker {
        let (tasks, todo) = channel::<Task>();
        let (tell, done) = channel();
        thread::spawn(move || {
            for task in todo {
                let begin = Instant::now();
                let result = task.perform(&namespace);
                if tell.send((result, begin.elapsed())).is_err() {
                    return;
                }
            }
        });
        Worker {
            tasks,
            done,
            pending: 0,
        }
    }

    pub fn ask(&mut self, task: Task) {
        if self.tasks.send(task).is_ok() {
            self.pending += 1;
        }
    }

    pub fn is_busy(&self) -> bool {
        self.pending != 0
    }

    /// Returns the result of a completed task, and the time that the task took. Returns None if no task was completed since the last call.
    pub fn done(&mut self) -> Option<(Done, Duration)> {
        let done = self.done.try_recv().ok()?;
        self.pending -= 1;
        Some(done)
    }
}

impl Task {
    fn perform(self, namespace: &impl Fn() -> Result<Namespace>) -> Done {
        let line = |failure: Failure| failure.line();
        match self {
            Task::Examine(subject) => {
                let found = namespace().and_then(|there| doctor::diagnose(&there, &subject));
                Done::Examined(subject, found.map(Box::new).map_err(line))
            }
            Task::Read(subject) => {
                let found = namespace().and_then(|there| read(&there, &subject));
                Done::Read(subject, found.map_err(line))
            }
            Task::Purge(subject, file) => {
                let purged = namespace().and_then(|there| {
                    check_file(&there, &subject, file)?;
                    purge(&there, &subject)
                });
                Done::Told(purged.map_err(line))
            }
            Task::Remove(subject, file) => {
                let removed = namespace().and_then(|there| {
                    check_file(&there, &subject, file)?;
                    remove(&there, &subject)
                });
                let told = removed.map(|()| format!("{}: removed", subject.lossy()));
                Done::Told(told.map_err(line))
            }
            Task::Requeue(subject, id) => {
                let sent = namespace().and_then(|there| requeue(&there, &subject, id));
                Done::Told(sent.map_err(line))
            }
        }
    }
}

/// Fails if the name of a POSIX queue now leads to another file than `file`, the one of the queue that the question named.
fn check_file(namespace: &Namespace, subject: &Subject, file: Option<(u64, u64)>) -> Result {
    let (Subject::Queue(Address::Posix(name)), Some(_)) = (subject, file) else {
        return Ok(());
    };
    let opened = Opened::open(namespace, name, Purpose::Look)?;
    if Some(opened.queue.identity()) == file {
        return Ok(());
    }
    let line = format_args!("{name}: another queue has the name now; nothing was changed");
    Err(Failure::new(Code::Failed, line))
}

/// Returns the failure for an action that rings do not support.
fn not_a_ring(name: &Name, what: &str) -> Failure {
    let line = format_args!("ring:{name}: {what}; only its receiver takes them");
    Failure::new(Code::Failed, line)
}

/// Copies the first messages of a queue. Also returns the number of messages in the queue.
fn read(namespace: &Namespace, subject: &Subject) -> Result<(Vec<Message>, u64)> {
    match subject {
        Subject::Queue(Address::Posix(name)) => {
            let opened = Opened::open(namespace, name, Purpose::See)?;
            let longest = opened.queue.attributes().message_size;
            let most = (MOST_BYTES / longest.max(1)).clamp(1, MOST);
            let found = opened.queue.messages(most);
            let found = found.map_err(|error| opened.not_seen(&error))?;
            let all = opened.queue.attributes().messages as u64;
            Ok((found.into_iter().map(Message::from).collect(), all))
        }
        Subject::Queue(Address::SystemV(label)) => {
            let attached = Attached::open(namespace, *label)?;
            let found = attached.queue.look(0, MOST, MOST_BYTES / MOST);
            let found = found.map_err(|error| attached.not_seen(&error))?;
            let all = attached
                .queue
                .status()
                .map_or(0, |status| status.entry.messages);
            Ok((found.into_iter().map(Message::from).collect(), all))
        }
        Subject::Ring(name) => Err(not_a_ring(name, "the messages of a ring can't be read")),
    }
}

impl From<posix::Peeked> for Message {
    fn from(peeked: posix::Peeked) -> Message {
        let dead = peeked.history.as_ref().map(|history| {
            let source = history.source.as_deref().unwrap_or(OsStr::new("unknown"));
            let reason = crate::output::json::reason(history.reason);
            format!("{} ({reason})", Name::from(source))
        });
        Message {
            rank: peeked.priority.into(),
            id: peeked.history.map(|history| history.id).or(peeked.id),
            len: peeked.data.len(),
            pid: peeked.pid,
            sent: peeked.sent,
            returns: peeked.returns,
            dead,
            data: peeked.data,
        }
    }
}

impl From<sysv::Peeked> for Message {
    fn from(peeked: sysv::Peeked) -> Message {
        Message {
            rank: peeked.mtype,
            id: None,
            len: peeked.len,
            pid: peeked.pid,
            sent: peeked.sent,
            returns: peeked.returns,
            dead: None,
            data: peeked.data,
        }
    }
}

/// Receives as many messages as the queue has at the start, so that the purge ends even if senders continue.
fn purge(namespace: &Namespace, subject: &Subject) -> Result<String> {
    let (count, failure) = match subject {
        Subject::Queue(Address::Posix(name)) => purge_posix(namespace, name)?,
        Subject::Queue(Address::SystemV(label)) => purge_sysv(namespace, *label)?,
        Subject::Ring(name) => {
            return Err(not_a_ring(name, "the messages of a ring can't be purged"));
        }
    };
    let purged = format!("{}: {} purged", subject.lossy(), counted(count, "message"));
    match failure {
        None => Ok(purged),
        Some(failure) => {
            let line = format_args!("{purged}; then: {}", failure.line());
            Err(Failure::new(Code::Failed, line))
        }
    }
}

fn purge_posix(namespace: &Namespace, name: &Name) -> Result<(u64, Option<Failure>)> {
    let opened = Opened::open(namespace, name, Purpose::Receive)?;
    let there = opened.queue.attributes();
    let mut buffer = vec![0; there.message_size];
    for count in 0..there.messages as u64 {
        match opened.queue.try_receive(&mut buffer) {
            Ok(_) => {}
            Err(ReceiveError::Empty | ReceiveError::Closed) => return Ok((count, None)),
            Err(error) => return Ok((count, Some(opened.not_received(&error)))),
        }
    }
    Ok((there.messages as u64, None))
}

fn purge_sysv(namespace: &Namespace, label: Label) -> Result<(u64, Option<Failure>)> {
    let attached = Attached::open(namespace, label)?;
    let there = attached.queue.glance();
    let there = there.map_err(|error| attached.not_told(error))?;
    let mut buffer = vec![0; attached.queue.msgmax()];
    for count in 0..there.entry.messages {
        match attached.queue.try_receive(Want::Any, &mut buffer) {
            Ok(_) => {}
            Err(sysv::ReceiveError::NoMessage | sysv::ReceiveError::Closed) => {
                return Ok((count, None));
            }
            Err(error) => return Ok((count, Some(attached.not_received(&error)))),
        }
    }
    Ok((there.entry.messages, None))
}

/// Removes a queue, or a ring whose owner has died.
fn remove(namespace: &Namespace, subject: &Subject) -> Result {
    let failed = |why: String| {
        let line = format_args!("{}: {why}", subject.lossy());
        Failure::new(Code::Failed, line)
    };
    match subject {
        Subject::Queue(Address::Posix(name)) => {
            posix::unlink_in(namespace, name).map_err(|error| failed(error.explain()))
        }
        Subject::Queue(Address::SystemV(Label::Id(id))) => {
            sysv::remove(namespace, *id).map_err(|error| failed(error.explain()))
        }
        Subject::Queue(Address::SystemV(label @ Label::Key(..))) => {
            let attached = Attached::open(namespace, *label)?;
            let removed = sysv::remove(namespace, attached.queue.id());
            removed.map_err(|error| failed(error.explain()))
        }
        Subject::Ring(name) => {
            ring::unlink_in(namespace, name).map_err(|error| failed(error.explain()))
        }
    }
}

fn requeue(namespace: &Namespace, subject: &Subject, id: Option<u64>) -> Result<String> {
    let Subject::Queue(Address::Posix(name)) = subject else {
        let line = format_args!("{}: only POSIX queues have dead letters", subject.lossy());
        return Err(Failure::new(Code::Failed, line));
    };
    let opened = Opened::open(namespace, name, Purpose::See)?;
    let which = id.map_or_else(Redrive::new, |id| Redrive::new().id(id));
    let sent = opened.queue.redrive(&which);
    let sent = sent.map_err(|error| opened.not_seen(&error))?;
    let back = format!(
        "{name}: {} sent back",
        counted(sent.messages as u64, "dead letter")
    );
    match sent.refused.first() {
        None => Ok(back),
        Some(refused) => {
            let stayed = sent.refused.iter().map(|refused| refused.messages as u64);
            let stayed = counted(stayed.sum::<u64>(), "dead letter");
            let queue = refused.queue.as_deref().map(Name::from);
            let queue = queue.as_ref().unwrap_or(name);
            let line = format_args!("{back}; {stayed} stayed: {queue}: {}", refused.why);
            Err(Failure::new(Code::Failed, line))
        }
    }
}
