"""`JoinableQueue`."""

from __future__ import annotations

import queue as standard
import select
import threading
from typing import Generic

from .. import _errors, _umsg
from ._bound import Bell, end_of, left
from ._queue import Queue, T, Task, seconds


class JoinableQueue(Queue[T]):
    """A queue of tasks, as `multiprocessing.JoinableQueue`, that loses no task if a worker dies.

    >>> from umsg.multiprocessing import JoinableQueue
    >>> queue = JoinableQueue()
    >>> queue.put("resize 7")
    >>> queue.get()
    'resize 7'
    >>> queue.task_done()
    >>> queue.join()
    True

    `get` keeps the object in the queue until `task_done` of the same process. If the process ends earlier, in any way, the object returns to its
    place, and another worker gets the object. So `join` returns when each task is done, and not before. Tasks in work count for `maxsize`.
    """

    def _adopt(self, name: str, queue: _umsg.Queue, failed: _umsg.Queue | None, create: bool) -> None:
        super()._adopt(name, queue, failed, create)
        self._bell = Bell(name + "-join", self._options.namespace, create)
        self._kept.handles.append(self._bell.queue)
        self._tasks = _Tasks[T]()
        # The handles are closed in reverse order, so the tasks return to the queue first.
        self._kept.handles.append(self._tasks)

    def _after_fork(self) -> None:
        super()._after_fork()
        self._tasks.forget()

    def get(self, block: bool = True, timeout: float | None = None) -> T:
        """Returns the next object as a task of this process. Raises `queue.Empty` as `Queue.get` does."""
        task: Task[T] = Task(self._lease(seconds(block, timeout)))
        self._tasks.add(task)
        return task.item

    def _lease(self, timeout: float | None) -> _umsg.Lease:
        """Takes a task. Waits at the descriptor: a task that is handed to a blocked receiver is in no count until the receiver wakes up."""
        end = end_of(timeout)
        while True:
            try:
                lease = self._queue.try_receive_lease()
                break
            except _errors.Empty:
                rest = left(end)
                if rest == 0.0:
                    raise standard.Empty from None
                self._wait(rest)
            except _errors.Error as error:
                raise self._get_error(error) from None
        if self._bound is not None:
            self._bound.bell.ring()
        return lease

    def _wait(self, rest: float | None) -> None:
        """Waits for a task, at most `rest` seconds, and at most a second: the queue may be closed by another thread."""
        poll = select.poll()
        try:
            poll.register(self._queue.fileno(), select.POLLIN)
        except _errors.HandleClosed:  # The next call on the queue raises this.
            return
        poll.poll(1000 * (1.0 if rest is None else min(rest, 1.0)))

    def _get_more(self, items: list[T], count: int) -> None:
        try:
            for _ in range(count):
                items.append(self.get(False))
        except standard.Empty:
            pass

    def task(self, block: bool = True, timeout: float | None = None) -> Task[T]:
        """Takes the next object as a task, for a with statement. The end of the with statement replaces `task_done`."""
        return _Announced(self._lease(seconds(block, timeout)), self._bell)

    def task_done(self) -> None:
        """Removes a task that `get` has returned: the oldest task of this thread, or of this process if the thread has no task."""
        self._tasks.take().done()
        self._bell.ring()

    def task_failed(self, delay: float | None = None) -> None:
        """Returns a task that `get` has returned to its place in the queue, or delivers it again after `delay` seconds."""
        self._tasks.take().give_back(delay)

    def join(self, timeout: float | None = None) -> bool:
        """Waits until all tasks are done, or failed `max_deliveries` times. Returns False if `timeout` seconds pass before."""
        return self._bell.wait(self._is_done, end_of(timeout))

    def _is_done(self) -> bool:
        """Returns whether no task waits, is delayed or is in work.

        The counts are read without a lock, and miss a task that a receiver is just taking. `peek` takes the lock of the receivers: afterwards
        the receiver has the task. The method misses a task only if the task returns and is taken again at each of the three readings.
        """
        try:
            return (
                self._counts_nothing()
                and self._queue.peek() is None
                and self._counts_nothing()
                and self._queue.peek() is None
                and self._counts_nothing()
            )
        except (_errors.Empty, _errors.Busy):  # A stopped process holds the lock.
            return False

    def _counts_nothing(self) -> bool:
        now = self._attributes()
        return now.messages + now.leased + now.delayed + now.reserved == 0


class _Announced(Task[T]):
    """A task whose end wakes the callers of `join`."""

    def __init__(self, lease: _umsg.Lease, bell: Bell) -> None:
        super().__init__(lease)
        self._bell = bell

    def done(self) -> None:
        super().done()
        self._bell.ring()


class _Tasks(Generic[T]):
    """The tasks of this process that are not done, in the order of their `get`."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begins without tasks, in a forked child: the tasks of the parent still belong to the parent."""
        self._lock = threading.Lock()
        self._held: list[tuple[int, Task[T]]] = []

    def add(self, task: Task[T]) -> None:
        """Adds a task of this thread."""
        with self._lock:
            self._held.append((threading.get_ident(), task))

    def take(self) -> Task[T]:
        """Takes the oldest task of this thread, or of the process."""
        me = threading.get_ident()
        with self._lock:
            for n, (thread, _) in enumerate(self._held):
                if thread == me:
                    return self._held.pop(n)[1]
            if self._held:
                return self._held.pop(0)[1]
        raise ValueError("task_done() called too many times")

    def close(self) -> None:
        """Returns the tasks to the queue."""
        while self._held:
            try:
                self._held.pop()[1].give_back()
            except _errors.Error:  # The process may have ended the lease by itself.
                pass
