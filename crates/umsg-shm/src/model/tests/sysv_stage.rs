//! The parts of the models of System V queues: a queue, threads that use it, and the account at the end.

use super::subject::Subject;
use crate::leases::{Leases, State};
use crate::lock::tokens::ReceiverHeld;
use crate::model::crash::step;
use crate::model::sysv::{LENGTH, Segment, Tenure};
use crate::model::thread::{self, Thread};
use crate::sync::Ordering;
use crate::sys::clock::Deadline;
use crate::sysv_engine::order::{Order, TypeIndexStore, Want};
use crate::sysv_engine::segment::{CLOSED, Fixed};
use crate::sysv_engine::{Batch, Call, Engine, LeaseHandle, Refused, Sink, Successor, Taken, Why};
use crate::waiters::{self, List, State as Word, Waiters};
use std::sync::Arc;

/// A queue that threads share.
#[derive(Clone)]
pub(super) struct Queue(Arc<Engine>);

/// A message: its number and its type.
pub(super) type Message = (u64, i64);

/// The bits of `mode` that permit sending and receiving.
pub(super) const SEND: u32 = 0o222;
pub(super) const RECEIVE: u32 = 0o444;

/// The error of a call without permission: EACCES.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failed {
    Denied,
    By(Refused),
}

impl Queue {
    /// Makes a queue. For the number, see [`Segment::new`].
    pub(super) fn new(messages: usize) -> Queue {
        let segment = Segment::new(messages);
        let mode = segment.fixed().words().mode;
        mode.store(SEND | RECEIVE, Ordering::Relaxed);
        Queue(Arc::new(Engine::new(segment)))
    }

    /// Returns a queue of the same namespace, with this index.
    pub(super) fn beside(&self, messages: usize, index: u32) -> Queue {
        let mut segment = Segment::new(messages);
        segment.put_beside(self.engine().segment(), index);
        let mode = segment.fixed().words().mode;
        mode.store(SEND | RECEIVE, Ordering::Relaxed);
        Queue(Arc::new(Engine::new(segment)))
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.0
    }

    pub(super) fn fixed(&self) -> &Fixed {
        self.0.segment().fixed()
    }

    /// Makes a call, and checks its permission as often as the engine requests. The library does the same.
    fn call<T>(
        &self,
        me: &Thread,
        needs: u32,
        by: Deadline,
        mut attempt: impl FnMut(&Call<'_>) -> Result<T, Refused>,
    ) -> Result<T, Failed> {
        step();
        let mut call = Call::new(me, by);
        call.heed_end();
        loop {
            let rights = &self.fixed().rights;
            let version = rights.version_to_check();
            call.set_rights(version);
            if rights.mode() & needs != needs {
                return Err(Failed::Denied);
            }
            if needs == SEND && version & CLOSED != 0 {
                return Err(Failed::By(Refused::Closed));
            }
            match attempt(&call) {
                Err(Refused::Own(Why::Rejudge)) => {}
                other => return other.map_err(Failed::By),
            }
        }
    }

    pub(super) fn try_to_send(
        &self,
        me: &Thread,
        (number, mtype): Message,
        by: Deadline,
    ) -> Result<(), Failed> {
        let bytes = number.to_ne_bytes();
        self.call(me, SEND, by, |call| self.0.send(call, mtype, &bytes))
    }

    pub(super) fn try_to_receive(
        &self,
        me: &Thread,
        want: Want,
        by: Deadline,
    ) -> Result<Message, Failed> {
        let mut buffer = [0; LENGTH];
        let taken = self.call(me, RECEIVE, by, |call| {
            self.0.receive(call, want, &mut buffer, false)
        })?;
        Ok(message(taken, buffer))
    }

    /// Sends a message with the delivery time `due`, in nanoseconds of the clock.
    pub(super) fn send_later(
        &self,
        me: &Thread,
        (number, mtype): Message,
        due: u64,
    ) -> Result<(), Refused> {
        let bytes = number.to_ne_bytes();
        self.call(me, SEND, Deadline::Passed, |call| {
            self.0.send_later(call, mtype, &bytes, &|| due)
        })
        .map_err(refused)
    }

    /// Sends a message, in a model in which no thread changes the rights meanwhile.
    pub(super) fn send(&self, me: &Thread, message: Message, by: Deadline) -> Result<(), Refused> {
        self.try_to_send(me, message, by).map_err(refused)
    }

    /// Receives a message, in a model in which no thread changes the rights meanwhile.
    pub(super) fn receive(
        &self,
        me: &Thread,
        want: Want,
        by: Deadline,
    ) -> Result<Message, Refused> {
        self.try_to_receive(me, want, by).map_err(refused)
    }

    /// Changes the permissions and the capacity, as IPC_SET does.
    pub(super) fn change(&self, me: &Thread, mode: u32, messages: usize) -> Result<(), Refused> {
        step();
        let change = |fixed: &Fixed, held: ReceiverHeld<'_>| {
            let qbytes = (messages * LENGTH) as u64;
            fixed.rights.set_mode(held, mode);
            fixed.control.set_capacity(held, qbytes);
            Ok::<(), ()>(())
        };
        self.0.change(me, change).map(Result::unwrap)
    }

    /// Removes the queue, as IPC_RMID does.
    pub(super) fn remove(&self, me: &Thread) -> Result<(), Refused> {
        step();
        self.0.remove(me, |_| Ok::<(), ()>(())).map(Result::unwrap)
    }

    /// Removes the queue, and keeps its segment. Returns false, and changes nothing, if the segment can't be kept.
    pub(super) fn vacate(&self, me: &Thread) -> Result<bool, Refused> {
        step();
        self.0.vacate(me, |_| Ok::<(), ()>(())).map(Result::unwrap)
    }

    /// Makes the next queue of a segment that was kept, with this identifier.
    pub(super) fn revive(&self, me: &Thread, id: i32) -> Option<Queue> {
        step();
        let qbytes = self.0.segment().layout().capacity;
        let next = Successor {
            id,
            turn: 1,
            qbytes,
        };
        let generation = self.0.revive(me, |_| Some(next))?;
        let segment = self.0.segment().share_as(Tenure { generation });
        Some(Queue(Arc::new(Engine::new(segment))))
    }

    /// Sends all messages of a batch or none.
    pub(super) fn send_batch(
        &self,
        me: &Thread,
        messages: &[Message],
        by: Deadline,
    ) -> Result<(), Refused> {
        let letters = Letters(
            messages
                .iter()
                .map(|&(number, mtype)| (number.to_ne_bytes(), mtype))
                .collect(),
        );
        self.call(me, SEND, by, |call| self.0.send_batch(call, &letters))
            .map_err(refused)
    }

    /// Receives up to `most` messages in one call.
    pub(super) fn receive_batch(
        &self,
        me: &Thread,
        most: usize,
        by: Deadline,
    ) -> Result<Vec<Message>, Refused> {
        let mut basket = Basket::default();
        let count = self
            .call(me, RECEIVE, by, |call| {
                self.0.receive_batch(call, Want::Any, most, &mut basket)
            })
            .map_err(refused)?;
        assert_eq!(count, basket.messages.len());
        Ok(basket.messages)
    }

    /// Leases a message, and reads it in place.
    pub(super) fn lease(
        &self,
        me: &Thread,
        want: Want,
        by: Deadline,
    ) -> Result<(Message, LeaseHandle), Refused> {
        let handle = self
            .call(me, RECEIVE, by, |call| self.0.lease(call, want))
            .map_err(refused)?;
        let (segment, mut buffer) = (self.0.segment(), [0; LENGTH]);
        segment.copy_prefix(segment.cell(handle.slot)?, handle.len, &mut buffer)?;
        Ok(((u64::from_ne_bytes(buffer), handle.key), handle))
    }

    /// Returns whether a thread waits for a message.
    pub(super) fn waits_for_message(&self) -> bool {
        Waiters::of(self.0.segment()).len(List::Receivers) != 0
    }
}

impl Subject for Queue {
    type Message = Message;
    type Want = Want;
    type Own = Why;

    const ANY: Want = Want::Any;

    fn send_one(&self, me: &Thread, message: Message, by: Deadline) -> Result<(), Refused> {
        self.send(me, message, by)
    }

    fn receive_one(&self, me: &Thread, want: Want, by: Deadline) -> Result<Message, Refused> {
        self.receive(me, want, by)
    }

    fn let_holders_be_looked_at(&self) {
        self.fixed().leases.look_after.store(0, Ordering::Relaxed);
    }

    /// Checks an empty queue that no process uses any more: the queue works, no list has a waiter, each slot is free, and the counts are
    /// right.
    fn audit(&self) {
        // This send takes the lock, so it repairs the data of dead owners.
        let message = (u64::MAX, 1);
        self.let_holders_be_looked_at();
        self.direct(|queue, me| queue.send(me, message, Deadline::Passed).unwrap());
        assert_eq!(self.empty(), [message]);
        let (segment, words) = (self.0.segment(), self.fixed().words());
        let waiters = Waiters::of(segment);
        for list in [List::Receivers, List::Offered, List::Senders] {
            assert_eq!(waiters.len(list), 0, "{list:?}");
        }
        for (index, node) in waiters.all() {
            let word = waiters::state(node);
            assert_eq!(List::of(node), List::None, "node {index}: {word:?}");
            assert!(
                !matches!(word, Word::Waiting | Word::Settled)
                    || thread::is_dead(0, node.tid.get(), 0)
            );
        }
        assert_eq!(Order::of(segment).first(Want::Any), Ok(None));
        let counts = [words.bytes, words.held, words.held_bytes];
        assert_eq!(counts.map(|count| count.load(Ordering::Relaxed)), [0; 3]);
        assert_eq!(words.messages.load(Ordering::Relaxed), 0);
        assert!(
            Leases::of(segment)
                .all()
                .all(|(_, record)| State::of(record) == State::Free)
        );
        let account = self.direct(|queue, me| {
            let call = Call::new(me, Deadline::Passed);
            queue.0.account(&call).unwrap()
        });
        assert_eq!(account.free, account.slots, "{account:?}");
        assert!(!self.fixed().header.damage.is_noted());
    }
}

/// The messages of a batch: the bytes of each hold its number.
struct Letters(Vec<([u8; LENGTH], i64)>);

impl Batch for Letters {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn at(&self, index: usize) -> (i64, &[u8]) {
        let (bytes, mtype) = &self.0[index];
        (*mtype, bytes)
    }
}

/// The messages that a call has received.
#[derive(Default)]
struct Basket {
    room: [u8; LENGTH],
    messages: Vec<Message>,
}

impl Sink for Basket {
    fn place(&mut self, _: usize) -> Option<&mut [u8]> {
        Some(&mut self.room)
    }

    fn taken(&mut self, taken: Taken) {
        self.messages.push(message(taken, self.room));
    }
}

fn message(taken: Taken, buffer: [u8; LENGTH]) -> Message {
    assert_eq!(taken.len, LENGTH);
    (u64::from_ne_bytes(buffer), taken.mtype)
}

fn refused(failed: Failed) -> Refused {
    match failed {
        Failed::By(refused) => refused,
        Failed::Denied => panic!("nobody forbade it"),
    }
}
