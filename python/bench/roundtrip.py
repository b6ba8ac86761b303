"""Times a send and a receive of 16 bytes in one process: umsg, posix_ipc on the kernel's queues, SimpleQueue, Queue and faster-fifo.

The candidates take turns, round after round, so that what else the machine does meets all of them. The medians of the rounds count.
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

import umsg

MESSAGE = b"x" * 16


def of_umsg() -> Callable[[int], None]:
    queue = umsg.Queue("/bench", create=True, max_messages=10, message_size=64)

    def run(count: int) -> None:
        for _ in range(count):
            queue.send(MESSAGE)
            queue.receive()

    return run


def of_sysv() -> Callable[[int], None]:
    queue = umsg.SysVQueue()

    def run(count: int) -> None:
        for _ in range(count):
            queue.send(MESSAGE)
            queue.receive()

    return run


def of_posix_ipc() -> Callable[[int], None]:
    import posix_ipc

    name = f"/umsg-bench-{os.getpid()}"
    queue = posix_ipc.MessageQueue(name, posix_ipc.O_CREX, max_messages=10, max_message_size=64)
    queue.unlink()

    def run(count: int) -> None:
        for _ in range(count):
            queue.send(MESSAGE)
            queue.receive()

    return run


def of_object(queue: Any) -> Callable[[int], None]:
    def run(count: int) -> None:
        for _ in range(count):
            queue.put(MESSAGE)
            queue.get()

    return run


def of_simple_queue() -> Callable[[int], None]:
    return of_object(multiprocessing.SimpleQueue())


def of_faster_fifo() -> Callable[[int], None]:
    import faster_fifo

    return of_object(faster_fifo.Queue())


# The name, what makes it, and how often it runs in a round.
CANDIDATES = [
    ("umsg", of_umsg, 100_000),
    ("umsg, System V", of_sysv, 100_000),
    ("posix_ipc, kernel", of_posix_ipc, 20_000),
    ("SimpleQueue", of_simple_queue, 5_000),
    ("faster-fifo", of_faster_fifo, 5_000),
]


def measure(rounds: int) -> dict[str, float]:
    """Returns the nanoseconds of each candidate that is installed."""
    made = []
    for name, make, count in CANDIDATES:
        try:
            made.append((name, make(), count))
        except (ImportError, OSError) as error:
            print(f"{name} is left out: {error}")
    times: dict[str, list[float]] = {name: [] for name, _, _ in made}
    for _ in range(rounds):
        for name, run, count in made:
            began = time.perf_counter_ns()
            run(count)
            times[name].append((time.perf_counter_ns() - began) / count)
    return {name: statistics.median(taken) for name, taken in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
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
    own = medians["umsg"]
    for name, taken in medians.items():
        print(f"{name:20} {taken:9.0f} ns  {taken / own:6.1f}")


if __name__ == "__main__":
    main()
