//! A pair of umsg's rings, which can make deliberate mistakes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use umsg::ring::{Options, Post, Ring, SendError, Sender, Until, Waiting};

use super::uring::post_one_by_one;
use super::{Answer, Completion, ENTRIES, IN_VAIN, Pair};

/// The number of messages that a ring keeps beyond its entries (its overflow). A history leaves fewer messages than this number in the ring.
const OVERFLOW: u32 = 60_000;

/// A deliberate mistake, which the comparison must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Messages that do not fit into the ring are dropped.
    OverflowIsLost,
    /// A batch arrives in reverse order.
    Disorder,
    /// The highest bit of the sender's flags is lost.
    FlagBit,
    /// A disabled ring accepts posts.
    TooEarly,
    /// A post to a disabled ring fails with EPERM instead of EBADFD.
    OtherError,
    /// A wait ends with the first message.
    WokenEarly,
}

/// A sender and a receiver. The receiver may have been dropped.
#[derive(Default)]
pub struct Ours {
    sender: Option<Sender>,
    receiver: Option<Ring>,
    flaw: Option<Flaw>,
}

impl Ours {
    /// Returns a pair that makes this mistake.
    pub fn flawed(flaw: Flaw) -> Ours {
        Ours {
            flaw: Some(flaw),
            ..Ours::default()
        }
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }
}

impl Pair for Ours {
    fn make(&mut self, disabled: bool) {
        let ring = Options::new()
            .entries(ENTRIES as u32)
            .overflow(if self.has(Flaw::OverflowIsLost) {
                0
            } else {
                OVERFLOW
            })
            .disabled(disabled && !self.has(Flaw::TooEarly))
            .create()
            .expect("a ring can be made");
        ring.set_waiting(Waiting::Blocking);
        self.sender = Some(ring.sender());
        self.receiver = Some(ring);
    }

    fn post(&mut self, messages: &[Completion]) -> Answer {
        match &self.sender {
            Some(sender) => post(sender, self.flaw, messages),
            None => Answer::Nothing,
        }
    }

    fn take(&mut self, most: usize) -> Option<Vec<Completion>> {
        self.receiver.as_mut().map(|ring| take(ring, most))
    }

    fn wait(&mut self, count: usize) -> Answer {
        let count = if self.has(Flaw::WokenEarly) { 1 } else { count };
        let Some(ring) = &mut self.receiver else {
            return Answer::Nothing;
        };
        let time = Until::After(Duration::from_nanos(IN_VAIN));
        Answer::Waited(ring.wait(count as u64, time).is_ok())
    }

    fn meet(&mut self, messages: &[Completion]) -> Answer {
        let count = if self.has(Flaw::WokenEarly) {
            1
        } else {
            messages.len()
        };
        let Some(mut ring) = self.receiver.take() else {
            return Answer::Nothing;
        };
        if !ring.status().enabled {
            self.receiver = Some(ring);
            return Answer::Nothing;
        }
        let mut taken = take(&mut ring, usize::MAX);
        let posted = AtomicBool::new(false);
        let early = thread::scope(|scope| {
            let (sender, flaw, posted) = (self.sender.as_ref(), self.flaw, &posted);
            scope.spawn(move || {
                let sender = sender.expect("it is made with the receiver");
                post_one_by_one(messages, posted, |message| post(sender, flaw, &[message]));
            });
            ring.wait(count as u64, Until::Forever)
                .expect("the messages come");
            !posted.load(Ordering::Acquire)
        });
        taken.extend(take(&mut ring, usize::MAX));
        self.receiver = Some(ring);
        Answer::Met(!early, taken)
    }

    fn enable(&mut self) -> Option<()> {
        self.receiver.as_ref().map(Ring::enable)
    }

    fn close(&mut self) {
        self.receiver = None;
    }
}

fn post(sender: &Sender, flaw: Option<Flaw>, messages: &[Completion]) -> Answer {
    let has = |other| flaw == Some(other);
    let kept = if has(Flaw::FlagBit) { !0 >> 1 } else { !0 };
    let letter = |message: &Completion| {
        Post::new(message.user_data)
            .res(message.res)
            .flags(message.flags & kept)
    };
    let mut posts: Vec<Post> = messages.iter().map(letter).collect();
    if has(Flaw::Disorder) {
        posts.reverse();
    }
    let sent = match &posts[..] {
        [post] => sender.try_send(post),
        posts => sender.try_send_batch(posts),
    };
    match sent {
        Ok(()) => Answer::Done,
        Err(SendError::Full) if has(Flaw::OverflowIsLost) => Answer::Done,
        Err(SendError::Closed) => Answer::Gone,
        Err(SendError::Disabled) if has(Flaw::OtherError) => Answer::Error(libc::EPERM),
        Err(error) => Answer::Error(error.errno()),
    }
}

fn take(ring: &mut Ring, most: usize) -> Vec<Completion> {
    let next = || {
        let message = ring.try_receive().ok()?;
        Some(Completion {
            user_data: message.user_data,
            res: message.res,
            flags: message.flags,
        })
    };
    std::iter::from_fn(next).take(most).collect()
}
