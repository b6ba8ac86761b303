"""A namespace for each test, in a directory of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import umsg


@pytest.fixture
def namespace(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Makes an empty namespace, and makes it the default namespace of the test and of its child processes."""
    path = tempfile.mkdtemp(prefix="umsg-python-", dir="/dev/shm")
    monkeypatch.setenv("UMSG_DIR", path)
    yield path
    # The garbage collection may remove a queue's file during rmtree, which then raises
    # FileNotFoundError and is repeated.
    while os.path.exists(path):
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)


@pytest.fixture
def queue(namespace: str) -> Iterator[umsg.Queue]:
    """Makes a queue of 8 messages of 64 bytes."""
    with umsg.Queue("/q", create=True, max_messages=8, message_size=64) as queue:
        yield queue


@pytest.fixture
def sysv(namespace: str) -> Iterator[umsg.SysVQueue]:
    """Makes a System V queue."""
    with umsg.SysVQueue(7, create=True) as queue:
        yield queue


@pytest.fixture
def in_child() -> Callable[[Callable[[], Any]], int]:
    """Returns a function that runs another function in a forked child, and returns the exit status, or the negative signal number."""

    def run(work: Callable[[], Any]) -> int:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                work()
                status = 0
            except BaseException as error:  # The child must not return into pytest.
                os.write(2, f"{type(error).__name__}: {error}\n".encode())
            finally:
                os._exit(status)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    return run
