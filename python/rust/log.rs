//! Rare events of the process's queues, for the logger of a program.
//!
//! A call on a queue finds an event while it may hold the interpreter's lock, or has released it, or runs in a signal handler. So the listener never
//! uses Python: it stores the event in a free place, and wakes a thread of Python that waits without the interpreter's lock. Only this thread logs.
//!
//! The listener waits for nothing: it tries a place's lock once, and takes the next place if another thread has the lock. In a forked child, a
//! place that a thread of the parent had locked stays out of use. If no place is free, the event is counted.

use crate::wait;
use pyo3::prelude::*;
use std::fmt::{self, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use umsg::log::{self, Event, Level, What};

/// The maximum number of events that wait for the logging thread.
const PLACES: usize = 64;
/// The length of the longest text in bytes: a name of 256 bytes, each of which may be escaped as four bytes, and the event.
const LONGEST: usize = 4 * 256 + 128;
const NAME: usize = 256;

/// The events by their kinds, for `umsg.LogEvent.kind`.
const KINDS: [(What, &str); 8] = [
    (What::Repaired, "repaired"),
    (What::HolderDied, "holder-died"),
    (What::WaiterDied, "waiter-died"),
    (What::Expired, "expired"),
    (What::Corrupted, "corrupted"),
    (What::WaitedForRoom, "waited-for-room"),
    (What::WaitedForMessage, "waited-for-message"),
    (What::Lost, "lost"),
];

/// Bytes that the listener copies: it allocates no memory.
struct Bytes<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Bytes<N> {
    fn new() -> Bytes<N> {
        Bytes {
            bytes: [0; N],
            len: 0,
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes[..self.len]).into_owned()
    }

    /// Appends bytes. Bytes without room are dropped.
    fn add(&mut self, part: &[u8]) {
        let room = &mut self.bytes[self.len..];
        let len = part.len().min(room.len());
        room[..len].copy_from_slice(&part[..len]);
        self.len += len;
    }
}

impl<const N: usize> Write for Bytes<N> {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        self.add(part.as_bytes());
        Ok(())
    }
}

struct StoredEvent {
    /// The number by which the events are sorted.
    number: u64,
    level: Level,
    kind: &'static str,
    text: Bytes<LONGEST>,
    queue: Option<Bytes<NAME>>,
    id: Option<i32>,
    pid: Option<u32>,
    seconds: Option<f64>,
    lost: u64,
}

static STORED: [Mutex<Option<StoredEvent>>; PLACES] = [const { Mutex::new(None) }; PLACES];

// The accesses to the following words are Relaxed, unless a comment at the access gives another ordering: no word publishes other data, because the
// mutexes of `STORED` protect the events.

static NUMBER: AtomicU64 = AtomicU64::new(0);
/// The number of events that found no place.
static LOST: AtomicU64 = AtomicU64::new(0);
/// A word that changes with each event, and at the end of a turn. The logging thread sleeps on this word.
static CHANGES: AtomicU32 = AtomicU32::new(0);
/// The number of the current turn, the time in which one logger gets the events. The thread of an earlier turn ends.
static TURN: AtomicU32 = AtomicU32::new(0);
/// Whether a turn has begun and not ended.
static IS_ON: AtomicBool = AtomicBool::new(false);

fn keep(event: &Event<'_>) {
    let free = STORED
        .iter()
        .filter_map(|place| place.try_lock().ok())
        .find(|place| place.is_none());
    match free {
        Some(mut place) => {
            let mut text = Bytes::new();
            // Writing to a `Bytes` never fails.
            let _ = write!(text, "{event}");
            let kind = KINDS.iter().find(|(what, _)| *what == event.what);
            *place = Some(StoredEvent {
                number: NUMBER.fetch_add(1, Ordering::Relaxed),
                level: event.level(),
                kind: kind.map_or("unknown", |(_, kind)| kind),
                text,
                queue: event.queue.map(|name| {
                    let mut bytes = Bytes::new();
                    bytes.add(name.as_encoded_bytes());
                    bytes
                }),
                id: event.id,
                pid: event.pid,
                seconds: event.lasted.map(|lasted| lasted.as_secs_f64()),
                lost: event.lost,
            });
        }
        None => {
            LOST.fetch_add(1, Ordering::Relaxed);
        }
    }
    wake();
}

fn wake() {
    // Release: the thread that sees the change sees the event.
    CHANGES.fetch_add(1, Ordering::Release);
    // SAFETY: the address is that of a word of this process.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            CHANGES.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            i32::MAX,
        )
    };
}

/// Sleeps until the word changes. May also wake up without a reason.
fn sleep_while(seen: u32) {
    // SAFETY: the address is that of a word of this process; NULL is no time limit.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            CHANGES.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            seen,
            std::ptr::null::<libc::timespec>(),
        )
    };
}

/// Returns the stored events in order, and frees their places.
fn take() -> Vec<StoredEvent> {
    let places = STORED.iter().filter_map(|place| place.try_lock().ok());
    let mut events: Vec<StoredEvent> = places.filter_map(|mut place| place.take()).collect();
    events.sort_by_key(|event| event.number);
    events
}

/// A rare event of a queue: the attribute `umsg` of the records that `set_log` makes.
#[pyclass(frozen, get_all, module = "umsg")]
pub struct LogEvent {
    /// repaired, holder-died, waiter-died, expired, corrupted, waited-for-room, waited-for-message or lost.
    kind: &'static str,
    /// The name of the POSIX queue. None for other queues, and for a queue that this process opened before `set_log`.
    queue: Option<String>,
    /// The identifier of the System V queue.
    id: Option<i32>,
    /// The process that died; None if it is unknown.
    pid: Option<u32>,
    /// The duration of a wait, in seconds.
    seconds: Option<f64>,
    /// The number of events that were lost.
    lost: u64,
}

#[pymethods]
impl LogEvent {
    fn __repr__(&self) -> String {
        let of = match (&self.queue, self.id) {
            (Some(name), _) => format!(" of {name}"),
            (None, Some(id)) => format!(" of id:{id}"),
            (None, None) => String::new(),
        };
        format!("<umsg.LogEvent {}{of}>", self.kind)
    }
}

/// Level of `logging`, text, and the event.
type LogRecord = (u32, String, LogEvent);

fn record_of(kept: StoredEvent) -> LogRecord {
    let level = match kept.level {
        Level::Debug => 10,
        Level::Info => 20,
        Level::Warning => 30,
    };
    let event = LogEvent {
        kind: kept.kind,
        queue: kept.queue.map(|name| name.text()),
        id: kept.id,
        pid: kept.pid,
        seconds: kept.seconds,
        lost: kept.lost,
    };
    (level, kept.text.text(), event)
}

fn record_of_lost(lost: u64) -> LogRecord {
    let event = LogEvent {
        kind: "lost",
        queue: None,
        id: None,
        pid: None,
        seconds: None,
        lost,
    };
    (30, format!("{lost} events were lost"), event)
}

/// Begins a turn, in which the listener stores events. If a turn has already begun, the call only sets `slow_wait`. Returns the number of the turn,
/// for `_next_events`. An error changes nothing.
#[pyfunction]
#[pyo3(name = "_begin_log")]
pub fn begin(slow_wait: &Bound<'_, PyAny>) -> PyResult<u32> {
    log::set_slow_wait(wait::duration(slow_wait, "slow_wait")?);
    // Relaxed: a lock of Python orders the calls that begin and end turns.
    if IS_ON.swap(true, Ordering::Relaxed) {
        return Ok(TURN.load(Ordering::Relaxed));
    }
    let turn = next_turn();
    log::listen(keep);
    wake();
    Ok(turn)
}

/// Begins a turn in a forked child, which has its parent's events and listener, but not its thread. Returns the number of the turn.
#[pyfunction]
#[pyo3(name = "_begin_log_in_child")]
pub fn begin_in_child() -> u32 {
    // If a log handler forks, its muted thread becomes the first thread of the child.
    log::mute_thread(false);
    next_turn()
}

/// Drops the events of earlier turns, and returns the number of the next turn.
fn next_turn() -> u32 {
    take();
    LOST.store(0, Ordering::Relaxed);
    TURN.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
}

/// Ends the turn: the logging thread gets the remaining events, and then None.
#[pyfunction]
#[pyo3(name = "_end_log")]
pub fn end() {
    log::stop_listening();
    IS_ON.store(false, Ordering::Relaxed);
    TURN.fetch_add(1, Ordering::Relaxed);
    wake();
}

/// Waits for events of a turn, without the interpreter's lock. Returns None at the end of the turn.
#[pyfunction]
#[pyo3(name = "_next_events")]
pub fn next(py: Python<'_>, turn: u32) -> Option<Vec<LogRecord>> {
    // The thread is muted, because a handler that sends to a queue could otherwise make events without an end.
    log::mute_thread(true);
    loop {
        // Acquire: pairs with the release in `wake`. An event that comes later changes the word, which ends the sleep.
        let seen = CHANGES.load(Ordering::Acquire);
        let is_over = TURN.load(Ordering::Relaxed) != turn;
        let mut events: Vec<LogRecord> = take().into_iter().map(record_of).collect();
        let lost = LOST.swap(0, Ordering::Relaxed);
        if lost != 0 {
            events.push(record_of_lost(lost));
        }
        if !events.is_empty() {
            return Some(events);
        }
        if is_over {
            log::mute_thread(false);
            return None;
        }
        py.detach(|| sleep_while(seen));
    }
}

pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<LogEvent>()?;
    module.add_function(wrap_pyfunction!(begin, module)?)?;
    module.add_function(wrap_pyfunction!(begin_in_child, module)?)?;
    module.add_function(wrap_pyfunction!(end, module)?)?;
    module.add_function(wrap_pyfunction!(next, module)?)
}
