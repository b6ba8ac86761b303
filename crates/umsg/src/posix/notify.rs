//! Notification: the library notifies a process once when a message comes to the empty queue. Source: mq_notify(3).

use super::queue::Queue;
use crate::error::{Fault, NotifyError};
use crate::lease::Holder;
use crate::notification::{self, Deed, Failure, Notified, NotifyKind};
use std::sync::Arc;
use std::time::Duration;
use umsg_shm::lock::SLICE;
use umsg_shm::posix_engine::{self, Outcome, Refused, RegisterError};
use umsg_shm::sys::clock::Deadline;
use umsg_shm::sys::futex::{self, Slept};
use umsg_shm::sys::liveness;
use umsg_shm::sys::{detached, mask, process, thread};

/// The largest signal number.
const SIGNALS: i32 = 64;

/// The size of the stack for a function, in bytes, as for a thread of the standard library. The default of musl, 128 KiB, is too small for most code.
const STACK: usize = 2 << 20;

/// The form of a process's notification.
#[non_exhaustive]
pub enum Notify {
    /// No notification. The registration only keeps other processes from registering.
    Nothing,
    /// A signal to the process, with a value. The siginfo of the signal has SI_MESGQ, the value, and the process and real user of the sender. Signal
    /// 0 raises no signal.
    Signal {
        /// The number of the signal, 0 to 64.
        signal: i32,
        /// The value in `si_value`.
        value: usize,
    },
    /// A function that returns quickly. One thread of the process calls it for all notifications; that thread has a small stack
    /// and masks all signals. See [`Notify::call`].
    Quick(Box<dyn FnOnce(Notified) + Send>),
}

impl Notify {
    /// Returns a notification by a function that runs in its own thread, with no signal masked, as SIGEV_THREAD in C. The
    /// thread has a stack of 2 MiB. If the thread can't be started, the function is not called.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// let (tell, told) = std::sync::mpsc::channel();
    /// let how = umsg::posix::Notify::call(move |notified| tell.send(notified.pid).unwrap_or(()));
    /// let _registration = queue.notify(how)?;
    /// queue.send(b"news", 0)?;
    /// assert_eq!(told.recv()?, std::process::id());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn call(function: impl FnOnce(Notified) + Send + 'static) -> Notify {
        Notify::Quick(Box::new(move |by| {
            let work = move || {
                mask::clear();
                function(by);
            };
            // The error is dropped: the notification has no caller that could receive an error.
            let _ = detached::start(None, Some(STACK), work);
        }))
    }

    /// Returns a notification by a signal with the value 0.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// let registration = queue.notify(umsg::posix::Notify::signal(libc::SIGCONT))?;
    /// queue.send(b"news", 0)?; // raises SIGCONT here, which is ignored
    /// assert!(!registration.is_armed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn signal(signal: i32) -> Notify {
        Notify::Signal { signal, value: 0 }
    }

    /// Returns a notification by a signal, if the number is valid.
    pub(super) fn checked_signal(signal: i32, value: usize) -> Result<Notify, NotifyError> {
        match (0..=SIGNALS).contains(&signal) {
            true => Ok(Notify::Signal { signal, value }),
            false => Err(NotifyError::InvalidSignal),
        }
    }

    fn deed(self) -> Result<Deed, NotifyError> {
        match self {
            Notify::Nothing => Ok(Deed::Nothing),
            Notify::Signal { signal, value } => {
                Notify::checked_signal(signal, value)?;
                Ok(Deed::Signal { signal, value })
            }
            Notify::Quick(function) => Ok(Deed::Call(function)),
        }
    }
}

impl std::fmt::Debug for Notify {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Notify::Nothing => f.write_str("Nothing"),
            Notify::Signal { signal, value } => f
                .debug_struct("Signal")
                .field("signal", signal)
                .field("value", value)
                .finish(),
            Notify::Quick(_) => f.debug_struct("Quick").finish_non_exhaustive(),
        }
    }
}

/// A registration for one notification. A drop withdraws the registration if it has not fired.
#[derive(Debug)]
#[must_use = "a registration that is dropped is withdrawn"]
pub struct Registration<'a> {
    ticket: u64,
    queue: Holder<'a, Queue>,
}

impl Registration<'_> {
    /// Returns whether the registration still waits for a message. Returns false in a forked child, because the registration belongs to the parent.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// let registration = queue.notify(umsg::posix::Notify::signal(0))?;
    /// assert!(registration.is_armed());
    /// queue.send(b"news", 0)?;
    /// assert!(!registration.is_armed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_armed(&self) -> bool {
        notification::is_armed(self.ticket)
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        notification::withdraw(self.ticket, self.queue.identity());
    }
}

/// A registration whose owner waits for the notification. A drop withdraws the registration.
#[derive(Debug)]
#[must_use = "a registration that is dropped is withdrawn"]
pub struct Awaited<'a> {
    queue: Holder<'a, Queue>,
    index: u32,
    armed: u32,
    /// The epoch of the process that owns the registration.
    epoch: u64,
    heard: Option<Notified>,
}

impl<'a> Awaited<'a> {
    fn register(queue: Holder<'a, Queue>) -> Result<Awaited<'a>, NotifyError> {
        let registered = notification::register_to_wait(&queue.engine);
        let (index, armed) = registered.map_err(|error| queue.notify_error(error))?;
        Ok(Awaited {
            queue,
            index,
            armed,
            epoch: process::epoch(),
            heard: None,
        })
    }
}

impl Awaited<'_> {
    /// Waits until a message comes to the empty queue and no blocked receiver takes it. After the notification, every call returns at once.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// let mut news = queue.notify_waiter()?;
    /// queue.send(b"news", 0)?;
    /// assert_eq!(news.wait()?.pid, std::process::id());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Until the notification.
    ///
    /// # Errors
    /// [`NotifyError::Interrupted`] (EINTR); [`NotifyError::Gone`] (ECANCELED) in a forked child.
    pub fn wait(&mut self) -> Result<Notified, NotifyError> {
        self.wait_by(Deadline::Never)
    }

    /// Waits as [`wait`](Self::wait) does, at most for `timeout` on the monotonic clock.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// let mut news = queue.notify_waiter()?;
    /// let none = news.wait_timeout(std::time::Duration::from_millis(1)).unwrap_err();
    /// assert_eq!(none, umsg::posix::NotifyError::TimedOut);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`NotifyError::TimedOut`] (ETIMEDOUT), and the errors of [`wait`](Self::wait).
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<Notified, NotifyError> {
        self.wait_by(Deadline::after(timeout))
    }

    /// Returns the notification if it has happened.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// let mut news = queue.notify_waiter()?;
    /// assert!(news.try_wait().is_err());
    /// queue.send(b"news", 0)?;
    /// assert!(news.try_wait().is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`wait_timeout`](Self::wait_timeout).
    pub fn try_wait(&mut self) -> Result<Notified, NotifyError> {
        self.wait_by(Deadline::Passed)
    }

    fn wait_by(&mut self, deadline: Deadline) -> Result<Notified, NotifyError> {
        if let Some(heard) = self.heard {
            return Ok(heard);
        }
        if !self.is_ours() {
            return Err(NotifyError::Gone);
        }
        let me = thread::current();
        let calm = me.interruptions.calm();
        let engine = &self.queue.engine;
        loop {
            match engine.outcome(self.index, self.armed) {
                Outcome::Armed => {}
                Outcome::Gone => return Err(NotifyError::Gone),
                Outcome::Fired { pid, uid } => {
                    engine.acknowledge_notice(self.index, self.armed);
                    return Ok(*self.heard.insert(Notified { pid, uid }));
                }
            }
            let word = engine.notice_word(self.index, self.armed);
            let (word, value) = word.ok_or(NotifyError::Gone)?;
            match futex::wait_in_calm(word, value, calm, deadline.or_slice(SLICE)) {
                Slept::Interrupted => return Err(NotifyError::Interrupted),
                Slept::TimedOut if deadline.has_passed() => return Err(NotifyError::TimedOut),
                // A sender may have died between sending and notifying.
                Slept::TimedOut => engine.fire_if_due(me),
                Slept::Awake => {}
            }
        }
    }

    fn is_ours(&self) -> bool {
        self.epoch == process::epoch()
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        let engine = &self.queue.engine;
        if self.heard.is_none() && self.is_ours() && !engine.withdraw(self.index, self.armed) {
            // The registration has fired, and no process has taken the notification.
            engine.acknowledge_notice(self.index, self.armed);
        }
    }
}

/// The registration of a process with a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Registered {
    /// Process id of the registered process.
    pub pid: u32,
    /// The form of the notification.
    pub kind: NotifyKind,
}

impl Queue {
    /// Registers this process for one notification. The notification is sent when the next message comes to the empty queue and no blocked receiver
    /// takes that message. The registration ends with the notification, or when the returned value is dropped. If the queue has messages, the
    /// registration takes effect after these messages have been received.
    ///
    /// The registration ends with the process, also if the process is killed. A forked child does not inherit the registration.
    ///
    /// The first registration with a signal or a function starts a thread, which masks all signals and stays. The thread keeps the process alive
    /// after its last other thread calls pthread_exit(3). The thread also prevents calls that need a process of one thread, such as unshare(2) of a
    /// user namespace, or setns(2) into one. Make these calls before the first registration, or in a forked child.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// let registration = queue.notify(umsg::posix::Notify::signal(0))?;
    /// assert!(queue.registered().is_some());
    /// drop(registration);
    /// assert!(queue.registered().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Only while a process is stopped inside an operation on this queue, or while 256 functions of this process still wait for their call.
    /// Each of the two waits takes a second at most.
    ///
    /// # Errors
    /// [`NotifyError::Busy`] (EBUSY) if a process is registered, possibly this one; [`NotifyError::InvalidSignal`] (EINVAL);
    /// `NoMemory`, `NoThread` and `TooManyUntold` (ENOMEM); `CallRefused`; `Unavailable`, `Damaged`, `WouldDeadlock`.
    ///
    /// # If the process dies
    /// The registration of a dead process ends as soon as another process registers. If a sender dies between sending and
    /// notifying, another process notifies within a tenth of a second.
    pub fn notify(&self, how: Notify) -> Result<Registration<'_>, NotifyError> {
        Ok(Registration {
            ticket: self.register(how)?,
            queue: Holder::Borrowed(self),
        })
    }

    /// Registers this process as [`notify`](Self::notify) does, with a registration that keeps the queue open. The registration can be kept in a
    /// struct, and can outlive the caller's handle.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// let queue = std::sync::Arc::new(queue);
    /// let registration = queue.notify_owned(umsg::posix::Notify::signal(0))?;
    /// drop(queue);
    /// assert!(registration.is_armed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`notify`](Self::notify).
    pub fn notify_owned(
        self: &Arc<Self>,
        how: Notify,
    ) -> Result<Registration<'static>, NotifyError> {
        Ok(Registration {
            ticket: self.register(how)?,
            queue: Holder::Shared(Arc::clone(self)),
        })
    }

    /// Registers this process as [`notify`](Self::notify) does. The process gets the notification by waiting for it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// let mut news = queue.notify_waiter()?;
    /// queue.send(b"news", 0)?;
    /// news.wait()?;
    /// assert_eq!(queue.receive_vec()?.data, b"news");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`notify`](Self::notify).
    pub fn notify_waiter(&self) -> Result<Awaited<'_>, NotifyError> {
        Awaited::register(Holder::Borrowed(self))
    }

    /// Registers this process as [`notify_waiter`](Self::notify_waiter) does, with a registration that keeps the queue open. The registration can be
    /// kept in a struct, sent to another thread, and outlive the caller's handle.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// let queue = std::sync::Arc::new(queue);
    /// let mut news = queue.notify_waiter_owned()?;
    /// let heard = std::thread::spawn(move || news.wait());
    /// queue.send(b"news", 0)?;
    /// assert_eq!(heard.join().unwrap()?.pid, std::process::id());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`notify`](Self::notify).
    pub fn notify_waiter_owned(self: &Arc<Self>) -> Result<Awaited<'static>, NotifyError> {
        Awaited::register(Holder::Shared(Arc::clone(self)))
    }

    /// Registers this process as [`notify`](Self::notify) does. The registration stays until [`withdraw_notification`].
    ///
    /// # Errors
    /// The errors of [`notify`](Self::notify).
    #[doc(hidden)]
    pub fn register(&self, how: Notify) -> Result<u64, NotifyError> {
        let deed = how.deed()?;
        notification::register(&self.engine, self.identity(), deed).map_err(|failure| match failure
        {
            Failure::NoThread => NotifyError::NoThread,
            Failure::Refused(refused) => NotifyError::CallRefused {
                call: refused.call,
                errno: refused.errno.raw_os_error(),
            },
            Failure::Queue(error) => self.notify_error(error),
        })
    }

    fn notify_error(&self, error: RegisterError) -> NotifyError {
        match error {
            RegisterError::Busy => NotifyError::Busy,
            RegisterError::NoRecord => NotifyError::TooManyUntold,
            RegisterError::Refused(Refused::Fault(fault)) => {
                self.note(fault);
                fault.into()
            }
            RegisterError::Refused(_) => Fault::Busy.into(),
        }
    }

    /// Returns the registered process, if it lives.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// let _news = queue.notify_waiter()?;
    /// assert_eq!(queue.registered().map(|who| who.pid), Some(std::process::id()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn registered(&self) -> Option<Registered> {
        registered(&self.engine)
    }
}

pub(super) fn registered(engine: &posix_engine::Engine) -> Option<Registered> {
    let found = engine.registered()?;
    let kind = NotifyKind::of(&found);
    let is_dead = liveness::is_dead(engine.segment(), found.birth, |birth| {
        process::is_dead(found.pid, birth)
    });
    (!is_dead).then_some(Registered {
        pid: found.pid,
        kind,
    })
}

/// Withdraws this process's registration with the queue whose file has this device and inode number, if the process has a registration. mq_notify(3)
/// with NULL does the same. After the call, a thread of the library may keep the queue mapped for a tenth of a second.
#[doc(hidden)]
pub fn withdraw_notification(identity: (u64, u64)) {
    notification::withdraw_from(identity);
}

/// Withdraws the registration as [`withdraw_notification`] does, when a descriptor of the queue is closed. A thread of the library keeps the queue
/// mapped only until the thread has woken up.
#[doc(hidden)]
pub fn withdraw_notification_at_close(identity: (u64, u64)) {
    notification::withdraw_and_leave(identity);
}

/// Returns whether [`withdraw_notification_at_close`] may have an effect.
#[doc(hidden)]
#[inline]
#[must_use]
pub fn has_notifications() -> bool {
    notification::any_or_lingering()
}
