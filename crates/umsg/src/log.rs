//! Rare events of this process's queues, for the log of a program: repairs after a death, dead holders and waiters, expired messages, corruption and
//! long waits.
//!
//! [`listen`] passes them to a function. With the feature `tracing`, the crate also emits them as events of the crate `tracing`, with the target
//! `umsg`. The C library has umsg_set_log(3).
//!
//! A call finds most of these events while it holds a lock of the queue. The call reports the events after it has released the lock: at its own end,
//! or at the end of a later call. So a listener may use queues. Events of the listener's own use of queues are dropped: in one thread, a listener is
//! never called within itself. A listener must not block for long, because the call waits for the listener. A listener that passes events to another
//! thread lets that thread call [`mute_thread`].
//!
//! The log takes no lock. So a child of fork(2) has its parent's listener and gets its own events, whatever the parent's other threads did at the
//! fork. A signal handler may call [`listen`].
//!
//! ```
//! # let dir = tempfile::tempdir_in("/dev/shm")?;
//! # let namespace = umsg::Namespace::at(dir.path())?;
//! use std::sync::atomic::{AtomicU32, Ordering};
//! use std::time::Duration;
//! use umsg::log::{self, What};
//!
//! static EXPIRED: AtomicU32 = AtomicU32::new(0);
//! log::listen(|event| {
//!     eprintln!("umsg: {event}"); // umsg: /q: a message expired
//!     if event.what == What::Expired {
//!         EXPIRED.fetch_add(1, Ordering::Relaxed);
//!     }
//! });
//!
//! let mut options = umsg::posix::OpenOptions::new();
//! options.read(true).write(true).create(true).namespace(&namespace);
//! let queue = options.time_to_live(Duration::from_millis(1)).open("/q")?;
//! queue.send(b"job", 0)?;
//! std::thread::sleep(Duration::from_millis(20));
//! assert!(queue.try_receive_vec().is_err());
//! assert_eq!(EXPIRED.load(Ordering::Relaxed), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::ffi::OsStr;
use std::fmt::{self, Display, Formatter};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;
use umsg_shm::report::{self, Receiver, Report};

pub use umsg_shm::report::What;

/// An event of one of this process's queues.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Event<'a> {
    /// The kind of the event.
    pub what: What,
    /// The name of the POSIX queue, with its slash. `None` for other queues, and for a queue that was opened before [`listen`].
    pub queue: Option<&'a OsStr>,
    /// The identifier of the System V queue.
    pub id: Option<i32>,
    /// The process that died. `None` if that process is unknown, and for an event that is not about a dead process.
    pub pid: Option<u32>,
    /// The duration of a wait.
    pub lasted: Option<Duration>,
    /// For [`What::Lost`]: the number of events that were lost.
    pub lost: u64,
}

/// The importance of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// A receiver waited for a long time.
    Debug,
    /// A message expired, or a sender waited for a long time.
    Info,
    /// A process that used a queue died, a queue is corrupted, or events were lost.
    Warning,
}

impl Event<'_> {
    /// Returns how important the event is.
    ///
    /// ```
    /// use umsg::log::Level;
    ///
    /// umsg::log::listen(|event| {
    ///     if event.level() == Level::Warning {
    ///         eprintln!("umsg: {event}");
    ///     }
    /// });
    /// assert!(Level::Warning > Level::Debug);
    /// ```
    #[must_use]
    pub fn level(&self) -> Level {
        match self.what {
            What::WaitedForMessage => Level::Debug,
            What::Expired | What::WaitedForRoom => Level::Info,
            _ => Level::Warning,
        }
    }
}

/// Writes the event as a line without a line feed, such as `/jobs: process 4711 died with a message`.
impl Display for Event<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match (self.queue, self.id) {
            (Some(name), _) => write!(f, "{}: ", name.as_bytes().escape_ascii())?,
            (None, Some(id)) => write!(f, "id:{id}: ")?,
            (None, None) => {}
        }
        let process = |f: &mut Formatter<'_>| match self.pid {
            Some(pid) => write!(f, "process {pid}"),
            None => f.write_str("a process"),
        };
        let lasted = self.lasted.unwrap_or_default().as_secs_f64();
        match self.what {
            What::Repaired => {
                process(f)?;
                f.write_str(" died during a call on the queue, and the queue was repaired")
            }
            What::HolderDied => {
                process(f)?;
                f.write_str(" died with a lease or a reservation")
            }
            What::WaiterDied => {
                process(f)?;
                f.write_str(" died while it waited")
            }
            What::Expired => f.write_str("a message expired"),
            What::Corrupted => f.write_str("the queue is corrupted"),
            What::WaitedForRoom => write!(f, "a sender waited {lasted:.1} s for room"),
            What::WaitedForMessage => write!(f, "a receiver waited {lasted:.1} s for a message"),
            What::Lost => write!(f, "{} events were lost", self.lost),
            _ => f.write_str("an unknown event"),
        }
    }
}

/// A function that gets events.
///
/// The function runs in a thread that calls this crate, also between two sleeps of a call that waits. If a signal handler of the program calls the
/// crate, the function may run in the handler. With the feature `tracing`, the subscriber may also run in the handler: then no signal handler may
/// call the crate, unless the subscriber is async-signal-safe.
///
/// The function may use queues. Events of these uses are dropped in this thread, so the function is not called again before it returns. Other threads
/// may call the function at the same time. The function must return: a thread that leaves it by longjmp gets no more events.
pub type Listener = fn(&Event<'_>);

/// Sets the function that gets the events of this process's queues, in place of the earlier function. Other threads may still be in the earlier
/// function when this call returns. Queues that are open already have no name in their events.
///
/// ```
/// umsg::log::listen(|event| eprintln!("umsg: {event}"));
/// ```
pub fn listen(listener: Listener) {
    listen_with(listener);
}

/// Does the same as [`listen`] for a function with an argument, as the C library has it.
#[doc(hidden)]
pub fn listen_with<L: Fn(&Event<'_>) + Copy + Send + Sync + 'static>(listener: L) {
    report::set_receiver(Some(Receiver::new(move |report| receive(report, listener))));
}

/// Ends the effect of [`listen`].
///
/// ```
/// umsg::log::listen(|event| eprintln!("umsg: {event}"));
/// umsg::log::stop_listening();
/// ```
pub fn stop_listening() {
    report::set_receiver(without_listener());
}

/// Mutes or unmutes the calling thread. The calls of a muted thread make no events, and do not call the [`Listener`] for events of other threads.
/// Mute a thread that writes events to a log and uses queues for that. Otherwise each event could cause the next one.
///
/// At the start, no thread is muted. A child that a muted thread forks begins in a muted thread. In C: umsg_mute_thread_log(3).
///
/// ```
/// std::thread::spawn(|| {
///     umsg::log::mute_thread(true);
///     // Takes events from a channel that the listener fills, and sends them to a queue.
/// });
/// ```
pub fn mute_thread(is_muted: bool) {
    report::mute_thread(is_muted);
}

/// Sets the time after which the wait of a call becomes an event; by default, one second.
///
/// ```
/// umsg::log::set_slow_wait(std::time::Duration::from_millis(100));
/// ```
pub fn set_slow_wait(time: Duration) {
    report::set_slow_wait(time);
}

/// Emits events of `tracing` from now on, with the feature of that name.
pub(crate) fn begin() {
    #[cfg(feature = "tracing")]
    if let Some(receiver) = without_listener() {
        report::set_first_receiver(receiver);
    }
}

/// Returns the receiver of the reports in a process without a listener: with the feature `tracing`, its subscriber; otherwise None.
fn without_listener() -> Option<Receiver> {
    cfg!(feature = "tracing").then(|| Receiver::new(|report| receive(report, |_| ())))
}

fn receive(report: &Report, listener: impl Fn(&Event<'_>)) {
    let name = report.name();
    let is_wait = matches!(report.what, What::WaitedForRoom | What::WaitedForMessage);
    let event = Event {
        what: report.what,
        queue: (!name.is_empty()).then(|| OsStr::from_bytes(name)),
        id: report.id,
        pid: (report.pid != 0).then_some(report.pid),
        lasted: is_wait.then(|| Duration::from_nanos(report.amount)),
        lost: if is_wait { 0 } else { report.amount },
    };
    #[cfg(feature = "tracing")]
    emit(&event);
    listener(&event);
}

#[cfg(feature = "tracing")]
fn emit(event: &Event<'_>) {
    let queue = event.queue.map(|name| name.to_string_lossy());
    let queue = queue.as_deref();
    let (id, pid) = (event.id, event.pid);
    let seconds = event.lasted.map(|time| time.as_secs_f64());
    macro_rules! emit {
        ($level:ident) => {
            tracing::event!(target: "umsg", tracing::Level::$level, queue, id, pid, seconds, "{event}")
        };
    }
    match event.level() {
        Level::Debug => emit!(DEBUG),
        Level::Info => emit!(INFO),
        Level::Warning => emit!(WARN),
    }
}
