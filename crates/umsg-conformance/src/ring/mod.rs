//! Compares umsg's rings with io_uring's rings. The same operations run on a pair of io_uring's rings and on a pair of umsg's rings, one after the
//! other, and must have the same answers.
//!
//! ```text
//!   operations ──┬──► io_uring ── MSG_RING ──► io_uring        answers, and completions in order
//!                └──► umsg Sender ───────────► umsg Ring                compared
//! ```
//!
//! | operation | io_uring | umsg |
//! |---|---|---|
//! | post | a MSG_RING for each message, submitted together; the answers are the completions on the sender's ring | `try_send`, `try_send_batch` |
//! | take | completions, including those that overflowed | `try_recv` |
//! | wait for n | `io_uring_enter` for n completions, with a time-out | `wait` |
//! | meet | the same, asleep, while another thread posts | the same |
//! | enable | IORING_REGISTER_ENABLE_RINGS | `enable` |
//! | close | the descriptor is closed | the ring is dropped |
//!
//! Two errors differ by design. A post to a closed ring fails with EBADF in io_uring, because the ring is a descriptor, and with EPIPE in umsg; the
//! comparison treats both as [`Answer::Gone`]. A wait on a disabled ring fails with EBADFD in io_uring. In umsg, the wait lasts until a process has
//! enabled the ring and posted, so histories omit such waits. All other answers have to be equal. io_uring waits for at most as many completions as
//! its queue has room for, so histories never wait for more.

mod generate;
mod ours;
mod uring;

pub use generate::operations;
pub use ours::{Flaw, Ours};
pub use uring::{Uring, unavailable};

/// The number of completions that the ring holds without overflow.
pub const ENTRIES: usize = 8;

/// The time, in nanoseconds, after which a wait gives up if too few messages have arrived.
const IN_VAIN: u64 = 50_000;

/// A message with the fields of an io_uring completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The value that the sender posted.
    pub user_data: u64,
    /// The result that the sender posted.
    pub res: i32,
    /// The flags that the sender posted.
    pub flags: u32,
}

/// The operations on a pair of rings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Makes a new pair.
    Make {
        /// True if the receiver is disabled until the operation `Enable`.
        disabled: bool,
    },
    /// Posts these messages with one call.
    Post(Vec<Completion>),
    /// Takes up to this number of messages.
    Take(usize),
    /// Waits a short time until this number of messages is present.
    Wait(usize),
    /// The receiver first empties the ring. Then it waits while another thread posts the messages of this operation one by one. When all messages
    /// have arrived, the receiver takes them.
    Meet(Vec<Completion>),
    /// Enables the receiver, so that senders can post.
    Enable,
    /// Closes the receiver.
    Close,
}

/// The outcome of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The operation succeeded.
    Done,
    /// The operation failed with this errno.
    Error(i32),
    /// The operation failed, because the receiver is closed.
    Gone,
    /// The messages that were taken.
    Taken(Vec<Completion>),
    /// True if the awaited number of messages is present.
    Waited(bool),
    /// The first field is true if the receiver slept until the last message was posted. The second field contains the messages that the receiver
    /// took.
    Met(bool, Vec<Completion>),
    /// The operation had no effect, because the pair or its receiver does not exist.
    Nothing,
}

/// A sender and a receiver.
pub trait Pair {
    /// Replaces the sender and the receiver by new ones.
    fn make(&mut self, disabled: bool);
    /// Posts messages with one call.
    fn post(&mut self, messages: &[Completion]) -> Answer;
    /// Takes up to `most` messages. Returns `None` if the pair has no receiver.
    fn take(&mut self, most: usize) -> Option<Vec<Completion>>;
    /// Waits for `count` messages, for a limited time.
    fn wait(&mut self, count: usize) -> Answer;
    /// Empties the ring, and then posts messages one by one while the receiver waits for all of them. Takes the messages.
    fn meet(&mut self, messages: &[Completion]) -> Answer;
    /// Enables the receiver. Returns `None` if the pair has no receiver.
    fn enable(&mut self) -> Option<()>;
    /// Closes the receiver.
    fn close(&mut self);

    /// Performs the operation, and returns its result.
    fn apply(&mut self, operation: &Operation) -> Answer {
        match operation {
            Operation::Make { disabled } => {
                self.make(*disabled);
                Answer::Done
            }
            Operation::Post(messages) => self.post(messages),
            Operation::Take(most) => self.take(*most).map_or(Answer::Nothing, Answer::Taken),
            Operation::Wait(count) => self.wait(*count),
            Operation::Meet(messages) => self.meet(messages),
            Operation::Enable => self.enable().map_or(Answer::Nothing, |()| Answer::Done),
            Operation::Close => {
                self.close();
                Answer::Done
            }
        }
    }
}

/// The operation at which two pairs differ.
#[derive(Debug)]
pub struct Difference {
    /// The number of operations before the difference.
    pub step: usize,
    /// The operation to which the two sides gave different answers.
    pub operation: Operation,
    /// The answers of the two sides.
    pub answers: [Answer; 2],
}

/// Applies each operation to both pairs until the answers differ. Returns the number of compared operations.
pub fn compare(
    operations: &[Operation],
    one: &mut dyn Pair,
    other: &mut dyn Pair,
) -> Result<usize, Box<Difference>> {
    for (step, operation) in operations.iter().enumerate() {
        let answers = [one.apply(operation), other.apply(operation)];
        if answers[0] != answers[1] {
            return Err(Box::new(Difference {
                step,
                operation: operation.clone(),
                answers,
            }));
        }
    }
    Ok(operations.len())
}
