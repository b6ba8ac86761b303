//! Notifications that start a thread: SIGEV_THREAD of mq_notify(2).
//!
//! The C library passes a netlink socket and 32 bytes, the cookie, to the kernel. For a notification, the kernel sends the cookie to that socket,
//! with the event in the last byte. A thread of the C library receives the cookie and starts the function. A process can't send to that socket, so
//! the supervisor does one of two things:
//!
//! | C library | the cookie | how it reaches the thread |
//! |---|---|---|
//! | glibc | the function, its argument and its attributes; one socket for all queues, from which a thread receives in a loop | The supervisor replaces the socket by one end of a pair of sockets. A message without an event makes the thread of glibc receive again, from the new socket. |
//! | musl | zeroes; a socket for each registration, from which a thread receives once | The supervisor sends the kernel an empty netlink message by the program's socket. The last of the first 32 bytes of the kernel's acknowledgement is the event. |

use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::pid_t;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair, sockopt};

use super::listener::{Call, Listener};
use super::memory;

/// The length of a cookie. Source: ipc/mqueue.c, NOTIFY_COOKIE_LEN.
const LEN: usize = 32;

/// The bytes of a cookie.
pub type Bytes = [u8; LEN];

/// The events in the last byte of a cookie. Source: ipc/mqueue.c, NOTIFY_WOKENUP and NOTIFY_REMOVED.
pub const NOTIFIED: u8 = 1;
pub const WITHDRAWN: u8 = 2;

/// The pair of sockets that has replaced the netlink socket of a process.
pub struct Mailbox {
    process: pid_t,
    number: RawFd,
    ours: OwnedFd,
    theirs: OwnedFd,
}

impl Mailbox {
    /// Returns whether the process still has its end of the pair.
    pub fn is_open(&self) -> bool {
        memory::is_same_file(self.process, self.number, self.theirs.as_fd())
    }
}

enum Route {
    Mailbox(Arc<Mailbox>),
    /// The netlink socket of the program, to which the kernel can be made to send an acknowledgement.
    Acknowledgement(OwnedFd),
}

/// The cookie of a registration, and the route (socket or mailbox) by which it reaches the thread that waits for it.
pub struct Cookie {
    bytes: Bytes,
    route: Route,
    /// Relaxed: the flag publishes no other data.
    is_sent: AtomicBool,
}

/// Reads the bytes of a cookie. The read may block, because the program can delay accesses to its memory.
pub fn read(call: &Call, address: u64) -> Result<Bytes, i32> {
    memory::read(call.thread, address)
}

impl Cookie {
    /// Chooses the route of a cookie: the socket `number` of the program, or a mailbox. `mailboxes` has all mailboxes; the function adds a new
    /// mailbox if necessary.
    pub fn of(
        listener: &Listener,
        call: &Call,
        bytes: Bytes,
        number: RawFd,
        mailboxes: &mut Vec<Arc<Mailbox>>,
    ) -> Result<Cookie, i32> {
        let socket = memory::copy_descriptor(call.thread, number)?;
        let cookie = |route| Cookie {
            bytes,
            route,
            is_sent: AtomicBool::new(false),
        };
        let me = std::process::id().cast_signed();
        let number_here = std::os::fd::AsRawFd::as_raw_fd(&socket);
        let is_it =
            |known: &&Arc<Mailbox>| memory::is_same_file(me, number_here, known.theirs.as_fd());
        if let Some(known) = mailboxes.iter().find(is_it) {
            return Ok(cookie(Route::Mailbox(Arc::clone(known))));
        }
        let errno = rustix::io::Errno::raw_os_error;
        if sockopt::socket_domain(&socket).map_err(errno)? != AddressFamily::NETLINK {
            return Err(libc::EINVAL);
        }
        if bytes[..LEN - 1].iter().all(|byte| *byte == 0) {
            return Ok(cookie(Route::Acknowledgement(socket)));
        }
        // With datagrams, the receiving thread keeps sleeping after the supervisor's death. With a stream, the thread would read the end of file in
        // an endless loop.
        let (kind, flags) = (SocketType::DGRAM, SocketFlags::CLOEXEC);
        let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, flags, None).map_err(errno)?;
        let process = memory::status(call.thread).ok_or(libc::EBADF)?.process;
        listener
            .replace(call, number, theirs.as_fd(), true)
            .map_err(|error| error.raw_os_error().unwrap_or(libc::EBADF))?;
        acknowledge(&socket, 0);
        let mailbox = Arc::new(Mailbox {
            process,
            number,
            ours,
            theirs,
        });
        mailboxes.push(Arc::clone(&mailbox));
        Ok(cookie(Route::Mailbox(mailbox)))
    }

    /// Sends the cookie once. If the program does not receive, the cookie is lost.
    pub fn send(&self, event: u8) {
        if self.is_sent.swap(true, Ordering::Relaxed) {
            return;
        }
        match &self.route {
            Route::Mailbox(mailbox) => {
                let mut bytes = self.bytes;
                bytes[LEN - 1] = event;
                let _ = send(
                    &mailbox.ours,
                    &bytes,
                    SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
                );
            }
            Route::Acknowledgement(socket) => acknowledge(socket, event),
        }
    }
}

/// Makes the kernel send an acknowledgement of an empty message to a netlink socket. From byte 20 on, the acknowledgement repeats the message's
/// header. So the sequence number of the message is in the bytes 28 to 31, and its last byte is the event. Source: netlink_ack in
/// net/netlink/af_netlink.c.
fn acknowledge(socket: &OwnedFd, last: u8) {
    const NLMSG_NOOP: u16 = 1;
    const NLM_F_ACK: u16 = 4;
    let mut message = [0; 16];
    message[..4].copy_from_slice(&16_u32.to_ne_bytes());
    message[4..6].copy_from_slice(&NLMSG_NOOP.to_ne_bytes());
    message[6..8].copy_from_slice(&NLM_F_ACK.to_ne_bytes());
    message[11] = last;
    // An error is ignored: if the socket is full, its receiver already has a message to read.
    let _ = send(socket, &message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}
