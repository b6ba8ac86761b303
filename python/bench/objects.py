"""Times objects in queues: umsg.multiprocessing beside multiprocessing and faster-fifo.

The measurements: a put and a get of a small tuple in one process, a stream of small tuples from one process to another, and an array of 1 MB from one
process to another and an answer. The candidates take turns, round after round. The results are the medians of the rounds.
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
from collections.abc import Callable
from typing import Any

import umsg.multiprocessing

ITEM = (7, "resize", 2.5)


def faster_fifo_queue() -> Any:
    import faster_fifo

    return faster_fifo.Queue()


Make = Callable[[], Any]
# For each candidate: the name, the function that makes the queue, and the number of objects in a round of puts and gets
# and in a round of a stream.
CANDIDATES: list[tuple[str, Make, int, int]] = [
    ("umsg Queue", umsg.multiprocessing.Queue, 20_000, 50_000),
    ("umsg SimpleQueue", umsg.multiprocessing.SimpleQueue, 20_000, 50_000),
    ("umsg JoinableQueue", umsg.multiprocessing.JoinableQueue, 5_000, 10_000),
    ("SimpleQueue", multiprocessing.SimpleQueue, 5_000, 10_000),
    ("faster-fifo", faster_fifo_queue, 5_000, 10_000),
    ("Queue", multiprocessing.Queue, 1_000, 10_000),
]


def put_and_get(queue: Any, count: int) -> None:
    done = getattr(queue, "task_done", lambda: None)
    for _ in range(count):
        queue.put(ITEM)
        queue.get()
        done()


def answer(queue: Any, answers: Any, in_batches: bool) -> None:
    """Gets the objects of streams, and answers at the end of each."""
    while in_batches:
        items = queue.get_many()
        if items[-1] is None:
            answers.put(1)
        elif items[-1] == "end":
            return
    done = getattr(queue, "task_done", lambda: None)
    while True:
        item = queue.get()
        done()
        if item is None:
            answers.put(1)
        elif item == "end":
            return


class Stream:
    """A queue and a process at its other end."""

    def __init__(self, make: Make, in_batches: bool = False) -> None:
        self.queue = make()
        self.answers: Any = multiprocessing.SimpleQueue()
        self.process = multiprocessing.Process(target=answer, args=(self.queue, self.answers, in_batches))
        self.process.start()

    def run(self, count: int) -> None:
        for _ in range(count):
            self.queue.put(ITEM)
        self.queue.put(None)
        self.answers.get()

    def batches(self, count: int) -> None:
        batch = [ITEM] * 250
        for _ in range(count // 250):
            self.queue.put_many(batch)
        self.queue.put(None)
        self.answers.get()

    def arrays(self, array: Any, count: int) -> None:
        for _ in range(count):
            self.queue.put(array)
            self.queue.put(None)
            self.answers.get()

    def end(self) -> None:
        self.queue.put("end")
        self.process.join()


def timed(work: Callable[..., None], *arguments: Any) -> float:
    """Returns the nanoseconds of a call, divided by its last argument."""
    began = time.perf_counter_ns()
    work(*arguments)
    return float((time.perf_counter_ns() - began) / arguments[-1])


def measure(rounds: int) -> dict[str, dict[str, float]]:
    """Returns the nanoseconds of each candidate that is installed."""
    queues = []
    for name, make, alone, count in CANDIDATES:
        try:
            queues.append((name, make(), Stream(make), alone, count))
        except ImportError as error:
            print(f"{name} is left out: {error}")
    batches = Stream(umsg.multiprocessing.Queue, in_batches=True)
    array = bytearray(1 << 20)
    works: list[tuple[str, Callable[[Any, Stream, int, int], float]]] = [
        ("put and get", lambda queue, stream, alone, count: timed(put_and_get, queue, alone)),
        ("stream", lambda queue, stream, alone, count: timed(stream.run, count)),
        ("1 MB", lambda queue, stream, alone, count: timed(stream.arrays, array, 20)),
    ]
    try:
        import numpy  # type: ignore[import-not-found, unused-ignore]

        numbers = numpy.zeros(1 << 17)
        works.append(("array, 1 MB", lambda queue, stream, alone, count: timed(stream.arrays, Array(numbers), 20)))
    except ImportError as error:
        print(f"arrays are left out: {error}")
    times: dict[str, dict[str, list[float]]] = {work: {name: [] for name, *_ in queues} for work, _ in works}
    times["stream"]["umsg Queue, in batches"] = []
    for _ in range(rounds):
        for work, run in works:
            for name, queue, other, alone, count in queues:
                if not (work.endswith("1 MB") and name == "faster-fifo"):  # Its buffer has 1 MB.
                    times[work][name].append(run(queue, other, alone, count))
        times["stream"]["umsg Queue, in batches"].append(timed(batches.batches, 100_000))
    for _, _, other, _, _ in queues:
        other.end()
    batches.end()
    return {work: {name: statistics.median(taken) for name, taken in of.items() if taken} for work, of in times.items()}


class Array:
    """An array of numpy in an object, which has no order: `item == "end"` compares no array."""

    def __init__(self, values: Any) -> None:
        self.values = values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
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
    for work, of in medians.items():
        print(work)
        for name, taken in of.items():
            print(f"    {name:24} {taken:12,.0f} ns  {taken / of['umsg Queue']:6.1f}")


if __name__ == "__main__":
    main()
