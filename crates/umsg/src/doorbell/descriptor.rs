//! A process's ends of a doorbell: the descriptor that it polls, and one by which it rings.
//!
//! Both are kept as numbers in atomic words: threads of a process ring under the queue's lock, but a peer can scribble in that.
//! Whoever rings takes the descriptor out of its word meanwhile; who finds none opens another.

use crate::namespace::{Namespace, random};
use crate::own;
use crate::sys::clock;
use rustix::fs::{FileType, FlockOperation, OFlags, fcntl_setfl, flock, fstat};
use rustix::io::{self, Errno};
use rustix::param::page_size;
use rustix::pipe::{fcntl_getpipe_size, fcntl_setpipe_size};
use rustix::process::{Resource, getrlimit};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

/// What fits into the FIFO.
const PACKETS: usize = 2;
/// Packets of a FIFO that was filled by somebody else are thrown away, at most so many.
const FOREIGN: u32 = 64;
/// No descriptor.
const NONE: RawFd = -1;
/// Descriptors of ours have numbers above half of those there can be, at most above this: programs expect theirs to be low.
const HIGH: u64 = 512;
/// How long a doorbell that can't be opened is not tried again, in nanoseconds.
const BLIND: u64 = 100_000_000;
/// How often it is tried to find, or to make, a doorbell that nobody takes away meanwhile.
const ATTEMPTS: u32 = 16;

/// A process's ends of a queue's doorbell.
#[derive(Debug)]
pub(crate) struct Doorbell {
    namespace: Option<Namespace>,
    /// What this process polls; [`NONE`]. Opened once, closed when the queue is.
    polled: AtomicI32,
    /// The name of that one's, and what was asked for: see [`super::LEVELS`].
    polled_name: AtomicU64,
    asked: AtomicU32,
    polled_file: Sighting,
    /// What it rings by otherwise: the number plus one, and above it half of the name; 0 for none.
    rung: AtomicU64,
    rung_file: Sighting,
    /// Until when (CLOCK_MONOTONIC_COARSE) no doorbell is looked for.
    blind: AtomicU64,
    operations: AtomicU32,
}

/// The FIFO that a descriptor is, and when that was looked at last: a program may close what it does not know, and the number then be
/// another file's.
#[derive(Debug, Default)]
struct Sighting {
    inode: AtomicU64,
    /// CLOCK_MONOTONIC_COARSE.
    at: AtomicU64,
    /// [`own::given`] then.
    given: AtomicU32,
}

impl Sighting {
    /// Sees a descriptor for the first time.
    fn begin(&self, bell: &Own) -> io::Result<()> {
        self.inode.store(fstat(bell)?.st_ino, Ordering::Relaxed);
        self.at.store(clock::monotonic_coarse(), Ordering::Relaxed);
        self.given.store(own::given(), Ordering::Relaxed);
        Ok(())
    }

    /// Whether a number of the library's was given to the program since.
    #[inline(always)]
    fn is_doubtful(&self) -> bool {
        self.given.load(Ordering::Relaxed) != own::given()
    }

    /// Whether a descriptor still is that file: it is looked at once a tick of the clock, and when some number was given away.
    fn is_still(&self, number: RawFd) -> bool {
        let (now, given) = (clock::monotonic_coarse(), own::given());
        // Relaxed: when to look.
        let is_recent = self.at.swap(now, Ordering::Relaxed) == now;
        if is_recent && self.given.load(Ordering::Relaxed) == given {
            return true;
        }
        self.given.store(given, Ordering::Relaxed);
        // SAFETY: whatever has this number now, it is only looked at.
        let file = unsafe { BorrowedFd::borrow_raw(number) };
        let is_still = fstat(file).is_ok_and(|stat| {
            FileType::from_raw_mode(stat.st_mode) == FileType::Fifo
                && stat.st_ino == self.inode.load(Ordering::Relaxed)
        });
        if !is_still {
            own::unmark(number);
        }
        is_still
    }
}

/// A doorbell that nobody watches any more, locked.
pub(crate) struct Left<'a> {
    namespace: &'a Namespace,
    name: u64,
    _locked: OwnedFd,
}

impl Left<'_> {
    /// Takes its name away.
    pub(crate) fn remove(self) {
        self.namespace.remove_bell(self.name);
    }
}

/// A FIFO to ring by.
pub(crate) struct Gong<'a> {
    bell: &'a Doorbell,
    number: RawFd,
    /// Its place in [`Doorbell::rung`] when it is put back; 0 if it is what the process polls.
    place: u64,
}

impl Doorbell {
    pub(crate) fn new(namespace: Option<Namespace>) -> Doorbell {
        Doorbell {
            namespace,
            polled: AtomicI32::new(NONE),
            polled_name: AtomicU64::new(0),
            asked: AtomicU32::new(0),
            polled_file: Sighting::default(),
            rung: AtomicU64::new(0),
            rung_file: Sighting::default(),
            blind: AtomicU64::new(0),
            operations: AtomicU32::new(0),
        }
    }

    /// What this process polls, if it has asked for as much.
    #[inline]
    pub(crate) fn polled(&self, wanted: u32) -> Option<BorrowedFd<'_>> {
        // Acquire: stored last by who opened it.
        if wanted & !self.asked.load(Ordering::Acquire) != 0 {
            return None;
        }
        match self.polled.load(Ordering::Relaxed) {
            NONE => None,
            number if self.polled_file.is_doubtful() && !self.polled_file.is_still(number) => {
                self.forget_polled(number);
                None
            }
            // SAFETY: it is ours, and stays open as long as `self`.
            number => Some(unsafe { BorrowedFd::borrow_raw(number) }),
        }
    }

    /// From now on this process polls this one, if it polled none. Answers the name of the one that it does.
    fn poll(&self, bell: Own, name: u64) -> u64 {
        // Where it can't be looked at it is not taken for ours.
        let _ = self.polled_file.begin(&bell);
        let number = bell.into_number();
        let was = self
            .polled
            .compare_exchange(NONE, number, Ordering::AcqRel, Ordering::Relaxed);
        match was {
            Ok(_) => {
                self.polled_name.store(name, Ordering::Release);
                name
            }
            Err(_) => {
                // SAFETY: just taken out of its owner, and kept nowhere.
                drop(unsafe { Own::at(number) });
                self.polled_name.load(Ordering::Acquire)
            }
        }
    }

    /// Opens, or makes, the doorbell to be polled by this process, and locks it. `name` is the segment's, 0 for none; the one that it is
    /// to have is returned. `admit` gives a new one the rights that the queue has. Under the queue's lock.
    pub(crate) fn open(
        &self,
        name: u64,
        admit: &dyn Fn(BorrowedFd<'_>) -> io::Result<()>,
    ) -> io::Result<u64> {
        if self.polled.load(Ordering::Relaxed) != NONE {
            return Ok(self.polled_name.load(Ordering::Acquire));
        }
        let namespace = self.namespace.as_ref().ok_or(Errno::OPNOTSUPP)?;
        let mut name = name;
        for _ in 0..ATTEMPTS {
            let found = match name {
                0 => None,
                _ => match namespace.open_bell(name) {
                    // Not a FIFO, or taken away: it is replaced.
                    Err(Errno::NOENT | Errno::NXIO | Errno::LOOP) => None,
                    other => Some(other?),
                },
            };
            let bell = match found {
                Some(bell) => bell,
                None => {
                    name = random();
                    let bell = namespace.make_bell(name)?;
                    admit(bell.as_fd()).inspect_err(|_| namespace.remove_bell(name))?;
                    bell
                }
            };
            let bell = raise(bell)?;
            match flock(&bell, FlockOperation::NonBlockingLockShared) {
                Ok(()) if namespace.leads_to(name, bell.as_fd()) => {
                    prepare(&bell)?;
                    return Ok(self.poll(bell, name));
                }
                // Somebody swept it away, or is about to.
                Ok(()) => name = 0,
                Err(Errno::WOULDBLOCK) => std::thread::yield_now(),
                Err(error) => return Err(error),
            }
        }
        Err(Errno::AGAIN)
    }

    /// So much was asked for, and is.
    pub(crate) fn has_asked(&self, wanted: u32) {
        self.asked.fetch_or(wanted, Ordering::Release);
    }

    /// The FIFO of this name, to ring by. None if it can't be opened: there is nothing that the caller could do.
    pub(crate) fn gong(&self, name: u64) -> Option<Gong<'_>> {
        let polled = self.polled.load(Ordering::Relaxed);
        if polled != NONE && self.polled_name.load(Ordering::Acquire) == name {
            if !self.polled_file.is_still(polled) {
                self.forget_polled(polled);
                return self.open_gong(name);
            }
            return Some(Gong {
                bell: self,
                number: polled,
                place: 0,
            });
        }
        // Taken out: so nobody else closes it.
        let place = self.rung.swap(0, Ordering::AcqRel);
        if place != 0 {
            let number = number_of(place);
            if self.rung_file.is_still(number) {
                if place >> 32 == name & 0xffff_ffff {
                    return Some(Gong {
                        bell: self,
                        number,
                        place,
                    });
                }
                // SAFETY: it is ours, and was taken out of the only place that had it.
                drop(unsafe { Own::at(number) });
            }
        }
        self.open_gong(name)
    }

    #[cold]
    fn open_gong(&self, name: u64) -> Option<Gong<'_>> {
        let now = clock::monotonic_coarse();
        if name == 0 || now < self.blind.load(Ordering::Relaxed) {
            return None;
        }
        let opened = self.namespace.as_ref().and_then(|namespace| {
            let bell = raise(namespace.open_bell(name).ok()?).ok()?;
            fcntl_setfl(&bell, OFlags::NONBLOCK | OFlags::DIRECT).ok()?;
            self.rung_file.begin(&bell).ok()?;
            Some(bell)
        });
        let Some(bell) = opened else {
            self.blind.store(now + BLIND, Ordering::Relaxed);
            return None;
        };
        let number = bell.into_number();
        Some(Gong {
            bell: self,
            number,
            place: name << 32 | (number as u64 + 1),
        })
    }

    /// The program has closed what it polled: nobody polls here any more, until somebody asks again.
    #[cold]
    fn forget_polled(&self, number: RawFd) {
        self.asked.store(0, Ordering::Relaxed);
        let _ = self
            .polled
            .compare_exchange(number, NONE, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Counts an operation; true for the first, as there are processes that do no more, and for each `every`th.
    pub(crate) fn is_time_to_look(&self, every: u32) -> bool {
        // Relaxed: under the queue's lock, and about.
        let count = self.operations.load(Ordering::Relaxed).wrapping_add(1);
        self.operations.store(count, Ordering::Relaxed);
        (count == 1 || count.is_multiple_of(every)) && self.polled.load(Ordering::Relaxed) == NONE
    }

    /// The doorbell, locked, if nobody polls it any more.
    pub(crate) fn left(&self, name: u64) -> Option<Left<'_>> {
        let namespace = self.namespace.as_ref()?;
        // One of its own: a lock belongs to the opening, and this process may have inherited what others poll.
        let bell = namespace.open_bell(name).ok()?;
        flock(&bell, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some(Left {
            namespace,
            name,
            _locked: bell,
        })
    }

    /// Closes what this process polls. True if it polled.
    pub(crate) fn close_polled(&self) -> bool {
        self.asked.store(0, Ordering::Relaxed);
        match self.polled.swap(NONE, Ordering::AcqRel) {
            NONE => false,
            number => {
                if self.polled_file.is_still(number) {
                    // SAFETY: it is ours, and was taken out of the only place that had it.
                    drop(unsafe { Own::at(number) });
                }
                true
            }
        }
    }

    /// Gives the doorbell of this name, which may be open here, other rights.
    pub(crate) fn readmit(&self, name: u64, admit: &dyn Fn(BorrowedFd<'_>) -> io::Result<()>) {
        if let Some(gong) = self.gong(name) {
            let _ = admit(gong.file());
        }
    }
}

impl Drop for Doorbell {
    fn drop(&mut self) {
        self.close_polled();
        let place = *self.rung.get_mut();
        if place != 0 && self.rung_file.is_still(number_of(place)) {
            // SAFETY: it is ours, and was taken out of the only place that had it.
            drop(unsafe { Own::at(number_of(place)) });
        }
    }
}

impl Gong<'_> {
    fn file(&self) -> BorrowedFd<'_> {
        // SAFETY: it was taken out of its place until `self` is dropped, or stays open as long as the doorbell.
        unsafe { BorrowedFd::borrow_raw(self.number) }
    }

    /// One packet more. False if that was not to be done.
    pub(crate) fn push(&self) -> bool {
        io::write(self.file(), b".") == Ok(1)
    }

    /// One packet less.
    pub(crate) fn pop(&self) -> bool {
        io::read(self.file(), &mut [0; 1]) == Ok(1)
    }

    /// Tells everybody who polls to look again, whatever for: setting a pipe's size, even to what it is, does.
    pub(crate) fn nudge(&self) {
        let _ = fcntl_setpipe_size(self.file(), PACKETS * page_size());
    }

    /// Has it hold so many packets, whatever it held.
    pub(crate) fn hold(&self, packets: u32) {
        let held = || io::ioctl_fionread(self.file()).unwrap_or(0);
        for _ in 0..FOREIGN {
            if held() <= u64::from(packets) {
                break;
            }
            // Others may have put longer ones there.
            let _ = io::read(self.file(), &mut [0; 64]);
        }
        for _ in held()..u64::from(packets) {
            let _ = self.push();
        }
    }
}

impl Drop for Gong<'_> {
    fn drop(&mut self) {
        if self.place != 0 {
            let other = self.bell.rung.swap(self.place, Ordering::AcqRel);
            if other != 0 {
                // SAFETY: it is ours, and was taken out of the only place that had it.
                drop(unsafe { Own::at(number_of(other)) });
            }
        }
    }
}

fn number_of(place: u64) -> RawFd {
    (place as u32).wrapping_sub(1) as RawFd
}

/// Packets do not merge, and there is room for as many as there are things to show.
fn prepare(bell: &Own) -> io::Result<()> {
    fcntl_setfl(bell, OFlags::NONBLOCK | OFlags::DIRECT)?;
    let size = PACKETS * page_size();
    // Setting it, even to what it is, tells everybody who polls to look again: see `nudge`.
    if fcntl_getpipe_size(bell)? == size {
        return Ok(());
    }
    for _ in 0..FOREIGN {
        match fcntl_setpipe_size(bell, size) {
            // It holds more.
            Err(Errno::BUSY) => drop(io::read(bell, &mut [0; 64])),
            other => return other.map(drop),
        }
    }
    Err(Errno::BUSY)
}

/// Moves a descriptor to a high number, if there is one.
fn raise(bell: OwnedFd) -> io::Result<Own> {
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let least = (most / 2).min(HIGH) as RawFd;
    Ok(Own::new(match io::fcntl_dupfd_cloexec(&bell, least) {
        Ok(raised) => raised,
        Err(_) => bell,
    }))
}

/// A descriptor whose number is marked as the library's own as long as it is open.
struct Own(ManuallyDrop<OwnedFd>);

impl Own {
    fn new(file: OwnedFd) -> Own {
        own::mark(file.as_raw_fd());
        Own(ManuallyDrop::new(file))
    }

    /// It stays open, and marked.
    fn into_number(self) -> RawFd {
        ManuallyDrop::new(self).0.as_raw_fd()
    }

    /// # Safety
    /// The number came from [`Own::into_number`], and is in no other owner.
    unsafe fn at(number: RawFd) -> Own {
        // SAFETY: by this function's contract.
        Own(ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) }))
    }
}

impl AsFd for Own {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // First: nobody can close a marked number where the drop-in stands before close.
        own::unmark(self.0.as_raw_fd());
        // SAFETY: once, and it is not used again.
        unsafe { ManuallyDrop::drop(&mut self.0) };
    }
}
