//! The kernel's alternatives to queues: a pipe, a pair of Unix sockets, an eventfd. Each message takes a system call of the sender, and another of
//! the receiver.

use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};

use super::{Abilities, Link, Peer, Receiver, SIZE, Sender, Way, whole};
use crate::backends::{Errno, Spec};
use crate::failure::Failure;

/// A pipe with the default size of the system.
pub struct Pipe;

impl Peer for Pipe {
    type Link = Ends<SIZE>;

    const ABILITIES: Abilities = Abilities::ALL;

    fn name(&self) -> &'static str {
        "pipe"
    }

    fn about(&self) -> String {
        "of the system's size (64 KiB), write and read of 64 bytes".to_owned()
    }

    fn make(&self, _spec: &Spec) -> Result<Ends<SIZE>, Failure> {
        Ends::pair("pipe2", |two| {
            // SAFETY: the call writes two descriptors into an array of two.
            unsafe { libc::pipe2(two.as_mut_ptr(), libc::O_CLOEXEC) }
        })
    }
}

/// A pair of Unix sockets that preserve the boundaries of messages.
pub struct Socket;

impl Peer for Socket {
    type Link = Ends<SIZE>;

    const ABILITIES: Abilities = Abilities::ALL;

    fn name(&self) -> &'static str {
        "Unix socket"
    }

    fn about(&self) -> String {
        "a pair of SOCK_SEQPACKET with the system's buffers".to_owned()
    }

    fn make(&self, _spec: &Spec) -> Result<Ends<SIZE>, Failure> {
        Ends::pair("socketpair", |two| {
            let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
            // SAFETY: the call writes two descriptors into an array of two.
            unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, two.as_mut_ptr()) }
        })
    }
}

/// An eventfd: a counter on which a reader sleeps. A queue in shared memory can wake its receiver in this way.
pub struct Eventfd;

/// The length of a read or write of a counter, in bytes.
const WORD: usize = size_of::<u64>();

impl Peer for Eventfd {
    type Link = Ends<WORD>;

    const ABILITIES: Abilities = Abilities {
        carries: false,
        ..Abilities::ALL
    };

    fn name(&self) -> &'static str {
        "eventfd"
    }

    fn about(&self) -> String {
        "wakes up and carries nothing, so that there is no stream of it".to_owned()
    }

    fn make(&self, _spec: &Spec) -> Result<Ends<WORD>, Failure> {
        // SAFETY: the call takes a number and flags.
        let counter = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if counter < 0 {
            return Err(Failure::system("eventfd"));
        }
        // SAFETY: the call has just opened the descriptor, and no other value owns it.
        let counter = unsafe { OwnedFd::from_raw_fd(counter) };
        Ok(Ends {
            write: counter.try_clone()?,
            read: counter,
        })
    }
}

/// The descriptors for writing and for reading. Each call transfers `N` bytes. The parent keeps both ends open, so no child sees the end of the
/// stream.
pub struct Ends<const N: usize> {
    read: OwnedFd,
    write: OwnedFd,
}

impl<const N: usize> Ends<N> {
    fn pair(name: &str, open: impl FnOnce(&mut [RawFd; 2]) -> i32) -> Result<Self, Failure> {
        let mut two = [-1; 2];
        if open(&mut two) != 0 {
            return Err(Failure::system(name));
        }
        // SAFETY: the call has just opened both descriptors, and no other value owns them.
        let [read, write] = two.map(|number| unsafe { OwnedFd::from_raw_fd(number) });
        Ok(Self { read, write })
    }
}

/// Sets how a descriptor waits. Both ends of a link wait in the same way, so the ends may share the open file.
fn set(descriptor: &OwnedFd, way: Way) -> Result<RawFd, Failure> {
    let flags = match way {
        Way::Polling => libc::O_NONBLOCK,
        _ => 0,
    };
    // SAFETY: the call takes a descriptor of this process and flags, and touches no memory.
    match unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_SETFL, flags) } {
        0 => Ok(descriptor.as_raw_fd()),
        _ => Err(Failure::system("F_SETFL")),
    }
}

impl<const N: usize> Link for Ends<N> {
    type Sender<'a> = Writer<N>;
    type Receiver<'a> = Reader<N>;

    fn sender(&self, way: Way) -> Result<Writer<N>, Failure> {
        set(&self.write, way).map(Writer)
    }

    fn receiver(&self, way: Way) -> Result<Reader<N>, Failure> {
        set(&self.read, way).map(Reader)
    }
}

/// The end for writing. The writer does not outlive the link, because its process ends before the link does.
pub struct Writer<const N: usize>(RawFd);

impl<const N: usize> Sender for Writer<N> {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<(), Errno> {
        self.try_send(message)
    }

    #[inline]
    fn try_send(&mut self, message: &[u8]) -> Result<(), Errno> {
        // A write to an eventfd adds the written number to the counter.
        let one = 1_u64.to_ne_bytes();
        let bytes = if N == WORD { &one[..] } else { message };
        // SAFETY: pointer and length are those of one slice, which is only read.
        match unsafe { libc::write(self.0, bytes.as_ptr().cast(), bytes.len()) } {
            length if length == N as isize => Ok(()),
            length if length < 0 => Err(Errno::last()),
            // A pipe writes this many bytes as a whole or not at all, so a shorter write is an error.
            _ => Err(Errno(libc::EIO)),
        }
    }
}

/// The end for reading. The reader does not outlive the link, because its process ends before the link does.
pub struct Reader<const N: usize>(RawFd);

impl<const N: usize> Receiver for Reader<N> {
    #[inline]
    fn receive(&mut self, buffer: &mut [u8]) -> Result<(), Errno> {
        self.try_receive(buffer)
    }

    #[inline]
    fn try_receive(&mut self, buffer: &mut [u8]) -> Result<(), Errno> {
        let room = &mut buffer[..N];
        // SAFETY: pointer and length are those of one slice, borrowed mutably.
        match unsafe { libc::read(self.0, room.as_mut_ptr().cast(), N) } {
            length if length < 0 => Err(Errno::last()),
            length if N == SIZE => whole(length as usize),
            _ => Ok(()),
        }
    }
}
