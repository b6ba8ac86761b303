//! The consents of other processes, as a sender reads them.
//!
//! A process keeps the pages of some other processes mapped, in a table. A send may run in a signal handler, so this module does not call malloc, and
//! no thread waits in this module. A thread that finds the table in use raises no signal: the helper thread of the registered process then raises the
//! signal.

use super::own::SEALS;
use super::page::{PLACES, Page};
use super::{Asked, NAME, name_of};
use crate::sys::kept_descriptor::{Own, raise as raise_number};
use crate::sys::map::{Mapping, PAGE};
use crate::sys::stack::roomy;
use crate::sys::{clock, exists, file, home, process, reserved_descriptors, stat, thread};
use rustix::fs::{CWD, Mode, OFlags, fcntl_get_seals, fstat, openat};
use rustix::io::Errno;
use std::cell::UnsafeCell;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of other processes in the table.
const MOST: usize = 16;

/// The time between two attempts to meet a process, in nanoseconds. To *meet* a process is to find its page and check that the process attests it.
const AGAIN: u64 = 10_000_000;

/// Another process in the table.
struct Peer {
    pid: u32,
    /// The time of the last attempt to meet the process (CLOCK_MONOTONIC_COARSE).
    tried: u64,
    met: Option<Met>,
}

/// A process that attests its page.
struct Met {
    page: Mapping,
    /// The number of the descriptor of the helper thread. `file` is the device and the inode number of the descriptor's file. A different file shows
    /// that the program has closed the descriptor and opened another file with its number.
    helper: RawFd,
    file: (u64, u64),
    /// For each place, the last ticket whose signal this process has raised. If a process writes an old record into a queue again, this process does
    /// not raise the signal again.
    raised: [u64; PLACES],
}

struct Peers {
    peers: UnsafeCell<[Option<Peer>; MOST]>,
    /// The epoch of the process in which a thread uses the table; 0 if no thread uses it.
    turn: AtomicU64,
}

// SAFETY: only the holder of a `Turn` accesses the table.
unsafe impl Sync for Peers {}

static PEERS: Peers = Peers {
    peers: UnsafeCell::new([const { None }; MOST]),
    turn: AtomicU64::new(0),
};

/// The right to use the table.
struct Turn;

impl Turn {
    fn take() -> Option<Turn> {
        let epoch = process::begin_epoch();
        // Acquire: pairs with the release of the thread that used the table before, so the changes of that thread are visible.
        let turn = &PEERS.turn;
        match turn.compare_exchange(0, epoch, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Some(Turn),
            Err(holder) if holder != epoch => {
                // A thread of the parent used the table during the fork. The child does not have that thread, whose last change may be incomplete.
                turn.compare_exchange(holder, epoch, Ordering::Acquire, Ordering::Relaxed)
                    .ok()?;
                // SAFETY: this thread has the turn. The old contents may be incomplete, so they are not dropped.
                unsafe { PEERS.peers.get().write([const { None }; MOST]) };
                Some(Turn)
            }
            Err(_) => None,
        }
    }

    fn peers(&mut self) -> &mut [Option<Peer>; MOST] {
        // SAFETY: only one `Turn` exists at a time, and the table is borrowed no longer than the `Turn`.
        unsafe { &mut *PEERS.peers.get() }
    }

    fn find(&mut self, pid: u32) -> Option<&mut Option<Peer>> {
        let mut peers = self.peers().iter_mut();
        peers.find(|peer| peer.as_ref().is_some_and(|peer| peer.pid == pid))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Release: pairs with the acquire in `take`.
        PEERS.turn.store(0, Ordering::Release);
    }
}

/// Raises the signal of a registration, if the table has its process and this process consents to the signal now. `sender` is the id and the real
/// user of the calling process. Returns false if the registered process has to raise the signal itself.
#[cold]
pub(crate) fn raise(asked: &Asked, sender: (u32, u32)) -> bool {
    let Some(mut turn) = Turn::take() else {
        return false;
    };
    let Some(place) = turn.find(asked.pid) else {
        return false;
    };
    let Some(met) = place.as_mut().and_then(|peer| peer.met.as_mut()) else {
        return false;
    };
    match met.raise(asked, sender) {
        Ok(is_raised) => is_raised,
        Err(_) => {
            // The registered process has ended, or the calling process may not signal it any more.
            *place = None;
            false
        }
    }
}

impl Met {
    fn raise(&mut self, asked: &Asked, sender: (u32, u32)) -> Result<bool, Errno> {
        let index = (asked.shown.place as usize).wrapping_sub(1);
        let consent = self.page().consent(index, asked.ticket, asked.queue);
        let helper = self.helper().ok_or(Errno::BADF)?;
        let Some(signal) = consent else {
            // There is no consent. Signal 0 checks whether the registered process still exists with the same program: another process may have got
            // the process id.
            process::raise_in_process_of(helper, (0, 0), sender)?;
            return Ok(false);
        };
        if self.raised[index] == asked.ticket {
            return Ok(false);
        }
        let signal = (signal.number, signal.value);
        match process::raise_in_process_of(helper, signal, sender) {
            // EAGAIN: the limit of pending signals is reached. The kernel's own queues also drop the notification at this limit.
            Ok(()) | Err(Errno::AGAIN) => {
                self.raised[index] = asked.ticket;
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the descriptor of the helper thread, unless the program has closed the descriptor.
    fn helper(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: any descriptor may have this number now. It is only inspected until its file is known.
        let helper = unsafe { BorrowedFd::borrow_raw(self.helper) };
        let is_still = fstat(helper).is_ok_and(|now| (now.st_dev, now.st_ino) == self.file);
        is_still.then_some(helper)
    }

    fn page(&self) -> &Page {
        // SAFETY: the mapping is as long as a page, and readable until `self` is dropped. The type consists of atomics, which are only read. The file
        // of the mapping can't become shorter.
        unsafe { &*self.page.base().cast::<Page>() }
    }
}

impl Drop for Met {
    fn drop(&mut self) {
        match self.helper() {
            // SAFETY: the number came from `into_number` in `find`, and this value alone has it.
            Some(_) => drop(unsafe { Own::at(self.helper) }),
            None => reserved_descriptors::unmark(self.helper),
        }
    }
}

/// Meets the process of a registration, if the table does not have it: the next notification then needs no help of that process. The caller holds no
/// lock.
///
/// # Blocking
/// Never: the function reads no file that another process serves.
#[cold]
pub fn meet(asked: &Asked) {
    if asked.shown.place == 0 || asked.pid == thread::current().pid() || cfg!(miri) {
        return;
    }
    let Some(mut turn) = Turn::take() else {
        return;
    };
    let now = clock::monotonic_coarse();
    let is_due = |peer: &Peer| peer.met.is_none() && now.saturating_sub(peer.tried) >= AGAIN;
    if let Some(known) = turn.find(asked.pid)
        && !known.as_ref().is_some_and(is_due)
    {
        return;
    }
    let peer = Peer {
        pid: asked.pid,
        tried: now,
        met: roomy(|| find(asked).ok()),
    };
    let place = match turn.find(asked.pid) {
        Some(known) => known,
        None => {
            let peers = turn.peers();
            let free = peers.iter().position(Option::is_none);
            // Without a free place, the new process replaces the one with the oldest attempt.
            let oldest = || (0..MOST).min_by_key(|&at| peers[at].as_ref().map(|peer| peer.tried));
            let index = free.or_else(oldest).unwrap_or(0);
            &mut peers[index]
        }
    };
    *place = Some(peer);
}

fn find(asked: &Asked) -> Result<Met, Errno> {
    let (pid, descriptor) = (asked.pid, asked.shown.descriptor);
    let mut path = [0; 64];
    let path = stat::path_in(&mut path, format_args!("/proc/{pid}/fd/{descriptor}\0"));
    // The file is not opened yet: to open it could have side effects, or wait for a process that serves the file.
    let seen = openat(
        CWD,
        path.ok_or(Errno::NAMETOOLONG)?,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let born = file::inode_and_birth(seen.as_fd())?;
    if born.device != device_of_memory()? {
        return Err(Errno::XDEV);
    }
    let page = open_page(&seen)?;
    // SAFETY: as in `Met::page`.
    let helper = unsafe { &*page.base().cast::<Page>() }.helper(pid, home::here());
    let helper = helper.ok_or(Errno::SRCH)?;
    let pidfd = process::open_thread(helper)?;
    // If /proc shows another PID namespace, the ids in /proc belong to other processes.
    if !is_proc_ours()? || !exists::thread_of(pid, helper) {
        return Err(Errno::SRCH);
    }
    // The name is read after the descriptor was opened. So the descriptor belongs to the thread with this name, or that thread has ended.
    let mut name = [0; NAME + 2];
    let comm = format_args!("/proc/{pid}/task/{helper}/comm\0");
    let name = stat::contents(comm, &mut name).ok_or(Errno::SRCH)?;
    if name.strip_suffix(b"\n") != Some(&name_of(born.inode, born.time)) {
        return Err(Errno::PERM);
    }
    let helper = raise_number(pidfd)?;
    let stat = fstat(&helper)?;
    Ok(Met {
        page,
        helper: helper.into_number(),
        file: (stat.st_dev, stat.st_ino),
        raised: [0; PLACES],
    })
}

/// Returns whether /proc shows the PID namespace of this process.
fn is_proc_ours() -> Result<bool, Errno> {
    let mut path = [0; 64];
    let own = thread::current().pid();
    let path = stat::path_in(&mut path, format_args!("/proc/{own}\0"));
    let found = rustix::fs::stat(path.ok_or(Errno::NAMETOOLONG)?)?;
    Ok(found.st_ino == rustix::fs::stat(c"/proc/self")?.st_ino)
}

/// Maps the page that is in a file in memory, if only the process that made the file can write it.
fn open_page(seen: &OwnedFd) -> Result<Mapping, Errno> {
    let mut path = [0; 64];
    let path = stat::path_in(
        &mut path,
        format_args!("/proc/self/fd/{}\0", seen.as_raw_fd()),
    );
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat(CWD, path.ok_or(Errno::NAMETOOLONG)?, flags, Mode::empty())?;
    let length = fstat(&file)?.st_size;
    if !fcntl_get_seals(&file)?.contains(SEALS) || length != PAGE as i64 {
        return Err(Errno::PERM);
    }
    Mapping::of_memory(file.as_fd(), PAGE, false)
}

/// Returns the device of all files in memory, whose file system no process serves.
fn device_of_memory() -> Result<u64, Errno> {
    // 0: the device is not known yet. Relaxed: each thread finds the same device.
    static DEVICE: AtomicU64 = AtomicU64::new(0);
    match DEVICE.load(Ordering::Relaxed) {
        0 => {
            let own = file::nameless("umsg")?;
            let device = file::inode_and_birth(own.as_fd())?.device;
            DEVICE.store(device, Ordering::Relaxed);
            Ok(device)
        }
        known => Ok(known),
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::super::Shown;
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn a_process_that_has_no_consent_is_kept_in_mind_only_as_long_as_its_helper_lives() {
        let (tell, told) = channel();
        let (end, ended) = channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(thread::current().tid()).unwrap();
            let _ = ended.recv();
        });
        let Ok(helper) = process::open_thread(told.recv().unwrap()) else {
            // Before Linux 6.9, a thread has no descriptor, so no process meets another process.
            return;
        };
        let page = file::nameless("umsg").unwrap();
        rustix::fs::ftruncate(&page, PAGE as u64).unwrap();
        let stat = fstat(&helper).unwrap();
        let mut met = Met {
            page: Mapping::of_memory(page.as_fd(), PAGE, false).unwrap(),
            helper: Own::new(helper).into_number(),
            file: (stat.st_dev, stat.st_ino),
            raised: [0; PLACES],
        };
        let pid = thread::current().pid();
        let asked = Asked {
            queue: (1, 2),
            pid,
            ticket: 3,
            shown: Shown {
                descriptor: 0,
                place: 1,
            },
        };
        assert_eq!(met.raise(&asked, (pid, 0)), Ok(false));
        drop(end);
        thread.join().unwrap();
        // The kernel wakes the joiner before the thread has vanished from /proc.
        let is_gone = |met: &mut Met| {
            std::thread::sleep(Duration::from_millis(1));
            met.raise(&asked, (pid, 0)) == Err(Errno::SRCH)
        };
        assert!((0..1000).any(|_| is_gone(&mut met)));
    }
}
