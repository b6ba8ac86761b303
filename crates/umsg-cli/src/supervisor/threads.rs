//! The threads of the supervised programs: the users of their processes, and their IPC namespaces.
//!
//! The number of a thread may name another thread as soon as the thread has died. So each entry has a descriptor of the thread, which tells whether
//! the thread still lives.
//!
//! A thread that executes a new program takes over the number of its process's first thread, together with its descriptor. The first thread may make
//! further calls until then. So while another thread executes a program, nothing is kept of the first thread's state.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libc::pid_t;

use super::memory::{self, Status};
use super::namespaces::Queues;

struct Known {
    life: OwnedFd,
    /// None after a call that may have changed it.
    status: Option<Status>,
    /// The queues of the thread's IPC namespace. None after a call that may have changed it.
    queues: Option<Arc<Queues>>,
}

#[derive(Default)]
struct All {
    known: HashMap<pid_t, Known>,
    executions: Vec<Execution>,
    /// The number of calls so far that may have changed a status.
    changes: u64,
}

/// The execution of a program by another thread than the first one of its process.
struct Execution {
    process: pid_t,
    thread: pid_t,
}

impl Execution {
    /// Returns whether the thread still has its own number: the execution has not ended, or has failed.
    fn is_pending(&self) -> bool {
        memory::has_thread(self.process, self.thread)
    }
}

impl All {
    /// Returns whether a thread is the first one of a process in which another thread executes a program.
    fn is_about_to_end(&mut self, thread: pid_t) -> bool {
        self.executions.retain(Execution::is_pending);
        self.executions
            .iter()
            .any(|execution| execution.process == thread)
    }
}

#[derive(Default)]
pub struct Threads(Mutex<All>);

impl Threads {
    /// Returns the state of a thread's process, which may be as old as the last call that changed it.
    pub fn status(&self, thread: pid_t) -> Option<Status> {
        let (kept, _) = self.known(thread);
        kept.or_else(|| self.present_status(thread))
    }

    /// Returns what is noted about a living thread, which waits for the answer to a call.
    pub fn known(&self, thread: pid_t) -> (Option<Status>, Option<Arc<Queues>>) {
        let mut all = self.all();
        // If the thread was about to execute a program, it has failed.
        all.executions.retain(|other| other.thread != thread);
        let known = all
            .known
            .get(&thread)
            .filter(|known| memory::lives(&known.life));
        known.map_or((None, None), |known| (known.status, known.queues.clone()))
    }

    /// Notes the queues of a thread that waits for the answer to a call.
    pub fn note_queues(&self, thread: pid_t, queues: &Arc<Queues>) {
        let mut all = self.all();
        let known = all.known.get_mut(&thread);
        if let Some(known) = known.filter(|known| memory::lives(&known.life)) {
            known.queues = Some(Arc::clone(queues));
        }
    }

    /// Reads the state of a thread's process.
    pub fn present_status(&self, thread: pid_t) -> Option<Status> {
        let (may_change, changes) = {
            let mut all = self.all();
            (all.is_about_to_end(thread), all.changes)
        };
        // Before the status is read: if another thread has the number then, this descriptor says that its thread is dead.
        let life = memory::open_thread(thread);
        let status = memory::status(thread)?;
        // Linux before 6.9 opens the first thread of a process only. A status is kept only with a descriptor that verifies it.
        if let Ok(life) = life {
            let mut all = self.all();
            let is_present = !may_change && all.changes == changes;
            let status = is_present.then_some(status);
            let earlier = all.known.remove(&thread);
            let earlier = earlier.filter(|known| memory::lives(&known.life));
            let queues = earlier.and_then(|known| known.queues);
            let known = Known {
                life,
                status,
                queues,
            };
            all.known.insert(thread, known);
        }
        Some(status)
    }

    /// A call may change the user or the IPC namespace of some thread.
    pub fn forget(&self) {
        let mut all = self.all();
        all.changes += 1;
        for known in all.known.values_mut() {
            (known.status, known.queues) = (None, None);
        }
    }

    /// A thread is about to execute a program.
    pub fn note_execution(&self, thread: pid_t) {
        // Without PIDFD_THREAD, the kernel opens first threads only.
        let process = match memory::open_process(thread) {
            Ok(_) => None,
            Err(_) => memory::status(thread).map(|status| status.process),
        };
        if let Some(process) = process {
            let mut all = self.all();
            all.executions.retain(|other| other.thread != thread);
            all.executions.push(Execution { process, thread });
        }
        self.forget();
    }

    /// Gives up what belongs to dead threads.
    pub fn sweep(&self) {
        let mut all = self.all();
        all.known.retain(|_, known| memory::lives(&known.life));
        all.executions.retain(Execution::is_pending);
    }

    fn all(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_not_that_of_an_earlier_thread_with_the_number() {
        let threads = Threads::default();
        let me = rustix::thread::gettid().as_raw_nonzero().get();
        let own = threads.status(me).unwrap();
        let kept = |user| {
            threads.all().known.get_mut(&me).unwrap().status = Some(Status { user, ..own });
            threads.status(me).unwrap().user
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
            assert!(threads.status(process).is_some());
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
        threads.known(other_thread);
        assert!(is_kept(), "the execution has failed");
        threads.note_execution(other_thread);
        threads.note_execution(process);
        assert!(
            !is_kept(),
            "the execution of the other thread has not ended"
        );
        drop(end);
        let _ = other.join();
        while memory::has_thread(process, other_thread) {
            std::thread::yield_now();
        }
        assert!(is_kept());
        threads.sweep();
        assert!(threads.all().executions.is_empty());
    }
}
