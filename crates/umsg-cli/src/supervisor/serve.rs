//! The supervisor's own process: takes the calls one by one, and has workers wait for those that block.

use std::collections::HashMap;
use std::fmt::Display;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use libc::pid_t;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::descriptors::Descriptors;
use super::listener::{Call, Listener};
use super::memory::{self, Signal, Status};
use super::workers::Workers;
use super::{PROBE, filter};

/// The interval at which the supervisor looks for descriptors that programs have closed.
const SWEEP: Duration = Duration::from_secs(1);

pub enum Outcome {
    Value(i64),
    /// The kernel performs the call.
    Pass,
    /// Nothing is left to do: the call was answered, a worker answers it, or the thread is gone.
    Answered,
}

/// The first and the longest time that a worker waits before it looks for a signal.
const FIRST_SLICE: Duration = Duration::from_millis(1);
const LONGEST_SLICE: Duration = Duration::from_millis(10);

/// ERESTARTSYS: the kernel begins the call again, or ends it with EINTR if the signal's handler has no SA_RESTART. The kernel never shows this
/// number to a thread that has a signal.
const BEGIN_AGAIN: i32 = 512;

/// A call that blocks, and is tried again in slices.
pub struct Wait {
    pub call: Call,
    /// The time until the worker next looks for a signal.
    pub slice: Duration,
    /// True if the last look for a signal found one that another thread may take.
    is_doubtful: bool,
}

impl Wait {
    /// Looks for a signal after a slice without success. Returns the errno with which the signal ends the call; None if no signal ends the call.
    pub fn interruption(&mut self) -> Option<i32> {
        self.slice = (self.slice * 2).min(LONGEST_SLICE);
        let is_system_v = [libc::SYS_msgsnd, libc::SYS_msgrcv].contains(&self.call.number);
        let was_doubtful = self.is_doubtful;
        let signal = memory::signal(self.call.thread);
        self.is_doubtful = signal == Signal::OfProcess;
        match signal {
            Signal::None => None,
            // Calls on System V queues never begin again.
            Signal::OfThread if is_system_v => Some(libc::EINTR),
            Signal::OfThread => Some(BEGIN_AGAIN),
            // If another thread of the process runs, it takes the signal at once. If the signal is still pending at the next look, this thread
            // probably has to take it.
            Signal::OfProcess => was_doubtful.then_some(libc::EINTR),
        }
    }
}

/// A thread of a supervised program.
#[derive(Default)]
struct Thread {
    /// The status of the thread's process. None after a call that may have changed the status.
    status: Option<Status>,
}

#[derive(Default)]
pub struct State {
    pub descriptors: Descriptors,
    threads: HashMap<pid_t, Thread>,
}

pub struct Server {
    pub listener: Listener,
    state: Mutex<State>,
    workers: Workers,
    /// The supervisor's effective user and group.
    own: (u32, u32),
    explains: bool,
    /// The device and the inode of the namespace's directory.
    namespace: (u64, u64),
    /// A reference to this server itself, from which each worker gets its own.
    this: std::sync::Weak<Server>,
}

/// Answers calls until the last program has ended.
pub fn serve(listener: OwnedFd, namespace: (u64, u64)) -> ! {
    let own = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    let server = Arc::new_cyclic(|this| Server {
        listener: Listener::new(listener),
        state: Mutex::default(),
        workers: Workers::default(),
        own,
        explains: super::explains(),
        namespace,
        this: this.clone(),
    });
    let watched = Arc::clone(&server);
    std::thread::spawn(move || watched.watch());
    loop {
        match server.listener.receive() {
            Ok(call) => server.handle(&call),
            // A signal has interrupted a call before the supervisor took it; or the last program has ended.
            Err(_) => server.end_after_the_last(Duration::ZERO),
        }
    }
}

impl Server {
    /// Ends this process after the last program, and gives up closed descriptors.
    fn watch(&self) -> ! {
        loop {
            self.end_after_the_last(SWEEP);
            let mut state = self.state();
            state.descriptors.sweep();
            state.threads.retain(|thread, _| memory::lives(*thread));
        }
    }

    /// Ends this process if the last program has ended, or ends within this time.
    fn end_after_the_last(&self, time: Duration) {
        let time = Timespec {
            tv_sec: time.as_secs().cast_signed(),
            tv_nsec: 0,
        };
        let listener = self.listener.as_fd();
        let mut polled = [PollFd::from_borrowed_fd(listener, PollFlags::empty())];
        if poll(&mut polled, Some(&time)).is_ok() && polled[0].revents().contains(PollFlags::HUP) {
            std::process::exit(0);
        }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(&self, call: &Call) {
        if filter::changes_identity(call.number) {
            // The status of all threads is forgotten, not only the caller's: after execve(2), a thread has the number of its process's first thread.
            let mut state = self.state();
            state
                .threads
                .values_mut()
                .for_each(|thread| thread.status = None);
            drop(state);
            self.listener.pass(call);
            return;
        }
        match self.perform(call) {
            Ok(Outcome::Value(value)) => drop(self.listener.answer(call, Ok(value))),
            Err(errno) => drop(self.listener.answer(call, Err(errno))),
            Ok(Outcome::Pass) => self.listener.pass(call),
            Ok(Outcome::Answered) => {}
        }
    }

    fn perform(&self, call: &Call) -> Result<Outcome, i32> {
        match call.number {
            libc::SYS_mq_open => self.mq_open(call),
            libc::SYS_mq_unlink => self.mq_unlink(call),
            libc::SYS_mq_timedsend => self.mq_timedsend(call),
            libc::SYS_mq_timedreceive => self.mq_timedreceive(call),
            libc::SYS_mq_notify => self.mq_notify(call),
            libc::SYS_mq_getsetattr if call.arguments[3] == PROBE => Ok(self.introduce(call)),
            libc::SYS_mq_getsetattr => self.mq_getsetattr(call),
            libc::SYS_msgget => self.msgget(call),
            libc::SYS_msgsnd => self.msgsnd(call),
            libc::SYS_msgrcv => self.msgrcv(call),
            libc::SYS_msgctl => self.msgctl(call),
            _ => {
                self.prepare_poll(call);
                Ok(Outcome::Pass)
            }
        }
    }

    /// Answers another `umsg run`, by 1 if that command asks for this namespace.
    fn introduce(&self, call: &Call) -> Outcome {
        let [.., device, inode] = call.arguments;
        Outcome::Value(if (device, inode) == self.namespace {
            1
        } else {
            2
        })
    }

    /// Returns the state of the caller's process. Fails with EACCES if its user is not the supervisor's: the supervisor can't check permissions
    /// for it.
    pub fn status_like_own(&self, call: &Call) -> Result<Status, i32> {
        let mut state = self.state();
        let thread = state.threads.entry(call.thread).or_default();
        // The umask changes without notice, and counts for mq_open alone.
        let kept = thread.status.filter(|_| call.number != libc::SYS_mq_open);
        let status = kept.or_else(|| memory::status(call.thread));
        let status = status.ok_or(libc::EACCES)?;
        thread.status = Some(status);
        if (status.user, status.group) != self.own {
            self.explain(
                "a call on queues",
                &format_args!(
                    "process {} has another user or group than its supervisor",
                    status.process
                ),
            );
            return Err(libc::EACCES);
        }
        Ok(status)
    }

    /// Has a worker wait for a call.
    pub fn wait(
        &self,
        call: &Call,
        work: impl FnOnce(&Server, Wait) + Send + 'static,
    ) -> Result<(), i32> {
        let wait = Wait {
            call: *call,
            slice: FIRST_SLICE,
            is_doubtful: false,
        };
        let this = self.this.clone();
        let work = move || {
            if let Some(server) = this.upgrade() {
                work(&server, wait);
            }
        };
        self.workers
            .perform(Box::new(work))
            .map_err(|_| libc::ENOMEM)
    }

    /// Prints why a call failed, as the drop-in does.
    pub fn explain(&self, call: &str, why: &dyn Display) {
        if self.explains {
            // The reader of the program's standard error may have ended. eprintln would panic then, and end the supervisor.
            let _ = writeln!(std::io::stderr(), "umsg: {call}: {why}");
        }
    }
}
