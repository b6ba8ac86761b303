"""Times a send and a receive of 16 bytes in one process: umsg, its compatible modules, posix_ipc and sysv_ipc on the kernel's queues,
SimpleQueue and faster-fifo. If UMSG_PRELOAD_LIBRARY names the drop-in, also posix_ipc and sysv_ipc in a process under it.

The candidates take turns, round after round, so that other load on the machine affects all of them alike. The results are the medians of the rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import umsg

MESSAGE = b"x" * 16

# The queues of the candidates, which are removed at the end.
ENDS = contextlib.ExitStack()


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


def of_compatible(queue: Any) -> Callable[[int], None]:
    def run(count: int) -> None:
        for _ in range(count):
            queue.send(MESSAGE)
            queue.receive()

    return run


def posix_queue(module: Any) -> Callable[[int], None]:
    queue = module.MessageQueue(None, module.O_CREX, max_messages=10, max_message_size=64)
    queue.unlink()
    return of_compatible(queue)


def sysv_queue(module: Any) -> Callable[[int], None]:
    queue = module.MessageQueue(None, module.IPC_CREX)
    ENDS.callback(queue.remove)
    return of_compatible(queue)


def of_posix_ipc() -> Callable[[int], None]:
    return posix_queue(importlib.import_module("posix_ipc"))


def of_sysv_ipc() -> Callable[[int], None]:
    return sysv_queue(importlib.import_module("sysv_ipc"))


def of_our_posix_ipc() -> Callable[[int], None]:
    return posix_queue(importlib.import_module("umsg.posix_ipc"))


def of_our_sysv_ipc() -> Callable[[int], None]:
    return sysv_queue(importlib.import_module("umsg.sysv_ipc"))


def under_drop_in(package: str) -> Callable[[int], float]:
    """Starts a process under the drop-in. The process times each round itself."""
    library = os.environ.get("UMSG_PRELOAD_LIBRARY")
    if not library:
        raise OSError("UMSG_PRELOAD_LIBRARY does not name the drop-in")
    environment = {**os.environ, "LD_PRELOAD": library}
    child = subprocess.Popen(
        [sys.executable, __file__, "--rounds-of", package],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    to_child, from_child = child.stdin, child.stdout
    assert to_child and from_child

    def end() -> None:
        to_child.close()
        child.wait()

    ENDS.callback(end)

    def run(count: int) -> float:
        print(count, file=to_child, flush=True)
        return float(from_child.readline())

    return run


def answer_rounds(package: str) -> None:
    """Times rounds for the process that started this process."""
    run = of_posix_ipc() if package == "posix_ipc" else of_sysv_ipc()
    for line in sys.stdin:
        print(timed(run, int(line)), flush=True)
    ENDS.close()


def timed(run: Callable[[int], float | None], count: int) -> float:
    """Returns the nanoseconds of a send and a receive."""
    began = time.perf_counter_ns()
    taken = run(count)
    return (time.perf_counter_ns() - began) / count if taken is None else taken


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


# For each candidate: the name, the function that makes it, and the number of its runs in a round.
CANDIDATES: list[tuple[str, Callable[[], Callable[[int], float | None]], int]] = [
    ("umsg", of_umsg, 100_000),
    ("umsg, System V", of_sysv, 100_000),
    ("umsg.posix_ipc", of_our_posix_ipc, 50_000),
    ("posix_ipc, umsg run", lambda: under_drop_in("posix_ipc"), 50_000),
    ("posix_ipc, kernel", of_posix_ipc, 20_000),
    ("umsg.sysv_ipc", of_our_sysv_ipc, 50_000),
    ("sysv_ipc, umsg run", lambda: under_drop_in("sysv_ipc"), 50_000),
    ("sysv_ipc, kernel", of_sysv_ipc, 20_000),
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
            times[name].append(timed(run, count))
    return {name: statistics.median(taken) for name, taken in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--rounds-of", metavar="PACKAGE", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="print the medians as JSON")
    arguments = parser.parse_args()
    if arguments.rounds_of:
        answer_rounds(arguments.rounds_of)
        return
    home = tempfile.mkdtemp(prefix="umsg-bench-", dir="/dev/shm")
    os.environ["UMSG_DIR"] = home
    try:
        medians = measure(arguments.rounds)
    finally:
        ENDS.close()
        shutil.rmtree(home)
    if arguments.json:
        print(json.dumps(medians))
        return
    own = medians["umsg"]
    for name, taken in medians.items():
        print(f"{name:20} {taken:9.0f} ns  {taken / own:6.1f}")


if __name__ == "__main__":
    main()
