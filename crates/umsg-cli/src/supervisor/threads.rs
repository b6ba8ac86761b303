//! The threads of the supervised programs: the users of their processes, and their IPC namespaces.
//!
//! The number of a thread may name another thread as soon as the thread has died. So each entry has a descriptor of the thread, which tells whether
//! the thread still lives.

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
pub struct Threads(Mutex<HashMap<pid_t, Known>>);

impl Threads {
    /// Returns the state of a thread's process, which may be as old as the last call that changed it.
    pub fn status(&self, thread: pid_t) -> Option<Status> {
        let (kept, _) = self.known(thread);
        kept.or_else(|| self.present_status(thread))
    }

    /// Returns what is noted about a living thread.
    pub fn known(&self, thread: pid_t) -> (Option<Status>, Option<Arc<Queues>>) {
        let all = self.all();
        let known = all.get(&thread).filter(|known| memory::lives(&known.life));
        known.map_or((None, None), |known| (known.status, known.queues.clone()))
    }

    /// Notes the queues of a thread that waits for the answer to a call.
    pub fn note_queues(&self, thread: pid_t, queues: &Arc<Queues>) {
        let mut all = self.all();
        let known = all.get_mut(&thread);
        if let Some(known) = known.filter(|known| memory::lives(&known.life)) {
            known.queues = Some(Arc::clone(queues));
        }
    }

    /// Reads the state of a thread's process.
    pub fn present_status(&self, thread: pid_t) -> Option<Status> {
        // Before the status is read: if another thread has the number then, this descriptor says that its thread is dead.
        let life = memory::open_thread(thread);
        let status = memory::status(thread)?;
        // Linux before 6.9 opens the first thread of a process only. A status is kept only with a descriptor that verifies it.
        if let Ok(life) = life {
            let status = Some(status);
            let mut all = self.all();
            let earlier = all.remove(&thread);
            let earlier = earlier.filter(|known| memory::lives(&known.life));
            let queues = earlier.and_then(|known| known.queues);
            let known = Known {
                life,
                status,
                queues,
            };
            all.insert(thread, known);
        }
        Some(status)
    }

    /// A call may change the user or the IPC namespace of some thread. A new program has the number of its process's first thread, not that of the
    /// thread that has started it.
    pub fn forget(&self) {
        for known in self.all().values_mut() {
            (known.status, known.queues) = (None, None);
        }
    }

    /// Gives up what belongs to dead threads.
    pub fn sweep(&self) {
        self.all().retain(|_, known| memory::lives(&known.life));
    }

    fn all(&self) -> MutexGuard<'_, HashMap<pid_t, Known>> {
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
            threads.all().get_mut(&me).unwrap().status = Some(Status { user, ..own });
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
        threads.all().get_mut(&me).unwrap().life = dead;
        assert_eq!(kept(own.user + 2), own.user);
        threads.sweep();
        assert!(threads.all().contains_key(&me));
    }
}
