"""Tasks that wait for queues, on asyncio's loops and on trio.

A `Watch` belongs to a loop and a side of a queue: receiving or sending. It has a line of waiting tasks. The loop polls the watch's epoll
descriptor, which reports the edges of the queue's own descriptor. So a message that no task wants causes one event, not an event in each turn
of the loop.

An event runs the next step of the first task in the line at once, inside the loop's callback. The task takes its message in that step. So a
cancellation comes either before the step, and then the message stays in the queue, or after the step.
"""

from __future__ import annotations

import asyncio
import os
import select
import weakref
from asyncio import AbstractEventLoop, CancelledError
from collections import deque
from collections.abc import Callable, Generator, Hashable
from contextvars import Context
from typing import Any, TypeVar

from ._errors import Empty, Full

_T = TypeVar("_T")

_READING, _WRITING = 0, 1

EVENTS = (select.EPOLLIN | select.EPOLLET, select.EPOLLOUT | select.EPOLLET)

_Key = tuple[int, int, int]

_watches: dict[_Key, weakref.ref[Watch]] = {}
"""The watches of the process, by the ids of the queue and of the loop, and by the side. The loop holds a watch, and so do its waiting tasks."""

_RETRY = 0.002
"""Seconds until a task tries again whose call failed although the queue is ready."""


class Waiter:
    """A task in a line: a future-like object in the terms of `asyncio`. The task waits for this object as for a future."""

    __slots__ = ("_asyncio_future_blocking", "_callback", "_cancelled", "_context", "_done", "key", "line", "loop")

    def __init__(self, loop: AbstractEventLoop, line: deque[Waiter], key: Hashable) -> None:
        self.loop = loop
        self.line = line
        self.key = key
        self._asyncio_future_blocking = False
        self._done = False
        self._cancelled: CancelledError | None = None
        self._callback: Callable[[Waiter], object] | None = None
        self._context: Context | None = None

    def __await__(self) -> Generator[Waiter, None, None]:
        self._done = False
        self._asyncio_future_blocking = True
        yield self

    def wake(self) -> None:
        """Runs the task's next step. Only a callback of the loop may do so, while no task runs."""
        callback = self._callback
        if callback is None or self._done:
            return
        self._done = True
        self._callback = None
        if self._context is None:
            callback(self)
        else:
            self._context.run(callback, self)

    def cancel(self, msg: object = None) -> bool:
        if self._done:
            return False
        self._done = True
        self.line.remove(self)  # Leaves the line at once: an event that comes before this task's next step is for the other tasks.
        self._cancelled = CancelledError() if msg is None else CancelledError(msg)
        if self._callback is not None:
            self.loop.call_soon(self._callback, self, context=self._context)
            self._callback = None
        return True

    def add_done_callback(self, callback: Callable[[Waiter], object], *, context: Context | None = None) -> None:
        self._callback = callback
        self._context = context

    def remove_done_callback(self, callback: Callable[[Waiter], object]) -> int:
        removed = self._callback == callback
        if removed:
            self._callback = None
        return int(removed)

    def get_loop(self) -> AbstractEventLoop:
        return self.loop

    def done(self) -> bool:
        return self._done

    def cancelled(self) -> bool:
        return self._cancelled is not None

    def result(self) -> None:
        if self._cancelled is not None:
            raise self._cancelled

    def exception(self) -> None:
        self.result()


class Watch:
    """The tasks of a loop that wait for messages of a queue, or for room."""

    def __init__(self, queue: Any, loop: AbstractEventLoop, side: int) -> None:
        self.key = (id(queue), id(loop), side)
        self.side = side
        self.queue = weakref.ref(queue, self._queue_died)
        self.loop = weakref.ref(loop)
        self.line: deque[Waiter] = deque()
        # True if all tasks in the line wait for the same condition: if one task fails, the other tasks
        # fail, too.
        self.is_plain = not hasattr(queue, "is_removed")
        # True if `readiness` tells whether a task that has just failed may succeed now. A ring has no `readiness`, and does not
        # need this check.
        self.is_leveled = self.is_plain and hasattr(queue, "readiness")
        # With the overflow policy "fail", no sender waits for room.
        self.lets_wait = side != _WRITING or not self.is_leveled or queue.status().on_full != "fail"
        # Tasks at a System V queue wait for different types, or for room for different lengths: every event may be for any task.
        descriptor = queue.fileno() if self.is_plain else queue.fileno("all")
        self.epoll = select.epoll()
        self.epoll.register(descriptor, EVENTS[side])
        self.waits = 0
        self.is_polled = False
        self.is_retrying = False
        self.is_shut = False

    def _queue_died(self, _: object) -> None:
        # Python may call this function at any moment, even within a call of the loop. So the loop ends
        # the watch later.
        self.forget()
        self._end_later()

    def remember(self) -> None:
        key = self.key

        def forget(died: object) -> None:
            if _watches.get(key) is died:
                del _watches[key]

        _watches[key] = weakref.ref(self, forget)

    def forget(self) -> None:
        if find_by(self.key) is self:
            del _watches[self.key]

    def is_crowded(self, key: Hashable) -> bool:
        """Returns whether a task in the line goes ahead of a new call."""
        line = self.line
        return bool(line) and (self.is_plain or any(waiter.key == key for waiter in line))

    def may_try(self, queue: Any, key: Hashable) -> bool:
        """Returns whether a new call may succeed at once. This check costs less than the exception of a call that fails."""
        if self.is_crowded(key):
            return False
        if not self.is_leveled or not self.lets_wait or queue.readiness()[self.side]:
            return True
        return self.side == _READING and self.looks(queue)

    def looks(self, queue: Any) -> bool:
        """Spins for a message for some microseconds, if recent spins were successful. Returns whether there is a message.

        The answer of another process often arrives before the loop could sleep and wake up. Tasks that are ready, and the loop's own events, go
        first: each eighth wait is a turn of the loop.
        """
        self.waits += 1
        if not self.waits & 7:
            return False
        loop = self.loop()
        return not getattr(loop, "_ready", None) and bool(queue._look())

    def poll(self, loop: AbstractEventLoop) -> None:
        """Lets the loop poll the queue. The loop also gets the events that came before this call."""
        if not self.is_polled:
            loop.add_reader(self.epoll.fileno(), self._ready)
            self.is_polled = True

    def _ready(self) -> None:
        loop = self.loop()
        assert loop is not None  # The loop exists: it runs this callback.
        if not self.line:
            loop.remove_reader(self.epoll.fileno())
            self.is_polled = False
            return
        if self.is_leveled and self.side == _READING:
            self.serve(loop)
            queue = self.queue()
            if self.is_shut or queue is None or queue.closed or not queue.readiness()[_READING]:
                # After the queue's message was taken, the epoll descriptor has no event.
                return
        if self.epoll.poll(0, 1):
            self.serve(loop)

    def serve(self, loop: AbstractEventLoop) -> None:
        """Lets the tasks of the line try, in their order. If all tasks wait for the same condition, the first failure ends the round."""
        line = self.line
        try:
            for waiter in tuple(line):
                waiter.wake()
                if self.is_plain and line and line[0] is waiter:
                    return
        except BaseException:  # For example SystemExit. If the loop goes on, it must serve the remaining tasks.
            loop.call_soon(self.serve, loop)
            raise
        if self.is_plain and line and not self.is_shut:
            loop.call_soon(self.serve, loop)

    def retry(self, loop: AbstractEventLoop) -> None:
        """Lets a task that has just failed try again, if no event will report that it may succeed.

        A call also fails while another process is stopped within a call.
        """
        queue = self.queue()
        if self.is_retrying or not self.is_leveled or queue is None or queue.closed:
            return
        if queue.readiness()[self.side]:
            self.is_retrying = True
            loop.call_later(_RETRY, self._retry, loop)

    def _retry(self, loop: AbstractEventLoop) -> None:
        self.is_retrying = False
        self.serve(loop)

    def _end_later(self) -> None:
        loop = self.loop()
        try:
            if loop is not None:
                loop.call_soon_threadsafe(self.end, loop)
        except RuntimeError:  # The loop is closed: it polls nothing.
            self.epoll.close()

    def end(self, loop: AbstractEventLoop) -> None:
        """Ends the polling, and lets all tasks try: they find the queue closed."""
        if self.is_shut:
            return
        self.is_shut = True
        if self.is_polled:
            loop.remove_reader(self.epoll.fileno())
        self.epoll.close()
        for waiter in self.line:
            loop.call_soon(waiter.wake)


def shut(watch: Watch) -> None:
    """Ends a watch, on any thread."""
    watch.forget()
    loop = watch.loop()
    if loop is not None and asyncio._get_running_loop() is loop:
        watch.end(loop)
    else:
        watch._end_later()


def shut_all(queue: object) -> None:
    """Ends the watches of a queue."""
    for key in list(_watches):
        watch = find_by(key) if key[0] == id(queue) else None
        if watch is not None:
            shut(watch)


def find_by(key: _Key) -> Watch | None:
    found = _watches.get(key)
    return None if found is None else found()


def find(queue: object, loop: AbstractEventLoop, side: int) -> Watch | None:
    found = _watches.get((id(queue), id(loop), side))
    return None if found is None else found()


def _watch(queue: Any, loop: AbstractEventLoop, side: int) -> Watch:
    found = find(queue, loop, side)
    if found is None:
        found = Watch(queue, loop, side)
        found.remember()
        if queue.closed:  # Another thread has closed the queue, without seeing the new watch.
            shut(found)
    return found


async def until(
    queue: Any, loop: AbstractEventLoop, side: int, key: Hashable, attempt: Callable[[], _T], in_turn: bool = False
) -> _T:
    """Waits in line, and repeats an attempt whenever the queue may be ready for it, until it gives a result.

    The caller has found the queue not ready. If the queue has become ready since, the watch has an event: a new watch reports the current readiness.
    With `in_turn` the queue may be ready, and the task only lets other tasks run: it keeps its place in the line.
    """
    watch = _watch(queue, loop, side)
    if not watch.lets_wait:
        return attempt()
    line = watch.line
    waiter = Waiter(loop, line, key)
    line.append(waiter)
    if in_turn:
        loop.call_soon(watch.serve, loop)
    try:
        while True:
            if not watch.is_shut:
                watch.poll(loop)
                if line[0] is waiter:
                    watch.retry(loop)
            await waiter
            try:
                return attempt()
            except (Empty, Full):
                pass
    finally:
        if not waiter.cancelled():
            line.remove(waiter)


def _after_fork() -> None:
    """Forgets the watches in a forked child: the watches belong to loops of the parent, and parent and child share the descriptors."""
    _watches.clear()


os.register_at_fork(after_in_child=_after_fork)
