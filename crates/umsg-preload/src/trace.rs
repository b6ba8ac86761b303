//! Records of calls for `umsg trace`. For each call of a traced function, the drop-in sends a message to the ring that the command has made.
//!
//! The functions that send and receive read [`REQUEST`] together with the word of [`crate::cancellation`]. So a program without records pays nothing
//! for [`REQUEST`] in these functions. Each other traced function reads one more word.
//!
//! A record is sent after its call, with signals masked and on the library's stack ([`roomy`]). If the ring is full, the call waits, so that no
//! record is lost. If the command has died, or the ring can't be opened, the process gives up the request. If a call is begun again, after a handler
//! or a check for cancellation, only its end is recorded. A child of vfork records nothing, because it runs on its parent's memory.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::time::{Instant, SystemTime};

use libc::{ssize_t, timespec};
use umsg::Namespace;
use umsg::ring::{Post, RingError, SendError, Sender, Until};
use umsg::signals::Caller;
use umsg::sysv::raw;
use umsg_shm::reclaim::{Held, Link, Slots};
use umsg_shm::sys::stack::roomy;
use umsg_trace::record::{DATA, LONGEST, UNKNOWN};
use umsg_trace::request::{PLACE, VARIABLE};
use umsg_trace::{Function, Numbers, Record, Request};

use crate::cancellation::BEGIN_AGAIN;
use crate::{errno, pointer, process, table};

/// The request for records. Its first word is the counter of this process's cancellations.
pub(crate) static REQUEST: Request = Request::new();

/// The symbol by which `umsg trace --pid` finds the request: [`umsg_trace::request::SYMBOL`].
#[cfg_attr(not(test), unsafe(no_mangle))]
#[used]
#[allow(non_upper_case_globals, reason = "a symbol of C")]
pub static umsg_trace_request_1: &Request = &REQUEST;

/// Reads the request from the environment. The constructor calls this function, and `malloc` may not have started at that point.
pub(crate) fn start() {
    // The request of a set-user-ID program is ignored: the user who starts it must not choose the ring that gets its messages.
    if umsg_shm::sys::process::was_started_with_privilege() {
        return;
    }
    let mut name = [0; 16];
    name[..VARIABLE.len()].copy_from_slice(VARIABLE.as_bytes());
    // SAFETY: the name ends with a zero byte; the value is a C string that stays while the process has one thread.
    unsafe {
        let place = libc::getenv(name.as_ptr().cast());
        if !place.is_null() {
            REQUEST.ask(CStr::from_ptr(place).to_bytes());
        }
    }
}

/// The description of a call, apart from its times and result.
#[derive(Default)]
pub(crate) struct Described {
    pub(crate) arguments: [i64; 5],
    pub(crate) queue: Target,
    /// The first bytes of the message that was sent or received.
    pub(crate) data: Copied,
}

/// The queue of a call.
#[allow(clippy::large_enum_variant, reason = "a call has one, on its stack")]
#[derive(Default)]
pub(crate) enum Target {
    #[default]
    None,
    Descriptor(c_int),
    Name(Copied<256>),
    SystemV(c_int),
}

/// A copy of the first bytes of a message or name: the original bytes may no longer exist when the record is sent.
pub(crate) struct Copied<const N: usize = DATA> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Default for Copied<N> {
    fn default() -> Self {
        Copied {
            bytes: [0; N],
            len: 0,
        }
    }
}

impl<const N: usize> Copied<N> {
    /// Copies at most the first `N` of the `len` bytes at `from`.
    ///
    /// # Safety
    /// `len` bytes are readable at the address.
    pub(crate) unsafe fn of(from: *const c_char, len: usize) -> Self {
        let (mut bytes, len) = ([0; N], len.min(N));
        // SAFETY: by this function's contract; `bytes` is an array of this function.
        unsafe { ptr::copy_nonoverlapping(from.cast(), bytes.as_mut_ptr(), len) };
        Copied { bytes, len }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Target {
    /// Returns the name that the program passed to a call.
    ///
    /// # Safety
    /// `name` is a C string, or an address that a pointer check refuses.
    pub(crate) unsafe fn named(name: *const c_char) -> Target {
        if pointer::is_bad(name) {
            return Target::None;
        }
        // SAFETY: by this function's contract.
        let bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
        // SAFETY: a slice's bytes are readable.
        Target::Name(unsafe { Copied::of(bytes.as_ptr().cast(), bytes.len()) })
    }

    /// Returns the name that the program passed to a system call by number. The result has a slash, which the system call's name does not have.
    ///
    /// # Safety
    /// The conditions of [`named`](Self::named).
    pub(crate) unsafe fn named_bare(name: *const c_char) -> Target {
        // SAFETY: by this function's contract.
        let Target::Name(mut copied) = (unsafe { Target::named(name) }) else {
            return Target::None;
        };
        copied.bytes.rotate_right(1);
        copied.bytes[0] = b'/';
        copied.len = (copied.len + 1).min(copied.bytes.len());
        Target::Name(copied)
    }
}

/// Returns the seconds and nanoseconds of a time-out that the call has read. (-1, -1) means no time-out.
///
/// # Safety
/// `timeout` is NULL, or a timespec, or an address that a pointer check refuses.
pub(crate) unsafe fn limit(timeout: *const timespec) -> [i64; 2] {
    if pointer::is_bad(timeout) {
        return [-1, -1];
    }
    // SAFETY: by this function's contract.
    let time = unsafe { timeout.read_unaligned() };
    [time.tv_sec, time.tv_nsec]
}

/// Returns the name of a descriptor's queue, if there is a request. A traced close calls this function first, because the close forgets the queue.
pub(crate) fn name(fd: c_int) -> Target {
    let held = REQUEST.turn().and_then(|_| table::hold(fd));
    held.map_or(Target::None, |held| {
        // SAFETY: a slice's bytes are readable.
        Target::Name(unsafe { Copied::of(held.name.as_ptr().cast(), held.name.len()) })
    })
}

/// The result of a function of libc.
pub(crate) trait Outcome: Copy {
    fn number(self) -> i64;
}

impl Outcome for c_int {
    fn number(self) -> i64 {
        self.into()
    }
}

impl Outcome for ssize_t {
    fn number(self) -> i64 {
        self as i64
    }
}

/// Makes a call, and sends its record if there is a request. `describe` gets the result, which is -1 if the call failed.
#[inline(always)]
pub(crate) fn recorded<T: Outcome>(
    call: impl FnOnce() -> T,
    function: Function,
    describe: impl FnOnce(i64) -> Described,
) -> T {
    match REQUEST.turn() {
        None => call(),
        Some(turn) => record(turn, call, function, describe),
    }
}

#[cold]
fn record<T: Outcome>(
    turn: u32,
    call: impl FnOnce() -> T,
    function: Function,
    describe: impl FnOnce(i64) -> Described,
) -> T {
    let sleeps = sleeps();
    let began = SystemTime::now();
    let clock = Instant::now();
    let outcome = call();
    let took = clock.elapsed();
    let result = outcome.number();
    if result == i64::from(BEGIN_AGAIN) || !process::owns_table() {
        return outcome;
    }
    let errno = errno::get();
    let described = describe(result);
    let numbers = Numbers {
        began: began
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_nanos() as u64),
        took: took.as_nanos() as u64,
        result,
        arguments: described.arguments,
        pid: rustix::process::getpid().as_raw_nonzero().get() as u32,
        tid: rustix::thread::gettid().as_raw_nonzero().get() as u32,
        errno: if result == -1 { errno } else { 0 },
        depth: UNKNOWN,
        slept: self::sleeps().wrapping_sub(sleeps),
        function: function as u8,
        ..Numbers::default()
    };
    roomy(|| send(turn, numbers, &described));
    errno::set(errno);
    outcome
}

/// Returns how often this thread has given up its CPU to wait.
fn sleeps() -> u32 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the structure is live. It consists of numbers, for which zero is valid.
    unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init().ru_nvcsw as u32
    }
}

/// The ring of one run of `umsg trace` (a turn), as this process has opened it.
struct Opened {
    turn: u32,
    pid: u32,
    sender: Sender,
}

static RINGS: Slots<Opened> = Slots::new();
/// The ring that was opened last. The last thread that sends to a replaced ring unmaps it.
static OPENED: Link<Opened> = Link::nowhere();

fn send(turn: u32, mut numbers: Numbers, described: &Described) {
    let Some(ring) = opened(turn, numbers.pid) else {
        return;
    };
    let sender = &ring.sender;
    let held;
    let name = match &described.queue {
        Target::None => &[],
        Target::Name(name) => name.bytes(),
        Target::SystemV(id) => {
            numbers.depth = depth_of_sysv(*id);
            &[]
        }
        Target::Descriptor(fd) => {
            held = table::hold(*fd);
            if let Some(held) = &held {
                numbers.depth = held.queue.attributes().messages as u32;
            }
            held.as_ref().map_or(&[][..], |held| &held.name)
        }
    };
    let mut buffer = [0; LONGEST];
    let record = Record {
        numbers,
        name,
        data: described.data.bytes(),
    };
    let bytes = record.write(&mut buffer);
    let post = Post::new(numbers.began);
    // A cancellation must end the program's calls, but not this wait for room. So the request to end is taken, and made again after the send.
    let me = Caller::current();
    let mut ended = me.take_end();
    let sent = loop {
        match sender.send_long(&post, bytes, Until::Forever) {
            // The send is repeated after a cancellation or after a handler: on an alternate stack, signals are not masked.
            Err(SendError::Interrupted) => ended |= me.take_end(),
            sent => break sent,
        }
    };
    if ended {
        me.end_call();
    }
    if let Err(error) = sent {
        REQUEST.refuse(turn, error.errno());
    }
}

fn depth_of_sysv(id: c_int) -> u32 {
    let depth = || raw::find(id).ok()?.glance().ok();
    depth().map_or(UNKNOWN, |seen| seen.entry.messages as u32)
}

/// Returns the ring of a turn of `umsg trace`. In each process, the first recorded call of the turn opens the ring. The use of the ring is counted,
/// so the thread's hazard pointer stays free: while the thread waits for room in the ring, it also uses the queue of the traced call.
fn opened(turn: u32, pid: u32) -> Option<Held<Opened>> {
    let last = OPENED.hold_counted();
    if let Some(last) = last.filter(|last| last.turn == turn && last.pid == pid) {
        return Some(last);
    }
    let opened = open().map_err(|error| error.errno()).and_then(|sender| {
        let slot = RINGS.fill(Opened { turn, pid, sender });
        slot.ok_or(libc::ENOMEM)
    });
    match opened {
        Ok(slot) => {
            let held = Held::counted(slot, 0);
            held.another().into_iter().for_each(|word| OPENED.put(word));
            Some(held)
        }
        Err(errno) => {
            REQUEST.refuse(turn, errno);
            None
        }
    }
}

fn open() -> Result<Sender, RingError> {
    let place = REQUEST.place();
    debug_assert!(place.len() < PLACE);
    let path = Path::new(OsStr::from_bytes(&place));
    let (directory, name) = (path.parent(), path.file_name());
    let directory = directory.unwrap_or(Path::new("/"));
    let namespace = Namespace::existing(directory).map_err(umsg::posix::OpenError::from)?;
    let mut slashed = vec![b'/'];
    slashed.extend(name.unwrap_or_default().as_bytes());
    Sender::open_in(&namespace, OsStr::from_bytes(&slashed))
}
