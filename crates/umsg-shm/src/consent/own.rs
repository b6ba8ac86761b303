//! The page in which this process shows its consents.

use super::page::{Page, Signal};
use super::{NAME, Shown, name_of};
use crate::sys::kept_descriptor::{Own, Sighting, raise};
use crate::sys::map::{Mapping, PAGE};
use crate::sys::stack::roomy;
use crate::sys::{clock, file, home, process, thread};
use rustix::fs::{MemfdFlags, SealFlags, ftruncate, memfd_create};
use rustix::io::{Errno, pwrite};
use std::os::fd::{AsFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};

/// The value in place of a descriptor's number if there is no descriptor.
const NONE: RawFd = -1;

/// The seals of a page's file: the file keeps its length, and no process can make a further mapping for writing.
pub(super) const SEALS: SealFlags = SealFlags::SEAL
    .union(SealFlags::SHRINK)
    .union(SealFlags::GROW)
    .union(SealFlags::FUTURE_WRITE);

/// The page of the process whose epoch is `epoch`. The page is mapped until the process ends. A forked child does not have this mapping.
struct Present {
    epoch: AtomicU64,
    /// The page; null if the process can have no page.
    page: AtomicPtr<Page>,
    descriptor: AtomicI32,
    sighting: Sighting,
    /// The name of the thread that attests the page, as two words.
    name: [AtomicU64; 2],
}

static PRESENT: Present = Present {
    epoch: AtomicU64::new(0),
    page: AtomicPtr::new(std::ptr::null_mut()),
    descriptor: AtomicI32::new(NONE),
    sighting: Sighting::none(),
    name: [const { AtomicU64::new(0) }; 2],
};

/// Returns the process's own page, if it has one.
fn own() -> Option<&'static Page> {
    // Acquire: makes the words visible that `prepare` stored before the epoch.
    let epoch = PRESENT.epoch.load(Ordering::Acquire);
    if epoch == 0 || epoch != process::epoch() {
        return None;
    }
    // SAFETY: a non-null pointer of this process's epoch leads to a mapping that is never unmapped, page-aligned and as long as the type,
    // which consists of atomics.
    unsafe { PRESENT.page.load(Ordering::Relaxed).as_ref() }
}

/// Makes the page of this process, unless an earlier call has tried to make it. Only one thread at a time calls this function.
///
/// # If the process dies
/// The page is freed with its last mapping.
pub fn prepare() {
    let epoch = process::begin_epoch();
    if PRESENT.epoch.load(Ordering::Relaxed) == epoch || cfg!(miri) {
        return;
    }
    close_inherited();
    let made = roomy(make).ok();
    let (page, descriptor) = made.unwrap_or((std::ptr::null_mut(), NONE));
    PRESENT.page.store(page, Ordering::Relaxed);
    PRESENT.descriptor.store(descriptor, Ordering::Relaxed);
    // Release: a thread that sees the epoch sees the other words of `PRESENT`.
    PRESENT.epoch.store(epoch, Ordering::Release);
}

/// Closes the descriptor of the parent's page, which a forked child inherits.
fn close_inherited() {
    let number = PRESENT.descriptor.swap(NONE, Ordering::Relaxed);
    if number != NONE && PRESENT.sighting.is_still(number, clock::monotonic_coarse()) {
        // SAFETY: the number came from `into_number` in `make`, and the swap gave it to this thread.
        drop(unsafe { Own::at(number) });
    }
}

fn make() -> Result<(*mut Page, RawFd), Errno> {
    let home = home::here();
    if home == 0 {
        return Err(Errno::NOSYS);
    }
    let file = memfd_create(
        c"umsg-consent",
        MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL,
    )?;
    ftruncate(&file, PAGE as u64)?;
    // This write allocates the page: a store to a page without memory would raise SIGBUS.
    if pwrite(&file, &[0; PAGE], 0)? != PAGE {
        return Err(Errno::NOSPC);
    }
    let mapping = Mapping::of_memory(file.as_fd(), PAGE, true)?;
    // Called before the file is sealed: a child that is forked before this call inherits the mapping, and could write the page.
    mapping.keep_from_children()?;
    rustix::fs::fcntl_add_seals(&file, SEALS)?;
    let born = file::inode_and_birth(file.as_fd())?;
    let own = raise(file)?;
    PRESENT.sighting.begin(&own)?;
    let page = mapping.base().cast::<Page>();
    // SAFETY: as in `own`.
    unsafe { &*page }.begin(thread::current().pid(), home);
    let mut name = [0; 16];
    name[..NAME].copy_from_slice(&name_of(born.inode, born.time));
    for (word, bytes) in PRESENT.name.iter().zip(name.as_chunks().0) {
        word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
    }
    std::mem::forget(mapping);
    Ok((page, own.into_number()))
}

/// Consents to a signal for a registration. Returns the place of the consent; None if this process can't show its consent to senders in other
/// processes. Only one thread at a time changes the consents.
pub fn offer(ticket: u64, queue: (u64, u64), signal: i32, value: usize) -> Option<Shown> {
    let number = signal;
    let place = own()?.add(ticket, queue, Signal { number, value })?;
    Some(Shown {
        descriptor: PRESENT.descriptor.load(Ordering::Relaxed).cast_unsigned(),
        place: place as u32 + 1,
    })
}

/// Withdraws the consent to the signal of a registration that has ended or was fired. Only one thread at a time changes the consents.
pub fn withdraw(ticket: u64, shown: Shown) {
    if let Some(page) = own() {
        page.remove((shown.place as usize).wrapping_sub(1), ticket);
    }
}

/// Makes the calling thread attest this process's page, by its name. The thread must run until the process ends or runs another program. Returns
/// false if there is no page yet.
pub fn attest() -> bool {
    let Some(page) = own() else {
        return false;
    };
    let mut name = [0_u8; 16];
    for (word, bytes) in PRESENT.name.iter().zip(name.as_chunks_mut().0) {
        *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
    }
    // SAFETY: the kernel reads a string that ends with a zero byte.
    let done = unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    if done == 0 {
        page.set_helper(thread::current().tid());
    }
    true
}
