"""A pool of processes that loses no task, even if its workers are killed.

    with Pool() as pool:
        futures = [pool.submit(pow, 2, n) for n in range(10)]
        print([future.result() for future in futures])

The pool resembles `concurrent.futures.ProcessPoolExecutor`, which gives up all tasks when one worker is killed ("BrokenProcessPool"). In this pool, a
task stays in the queue until its result is sent. If the worker is killed earlier, another worker does the task again, up to `max_deliveries` times: a
task that kills each of its workers fails alone. So each task is done at least once, and each future gets one result.

Run the file to see the pool at work, while it kills its own workers.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from multiprocessing.connection import wait
from typing import Any, TypeVar

from umsg.multiprocessing import Queue

R = TypeVar("R")
_Call = tuple[int, Callable[..., Any], tuple[Any, ...], dict[str, Any]]
_Result = tuple[int, bool, Any]


def work(tasks: Queue[_Call | None], results: Queue[_Result | None]) -> None:
    """Does tasks until the pool ends."""
    while True:
        with tasks.task() as call:
            if call is None:
                return
            result = done(*call)
            try:
                results.put(result)
            except Exception as error:
                results.put((call[0], False, TypeError(f"the result can't be sent: {error}")))


def done(number: int, function: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> _Result:
    """Does one task. Returns its number, whether it succeeded, and its result or its exception."""
    try:
        return number, True, function(*arguments, **options)
    except Exception as error:
        return number, False, error


class Pool:
    """Processes that do tasks."""

    def __init__(self, workers: int | None = None, *, max_deliveries: int = 10, method: str = "forkserver") -> None:
        self._context: Any = multiprocessing.get_context(method)
        self._tasks: Queue[_Call | None] = Queue(max_deliveries=max_deliveries)
        self._results: Queue[_Result | None] = Queue()
        self._futures: dict[int, Future[Any]] = {}
        self._numbers = itertools.count()
        self._ends = False
        self.workers = [self._start() for _ in range(workers or os.cpu_count() or 1)]
        self._collector = threading.Thread(target=self._collect, daemon=True)
        self._guard = threading.Thread(target=self._replace, daemon=True)
        self._collector.start()
        self._guard.start()

    def _start(self) -> Any:
        process = self._context.Process(target=work, args=(self._tasks, self._results), daemon=True)
        process.start()
        return process

    def submit(self, function: Callable[..., R], *arguments: Any, **options: Any) -> Future[R]:
        """Begins a task. Returns its future."""
        number = next(self._numbers)
        future: Future[R] = Future()
        future.set_running_or_notify_cancel()
        self._futures[number] = future
        try:
            self._tasks.put((number, function, arguments, options))
        except BaseException:
            del self._futures[number]
            raise
        return future

    def _collect(self) -> None:
        """Gives each result to its future. Another result of the same task finds no future."""
        for number, succeeded, value in iter(self._results.get, None):
            future = self._futures.pop(number, None)
            if future is None:
                continue
            if succeeded:
                future.set_result(value)
            else:
                future.set_exception(value)

    def _replace(self) -> None:
        """Starts a worker for each worker that has ended, and ends the futures of tasks that killed their workers too often."""
        while not self._ends:
            wait([process.sentinel for process in self.workers], timeout=0.05)
            if self._ends:
                return
            self.workers = [process if process.is_alive() else self._start() for process in self.workers]
            for call in self._tasks.failed:
                if call is not None:
                    self._results.put((call[0], False, RuntimeError("the task has killed each of its workers")))

    def shutdown(self) -> None:
        """Waits for all tasks, and ends the workers."""
        for future in list(self._futures.values()):
            future.exception()
        self._ends = True
        self._guard.join()
        for _ in self.workers:
            self._tasks.put(None)
        for process in self.workers:
            process.join()
        self._results.put(None)
        self._collector.join()
        self._tasks.close()
        self._results.close()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()


def square(number: int) -> int:
    """Works a while."""
    time.sleep(0.004)
    return number * number


def main() -> None:
    with Pool(workers=4) as pool:
        futures = [pool.submit(square, number) for number in range(2000)]
        kills = 0
        while not all(future.done() for future in futures):
            time.sleep(0.1)
            if kills < 20:
                random.choice(pool.workers).kill()
                kills += 1
        assert [future.result() for future in futures] == [number * number for number in range(2000)]
        print(f"{len(futures)} results, {kills} workers killed")


if __name__ == "__main__":
    main()
