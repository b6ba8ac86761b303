//! poll on queues, for all functions that wait for descriptors.
//!
//! The drop-in reads the state of the queues without the kernel. A call that must not wait, or that finds a queue ready, opens no descriptor. A call
//! that has to wait uses a copy of its arguments in which the doorbells ([`crate::doorbells`]) replace the queues.
//!
//! These calls are cancellation points of libc, which unwinds the stack of a cancelled thread. So a function of this module that makes such a call
//! holds no value that Rust has to drop after the call. If the copy is too long for the stack, a cleanup handler frees it ([`Copy`]). While a thread
//! is in these functions, it can't be ended at any instruction: see [`crate::cancellation`]. A thread that is already cancelled ends in these calls,
//! too.

use std::alloc::Layout;
use std::ffi::{c_int, c_short, c_void};
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use libc::{nfds_t, pollfd, sigset_t, timespec};
use umsg::{Edges, Readiness};

use crate::{doorbells, errno, next, ours, pointer, table};

const READABLE: c_short = libc::POLLIN | libc::POLLRDNORM;
const WRITABLE: c_short = libc::POLLOUT | libc::POLLWRNORM;

/// The maximum number of entries of a copy that is on the stack.
const FEW: usize = 64;

/// The maximum number of entries: a process can't have or poll more descriptors, unless fs.nr_open is raised.
const MOST: nfds_t = 1 << 20;

/// The interval at which a queue is checked if its doorbell can't be opened.
const SLICE: Duration = Duration::from_millis(10);

/// Returns whether any of the descriptors is a queue's.
#[inline(always)]
pub(crate) fn concerns_us(fds: *const pollfd, count: nfds_t) -> bool {
    // SAFETY: the caller of poll promises this number of entries. The kernel reads them, too.
    count <= MOST
        && !pointer::is_bad(fds)
        && (0..count as usize).any(|index| table::knows(unsafe { (*fds.add(index)).fd }))
}

/// Returns the requested events that are ready on the descriptor of a queue. `None` if the descriptor is not a queue's.
fn state_of(one: &pollfd) -> Option<c_short> {
    let Readiness {
        readable, writable, ..
    } = ours::file(one.fd)?.queue.readiness();
    let readable = if readable { READABLE } else { 0 };
    let writable = if writable { WRITABLE } else { 0 };
    Some(one.events & (readable | writable))
}

/// The time at which a wait ends, and the signals that it permits.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    pub(crate) timeout: Option<Duration>,
    /// The signal mask during the call; may be NULL.
    pub(crate) mask: *const sigset_t,
}

/// Does the work of poll, for arguments that may contain queues.
///
/// # Safety
/// `fds` has `count` entries, which belong to the caller.
#[cold]
pub(crate) unsafe fn wait(fds: *mut pollfd, count: nfds_t, patience: Patience) -> c_int {
    let count = count as usize;
    // SAFETY: by this function's contract. The copy has room for `count` entries.
    with_room(count, |copy| unsafe {
        wait_on_copy(fds, copy, count, patience)
    })
}

/// Lends memory for `count` entries, which are not initialised.
pub(crate) fn with_room(count: usize, work: impl FnOnce(*mut pollfd) -> c_int) -> c_int {
    if count <= FEW {
        let mut room = [const { MaybeUninit::<pollfd>::uninit() }; FEW];
        return work(room.as_mut_ptr().cast());
    }
    let Ok(layout) = Layout::array::<pollfd>(count) else {
        return errno::fail(libc::EINVAL);
    };
    // SAFETY: the size is not zero.
    let room = unsafe { std::alloc::alloc(layout) };
    if room.is_null() {
        return errno::fail(libc::ENOMEM);
    }
    let mut copy = Copy { room, layout };
    let mut handler = MaybeUninit::uninit();
    // SAFETY: the handler and its argument stay in place until the handler is popped, or has run because the thread ends.
    unsafe { _pthread_cleanup_push(handler.as_mut_ptr(), Copy::free, (&raw mut copy).cast()) };
    let outcome = work(room.cast());
    // SAFETY: this handler was pushed last, by the call above. The argument 1 makes the handler run.
    unsafe { _pthread_cleanup_pop(handler.as_mut_ptr(), 1) };
    outcome
}

/// Memory that is freed even if the thread that uses it is cancelled.
struct Copy {
    room: *mut u8,
    layout: Layout,
}

impl Copy {
    extern "C" fn free(copy: *mut c_void) {
        // SAFETY: `with_room` has passed the argument, and has allocated the memory with this layout. The stack frame of `with_room` still exists.
        unsafe {
            let Copy { room, layout } = copy.cast::<Copy>().read();
            std::alloc::dealloc(room, layout);
        }
    }
}

/// libc's `struct _pthread_cleanup_buffer`: the routine, its argument, a number, and the previous buffer.
type Cleanup = [usize; 4];

unsafe extern "C" {
    fn _pthread_cleanup_push(
        handler: *mut Cleanup,
        routine: extern "C" fn(*mut c_void),
        argument: *mut c_void,
    );
    fn _pthread_cleanup_pop(handler: *mut Cleanup, run: c_int);
}

/// # Safety
/// `fds` and `copy` have `count` entries each. Those of `fds` are initialised.
unsafe fn wait_on_copy(
    fds: *mut pollfd,
    copy: *mut pollfd,
    count: usize,
    patience: Patience,
) -> c_int {
    // SAFETY: by this function's contract.
    let fds = unsafe { std::slice::from_raw_parts_mut(fds, count) };
    // SAFETY: by this function's contract. The first call initialises the copy.
    let copy = unsafe {
        copy.copy_from_nonoverlapping(fds.as_ptr(), count);
        std::slice::from_raw_parts_mut(copy, count)
    };
    let is_ready = look(fds, copy);
    let waits = !is_ready && patience.timeout != Some(Duration::ZERO);
    if patience.mask.is_null() && !waits {
        return others_now(fds, copy);
    }
    match put_bells(fds, copy) {
        Ok(()) => wait_for_bells(fds, copy, patience),
        Err(_) => wait_in_slices(fds, copy, patience),
    }
}

/// Records the ready events of the queues, and removes the queues from the copy. Returns whether any queue is ready.
fn look(fds: &mut [pollfd], copy: &mut [pollfd]) -> bool {
    let mut any = false;
    for (one, copied) in fds.iter_mut().zip(copy) {
        copied.fd = one.fd;
        one.revents = 0;
        if table::knows(one.fd)
            && let Some(state) = state_of(one)
        {
            one.revents = state;
            copied.fd = -1;
            any |= state != 0;
        }
    }
    any
}

/// Adds the current events of the descriptors that are not queues. Returns the number of all entries that have events.
fn others_now(fds: &mut [pollfd], copy: &mut [pollfd]) -> c_int {
    if copy.iter().any(|copied| copied.fd >= 0) {
        // SAFETY: the arguments describe a slice.
        let outcome = unsafe { next::poll(copy.as_mut_ptr(), copy.len() as nfds_t, 0) };
        if outcome < 0 {
            return outcome;
        }
        for (one, copied) in fds.iter_mut().zip(copy) {
            if copied.fd >= 0 {
                one.revents = copied.revents;
            }
        }
    }
    let ready = fds.iter().filter(|one| one.revents != 0).count();
    // The number of ready entries is at most MOST, so an int can hold it.
    ready as c_int
}

/// Puts the doorbells into the copy, in the place of the queues.
fn put_bells(fds: &[pollfd], copy: &mut [pollfd]) -> Result<(), c_int> {
    for (one, copied) in fds.iter().zip(copy) {
        if table::knows(one.fd)
            && let Some(held) = ours::file(one.fd)
        {
            copied.fd = doorbells::doorbell(&held, Edges::Changes)?;
        }
    }
    Ok(())
}

fn wait_for_bells(fds: &mut [pollfd], copy: &mut [pollfd], patience: Patience) -> c_int {
    let timeout = patience.timeout.map(timespec_of);
    let timeout = timeout
        .as_ref()
        .map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the call gets the pointer and length of a slice, a time, and the mask that the program passed.
    let outcome = unsafe {
        next::ppoll(
            copy.as_mut_ptr(),
            copy.len() as nfds_t,
            timeout,
            patience.mask,
        )
    };
    if outcome >= 0 {
        for (one, copied) in fds.iter_mut().zip(copy) {
            one.revents = copied.revents;
        }
    }
    outcome
}

/// Waits without doorbells. The process can't open doorbells if it has changed its user since it opened the queue, or if it has no free descriptor.
#[cold]
fn wait_in_slices(fds: &mut [pollfd], copy: &mut [pollfd], patience: Patience) -> c_int {
    let begun = Instant::now();
    loop {
        if look(fds, copy) {
            return others_now(fds, copy);
        }
        let left = patience
            .timeout
            .map(|timeout| timeout.saturating_sub(begun.elapsed()));
        let slice = Patience {
            timeout: Some(left.unwrap_or(SLICE).min(SLICE)),
            ..patience
        };
        let outcome = wait_for_bells(fds, copy, slice);
        if outcome != 0 || left == Some(Duration::ZERO) {
            return outcome;
        }
    }
}

fn timespec_of(duration: Duration) -> timespec {
    timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}
