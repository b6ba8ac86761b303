"""The limit on the bytes of a queue, and waits for conditions that the queue itself does not announce."""

from __future__ import annotations

import time
from collections.abc import Callable

from .. import _errors, _umsg

# If a process is killed before it calls `Bell.ring`, no waiter is woken. So each wait ends after this
# number of seconds.
_LOOK_AGAIN = 0.05
# The time for which a put that does not wait lets another put finish, in seconds.
_NO_WAIT = 0.01


def left(end: float | None) -> float | None:
    """Returns the rest of the time in seconds until `end` of the monotonic clock."""
    return None if end is None else max(0.0, end - time.monotonic())


def end_of(timeout: float | None) -> float | None:
    """Returns the time of the monotonic clock at which a call ends."""
    return None if timeout is None else time.monotonic() + timeout


class Bell:
    """A queue of one message without content. A call of `ring` wakes one waiter, which checks its condition and then wakes the next waiter."""

    def __init__(self, name: str, namespace: str, create: bool) -> None:
        if create:
            self.queue = _umsg.Queue(
                name,
                create=True,
                exclusive=True,
                max_messages=1,
                message_size=1,
                on_full="drop-oldest",
                remove_on_last_close=True,
                namespace=namespace,
            )
        else:
            self.queue = _umsg.Queue(name, namespace=namespace)

    def ring(self) -> None:
        """Wakes a waiter."""
        try:
            self.queue.send(b"")
        except (_errors.Full, _errors.HandleClosed):  # A stopped process holds the lock: the waiters look again by themselves.
            pass

    def wait(self, holds: Callable[[], bool], end: float | None) -> bool:
        """Waits until a condition holds, or until the time `end`. Returns whether the condition holds."""
        while not holds():
            rest = left(end)
            if rest == 0.0:
                return False
            try:
                self.queue.receive(_LOOK_AGAIN if rest is None else min(rest, _LOOK_AGAIN))
            except (_errors.TimedOut, _errors.Empty):
                pass
        self.ring()
        return True


class Bound:
    """A limit on the bytes of the waiting messages.

    Senders take turns, so that the bytes are counted and sent without another sender in between. The turn is the lease of the only message of a
    queue: if the sender is killed, the turn goes to the next sender.
    """

    def __init__(self, name: str, namespace: str, most: int, create: bool) -> None:
        self.most = most
        self.bell = Bell(name + "-bell", namespace, create)
        if create:
            self.turns = _umsg.Queue(
                name + "-turn",
                create=True,
                exclusive=True,
                max_messages=1,
                message_size=1,
                remove_on_last_close=True,
                namespace=namespace,
            )
            self.turns.send(b"")
        else:
            self.turns = _umsg.Queue(name + "-turn", namespace=namespace)

    def send(self, queue: _umsg.Queue, size: int, timeout: float | None, send: Callable[[float | None], None]) -> None:
        """Waits for room of `size` bytes, and sends."""
        end = end_of(timeout)
        with self.turns.receive_lease(_NO_WAIT if timeout == 0 else timeout) as turn:
            if not self.bell.wait(lambda: queue.attributes().bytes + size <= self.most, end):
                raise _errors.TimedOut("the queue has no room for the bytes")
            try:
                send(left(end))
            finally:
                turn.give_back()

    def close(self) -> None:
        """Closes the handles."""
        self.turns.close()
        self.bell.queue.close()
