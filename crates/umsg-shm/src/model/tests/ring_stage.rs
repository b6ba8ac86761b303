//! A ring: a queue with one receiver, which waits on its wake word.

use super::stage::{DIRECTOR, Message, Queue};
use super::subject::Subject;
use crate::model::crash::step;
use crate::model::futex;
use crate::model::segment::Segment;
use crate::model::thread::{self, Thread};
use crate::posix_engine::batch::Batch;
use crate::posix_engine::{ENABLED, Engine, Notifier, Refused};
use crate::sync::{AtomicU32, Futex as _, Ordering};
use crate::sys::clock::Deadline;
use loom::thread::JoinHandle;
use std::sync::Arc;

/// The id of the thread that receives, which is a separate process.
pub(super) const OWNER: u32 = 7;

/// A ring that threads share.
#[derive(Clone)]
pub(super) struct Ring {
    pub(super) queue: Queue,
    /// 1 while the receiver's descriptor is readable. A process that polls the descriptor sleeps on this word.
    descriptor: Arc<AtomicU32>,
}

impl Ring {
    /// Creates a ring that [`OWNER`] owns. For the numbers, see [`Segment::new`].
    pub(super) fn new(max_messages: usize, slots: usize) -> Ring {
        let descriptor = Arc::new(AtomicU32::new(0));
        let pulled = Arc::clone(&descriptor);
        let mut engine = Engine::new(Segment::new(max_messages, slots));
        engine.set_notifier(Notifier::new(move || {
            make_readable(&pulled);
            true
        }));
        let ownership = &engine.segment().fixed().ownership;
        ownership.begin(0, ENABLED);
        ownership.name_owner(OWNER, OWNER.into());
        Ring {
            queue: Queue::of(engine),
            descriptor,
        }
    }

    pub(super) fn engine(&self) -> &Engine {
        self.queue.engine()
    }

    /// Waits until `count` messages can be received.
    pub(super) fn wait(&self, me: &Thread, count: u64, by: Deadline) -> Result<(), Refused> {
        step();
        let calm = me.interruptions.calm();
        self.engine().wait_for_messages(me, count, calm, by)
    }

    /// Receives the next message, and waits for one until the deadline.
    pub(super) fn receive(&self, me: &Thread, by: Deadline) -> Result<u64, Refused> {
        loop {
            match self.take(me) {
                Err(Refused::NotNow) => self.wait(me, 1, by)?,
                other => return other,
            }
        }
    }

    /// Receives the next message, if there is one.
    pub(super) fn take(&self, me: &Thread) -> Result<u64, Refused> {
        step();
        let mut buffer = [0; 8];
        let result = self.engine().try_receive(me, &mut buffer, Deadline::Passed);
        result.map(|_| u64::from_ne_bytes(buffer))
    }

    /// Receives the next message, and polls the descriptor until there is one.
    pub(super) fn receive_polled(&self, me: &Thread) -> Result<u64, Refused> {
        loop {
            match self.take(me) {
                Err(Refused::NotNow) => {}
                other => return other,
            }
            // After this store, the descriptor shows an empty ring, unless a message has come.
            self.descriptor.swap(0, Ordering::AcqRel);
            if !self.engine().arm_for_polling(me) {
                make_readable(&self.descriptor);
            }
            while self.descriptor.load(Ordering::Acquire) == 0 {
                futex::wait(&*self.descriptor, 0, Deadline::Never);
            }
        }
    }

    pub(super) fn send(&self, me: &Thread, number: u64, by: Deadline) -> Result<(), Refused> {
        match by {
            Deadline::Passed => {
                step();
                let bytes = number.to_ne_bytes();
                self.engine().try_send(me, &bytes, 0, by)
            }
            _ => self.queue.send(me, (number, 0), by),
        }
    }

    pub(super) fn send_batch(
        &self,
        me: &Thread,
        numbers: &[u64],
        by: Deadline,
    ) -> Result<(), Refused> {
        step();
        let letters = numbers.iter().map(|number| number.to_ne_bytes()).collect();
        self.engine().send_batch(me, &Letters(letters), by)
    }

    /// Returns how often the wake word was armed. A wait with one wake-up arms the word once before the wake-up, and once after it.
    pub(super) fn turns(&self) -> u32 {
        self.engine().turns()
    }

    /// Begins the thread that receives.
    pub(super) fn own<T: 'static>(
        &self,
        life: impl FnOnce(&Ring, &Thread) -> T + 'static,
    ) -> JoinHandle<Option<T>> {
        self.spawn(OWNER, life)
    }

    /// Begins a thread that uses the ring.
    pub(super) fn spawn<T: 'static>(
        &self,
        tid: u32,
        life: impl FnOnce(&Ring, &Thread) -> T + 'static,
    ) -> JoinHandle<Option<T>> {
        let ring = self.clone();
        thread::spawn(tid, move |me| life(&ring, me))
    }

    /// Runs `work` as the director.
    pub(super) fn direct<T>(&self, work: impl FnOnce(&Ring, &Thread) -> T) -> T {
        thread::live(DIRECTOR, |me| work(self, me)).expect("nobody killed the director")
    }

    /// Returns the numbers of the messages that remain. Then checks the account of the slots.
    pub(super) fn close_account(&self) -> Vec<u64> {
        let left: Vec<Message> = self.queue.empty();
        self.queue.audit();
        left.iter().map(|message| message.0).collect()
    }
}

fn make_readable(descriptor: &AtomicU32) {
    // A socket makes its descriptor readable under its lock, which this access models.
    descriptor.fetch_or(1, Ordering::AcqRel);
    futex::wake_unless_dead(descriptor.named(), 1);
}

/// A batch of messages: the bytes of each hold its number.
struct Letters(Vec<[u8; 8]>);

impl Batch for Letters {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn message(&self, index: usize) -> (&[u8], usize) {
        (&self.0[index], 0)
    }
}
