//! A process of one side: does what it is told, and says what came of it.

use std::ffi::CString;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};

use super::operation::{Operation, SLOTS, Step, WORKERS};
use super::reply::{Outcome, Reply};
use crate::backend::{Answer, Attributes, Backend, Failure, Fd};
use crate::sys::{self, Forked};

/// Where the workers of a side have their ends of the sockets: above what they open, at the same numbers on both
/// sides.
pub const FIRST_SOCKET: RawFd = 200;

/// What fills a receive buffer before the call, to see how far it was written.
const UNTOUCHED: u8 = 0xa5;

/// What all workers of a side share.
pub struct Shared<'a> {
    /// Whom they ask.
    pub backend: &'a dyn Backend,
    /// The names that operations refer to.
    pub names: &'a [CString],
    /// The history.
    pub steps: &'a [Step],
    /// For each worker the number of the step it has begun, counted from 1.
    pub begun: &'static [AtomicU32],
}

/// A worker.
pub struct Worker<'a> {
    shared: &'a Shared<'a>,
    number: usize,
    /// Descriptors, each with the message size of its queue.
    slots: [(Fd, usize); SLOTS],
}

extern "C" fn nothing(_: i32) {}

impl<'a> Worker<'a> {
    /// The first worker of a side, at home in a process that is its own.
    pub fn first(shared: &'a Shared<'a>) -> Worker<'a> {
        sys::umask(0o022);
        sys::set_disposition(libc::SIGCHLD, libc::SIG_IGN);
        let _ = shared.backend.handle_signal(libc::SIGUSR1, nothing, 0);
        let _ = shared
            .backend
            .handle_signal(libc::SIGUSR2, nothing, libc::SA_RESTART);
        Worker {
            shared,
            number: 0,
            slots: [(-1, 8); SLOTS],
        }
    }

    /// Does what it is told until it is killed or told to exit.
    pub fn serve(mut self) -> ! {
        loop {
            let mut command = [0; 4];
            match sys::read_record(self.socket(), &mut command) {
                Ok(4) => {}
                _ => sys::leave(0),
            }
            let number = u32::from_le_bytes(command);
            self.shared.begun[self.number].store(number + 1, Ordering::Release);
            let operation = self.shared.steps[number as usize].operation;
            if let Some(reply) = self.perform(number, operation) {
                self.answer(&reply);
            }
            if operation == Operation::Exit {
                sys::leave(0);
            }
        }
    }

    fn socket(&self) -> RawFd {
        FIRST_SOCKET + self.number as RawFd
    }

    fn answer(&self, reply: &Reply) {
        if sys::write_record(self.socket(), &reply.encode()).is_err() {
            sys::leave(1);
        }
    }

    /// Does it; no reply from a child that just began, which has answered already.
    fn perform(&mut self, number: u32, operation: Operation) -> Option<Reply> {
        use Operation::*;
        let backend = self.shared.backend;
        Some(match operation {
            Open {
                slot,
                name,
                flags,
                mode,
                attributes,
            } => self.open(slot, name, flags, mode, attributes),
            Close { slot } => plain(backend.close(self.fd(slot))),
            CloseDescriptor { slot } => plain(backend.close_descriptor(self.fd(slot))),
            Unlink { name } => plain(backend.unlink(&self.shared.names[name])),
            Send { .. } => self.send(number, operation),
            Receive { .. } => self.receive(operation),
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
            Umask { mask } => returned(i64::from(sys::umask(mask))),
            Nice { nice } => plain(sys::set_nice(nice).map_err(Failure::from)),
            Fork { child, user } => return self.fork(child, user),
            Exit => returned(0),
            Kill | Interrupt | Disturb | StopAndContinue => {
                unreachable!("done to a worker, not by it")
            }
        })
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
        let backend = self.shared.backend;
        let opened = backend.open(&self.shared.names[name], flags, mode, wanted.as_ref());
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
        let made = self.shared.backend.dup2(self.fd(slot), self.fd(onto));
        self.keep(made, slot, onto)
    }

    fn send(&self, number: u32, operation: Operation) -> Reply {
        let Operation::Send {
            slot,
            size,
            priority,
            deadline,
        } = operation
        else {
            unreachable!()
        };
        let (fd, message_size) = self.slots[slot];
        let message = payload(number, size.bytes(message_size));
        let backend = self.shared.backend;
        plain(match deadline {
            super::operation::Deadline::Never => backend.send(fd, &message, priority),
            deadline => backend.timed_send(fd, &message, priority, deadline.timespec().as_ref()),
        })
    }

    fn receive(&self, operation: Operation) -> Reply {
        let Operation::Receive {
            slot,
            size,
            deadline,
        } = operation
        else {
            unreachable!()
        };
        let (fd, message_size) = self.slots[slot];
        let mut buffer = vec![UNTOUCHED; size.bytes(message_size)];
        let backend = self.shared.backend;
        let received = match deadline {
            super::operation::Deadline::Never => backend.receive(fd, &mut buffer),
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
        Reply::of(self.shared.backend.status(self.fd(slot)), |status| {
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
        Reply::of(
            self.shared.backend.read(self.fd(slot), &mut buffer),
            |count| Reply {
                data: buffer[..count].to_vec(),
                ..returned(count as i64)
            },
        )
    }

    /// Forks: the parent answers with the child's number, the child at its own socket that it is ready.
    fn fork(&mut self, child: usize, user: Option<sys::User>) -> Option<Reply> {
        assert!(child < WORKERS);
        match sys::fork() {
            Err(errno) => Some(Reply::new(Outcome::Failed(errno))),
            Ok(Forked::Parent(pid)) => Some(Reply {
                child: pid,
                ..returned(0)
            }),
            Ok(Forked::Child) => {
                self.number = child;
                let became = user.map_or(Ok(()), sys::User::assume);
                self.answer(&plain(became.map_err(Failure::from)));
                None
            }
        }
    }
}

fn returned(value: i64) -> Reply {
    Reply::new(Outcome::Value(value))
}

fn plain(answer: Answer<()>) -> Reply {
    Reply::of(answer, |()| returned(0))
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

/// The bytes of the message that a step sends: no two alike, if they are long enough to differ.
fn payload(number: u32, length: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..length)
        .map(|at| (number as usize * 131 + at * 7 + at / 250) as u8)
        .collect();
    let mark = number.to_le_bytes();
    let marked = length.min(mark.len());
    bytes[..marked].copy_from_slice(&mark[..marked]);
    bytes
}
