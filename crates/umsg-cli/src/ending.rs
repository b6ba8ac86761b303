//! Handles SIGINT and SIGTERM for `umsg recv --exec`: the first signal ends the receiving, the second one ends the running commands.
//!
//! The signals are blocked in all threads. The main thread reads them from a descriptor, and interrupts the thread that waits in a queue: see
//! [`crate::lookout`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::inherited::is_ignored;
use crate::lookout::{self, PERSISTENCE, Waiting};

/// The events that end the command step by step. An event stays set once it has happened.
pub struct Ending {
    signals: OwnedFd,
    /// The signals that were blocked before [`Ending::prepare`].
    mask: libc::sigset_t,
    /// The event of the first signal, or of [`Ending::ask`]: no new commands start.
    asked: OwnedFd,
    /// The event of the second signal: the running commands end, too.
    urgent: OwnedFd,
    /// The event that all threads have ended.
    over: OwnedFd,
    /// The id of the thread that waits in the queue; 0 if no thread waits.
    receiver: AtomicI32,
}

impl Ending {
    /// Blocks the signals in the calling thread, and so in all threads that it starts later. The caller makes this call before it starts other
    /// threads.
    pub fn prepare() -> io::Result<Ending> {
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let (signals, mask) = block(&[libc::SIGINT, libc::SIGTERM])?;
        Ok(Ending {
            signals,
            mask,
            asked: event()?,
            urgent: event()?,
            over: event()?,
            receiver: AtomicI32::new(0),
        })
    }

    /// Makes `command` start with the signal mask that this process had before [`Self::prepare`].
    pub fn unblock_in(&self, command: &mut Command) {
        let mask = self.mask;
        let restore = move || {
            // SAFETY: `mask` is a live signal set.
            match unsafe {
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, ptr::null_mut())
            } {
                0 => Ok(()),
                error => Err(io::Error::from_raw_os_error(error)),
            }
        };
        // SAFETY: the closure makes one call, which is async-signal-safe.
        unsafe { command.pre_exec(restore) };
    }

    /// Waits for signals until [`Self::finish`] is called.
    pub fn supervise(&self) {
        let (mut count, mut is_asked) = (0, false);
        loop {
            let pause = is_asked.then_some(PERSISTENCE);
            // The event stays set, so it is waited for only once.
            let asked = if is_asked { &self.over } else { &self.asked };
            let events = [&self.signals, &self.over, asked].map(AsFd::as_fd);
            let ready = wait_for(events, pause);
            if ready[1] {
                return;
            }
            if ready[0] && self.take_signal() {
                count += 1;
                raise(if count == 1 {
                    &self.asked
                } else {
                    &self.urgent
                });
            }
            is_asked = is_asked || count > 0 || ready[2];
            if is_asked {
                lookout::interrupt(&self.receiver);
            }
        }
    }

    /// Ends the receiving, as the first signal does.
    pub fn ask(&self) {
        raise(&self.asked);
    }

    pub fn finish(&self) {
        raise(&self.over);
    }

    pub fn is_asked(&self) -> bool {
        wait_for([self.asked.as_fd()], Some(Duration::ZERO))[0]
    }

    /// Sleeps for a time, or until the first signal.
    pub fn sleep(&self, time: Duration) {
        wait_for([self.asked.as_fd()], Some(time));
    }

    /// Returns a descriptor that is readable after the second signal.
    pub fn urgent(&self) -> BorrowedFd<'_> {
        self.urgent.as_fd()
    }

    /// Marks the calling thread as the one that waits in the queue.
    pub fn receiving(&self) -> Waiting<'_> {
        lookout::mark(&self.receiver, true)
    }

    fn take_signal(&self) -> bool {
        let mut record = [0; size_of::<libc::signalfd_siginfo>()];
        rustix::io::read(&self.signals, &mut record).is_ok()
    }
}

/// The last signal that the handler has recorded; 0 if there is none.
static NOTED: AtomicI32 = AtomicI32::new(0);

extern "C" fn note_signal(signal: libc::c_int) {
    // Relaxed: the number publishes no other data.
    NOTED.store(signal, Ordering::Relaxed);
}

/// Installs a handler that records these signals, so that they interrupt waits instead of ending the command. Signals that the caller ignores stay
/// ignored.
pub fn note(signals: &[libc::c_int]) {
    let handler = note_signal as extern "C" fn(libc::c_int);
    for &signal in signals.iter().filter(|&&signal| !is_ignored(signal)) {
        // SAFETY: all zeros are a valid sigaction without flags; the handler makes one store.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as libc::sighandler_t;
            libc::sigaction(signal, &raw const action, ptr::null_mut());
        }
    }
}

/// Returns the signal that was recorded last, and clears the record.
pub fn noted() -> Option<libc::c_int> {
    // Relaxed: the number publishes no other data, as in `note_signal`.
    Some(NOTED.swap(0, Ordering::Relaxed)).filter(|&signal| signal != 0)
}

/// Ignores these signals from now on.
pub fn ignore(signals: &[libc::c_int]) {
    for &signal in signals {
        // SAFETY: an ignored signal runs no code.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

fn raise(event: &OwnedFd) {
    // The write fails only if the counter has its highest value. Then the event has already happened.
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

/// Waits until a descriptor is readable, or until the time is over. With the time None, waits without a limit.
pub fn wait_for<const N: usize>(
    descriptors: [BorrowedFd<'_>; N],
    time: Option<Duration>,
) -> [bool; N] {
    let mut polled = descriptors
        .each_ref()
        .map(|descriptor| PollFd::new(descriptor, PollFlags::IN));
    // If the time exceeds the range of the kernel's clock, the wait has no limit.
    let time = time.and_then(|time| Timespec::try_from(time).ok());
    match poll(&mut polled, time.as_ref()) {
        Ok(_) => polled.map(|polled| !polled.revents().is_empty()),
        Err(_) => [false; N],
    }
}

pub const INTERRUPT: libc::c_int = libc::SIGINT;
pub const TERMINATE: libc::c_int = libc::SIGTERM;
pub const USER: libc::c_int = libc::SIGUSR1;

/// Blocks these signals in the calling thread, and so in all threads that it starts later. Returns the descriptor that reads the signals. Signals
/// that the caller ignores stay ignored.
pub fn listen(signals: &[libc::c_int]) -> io::Result<OwnedFd> {
    block(signals).map(|(descriptor, _)| descriptor)
}

/// Reads the number of a signal from the descriptor that [`listen`] returned.
pub fn heard(descriptor: BorrowedFd<'_>) -> Option<libc::c_int> {
    let mut record = [0; size_of::<libc::signalfd_siginfo>()];
    rustix::io::read(descriptor, &mut record).ok()?;
    let (number, _) = record.split_first_chunk()?;
    Some(u32::from_ne_bytes(*number).cast_signed())
}

/// Blocks the signals that the caller does not ignore. Returns the descriptor that reads these signals, and the signals that were blocked before.
fn block(signals: &[libc::c_int]) -> io::Result<(OwnedFd, libc::sigset_t)> {
    lookout::handle_interruptions()?;
    // SAFETY: all zeros are a valid sigset_t, and each call gets pointers to live values of this type. signalfd returns a new descriptor
    // or -1.
    unsafe {
        let mut set = std::mem::zeroed();
        let mut mask = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for &signal in signals {
            if !is_ignored(signal) {
                libc::sigaddset(&raw mut set, signal);
            }
        }
        if libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut mask) != 0 {
            return Err(io::Error::last_os_error());
        }
        match libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            descriptor => Ok((OwnedFd::from_raw_fd(descriptor), mask)),
        }
    }
}
