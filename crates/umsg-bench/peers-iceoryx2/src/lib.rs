//! Wraps iceoryx2 in the C functions that `umsg-bench` loads. The module `peers/plug.rs` of `umsg-bench` describes the functions.
//!
//! A sender publishes a copy of each message to one subscriber. A sender never overwrites a message: if the subscriber's buffer is full, the sender
//! gets an error, and tries again. The ends wait as the documentation of the crate recommends: the sender notifies an event after each message, and a
//! receiver that finds no message blocks on the event.
//!
//! The parent makes only a queue's configuration, and no iceoryx2 node. iceoryx2 identifies a process by its node, so each end creates a node in its
//! own process, after the fork.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::fmt::Display;
use std::slice;
use std::thread;
use std::time::Duration;

use iceoryx2::port::listener::Listener;
use iceoryx2::port::notifier::Notifier;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;

/// The number of bytes in a message.
const SIZE: usize = 64;

/// The maximum number of senders of one queue, and of its receivers. One is in use; the others belong to killed processes, until iceoryx2 cleans them
/// up.
const ENDS: usize = 8;

/// The number of attempts to open a service that another process creates.
const TRIES: u32 = 100;
/// The pause between two attempts to open a service.
const PAUSE: Duration = Duration::from_millis(5);

type Payload = [u8; SIZE];

const EAGAIN: c_int = 11;
const EIO: c_int = 5;
const EMSGSIZE: c_int = 90;

/// A queue: the iceoryx2 configuration, with the queue's directory and name, and the queue's depth.
struct Queue {
    config: Config,
    depth: usize,
}

/// A sending or receiving end of a queue, with its iceoryx2 node, which must exist as long as the end. An end whose calls wait has a notifier (the
/// sender) or a listener (the receiver).
enum End {
    Sender {
        publisher: Publisher<ipc::Service, Payload, ()>,
        notifier: Option<Notifier<ipc::Service>>,
        _node: Node<ipc::Service>,
    },
    Receiver {
        subscriber: Subscriber<ipc::Service, Payload, ()>,
        listener: Option<Listener<ipc::Service>>,
        _node: Node<ipc::Service>,
    },
}

type Failed = Box<dyn std::error::Error>;

impl Queue {
    fn new(directory: &str, name: &str, depth: usize) -> Result<Self, Failed> {
        let mut config = Config::default();
        config
            .global
            .set_root_path(&Path::new(directory.as_bytes()).map_err(text)?);
        config.global.prefix = FileName::new(name.as_bytes()).map_err(text)?;
        Ok(Self { config, depth })
    }

    /// Creates an end. If another process is creating the same iceoryx2 service, the service may be incomplete; the function then tries again.
    fn end(&self, sends: bool, waits: bool) -> Result<End, Failed> {
        // At other log levels, iceoryx2 would print messages about killed processes between the benchmark's tables.
        set_log_level(LogLevel::Fatal);
        let mut tries = 0;
        loop {
            match self.try_end(sends, waits) {
                Err(_) if tries < TRIES => thread::sleep(PAUSE),
                done => return done,
            }
            tries += 1;
        }
    }

    fn try_end(&self, sends: bool, waits: bool) -> Result<End, Failed> {
        let node = NodeBuilder::new()
            .config(&self.config)
            .create::<ipc::Service>()?;
        let messages = node
            .service_builder(&"messages".try_into()?)
            .publish_subscribe::<Payload>()
            .enable_safe_overflow(false)
            .history_size(0)
            .subscriber_max_buffer_size(self.depth)
            .max_publishers(ENDS)
            .max_subscribers(ENDS)
            .open_or_create()?;
        let bell = node
            .service_builder(&"bell".try_into()?)
            .event()
            .max_notifiers(ENDS)
            .max_listeners(ENDS)
            .open_or_create()?;
        Ok(match sends {
            true => End::Sender {
                publisher: messages
                    .publisher_builder()
                    .backpressure_strategy(BackpressureStrategy::DiscardData)
                    .create()?,
                notifier: waits
                    .then(|| bell.notifier_builder().create())
                    .transpose()?,
                _node: node,
            },
            false => End::Receiver {
                subscriber: messages.subscriber_builder().create()?,
                listener: waits
                    .then(|| bell.listener_builder().create())
                    .transpose()?,
                _node: node,
            },
        })
    }
}

impl End {
    fn try_send(&self, message: Payload) -> Result<(), c_int> {
        let End::Sender {
            publisher,
            notifier,
            ..
        } = self
        else {
            return Err(EIO);
        };
        // The number of subscribers that got the message is 0, because the only subscriber's buffer is full.
        if publisher.send_copy(message).map_err(|_| EIO)? == 0 {
            return Err(EAGAIN);
        }
        if let Some(notifier) = notifier {
            notifier.notify().map_err(|_| EIO)?;
        }
        Ok(())
    }

    fn send(&self, message: Payload) -> Result<(), c_int> {
        loop {
            match self.try_send(message) {
                Err(EAGAIN) => thread::yield_now(),
                other => return other,
            }
        }
    }

    fn try_receive(&self) -> Result<Payload, c_int> {
        let End::Receiver { subscriber, .. } = self else {
            return Err(EIO);
        };
        let sample = subscriber.receive().map_err(|_| EIO)?;
        sample.map(|sample| *sample).ok_or(EAGAIN)
    }

    fn receive(&self) -> Result<Payload, c_int> {
        loop {
            match (self.try_receive(), self) {
                (
                    Err(EAGAIN),
                    End::Receiver {
                        listener: Some(listener),
                        ..
                    },
                ) => listener.blocking_wait_all(|_| ()).map_err(|_| EIO)?,
                (other, _) => return other,
            }
        }
    }
}

fn text(error: impl std::fmt::Debug) -> String {
    format!("{error:?}")
}

/// Returns the name and the version of iceoryx2. The benchmark adds a description of how it uses iceoryx2.
#[unsafe(no_mangle)]
pub extern "C" fn umsg_bench_about() -> *const c_char {
    c"iceoryx2 0.9".as_ptr()
}

/// # Safety
/// `directory` and `name` end with zero. The buffer `why` has room for `why_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_bench_make(
    directory: *const c_char,
    name: *const c_char,
    depth: c_uint,
    size: c_uint,
    why: *mut c_char,
    why_size: usize,
) -> *mut c_void {
    // SAFETY: by the caller's promises.
    let [directory, name] = [directory, name].map(|text| unsafe { CStr::from_ptr(text) });
    let made = match (directory.to_str(), name.to_str()) {
        (Ok(directory), Ok(name)) if size as usize == SIZE => {
            Queue::new(directory, name, depth as usize)
        }
        _ => Err("a name that is no text, or messages of another size".into()),
    };
    // SAFETY: by the caller's promises.
    unsafe { handed_over(made, why, why_size) }
}

/// # Safety
/// `queue` comes from `umsg_bench_make`. The buffer `why` has room for `why_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_bench_end(
    queue: *mut c_void,
    sends: c_int,
    waits: c_int,
    why: *mut c_char,
    why_size: usize,
) -> *mut c_void {
    // SAFETY: by the caller's promises.
    unsafe {
        let made = (*queue.cast::<Queue>()).end(sends != 0, waits != 0);
        handed_over(made, why, why_size)
    }
}

/// Returns a pointer to the created object, or null and the reason.
///
/// # Safety
/// The buffer `why` has room for `why_size` bytes.
unsafe fn handed_over<T>(
    made: Result<T, impl Display>,
    why: *mut c_char,
    why_size: usize,
) -> *mut c_void {
    match made {
        Ok(made) => Box::into_raw(Box::new(made)).cast(),
        Err(error) => {
            let reason = error.to_string();
            let length = reason.len().min(why_size.saturating_sub(1));
            // SAFETY: the caller lends the room for writing, and the text with its zero fits into it.
            unsafe {
                why.cast::<u8>()
                    .copy_from_nonoverlapping(reason.as_ptr(), length);
                why.add(length).write(0);
            }
            std::ptr::null_mut()
        }
    }
}

/// # Safety
/// `end` comes from `umsg_bench_end`, and `message` has `size` bytes.
unsafe fn sent(
    end: *mut c_void,
    message: *const c_void,
    size: usize,
    send: fn(&End, Payload) -> Result<(), c_int>,
) -> c_int {
    // SAFETY: by the caller's promises.
    let (end, message) = unsafe {
        let message = slice::from_raw_parts(message.cast::<u8>(), size);
        (&*end.cast::<End>(), message)
    };
    let message = message.try_into().map_err(|_| EMSGSIZE);
    message
        .and_then(|message| send(end, message))
        .err()
        .unwrap_or(0)
}

/// # Safety
/// `end` comes from `umsg_bench_end`, and `buffer` has `size` bytes.
unsafe fn received(
    end: *mut c_void,
    buffer: *mut c_void,
    size: usize,
    receive: fn(&End) -> Result<Payload, c_int>,
) -> c_long {
    // SAFETY: by the caller's promises.
    let (end, buffer) = unsafe {
        let buffer = slice::from_raw_parts_mut(buffer.cast::<u8>(), size);
        (&*end.cast::<End>(), buffer)
    };
    let Some(buffer) = buffer.first_chunk_mut::<SIZE>() else {
        return -c_long::from(EMSGSIZE);
    };
    match receive(end) {
        Ok(message) => {
            *buffer = message;
            SIZE as c_long
        }
        Err(errno) => -c_long::from(errno),
    }
}

/// # Safety
/// See [`sent`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_bench_send(
    end: *mut c_void,
    message: *const c_void,
    size: usize,
) -> c_int {
    // SAFETY: by the caller's promises.
    unsafe { sent(end, message, size, End::send) }
}

/// # Safety
/// See [`sent`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_bench_try_send(
    end: *mut c_void,
    message: *const c_void,
    size: usize,
) -> c_int {
    // SAFETY: by the caller's promises.
    unsafe { sent(end, message, size, End::try_send) }
}

/// # Safety
/// See [`received`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_bench_receive(
    end: *mut c_void,
    buffer: *mut c_void,
    size: usize,
) -> c_long {
    // SAFETY: by the caller's promises.
    unsafe { received(end, buffer, size, End::receive) }
}

/// # Safety
/// See [`received`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_bench_try_receive(
    end: *mut c_void,
    buffer: *mut c_void,
    size: usize,
) -> c_long {
    // SAFETY: by the caller's promises.
    unsafe { received(end, buffer, size, End::try_receive) }
}

/// # Safety
/// `queue` comes from `umsg_bench_make`, and is no longer used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_bench_drop(queue: *mut c_void) {
    // SAFETY: the caller promises that `queue` comes from `umsg_bench_make`, which made the pointer from a box.
    drop(unsafe { Box::from_raw(queue.cast::<Queue>()) });
}
