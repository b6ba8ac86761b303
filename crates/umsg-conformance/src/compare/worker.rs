//! A process of one side, which executes orders and reports the results.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};

use super::Comparable;
use super::operation::{Operation, Step, WORKERS};
use super::reply::{Outcome, Reply, plain, returned};
use crate::backend::{Basics, Failure};
use crate::sys::{self, Forked};

/// The descriptor of the first worker's socket. The sockets of the other workers have the next numbers. Histories open only lower numbers, so both
/// sides have equal numbers.
pub const FIRST_SOCKET: RawFd = 200;

/// The byte that fills a receive buffer before the call. So the answer shows whether the call wrote beyond the message.
pub const UNTOUCHED: u8 = 0xa5;

/// The data that all workers of a side share.
pub struct Shared<'a, F: Comparable> {
    /// The backend that the workers call.
    pub backend: &'a F::Backend,
    /// The names of the side's queues. Calls contain the index of a name.
    pub names: &'a F::Names,
    /// The steps of the history.
    pub steps: &'a [Step<F::Call>],
    /// For each worker, the number of the last step that the worker has begun, counted from 1. The words that the family of calls needs follow.
    pub words: &'static [AtomicU32],
}

impl<F: Comparable> Shared<'_, F> {
    /// Returns the words that the family of calls needs.
    pub fn own_words(&self) -> &'static [AtomicU32] {
        &self.words[WORKERS..]
    }
}

/// The part of a worker that makes the calls of a family, with the state that is kept from call to call.
pub trait Hand<C> {
    /// Records that this process begins. It is the first process or a forked one.
    fn begin(&mut self) {}

    /// Records that this process is about to fork.
    fn fork(&mut self) {}

    /// Makes the call of a step.
    fn call(&mut self, number: u32, call: C) -> Reply;
}

/// A process that executes the steps of a history.
pub struct Worker<'a, F: Comparable> {
    shared: &'a Shared<'a, F>,
    number: usize,
    hand: F::Hand<'a>,
}

extern "C" fn nothing(_: i32) {}

impl<'a, F: Comparable> Worker<'a, F> {
    /// Creates the first worker of a side. The caller has forked a process for it.
    pub fn first(shared: &'a Shared<'a, F>) -> Worker<'a, F> {
        sys::umask(0o022);
        sys::set_disposition(libc::SIGCHLD, libc::SIG_IGN);
        let _ = shared.backend.handle_signal(libc::SIGUSR1, nothing, 0);
        let _ = shared
            .backend
            .handle_signal(libc::SIGUSR2, nothing, libc::SA_RESTART);
        let mut hand = F::hand(shared);
        hand.begin();
        Worker {
            shared,
            number: 0,
            hand,
        }
    }

    /// Executes orders until it is killed or ordered to exit.
    pub fn serve(mut self) -> ! {
        loop {
            let mut command = [0; 4];
            match sys::read_record(self.socket(), &mut command) {
                Ok(4) => {}
                _ => sys::leave(0),
            }
            let number = u32::from_le_bytes(command);
            self.shared.words[self.number].store(number + 1, Ordering::Release);
            let operation = self.shared.steps[number as usize].operation;
            if let Some(reply) = self.perform(number, operation) {
                self.answer(&reply);
            }
            if operation == Operation::Exit {
                sys::leave(0);
            }
        }
    }

    fn socket(&self) -> RawFd {
        FIRST_SOCKET + self.number as RawFd
    }

    fn answer(&self, reply: &Reply) {
        if sys::write_record(self.socket(), &reply.encode()).is_err() {
            sys::leave(1);
        }
    }

    /// Performs an operation, and returns the reply. In a child that has just begun, the result is `None`, because the child has already answered.
    fn perform(&mut self, number: u32, operation: Operation<F::Call>) -> Option<Reply> {
        use Operation::*;
        Some(match operation {
            Call(call) => self.hand.call(number, call),
            Umask { mask } => returned(i64::from(sys::umask(mask))),
            Nice { nice } => plain(sys::set_nice(nice).map_err(Failure::from)),
            Fork { child, user } => return self.fork(child, user),
            Exit => returned(0),
            Kill | Interrupt | Disturb | StopAndContinue => {
                unreachable!("done to a worker, not by it")
            }
        })
    }

    /// Forks. The parent answers with the child's process id. The child reports on its own socket that it is ready.
    fn fork(&mut self, child: usize, user: Option<sys::User>) -> Option<Reply> {
        assert!(child < WORKERS);
        self.hand.fork();
        match sys::fork() {
            Err(errno) => Some(Reply::new(Outcome::Failed(errno))),
            Ok(Forked::Parent(pid)) => Some(Reply {
                child: pid,
                ..returned(0)
            }),
            Ok(Forked::Child) => {
                self.number = child;
                self.hand.begin();
                let became = user.map_or(Ok(()), |user| self.shared.backend.assume(user));
                self.answer(&plain(became.map_err(Failure::from)));
                None
            }
        }
    }
}

/// Returns the bytes of the message that step `number` sends. If the messages have at least 4 bytes, two steps send different messages.
pub fn payload(number: u32, length: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..length)
        .map(|at| (number as usize * 131 + at * 7 + at / 250) as u8)
        .collect();
    let mark = number.to_le_bytes();
    let marked = length.min(mark.len());
    bytes[..marked].copy_from_slice(&mark[..marked]);
    bytes
}
