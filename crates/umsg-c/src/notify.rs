//! POSIX queues: notification that a message has arrived.

use std::ffi::c_int;

use libc::sigevent;
use umsg::posix::sigevent::wanted;
use umsg::posix::withdraw_notification;

use crate::error::answer;
use crate::handle::{self, umsg_mqd_t};
use crate::pointer;

/// Registers the process for a notification when a message arrives at the empty queue, or ends the registration.
///
/// The process is notified once, when a message arrives at the empty queue and no thread waits to receive it; then the registration ends.
/// One process can be registered with a queue. While messages are in the queue, the registration has no effect until they have been
/// received. `sigev_notify` of `notification` is the kind of the notification:
///
/// - `SIGEV_NONE`: no notification; the registration only prevents other processes from registering.
/// - `SIGEV_SIGNAL`: by the signal `sigev_signo` to the process, with `SI_MESGQ` in `si_code`, `sigev_value` in `si_value`, and the
///   sender's process and real user id in `si_pid` and `si_uid`. Signal 0 means no signal.
/// - `SIGEV_THREAD`: by a call of `sigev_notify_function` with `sigev_value`, in a new detached thread with the attributes
///   `sigev_notify_attributes` (NULL for the default) and no signal masked.
///
/// If `notification` is NULL, the call ends the process's registration, if there is one.
///
/// The registration ends when the process closes a handle of the queue, or ends. A child made by fork(2) is not registered.
///
/// # Notes
/// The process raises its signals itself, so the sender needs no permission to send signals to it. A thread of this library waits for
/// notifications, with all signals masked. The first registration starts this thread, so do not make the first registration in a signal
/// handler. `SIGEV_NONE` and signal 0 start no thread.
///
/// The thread has two effects. The process does not end when its last other thread calls pthread_exit(3). Calls that need a
/// single-threaded process fail: unshare(2) with CLONE_NEWUSER, setns(2) into a user or mount namespace. Make such calls before the first
/// registration, or in a child made by fork(2).
///
/// When a send returns, the signal that it causes has been raised. There is one exception: another process sent the message, and the
/// registered process was stopped or got no processor for a second.
///
/// A process with access to the queue can forge a notification, with any `si_pid` and `si_uid`, before a message has arrived. Such a process can also
/// suppress the notification.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EAGAIN`: a stopped process has held a lock of this queue for more than a second.
/// - `EBADF`: `mqdes` is not the handle of an open queue.
/// - `EBADMSG`: the queue's memory is corrupted: it holds values that no operation writes.
/// - `EBUSY`: a process is already registered, possibly the calling process.
/// - `EDEADLK`: the call was made by a signal handler that interrupted a call on the same queue; see umsg_defer_signal(3).
/// - `EFAULT`: `notification` is at an address that can't be read.
/// - `EINVAL`: `sigev_notify` is not one of the three kinds, `sigev_signo` is not from 0 to 64, or `sigev_notify_function` is NULL.
/// - `ENOMEM`: there is no memory, no thread can be started, or 1,032 stopped processes have not run since this queue notified
///   them. Notifications that the calling process has not handled yet do not count. If threads for the calling process's functions can't
///   be started fast enough, the call waits for these threads, for at most a second.
///
/// # If the process dies
/// The registration of a dead process ends as soon as another process registers. If a sender dies after it has sent its message, another process
/// notifies in the sender's place within a tenth of a second.
///
/// # See also
/// umsg_mq_receive(3), umsg_mq_status(3), mq_notify(3), sigevent(3type)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_mq_notify(mqdes: umsg_mqd_t, notification: *const sigevent) -> c_int {
    let notify = || {
        if notification.is_null() {
            withdraw_notification(handle::hold(mqdes)?.queue.identity());
            return Ok(0);
        }
        pointer::check(notification, "notification")?;
        // SAFETY: the caller promises an event.
        let how = unsafe { wanted(notification) }?;
        handle::hold(mqdes)?.queue.register(how)?;
        Ok(0)
    };
    answer(notify())
}
