"""Handles that are kept for processes which are being started.

A process of the start methods spawn and forkserver opens its queues some time after `start` has returned. If the program closes a queue in
between, and no other process has it open, the queue would be removed. So the program keeps a handle of its own until the process has ended.
"""

from __future__ import annotations

import weakref
from multiprocessing import util
from typing import Any

from .. import _umsg


class _Lent:
    """The handles, each with the process for which it is kept."""

    def __init__(self) -> None:
        self.handles: list[tuple[weakref.ref[Any], _umsg.Queue]] = []
        util.register_after_fork(self, _Lent.forget)

    def forget(self) -> None:
        """Closes the handles in a forked child: it has started no process."""
        self.handles = []


_lent = _Lent()


def lend(popen: Any, queue: _umsg.Queue) -> None:
    """Keeps a handle until a process has ended. `popen` is multiprocessing's object for the process."""
    close_unused()
    _lent.handles.append((weakref.ref(popen, lambda _: close_unused()), queue))


def close_unused() -> None:
    """Closes the handles that are kept for processes which were joined."""
    if _lent.handles:
        _lent.handles = [(process, queue) for process, queue in _lent.handles if _runs(process())]


def _runs(popen: Any) -> bool:
    return popen is not None and popen.returncode is None
