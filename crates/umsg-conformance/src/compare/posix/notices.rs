//! The notifications that a worker receives as signals.

use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicUsize, Ordering};

use crate::backend::Backend;

/// The signals whose handlers record notices.
pub const SIGNALS: [i32; 2] = [40, 41];

/// The maximum number of notices that a process records.
const MOST: usize = 200;

/// A notice: a signal, and the information that its handler received.
struct Notice {
    signal: AtomicI32,
    code: AtomicI32,
    value: AtomicI64,
    pid: AtomicI32,
    uid: AtomicU32,
}

/// The notices of this process. The process runs at most one of the handlers at a time.
static NOTICES: [Notice; MOST] = [const {
    Notice {
        signal: AtomicI32::new(0),
        code: AtomicI32::new(0),
        value: AtomicI64::new(0),
        pid: AtomicI32::new(0),
        uid: AtomicU32::new(0),
    }
}; MOST];

static COUNT: AtomicUsize = AtomicUsize::new(0);

extern "C" fn take_down(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let Some(notice) = NOTICES.get(COUNT.load(Ordering::Relaxed)) else {
        return;
    };
    // SAFETY: the handler has SA_SIGINFO, and the handled signals are sent with a value.
    let (code, value, pid, uid) = unsafe {
        let info = &*info;
        let value = info.si_value().sival_ptr as i64;
        (info.si_code, value, info.si_pid(), info.si_uid())
    };
    notice.signal.store(signal, Ordering::Relaxed);
    notice.code.store(code, Ordering::Relaxed);
    notice.value.store(value, Ordering::Relaxed);
    notice.pid.store(pid, Ordering::Relaxed);
    notice.uid.store(uid, Ordering::Relaxed);
    COUNT.fetch_add(1, Ordering::Release);
}

/// Clears the notices in a new process, and installs the handlers that record notices.
pub fn begin(backend: &dyn Backend) {
    COUNT.store(0, Ordering::Relaxed);
    // SAFETY: with SA_SIGINFO, the kernel calls a handler with the three arguments of this function.
    let handler =
        unsafe { std::mem::transmute::<*const (), extern "C" fn(i32)>(take_down as *const ()) };
    for signal in SIGNALS {
        let _ = backend.handle_signal(signal, handler, libc::SA_SIGINFO);
    }
}

/// Returns the notices of this process so far as numbers: signal, code, value, the sender and its user. `who` converts a process id to the number of
/// the process in the history.
pub fn told(who: impl Fn(i32) -> i64) -> Vec<i64> {
    let count = COUNT.load(Ordering::Acquire);
    let notices = NOTICES.iter().take(count);
    let numbers = |notice: &Notice| {
        [
            i64::from(notice.signal.load(Ordering::Relaxed)),
            i64::from(notice.code.load(Ordering::Relaxed)),
            notice.value.load(Ordering::Relaxed),
            who(notice.pid.load(Ordering::Relaxed)),
            i64::from(notice.uid.load(Ordering::Relaxed)),
        ]
    };
    notices.flat_map(numbers).collect()
}
