//! select and pselect on sets with a queue: the call becomes a poll of all descriptors in the sets.

use std::ffi::{c_int, c_short};
use std::time::{Duration, Instant};

use libc::{fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};
use rustix::fs::{Mode, OFlags};

use umsg_shm::sys::stack::roomy;

use crate::cancellation::cancellation_point;
use crate::polling::{self, Patience};
use crate::{arrivals, errno, next, pointer, signals, table};

/// The events of poll(2) that the three sets of select(2) request, in the order of the sets.
const ASKED: [c_short; 3] = [
    libc::POLLIN | libc::POLLRDNORM | libc::POLLRDBAND,
    libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND,
    libc::POLLPRI,
];

/// For each set, the events that make select report a descriptor although the set does not request them. Source: fs/select.c of Linux.
const TOLD: [c_short; 3] = [libc::POLLHUP | libc::POLLERR, libc::POLLERR, 0];

/// The number of bits of a word.
const BITS: usize = usize::BITS as usize;

cancellation_point! {
    /// Waits until a descriptor of the sets is ready. Except with musl, also writes the remaining time to the caller's time-out.
    select => select_deferred
}

cancellation_point! {
    /// Waits until a descriptor of the sets is ready, or until a handler has run for a signal that the mask does not block.
    pselect => pselect_deferred
}

unsafe extern "C" fn select_deferred(
    count: c_int,
    reading: *mut fd_set,
    writing: *mut fd_set,
    strange: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let sets = Sets::of(count, [reading, writing, strange]);
    // SAFETY: the caller makes the promises that libc's select requires.
    unsafe {
        if sets.concern_us() {
            sets.select(timeout)
        } else {
            next::select(count, reading, writing, strange, timeout)
        }
    }
}

unsafe extern "C" fn pselect_deferred(
    count: c_int,
    reading: *mut fd_set,
    writing: *mut fd_set,
    strange: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let sets = Sets::of(count, [reading, writing, strange]);
    // SAFETY: the caller makes the promises that libc's pselect requires.
    unsafe {
        if sets.concern_us() {
            sets.pselect(timeout, mask)
        } else {
            next::pselect(count, reading, writing, strange, timeout, mask)
        }
    }
}

/// The three sets of a call. Each set has `count` bits, which may be more bits than an fd_set has.
struct Sets {
    count: usize,
    words: [*mut usize; 3],
}

/// Returns whether the process uses queues, or may have inherited one.
#[inline(always)]
fn may_have_queues() -> bool {
    signals::has_begun() || arrivals::are_expected()
}

impl Sets {
    fn of(count: c_int, sets: [*mut fd_set; 3]) -> Sets {
        let count = usize::try_from(count).unwrap_or(0);
        Sets {
            count: if may_have_queues() && count > libc::FD_SETSIZE {
                count.min(roomy(|| numbers_in_use(count)))
            } else {
                count
            },
            words: sets.map(<*mut fd_set>::cast),
        }
    }

    /// Returns a word of one of the sets, without bits beyond the count.
    ///
    /// # Safety
    /// Each set has a word at `index`, or is an address that a pointer check refuses.
    unsafe fn word(&self, set: usize, index: usize) -> usize {
        if pointer::is_bad(self.words[set]) {
            return 0;
        }
        let beyond = (index + 1) * BITS;
        let valid = usize::MAX >> beyond.saturating_sub(self.count).min(BITS - 1);
        // SAFETY: by this function's contract.
        unsafe { *self.words[set].add(index) & valid }
    }

    fn indices(&self) -> std::ops::Range<usize> {
        0..self.count.div_ceil(BITS)
    }

    /// Returns whether a descriptor of a queue is in one of the sets.
    ///
    /// # Safety
    /// The conditions of libc's select.
    #[inline(always)]
    unsafe fn concern_us(&self) -> bool {
        // SAFETY: by this function's contract.
        may_have_queues() && unsafe { self.contain_queues() }
    }

    /// # Safety
    /// The conditions of libc's select.
    #[cold]
    unsafe fn contain_queues(&self) -> bool {
        self.indices().any(|index| {
            // SAFETY: by this function's contract.
            let bits = (0..3).fold(0, |bits, set| bits | unsafe { self.word(set, index) });
            ones(bits).any(|bit| table::knows((index * BITS + bit) as c_int))
        })
    }

    /// # Safety
    /// The conditions of libc's select.
    unsafe fn select(&self, timeout: *mut timeval) -> c_int {
        if timeout.is_null() {
            // SAFETY: by this function's contract.
            return unsafe { self.poll(None, std::ptr::null()) };
        }
        if pointer::is_bad(timeout) {
            return errno::fail(libc::EFAULT);
        }
        // SAFETY: by this function's contract.
        let Some(wanted) = duration_of(unsafe { timeout.read_unaligned() }) else {
            return errno::fail(libc::EINVAL);
        };
        let begun = Instant::now();
        // SAFETY: by this function's contract.
        let outcome = unsafe { self.poll(Some(wanted), std::ptr::null()) };
        // musl passes a copy of the time-out to the kernel, so the program's time-out keeps its value, and the program may pass it again. With other
        // libcs, the call writes the remaining time.
        if cfg!(not(target_env = "musl")) {
            let left = wanted.saturating_sub(begun.elapsed());
            // SAFETY: by this function's contract.
            unsafe { timeout.write_unaligned(timeval_of(left)) };
        }
        outcome
    }

    /// # Safety
    /// The conditions of libc's pselect.
    unsafe fn pselect(&self, timeout: *const timespec, mask: *const sigset_t) -> c_int {
        // SAFETY: by this function's contract.
        match unsafe { crate::timeout::duration_of(timeout) } {
            // SAFETY: by this function's contract.
            Ok(timeout) => unsafe { self.poll(timeout, mask) },
            Err(errno) => errno::fail(errno),
        }
    }

    /// # Safety
    /// The conditions of libc's pselect.
    unsafe fn poll(&self, timeout: Option<Duration>, mask: *const sigset_t) -> c_int {
        let poll = |fds| {
            // SAFETY: `fds` has room for all descriptors that the sets may contain. This function's contract covers the rest.
            unsafe {
                let used = self.gather(fds);
                let outcome = polling::wait(fds, used as nfds_t, Patience { timeout, mask });
                if outcome < 0 {
                    return outcome;
                }
                self.tell(std::slice::from_raw_parts(fds, used))
            }
        };
        polling::with_room(self.count, poll)
    }

    /// Writes an entry for each descriptor that is in a set. Returns the number of entries.
    ///
    /// # Safety
    /// `fds` has room for an entry for each descriptor in the sets. The sets are readable.
    unsafe fn gather(&self, fds: *mut pollfd) -> usize {
        let mut used = 0;
        for index in self.indices() {
            // SAFETY: by this function's contract.
            let words = [0, 1, 2].map(|set| unsafe { self.word(set, index) });
            for bit in ones(words[0] | words[1] | words[2]) {
                let asked = (0..3).filter(|&set| words[set] >> bit & 1 != 0);
                let entry = pollfd {
                    fd: (index * BITS + bit) as c_int,
                    events: asked.fold(0, |events, set| events | ASKED[set]),
                    revents: 0,
                };
                // SAFETY: by this function's contract.
                unsafe { fds.add(used).write(entry) };
                used += 1;
            }
        }
        used
    }

    /// Leaves only the ready descriptors in the sets. Returns the number of set bits.
    ///
    /// # Safety
    /// The sets are writable, and the entries are those of [`Sets::gather`].
    unsafe fn tell(&self, fds: &[pollfd]) -> c_int {
        if fds.iter().any(|one| one.revents & libc::POLLNVAL != 0) {
            return errno::fail(libc::EBADF);
        }
        let mut told = 0;
        for (set, words) in self.words.iter().enumerate() {
            if pointer::is_bad(*words) {
                continue;
            }
            // SAFETY: by this function's contract. The kernel clears whole words, too.
            unsafe { words.write_bytes(0, self.indices().len()) };
            for one in fds.iter().filter(|one| one.events & ASKED[set] != 0) {
                if one.revents & (ASKED[set] | TOLD[set]) != 0 {
                    let number = one.fd.cast_unsigned() as usize;
                    // SAFETY: by this function's contract.
                    unsafe { *words.add(number / BITS) |= 1 << (number % BITS) };
                    told += 1;
                }
            }
        }
        told
    }
}

/// Returns a number above all descriptors of the process. The kernel ignores the bits of the sets from this number on. So a program may pass its
/// limit of descriptors as the count, although its sets are shorter.
#[cold]
fn numbers_in_use(count: usize) -> usize {
    let mut text = [0; 2048];
    let length = rustix::fs::open("/proc/self/status", OFlags::CLOEXEC, Mode::empty())
        .and_then(|file| rustix::io::read(file, &mut text))
        .unwrap_or(0);
    size_in(&text[..length]).unwrap_or_else(|| found_by_poll(count))
}

/// Finds the number for a process without /proc: a number above the highest open descriptor below `count`. The kernel's table of descriptors is at
/// least that long.
fn found_by_poll(count: usize) -> usize {
    /// The number of descriptors in one poll: even the lowest limit of descriptors permits this number. Only a process with descriptors beyond
    /// FD_SETSIZE needs this search.
    const AT_ONCE: usize = 64;
    let most = count.min(1 << 20).div_ceil(AT_ONCE);
    let is_in_use = |chunk: &usize| {
        let mut numbers = [pollfd {
            fd: 0,
            events: 0,
            revents: 0,
        }; AT_ONCE];
        for (number, one) in (chunk * AT_ONCE..).zip(&mut numbers) {
            one.fd = number as c_int;
        }
        // SAFETY: the pointer and the length are those of an array.
        let outcome = unsafe { next::poll(numbers.as_mut_ptr(), AT_ONCE as nfds_t, 0) };
        outcome < 0 || numbers.iter().any(|one| one.revents & libc::POLLNVAL == 0)
    };
    let behind = (libc::FD_SETSIZE / AT_ONCE..most).rev().find(is_in_use);
    behind.map_or(libc::FD_SETSIZE, |chunk| (chunk + 1) * AT_ONCE)
}

/// Returns the value of the line `FDSize:` in /proc/self/status.
fn size_in(status: &[u8]) -> Option<usize> {
    let status = std::str::from_utf8(status).ok()?;
    let mut lines = status.lines();
    let size = lines.find_map(|line| line.strip_prefix("FDSize:"))?;
    size.trim().parse().ok()
}

/// Returns the numbers of the bits that are set.
fn ones(word: usize) -> impl Iterator<Item = usize> {
    let mut left = word;
    std::iter::from_fn(move || {
        let bit = left.trailing_zeros() as usize;
        (left != 0).then(|| {
            left &= left - 1;
            bit
        })
    })
}

/// Converts a timeval into a duration. A microseconds value of a million or more is carried over to the seconds. `None` for an invalid timeval.
fn duration_of(time: timeval) -> Option<Duration> {
    let seconds = Duration::from_secs(u64::try_from(time.tv_sec).ok()?);
    seconds.checked_add(Duration::from_micros(u64::try_from(time.tv_usec).ok()?))
}

fn timeval_of(left: Duration) -> timeval {
    timeval {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_usec: i64::from(left.subsec_micros()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_the_table_is_found_among_other_lines() {
        let status = b"Name:\tx\nTracerPid:\t0\nFDSize:\t256\nGroups:\t0 \n";
        assert_eq!(size_in(status), Some(256));
        assert_eq!(size_in(b"Name:\tx\n"), None);
        assert!(numbers_in_use(4096) >= 64);
    }

    #[test]
    fn without_proc_the_highest_number_in_use_is_found_by_polling() {
        let file = std::fs::File::open("/dev/null").unwrap();
        // The test needs descriptors above 1024, the usual limit. A process may raise its own limit without a privilege.
        let most = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        rustix::process::setrlimit(
            rustix::process::Resource::Nofile,
            rustix::process::Rlimit {
                current: most.maximum,
                ..most
            },
        )
        .unwrap();
        assert_eq!(found_by_poll(4096), libc::FD_SETSIZE);
        let high = rustix::io::fcntl_dupfd_cloexec(&file, 2000).unwrap();
        assert_eq!(found_by_poll(4096), 2048);
        assert_eq!(found_by_poll(1500), libc::FD_SETSIZE);
        drop(high);
        assert_eq!(found_by_poll(4096), libc::FD_SETSIZE);
    }

    #[test]
    fn bits_are_found_by_their_numbers() {
        assert_eq!(ones(0).count(), 0);
        assert!(ones(1 << 63 | 0b101).eq([0, 2, 63]));
    }
}
