//! The doorbell: a datagram socket that makes a ring's descriptor readable, and through which senders pass descriptors.
//!
//! ```text
//!   sender                      receiver's socket                 receiver
//!   rings: one byte   ------->  [ . | fd + ticket | . ]  ------->  polls it; empties it when the ring is empty
//!   passes a descriptor  ---->                                     keeps the descriptor for its message
//! ```
//!
//! A ring without a name has a pair of sockets. A named ring has a socket in its namespace beside its file, see `place.rs`. A sender rings only if
//! the ring's wake word says that the receiver is about to poll. Otherwise a send makes no system call.

use super::place::{Address, DoorbellPath};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::Mode;
use rustix::io::{self, Errno};
use rustix::io::{IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, recvmsg,
    sendmsg, sendmsg_addr, sendto, socket_with, socketpair,
};
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::path::PathBuf;
use umsg_shm::sys::limit;

/// The number of a passed descriptor, unique in the ring. A message with a descriptor has the number in `res`.
pub(super) type Ticket = i32;

/// Bytes of a datagram that brings a descriptor.
const LABEL: usize = size_of::<Ticket>();

/// The maximum number of descriptors that wait for their messages. If more descriptors arrive, the oldest are closed.
const MOST: u64 = 1024;

/// Returns how many descriptors may wait. The number is limited, because senders must not use up the receiver's descriptors.
fn most() -> usize {
    limit::of_descriptors().map_or(MOST, |limit| (limit / 4).min(MOST)) as usize
}

/// The sender's end of a doorbell.
#[derive(Debug)]
pub(super) enum Button {
    /// A doorbell within a process and its forked children.
    Paired(OwnedFd),
    /// A doorbell in a namespace.
    Named(DoorbellPath),
}

impl Button {
    /// Makes the receiver's descriptor readable. Returns false if this process can't ring, and another process should: for a named ring, a sender
    /// needs a free descriptor number. Without a receiver the call has no effect.
    pub(super) fn press(&self) -> bool {
        is_rung(match self {
            Button::Paired(socket) => ring_pair(socket.as_fd()),
            Button::Named(place) => unnamed_socket()
                .and_then(|socket| place.reach(|address| ring_at(socket.as_fd(), address))),
        })
    }

    /// Passes a descriptor to the receiver.
    ///
    /// # Errors
    /// ENOENT or ECONNREFUSED if the owner of the ring has no socket at the doorbell's place.
    pub(super) fn pass(&self, ticket: Ticket, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        match self {
            Button::Paired(socket) => pass_by(socket.as_fd(), None, ticket, descriptor),
            Button::Named(place) => {
                let socket = unnamed_socket()?;
                place.reach(|to| pass_by(socket.as_fd(), Some(to), ticket, descriptor))
            }
        }
    }
}

/// Passes a descriptor to the socket at an address or, without an address, to the connected socket.
fn pass_by(
    socket: BorrowedFd<'_>,
    to: Option<&SocketAddrUnix>,
    ticket: Ticket,
    descriptor: BorrowedFd<'_>,
) -> io::Result<()> {
    let label = ticket.to_ne_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor];
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    let bytes = [IoSlice::new(&label)];
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    match to {
        None => sendmsg(socket, &bytes, &mut ancillary, flags)?,
        Some(address) => sendmsg_addr(socket, address, &bytes, &mut ancillary, flags)?,
    };
    Ok(())
}

fn ring_pair(socket: BorrowedFd<'_>) -> io::Result<usize> {
    rustix::net::send(socket, b".", SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
}

fn ring_at(socket: BorrowedFd<'_>, address: &SocketAddrUnix) -> io::Result<usize> {
    sendto(
        socket,
        b".",
        SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
        address,
    )
}

/// Returns whether the doorbell has rung. A full socket is readable, too. If the socket no longer exists, no process polls it.
fn is_rung(outcome: io::Result<usize>) -> bool {
    matches!(
        outcome,
        Ok(_) | Err(Errno::AGAIN | Errno::CONNREFUSED | Errno::NOENT)
    )
}

fn unnamed_socket() -> io::Result<OwnedFd> {
    socket_with(
        AddressFamily::UNIX,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )
}

/// The receiver's end of a doorbell.
#[derive(Debug)]
pub(super) struct Doorbell {
    socket: OwnedFd,
    /// The path of the socket, which is removed when the ring is dropped.
    path: Option<PathBuf>,
    /// Descriptors that came before their messages, oldest first.
    waiting: VecDeque<(Ticket, OwnedFd)>,
    /// The count of passed descriptors when the receiver last took them in.
    taken_in: u32,
}

impl Doorbell {
    /// Makes a doorbell and its button, for a ring without a name.
    pub(super) fn pair() -> io::Result<(Doorbell, Button)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let kind = match cfg!(miri) {
            true => SocketType::STREAM,
            false => SocketType::DGRAM,
        };
        let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, flags, None)?;
        Ok((Doorbell::new(ours, None), Button::Paired(theirs)))
    }

    /// Makes the doorbell of a named ring, at its path. A process with write access may ring, and pass descriptors.
    pub(super) fn at(path: PathBuf, mode: u32) -> io::Result<Doorbell> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        bind(&socket, Address::of(&path)?.socket())?;
        let doorbell = Doorbell::new(socket, Some(path.clone()));
        rustix::fs::chmod(&path, Mode::from_raw_mode(mode))?;
        Ok(doorbell)
    }

    fn new(socket: OwnedFd, path: Option<PathBuf>) -> Doorbell {
        Doorbell {
            socket,
            path,
            waiting: VecDeque::new(),
            taken_in: 0,
        }
    }

    /// Rings from the receiver's side. The call uses the receiver's own socket, and no further descriptor.
    pub(super) fn ring(&self, button: &Button) {
        let _ = match button {
            Button::Paired(socket) => ring_pair(socket.as_fd()),
            // The receiver created the socket and has not removed it yet, so no other file has the socket's name.
            Button::Named(place) => Address::of(place.path())
                .and_then(|address| ring_at(self.socket.as_fd(), address.socket())),
        };
    }

    /// Takes in the passed descriptors when the ring is empty; `passed` is the number of descriptors that were passed so far. Some descriptors have
    /// no message, because there was no room for the message, or its sender died. If these descriptors stayed, they would fill the socket, and other
    /// senders could not pass descriptors.
    #[inline]
    pub(super) fn take_in(&mut self, passed: u32) {
        if self.taken_in != passed {
            self.taken_in = passed;
            self.empty();
        }
    }

    /// Returns the descriptor that is readable once the doorbell has rung.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Gives up a doorbell that belongs to another process: after this call, a drop of this value does not remove the socket's path.
    pub(super) fn leave(&mut self) {
        self.path = None;
    }

    /// Takes all datagrams out of the socket.
    pub(super) fn empty(&mut self) {
        while let Ok(Some(arrived)) = self.take_one() {
            let Some((label, descriptor)) = arrived else {
                continue;
            };
            if self.waiting.len() >= most() {
                // The sender of the oldest descriptor has not sent its message, probably because the sender died.
                self.waiting.pop_front();
            }
            self.waiting.push_back((label, descriptor));
        }
    }

    /// Returns the descriptor of a message. The call takes datagrams out of the socket. These datagrams also tell a poller that there are messages.
    /// So the call rings again if a process polls the doorbell (`button` is set).
    pub(super) fn fetch(&mut self, ticket: Ticket, button: Option<&Button>) -> Option<OwnedFd> {
        self.find(ticket).or_else(|| {
            self.empty();
            if let Some(button) = button {
                self.ring(button);
            }
            self.find(ticket)
        })
    }

    fn find(&mut self, ticket: Ticket) -> Option<OwnedFd> {
        let index = self.waiting.iter().position(|(of, _)| *of == ticket)?;
        self.waiting.remove(index).map(|(_, descriptor)| descriptor)
    }

    /// Takes one datagram out of the socket. Returns `None` if the socket has no datagram. The inner value is `None` if the datagram contained no
    /// descriptor.
    fn take_one(&mut self) -> io::Result<Option<Option<(Ticket, OwnedFd)>>> {
        let mut label = [0; LABEL];
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1), ScmCredentials(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let mut bytes = [IoSliceMut::new(&mut label)];
        let received = match recvmsg(&self.socket, &mut bytes, &mut ancillary, flags) {
            Ok(received) => received.bytes,
            Err(Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut descriptor = None;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
                descriptor = descriptors.next();
            }
        }
        if received != LABEL {
            return Ok(Some(None));
        }
        let ticket = Ticket::from_ne_bytes(label);
        Ok(Some(descriptor.map(|descriptor| (ticket, descriptor))))
    }
}

impl Doorbell {
    /// Removes the doorbell's path.
    pub(super) fn remove_path(&mut self) {
        if let Some(path) = self.path.take() {
            let _ = rustix::fs::unlink(path);
        }
    }
}

impl Drop for Doorbell {
    fn drop(&mut self) {
        self.remove_path();
    }
}
