//! System V queues: finding and creating.

use libc::c_int;
use umsg::sysv::raw;

use super::Refusal;
use crate::error::answer;

/// Finds the System V queue of a key, or creates one.
///
/// `key` is a `key_t`, as ftok(3) makes them. `msgflg` is 0, to find a queue, or has these bits of `<sys/msg.h>`:
///
/// - `IPC_CREAT`: create the queue if no queue has this key. The lowest nine bits of `msgflg` are its permission bits; the umask does not
///   change them. Read permission allows receiving, and write permission sending.
/// - `IPC_EXCL`: with `IPC_CREAT`, fail if a queue has this key.
///
/// With the key `IPC_PRIVATE`, which is 0, each call creates a new queue without a key. For an existing queue, the lowest nine bits are the
/// permissions that the caller requests.
///
/// The queue belongs to the namespace that umsg_mq_open(3) describes, like the POSIX queues. The process's first call determines the namespace for
/// all later calls. The owner of the namespace sets its limits without privilege (`umsg limits`). `msgmax` is the longest message, `msgmnb` the
/// number of bytes that a new queue may hold, and `max_qbytes` the maximum to which umsg_msgctl(3) may raise a queue's number of bytes. `msgmni` is
/// the number of queues. The defaults are the kernel's.
///
/// # Return value
/// On success, the call returns the queue's identifier, a non-negative integer that is not a descriptor. On error, -1 is returned, and errno is set
/// to indicate the error.
///
/// # Errors
/// - `EACCES`: the queue's mode does not grant the access that the lowest nine bits request; the mode of a new queue lets some users only send or
///   only receive, in a namespace that refuses such modes (umsg-limits(1)); or the key symlink, `msg/k-XXXXXXXX`, belongs to another user and its
///   queue does not exist; or the namespace is not trusted. umsg_last_error(3) tells the reason.
/// - `EBUSY`: a process was stopped while it made or removed a queue.
/// - `EEXIST`: the queue exists, and `msgflg` has `IPC_CREAT` and `IPC_EXCL`.
/// - `EFBIG`: the queue's file would be longer than the process's limit for files (`RLIMIT_FSIZE`), although most of the file takes no memory.
/// - `ENOENT`: no queue has this key, and `msgflg` lacks `IPC_CREAT`; or `UMSG_DIR` names a directory that does not
///   exist.
/// - `ENOMEM`: there is no memory, or no address space to map the queue.
/// - `ENOSPC`: the namespace has as many queues or bytes as its limits allow, or its file system is full.
/// - `EMFILE`, `ENFILE`: the process or the system has no free descriptor, which the call needs while it opens the queue.
///
/// # If the process dies
/// If the process dies while it creates a queue, there is either no queue or a complete queue. A queue and its messages stay until the queue is
/// removed.
///
/// # See also
/// umsg_msgctl(3), umsg_msgrcv(3), umsg_msgsnd(3), umsg(1), msgget(2), sysvipc(7)
#[unsafe(no_mangle)]
pub extern "C" fn umsg_msgget(key: c_int, msgflg: c_int) -> c_int {
    let id = raw::get(key, msgflg);
    answer(id.map_err(|error| Refusal::from(error).into()))
}
