"""POSIX message queues, System V message queues and message rings in shared memory."""

from ._errors import *  # noqa: F403
from ._umsg import (
    Attributes,
    Lease,
    Peeked,
    Queue,
    Reservation,
    Status,
    SysVLease,
    SysVPeeked,
    SysVQueue,
    SysVStatus,
    __version__,
    queues,
    sysv_queues,
    unlink,
)
