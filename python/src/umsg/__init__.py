"""POSIX message queues, System V message queues and message rings in shared memory.

>>> import umsg
>>> queue = umsg.Queue("/orders", create=True, max_messages=100, message_size=64)
>>> queue.send(b"later")
>>> queue.send(b"urgent", priority=9)
>>> queue.receive()
b'urgent'
>>> with queue.receive_lease() as order:  # acknowledged at the end, returned to the queue on an exception
...     bytes(order)
b'later'
>>> queue.try_receive()
Traceback (most recent call last):
    ...
umsg.Empty: [Errno 11] the queue is empty, or a stopped process holds its lock: '/orders'
>>> queue.unlink()

Time limits are seconds or a `datetime.timedelta`; None is no limit. Messages are objects with the buffer protocol: bytes, bytearray,
memoryview, array.array, numpy arrays. Every exception is an `umsg.Error`, which is an `OSError` with an `errno`.

A handle may be used by several threads, after a fork, and after it was pickled: the process that unpickles it opens the queue again.
"""

from . import _aio
from ._command import run
from ._errors import (
    Busy,
    Closed,
    Corrupted,
    Empty,
    EndOfStream,
    Error,
    Exists,
    Full,
    HandleClosed,
    Invalid,
    LeaseEnded,
    NoPermission,
    NotFound,
    OutOfMemory,
    Removed,
    TimedOut,
    TooLong,
)
from ._log import set_log
from ._umsg import (
    Attributes,
    Awaited,
    DeadLetter,
    History,
    Lease,
    LogEvent,
    Notified,
    Peeked,
    Producer,
    Queue,
    RedriveRefused,
    Redriven,
    Registration,
    Reservation,
    Ring,
    RingMessage,
    RingSender,
    RingStatus,
    SavedMessage,
    SavedSysVMessage,
    Snapshot,
    Status,
    SysVLease,
    SysVPeeked,
    SysVQueue,
    SysVSnapshot,
    SysVStatus,
    __version__,
    queues,
    sysv_queues,
    unlink,
)

_aio.add_methods()

__all__ = [
    "Attributes",
    "Awaited",
    "Busy",
    "Closed",
    "Corrupted",
    "DeadLetter",
    "Empty",
    "EndOfStream",
    "Error",
    "Exists",
    "Full",
    "HandleClosed",
    "History",
    "Invalid",
    "Lease",
    "LeaseEnded",
    "LogEvent",
    "NoPermission",
    "NotFound",
    "Notified",
    "OutOfMemory",
    "Peeked",
    "Producer",
    "Queue",
    "RedriveRefused",
    "Redriven",
    "Registration",
    "Removed",
    "Reservation",
    "Ring",
    "RingMessage",
    "RingSender",
    "RingStatus",
    "SavedMessage",
    "SavedSysVMessage",
    "Snapshot",
    "Status",
    "SysVLease",
    "SysVPeeked",
    "SysVQueue",
    "SysVSnapshot",
    "SysVStatus",
    "TimedOut",
    "TooLong",
    "__version__",
    "queues",
    "run",
    "set_log",
    "sysv_queues",
    "unlink",
]
