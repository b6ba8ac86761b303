//! Random histories: polls, registrations and notifications.

use super::{Call, Generator, Operation, Step};
use crate::compare::posix::call::{Event, SETS, Slot};
use crate::compare::posix::notices;

/// The requested events of a `poll` call.
const POLLED: [i16; 6] = [
    libc::POLLIN,
    libc::POLLOUT,
    libc::POLLIN | libc::POLLOUT,
    libc::POLLIN | libc::POLLRDNORM | libc::POLLOUT | libc::POLLWRNORM | libc::POLLPRI,
    libc::POLLRDNORM | libc::POLLWRNORM,
    0,
];

/// The events of a registration, and the flags that say how they are reported.
const INTERESTS: [i32; 5] = [
    libc::EPOLLIN,
    libc::EPOLLOUT,
    libc::EPOLLIN | libc::EPOLLOUT,
    libc::EPOLLRDNORM | libc::EPOLLWRNORM | libc::EPOLLIN,
    0,
];
const WAYS: [(u64, i32); 6] = [
    (8, 0),
    (8, libc::EPOLLET),
    (3, libc::EPOLLONESHOT),
    (3, libc::EPOLLONESHOT | libc::EPOLLET),
    (2, libc::EPOLLEXCLUSIVE | libc::EPOLLET),
    (1, libc::EPOLLEXCLUSIVE | libc::EPOLLONESHOT),
];

impl Generator {
    fn set(&mut self) -> Slot {
        if self.random.percent(60) {
            return 0;
        }
        self.random.below(SETS as u64) as Slot
    }

    /// Returns a random call that polls, or that makes, closes, changes or reads an epoll set.
    pub(super) fn polling(&mut self) -> Call {
        let (slot, set) = (self.slot(), self.set());
        let with = self.random.percent(40).then(|| self.slot());
        let events = self.random.pick(&POLLED);
        if !self.bounds.descriptors {
            return self.poll(slot, with, events);
        }
        let kinds = if self.character.sets { 20 } else { 6 };
        match self.random.below(kinds) {
            0..4 => self.poll(slot, with, events),
            4..6 => Call::Select {
                slot,
                with,
                events: self.random.pick(&POLLED[..3]),
            },
            6..9 => Call::MakeSet {
                set,
                watched: self.random.percent(60),
            },
            9 if self.random.percent(40) => Call::CloseSet { set },
            9..16 => self.register(set, slot),
            _ => Call::Wait { set },
        }
    }

    fn poll(&mut self, slot: Slot, with: Option<Slot>, events: i16) -> Call {
        Call::Poll {
            slot,
            with,
            events,
            waits: self.blocks(),
        }
    }

    /// Returns the steps in which the first worker makes an epoll set and adds the first queue to it.
    pub(super) fn watching(&mut self) -> [Step; 2] {
        let make = Call::MakeSet {
            set: 0,
            watched: self.random.percent(60),
        };
        let events = self.random.pick(&INTERESTS) | self.random.pick(&[0, libc::EPOLLET]);
        let register = Call::Register {
            set: 0,
            slot: 0,
            operation: libc::EPOLL_CTL_ADD,
            events: events.cast_unsigned(),
        };
        [make, register].map(|call| Step {
            worker: 0,
            operation: Operation::Call(call),
        })
    }

    /// Returns a call of `epoll_ctl` that adds a descriptor to a set, changes its events, or removes it.
    pub(super) fn register(&mut self, set: Slot, slot: Slot) -> Call {
        let operation = self.random.weighted(&[
            (10, libc::EPOLL_CTL_ADD),
            (6, libc::EPOLL_CTL_MOD),
            (3, libc::EPOLL_CTL_DEL),
        ]);
        let events = self.random.pick(&INTERESTS) | self.random.weighted(&WAYS);
        Call::Register {
            set,
            slot,
            operation,
            events: events.cast_unsigned(),
        }
    }

    /// Returns a call that registers for a notification, collects the notifications that have arrived, or reads the status line.
    pub(super) fn notices(&mut self) -> Call {
        let slot = self.slot();
        match self.random.below(20) {
            0..9 => Call::Notify {
                slot,
                event: self.event(),
            },
            9..15 => Call::Notices,
            _ => Call::StatusLine { slot },
        }
    }

    fn event(&mut self) -> Event {
        let value = self.random.pick(&[0, 7, i64::from(i32::MAX), -1, i64::MIN]);
        match self.random.below(20) {
            0..5 => Event::Withdraw,
            5..8 => Event::Nothing,
            8..17 => Event::Signal {
                signal: self.random.pick(&notices::SIGNALS),
                value,
            },
            17 => Event::Signal {
                signal: self.random.pick(&[0, libc::SIGURG, libc::SIGUSR1]),
                value,
            },
            18 => Event::Signal {
                signal: self.random.pick(&[-1, 65, i32::MAX, i32::MIN]),
                value,
            },
            _ => Event::Unknown {
                how: self.random.pick(&[3, 4, 5, -1, i32::MAX]),
            },
        }
    }
}
