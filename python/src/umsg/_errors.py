"""The exceptions of umsg. Each exception is an OSError with an `errno`."""

__all__ = [
    "Busy",
    "Closed",
    "Corrupted",
    "Empty",
    "EndOfStream",
    "Error",
    "Exists",
    "Full",
    "HandleClosed",
    "Invalid",
    "LeaseEnded",
    "NoPermission",
    "NotFound",
    "OutOfMemory",
    "Removed",
    "TimedOut",
    "TooLong",
]


class Error(OSError):
    """The base class of all exceptions of umsg. `errno` has the error number of the library."""

    __module__ = "umsg"


class Full(Error, BlockingIOError):
    """The queue or ring is full, and the call does not wait (EAGAIN)."""

    __module__ = "umsg"


class Empty(Error, BlockingIOError):
    """The queue or ring has no matching message, and the call does not wait (EAGAIN; ENOMSG for System V queues)."""

    __module__ = "umsg"


class TimedOut(Error, TimeoutError):
    """The time limit of the call passed (ETIMEDOUT)."""

    __module__ = "umsg"


class Invalid(Error, ValueError):
    """An argument has an invalid value (EINVAL)."""

    __module__ = "umsg"


class TooLong(Error, ValueError):
    """The message is longer than the queue, the ring or the buffer allows (EMSGSIZE, E2BIG)."""

    __module__ = "umsg"


class Removed(Error):
    """The System V queue was removed (EIDRM)."""

    __module__ = "umsg"


class Closed(Error, BrokenPipeError):
    """The queue or ring is closed for sending (EPIPE)."""

    __module__ = "umsg"


class EndOfStream(Closed, EOFError):
    """The queue is closed for sending, and all its messages are received (EPIPE)."""

    __module__ = "umsg"


class HandleClosed(Error, ValueError):
    """The handle was closed by `close()` (EBADF)."""

    __module__ = "umsg"


class LeaseEnded(Error):
    """The lease or the reservation has ended (ESTALE)."""

    __module__ = "umsg"


class NotFound(Error, FileNotFoundError):
    """No queue or ring has this name, key or identifier (ENOENT)."""

    __module__ = "umsg"


class Exists(Error, FileExistsError):
    """A queue or ring of this name or key exists already (EEXIST)."""

    __module__ = "umsg"


class NoPermission(Error, PermissionError):
    """The caller has no permission for the operation (EACCES, EPERM)."""

    __module__ = "umsg"


class OutOfMemory(Error, MemoryError):
    """No memory is left for the message, or the file system of the namespace is full (ENOMEM, ENOSPC)."""

    __module__ = "umsg"


class Corrupted(Error):
    """The shared memory of the queue or ring is corrupted (EBADMSG)."""

    __module__ = "umsg"


class Busy(Error):
    """Another thread or process uses the object, or a stopped process holds its lock (EBUSY, EDEADLK)."""

    __module__ = "umsg"
