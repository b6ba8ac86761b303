"""The pool of `examples/pool.py`: no task is lost under kills."""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = str(Path(__file__).parents[1] / "examples")
if EXAMPLES not in sys.path:
    sys.path.insert(0, EXAMPLES)

pool: Any = pytest.importorskip("pool")


def logged(path: str, number: int) -> int:
    """Notes that the work begins, works, and returns a number."""
    with open(path, "a") as log:
        log.write(f"{number}\n")
    time.sleep(0.003)
    # The first task lasts until workers were killed: otherwise all tasks could end before this process kills a worker.
    end = time.monotonic() + 60
    while number == 0 and time.monotonic() < end and not os.path.exists(f"{path}.killed"):
        time.sleep(0.003)
    return number * number


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_killed_workers_lose_no_task(namespace: str, tmp_path: Path, method: str) -> None:
    log = str(tmp_path / "log")
    with pool.Pool(workers=3, method=method, max_deliveries=1000) as workers:
        futures = [workers.submit(logged, log, number) for number in range(400)]
        kills = 0
        while not all(future.done() for future in futures):
            time.sleep(random.uniform(0.02, 0.3))
            if kills < 15:  # A busy machine starts workers slowly.
                random.choice(workers.workers).kill()
                kills += 1
            if kills == 2:
                Path(f"{log}.killed").touch()
        assert kills > 1
        assert [future.result() for future in futures] == [number * number for number in range(400)]
    with open(log) as lines:
        assert {int(line) for line in lines} == set(range(400))
    assert os.listdir(os.path.join(namespace, "mq")) == []


def test_a_task_that_kills_its_workers_fails_alone(namespace: str) -> None:
    with pool.Pool(workers=2, max_deliveries=3, method="fork") as workers:
        bad = workers.submit(os._exit, 1)
        good = [workers.submit(pow, 2, number) for number in range(20)]
        assert [future.result(60) for future in good] == [2**number for number in range(20)]
        with pytest.raises(RuntimeError, match="killed each of its workers"):
            bad.result(60)


def test_exceptions_reach_the_future(namespace: str) -> None:
    with pool.Pool(workers=12, method="fork") as workers:
        with pytest.raises(ZeroDivisionError):
            workers.submit(divmod, 1, 0).result(60)
        with pytest.raises(TypeError, match="can't be sent"):
            workers.submit(threading.Lock).result(60)
        with pytest.raises(Exception, match="local object"):
            workers.submit(lambda: None)
        assert workers.submit(pow, 2, exp=5).result(60) == 32
