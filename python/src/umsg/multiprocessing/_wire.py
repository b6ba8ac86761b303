"""Objects as messages: pickles of protocol 5, with large buffers beside the pickle.

A message is a pickle, or a table, a pickle and buffers. A pickle begins with the byte 0x80, a table with 0x01:

    table    byte 0x01, 7 bytes 0, the number of parts as u64, the length of each part as u64
    pickle   the first part
    buffers  the other parts; each begins at a multiple of 64 bytes
"""

from __future__ import annotations

import copyreg
import pickle
import struct
from collections import ChainMap
from collections.abc import Callable, Iterable
from multiprocessing.reduction import ForkingPickler
from typing import Any

PICKLE = 0x80
TABLE = 0x01

# Buffers of at least this number of bytes are stored beside the pickle.
_LARGE = 4096
_HEAD = struct.Struct("<B7xQ")  # The beginning of a table.
_ALIGNMENT = 64
# The reducers of multiprocessing, as they are at the time of use.
_REDUCERS: ChainMap[Any, Any] = ChainMap(getattr(ForkingPickler, "_extra_reducers"), copyreg.dispatch_table)


class _File:
    """A file whose writes go to a list: large bytes objects are not copied."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.write = pieces.append


class _Keeper:
    """Keeps the large buffers of an object beside its pickle."""

    def __init__(self) -> None:
        self.large: list[memoryview] = []

    def __call__(self, buffer: pickle.PickleBuffer) -> bool:
        """Returns whether the buffer is stored in the pickle."""
        try:
            raw = buffer.raw()
        except BufferError:  # The buffer is not contiguous.
            return True
        if raw.nbytes < _LARGE:
            return True
        self.large.append(raw)
        return False


Tools = tuple[Callable[[Any], None], Callable[[], None], list[bytes], list[memoryview]]


def new_tools() -> Tools:
    """Returns the means of pickling many objects, one after the other: dump and clear_memo of a pickler, the pieces that it writes, and the buffers."""
    pieces: list[bytes] = []
    keeper = _Keeper()
    pickler = pickle.Pickler(_File(pieces), 5, buffer_callback=keeper)
    pickler.dispatch_table = _REDUCERS
    return pickler.dump, pickler.clear_memo, pieces, keeper.large


# Picklers that are not in use. A pickler in use is not in this list, so threads and nested calls have picklers of their own. A pickler that
# raised an exception is not used again.
idle: list[Tools] = []


def pickled_many(items: Iterable[object]) -> list[bytes]:
    """Returns the messages of several objects."""
    try:
        tools = idle.pop()
    except IndexError:
        tools = new_tools()
    dump, clear, pieces, large = tools
    messages: list[bytes] = []
    for item in items:
        dump(item)
        clear()
        data = pieces.pop()
        if pieces or large:
            data = parts(tools, data).joined()
        messages.append(data)
    idle.append(tools)
    return messages


def parts(tools: Tools, last: bytes) -> Parts:
    """Returns the parts of a large object. `last` is the last piece of its pickle."""
    _, _, pieces, large = tools
    made = Parts([*pieces, last], large[:])
    pieces.clear()
    large.clear()
    return made


def _aligned(offset: int) -> int:
    return (offset + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT


class Parts:
    """A pickle of several pieces, its buffers, and their places in a message."""

    def __init__(self, pieces: list[bytes], large: list[memoryview]) -> None:
        self._large = large
        self._places: list[tuple[int, bytes | memoryview]] = []
        self.length = 0
        if large:
            lengths = [sum(map(len, pieces)), *map(len, large)]
            self._add(struct.pack(f"<B7xQ{len(lengths)}Q", TABLE, len(lengths), *lengths))
        for piece in pieces:
            self._add(piece)
        for buffer in large:
            self.length = _aligned(self.length)
            self._add(buffer)

    def _add(self, part: bytes | memoryview) -> None:
        self._places.append((self.length, part))
        self.length += len(part)

    def write(self, room: memoryview) -> None:
        """Writes the message. Each part is copied once."""
        for offset, part in self._places:
            room[offset : offset + len(part)] = part

    def joined(self) -> bytes:
        """Returns the message, for a batch."""
        message = bytearray(self.length)
        with memoryview(message) as view:
            self.write(view)
        self.release()
        return bytes(message)

    def release(self) -> None:
        """Ends the use of the buffers: their owners may change their size again."""
        self._places.clear()
        for buffer in self._large:
            buffer.release()


def unpickled(message: memoryview) -> Any:
    """Returns the object of a message. The object has copies of the buffers: the memory of the message is free afterwards."""
    if message[0] != TABLE:
        with message[:] as view:
            return pickle.loads(view)
    _, count = _HEAD.unpack_from(message)
    lengths: tuple[int, ...] = struct.unpack_from(f"<{count}Q", message, _HEAD.size)
    start = _HEAD.size + 8 * count
    end = start + lengths[0]
    buffers: list[bytearray] = []
    offset = _aligned(end)
    for length in lengths[1:]:
        with message[offset : offset + length] as view:
            buffers.append(bytearray(view))
        offset = _aligned(offset + length)
    with message[start:end] as view:
        return pickle.loads(view, buffers=buffers)
