"""Times a stream of messages of 64 bytes from one process to another: umsg one by one and in batches, rings, and the queues of multiprocessing.

The receiver answers at the end of each stream. The candidates take turns, round after round, so that other load on the machine affects
all of them alike. The results are the medians of the rounds. The processor time is the sum of both processes.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import umsg

MESSAGE = b"x" * 64
LAST = b"y" * 64
BATCH = 256


class OneByOne:
    """A queue of umsg, one message a call."""

    count = 300_000

    def __init__(self, name: str, class_: Callable[[str], umsg.Queue]) -> None:
        self.queue = class_(name)

    def send(self, count: int) -> None:
        send = self.queue.send
        for _ in range(count - 1):
            send(MESSAGE)
        send(LAST)

    def streams(self) -> Iterator[None]:
        for message in self.queue:
            if message == LAST:
                yield

    def end(self) -> None:
        self.queue.close_send()


class InBatches(OneByOne):
    """A queue of umsg, many messages a call."""

    count = 600_000

    def send(self, count: int) -> None:
        batch = [MESSAGE] * BATCH
        for _ in range(count // BATCH):
            self.queue.send_many(batch)
        self.queue.send(LAST)

    def streams(self) -> Iterator[None]:
        try:
            while True:
                if self.queue.receive_many(BATCH)[-1] == LAST:
                    yield
        except umsg.EndOfStream:
            pass


class OfRing:
    """A ring of umsg, whose receiver takes up to BATCH messages a call."""

    count = 300_000

    def __init__(self) -> None:
        self.name = "/ring"
        self.sender: Any = None

    def send(self, count: int) -> None:
        while self.sender is None:
            try:
                self.sender = umsg.RingSender(self.name)
            except umsg.NotFound:
                time.sleep(0.001)
        send = self.sender.send
        for _ in range(count - 1):
            send(1, 0, 0, MESSAGE)
        send(2, 0, 0, MESSAGE)

    def streams(self) -> Iterator[None]:
        with umsg.Ring(self.name, entries=4096) as ring:
            while True:
                last = ring.receive_many(BATCH)[-1].user_data
                if last == 2:
                    yield
                elif last == 3:
                    return

    def end(self) -> None:
        self.sender.send(3)


class OfObjects:
    """A queue of multiprocessing."""

    def __init__(self, queue: Any, count: int) -> None:
        self.queue = queue
        self.count = count

    def send(self, count: int) -> None:
        put = self.queue.put
        for _ in range(count - 1):
            put(MESSAGE)
        put(LAST)

    def streams(self) -> Iterator[None]:
        while (message := self.queue.get()) is not None:
            if message == LAST:
                yield

    def end(self) -> None:
        self.queue.put(None)


def queue(name: str) -> umsg.Queue:
    return umsg.Queue(name, create=True, max_messages=8192, message_size=64)


CANDIDATES: dict[str, Callable[[], Any]] = {
    "umsg, one by one": lambda: OneByOne("/one", queue),
    "umsg, in batches": lambda: InBatches("/batches", queue),
    "umsg, ring": OfRing,
    "SimpleQueue": lambda: OfObjects(multiprocessing.SimpleQueue(), 20_000),
    "Queue": lambda: OfObjects(multiprocessing.Queue(), 20_000),
}


def receive(candidate: Any, answers: int) -> None:
    """Answers each stream with the processor time so far."""
    for _ in candidate.streams():
        os.write(answers, b"%20d" % time.process_time_ns())


class Stream:
    """A candidate with its receiver in another process."""

    def __init__(self, candidate: Any) -> None:
        self.candidate = candidate
        self.answers, answers = os.pipe()
        self.spent = 0
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                receive(candidate, answers)
                status = 0
            finally:
                os._exit(status)
        os.close(answers)

    def run(self) -> tuple[float, float]:
        """Returns the time of a message and its processor time, in nanoseconds."""
        count = self.candidate.count
        own, began = time.process_time_ns(), time.perf_counter_ns()
        self.candidate.send(count)
        spent = int(os.read(self.answers, 20))
        taken = time.perf_counter_ns() - began
        busy = time.process_time_ns() - own + spent - self.spent
        self.spent = spent
        return taken / count, busy / count

    def end(self) -> None:
        self.candidate.end()
        assert os.waitpid(self.pid, 0)[1] == 0


def measure(rounds: int) -> dict[str, tuple[float, float]]:
    """Returns the medians of each candidate: the time of a message and its processor time, in nanoseconds."""
    streams = {name: Stream(make()) for name, make in CANDIDATES.items()}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in streams}
    for number in range(rounds + 1):
        for name, stream in streams.items():
            taken = stream.run()
            if number:  # The first round loads the code and the pages.
                times[name].append(taken)
    for stream in streams.values():
        stream.end()
    return {
        name: (statistics.median(taken for taken, _ in all_), statistics.median(busy for _, busy in all_))
        for name, all_ in times.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--json", action="store_true", help="print the medians as JSON")
    arguments = parser.parse_args()
    home = tempfile.mkdtemp(prefix="umsg-bench-", dir="/dev/shm")
    os.environ["UMSG_DIR"] = home
    try:
        medians = measure(arguments.rounds)
    finally:
        shutil.rmtree(home)
    if arguments.json:
        print(json.dumps(medians))
        return
    own, _ = medians["umsg, one by one"]
    print(f"{'':18} {'ns':>9} {'CPU ns':>9} {'M/s':>7}")
    for name, (taken, busy) in medians.items():
        print(f"{name:18} {taken:9.0f} {busy:9.0f} {1e3 / taken:7.2f}  {taken / own:6.1f}")


if __name__ == "__main__":
    main()
