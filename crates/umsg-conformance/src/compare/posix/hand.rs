//! Makes the calls of POSIX queues.

use std::ffi::CString;

use super::call::{Call, Deadline, SLOTS};
use crate::backend::{Answer, Attributes, Backend, Fd, Posix};
use crate::compare::reply::{Outcome, Reply, plain, returned};
use crate::compare::worker::{self, Shared, UNTOUCHED, payload};

/// What a worker knows.
pub struct Hand<'a> {
    backend: &'a dyn Backend,
    names: &'a [CString],
    /// Descriptors, each with the message size of its queue.
    slots: [(Fd, usize); SLOTS],
}

impl worker::Hand<Call> for Hand<'_> {
    fn call(&mut self, number: u32, call: Call) -> Reply {
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
        }
    }
}

impl<'a> Hand<'a> {
    /// The hand of the first worker.
    pub fn new(shared: &Shared<'a, Posix>) -> Hand<'a> {
        Hand {
            backend: shared.backend,
            names: shared.names,
            slots: [(-1, 8); SLOTS],
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
            self.slots[slot] = (fd, got.map_or(8, |got| got.message_size as usize));
            Reply {
                outcome: Outcome::Descriptor(fd),
                ..attributes(got)
            }
        })
    }

    /// Remembers a duplicate in a slot.
    fn keep(&mut self, made: Answer<Fd>, from: usize, to: usize) -> Reply {
        Reply::of(made, |fd| {
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
        let mut buffer = vec![UNTOUCHED; length];
        Reply::of(self.backend.read(self.fd(slot), &mut buffer), |count| {
            Reply {
                data: buffer[..count].to_vec(),
                ..returned(count as i64)
            }
        })
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
