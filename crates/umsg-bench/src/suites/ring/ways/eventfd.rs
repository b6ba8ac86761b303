//! A ring as programs build it without umsg: a queue that a mutex protects, and an eventfd to wake the receiver.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::{Arc, Condvar, Mutex};

use super::{ENTRIES, PAYLOAD, Receiver, Sender, Way};
use crate::failure::Failure;

type Message = (u64, u64, [u8; PAYLOAD]);

/// A ring between threads.
pub struct Eventfd(Arc<Shared>);

struct Shared {
    queue: Mutex<VecDeque<Message>>,
    room: Condvar,
    bell: OwnedFd,
}

impl Eventfd {
    pub fn new() -> Result<Self, Failure> {
        // SAFETY: the call takes a number and flags.
        let bell = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if bell < 0 {
            return Err(Failure::system("eventfd"));
        }
        Ok(Self(Arc::new(Shared {
            queue: Mutex::new(VecDeque::with_capacity(ENTRIES)),
            room: Condvar::new(),
            // SAFETY: the call has just opened the descriptor, and no other value owns it.
            bell: unsafe { OwnedFd::from_raw_fd(bell) },
        })))
    }
}

impl Way for Eventfd {
    type Sender = Posting;
    type Receiver = Taking;

    fn sender(&self) -> Result<Posting, Failure> {
        Ok(Posting(Arc::clone(&self.0)))
    }

    fn receiver(&self) -> Result<Taking, Failure> {
        Ok(Taking {
            shared: Arc::clone(&self.0),
            taken: VecDeque::with_capacity(ENTRIES),
        })
    }
}

pub struct Posting(Arc<Shared>);

impl Sender for Posting {
    fn post_many(&mut self, value: u64, count: usize) -> Result<(), Failure> {
        let queue = self.0.queue.lock().map_err(failure)?;
        let full = |queue: &mut VecDeque<Message>| queue.len() + count > ENTRIES;
        let mut queue = self.0.room.wait_while(queue, full).map_err(failure)?;
        let was_empty = queue.is_empty();
        queue.extend(std::iter::repeat_n((value, 0, [7; PAYLOAD]), count));
        drop(queue);
        if was_empty {
            let one = 1_u64;
            // SAFETY: the call reads the eight bytes of a number.
            unsafe { libc::write(self.0.bell.as_raw_fd(), (&raw const one).cast(), 8) };
        }
        Ok(())
    }
}

pub struct Taking {
    shared: Arc<Shared>,
    taken: VecDeque<Message>,
}

impl Receiver for Taking {
    fn wait(&mut self, _count: usize) -> Result<(), Failure> {
        while self.taken.is_empty() {
            let mut count = 0_u64;
            // SAFETY: the call uses the eight bytes of a local number.
            unsafe { libc::read(self.shared.bell.as_raw_fd(), (&raw mut count).cast(), 8) };
            let mut queue = self.shared.queue.lock().map_err(failure)?;
            std::mem::swap(&mut *queue, &mut self.taken);
            drop(queue);
            self.shared.room.notify_all();
        }
        Ok(())
    }

    fn drain(&mut self, mut visit: impl FnMut(u64)) -> Result<(), Failure> {
        self.taken.drain(..).for_each(|message| visit(message.0));
        Ok(())
    }

    fn next(&mut self) -> Result<u64, Failure> {
        self.wait(1)?;
        let next = self.taken.pop_front();
        next.map_or_else(|| Err(failure("empty")), |message| Ok(message.0))
    }
}

#[cold]
fn failure(error: impl std::fmt::Display) -> Failure {
    Failure::new(format!("eventfd and queue: {error}"))
}
