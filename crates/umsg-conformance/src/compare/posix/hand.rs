//! The part of a worker that makes the calls of POSIX queues.

use std::ffi::CString;
use std::sync::atomic::AtomicU32;

use super::call::{Call, Deadline, SLOTS};
use super::notices;
use super::watch::Watch;
use crate::backend::{Answer, Attributes, Backend, Failure, Fd, Posix};
use crate::compare::lists::{add, find};
use crate::compare::operation::Call as _;
use crate::compare::reply::{Outcome, Reply, plain, returned};
use crate::compare::worker::{self, Shared, UNTOUCHED, payload};
use crate::errno::Errno;
use crate::sys;

/// The maximum number of processes in a history.
const MOST: usize = 1000;

/// The number of memory words that the workers of a side share. The words contain a list of the process ids of the history so far: its length, then
/// the ids.
pub const WORDS: usize = 1 + MOST;

/// The offset of the registered process's id in the status line: the text that a read of a queue's descriptor gives.
const REGISTERED: usize = 53;
const DIGITS: usize = 7;

/// The part of a worker's state that the calls on POSIX queues need.
pub struct Hand<'a> {
    backend: &'a dyn Backend,
    names: &'a [CString],
    /// Descriptors, each with the message size of its queue.
    slots: [(Fd, usize); SLOTS],
    watch: Watch,
    processes: &'static [AtomicU32],
}

impl worker::Hand<Call> for Hand<'_> {
    fn begin(&mut self) {
        add(self.processes, sys::pid().cast_unsigned());
        notices::begin(self.backend);
        self.watch.begin();
    }

    fn fork(&mut self) {
        self.watch.fork();
    }

    fn call(&mut self, number: u32, call: Call) -> Reply {
        let reply = self.make(number, call);
        match call {
            // The doorbell shows a change before the changing call ends, so a set may report the state before or after the change when a poll
            // returns. Therefore the answer of a waiting poll omits the events of sets.
            Call::Poll { waits: true, .. } => reply,
            _ => self.watch.add_to(reply, call.may_block()),
        }
    }
}

impl<'a> Hand<'a> {
    /// Creates the hand of the first worker.
    pub fn new(shared: &Shared<'a, Posix>) -> Hand<'a> {
        Hand {
            backend: shared.backend,
            names: shared.names,
            slots: [(-1, 8); SLOTS],
            watch: Watch::new(),
            processes: shared.own_words(),
        }
    }

    /// Makes a call.
    fn make(&mut self, number: u32, call: Call) -> Reply {
        use Call::*;
        let backend = self.backend;
        match call {
            Open {
                slot,
                name,
                flags,
                mode,
                attributes,
            } => self.open(slot, name, flags, mode, attributes),
            Close { slot } => plain(backend.close(self.fd(slot))),
            CloseDescriptor { slot } => plain(backend.close_descriptor(self.fd(slot))),
            Unlink { name } => plain(backend.unlink(&self.names[name])),
            Send { .. } => self.send(number, call),
            Receive { .. } => self.receive(call),
            GetAttributes { slot } => attributes(backend.attributes(self.fd(slot))),
            SetAttributes { slot, flags } => {
                let wanted = crate::backend::Attributes {
                    flags,
                    ..crate::backend::Attributes::new(-1, -1)
                };
                attributes(backend.set_attributes(self.fd(slot), &wanted))
            }
            Dup { slot, to } => self.keep(backend.dup(self.fd(slot)), slot, to),
            Dup2 { slot, onto } => self.dup2(slot, onto),
            DupAbove {
                slot,
                to,
                close_on_exec,
            } => {
                let command = if close_on_exec {
                    libc::F_DUPFD_CLOEXEC
                } else {
                    libc::F_DUPFD
                };
                self.keep(backend.fcntl(self.fd(slot), command, 50), slot, to)
            }
            Fcntl {
                slot,
                command,
                argument,
            } => Reply::of(backend.fcntl(self.fd(slot), command, argument), |value| {
                returned(i64::from(value))
            }),
            Status { slot } => self.status(slot),
            ChangeMode { slot, mode } => plain(backend.change_mode(self.fd(slot), mode)),
            ChangeOwner { slot, uid, gid } => plain(backend.change_owner(self.fd(slot), uid, gid)),
            Read { slot, length } => self.read(slot, length),
            Write { slot } => Reply::of(backend.write(self.fd(slot), b"text"), |count| {
                returned(count as i64)
            }),
            Seek {
                slot,
                offset,
                whence,
            } => Reply::of(backend.seek(self.fd(slot), offset, whence), returned),
            Sync { slot } => plain(backend.sync(self.fd(slot))),
            Map { slot } => plain(backend.map(self.fd(slot))),
            Poll {
                slot,
                with,
                events,
                waits,
            } => self.poll(slot, with, events, waits),
            Select { slot, with, events } => self.select(slot, with, events),
            MakeSet { set, watched } => self.watch.make(set, watched),
            CloseSet { set } => self.watch.close(set),
            Register {
                set,
                slot,
                operation,
                events,
            } => {
                let (fd, u64) = (self.slots[slot].0, number.into());
                let event = libc::epoll_event { events, u64 };
                self.watch.control(backend, set, operation, fd, event)
            }
            Wait { set } => self.watch.told(set),
            Notify { slot, event } => {
                plain(backend.notify(self.fd(slot), event.sigevent().as_ref()))
            }
            Notices => {
                let told = notices::told(|pid| self.who(pid));
                returned(told.len() as i64 / 5).with(told)
            }
            StatusLine { slot } => self.status_line(slot),
        }
    }

    /// Returns the number of a process. The processes of a history are numbered from 1, in the order in which they began.
    fn who(&self, pid: sys::Pid) -> i64 {
        match find(self.processes, pid.cast_unsigned()) {
            Some(at) => at as i64,
            None if pid == 0 => 0,
            None => -1,
        }
    }

    fn fd(&self, slot: usize) -> Fd {
        self.slots[slot].0
    }

    fn open(
        &mut self,
        slot: usize,
        name: usize,
        flags: i32,
        mode: u32,
        wanted: Option<Attributes>,
    ) -> Reply {
        let backend = self.backend;
        let opened = backend.open(&self.names[name], flags, mode, wanted.as_ref());
        Reply::of(opened, |fd| {
            let got = backend.attributes(fd);
            self.watch.opened(fd);
            self.slots[slot] = (fd, got.map_or(8, |got| got.message_size as usize));
            Reply {
                outcome: Outcome::Descriptor(fd),
                ..attributes(got)
            }
        })
    }

    /// Stores the descriptor of a duplicate in slot `to`.
    fn keep(&mut self, made: Answer<Fd>, from: usize, to: usize) -> Reply {
        Reply::of(made, |fd| {
            self.watch.duplicated(self.fd(from), fd);
            self.slots[to] = (fd, self.slots[from].1);
            Reply::new(Outcome::Descriptor(fd))
        })
    }

    fn dup2(&mut self, slot: usize, onto: usize) -> Reply {
        let made = self.backend.dup2(self.fd(slot), self.fd(onto));
        self.keep(made, slot, onto)
    }

    fn send(&self, number: u32, call: Call) -> Reply {
        let Call::Send {
            slot,
            size,
            priority,
            deadline,
        } = call
        else {
            unreachable!()
        };
        let (fd, message_size) = self.slots[slot];
        let message = payload(number, size.bytes(message_size));
        let backend = self.backend;
        plain(match deadline {
            Deadline::Never => backend.send(fd, &message, priority),
            deadline => backend.timed_send(fd, &message, priority, deadline.timespec().as_ref()),
        })
    }

    fn receive(&self, call: Call) -> Reply {
        let Call::Receive {
            slot,
            size,
            deadline,
        } = call
        else {
            unreachable!()
        };
        let (fd, message_size) = self.slots[slot];
        let mut buffer = vec![UNTOUCHED; size.bytes(message_size)];
        let backend = self.backend;
        let received = match deadline {
            Deadline::Never => backend.receive(fd, &mut buffer),
            deadline => backend.timed_receive(fd, &mut buffer, deadline.timespec().as_ref()),
        };
        let untouched = |rest: &[u8]| i64::from(rest.iter().all(|&byte| byte == UNTOUCHED));
        if received.is_err() {
            return Reply::of(received, |_| unreachable!()).with([untouched(&buffer)]);
        }
        Reply::of(received, |(length, priority)| {
            let length = length.min(buffer.len());
            let reply =
                returned(length as i64).with([i64::from(priority), untouched(&buffer[length..])]);
            Reply {
                data: buffer[..length].to_vec(),
                ..reply
            }
        })
    }

    fn status(&self, slot: usize) -> Reply {
        Reply::of(self.backend.status(self.fd(slot)), |status| {
            let (mode, uid, gid) = (
                i64::from(status.mode),
                i64::from(status.uid),
                i64::from(status.gid),
            );
            returned(0).with([mode, uid, gid, status.size, status.links as i64])
        })
    }

    fn read(&self, slot: usize, length: usize) -> Reply {
        let fd = self.fd(slot);
        let from = self.backend.seek(fd, 0, libc::SEEK_CUR).unwrap_or(0);
        let mut buffer = vec![UNTOUCHED; length];
        let read = self.backend.read(fd, &mut buffer);
        self.line(fd, from as usize, buffer, read)
    }

    fn status_line(&self, slot: usize) -> Reply {
        let mut buffer = vec![UNTOUCHED; 100];
        let read = self.backend.read_at(self.fd(slot), &mut buffer, 0);
        self.line(self.fd(slot), 0, buffer, read)
    }

    /// Returns the answer to a read of a queue's status line. In place of the process id, the answer contains the number of that process in the
    /// history.
    fn line(&self, fd: Fd, from: usize, mut buffer: Vec<u8>, read: Answer<usize>) -> Reply {
        Reply::of(read, |count| {
            buffer.truncate(count);
            let mut digits = [b' '; DIGITS];
            let _ = self.backend.read_at(fd, &mut digits, REGISTERED as i64);
            let text = String::from_utf8_lossy(&digits);
            let pid = text.trim().parse().unwrap_or(0);
            for (byte, at) in buffer.iter_mut().zip(from..) {
                if (REGISTERED..REGISTERED + DIGITS).contains(&at) {
                    *byte = b'_';
                }
            }
            Reply {
                data: buffer,
                ..returned(count as i64).with([self.who(pid)])
            }
        })
    }

    /// Returns the answer of `poll` for one or two descriptors.
    fn poll(&self, slot: usize, with: Option<usize>, events: i16, waits: bool) -> Reply {
        let entry = |slot| libc::pollfd {
            fd: self.fd(slot),
            events,
            revents: -1,
        };
        let mut entries: Vec<libc::pollfd> = [Some(slot), with]
            .into_iter()
            .flatten()
            .map(entry)
            .collect();
        let polled = if waits {
            self.backend.poll(&mut entries, -1)
        } else {
            uninterrupted(|| self.backend.poll(&mut entries, 0))
        };
        Reply::of(polled, |count| {
            let told = entries.iter().map(|entry| i64::from(entry.revents));
            returned(count as i64).with(told)
        })
    }

    /// Returns the answer of `select` for one or two descriptors.
    fn select(&self, slot: usize, with: Option<usize>, events: i16) -> Reply {
        let slots = [Some(slot), with].into_iter().flatten();
        let fds: Vec<Fd> = slots
            .map(|slot| self.fd(slot))
            .filter(|&fd| fd >= 0)
            .collect();
        let below = fds.iter().max().map_or(0, |highest| highest + 1);
        let set = |wanted| sys::set_of(if events & wanted == 0 { &[] } else { &fds });
        let sets = || (set(libc::POLLIN), set(libc::POLLOUT));
        let (mut readable, mut writable) = sets();
        let selected = uninterrupted(|| {
            (readable, writable) = sets();
            self.backend.select(below, [&mut readable, &mut writable])
        });
        Reply::of(selected, |count| {
            let told = [&readable, &writable]
                .into_iter()
                .flat_map(|set| fds.iter().map(|&fd| i64::from(sys::is_in(fd, set))));
            returned(count as i64).with(told)
        })
    }
}

/// Returns the answer of a call that does not wait. If the signal of a notification interrupts the call, repeats the call.
fn uninterrupted<T>(mut call: impl FnMut() -> Answer<T>) -> Answer<T> {
    loop {
        match call() {
            Err(Failure::Errno(Errno::EINTR)) => {}
            answer => return answer,
        }
    }
}

fn attributes(answer: Answer<Attributes>) -> Reply {
    Reply::of(answer, |attributes| {
        let Attributes {
            flags,
            max_messages,
            message_size,
            messages,
        } = attributes;
        returned(0).with([flags, max_messages, message_size, messages])
    })
}
