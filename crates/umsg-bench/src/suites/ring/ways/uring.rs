//! io_uring's messages between rings, IORING_OP_MSG_RING.

use std::os::fd::AsRawFd as _;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use io_uring::{IoUring, opcode, squeue, types};

use super::{BATCH, ENTRIES, Receiver, Sender, Way};
use crate::failure::Failure;
use crate::shared::SharedWords;

/// IORING_ENTER_GETEVENTS of linux/io_uring.h.
const GET_EVENTS: u32 = 1;

/// The word of [`Uring::flow`] that counts posted messages. The word has its own cache line.
const POSTED: usize = 0;
/// The word of [`Uring::flow`] that counts received messages. The word has its own cache line.
const TAKEN: usize = 16;

/// The receiver's ring. The ring is created disabled, because the thread that enables a ring must be the thread that waits on it.
pub struct Uring {
    ring: Mutex<Option<IoUring>>,
    target: i32,
    defer: bool,
    polling: bool,
    /// The counts by which senders wait for a slow receiver, as programs do. Without the counts, the kernel would keep any number of messages.
    flow: Arc<SharedWords>,
}

impl Uring {
    /// Makes the receiver's ring. With `defer`, both ends have IORING_SETUP_DEFER_TASKRUN.
    pub fn new(defer: bool, polling: bool) -> Result<Self, Failure> {
        let mut builder = IoUring::builder();
        builder.setup_r_disabled().setup_cqsize(4 * ENTRIES as u32);
        if defer {
            builder.setup_single_issuer().setup_defer_taskrun();
        }
        let ring = builder.build(8).map_err(failure)?;
        Ok(Self {
            target: ring.as_raw_fd(),
            ring: Mutex::new(Some(ring)),
            defer,
            polling,
            flow: Arc::new(SharedWords::new(TAKEN + 16)?),
        })
    }
}

impl Way for Uring {
    type Sender = Posting;
    type Receiver = Taking;

    fn sender(&self) -> Result<Posting, Failure> {
        let mut builder = IoUring::builder();
        if self.defer {
            builder.setup_single_issuer().setup_defer_taskrun();
        }
        Ok(Posting {
            ring: builder.build(2 * BATCH as u32).map_err(failure)?,
            target: types::Fd(self.target),
            flow: Arc::clone(&self.flow),
        })
    }

    fn receiver(&self) -> Result<Taking, Failure> {
        let mut ring = self.ring.lock().map_err(failure)?;
        let Some(ring) = ring.take() else {
            return Err(Failure::new("the ring has a receiver"));
        };
        ring.submitter().register_enable_rings().map_err(failure)?;
        Ok(Taking {
            ring,
            defer: self.defer,
            polling: self.polling,
            flow: Arc::clone(&self.flow),
        })
    }
}

pub struct Posting {
    ring: IoUring,
    target: types::Fd,
    flow: Arc<SharedWords>,
}

impl Sender for Posting {
    fn post_many(&mut self, value: u64, count: usize) -> Result<(), Failure> {
        // With SKIP_SUCCESS, only a failed post completes on the sender's own ring.
        let entry = opcode::MsgRingData::new(self.target, 0, value, None)
            .build()
            .flags(squeue::Flags::SKIP_SUCCESS);
        let mut queue = self.ring.submission();
        for _ in 0..count {
            // SAFETY: the entry has no pointer to memory.
            unsafe { queue.push(&entry) }.map_err(failure)?;
        }
        drop(queue);
        // Relaxed: both words are only counts.
        let posted = self.flow.word(POSTED);
        let posted = posted.fetch_add(count as u64, Ordering::Relaxed) + count as u64;
        while posted.saturating_sub(self.flow.get(TAKEN)) > ENTRIES as u64 {
            std::thread::yield_now();
        }
        self.ring.submit().map_err(failure)?;
        match self.ring.completion().next() {
            None => Ok(()),
            Some(refused) => Err(failure(std::io::Error::from_raw_os_error(
                -refused.result(),
            ))),
        }
    }
}

pub struct Taking {
    ring: IoUring,
    defer: bool,
    polling: bool,
    flow: Arc<SharedWords>,
}

impl Taking {
    /// With DEFER_TASKRUN, messages arrive only during calls of the receiver.
    fn poll(&mut self, count: usize) -> Result<(), Failure> {
        while self.ring.completion().len() < count {
            if self.defer {
                // SAFETY: the call has no argument in memory.
                unsafe { self.ring.submitter().enter::<()>(0, 0, GET_EVENTS, None) }
                    .map_err(failure)?;
            }
            std::hint::spin_loop();
        }
        Ok(())
    }

    fn count(&self, taken: u64) {
        // Plain addition: only the receiver writes this word.
        self.flow.set(TAKEN, self.flow.get(TAKEN) + taken);
    }
}

impl Receiver for Taking {
    fn wait(&mut self, count: usize) -> Result<(), Failure> {
        if self.polling {
            return self.poll(count);
        }
        while self.ring.completion().len() < count {
            self.ring.submit_and_wait(count).map_err(failure)?;
        }
        Ok(())
    }

    fn drain(&mut self, mut visit: impl FnMut(u64)) -> Result<(), Failure> {
        let mut taken = 0;
        for message in self.ring.completion() {
            visit(message.user_data());
            taken += 1;
        }
        self.count(taken);
        Ok(())
    }

    fn next(&mut self) -> Result<u64, Failure> {
        loop {
            let next = self.ring.completion().next();
            if let Some(message) = next {
                self.count(1);
                return Ok(message.user_data());
            }
            self.wait(1)?;
        }
    }
}

#[cold]
fn failure(error: impl std::fmt::Display) -> Failure {
    Failure::new(format!("io_uring: {error}"))
}
