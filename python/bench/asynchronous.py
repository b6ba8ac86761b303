"""Times a round trip between two processes whose tasks wait with asyncio: umsg, a Unix socket pair with the loop's calls and with streams.

The candidates take turns, round after round, so that other load on the machine affects all of them alike. The results are the medians of the rounds.
`--uvloop` takes uvloop's loops.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import socket
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Literal

import umsg

MESSAGE = b"x" * 64

# Sends a message and waits for its answer.
Trip = Callable[[], Awaitable[object]]
# Answers messages until the stream ends.
Echo = Coroutine[Any, Any, None]


class OfQueues:
    """Two POSIX queues, one for each direction. With "blocking" no task spins for its answer before it waits."""

    def __init__(self, waiting: Literal["adaptive", "blocking"] = "adaptive") -> None:
        there, back = f"/there-{waiting}", f"/back-{waiting}"
        self.there = umsg.Queue(there, create=True, max_messages=10, message_size=64, waiting=waiting)
        self.back = umsg.Queue(back, create=True, max_messages=10, message_size=64, waiting=waiting)

    async def echo(self) -> None:
        async for message in self.there:
            await self.back.send_async(message)

    async def connect(self) -> Trip:
        async def trip() -> None:
            await self.there.send_async(MESSAGE)
            await self.back.receive_async()

        return trip

    def end(self) -> None:
        self.there.close_send()


class OfSystemV:
    """A System V queue whose types are the directions."""

    def __init__(self) -> None:
        self.queue = umsg.SysVQueue(1, create=True)

    async def echo(self) -> None:
        try:
            while True:
                await self.queue.send_async(await self.queue.receive_async(type=1), type=2)
        except umsg.Removed:
            pass

    async def connect(self) -> Trip:
        async def trip() -> None:
            await self.queue.send_async(MESSAGE, type=1)
            await self.queue.receive_async(type=2)

        return trip

    def end(self) -> None:
        self.queue.remove()


class OfSocket:
    """A pair of Unix sockets of packets, with the calls of the loop."""

    def __init__(self) -> None:
        self.ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in self.ends:
            end.setblocking(False)

    async def echo(self) -> None:
        loop = asyncio.get_running_loop()
        self.ends[0].close()
        while message := await loop.sock_recv(self.ends[1], 64):
            await loop.sock_sendall(self.ends[1], message)

    async def connect(self) -> Trip:
        loop = asyncio.get_running_loop()
        self.ends[1].close()

        async def trip() -> None:
            await loop.sock_sendall(self.ends[0], MESSAGE)
            await loop.sock_recv(self.ends[0], 64)

        return trip

    def end(self) -> None:
        self.ends[0].shutdown(socket.SHUT_RDWR)  # The other children have copies of the descriptor.


class OfStreams:
    """A pair of Unix sockets of bytes, with the streams of asyncio."""

    def __init__(self) -> None:
        self.ends = socket.socketpair()

    async def echo(self) -> None:
        self.ends[0].close()
        reader, writer = await asyncio.open_unix_connection(sock=self.ends[1])
        try:
            while True:
                writer.write(await reader.readexactly(len(MESSAGE)))
        except asyncio.IncompleteReadError:
            writer.close()

    async def connect(self) -> Trip:
        self.ends[1].close()
        reader, self.writer = await asyncio.open_unix_connection(sock=self.ends[0])

        async def trip() -> None:
            self.writer.write(MESSAGE)
            await reader.readexactly(len(MESSAGE))

        return trip

    def end(self) -> None:
        self.ends[0].shutdown(socket.SHUT_RDWR)


CANDIDATES: dict[str, Callable[[], Any]] = {
    "umsg": OfQueues,
    "umsg, blocking": lambda: OfQueues("blocking"),
    "umsg, System V": OfSystemV,
    "socket pair": OfSocket,
    "streams": OfStreams,
}


def run(main: Echo, with_uvloop: bool) -> None:
    if with_uvloop:
        import uvloop

        uvloop.run(main)
    else:
        asyncio.run(main)


def fork(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return pid


async def measure(candidates: dict[str, Any], rounds: int, count: int) -> dict[str, float]:
    """Returns the microseconds of a round trip of each candidate."""
    trips = {name: await candidate.connect() for name, candidate in candidates.items()}
    times: dict[str, list[float]] = {name: [] for name in trips}
    for _ in range(rounds):
        for name, trip in trips.items():
            began = time.perf_counter()
            for _ in range(count):
                await trip()
            times[name].append((time.perf_counter() - began) / count * 1e6)
    for candidate in candidates.values():
        candidate.end()
    await asyncio.sleep(0)
    return {name: statistics.median(taken) for name, taken in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--count", type=int, default=2_000, help="round trips in a round")
    parser.add_argument("--uvloop", action="store_true", help="measure with uvloop")
    parser.add_argument("--json", action="store_true", help="print the medians as JSON")
    arguments = parser.parse_args()
    home = tempfile.mkdtemp(prefix="umsg-bench-", dir="/dev/shm")
    os.environ["UMSG_DIR"] = home
    try:
        candidates = {name: make() for name, make in CANDIDATES.items()}
        children = [
            fork(lambda candidate=candidate: run(candidate.echo(), arguments.uvloop))  # type: ignore[misc]
            for candidate in candidates.values()
        ]
        medians: dict[str, float] = {}

        async def work() -> None:
            medians.update(await measure(candidates, arguments.rounds, arguments.count))

        run(work(), arguments.uvloop)
        for pid in children:
            assert os.waitpid(pid, 0)[1] == 0
    finally:
        shutil.rmtree(home)
    if arguments.json:
        print(json.dumps(medians))
        return
    for name, taken in medians.items():
        print(f"{name:16} {taken:7.1f} us  {taken / medians['umsg']:5.2f}")


if __name__ == "__main__":
    main()
