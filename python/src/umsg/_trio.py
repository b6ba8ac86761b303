"""Tasks that wait for queues on trio, by way of anyio."""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from typing import Any, TypeVar

import anyio
import anyio.lowlevel

from ._errors import Empty, Full
from ._wait import EVENTS

_T = TypeVar("_T")

_bells: dict[int, set[int]] = {}
"""The ends of pipes that wake the tasks which wait for a queue, by the queue's id."""


class _Wait:
    """The descriptors of a task that waits: the edges of the queue, and a pipe for the closing of the handle."""

    def __init__(self, queue: Any, side: int) -> None:
        self.queue = queue
        self.epoll = select.epoll()
        self.hears, self.bell = os.pipe()
        self.epoll.register(self.hears, select.EPOLLIN)
        _bells.setdefault(id(queue), set()).add(self.bell)
        edges = ("all",) if hasattr(queue, "is_removed") else ()
        self.epoll.register(queue.fileno(*edges), EVENTS[side])

    async def event(self) -> None:
        await anyio.wait_readable(self.epoll.fileno())
        self.epoll.poll(0)

    def close(self) -> None:
        bells = _bells[id(self.queue)]
        bells.remove(self.bell)
        if not bells:
            del _bells[id(self.queue)]
        self.epoll.close()
        os.close(self.hears)
        os.close(self.bell)


def shut_all(queue: object) -> None:
    """Wakes the tasks that wait for a closed queue."""
    for bell in tuple(_bells.get(id(queue), ())):
        os.write(bell, b"x")


async def until(queue: Any, side: int, attempt: Callable[[], _T]) -> _T:
    """Repeats an attempt whenever the queue may be ready for it, until it gives a result."""
    await anyio.lowlevel.checkpoint()
    wait = None
    try:
        while True:
            try:
                return attempt()
            except Empty:
                pass
            except Full:
                if hasattr(queue, "attributes") and queue.status().on_full == "fail":
                    raise
            if wait is None:
                wait = _Wait(queue, side)
            await wait.event()
    finally:
        if wait is not None:
            wait.close()
