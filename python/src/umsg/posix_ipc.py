"""The message queues of the package posix_ipc, in shared memory.

>>> import umsg.posix_ipc as posix_ipc
>>> queue = posix_ipc.MessageQueue("/jobs", posix_ipc.O_CREX, max_messages=10, max_message_size=64)
>>> queue.send("resize image 7", priority=3)
>>> queue.current_messages
1
>>> queue.receive(timeout=0.5)
(b'resize image 7', 3)
>>> queue.receive(timeout=0)
Traceback (most recent call last):
    ...
posix_ipc.BusyError: The queue is empty
>>> queue.close()
>>> queue.unlink()

The classes, functions, constants, exceptions and texts are those of posix_ipc 1.3.2. The queues are those of `umsg.Queue`, of the library in C
and of programs under `umsg run`.

Semaphores and shared memory are those of the package posix_ipc, if it is installed. Otherwise their use raises ImportError. If posix_ipc is
installed, the exceptions are its own classes, so that one `except` clause works for all parts.
"""

from __future__ import annotations

import os
import signal
from errno import (
    EACCES,
    EAGAIN,
    EBADF,
    EBUSY,
    EEXIST,
    EINTR,
    EINVAL,
    EMFILE,
    EMSGSIZE,
    ENAMETOOLONG,
    ENFILE,
    ENOENT,
    ENOMEM,
    ENOSPC,
    ETIMEDOUT,
)
from mmap import PAGESIZE
from operator import index

from . import _errors
from ._compatible import c_int, c_long, missing, original, system_error, with_read_only_texts
from ._umsg import Queue, queues, unlink

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Union

    from typing_extensions import Buffer

    _Notification = Union[None, int, tuple[Callable[[Any], object], Any]]

_original = original("posix_ipc")

__all__ = [
    "BusyError",
    "Error",
    "ExistentialError",
    "MESSAGE_QUEUES_SUPPORTED",
    "MessageQueue",
    "O_CREAT",
    "O_CREX",
    "O_EXCL",
    "O_NONBLOCK",
    "O_RDONLY",
    "O_RDWR",
    "O_TRUNC",
    "O_WRONLY",
    "PAGE_SIZE",
    "PermissionsError",
    "QUEUE_MESSAGES_MAX_DEFAULT",
    "QUEUE_MESSAGE_SIZE_MAX_DEFAULT",
    "QUEUE_PRIORITY_MAX",
    "SEMAPHORE_TIMEOUT_SUPPORTED",
    "SEMAPHORE_VALUE_MAX",
    "SEMAPHORE_VALUE_SUPPORTED",
    "Semaphore",
    "SharedMemory",
    "SignalError",
    "USER_SIGNAL_MAX",
    "USER_SIGNAL_MIN",
    "VERSION",
    "unlink_message_queue",
    "unlink_semaphore",
    "unlink_shared_memory",
]

VERSION = __version__ = "1.3.2"
__author__ = "the umsg authors"
__copyright__ = "Copyright (c) the umsg authors"
__license__ = "MIT OR Apache-2.0"
O_CREAT = os.O_CREAT
O_EXCL = os.O_EXCL
O_CREX = O_CREAT | O_EXCL
O_TRUNC = os.O_TRUNC
O_RDONLY = os.O_RDONLY
O_WRONLY = os.O_WRONLY
O_RDWR = os.O_RDWR
O_NONBLOCK = os.O_NONBLOCK
PAGE_SIZE = PAGESIZE
MESSAGE_QUEUES_SUPPORTED = True
QUEUE_MESSAGES_MAX_DEFAULT = 10
QUEUE_MESSAGE_SIZE_MAX_DEFAULT = 8192
QUEUE_PRIORITY_MAX = 32767
USER_SIGNAL_MIN = int(signal.SIGRTMIN)
USER_SIGNAL_MAX = int(signal.SIGRTMAX)
SEMAPHORE_VALUE_MAX = 2147483647
SEMAPHORE_TIMEOUT_SUPPORTED = True
SEMAPHORE_VALUE_SUPPORTED = True

if TYPE_CHECKING or _original is None:

    class Error(Exception):
        """The base class of the exceptions of this module."""

    class SignalError(Error):
        """A signal has interrupted a call that waited."""

    class PermissionsError(Error):
        """The caller has no permission for the operation."""

    class ExistentialError(Error):
        """The queue does not exist, or exists already."""

    class BusyError(Error):
        """The queue is full or empty, or has a registration for a notification."""

    class Semaphore:
        """A semaphore of the package posix_ipc."""

        def __init__(self, *arguments: Any, **named: Any) -> None:
            missing("posix_ipc", "Semaphore")

        if TYPE_CHECKING:

            def __getattr__(self, name: str) -> Any: ...

    class SharedMemory:
        """A shared memory segment of the package posix_ipc."""

        def __init__(self, *arguments: Any, **named: Any) -> None:
            missing("posix_ipc", "SharedMemory")

        if TYPE_CHECKING:

            def __getattr__(self, name: str) -> Any: ...

    def unlink_semaphore(name: str, /) -> None:
        """Removes the name of a semaphore: a function of the package posix_ipc."""
        missing("posix_ipc", "unlink_semaphore")

    def unlink_shared_memory(name: str, /) -> None:
        """Removes the name of a shared memory segment: a function of the package posix_ipc."""
        missing("posix_ipc", "unlink_shared_memory")

else:
    Error = _original.Error
    SignalError = _original.SignalError
    PermissionsError = _original.PermissionsError
    ExistentialError = _original.ExistentialError
    BusyError = _original.BusyError
    Semaphore = _original.Semaphore
    SharedMemory = _original.SharedMemory
    unlink_semaphore = _original.unlink_semaphore
    unlink_shared_memory = _original.unlink_shared_memory
    SEMAPHORE_VALUE_MAX = _original.SEMAPHORE_VALUE_MAX
    SEMAPHORE_TIMEOUT_SUPPORTED = _original.SEMAPHORE_TIMEOUT_SUPPORTED
    SEMAPHORE_VALUE_SUPPORTED = _original.SEMAPHORE_VALUE_SUPPORTED

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def _random_name() -> str:
    return "/" + "".join(_LETTERS[byte % 26] for byte in os.urandom(12))


def _name_of(name: object) -> str | bytes:
    if isinstance(name, str):
        if "\0" in name:
            raise ValueError("embedded null character")
        return name
    if isinstance(name, bytes):
        return name.split(b"\0")[0]
    raise TypeError("Name must be None or a string")


def _open_failure(error: _errors.Error) -> Exception:
    errno = error.errno or EINVAL
    if errno == EINVAL:
        return ValueError("Invalid parameter(s)")
    if errno == ENOSPC:
        return OSError("Insufficient space for a new queue")
    if errno == EACCES:
        return PermissionsError("Permission denied")
    if errno == EEXIST:
        return ExistentialError("A queue with the specified name already exists")
    if errno == ENOENT:
        return ExistentialError("No queue exists with the specified name")
    if errno == EMFILE:
        return OSError("This process already has the maximum number of files open")
    if errno == ENFILE:
        return OSError("The system limit on the total number of open files has been reached")
    if errno == ENAMETOOLONG:
        return ValueError("The name is too long")
    if errno == ENOMEM:
        return MemoryError("Not enough memory")
    return system_error(errno)


def _unlink_failure(error: _errors.Error) -> Exception:
    errno = error.errno or EINVAL
    if errno == EACCES:
        return PermissionsError("Permission denied")
    if errno in (ENOENT, EINVAL):
        return ExistentialError("No queue exists with the specified name")
    if errno == ENAMETOOLONG:
        return ValueError("The name is too long")
    return system_error(errno)


def _call_failure(error: BaseException, busy: str, closed: str) -> BaseException:
    """Chooses the exception for a send or a receive that failed with `error`, although its arguments are valid."""
    if isinstance(error, _errors.Error):
        errno = error.errno or EINVAL
        if errno in (EAGAIN, ETIMEDOUT):
            return BusyError(busy)
        if errno in (EBADF, EINVAL):
            return ExistentialError(closed)
        if errno == EMSGSIZE:
            return ValueError("The message is too long")
        if errno != EINTR:
            return system_error(errno)
    elif isinstance(error, (KeyboardInterrupt, MemoryError)):
        return error
    # The wait was interrupted, or a signal handler raised an exception. posix_ipc replaces both by
    # SignalError.
    return SignalError("The wait was interrupted by a signal")


def _seconds(timeout: object) -> float:
    """Reads a timeout other than None."""
    if isinstance(timeout, (float, int)) and not timeout < 0:
        return timeout
    raise TypeError("The timeout must be None or a non-negative number")


@with_read_only_texts
class MessageQueue:
    """A POSIX message queue with the interface of posix_ipc.MessageQueue.

    `flags` is 0 to open an existing queue, O_CREAT to open or create a queue, O_CREX to create a queue that must not exist. With O_CREX the name may
    be None: the queue gets a random name. With O_NONBLOCK the attribute `block` is False at the beginning. `mode`, `max_messages` and
    `max_message_size` are for a queue that is created.

    >>> queue = posix_ipc.MessageQueue(None, posix_ipc.O_CREX, max_messages=4, max_message_size=16)
    >>> queue.max_messages, queue.max_message_size, queue.block
    (4, 16, True)
    >>> queue.send(b"one")
    >>> reader = posix_ipc.MessageQueue(queue.name, write=False)
    >>> reader.receive()
    (b'one', 0)
    >>> reader.send(b"two")
    Traceback (most recent call last):
        ...
    posix_ipc.PermissionsError: The queue is not open for writing
    >>> queue.unlink()
    """

    __slots__ = (
        "_name",
        "_mode",
        "_max_messages",
        "_max_message_size",
        "_reads",
        "_writes",
        "_block",
        "_queue",
        "_send",
        "_receive",
    )

    def __init__(
        self,
        name: str | bytes | None,
        flags: int = 0,
        mode: int = 0o600,
        max_messages: int = QUEUE_MESSAGES_MAX_DEFAULT,
        max_message_size: int = QUEUE_MESSAGE_SIZE_MAX_DEFAULT,
        read: bool = True,
        write: bool = True,
    ) -> None:
        path = None if name is None else _name_of(name)
        flags = index(flags)
        mode = c_int(mode)
        capacity, size = c_long(max_messages), c_long(max_message_size)
        if flags & O_EXCL and not flags & O_CREAT:
            raise ValueError("O_EXCL must be combined with O_CREAT")
        if path is None and not flags & O_EXCL:
            raise ValueError("Name can only be None if O_EXCL is set")
        self._reads, self._writes = bool(read), bool(write)
        if not self._reads and not self._writes:
            raise ValueError("At least one of read or write must be True")
        while True:
            chosen = _random_name() if path is None else path
            try:
                queue = self._open(chosen, flags, mode, capacity, size)
                break
            except _errors.Error as error:
                if path is not None or error.errno != EEXIST:
                    raise _open_failure(error) from error
        queue._end_on_signals()
        attributes = queue.attributes()
        self._name = os.fsdecode(chosen)
        self._mode = mode
        self._max_messages = attributes.max_messages
        self._max_message_size = attributes.message_size
        self._block = not flags & O_NONBLOCK
        self._queue = queue
        self._send = queue.send
        self._receive = queue.receive_message

    def _open(self, name: str | bytes, flags: int, mode: int, capacity: int, size: int) -> Queue:
        if not flags & O_CREAT:
            return Queue(name, read=self._reads, write=self._writes)
        if not (0 < capacity < 2**32 and 0 < size < 2**32):
            self._check_sizes_are_unused(name, flags)
            return Queue(name, read=self._reads, write=self._writes)
        return Queue(
            name,
            read=self._reads,
            write=self._writes,
            create=True,
            exclusive=bool(flags & O_EXCL),
            existing="any",
            mode=mode & 0o7777,
            max_messages=capacity,
            message_size=size,
        )

    def _check_sizes_are_unused(self, name: str | bytes, flags: int) -> None:
        """Raises the exception for invalid sizes, unless the queue exists: only a queue that is created needs valid sizes."""
        text = os.fsdecode(name)
        exists = text in queues()
        if exists and flags & O_EXCL:
            raise _errors.Exists(EEXIST, os.strerror(EEXIST))
        if not exists:
            try:
                # For an invalid name, this call raises the exception.
                Queue(name)
            except _errors.NotFound:
                if text != "/":
                    raise _errors.Invalid(EINVAL, os.strerror(EINVAL)) from None

    @property
    def name(self) -> str:
        """The name of the queue."""
        return self._name

    @property
    def mode(self) -> int:
        """The argument `mode` of the constructor."""
        return self._mode

    @property
    def max_messages(self) -> int:
        """The capacity of the queue, in messages."""
        return self._max_messages

    @property
    def max_message_size(self) -> int:
        """The length of the longest message, in bytes."""
        return self._max_message_size

    @property
    def current_messages(self) -> int:
        """The number of messages in the queue."""
        try:
            return self._queue.attributes().messages
        except _errors.HandleClosed as error:
            raise ExistentialError("The queue does not exist") from error

    @property
    def mqd(self) -> int:
        """A descriptor for select, poll and epoll, -1 after `close()`. Functions of C such as mq_send(3) do not accept it."""
        return self.fileno()

    @property
    def block(self) -> bool:
        """False if a send to the full queue or a receive from the empty queue fails at once with BusyError and ignores its time-out."""
        if self._queue.closed:
            raise ExistentialError("The queue does not exist")
        return self._block

    @block.setter
    def block(self, value: object) -> None:
        if self._queue.closed:
            raise ExistentialError("The queue does not exist")
        self._block = bool(value)

    def send(self, message: str | Buffer, timeout: float | None = None, priority: int = 0) -> None:
        """Sends a message. A string is sent as UTF-8.

        On a full queue the call waits: without a limit if `timeout` is None, otherwise `timeout` seconds.
        """
        try:
            if isinstance(message, str):
                message = message.encode()
            if timeout is None and self._block:
                self._send(message, priority)
            elif timeout is not None and _seconds(timeout) and self._block:
                self._send(message, priority, timeout)
            else:
                self._queue.try_send(message, priority)
        except BaseException as error:
            self._raise_send_failure(error, message, timeout, priority)

    def _raise_send_failure(self, error: BaseException, message: object, timeout: object, priority: object) -> None:
        if not isinstance(error, _errors.Error):
            # An exception that comes from the arguments, or from a signal handler during a wait.
            if isinstance(message, str):
                raise
            memoryview(message)  # type: ignore[arg-type]
            if isinstance(error, BufferError):
                raise
        if timeout is not None:
            _seconds(timeout)
        number = c_long(priority)
        if not self._writes:
            raise PermissionsError("The queue is not open for writing") from error
        if not 0 <= number <= QUEUE_PRIORITY_MAX:
            text = f"The priority must be a positive number no greater than QUEUE_PRIORITY_MAX ({QUEUE_PRIORITY_MAX})"
            raise ValueError(text) from error
        closed = "The message queue does not exist or is not open for writing"
        failure = _call_failure(error, "The queue is full", closed)
        if failure is error:
            raise
        raise failure from error

    def receive(self, timeout: float | None = None) -> tuple[bytes, int]:
        """Receives the next message: the oldest of the highest priority. Returns the message and its priority.

        On an empty queue the call waits: without a limit if `timeout` is None, otherwise `timeout` seconds.
        """
        try:
            if timeout is None and self._block:
                return self._receive()
            if timeout is not None and _seconds(timeout) and self._block:
                return self._receive(timeout)
            return self._queue.try_receive_message()
        except BaseException as error:
            if timeout is not None:
                _seconds(timeout)
            if not self._reads:
                raise PermissionsError("The queue is not open for reading") from error
            closed = "The message queue does not exist or is not open for reading"
            failure = _call_failure(error, "The queue is empty", closed)
            if failure is error:
                raise
            raise failure from error

    def request_notification(self, notification: _Notification = None) -> None:
        """Requests one notification of a message that comes to the empty queue. Replaces an earlier request.

        >>> import threading
        >>> queue = posix_ipc.MessageQueue("/news", posix_ipc.O_CREX)
        >>> called = threading.Event()
        >>> queue.request_notification((lambda event: event.set(), called))
        >>> queue.send("first")
        >>> called.wait(60)
        True
        >>> queue.unlink()

        A number is a signal. A pair (function, argument) is a call in a new thread. None withdraws the request.
        """
        given: Any = notification
        if isinstance(given, int):
            given = (given + 2**31) % 2**32 - 2**31 if -(2**63) <= given < 2**63 else -1
        elif given is not None and not (isinstance(given, tuple) and len(given) == 2 and callable(given[0])):
            raise ValueError("The notification must be None, an integer, or a tuple of (function, parameter)")
        try:
            self._queue._notify(given)
        except _errors.Error as error:
            if given is None:
                return
            if error.errno == EBUSY:
                raise BusyError("The queue is already delivering notifications elsewhere") from error
            is_invalid = isinstance(given, int) and not 0 <= given <= USER_SIGNAL_MAX
            raise system_error(EINVAL if is_invalid else error.errno or EINVAL) from error

    def fileno(self) -> int:
        """Returns the descriptor `mqd`."""
        return -1 if self._queue.closed else self._queue.fileno()

    def close(self) -> None:
        """Closes the handle. The messages stay in the queue."""
        try:
            self._queue._close_descriptor()
        except _errors.HandleClosed as error:
            raise ExistentialError("The queue does not exist") from error

    def unlink(self) -> None:
        """Removes the name of the queue. Processes that have the queue open continue to use it."""
        try:
            self._queue.unlink()
        except _errors.Error as error:
            raise _unlink_failure(error) from error

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError("cannot pickle 'posix_ipc.MessageQueue' object")

    def __str__(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return (
            f'posix_ipc.MessageQueue("{self._name}", mode=0{self._mode & 0xFFFFFFFF:o}, max_message_size={self._max_message_size}, '
            f"max_messages={self._max_messages}, read={self._reads}, write={self._writes})"
        )


def unlink_message_queue(name: str, /) -> None:
    """Removes the name of a message queue.

    >>> posix_ipc.unlink_message_queue("/no-such-queue")
    Traceback (most recent call last):
        ...
    posix_ipc.ExistentialError: No queue exists with the specified name
    """
    if not isinstance(name, str):
        raise TypeError(f"unlink_message_queue() argument must be str, not {type(name).__name__}")
    if "\0" in name:
        raise ValueError("embedded null character")
    try:
        unlink(name)
    except _errors.Error as error:
        raise _unlink_failure(error) from error
