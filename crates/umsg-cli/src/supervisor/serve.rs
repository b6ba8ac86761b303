//! The supervisor's own process. The leader ([`super::lead`]) receives the calls one by one. Workers wait for the calls that block.

use std::convert::Infallible;
use std::fmt::Display;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use umsg::kernel_files::limit::Limit;

use super::descriptors::Descriptors;
use super::lead::Lead;
use super::limits::Limits;
use super::listener::{Call, Listener};
use super::memory::Status;
use super::namespaces::{Namespaces, Queues};
use super::threads::Threads;
use super::waits::{Wait, Waits};
use super::watch::Pause;
use super::workers::Workers;
use super::{PROBE, Settings, filter};

pub enum Outcome {
    Value(i64),
    /// The kernel performs the call.
    Pass,
    /// The supervisor has nothing left to do: the call was answered, a worker will answer it, or the calling thread has died.
    Answered,
}

pub struct Server {
    pub listener: Listener,
    pub descriptors: Descriptors,
    threads: Threads,
    pub waits: Waits,
    pub workers: Workers,
    pub lead: Lead,
    pub pause: Pause,
    /// Set while a worker sweeps the records of closed descriptors and ended threads. Relaxed: the flag publishes no other data.
    is_sweeping: AtomicBool,
    /// The supervisor's effective user and group.
    own: (u32, u32),
    explains: bool,
    pub namespaces: Namespaces,
    pub settings: Settings,
    /// The limits that programs have open for writing.
    pub limits: Limits,
    /// A reference to this server itself, from which each worker gets its own reference.
    this: Weak<Server>,
}

/// A limit that the program has open for writing when it is started. The fields are the limit, the file in memory that represents it, and whether the
/// program can read the file.
pub type Inherited = (Limit, OwnedFd, bool);

/// Answers calls until the last program has ended. `inherited` has the limits that the program has open for writing when it is started. Returns only
/// if the start fails.
pub fn serve(
    listener: OwnedFd,
    namespaces: Namespaces,
    settings: Settings,
    inherited: Vec<Inherited>,
) -> io::Result<Infallible> {
    let own = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    let pause = Pause::new()?;
    let limits = Limits::new()?;
    // The supervisor was forked from the process that becomes the program. So it is in the program's IPC namespace.
    if let Ok(queues) = namespaces.at("/proc/thread-self/ns/ipc") {
        for (limit, file, can_read) in inherited {
            // If the limit can't be watched, the program's writes to it have no effect.
            let _ = limits.watch(&queues, limit, file.as_fd(), can_read);
        }
    }
    let server = Arc::new_cyclic(|this| Server {
        listener: Listener::new(listener),
        descriptors: Descriptors::default(),
        threads: Threads::default(),
        waits: Waits::default(),
        workers: Workers::default(),
        lead: Lead::default(),
        pause,
        is_sweeping: AtomicBool::new(false),
        own,
        explains: super::explains(),
        namespaces,
        settings,
        limits,
        this: this.clone(),
    });
    let leader = Arc::clone(&server);
    server.workers.perform(Box::new(move || leader.lead()))?;
    server.watch()
}

impl Server {
    /// Receives calls and answers them, until another thread has taken the lead.
    pub fn lead(&self) {
        loop {
            match self.listener.receive() {
                Ok(call) => {
                    let turn = self.lead.begin();
                    self.pause.end();
                    self.handle(&call);
                    if !self.lead.end(turn) {
                        return;
                    }
                }
                // `receive` fails for two reasons: a signal has ended the program's call before the supervisor received it, or the last program has
                // ended.
                Err(_) => self.end_after_the_last(),
            }
        }
    }

    /// Ends this process if the last program has ended.
    pub fn end_after_the_last(&self) {
        let mut polled = [PollFd::from_borrowed_fd(
            self.listener.as_fd(),
            PollFlags::empty(),
        )];
        let now = Timespec::default();
        if poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().contains(PollFlags::HUP) {
            self.settle_limits();
            self.namespaces.end_all();
            std::process::exit(0);
        }
    }

    /// Lets a worker remove the records of closed descriptors and ended threads, and the directories of IPC namespaces without a process.
    pub fn sweep(&self) {
        if self.is_sweeping.swap(true, Ordering::Relaxed) {
            return;
        }
        let this = self.this.clone();
        let begun = self.workers.perform(Box::new(move || {
            if let Some(server) = this.upgrade() {
                server.descriptors.sweep();
                server.threads.sweep();
                server.namespaces.sweep();
                server.is_sweeping.store(false, Ordering::Relaxed);
            }
        }));
        if begun.is_err() {
            self.is_sweeping.store(false, Ordering::Relaxed);
        }
    }

    /// Sets the limits to the values that programs have written.
    pub fn settle_limits(&self) {
        self.limits
            .settle(|limit, why| self.explain(limit.path(), why));
    }

    fn handle(&self, call: &Call) {
        self.settle_limits();
        self.threads.note_call(call.thread);
        if filter::changes_identity(call.number) {
            match filter::replaces_program(call.number) {
                true => self.threads.note_execution(call.thread),
                false => self.threads.forget(),
            }
            if filter::may_move(call) {
                self.namespaces.note_move();
            }
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
            number if filter::waits_for_descriptors(number) => {
                self.prepare_poll(call);
                Ok(Outcome::Pass)
            }
            _ => self.with_path(call),
        }
    }

    /// Answers the question of another `umsg run` (see [`PROBE`]). The answer is 1 if the caller already gets the namespace for which that command
    /// asks, otherwise 2.
    fn introduce(&self, call: &Call) -> Outcome {
        let [.., device, inode] = call.arguments;
        // If the caller's queues can't be found, the answer is 2, so that the command does not start a second supervisor.
        let queues = self.queues(call);
        let is_same = queues.is_ok_and(|queues| (device, inode) == queues.identity);
        Outcome::Value(if is_same { 1 } else { 2 })
    }

    /// Returns the queues of the caller's IPC namespace.
    pub fn queues(&self, call: &Call) -> Result<Arc<Queues>, i32> {
        match self.threads.known(call.thread) {
            (_, Some(queues)) => Ok(queues),
            _ => self.present_queues(call),
        }
    }

    #[cold]
    fn present_queues(&self, call: &Call) -> Result<Arc<Queues>, i32> {
        let before = self.threads.before(call.thread);
        let queues = self
            .namespaces
            .at(&format!("/proc/{}/ns/ipc", call.thread))
            .map_err(|error| {
                self.explain("a call on queues", &error);
                error.errno()
            })?;
        self.threads
            .note_queues(before, &queues, || self.listener.waits(call));
        Ok(queues)
    }

    /// Returns the caller's process id, checked as in [`status_like_own`](Self::status_like_own), and the queues of its IPC namespace.
    pub fn caller(&self, call: &Call) -> Result<(u32, Arc<Queues>), i32> {
        let (status, queues) = self.threads.known(call.thread);
        let status = status.or_else(|| self.present_status(call));
        let process = self.check_user(status)?.process.cast_unsigned();
        let queues = match queues {
            Some(queues) => queues,
            None => self.present_queues(call)?,
        };
        Ok((process, queues))
    }

    /// Returns the status of the caller's process as [`status_like_own`](Self::status_like_own) does, but always reads it anew, with the present
    /// umask.
    pub fn status_of_opener(&self, call: &Call) -> Result<Status, i32> {
        // A process can change its umask without a call to the supervisor. Only calls that create a queue need the umask, so only they read the
        // status anew.
        self.check_user(self.present_status(call))
    }

    /// Returns the status of the caller's process. Fails with EACCES if the process has another user than the supervisor, because the supervisor
    /// can't check permissions for another user.
    pub fn status_like_own(&self, call: &Call) -> Result<Status, i32> {
        let (kept, _) = self.threads.known(call.thread);
        self.check_user(kept.or_else(|| self.present_status(call)))
    }

    fn present_status(&self, call: &Call) -> Option<Status> {
        let waits = || self.listener.waits(call);
        self.threads.present_status(call.thread, waits)
    }

    fn check_user(&self, status: Option<Status>) -> Result<Status, i32> {
        let status = status.ok_or(libc::EACCES)?;
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

    /// Starts a worker that performs the wait of a blocking call.
    pub fn wait(
        &self,
        call: &Call,
        work: impl FnOnce(&Server, &Wait) + Send + 'static,
    ) -> Result<(), i32> {
        let (this, call) = (self.this.clone(), *call);
        let work = move || {
            if let Some(server) = this.upgrade() {
                server.waits.perform(&call, |wait| {
                    server.pause.end();
                    work(&server, wait);
                });
            }
        };
        self.workers
            .perform(Box::new(work))
            .map_err(|_| libc::ENOMEM)
    }

    /// Prints the reason why a call failed, in the form of the drop-in.
    pub fn explain(&self, call: &str, why: &dyn Display) {
        if self.explains {
            // The write ignores errors: the reader of the program's standard error may have ended. `eprintln` would panic then, and end the
            // supervisor.
            let _ = writeln!(std::io::stderr(), "umsg: {call}: {why}");
        }
    }
}
