//! Events of a descriptor in an event loop.

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;
use umsg::Readiness;

/// Returns the flags that poll(2) finds set at this moment.
pub fn polled(descriptor: BorrowedFd<'_>) -> PollFlags {
    let all =
        PollFlags::IN | PollFlags::OUT | PollFlags::RDNORM | PollFlags::WRNORM | PollFlags::PRI;
    let mut entries = [PollFd::from_borrowed_fd(descriptor, all)];
    poll(&mut entries, Some(&Timespec::default())).unwrap();
    entries[0].revents()
}

/// Returns the flags that a poll of at most ten seconds finds set.
pub fn poll_for(descriptor: BorrowedFd<'_>, what: PollFlags) -> PollFlags {
    let mut entries = [PollFd::from_borrowed_fd(descriptor, what)];
    let patience = Timespec {
        tv_sec: 10,
        tv_nsec: 0,
    };
    poll(&mut entries, Some(&patience)).unwrap();
    entries[0].revents()
}

/// Returns whether a poll of at most this time finds one of these flags.
pub fn is_ready_within(time: Duration, descriptor: BorrowedFd<'_>, what: PollFlags) -> bool {
    let mut entries = [PollFd::from_borrowed_fd(descriptor, what)];
    poll(&mut entries, Some(&Timespec::try_from(time).unwrap())).unwrap();
    entries[0].revents().intersects(what)
}

/// Converts the flags of poll(2) to the readiness of a queue.
pub fn readiness_of(flags: PollFlags) -> Readiness {
    Readiness {
        readable: flags.contains(PollFlags::IN),
        writable: flags.contains(PollFlags::OUT),
    }
}

/// An epoll set with one descriptor.
pub struct Epoll(OwnedFd);

impl Epoll {
    pub fn new(descriptor: BorrowedFd<'_>, events: EventFlags) -> Epoll {
        let set = epoll::create(CreateFlags::CLOEXEC).unwrap();
        epoll::add(&set, descriptor, EventData::new_u64(0), events).unwrap();
        Epoll(set)
    }

    /// Returns the current events; `None` if there are none.
    pub fn told(&self) -> Option<EventFlags> {
        self.told_within(Duration::ZERO)
    }

    /// Returns the first events within this time; `None` if there are none.
    pub fn told_within(&self, time: Duration) -> Option<EventFlags> {
        let mut events = Vec::with_capacity(4);
        epoll::wait(
            &self.0,
            rustix::buffer::spare_capacity(&mut events),
            Some(&Timespec::try_from(time).unwrap()),
        )
        .unwrap();
        assert!(events.len() <= 1);
        events.first().map(|event| event.flags)
    }
}
