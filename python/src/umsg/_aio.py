"""The asynchronous methods of queues and rings, which `umsg` adds to the classes of the native module.

The first call imports `asyncio` and the modules that wait, so that `import umsg` stays fast.
"""

from __future__ import annotations

import errno
import sys
import types
from itertools import count

from ._errors import Empty, EndOfStream, Full, TimedOut
from ._umsg import Queue, Ring, SysVQueue

TYPE_CHECKING = False  # The import of typing would cost more than all the rest of umsg.

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Coroutine, Generator, Hashable
    from typing import Any, TypeVar

    from ._wait import Watch

    _T = TypeVar("_T")

_READING, _WRITING = 0, 1

_calls = count(1)

_BUDGET = 63
"""The number of calls that may succeed in a row. Then the task lets other tasks run, even if another process keeps the queue filled."""


def _first_loop() -> AbstractEventLoop | None:
    """Imports the modules that the calls need, at the first call."""
    global _running_loop, _find, _until
    from asyncio import _get_running_loop

    from . import _wait

    _find, _until = _wait.find, _wait.until
    _running_loop = _get_running_loop
    return _running_loop()


_running_loop: Callable[[], AbstractEventLoop | None] = _first_loop
_find: Callable[[object, AbstractEventLoop, int], Watch | None]
_until: Callable[..., Coroutine[Any, Any, Any]]


@types.coroutine
def _pass() -> Generator[None, None, None]:
    """Lets the other tasks of the loop run once."""
    yield


_passing: dict[tuple[int, int, int], int] = {}
"""The numbers of tasks that let others run, by queue, loop and side. A later task lets others run, too, so that it stays behind them."""


async def _pass_in_order(key: tuple[int, int, int]) -> None:
    _passing[key] = _passing.get(key, 0) + 1
    try:
        await _pass()
    finally:
        left = _passing[key] - 1
        if left:
            _passing[key] = left
        else:
            del _passing[key]


async def _receive(queue: Any, attempt: Callable[[], _T], key: Hashable = None) -> _T:
    loop = _running_loop()
    if loop is None:
        return await _elsewhere(queue, _READING, attempt)
    result: _T
    watch = _find(queue, loop, _READING)
    if not next(_calls) & _BUDGET or (_passing and (id(queue), id(loop), _READING) in _passing):
        if watch is not None and watch.lets_wait:
            result = await _until(queue, loop, _READING, key, attempt, True)
            return result
        await _pass_in_order((id(queue), id(loop), _READING))
        watch = _find(queue, loop, _READING)
    if watch is None or watch.may_try(queue, key):
        try:
            return attempt()
        except Empty:
            pass
    result = await _until(queue, loop, _READING, key, attempt)
    return result


async def _send(queue: Any, attempt: Callable[[], _T], key: Hashable = None) -> _T:
    loop = _running_loop()
    if loop is None:
        return await _elsewhere(queue, _WRITING, attempt)
    result: _T
    watch = _find(queue, loop, _WRITING)
    if not next(_calls) & _BUDGET or (_passing and (id(queue), id(loop), _WRITING) in _passing):
        if watch is not None and watch.lets_wait:
            result = await _until(queue, loop, _WRITING, key, attempt, True)
            return result
        await _pass_in_order((id(queue), id(loop), _WRITING))
        watch = _find(queue, loop, _WRITING)
    if watch is None or watch.may_try(queue, key):
        try:
            return attempt()
        except Full:
            pass
    result = await _until(queue, loop, _WRITING, key, attempt)
    return result


async def _elsewhere(queue: Any, side: int, attempt: Callable[[], _T]) -> _T:
    """Waits in a loop that is not asyncio's: in trio's loop, by way of anyio."""
    try:
        from . import _trio
    except ImportError:
        raise RuntimeError("no asyncio event loop is running. Install anyio for other event loops") from None
    return await _trio.until(queue, side, attempt)


class _QueueMethods:
    async def send_async(self: Any, message: Any, priority: int = 0) -> None:
        """Sends a message. The task waits while the queue is full.

        >>> import asyncio
        >>> async def main():
        ...     with umsg.Queue("/jobs", create=True, max_messages=1) as jobs:
        ...         await jobs.send_async(b"first")
        ...         second = asyncio.create_task(jobs.send_async(b"second", priority=5))
        ...         return [await jobs.receive_async(), await jobs.receive_message_async()]
        >>> asyncio.run(main())
        [b'first', (b'second', 5)]

        Tasks that wait get room in the order in which they began to wait. A call that is cancelled has sent nothing.
        """
        await _send(self, lambda: self.try_send(message, priority))

    async def reserve_async(self: Any, size: int, priority: int | None = None) -> Any:
        """Reserves a message of `size` bytes, to be written in place. The task waits while the queue is full."""
        return await _send(self, lambda: self.try_reserve(size, priority))

    async def receive_async(self: Any) -> bytes:
        """Receives the next message. The task waits while there is no message.

        >>> import asyncio
        >>> async def main():
        ...     with umsg.Queue("/jobs", create=True) as jobs:
        ...         asyncio.get_running_loop().call_later(0.01, jobs.send, b"job")
        ...         return await asyncio.wait_for(jobs.receive_async(), timeout=60)
        >>> asyncio.run(main())
        b'job'

        Tasks that wait get messages in the order in which they began to wait. A call that is cancelled, by a time limit too, has received
        nothing: the message stays in the queue. Closing the handle ends the wait with `HandleClosed`.
        """
        message: bytes = await _receive(self, self.try_receive)
        return message

    async def receive_message_async(self: Any) -> tuple[bytes, int]:
        """Receives the next message and its priority. The task waits while there is no message."""
        message: tuple[bytes, int] = await _receive(self, self.try_receive_message)
        return message

    async def receive_many_async(self: Any, most: int = 256) -> list[bytes]:
        """Receives the messages that are in the queue, at most `most`. The task waits for the first message."""
        messages: list[bytes] = await _receive(self, lambda: _now(self.receive_many, most))
        return messages

    async def receive_lease_async(self: Any) -> Any:
        """Receives the next message in place, as `receive_lease` does. The task waits while there is no message.

        >>> import asyncio
        >>> async def main():
        ...     with umsg.Queue("/jobs", create=True) as jobs:
        ...         jobs.send(b"job")
        ...         with await jobs.receive_lease_async() as job:
        ...             return bytes(job)
        >>> asyncio.run(main())
        b'job'
        """
        return await _receive(self, self.try_receive_lease)

    def __aiter__(self: _T) -> _T:
        return self

    async def __anext__(self: Any) -> bytes:
        try:
            message: bytes = await _receive(self, self.try_receive)
        except EndOfStream:
            raise StopAsyncIteration from None
        return message


class _SysVQueueMethods:
    async def send_async(self: Any, message: Any, type: int = 1) -> None:
        """Sends a message. The task waits while there is no room for the message."""
        await _send(self, lambda: self.try_send(message, type), memoryview(message).nbytes)

    async def receive_async(self: Any, type: int = 0, other: bool = False) -> bytes:
        """Receives the next message of a type, as `receive` does. The task waits while there is no such message.

        >>> import asyncio
        >>> async def main():
        ...     with umsg.SysVQueue() as queue:
        ...         five = asyncio.create_task(queue.receive_async(type=5))
        ...         await queue.send_async(b"one", type=1)
        ...         await queue.send_async(b"five", type=5)
        ...         received = await five, await queue.receive_message_async()
        ...         queue.remove()
        ...         return received
        >>> asyncio.run(main())
        (b'five', (b'one', 1))

        Tasks that wait for the same type get messages in the order in which they began to wait. While a task waits for a queue, each send and each
        receive on the queue costs every process a system call.
        """
        message: bytes = await _receive(self, lambda: self.try_receive(type, other), (type, other))
        return message

    async def receive_message_async(self: Any, type: int = 0, other: bool = False) -> tuple[bytes, int]:
        """Receives the next message of a type, and its type. The task waits while there is no such message."""
        kind = type, other
        message: tuple[bytes, int] = await _receive(self, lambda: self.try_receive_message(*kind), kind)
        return message

    async def receive_many_async(self: Any, most: int = 256, type: int = 0, other: bool = False) -> list[bytes]:
        """Receives the messages of a type that are in the queue, at most `most`. The task waits for the first message."""
        kind = type, other
        messages: list[bytes] = await _receive(self, lambda: _now(self.receive_many, most, *kind), kind)
        return messages

    async def receive_lease_async(self: Any, type: int = 0, other: bool = False) -> Any:
        """Receives the next message of a type in place, as `receive_lease` does. The task waits while there is no such message."""
        return await _receive(self, lambda: self.try_receive_lease(type, other), (type, other))

    def __aiter__(self: _T) -> _T:
        return self

    async def __anext__(self: Any) -> bytes:
        try:
            message: bytes = await _receive(self, self.try_receive, (0, False))
        except EndOfStream:
            raise StopAsyncIteration from None
        return message


class _RingMethods:
    async def receive_async(self: Any) -> Any:
        """Receives the next message of the ring. The task waits while there is no message.

        >>> import asyncio
        >>> async def main():
        ...     with umsg.Ring() as ring:
        ...         asyncio.get_running_loop().call_later(0.01, ring.sender().send, 7)
        ...         return (await ring.receive_async()).user_data
        >>> asyncio.run(main())
        7
        """
        return await _receive(self, self.try_receive)

    async def receive_many_async(self: Any, most: int = 256) -> list[Any]:
        """Receives the messages that are in the ring, at most `most`. The task waits for the first message."""
        return await _receive(self, lambda: _now(self.receive_many, most))

    def __aiter__(self: _T) -> _T:
        return self

    async def __anext__(self: Any) -> Any:
        return await _receive(self, self.try_receive)


def _now(receive_many: Callable[..., list[_T]], most: int, *kind: Any) -> list[_T]:
    """Receives the messages that the queue has. Raises Empty like the other calls that do not wait."""
    try:
        return receive_many(most, *kind[:1], 0, *kind[1:])
    except TimedOut:
        raise Empty(errno.EAGAIN, "the queue is empty") from None


def _closing(method: Callable[..., _T]) -> Callable[..., _T]:
    """Wraps a method that closes a handle, so that it also ends the waits of the tasks."""

    def close(self: object, *arguments: object) -> _T:
        result = method(self, *arguments)
        for module in ("umsg._wait", "umsg._trio"):
            shut_all = getattr(sys.modules.get(module), "shut_all", None)
            if shut_all is not None:
                shut_all(self)
        return result

    close.__name__, close.__qualname__, close.__doc__ = method.__name__, method.__qualname__, method.__doc__
    close.__module__ = "umsg"
    close.__wrapped__ = method  # type: ignore[attr-defined]  # inspect.signature reads it.
    return close


def add_methods() -> None:
    """Adds the methods to the classes of the native module."""
    for methods, class_ in ((_QueueMethods, Queue), (_SysVQueueMethods, SysVQueue), (_RingMethods, Ring)):
        for name, method in vars(methods).items():
            if isinstance(method, types.FunctionType):
                method.__qualname__ = f"{class_.__name__}.{name}"
                method.__module__ = "umsg"
                setattr(class_, name, method)
        for name in ("close", "__exit__"):
            setattr(class_, name, _closing(getattr(class_, name)))
