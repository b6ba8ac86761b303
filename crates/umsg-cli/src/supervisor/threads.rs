//! The supervisor's records of the threads of the supervised programs: the users of their processes, and their IPC namespaces.
//!
//! After a thread has died, its thread id may be given to another thread. So each record has a descriptor of the thread, which tells whether the
//! thread still lives.
//!
//! A thread that executes a program takes over the thread id of its process's first thread. A descriptor of the first thread then refers to the
//! executing thread. Until the takeover, the first thread may make further calls. Its user and its queues may differ from those of the new program.
//! So the supervisor records nothing about a first thread
//!
//! - while another thread executes a program and still has its own thread id, and
//! - if the first thread no longer waits for the answer after the read: the execution has ended that thread.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libc::pid_t;

use super::memory::{self, Status};
use super::namespaces::Queues;

struct Known {
    life: OwnedFd,
    /// The status of the thread's process. None after a call that may have changed it.
    status: Option<Status>,
    /// The queues of the thread's IPC namespace. None after a call that may have changed the namespace.
    queues: Option<Arc<Queues>>,
}

#[derive(Default)]
struct All {
    known: HashMap<pid_t, Known>,
    executions: Vec<Execution>,
    /// The number of calls so far that may have changed the user or the IPC namespace of a thread.
    changes: u64,
}

/// The state of the records before the supervisor reads about a thread in /proc. After the read, this state decides whether the result may be
/// recorded. The thread waits for the answer to a call.
#[derive(Clone, Copy)]
pub struct Before {
    thread: pid_t,
    /// True if an execution by another thread is about to end this thread.
    may_end: bool,
    changes: u64,
}

/// The execution of a program by a thread that is not the first one of its process.
struct Execution {
    process: pid_t,
    thread: pid_t,
}

impl Execution {
    /// Returns whether the thread still has its own thread id. Then the execution has not ended yet, or has failed.
    fn is_pending(&self) -> bool {
        memory::has_thread(self.process, self.thread)
    }
}

impl Before {
    /// Returns whether the supervisor may record the result of a read that it began in this state.
    fn holds(self, all: &All) -> bool {
        !self.may_end && self.changes == all.changes
    }
}

impl All {
    /// Returns whether a thread is the first thread of a process in which another thread executes a program.
    fn is_about_to_end(&mut self, thread: pid_t) -> bool {
        self.executions.retain(Execution::is_pending);
        self.executions
            .iter()
            .any(|execution| execution.process == thread)
    }
}

#[derive(Default)]
pub struct Threads {
    all: Mutex<All>,
    /// True if `executions` may have entries. Relaxed: each execution is recorded before the kernel performs it.
    has_executions: AtomicBool,
}

impl Threads {
    /// Returns what is recorded about a living thread.
    pub fn known(&self, thread: pid_t) -> (Option<Status>, Option<Arc<Queues>>) {
        let all = self.all();
        let known = all
            .known
            .get(&thread)
            .filter(|known| memory::lives(&known.life));
        known.map_or((None, None), |known| (known.status, known.queues.clone()))
    }

    /// Begins a read about a thread that waits for the answer to a call.
    pub fn before(&self, thread: pid_t) -> Before {
        let mut all = self.all();
        Before {
            thread,
            may_end: all.is_about_to_end(thread),
            changes: all.changes,
        }
    }

    /// Records the queues of a thread, which were read after `before`. `waits` returns whether the thread still waits for the answer.
    pub fn note_queues(&self, before: Before, queues: &Arc<Queues>, waits: impl Fn() -> bool) {
        let mut all = self.all();
        if !before.holds(&all) || !waits() {
            return;
        }
        let known = all.known.get_mut(&before.thread);
        if let Some(known) = known.filter(|known| memory::lives(&known.life)) {
            known.queues = Some(Arc::clone(queues));
        }
    }

    /// Reads the status of a thread's process. `waits` returns whether the thread still waits for the answer to its call.
    pub fn present_status(&self, thread: pid_t, waits: impl Fn() -> bool) -> Option<Status> {
        let before = self.before(thread);
        // The descriptor is opened before the status is read. If another thread gets the thread id in between, the descriptor shows that its thread
        // is dead.
        let life = memory::open_thread(thread);
        let status = memory::status(thread)?;
        // Linux before 6.9 can't open a thread that is not the first of its process. The status of such a thread is not recorded, because no
        // descriptor could verify it later.
        if let Ok(life) = life {
            let mut all = self.all();
            let is_present = before.holds(&all) && waits();
            let earlier = all.known.remove(&thread);
            let earlier = earlier.filter(|known| memory::lives(&known.life));
            let queues = earlier.and_then(|known| known.queues);
            let known = Known {
                life,
                status: is_present.then_some(status),
                queues,
            };
            all.known.insert(thread, known);
        }
        Some(status)
    }

    /// Records that a thread makes a call. If the thread was about to execute a program, the execution has failed.
    pub fn note_call(&self, thread: pid_t) {
        if self.has_executions.load(Ordering::Relaxed) {
            let mut all = self.all();
            all.executions.retain(|other| other.thread != thread);
            self.note_executions(&all);
        }
    }

    fn note_executions(&self, all: &All) {
        let has_any = !all.executions.is_empty();
        self.has_executions.store(has_any, Ordering::Relaxed);
    }

    /// Clears the recorded users and queues of all threads, because a call may change the user or the IPC namespace of a thread.
    pub fn forget(&self) {
        let mut all = self.all();
        all.changes += 1;
        for known in all.known.values_mut() {
            (known.status, known.queues) = (None, None);
        }
    }

    /// Records that a thread is about to execute a program.
    pub fn note_execution(&self, thread: pid_t) {
        // Without PIDFD_THREAD, the kernel opens only first threads. So an error means that the thread is not the first one of its process.
        let process = match memory::open_process(thread) {
            Ok(_) => None,
            Err(_) => memory::status(thread).map(|status| status.process),
        };
        if let Some(process) = process {
            let mut all = self.all();
            all.executions.retain(|other| other.thread != thread);
            all.executions.push(Execution { process, thread });
            self.note_executions(&all);
        }
        self.forget();
    }

    /// Removes the records of dead threads.
    pub fn sweep(&self) {
        let mut all = self.all();
        all.known.retain(|_, known| memory::lives(&known.life));
        all.executions.retain(Execution::is_pending);
        self.note_executions(&all);
    }

    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_status_is_not_that_of_an_earlier_thread_with_the_number() {
        let threads = Threads::default();
        let me = rustix::thread::gettid().as_raw_nonzero().get();
        let status = || {
            let (kept, _) = threads.known(me);
            kept.or_else(|| threads.present_status(me, || true))
                .unwrap()
        };
        let own = status();
        let kept = |user| {
            threads.all().known.get_mut(&me).unwrap().status = Some(Status { user, ..own });
            status().user
        };
        assert_eq!(
            kept(own.user + 1),
            own.user + 1,
            "kept while the thread lives"
        );
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let dead = memory::open_thread(child.id().cast_signed()).unwrap();
        child.wait().unwrap();
        threads.all().known.get_mut(&me).unwrap().life = dead;
        assert_eq!(kept(own.user + 2), own.user);
        threads.sweep();
        assert!(threads.all().known.contains_key(&me));
    }

    #[test]
    fn no_status_of_a_first_thread_is_kept_while_another_thread_executes_a_program() {
        let threads = Threads::default();
        let process = std::process::id().cast_signed();
        let is_kept = || {
            threads.present_status(process, || true).unwrap();
            threads.known(process).0.is_some()
        };
        assert!(is_kept());
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        let other = std::thread::spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_nonzero().get())
                .unwrap();
            ended.recv()
        });
        let other_thread = told.recv().unwrap();
        threads.note_execution(other_thread);
        assert!(!is_kept(), "the execution has not ended");
        threads.note_call(other_thread);
        assert!(is_kept(), "the execution has failed");
        threads.note_execution(other_thread);
        threads.note_execution(process);
        assert!(
            !is_kept(),
            "the execution of the other thread has not ended"
        );
        drop(end);
        let _ = other.join();
        let begin = Instant::now();
        while memory::has_thread(process, other_thread) {
            assert!(begin.elapsed() < Duration::from_secs(60));
            std::thread::yield_now();
        }
        assert!(is_kept());
        threads.present_status(process, || false).unwrap();
        assert!(
            threads.known(process).0.is_none(),
            "the execution has ended the first thread"
        );
        threads.sweep();
        assert!(threads.all().executions.is_empty());
    }
}
