"""Measures arrays of 1 MB that pass between two processes in place, and, for comparison, one memcpy of such an array.

The sender copies its array into the queue, and the receiver reads the array in place. Rounds of the queue alternate with rounds of memcpy, so that
other load on the machine affects both alike. The results are the medians of the rounds.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import shutil
import statistics
import tempfile
import time

import numpy

import umsg
import umsg.numpy

SLOTS = 4


def receive(queue: umsg.Queue) -> None:
    try:
        while True:
            with umsg.numpy.lease(queue) as leased:
                assert leased.array[-1] == 7
    except umsg.EndOfStream:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--count", type=int, default=200, help="arrays in a round")
    parser.add_argument("--bytes", type=int, default=1 << 20, help="bytes of an array")
    parser.add_argument("--json", action="store_true", help="print the medians as JSON")
    arguments = parser.parse_args()
    home = tempfile.mkdtemp(prefix="umsg-bench-", dir="/dev/shm")
    os.environ["UMSG_DIR"] = home
    times: dict[str, list[float]] = {"memcpy": [], "umsg": []}
    try:
        size = umsg.numpy.message_size(arguments.bytes, "u1")
        queue = umsg.Queue("/arrays", create=True, max_messages=SLOTS, message_size=size)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                receive(queue)
                status = 0
            finally:
                os._exit(status)
        source = numpy.full(arguments.bytes, 7, "u1")
        memory = mmap.mmap(-1, arguments.bytes * SLOTS)
        places = numpy.frombuffer(memory, "u1").reshape(SLOTS, arguments.bytes)
        for _ in range(arguments.rounds + 1):
            began = time.perf_counter()
            for number in range(arguments.count):
                places[number % SLOTS] = source
            times["memcpy"].append((time.perf_counter() - began) / arguments.count * 1e6)
            began = time.perf_counter()
            for _ in range(arguments.count):
                umsg.numpy.send(queue, source)
            times["umsg"].append((time.perf_counter() - began) / arguments.count * 1e6)
        queue.close_send()
        assert os.waitpid(pid, 0)[1] == 0
    finally:
        shutil.rmtree(home)
    # The medians leave out the first round, in which the kernel provides the pages.
    medians = {name: statistics.median(taken[1:]) for name, taken in times.items()}
    if arguments.json:
        print(json.dumps(medians))
        return
    for name, taken in medians.items():
        print(f"{name:8} {taken:7.1f} us  {taken / medians['memcpy']:5.2f}")


if __name__ == "__main__":
    main()
