//! A process of a history. The process obeys commands until it ends, and continues to obey them after an exec.

use std::ffi::CString;
use std::os::fd::{AsFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use super::act::{Act, MESSAGE_SIZE, NAMES, PROCESSES, Waits};
use super::mailbox;
use crate::backend::{Answer, Attributes, Backend, EpollControl, Failure, Fd, Kind, Posix};
use crate::compare::lists::{add, find};
use crate::compare::posix::notices;
use crate::compare::{Outcome, Reply, plain, returned};
use crate::epoll;
use crate::sys::{self, Forked, Pid};
use crate::sysv::SystemV;
use crate::sysv::backend as typed;

/// The argument that makes the program `compare` run as an actor. The next argument is the actor's number.
pub const ACTOR: &str = "--be-an-actor";

/// The descriptor of actor 0's socket. The socket of each further actor has the next number.
pub const FIRST_SOCKET: RawFd = 200;
/// The descriptors of the two ends of the mailbox.
pub const MAILBOX: [RawFd; 2] = [210, 211];
/// The descriptor of the memory that the actors of a side share with the coordinator.
pub const MEMORY: RawFd = 212;

/// The maximum number of processes in a history.
const MOST: usize = 200;
/// The number of words in the shared memory. The words are the last step that each actor has begun, the System V identifiers, and the list of all
/// process ids so far.
pub const WORDS: usize = PROCESSES + NAMES + 1 + MOST;

/// The offset of the registered process's id in the status line of a queue.
const REGISTERED: usize = 53;

/// A process of a history.
struct Actor {
    number: usize,
    posix: Box<dyn Backend>,
    typed: Box<dyn typed::Backend>,
    words: &'static [AtomicU32],
}

extern "C" fn nothing(_: i32) {}

/// Runs as the actor with this number.
///
/// # Errors
/// If the coordinator has prepared the process wrongly.
pub fn act(number: &str) -> Result<(), String> {
    let number = number.parse().map_err(|_| "no number of an actor")?;
    // The memory's descriptor stays open: after an exec, the actor's new program maps the memory again.
    let memory = sys::take(MEMORY);
    let words = sys::words_of(memory.as_fd(), WORDS).map_err(|errno| errno.to_string())?;
    sys::forget(memory);
    let actor = Actor {
        number,
        posix: Kind::<Posix>::Kernel.make("/".as_ref())?,
        typed: Kind::<SystemV>::Kernel.make("/".as_ref())?,
        words,
    };
    actor.begin();
    actor.answer(&returned(0));
    actor.serve()
}

impl Actor {
    /// Installs the handlers, and discards earlier notices.
    fn begin(&self) {
        let pid = sys::pid().cast_unsigned();
        if find(self.processes(), pid).is_none() {
            add(self.processes(), pid);
        }
        sys::set_disposition(libc::SIGCHLD, libc::SIG_IGN);
        let handle = |signal, flags| self.posix.handle_signal(signal, nothing, flags);
        let _ = handle(libc::SIGUSR1, 0);
        let _ = handle(libc::SIGUSR2, libc::SA_RESTART);
        notices::begin(&*self.posix);
    }

    fn ids(&self) -> &'static [AtomicU32] {
        &self.words[PROCESSES..]
    }

    fn processes(&self) -> &'static [AtomicU32] {
        &self.words[PROCESSES + NAMES..]
    }

    fn serve(mut self) -> ! {
        let mut buffer = [0; 512];
        loop {
            let length = match sys::read_record(self.socket(), &mut buffer) {
                Ok(0) | Err(_) => sys::leave(0),
                Ok(length) => length,
            };
            let Ok((number, act)) = serde_json::from_slice::<(u32, Act)>(&buffer[..length]) else {
                sys::leave(2)
            };
            self.words[self.number].store(number + 1, Ordering::Release);
            match act {
                Act::Fork { child } => self.fork(child),
                Act::Exec => self.exec(),
                Act::Exit => {
                    self.answer(&returned(0));
                    sys::leave(0);
                }
                act => self.answer(&self.perform(number, act)),
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

    /// Forks. The parent answers with the child's process id. The child reports on its own socket that it is ready.
    fn fork(&mut self, child: usize) {
        match sys::fork() {
            Err(errno) => self.answer(&Reply::new(Outcome::Failed(errno))),
            Ok(Forked::Parent(pid)) => self.answer(&Reply {
                child: pid,
                ..returned(0)
            }),
            Ok(Forked::Child) => {
                self.number = child;
                self.begin();
                self.answer(&returned(0));
            }
        }
    }

    /// Executes this program again in the same process. The new program sends the answer to the act.
    fn exec(&self) {
        let error = Command::new("/proc/self/exe")
            .args([ACTOR, &self.number.to_string()])
            .exec();
        eprintln!("exec: {error}");
        sys::leave(3);
    }

    fn perform(&self, number: u32, act: Act) -> Reply {
        let posix = &*self.posix;
        match act {
            Act::Open { name, flags, depth } => {
                let attributes = Attributes::new(depth, MESSAGE_SIZE as i64);
                let path = CString::new(format!("/lives-{name}")).expect("no NUL");
                descriptor(posix.open(&path, flags, 0o600, Some(&attributes)))
            }
            Act::Close { fd } => plain(posix.close_descriptor(fd)),
            Act::Unlink { name } => {
                let path = CString::new(format!("/lives-{name}")).expect("no NUL");
                plain(posix.unlink(&path))
            }
            Act::Send {
                fd,
                priority,
                waits,
            } => {
                let message = number.to_le_bytes();
                plain(match deadline(waits) {
                    None => posix.send(fd, &message, priority),
                    deadline => posix.timed_send(fd, &message, priority, deadline.as_ref()),
                })
            }
            Act::Receive { fd, waits } => self.receive(fd, waits),
            Act::Attributes { fd } => Reply::of(posix.attributes(fd), |got| {
                returned(0).with([got.flags, got.max_messages, got.message_size, got.messages])
            }),
            Act::Nonblock { fd, on } => {
                let flags = if on { libc::O_NONBLOCK } else { 0 };
                plain(posix.fcntl(fd, libc::F_SETFL, flags).map(drop))
            }
            Act::KeepOnExec { fd, keep } => {
                let flags = if keep { 0 } else { libc::FD_CLOEXEC };
                plain(posix.fcntl(fd, libc::F_SETFD, flags).map(drop))
            }
            Act::Dup { fd } => descriptor(posix.dup(fd)),
            Act::Dup2 { fd, onto } => descriptor(posix.dup2(fd, onto)),
            Act::Pass { fd } => plain(mailbox::send(MAILBOX[0], fd).map_err(Failure::from)),
            Act::Take => descriptor(mailbox::receive(MAILBOX[1]).map_err(Failure::from)),
            Act::Poll { fds, events, waits } => self.poll(fds, events, waits),
            Act::Select { fd } => self.select(fd),
            Act::MakeSet => descriptor(epoll::make_low().map_err(Failure::from)),
            Act::Control {
                set,
                operation,
                fd,
                events,
            } => {
                let u64 = number.into();
                let event = libc::epoll_event { events, u64 };
                let control = EpollControl {
                    set,
                    operation,
                    event,
                };
                plain(posix.control_epoll(fd, control))
            }
            Act::WaitSet { set, waits } => {
                let told = epoll::wait(set, if waits { -1 } else { 0 });
                Reply::of(told.map_err(Failure::from), |told| {
                    let flat = |(data, events): (u64, u32)| [data as i64, i64::from(events)];
                    returned(told.len() as i64).with(told.into_iter().flat_map(flat))
                })
            }
            Act::Notify { fd, signal } => {
                let event = signal.map(|signal| sigevent(signal, number));
                plain(posix.notify(fd, event.as_ref()))
            }
            Act::Notices => {
                let told = notices::told(|pid| self.who(pid));
                returned(told.len() as i64 / 5).with(told)
            }
            Act::StatusLine { fd } => self.status_line(fd),
            act => self.perform_typed(number, act),
        }
    }

    /// Performs the acts on System V queues.
    fn perform_typed(&self, number: u32, act: Act) -> Reply {
        let typed = &*self.typed;
        let flags = |waits| if waits { 0 } else { libc::IPC_NOWAIT };
        match act {
            Act::Get { key, flags } => {
                Reply::of(typed.get(0x6c69_7600 + key as i32, flags | 0o600), |id| {
                    self.ids()[key].store(id.cast_unsigned() + 1, Ordering::Relaxed);
                    returned(0)
                })
            }
            Act::SendTyped { key, kind, waits } => {
                plain(typed.send(self.id(key), kind, &number.to_le_bytes(), flags(waits)))
            }
            Act::ReceiveTyped { key, kind, waits } => {
                let mut buffer = [0; MESSAGE_SIZE];
                let got = typed.receive(self.id(key), &mut buffer, kind, flags(waits));
                Reply::of(got, |(length, kind)| Reply {
                    data: buffer[..length].to_vec(),
                    ..returned(length as i64).with([kind])
                })
            }
            Act::LimitBytes { key, bytes } => {
                let set = |status: typed::Status| {
                    let change = typed::Change {
                        max_bytes: bytes,
                        ..status.unchanged()
                    };
                    typed.set(self.id(key), &change)
                };
                plain(self.stat(key).and_then(set))
            }
            Act::Count { key } => Reply::of(self.stat(key), |status| {
                let counts = [status.messages, status.bytes, status.max_bytes];
                let ends = [status.last_sender, status.last_receiver].map(|pid| self.who(pid));
                returned(0)
                    .with(counts.map(|count| count as i64))
                    .with(ends)
            }),
            Act::Remove { key } => plain(typed.remove(self.id(key))),
            _ => unreachable!("done elsewhere"),
        }
    }

    /// Returns the identifier that the last msgget of any process returned for a key. Before the first msgget, the result is the invalid identifier
    /// -1.
    fn id(&self, key: usize) -> i32 {
        self.ids()[key].load(Ordering::Relaxed).cast_signed() - 1
    }

    fn stat(&self, key: usize) -> Answer<typed::Status> {
        self.typed
            .stat(self.id(key), libc::IPC_STAT)
            .map(|(_, status)| status)
    }

    fn receive(&self, fd: Fd, waits: Waits) -> Reply {
        let mut buffer = [0; MESSAGE_SIZE];
        let received = match deadline(waits) {
            None => self.posix.receive(fd, &mut buffer),
            deadline => self.posix.timed_receive(fd, &mut buffer, deadline.as_ref()),
        };
        Reply::of(received, |(length, priority)| Reply {
            data: buffer[..length.min(MESSAGE_SIZE)].to_vec(),
            ..returned(length as i64).with([i64::from(priority)])
        })
    }

    fn poll(&self, fds: [Fd; 2], events: i16, waits: bool) -> Reply {
        let mut entries = fds.map(|fd| libc::pollfd {
            fd,
            events,
            revents: -1,
        });
        let polled = self.posix.poll(&mut entries, if waits { -1 } else { 0 });
        Reply::of(polled, |count| {
            returned(count as i64).with(entries.map(|entry| i64::from(entry.revents)))
        })
    }

    fn select(&self, fd: Fd) -> Reply {
        let (mut readable, mut writable) = (sys::set_of(&[fd]), sys::set_of(&[fd]));
        let selected = self.posix.select(fd + 1, [&mut readable, &mut writable]);
        Reply::of(selected, |count| {
            let told = [readable, writable].map(|set| i64::from(sys::is_in(fd, &set)));
            returned(count as i64).with(told)
        })
    }

    /// Returns the status line of a queue. In place of the registered process's id, the answer contains the number of that process in the history.
    fn status_line(&self, fd: Fd) -> Reply {
        let mut line = [0; 100];
        Reply::of(self.posix.read_at(fd, &mut line, 0), |length| {
            let text = String::from_utf8_lossy(&line[..length]).into_owned();
            let (before, pid) = text.split_at(REGISTERED.min(text.len()));
            Reply {
                data: before.as_bytes().to_vec(),
                ..returned(length as i64).with([self.who(pid.trim().parse().unwrap_or(0))])
            }
        })
    }

    /// Returns the number of a process in the history. For the process id 0, returns 0. For the id of a process outside the history, returns -1.
    fn who(&self, pid: Pid) -> i64 {
        match find(self.processes(), pid.cast_unsigned()) {
            Some(at) => at as i64,
            None if pid == 0 => 0,
            None => -1,
        }
    }
}

fn descriptor(answer: Answer<Fd>) -> Reply {
    Reply::of(answer, |fd| Reply::new(Outcome::Descriptor(fd)))
}

fn deadline(waits: Waits) -> Option<libc::timespec> {
    match waits {
        Waits::Forever => None,
        Waits::Long => Some(sys::from_now(3_600_000)),
        Waits::Briefly => Some(sys::from_now(2)),
        Waits::Not => Some(sys::from_now(-1000)),
    }
}

fn sigevent(signal: i32, value: u32) -> libc::sigevent {
    // SAFETY: the structure consists of numbers and a pointer, for which zero is valid.
    let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
    event.sigev_notify = if signal == 0 {
        libc::SIGEV_NONE
    } else {
        libc::SIGEV_SIGNAL
    };
    event.sigev_signo = signal;
    event.sigev_value.sival_ptr = std::ptr::without_provenance_mut(value as usize);
    event
}
