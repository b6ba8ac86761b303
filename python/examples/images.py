"""A pipeline of images between processes: a camera, workers that make them grey, and this process, which collects them.

Each image is written where the next process reads it. The camera writes into the queue's memory, a worker reads the image in place and writes its
result into the memory of the second queue. A worker that is killed loses no image: its lease ends, and another worker gets the image.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from collections.abc import Callable

import numpy

import umsg
import umsg.numpy


def camera(name: str, shape: tuple[int, ...], count: int) -> None:
    with umsg.Queue(name) as images:
        for number in range(count):
            with umsg.numpy.reserve(images, shape, "u1") as room:
                room.array[:] = number % 256
        images.close_send()


def worker(name: str, results_name: str) -> None:
    with umsg.Queue(name) as images, umsg.Queue(results_name) as results, contextlib.suppress(umsg.EndOfStream):
        while True:
            with umsg.numpy.lease(images) as image, umsg.numpy.reserve(results, image.array.shape[:2], "u1") as room:
                numpy.right_shift(image.array[..., 1], 1, out=room.array)
                room.array[:] += image.array[..., 0] >> 2
                room.array[:] += image.array[..., 2] >> 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--height", type=int, default=720)
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    shape = (arguments.height, arguments.width, 3)
    names = [f"/images-{os.getpid()}", f"/grey-{os.getpid()}"]
    sizes = [umsg.numpy.message_size(shape, "u1"), umsg.numpy.message_size(shape[:2], "u1")]
    made = [
        umsg.Queue(name, create=True, max_messages=4, message_size=size, remove_on_last_close=True)
        for name, size in zip(names, sizes)
    ]
    works: list[Callable[[], None]] = [lambda: camera(names[0], shape, arguments.images)]
    works += [lambda: worker(names[0], names[1])] * arguments.workers
    children = []
    for work in works:
        children.append(os.fork())
        if children[-1] == 0:
            status = 1
            try:
                work()
                status = 0
            finally:
                os._exit(status)
    began = time.perf_counter()
    brightness = 0
    for _ in range(arguments.images):
        with umsg.numpy.lease(made[1], timeout=60) as grey:
            brightness += int(grey.array[0, 0])
    took = time.perf_counter() - began
    for pid in children:
        if os.waitpid(pid, 0)[1] != 0:
            raise SystemExit("a process of the pipeline has failed")
    for queue in made:
        queue.close()
    megabytes = arguments.images * sum(sizes) / 1e6
    print(f"{arguments.images} images, brightness {brightness}")
    print(f"{arguments.images / took:.0f} images/s, {megabytes / took:.0f} MB/s")


if __name__ == "__main__":
    main()
