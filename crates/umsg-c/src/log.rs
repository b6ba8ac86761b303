//! The log of a program: rare events of its queues.

use std::ffi::{c_char, c_int, c_void};
use std::fmt::{self, Write as _};

use umsg::log::{self, Event, Level};

/// A function that gets the events of the process's queues: `level` is `LOG_WARNING`, `LOG_INFO` or `LOG_DEBUG` of syslog(3), and `text` a line
/// without a line feed, which is valid during the call.
pub type umsg_log =
    Option<unsafe extern "C" fn(level: c_int, text: *const c_char, argument: *mut c_void)>;

type Function = unsafe extern "C" fn(c_int, *const c_char, *mut c_void);

/// Sets a function that gets rare events of the process's queues, for the log of the program.
///
/// The events are: a process died during a call on a queue, and the library repaired the queue; a process died with a lease or a reservation; a
/// thread died while it waited; a message expired; a queue is corrupted; a call waited for a second or longer. The level of an event is `LOG_INFO`
/// for expired messages and waits for room, `LOG_DEBUG` for waits for a message, and `LOG_WARNING` for the other events. The function gets the events
/// that the process's own calls find. `text` names the queue, if the queue was opened after the first call of this function: "/jobs: process 4711
/// died with a lease or a reservation".
///
/// The library calls `log` with `argument` at the end of the call that finds the event, or at the end of a later call, in the thread of that call.
/// The thread then holds no lock of a queue. If a signal handler of the program calls the library, `log` may run in the handler. A `log` of NULL ends
/// the effect of an earlier call. After this function has returned, a call in another thread may still be in the earlier `log`.
///
/// `log` may call the library, also this function. The events of these calls are dropped, so `log` is not called again in the same thread before it
/// has returned. `log` must return: a thread that leaves `log` by longjmp(3) gets no more events. If `log` passes the events to another thread, which
/// uses queues itself, that thread calls umsg_mute_thread_log(3).
///
/// This function takes no lock, so it may be called in a signal handler, and in a child of fork(2) of a process with several threads. A child has its
/// parent's function.
///
/// # Return value
/// The call always returns 0, because it can't fail.
///
/// # Errors
/// None.
///
/// # If the process dies
/// The call changes nothing outside of the process.
///
/// # See also
/// umsg_mute_thread_log(3), umsg(1), umsg_mq_open(3), syslog(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_set_log(log: umsg_log, argument: *mut c_void) -> c_int {
    match log {
        Some(function) => {
            let argument = argument.expose_provenance();
            log::listen_with(move |event| pass_on(event, function, argument));
        }
        None => log::stop_listening(),
    }
    0
}

/// Mutes or unmutes the calling thread for the function of umsg_set_log(3).
///
/// The calls of a muted thread make no events, and do not call the function for the events of other threads: a later call of a thread that is not
/// muted reports those events. Mute a thread that writes the events to a log by means of queues. Otherwise each event could cause another event. If
/// `muted` is not 0, the thread is muted from now on; if it is 0, the thread is no longer muted.
///
/// At the start, no thread is muted. If a muted thread calls fork(2), the first thread of the child is muted. Other processes still report the events
/// that they find in the same queues. The call takes no lock, so it may be made in a signal handler.
///
/// # Return value
/// The call always returns 0, because it can't fail.
///
/// # Errors
/// None.
///
/// # If the process dies
/// The call changes nothing outside of the process.
///
/// # See also
/// umsg_set_log(3), pthreads(7)
#[unsafe(no_mangle)]
pub extern "C" fn umsg_mute_thread_log(muted: c_int) -> c_int {
    log::mute_thread(muted != 0);
    0
}

fn pass_on(event: &Event<'_>, function: Function, argument: usize) {
    let mut line = Line::default();
    // The text has no NUL: names are escaped. Writing to a `Line` never fails.
    let _ = write!(line, "{event}");
    let level = match event.level() {
        Level::Warning => libc::LOG_WARNING,
        Level::Info => libc::LOG_INFO,
        Level::Debug => libc::LOG_DEBUG,
    };
    let argument = std::ptr::with_exposed_provenance_mut(argument);
    // SAFETY: the program promises a function of this type that may be called with this argument; the text is a string.
    unsafe { function(level, line.text.as_ptr().cast(), argument) };
}

/// The length of the longest text in bytes, with its NUL: a name of 256 bytes, each of which may be escaped as four bytes, and the event.
const LONGEST: usize = 4 * 256 + 128;

/// A text on the stack: the call may run in a signal handler, which may not allocate memory.
struct Line {
    text: [u8; LONGEST],
    len: usize,
}

impl Default for Line {
    fn default() -> Line {
        Line {
            text: [0; LONGEST],
            len: 0,
        }
    }
}

/// Truncates a text that is too long. The last byte stays NUL.
impl fmt::Write for Line {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let room = &mut self.text[self.len..LONGEST - 1];
        let len = part.len().min(room.len());
        room[..len].copy_from_slice(&part.as_bytes()[..len]);
        self.len += len;
        Ok(())
    }
}
