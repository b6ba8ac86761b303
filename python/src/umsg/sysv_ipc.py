"""The message queues of the package sysv_ipc, in shared memory.

>>> import umsg.sysv_ipc as sysv_ipc
>>> queue = sysv_ipc.MessageQueue(0x1234, sysv_ipc.IPC_CREX)
>>> queue.send("one")
>>> queue.send("five", type=5)
>>> queue.receive(type=5)
(b'five', 5)
>>> queue.receive(block=False, type=7)
Traceback (most recent call last):
    ...
sysv_ipc.BusyError: No available messages of the specified type
>>> queue.remove()

The classes, functions, constants, exceptions and texts are those of sysv_ipc 1.2.0. The queues are those of `umsg.SysVQueue`, of the library in
C and of programs under `umsg run`.

Semaphores and shared memory are those of the package sysv_ipc, if it is installed. Otherwise their use raises ImportError. If sysv_ipc is
installed, the exceptions are its own classes, so that one `except` clause works for all parts.
"""

from __future__ import annotations

import os
import sys
import warnings
from errno import E2BIG, EACCES, EAGAIN, EEXIST, EIDRM, EINTR, EINVAL, EMSGSIZE, ENOENT, ENOMEM, ENOMSG, ENOSPC, EPERM, ETIMEDOUT
from mmap import PAGESIZE
from operator import index

from . import _errors
from ._compatible import c_int, missing, original, system_error, with_read_only_texts
from ._umsg import SysVQueue, SysVStatus, _remove_sysv_queue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import Buffer

_original = original("sysv_ipc")

__all__ = [
    "BusyError",
    "Error",
    "ExistentialError",
    "IPC_CREAT",
    "IPC_CREX",
    "IPC_EXCL",
    "IPC_PRIVATE",
    "InternalError",
    "KEY_MAX",
    "KEY_MIN",
    "MessageQueue",
    "NotAttachedError",
    "PAGE_SIZE",
    "PermissionsError",
    "SEMAPHORE_TIMEOUT_SUPPORTED",
    "SEMAPHORE_VALUE_MAX",
    "SHM_HUGETLB",
    "SHM_NORESERVE",
    "SHM_RDONLY",
    "SHM_REMAP",
    "SHM_RND",
    "Semaphore",
    "SharedMemory",
    "VERSION",
    "attach",
    "ftok",
    "remove_message_queue",
    "remove_semaphore",
    "remove_shared_memory",
]

VERSION = __version__ = "1.2.0"
__author__ = "the umsg authors"
__copyright__ = "Copyright (c) the umsg authors"
__license__ = "MIT OR Apache-2.0"
IPC_CREAT = 0o1000
IPC_EXCL = 0o2000
IPC_CREX = IPC_CREAT | IPC_EXCL
IPC_PRIVATE = 0
KEY_MIN = -sys.maxsize - 1
KEY_MAX = sys.maxsize
PAGE_SIZE = PAGESIZE
SEMAPHORE_TIMEOUT_SUPPORTED = True
SEMAPHORE_VALUE_MAX = 32767
SHM_RDONLY = 0o10000
SHM_RND = 0o20000
SHM_REMAP = 0o40000
SHM_HUGETLB = 0o4000
SHM_NORESERVE = 0o10000

if TYPE_CHECKING or _original is None:

    class Error(Exception):
        """The base class of the exceptions of this module."""

    class InternalError(Error):
        """A defect of the module."""

    class PermissionsError(Error):
        """The caller has no permission for the operation."""

    class ExistentialError(Error):
        """The queue does not exist, or exists already."""

    class BusyError(Error):
        """The queue is full, or has no matching message."""

    class NotAttachedError(Error):
        """The shared memory segment is not attached."""

    class Semaphore:
        """A semaphore of the package sysv_ipc."""

        def __init__(self, *arguments: Any, **named: Any) -> None:
            missing("sysv_ipc", "Semaphore")

        if TYPE_CHECKING:

            def __getattr__(self, name: str) -> Any: ...

    class SharedMemory:
        """A shared memory segment of the package sysv_ipc."""

        def __init__(self, *arguments: Any, **named: Any) -> None:
            missing("sysv_ipc", "SharedMemory")

        if TYPE_CHECKING:

            def __getattr__(self, name: str) -> Any: ...

    def attach(id: int, address: int | None = None, flags: int = 0) -> SharedMemory:
        """Attaches a shared memory segment: a function of the package sysv_ipc."""
        missing("sysv_ipc", "attach")

    def remove_semaphore(id: int, /) -> None:
        """Removes a semaphore: a function of the package sysv_ipc."""
        missing("sysv_ipc", "remove_semaphore")

    def remove_shared_memory(id: int, /) -> None:
        """Removes a shared memory segment: a function of the package sysv_ipc."""
        missing("sysv_ipc", "remove_shared_memory")

else:
    Error = _original.Error
    InternalError = _original.InternalError
    PermissionsError = _original.PermissionsError
    ExistentialError = _original.ExistentialError
    BusyError = _original.BusyError
    NotAttachedError = _original.NotAttachedError
    Semaphore = _original.Semaphore
    SharedMemory = _original.SharedMemory
    attach = _original.attach
    remove_semaphore = _original.remove_semaphore
    remove_shared_memory = _original.remove_shared_memory
    SEMAPHORE_TIMEOUT_SUPPORTED = _original.SEMAPHORE_TIMEOUT_SUPPORTED
    SEMAPHORE_VALUE_MAX = _original.SEMAPHORE_VALUE_MAX


def _signed(number: int) -> int:
    """Returns the low 32 bits of a number as a key_t."""
    return (number + 2**31) % 2**32 - 2**31


def _key_of(key: object) -> int:
    if isinstance(key, int) and KEY_MIN <= key <= KEY_MAX:
        return _signed(key)
    raise TypeError("Key must be an integer or None")


def _random_key() -> int:
    return int.from_bytes(os.urandom(4), "little") % 32766 + 1


def _open(key: int, flags: int, mode: int) -> SysVQueue:
    """Opens a queue as msgget(2) does: an existing queue must grant the permissions of `mode`, a created queue has these permissions."""
    while True:
        if not flags & IPC_EXCL and key != IPC_PRIVATE:
            try:
                queue = SysVQueue(key)
                _check_access(queue, mode)
                return queue
            except (_errors.NotFound, _errors.Removed):
                if not flags & IPC_CREAT:
                    raise
        try:
            return SysVQueue(key, create=bool(flags & IPC_CREAT), exclusive=bool(flags & IPC_CREAT), mode=mode)
        except _errors.Exists:
            if flags & IPC_EXCL:
                raise


def _check_access(queue: SysVQueue, mode: int) -> None:
    """Raises an exception if the permission bits of a queue refuse the access that `mode` asks for, as ipcperms() of the kernel does."""
    user = os.geteuid()
    if user == 0:
        return
    try:
        status = queue.status()
        granted = status.mode
        if user in (status.uid, status.cuid):
            granted >>= 6
        elif not {status.gid, status.cgid}.isdisjoint((os.getegid(), *os.getgroups())):
            granted >>= 3
    except _errors.NoPermission:
        # The status needs the permission to receive. An open queue grants one permission at least,
        # so the caller may send.
        granted = 0o2
    if (mode >> 6 | mode >> 3 | mode) & ~granted & 0o7:
        raise _errors.NoPermission(EACCES, os.strerror(EACCES))


def _open_failure(error: _errors.Error) -> Exception:
    errno = error.errno or EINVAL
    if errno == EACCES:
        return PermissionsError("Permission denied")
    if errno == EEXIST:
        return ExistentialError("A queue with the specified key already exists")
    if errno == ENOENT:
        return ExistentialError("No queue exists with the specified key")
    if errno == ENOMEM:
        return MemoryError("Not enough memory")
    if errno == ENOSPC:
        return OSError("The system limit for message queues has been reached")
    return system_error(errno)


def _control_failure(error: _errors.Error, denied: tuple[int, ...]) -> Exception:
    errno = error.errno or EINVAL
    if errno in (EIDRM, EINVAL):
        return ExistentialError("The queue no longer exists")
    if errno in denied:
        return PermissionsError("Permission denied")
    return system_error(errno)


def _remove(id: int) -> None:
    try:
        _remove_sysv_queue(id)
    except _errors.Error as error:
        raise _control_failure(error, (EPERM,)) from error


@with_read_only_texts
class MessageQueue:
    """A System V message queue with the interface of sysv_ipc.MessageQueue.

    `flags` is 0 to open an existing queue, IPC_CREAT to open or create a queue, IPC_CREX to create a queue that must not exist. With IPC_CREX the key
    may be None: the queue gets a random key. `max_message_size` is the longest message that this object sends or receives, in bytes.

    >>> queue = sysv_ipc.MessageQueue(None, sysv_ipc.IPC_CREX)
    >>> queue.send(b"hello", type=2)
    >>> queue.current_messages, queue.max_size
    (1, 16384)
    >>> queue.receive()
    (b'hello', 2)
    >>> queue.remove()
    """

    __slots__ = ("_id", "_key", "_max_message_size", "_queue", "_try_send", "_receive", "_try_receive")

    def __init__(self, key: int | None, flags: int = 0, mode: int = 0o600, max_message_size: int = 2048) -> None:
        wanted = None if key is None else _key_of(key)
        flags, mode = c_int(flags), c_int(mode)
        longest = index(max_message_size) % 2**64
        if longest > sys.maxsize:
            raise ValueError(f"The message length must be <= {sys.maxsize}\n")
        if flags & IPC_EXCL and not flags & IPC_CREAT:
            raise ValueError("IPC_EXCL must be combined with IPC_CREAT")
        if wanted is None and not flags & IPC_EXCL:
            raise ValueError("Key can only be None if IPC_EXCL is set")
        while True:
            chosen = _random_key() if wanted is None else wanted
            try:
                queue = _open(chosen, flags, mode & 0o777)
                break
            except _errors.Error as error:
                if wanted is not None or error.errno != EEXIST:
                    raise _open_failure(error) from error
        queue._restrict(longest)
        self._id = queue.id
        self._key = chosen
        self._max_message_size = longest
        self._queue = queue
        self._try_send = queue.try_send
        self._receive = queue.receive_message
        self._try_receive = queue.try_receive_message

    def send(self, message: str | Buffer, block: bool = True, type: int = 1) -> None:
        """Sends a message. A string is sent as UTF-8. On a full queue the call waits, or fails with BusyError if `block` is False."""
        data: Any = message  # Type checkers learn nothing from the comparison of classes, which is the fastest.
        if data.__class__ is not bytes:
            data = data.encode() if isinstance(data, str) else bytes(memoryview(data))
        if not 0 < type < 2**31:
            c_int(type)
            raise ValueError("The type must be > 0")
        if len(data) > self._max_message_size:
            c_int(type)
            raise ValueError(f"The message length exceeds queue's max_message_size ({self._max_message_size})")
        try:
            self._try_send(data, type)
        except _errors.Full as error:
            if not block:
                raise self._send_failure(error, EINVAL) from error
            self._send_slow(data, type)
        except _errors.Error as error:
            raise self._send_failure(error, EINVAL) from error

    def _send_slow(self, message: Buffer, type: int) -> None:
        try:
            self._queue.send(message, type)
        except _errors.Error as error:
            raise self._send_failure(error, EIDRM) from error

    @staticmethod
    def _send_failure(error: _errors.Error, removed: int) -> Exception:
        """Chooses the exception. The kernel tells a queue that is removed during a call (EIDRM) from a queue that was removed before (EINVAL)."""
        errno = error.errno or EINVAL
        errno = removed if errno == EIDRM else errno
        if errno == EACCES:
            return PermissionsError("Permission denied")
        if errno == EAGAIN:
            return BusyError("The queue is full, or a system-wide limit on the number of queue messages has been reached")
        if errno == EIDRM:
            return ExistentialError("The queue no longer exists")
        if errno == EINTR:
            return Error("Signaled while waiting")
        return system_error(EINVAL if errno == EMSGSIZE else errno)

    def receive(self, block: bool = True, type: int = 0) -> tuple[bytes, int]:
        """Receives a message, and returns it with its type.

        Type 0 selects the first message, a type above 0 the first message of this type, and a type below 0 the first message of the lowest type up to
        its absolute value. Without such a message the call waits, or fails with BusyError if `block` is False.
        """
        try:
            if -(2**31) <= type < 2**31:
                return self._receive(type) if block else self._try_receive(type)
        except _errors.Error as error:
            errno = error.errno or EINVAL
            if errno in (EAGAIN, ENOMSG, ETIMEDOUT):
                raise BusyError("No available messages of the specified type") from error
            if errno == EACCES:
                raise PermissionsError("Permission denied") from error
            if errno in (EIDRM, EINVAL):
                raise ExistentialError("The queue no longer exists") from error
            if errno == EINTR:
                raise Error("Signaled while waiting") from error
            raise system_error(E2BIG if errno == EMSGSIZE else errno) from error
        raise OverflowError(f"{type} is out of the range of a C int")

    def remove(self) -> None:
        """Removes the queue and its messages. Calls that wait end with ExistentialError."""
        _remove(self._id)

    def _status(self) -> SysVStatus:
        try:
            return self._queue.status()
        except _errors.Error as error:
            raise _control_failure(error, (EACCES,)) from error

    def _set(self, name: str, value: object, mask: int) -> None:
        if not isinstance(value, int):
            raise TypeError("The attribute must be an integer")
        changed: dict[str, Any] = {name: value & mask}
        try:
            self._queue.set(**changed)
        except _errors.Error as error:
            raise _control_failure(error, (EACCES, EPERM)) from error

    @property
    def id(self) -> int:
        """The identifier of the queue."""
        return self._id

    @id.setter
    def id(self, value: object) -> None:
        raise AttributeError("readonly attribute")

    @property
    def key(self) -> int:
        """The key of the queue."""
        return self._key

    @property
    def last_send_time(self) -> int:
        """The time of the last send, in seconds since 1970; 0 if there was none."""
        return int(self._status().last_send or 0)

    @property
    def last_receive_time(self) -> int:
        """The time of the last receive, in seconds since 1970; 0 if there was none."""
        return int(self._status().last_receive or 0)

    @property
    def last_change_time(self) -> int:
        """The time of the creation or of the last change of an attribute, in seconds since 1970."""
        return int(self._status().changed or 0)

    @property
    def last_send_pid(self) -> int:
        """The process id of the last sender; 0 if there was none."""
        return self._status().last_sender

    @property
    def last_receive_pid(self) -> int:
        """The process id of the last receiver; 0 if there was none."""
        return self._status().last_receiver

    @property
    def current_messages(self) -> int:
        """The number of messages in the queue."""
        return self._status().messages

    @property
    def max_size(self) -> int:
        """The number of bytes that may be queued."""
        return self._status().qbytes

    @max_size.setter
    def max_size(self, value: int) -> None:
        self._set("qbytes", value, 2**64 - 1)

    @property
    def mode(self) -> int:
        """The permission bits."""
        return self._status().mode

    @mode.setter
    def mode(self, value: int) -> None:
        self._set("mode", value, 0o777)

    @property
    def uid(self) -> int:
        """The user id of the owner."""
        return self._status().uid

    @uid.setter
    def uid(self, value: int) -> None:
        self._set("uid", value, 2**32 - 1)

    @property
    def gid(self) -> int:
        """The group id of the owner."""
        return self._status().gid

    @gid.setter
    def gid(self, value: int) -> None:
        self._set("gid", value, 2**32 - 1)

    @property
    def cuid(self) -> int:
        """The user id of the creator."""
        return self._status().cuid

    @property
    def cgid(self) -> int:
        """The group id of the creator."""
        return self._status().cgid

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError("cannot pickle 'sysv_ipc.MessageQueue' object")

    def __str__(self) -> str:
        return f"Key={self._key}, id={self._id}"

    def __repr__(self) -> str:
        return f"sysv_ipc.MessageQueue({self._key})"


def remove_message_queue(id: int, /) -> None:
    """Removes the message queue with this identifier.

    >>> sysv_ipc.remove_message_queue(1_000_000)
    Traceback (most recent call last):
        ...
    sysv_ipc.ExistentialError: The queue no longer exists
    """
    _remove(c_int(id))


def ftok(path: str, id: int, silence_warning: bool = False) -> int:
    """Returns the key that ftok(3) makes of a path and a number. Two paths may have the same key, so the call gives a warning.

    >>> sysv_ipc.ftok("/", 7, silence_warning=True) >> 24
    7
    """
    if not isinstance(path, str):
        raise TypeError(f"ftok() argument 1 must be str, not {path.__class__.__name__}")
    number = c_int(id)
    if not silence_warning:
        warnings.warn("Use of ftok() is not recommended; see sysv_ipc documentation", Warning, stacklevel=2)
    found = os.stat(path)
    return _signed((number & 0xFF) << 24 | (found.st_dev & 0xFF) << 16 | (found.st_ino & 0xFFFF))
