//! The threads of the supervised programs, and the users of their processes.
//!
//! The number of a thread may name another thread as soon as the thread has died. So each entry has a descriptor of the thread, which tells whether
//! the thread still lives.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::pid_t;

use super::memory::{self, Status};

struct Known {
    life: OwnedFd,
    /// None after a call that may have changed it.
    status: Option<Status>,
}

#[derive(Default)]
pub struct Threads(Mutex<HashMap<pid_t, Known>>);

impl Threads {
    /// Returns the state of a thread's process, which may be as old as the last call that changed it.
    pub fn status(&self, thread: pid_t) -> Option<Status> {
        let kept = self.all().get(&thread).and_then(|known| {
            let status = known.status?;
            memory::lives(&known.life).then_some(status)
        });
        kept.or_else(|| self.present_status(thread))
    }

    /// Reads the state of a thread's process.
    pub fn present_status(&self, thread: pid_t) -> Option<Status> {
        // Before the status is read: if another thread has the number then, this descriptor says that its thread is dead.
        let life = memory::open_thread(thread);
        let status = memory::status(thread)?;
        // Linux before 6.9 opens the first thread of a process only. A status is kept only with a descriptor that verifies it.
        if let Ok(life) = life {
            let status = Some(status);
            self.all().insert(thread, Known { life, status });
        }
        Some(status)
    }

    /// A call may change the user of some thread. A new program has the number of its process's first thread, not that of the thread that has
    /// started it.
    pub fn forget_status(&self) {
        self.all()
            .values_mut()
            .for_each(|known| known.status = None);
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
