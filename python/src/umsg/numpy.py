"""Arrays of numpy in the messages of a queue, in place.

>>> import numpy, umsg.numpy
>>> size = umsg.numpy.message_size((1080, 1920), "u1")
>>> frames = umsg.Queue("/frames", create=True, max_messages=4, message_size=size)
>>> with umsg.numpy.reserve(frames, (1080, 1920), "u1") as room:  # written in place, and sent at the end
...     room.array[:] = 7
>>> with umsg.numpy.lease(frames) as frame:  # read in place, and acknowledged at the end
...     frame.array.shape, int(frame.array[3, 4])
((1080, 1920), 7)

A message is a file in numpy's format NPY: a header with type, shape and order, and the elements from the next multiple of 64 bytes on. So the
receiver need not know type and shape beforehand, and `numpy.load` reads a stored message. Arrays without a header need no module:

>>> floats = umsg.Queue("/floats", create=True, message_size=800)
>>> floats.send(numpy.arange(100.0))
>>> numpy.frombuffer(floats.receive())[99]  # doctest: +SKIP
99.0

`umsg.numpy.lease(floats, shape=100, dtype=float)` receives such an array in place. The array ends with its lease or reservation. So use `frame.array`
in the with statement, and keep no other reference: otherwise the lease can't end, and raises BufferError.
"""

from __future__ import annotations

import io
from functools import lru_cache
from types import TracebackType
from typing import Any, Union

import numpy
from numpy.lib import format as npy

from . import Lease, Queue, Reservation, SysVLease, SysVQueue

__all__ = ["Leased", "Reserved", "lease", "message_size", "receive", "reserve", "send"]

_Shape = Union[int, "tuple[int, ...]"]


@lru_cache(256)
def _header(shape: tuple[int, ...], dtype: numpy.dtype[Any], is_fortran: bool) -> bytes:
    if dtype.hasobject:
        raise TypeError(f"an array of {dtype} holds references to objects of this process")
    header = io.BytesIO()
    described = {"descr": npy.dtype_to_descr(dtype), "fortran_order": is_fortran, "shape": shape}
    npy.write_array_header_1_0(header, described)
    return header.getvalue()


@lru_cache(256)
def _described(header: bytes) -> tuple[tuple[int, ...], bool, numpy.dtype[Any]]:
    """Returns the shape, whether the order is Fortran's, and the type."""
    reader = io.BytesIO(header)
    npy.read_magic(reader)
    described: tuple[tuple[int, ...], bool, numpy.dtype[Any]] = npy.read_array_header_1_0(reader)
    if described[2].hasobject:
        raise ValueError("the message is an array of objects")
    return described


@lru_cache(256)
def _has_bytes(dtype: numpy.dtype[Any]) -> bool:
    """Returns whether arrays of this type have the buffer protocol: arrays of times do not have it."""
    try:
        numpy.empty(0, dtype).data  # noqa: B018
    except (ValueError, BufferError):
        return False
    return True


def _shape(shape: _Shape) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def _length(shape: tuple[int, ...], dtype: numpy.dtype[Any]) -> int:
    """Returns the bytes of the elements."""
    length = int(dtype.itemsize)
    for extent in shape:
        if extent < 0:
            raise ValueError(f"negative dimension in the shape {shape}")
        length *= extent
    return length


def _place(message: Any) -> tuple[tuple[int, ...], bool, numpy.dtype[Any], int]:
    """Reads the header of a message. Returns the contents of the header, and the offset of the elements."""
    with memoryview(message) as view:
        start = bytes(view[:10])
        if start[:8] != b"\x93NUMPY\x01\x00":
            raise ValueError("the message is no array of umsg.numpy.send: give dtype and shape")
        offset = 10 + int.from_bytes(start[8:], "little")
        shape, is_fortran, dtype = _described(bytes(view[:offset]))
    return shape, is_fortran, dtype, offset


def _array(
    message: Any, shape: tuple[int, ...], dtype: numpy.dtype[Any], offset: int, is_fortran: bool
) -> numpy.ndarray[Any, Any]:
    # An array that numpy.ndarray makes of a buffer does not keep the buffer exported, but an array of numpy.frombuffer does: the
    # message stays in place.
    kept = numpy.frombuffer(message, "u1")
    order: Any = "F" if is_fortran else "C"
    array: numpy.ndarray[Any, Any] = numpy.ndarray(shape, dtype, buffer=kept, offset=offset, order=order)
    return array


class Leased:
    """A lease of a message, with the array in it. `lease` makes one; the constructor takes a lease that another call has returned.

    >>> import asyncio, umsg.numpy
    >>> async def main():
    ...     queue = umsg.Queue("/arrays", create=True, message_size=1024)
    ...     umsg.numpy.send(queue, [1.5, 2.5])
    ...     with umsg.numpy.Leased(await queue.receive_lease_async()) as leased:
    ...         return float(leased.array.sum())
    >>> asyncio.run(main())
    4.0
    """

    __slots__ = ("_array", "lease")

    lease: Lease | SysVLease
    """The lease, for its other methods."""

    def __init__(self, lease: Lease | SysVLease, shape: _Shape | None = None, dtype: Any = None) -> None:
        """Makes the array: as the message's header says, or of the given shape and type if the message has no header."""
        self.lease = lease
        self._array: numpy.ndarray[Any, Any] | None = None
        try:
            if shape is None and dtype is None:
                known, is_fortran, kind, offset = _place(lease)
            else:
                kind, is_fortran, offset = numpy.dtype(dtype), False, 0
                known = (len(lease) // kind.itemsize,) if shape is None else _shape(shape)
            needed = offset + _length(known, kind)
            if needed != len(lease):
                raise ValueError(f"the message has {len(lease)} bytes, but an array of {kind} and shape {known} needs {needed}")
            self._array = _array(lease, known, kind, offset, is_fortran)
        except BaseException:
            lease.give_back()
            raise

    @property
    def array(self) -> numpy.ndarray[Any, Any]:
        """The array in the message, which is read-only and ends with the lease."""
        if self._array is None:
            raise ValueError("the lease has ended")
        return self._array

    def __enter__(self) -> Leased:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._array = None
        self.lease.__exit__(kind, error, trace)


class Reserved:
    """A reservation of a message, with the array in it. `reserve` makes one."""

    __slots__ = ("_array", "reservation")

    reservation: Reservation
    """The reservation, for its other methods."""

    def __init__(self, reservation: Reservation, array: numpy.ndarray[Any, Any]) -> None:
        self.reservation = reservation
        self._array: numpy.ndarray[Any, Any] | None = array

    @property
    def array(self) -> numpy.ndarray[Any, Any]:
        """The array in the message, to be written. The elements are undefined before the program writes them."""
        if self._array is None:
            raise ValueError("the reservation has ended")
        return self._array

    def __enter__(self) -> Reserved:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._array = None
        self.reservation.__exit__(kind, error, trace)


def message_size(shape: _Shape, dtype: Any = float) -> int:
    """Returns the length of a message with an array, in bytes.

    >>> import umsg.numpy
    >>> umsg.numpy.message_size((480, 640, 3), "u1")
    921728
    """
    made = numpy.dtype(dtype)
    return len(_header(_shape(shape), made, False)) + _length(_shape(shape), made)


def _reserve(
    queue: Queue, shape: tuple[int, ...], dtype: numpy.dtype[Any], is_fortran: bool, priority: Any, timeout: Any
) -> Reserved:
    header = _header(shape, dtype, is_fortran)
    reservation = queue.reserve(len(header) + _length(shape, dtype), priority, timeout)
    with memoryview(reservation) as view:
        view[: len(header)] = header
    return Reserved(reservation, _array(reservation, shape, dtype, len(header), is_fortran))


def reserve(queue: Queue, shape: _Shape, dtype: Any = float, priority: int | None = None, timeout: Any = None) -> Reserved:
    """Reserves a message for an array, to be written in place. The end of the with statement sends the message, an exception drops it."""
    known, made = _shape(shape), numpy.dtype(dtype)
    return _reserve(queue, known, made, False, priority, timeout)


def send(queue: Queue, array: Any, priority: int | None = None, timeout: Any = None) -> None:
    """Sends an array with its type, shape and order. The array is copied once, into the queue, and need not be contiguous.

    >>> import numpy, umsg.numpy
    >>> queue = umsg.Queue("/arrays", create=True, message_size=1024)
    >>> umsg.numpy.send(queue, numpy.arange(6).reshape(2, 3)[:, ::2])
    >>> umsg.numpy.receive(queue).tolist()
    [[0, 2], [3, 5]]
    """
    source = numpy.asanyarray(array)
    shape, dtype, flags = source.shape, source.dtype, source.flags
    is_fortran = flags.fnc
    if (is_fortran or flags.c_contiguous) and _has_bytes(dtype):
        queue._send_joined(_header(shape, dtype, is_fortran), source.T if is_fortran else source, priority, timeout)
        return
    with _reserve(queue, shape, dtype, is_fortran, priority, timeout) as room:
        room.array[...] = source


def lease(
    queue: Queue | SysVQueue, timeout: Any = None, *, shape: _Shape | None = None, dtype: Any = None, **more: Any
) -> Leased:
    """Receives an array in place. `shape` and `dtype` are for messages without a header; the other arguments go to `receive_lease`."""
    return Leased(queue.receive_lease(timeout=timeout, **more), shape, dtype)


def receive(
    queue: Queue | SysVQueue, timeout: Any = None, *, shape: _Shape | None = None, dtype: Any = None, **more: Any
) -> numpy.ndarray[Any, Any]:
    """Receives an array, and copies it once: out of the queue. The result can be written."""
    with lease(queue, timeout, shape=shape, dtype=dtype, **more) as leased:
        copied: numpy.ndarray[Any, Any] = leased.array.copy(order="K")
    return copied
