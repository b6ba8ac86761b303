//! The epoll sets of a worker.
//!
//! In the kernel, a registration belongs to an open file, and a fork gives two processes the same open files. The drop-in registers a doorbell in
//! place of the queue, and opens the doorbell at the first registration. So processes that shared the queue before the first registration have
//! separate doorbells. Therefore a history registers a shared queue only in processes that share the doorbell, too. Only the process that made a set
//! changes the members of the set.

use std::collections::HashMap;

use super::call::{SETS, Slot};
use crate::backend::{Answer, Backend, EpollControl, Failure, Fd};
use crate::compare::reply::{Outcome, Reply, plain, returned};
use crate::epoll::{self, Set};

/// An open file description, which several descriptor numbers may share.
#[derive(Clone, Copy)]
struct Description {
    /// The number of forks that this process had made when it opened the description.
    opened: u32,
    /// True if the description was ever added to an epoll set.
    registered: bool,
}

/// An epoll set that a worker remembers. The number of a closed set is kept, so that later calls use a closed set.
#[derive(Clone, Copy)]
struct Remembered {
    set: Set,
    /// True if this process made the set.
    own: bool,
    /// True if other processes have the set, too.
    shared: bool,
    /// True if the set is read after every call.
    watched: bool,
}

const NONE: Remembered = Remembered {
    set: -1,
    own: true,
    shared: false,
    watched: false,
};

/// The sets of a worker.
pub struct Watch {
    sets: [Remembered; SETS],
    forks: u32,
    descriptions: Vec<Description>,
    numbers: HashMap<Fd, usize>,
}

impl Watch {
    /// Creates the record of a worker that remembers no set.
    pub fn new() -> Watch {
        Watch {
            sets: [NONE; SETS],
            forks: 0,
            descriptions: Vec::new(),
            numbers: HashMap::new(),
        }
    }

    /// Records that this process begins, with the descriptors and sets of the process that forked it.
    pub fn begin(&mut self) {
        for set in &mut self.sets {
            set.own = set.set == NONE.set;
        }
    }

    /// Records that this process is about to fork a child, which inherits its descriptors and sets.
    pub fn fork(&mut self) {
        self.forks += 1;
        for set in &mut self.sets {
            set.shared = true;
        }
    }

    /// Records that a queue was opened as descriptor `fd`.
    pub fn opened(&mut self, fd: Fd) {
        self.numbers.insert(fd, self.descriptions.len());
        self.descriptions.push(Description {
            opened: self.forks,
            registered: false,
        });
    }

    /// Records that `duplicate` now names the same open file description as `fd`.
    pub fn duplicated(&mut self, fd: Fd, duplicate: Fd) {
        if let Some(&description) = self.numbers.get(&fd) {
            self.numbers.insert(duplicate, description);
        }
    }

    /// Makes a set, and remembers it in slot `at`.
    pub fn make(&mut self, at: Slot, watched: bool) -> Reply {
        let made = epoll::make().map_err(Failure::from);
        Reply::of(made, |set| {
            self.sets[at] = Remembered {
                set,
                own: true,
                shared: false,
                watched,
            };
            Reply::new(Outcome::Descriptor(set))
        })
    }

    /// Closes the set in slot `at`.
    pub fn close(&mut self, at: Slot) -> Reply {
        self.sets[at].watched = false;
        plain(epoll::close(self.sets[at].set).map_err(Failure::from))
    }

    /// `epoll_ctl`.
    pub fn control(
        &mut self,
        backend: &dyn Backend,
        at: Slot,
        operation: i32,
        fd: Fd,
        event: libc::epoll_event,
    ) -> Reply {
        let Remembered { set, own, .. } = self.sets[at];
        let description = self.numbers.get(&fd).copied();
        if !own || description.is_some_and(|which| !self.may_be_registered(which)) {
            return Reply::new(Outcome::Unsupported);
        }
        let control = EpollControl {
            set,
            operation,
            event,
        };
        let done = backend.control_epoll(fd, control);
        if let (Ok(()), Some(which)) = (done, description) {
            self.descriptions[which].registered = true;
        }
        plain(done)
    }

    fn may_be_registered(&self, which: usize) -> bool {
        let Description { opened, registered } = self.descriptions[which];
        registered || opened == self.forks
    }

    /// Returns the current events of the set in slot `at`.
    pub fn told(&self, at: Slot) -> Reply {
        Reply::of(self.ask(at), |told| {
            returned(told.len() as i64 / 2).with(told)
        })
    }

    fn ask(&self, at: Slot) -> Answer<Vec<i64>> {
        let told = epoll::told(self.sets[at].set)?;
        let pairs = told.into_iter();
        Ok(pairs
            .flat_map(|(data, events)| [data as i64, i64::from(events)])
            .collect())
    }

    /// Adds the events of the watched sets to the answer of a call. A blocked call may end during a call of another process, and the two processes
    /// then run in parallel. So if the call may block, the function omits the sets that other processes also have.
    pub fn add_to(&self, mut reply: Reply, may_block: bool) -> Reply {
        for at in 0..SETS {
            let Remembered {
                watched, shared, ..
            } = self.sets[at];
            if watched && !(shared && may_block) {
                let told = self.ask(at).unwrap_or_default();
                reply.details.push(told.len() as i64 / 2);
                reply.details.extend(told);
            }
        }
        reply
    }
}
