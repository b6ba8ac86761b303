//! The common operations of POSIX queues, System V queues and rings, for tests that hold for all three.

use std::time::Duration;
use umsg::ring::{self, Post, Ring, Sender, Until};
use umsg::{Namespace, posix, sysv};

/// The maximum number of messages that a [`Face`] holds, if there is memory for them.
const MOST: u32 = 100_000;

/// An error as a program sees it: the error number and the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub errno: i32,
    pub text: String,
}

impl Told {
    /// Checks the error and its text.
    #[track_caller]
    pub fn says(&self, errno: i32, texts: &[&str]) {
        assert_eq!(self.errno, errno, "{}", self.text);
        for text in texts {
            assert!(self.text.contains(text), "{text:?} is not in {self:?}");
        }
    }
}

macro_rules! told {
    ($($error:ty),*) => {
        $(impl From<$error> for Told {
            fn from(error: $error) -> Told {
                Told { errno: error.errno(), text: error.to_string() }
            }
        })*
    };
}

told!(
    posix::OpenError,
    posix::SendError,
    posix::ReceiveError,
    posix::UnlinkError,
    posix::NotifyError,
    sysv::OpenError,
    sysv::SendError,
    sysv::ReceiveError,
    sysv::ControlError,
    ring::RingError,
    ring::SendError,
    ring::ReceiveError
);

/// A queue or ring of messages of up to 4,096 bytes.
pub trait Face: Sized {
    const NAME: &'static str;
    /// The error number of a send that fails for lack of space. It differs between the APIs, because msgsnd(2) has no ENOSPC.
    const NO_SPACE: i32;
    /// The number of groups of messages. The last group is received first; messages of a group are received in the order of their sends.
    const GROUPS: u64;

    fn make(namespace: &Namespace) -> Result<Self, Told>;

    /// Does the same as [`make`](Self::make), with room for `messages` messages, or in a System V queue for `messages` bytes.
    fn make_small(namespace: &Namespace, messages: u32) -> Result<Self, Told>;

    /// Sends a message of a group if there is room for it.
    fn send(&self, group: u64, message: &[u8]) -> Result<(), Told>;

    fn send_timeout(&self, message: &[u8], timeout: Duration) -> Result<(), Told>;

    fn receive(&mut self) -> Result<Vec<u8>, Told>;

    fn receive_timeout(&mut self, timeout: Duration) -> Result<Vec<u8>, Told>;

    fn messages(&self) -> u64;

    fn is_damaged(&self) -> bool;

    fn remove(self, namespace: &Namespace);
}

pub struct Posix {
    queue: posix::Queue,
    name: &'static str,
}

impl Face for Posix {
    const NAME: &'static str = "POSIX";
    const NO_SPACE: i32 = libc::ENOSPC;
    const GROUPS: u64 = 3;

    fn make(namespace: &Namespace) -> Result<Posix, Told> {
        Posix::make_small(namespace, MOST)
    }

    fn make_small(namespace: &Namespace, messages: u32) -> Result<Posix, Told> {
        let mut options = posix::OpenOptions::new();
        options.read(true).write(true).create(true);
        options.max_messages(messages).message_size(4096);
        let name = "/face";
        let queue = options.namespace(namespace).open(name)?;
        Ok(Posix { queue, name })
    }

    fn send(&self, group: u64, message: &[u8]) -> Result<(), Told> {
        Ok(self.queue.try_send(message, group as u32)?)
    }

    fn send_timeout(&self, message: &[u8], timeout: Duration) -> Result<(), Told> {
        Ok(self.queue.send_timeout(message, 0, timeout)?)
    }

    fn receive(&mut self) -> Result<Vec<u8>, Told> {
        let mut buffer = vec![0; 4096];
        let received = self.queue.try_receive(&mut buffer)?;
        buffer.truncate(received.len);
        Ok(buffer)
    }

    fn receive_timeout(&mut self, timeout: Duration) -> Result<Vec<u8>, Told> {
        let mut buffer = vec![0; 4096];
        let received = self.queue.receive_timeout(&mut buffer, timeout)?;
        buffer.truncate(received.len);
        Ok(buffer)
    }

    fn messages(&self) -> u64 {
        self.queue.attributes().messages as u64
    }

    fn is_damaged(&self) -> bool {
        self.queue.status().damaged
    }

    fn remove(self, namespace: &Namespace) {
        posix::unlink_in(namespace, self.name).unwrap();
    }
}

pub struct SystemV(sysv::Queue);

impl Face for SystemV {
    const NAME: &'static str = "System V";
    const NO_SPACE: i32 = libc::ENOMEM;
    const GROUPS: u64 = 1;

    fn make(namespace: &Namespace) -> Result<SystemV, Told> {
        SystemV::make_small(namespace, 1 << 30)
    }

    fn make_small(namespace: &Namespace, bytes: u32) -> Result<SystemV, Told> {
        let mut options = sysv::OpenOptions::new();
        options.create(true).namespace(namespace);
        let queue = options.open(libc::IPC_PRIVATE)?;
        let change = sysv::Change {
            qbytes: Some(bytes.into()),
            ..sysv::Change::default()
        };
        queue.set(&change)?;
        Ok(SystemV(queue))
    }

    fn send(&self, group: u64, message: &[u8]) -> Result<(), Told> {
        Ok(self.0.try_send(group as i64 + 1, message)?)
    }

    fn send_timeout(&self, message: &[u8], timeout: Duration) -> Result<(), Told> {
        Ok(self.0.send_timeout(1, message, timeout)?)
    }

    fn receive(&mut self) -> Result<Vec<u8>, Told> {
        let mut buffer = vec![0; 4096];
        let received = self.0.try_receive(sysv::Want::Any, &mut buffer)?;
        buffer.truncate(received.len);
        Ok(buffer)
    }

    fn receive_timeout(&mut self, timeout: Duration) -> Result<Vec<u8>, Told> {
        let mut buffer = vec![0; 4096];
        let received = self
            .0
            .receive_timeout(sysv::Want::Any, &mut buffer, timeout)?;
        buffer.truncate(received.len);
        Ok(buffer)
    }

    fn messages(&self) -> u64 {
        self.0.status().unwrap().entry.messages
    }

    fn is_damaged(&self) -> bool {
        self.0.status().unwrap().damaged
    }

    fn remove(self, _: &Namespace) {
        self.0.remove().unwrap();
    }
}

pub struct Named {
    ring: Ring,
    sender: Sender,
}

impl Face for Named {
    const NAME: &'static str = "ring";
    const NO_SPACE: i32 = libc::ENOSPC;
    const GROUPS: u64 = 1;

    fn make(namespace: &Namespace) -> Result<Named, Told> {
        Named::make_small(namespace, MOST)
    }

    fn make_small(namespace: &Namespace, messages: u32) -> Result<Named, Told> {
        let mut options = ring::Options::new();
        options.entries(messages).overflow(0).longest(4096);
        let ring = options.create_in(namespace, "/face")?;
        let sender = Sender::open_in(namespace, "/face")?;
        Ok(Named { ring, sender })
    }

    fn send(&self, _: u64, message: &[u8]) -> Result<(), Told> {
        Ok(self.sender.send_long(&Post::new(0), message, Until::Now)?)
    }

    fn send_timeout(&self, message: &[u8], timeout: Duration) -> Result<(), Told> {
        let until = Until::Time(std::time::SystemTime::now() + timeout);
        Ok(self.sender.send_long(&Post::new(0), message, until)?)
    }

    fn receive(&mut self) -> Result<Vec<u8>, Told> {
        Ok(self.ring.try_receive()?.payload.to_vec())
    }

    fn receive_timeout(&mut self, timeout: Duration) -> Result<Vec<u8>, Told> {
        Ok(self.ring.receive_timeout(timeout)?.payload.to_vec())
    }

    fn messages(&self) -> u64 {
        self.ring.available()
    }

    fn is_damaged(&self) -> bool {
        self.ring.status().damaged
    }

    fn remove(self, _: &Namespace) {
        drop(self.ring);
    }
}

/// Makes one test for each API from a function that takes a [`Face`] as its type parameter.
#[macro_export]
macro_rules! for_each_face {
    ($($test:ident)*) => {
        $(mod $test {
            #[test]
            fn of_posix() {
                super::$test::<super::support::face::Posix>();
            }
            #[test]
            fn of_system_v() {
                super::$test::<super::support::face::SystemV>();
            }
            #[test]
            fn of_rings() {
                super::$test::<super::support::face::Named>();
            }
        })*
    };
}
