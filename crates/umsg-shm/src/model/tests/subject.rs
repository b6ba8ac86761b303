//! The actions of the models of both engines: threads that use a queue, its messages, and the account at the end.

use super::stage::{DIRECTOR, Slices, explore};
use crate::lock::SLICE;
use crate::model::thread::{self, Thread};
use crate::sys::clock::Deadline;
use crate::waiters::wait::Refused;
use loom::thread::JoinHandle;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A queue of either engine, which threads share.
pub(super) trait Subject: Clone + 'static {
    /// A message: its number, and its priority or type.
    type Message: Copy + Debug + Ord + 'static;
    /// The messages that a receive wants.
    type Want: Copy + 'static;
    /// The reasons to refuse a call that only this engine has.
    type Own: Copy + Debug + PartialEq + 'static;

    /// The value with which a receive wants any message.
    const ANY: Self::Want;

    fn send_one(
        &self,
        me: &Thread,
        message: Self::Message,
        by: Deadline,
    ) -> Result<(), Refused<Self::Own>>;

    fn receive_one(
        &self,
        me: &Thread,
        want: Self::Want,
        by: Deadline,
    ) -> Result<Self::Message, Refused<Self::Own>>;

    /// Lets so much time pass that each later call checks the holders again.
    fn let_holders_be_looked_at(&self);

    /// Checks an empty queue that no process uses any more: the queue works, each slot has exactly one use, and the counts are right.
    fn audit(&self);

    /// Runs `work` as the director.
    fn direct<T>(&self, work: impl FnOnce(&Self, &Thread) -> T) -> T {
        thread::live(DIRECTOR, |me| work(self, me)).expect("nobody killed the director")
    }

    /// Begins a thread that uses the queue.
    fn spawn<T: 'static>(
        &self,
        tid: u32,
        life: impl FnOnce(&Self, &Thread) -> T + 'static,
    ) -> JoinHandle<Option<T>> {
        let queue = self.clone();
        thread::spawn(tid, move |me| life(&queue, me))
    }

    /// Sends these messages as the director. Returns the queue.
    fn filled(self, messages: &[Self::Message]) -> Self {
        self.direct(|queue, me| {
            for &message in messages {
                queue.send_one(me, message, Deadline::Passed).unwrap();
            }
        });
        self
    }

    /// Receives the remaining messages, as the director. After a slice, these include messages that were offered to dead threads.
    fn empty(&self) -> Vec<Self::Message> {
        self.direct(|queue, me| {
            let mut messages = Vec::new();
            let mut slices = 2;
            loop {
                queue.let_holders_be_looked_at();
                match queue.receive_one(me, Self::ANY, Deadline::Passed) {
                    Ok(message) => messages.push(message),
                    Err(Refused::NotNow) if slices == 0 => return messages,
                    Err(Refused::NotNow) => {
                        slices -= 1;
                        me.oversleep(SLICE);
                    }
                    Err(other) => panic!("{other:?}"),
                }
            }
        })
    }

    /// Checks that each of the expected messages remains in the queue or was received, exactly once.
    fn settle(&self, received: &[Option<Self::Message>], expected: &[Self::Message]) {
        let mut all = self.empty();
        all.extend(received.iter().flatten());
        all.sort_unstable();
        assert_eq!(all, expected);
        self.audit();
    }
}

/// Returns the message of a receive, or None if there was no message.
pub(super) fn optional<M, Own: Debug>(result: Result<M, Refused<Own>>) -> Option<M> {
    match result {
        Ok(message) => Some(message),
        Err(Refused::NotNow | Refused::TimedOut) => None,
        Err(other) => panic!("{other:?}"),
    }
}

/// Explores a model with a death that must happen in at least one execution. The model returns whether the death happened.
pub(super) fn explore_death(
    name: &str,
    preemptions: usize,
    model: impl Fn() -> bool + Send + Sync + 'static,
) {
    let deaths = Deaths::default();
    deaths.explore(name, preemptions, Slices::End, model);
    deaths.expect(name);
}

/// A set of models with a death, which must happen in at least one execution of one of them.
#[derive(Default)]
pub(super) struct Deaths(Arc<AtomicBool>);

impl Deaths {
    /// Explores a model, which returns whether the process died.
    pub(super) fn explore(
        &self,
        name: &str,
        preemptions: usize,
        slices: Slices,
        model: impl Fn() -> bool + Send + Sync + 'static,
    ) {
        let died = Arc::clone(&self.0);
        explore(name, preemptions, slices, move || {
            if model() {
                died.store(true, Relaxed);
            }
        });
    }

    /// Fails unless the process died in at least one execution.
    #[track_caller]
    pub(super) fn expect(self, name: &str) {
        assert!(self.0.load(Relaxed), "{name}: the point is never reached");
    }
}
