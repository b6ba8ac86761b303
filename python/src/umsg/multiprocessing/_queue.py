"""`Queue` and `SimpleQueue`."""

from __future__ import annotations

import errno
import mmap
import os
import queue as standard
from collections.abc import Callable, Iterable
from multiprocessing import context, util  # pyright: ignore[reportAttributeAccessIssue] - its stub imports itself
from pickle import loads
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Union

from .. import _errors, _umsg
from ._bound import Bound
from ._lent import close_unused, lend
from ._wire import PICKLE, Parts, idle, new_tools, parts, pickled_many, unpickled

if TYPE_CHECKING:
    from datetime import timedelta

    from typing_extensions import TypeVar

    # Queues without a type in square brackets have objects of any type, as those of multiprocessing.
    T = TypeVar("T", default=Any)
    _Delay = Union[float, timedelta, tuple[Union[float, timedelta], Union[float, timedelta]]]
else:
    from typing import TypeVar

    T = TypeVar("T")
_Self = TypeVar("_Self", bound="Channel[Any]")

# The limits of the library: messages of a queue, and bytes of a message.
MOST_MESSAGES = 1 << 20
LARGEST_MESSAGE = 16 << 20
# Messages that are longer than this number of bytes are read in place.
_SHORT = 1 << 16
# After a longer message, this number of messages is read in place: long messages seldom come alone.
_IN_PLACE = 64


class Options(NamedTuple):
    """The data that a process needs to open a queue of another process, besides the queue's name."""

    namespace: str
    message_size: int
    max_bytes: int | None
    has_failed: bool


class _Kept:
    """Handles of one queue, which `close` and the end of the process close."""

    def __init__(self) -> None:
        self.handles: list[Any] = []

    def close(self) -> None:
        while self.handles:
            self.handles.pop().close()
        close_unused()


def _new_name() -> str:
    return f"/multiprocessing-{os.getpid()}-{os.urandom(8).hex()}"


def seconds(block: bool, timeout: float | None) -> float | None:
    """Returns the time limit of a call of multiprocessing. Negative times are 0."""
    if not block:
        return 0
    if timeout is not None and timeout < 0:
        return 0
    return timeout


class Channel(Generic[T]):
    """The common part of the classes of queues."""

    def __init__(
        self,
        maxsize: int = 0,
        *,
        max_bytes: int | None = None,
        message_size: int = LARGEST_MESSAGE,
        max_deliveries: int | None = None,
        retry_delay: _Delay | None = None,
        namespace: str | None = None,
        ctx: object = None,
    ) -> None:
        del ctx  # All start methods work with all queues.
        name = _new_name()
        options: dict[str, Any] = {}
        failed: _umsg.Queue | None = None
        messages = maxsize if maxsize > 0 else MOST_MESSAGES
        if max_deliveries is not None:
            options.update(max_deliveries=max_deliveries, dead_letter=name + "-failed")
            failed = self._create(name + "-failed", messages, message_size, namespace, {})
        if retry_delay is not None:
            options.update(retry_delay=retry_delay)
        queue = self._create(name, messages, message_size, namespace, options)
        self._options = Options(queue.namespace, message_size, max_bytes, failed is not None)
        self._adopt(name, queue, failed, True)

    @staticmethod
    def _create(
        name: str, messages: int, message_size: int, namespace: str | None, options: dict[str, Any]
    ) -> _umsg.Queue:
        return _umsg.Queue(
            name,
            create=True,
            exclusive=True,
            max_messages=messages,
            message_size=message_size,
            remove_on_last_close=True,
            namespace=namespace,
            **options,
        )

    def _adopt(self, name: str, queue: _umsg.Queue, failed: _umsg.Queue | None, create: bool) -> None:
        """Begins to use the queue, in the process that created the queue or in another process."""
        self._name = name
        self._queue = queue
        self._send = queue.send
        self._receive_into = queue.receive_into
        # Memory into which messages are received. Memory in use is not in this list, so each thread has memory of
        # its own.
        self._rooms: list[memoryview] = []
        self._in_place = 0
        self._bound: Bound | None = None
        self._failed = failed
        self._kept = _Kept()
        self._kept.handles.append(queue)
        if failed is not None:
            self._kept.handles.append(failed)
        if self._options.max_bytes is not None:
            self._bound = Bound(name, self._options.namespace, self._options.max_bytes, create)
            self._kept.handles.append(self._bound)
        self._end_with_process()
        util.register_after_fork(self, type(self)._after_fork)

    def _end_with_process(self) -> None:
        """Lets the end of the process close the handles, after it has joined its children.

        Processes of multiprocessing end without destroying their objects.
        """
        self._finalizer = util.Finalize(self, _Kept.close, [self._kept], exitpriority=-10)

    def _after_fork(self) -> None:
        self._end_with_process()

    def __getstate__(self) -> tuple[str, Options]:
        popen = context.get_spawning_popen()
        if popen is not None:
            lend(popen, self._open(self._name, self._options.namespace))
        return self._name, self._options

    def __setstate__(self, state: tuple[str, Options]) -> None:
        name, self._options = state
        namespace = self._options.namespace
        queue = self._open(name, namespace)
        failed = self._open(name + "-failed", namespace) if self._options.has_failed else None
        self._adopt(name, queue, failed, False)

    @staticmethod
    def _open(name: str, namespace: str) -> _umsg.Queue:
        try:
            return _umsg.Queue(name, namespace=namespace)
        except _errors.NotFound:
            text = "the queue was removed, because no process had it open: keep it open until its receiver has opened it"
            raise _errors.NotFound(errno.ENOENT, text, name) from None

    def _closed_error(self) -> _errors.HandleClosed:
        return _errors.HandleClosed(errno.EBADF, f"{type(self).__name__} {self!r} is closed")

    def put(self, obj: T, block: bool = True, timeout: float | None = None) -> None:
        """Puts an object into the queue. Raises `queue.Full` if there is no room at once (`block=False`), or after `timeout` seconds.

        This call also raises the exceptions of pickle, which leave the queue as it was.
        """
        if not block or timeout is not None:
            timeout = seconds(block, timeout)
        try:
            tools = idle.pop()
        except IndexError:
            tools = new_tools()
        dump, clear, pieces, large = tools
        dump(obj)
        clear()
        data = pieces.pop()
        if pieces or large:
            self._put_parts(parts(tools, data), timeout)
            idle.append(tools)
            return
        idle.append(tools)
        try:
            if self._bound is None:
                self._send(data, 0, timeout)
            else:
                self._send_bounded(len(data), timeout, lambda rest: self._send(data, 0, rest))
        except _errors.Error as error:
            raise self._put_error(error, len(data)) from None

    def _put_parts(self, large: Parts, timeout: float | None) -> None:
        def send(rest: float | None) -> None:
            with self._queue.reserve(large.length, 0, rest) as room:
                large.write(room.data)

        try:
            if self._bound is None:
                send(timeout)
            else:
                self._send_bounded(large.length, timeout, send)
        except _errors.Error as error:
            raise self._put_error(error, large.length) from None
        finally:
            large.release()

    def _send_bounded(self, size: int, timeout: float | None, send: Callable[[float | None], None]) -> None:
        assert self._bound is not None
        if size > self._bound.most:
            raise _errors.TooLong(errno.EMSGSIZE, f"the pickle has {size} bytes, and max_bytes is {self._bound.most}")
        if self._queue.closed:
            raise self._closed_error()
        self._bound.send(self._queue, size, timeout, send)

    def _put_error(self, error: _errors.Error, size: int) -> Exception:
        if isinstance(error, (_errors.Full, _errors.TimedOut, _errors.Empty)):
            return standard.Full()
        if isinstance(error, _errors.HandleClosed):
            return self._closed_error()
        if isinstance(error, _errors.TooLong) and size > self._options.message_size:
            most = self._options.message_size
            advice = f"make the queue with message_size={size} or more"
            if size > LARGEST_MESSAGE:
                advice = "send it in parts, or put it into shared memory and send its name"
            return _errors.TooLong(errno.EMSGSIZE, f"the pickle has {size} bytes, and message_size is {most}: {advice}")
        return error

    def get(self, block: bool = True, timeout: float | None = None) -> T:
        """Returns the next object, and removes it. Raises `queue.Empty` if there is no object at once (`block=False`), or for `timeout` seconds."""
        if not block or timeout is not None:
            timeout = seconds(block, timeout)
        if self._in_place:
            return self._get_in_place(timeout)
        try:
            room = self._rooms.pop()
        except IndexError:
            room = self._new_room()
        try:
            length = self._receive_into(room, timeout)
        except _errors.Error as error:
            self._rooms.append(room)
            raise self._get_error(error) from None
        if self._bound is not None:
            self._bound.bell.ring()
        if length > _SHORT or room[0] != PICKLE:
            return self._get_long(room, length)
        try:
            item: T = loads(room)  # A pickle says where it ends.
        finally:
            self._rooms.append(room)
        return item

    def _new_room(self) -> memoryview:
        """Returns memory for a message of any length. The system provides pages when they are written."""
        return memoryview(mmap.mmap(-1, self._options.message_size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))

    def _get_long(self, room: memoryview, length: int) -> T:
        item: T
        with room[:length] as view:
            item = unpickled(view)
        if length > _SHORT:
            # The room is not kept, so its pages are freed. The next messages are read in place.
            self._in_place = _IN_PLACE
        else:
            self._rooms.append(room)
        return item

    def _get_in_place(self, timeout: float | None) -> T:
        lease = self._lease(timeout)
        self._in_place = _IN_PLACE if len(lease) > _SHORT else max(0, self._in_place - 1)
        try:
            item: T = unpickled(lease.data)
        finally:
            lease.acknowledge()
        return item

    def _lease(self, timeout: float | None) -> _umsg.Lease:
        try:
            lease = self._queue.receive_lease(timeout)
        except _errors.Error as error:
            raise self._get_error(error) from None
        if self._bound is not None:
            self._bound.bell.ring()
        return lease

    def _get_error(self, error: _errors.Error) -> Exception:
        if isinstance(error, (_errors.Empty, _errors.TimedOut)):
            return standard.Empty()
        if isinstance(error, _errors.HandleClosed):
            return self._closed_error()
        return error

    def empty(self) -> bool:
        """Returns whether no object waits."""
        return self._attributes().messages == 0

    def _attributes(self) -> _umsg.Attributes:
        try:
            return self._queue.attributes()
        except _errors.HandleClosed:
            raise self._closed_error() from None

    def fileno(self) -> int:
        """Returns a descriptor that is readable while an object waits, for select and `multiprocessing.connection.wait`."""
        return self._queue.fileno()

    def close(self) -> None:
        """Closes the queue in this process. The objects stay for the other processes; the last process that closes the queue removes it."""
        self._finalizer()

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SimpleQueue(Channel[T]):
    """A queue with `put`, `get` and `empty` alone, as `multiprocessing.SimpleQueue`.

    >>> from umsg.multiprocessing import SimpleQueue
    >>> queue = SimpleQueue()
    >>> queue.put({"id": 7})
    >>> queue.get()
    {'id': 7}
    >>> queue.empty()
    True

    The keyword arguments are those of `Queue`. `put` waits if the queue has 1,048,576 objects.
    """

    def __init__(
        self, *, max_bytes: int | None = None, message_size: int = LARGEST_MESSAGE, namespace: str | None = None, ctx: object = None
    ) -> None:
        super().__init__(max_bytes=max_bytes, message_size=message_size, namespace=namespace, ctx=ctx)


class Task(Generic[T]):
    """An object that is removed from its queue when the work on it is done. Made by `Queue.task`."""

    def __init__(self, lease: _umsg.Lease) -> None:
        self._lease = lease
        try:
            self.item: T = unpickled(lease.data)
        except BaseException:
            lease.give_back()
            raise

    @property
    def deliveries(self) -> int:
        """The number of times the task was given to a worker, this time included."""
        return self._lease.deliveries

    def done(self) -> None:
        """Removes the task from the queue."""
        self._lease.acknowledge()

    def give_back(self, delay: float | None = None) -> None:
        """Returns the task to its place in the queue, for another worker, or delivers it again after `delay` seconds."""
        self._lease.give_back(delay)

    def __enter__(self) -> T:
        return self.item

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._lease.is_open:
            return
        if kind is None:
            self.done()
        else:
            self.give_back()


class Queue(Channel[T]):
    """A queue of objects between processes, as `multiprocessing.Queue`, without a feeder thread.

    >>> from umsg.multiprocessing import Queue
    >>> queue = Queue(maxsize=100)
    >>> queue.put(("resize", 7))
    >>> queue.get(timeout=1.5)
    ('resize', 7)
    >>> queue.get_nowait()
    Traceback (most recent call last):
        ...
    _queue.Empty

    `put` returns when the object is in the queue. `get` removes the object at once: if the process is killed afterwards, the object is lost.

    `maxsize` limits the objects, to 1,048,576 without it. `max_bytes` limits the bytes of all pickles that wait. `message_size` is the largest
    pickle, 16 MiB by default; memory is used only for the bytes of the pickles that wait. `max_deliveries`, `retry_delay` and `failed` are for tasks.

    `task` gives an object to a worker, and keeps it until the work is done:

    >>> queue.put(("resize", 8))
    >>> with queue.task() as job:  # returned to the queue on an exception, and if the process dies
    ...     job
    ('resize', 8)
    """

    def put_nowait(self, obj: T) -> None:
        """Puts an object into the queue if there is room at once; otherwise raises `queue.Full`."""
        self.put(obj, False)

    def get_nowait(self) -> T:
        """Returns the next object if there is one at once; otherwise raises `queue.Empty`."""
        return self.get(False)

    def put_many(self, items: Iterable[T], block: bool = True, timeout: float | None = None) -> None:
        """Puts all objects into the queue, or none. Raises `queue.Full` as `put` does. A stream of small objects is faster in batches.

        >>> from umsg.multiprocessing import Queue
        >>> queue = Queue()
        >>> queue.put_many(range(5))
        >>> queue.get_many(most=3)
        [0, 1, 2]
        """
        self._put_batch(pickled_many(items), seconds(block, timeout))

    def _put_batch(self, data: list[bytes], timeout: float | None) -> None:
        try:
            if self._bound is None:
                self._queue.send_many(data, 0, timeout)
            else:
                self._send_bounded(sum(map(len, data)), timeout, lambda rest: self._queue.send_many(data, 0, rest))
        except _errors.Error as error:
            raise self._put_error(error, max(map(len, data), default=0)) from None

    def get_many(self, most: int = 256, block: bool = True, timeout: float | None = None) -> list[T]:
        """Returns objects that wait, at least one and at most `most`, as `get` does: the call waits for the first object, and raises `queue.Empty`.

        If pickle can't restore an object, its exception is raised, and the objects that the call has taken are gone.
        """
        items = [self.get(block, timeout)] if most > 0 else []
        # Requests at most the objects that wait now, because a request beyond them raises Empty.
        # Other processes may take the objects first.
        self._get_more(items, min(most - len(items), self.qsize()))
        return items

    def _get_more(self, items: list[T], count: int) -> None:
        """Adds up to `count` objects that wait. Ends after a long object."""
        if self._in_place or count <= 0:
            return
        try:
            room = self._rooms.pop()
        except IndexError:
            room = self._new_room()
        receive = self._receive_into
        try:
            for _ in range(count):
                length = receive(room, 0)
                if length > _SHORT or room[0] != PICKLE:
                    items.append(self._get_long(room, length))
                    return
                items.append(loads(room))
        except (_errors.Empty, _errors.TimedOut):
            pass
        finally:
            if self._bound is not None:
                self._bound.bell.ring()
        self._rooms.append(room)

    def task(self, block: bool = True, timeout: float | None = None) -> Task[T]:
        """Takes the next object as a task, for a with statement. Raises `queue.Empty` as `get` does.

        At the end of the with statement the object leaves the queue. An exception, or the death of the process, returns the object to its place.
        """
        return Task(self._lease(seconds(block, timeout)))

    def qsize(self) -> int:
        """Returns the number of objects that wait. Tasks in work and delayed tasks do not count."""
        return self._attributes().messages

    def full(self) -> bool:
        """Returns whether a put would wait for room. Tasks in work and delayed tasks take room, too."""
        now = self._attributes()
        taken = now.messages + now.leased + now.delayed + now.reserved
        most = self._options.max_bytes
        return taken >= now.max_messages or (most is not None and now.bytes >= most)

    @property
    def failed(self) -> Failed[T]:
        """The tasks that were given out `max_deliveries` times and not done."""
        if self._failed is None:
            raise ValueError("the queue has no max_deliveries: its tasks are given out until they are done")
        return Failed(self._failed)

    def join_thread(self) -> None:
        """Does nothing: the queue has no thread. Raises an error if the queue is not closed, as multiprocessing does."""
        if not self._queue.closed:
            raise AssertionError(f"Queue {self!r} not closed")

    def cancel_join_thread(self) -> None:
        """Does nothing: the queue has no thread, and each object that was put is in the queue."""


class Failed(Generic[T]):
    """The failed tasks of a queue: an iterator that removes each task which it returns."""

    def __init__(self, queue: _umsg.Queue) -> None:
        self._queue = queue

    def __len__(self) -> int:
        return self._queue.attributes().messages

    def __iter__(self) -> Failed[T]:
        return self

    def __next__(self) -> T:
        try:
            lease = self._queue.try_receive_lease()
        except _errors.Empty:
            raise StopIteration from None
        with lease:
            item: T = unpickled(lease.data)
            return item
