"""Blocked calls: signals, threads, and the interpreter's lock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import umsg

BLOCKED = {
    "receive": "queue.receive()",
    "receive_message": "queue.receive_message(timeout=3600)",
    "receive_into": "queue.receive_into(bytearray(64))",
    "receive_many": "queue.receive_many()",
    "receive_lease": "queue.receive_lease()",
    "next": "next(queue)",
    "send": "full.send(b'')",
    "send_many": "full.send_many([b''])",
    "send_after": "full.send_after(b'', 1)",
    "reserve": "full.reserve(1)",
    "sysv receive": "sysv.receive()",
    "sysv receive_many": "sysv.receive_many()",
    "sysv receive_lease": "sysv.receive_lease()",
}

PROGRAM = """
import os, signal, sys, umsg
queue = umsg.Queue("/q", create=True, max_messages=8, message_size=64)
full = umsg.Queue("/full", create=True, max_messages=1, message_size=64)
full.send(b"")
sysv = umsg.SysVQueue(7, create=True)
# The handler may interrupt itself, which print does not permit.
signal.signal(signal.SIGUSR1, lambda *_: os.write(1, b"handled\\n"))
try:
    print("ready", flush=True)
    CALL
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("call", BLOCKED.values(), ids=BLOCKED.keys())
def test_ctrl_c_ends_a_blocked_call_and_other_handlers_run(namespace: str, call: str) -> None:
    program = PROGRAM.replace("CALL", call)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        # A call that notices no signal fails the test, and does not block it.
        limit = threading.Timer(60, process.kill)
        limit.start()
        assert process.stdout.readline() == "ready\n"
        # The handler runs, and the call goes on: PEP 475. At whatever moment a signal comes, the call notices it.
        for _ in range(3):
            process.send_signal(signal.SIGUSR1)
            assert process.stdout.readline() == "handled\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        assert process.wait() == 0
        limit.cancel()


def test_a_time_limit_holds_across_signals(queue: umsg.Queue) -> None:
    handled = 0

    def handler(*_: object) -> None:
        nonlocal handled
        handled += 1

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    try:
        # A process that gets no processor for the whole time limit handles all its signals at once, so the limit is then longer.
        for limit in (0.2, 2, 20):
            handled = 0
            began = time.monotonic()
            with pytest.raises(umsg.TimedOut):
                queue.receive(timeout=limit)
            assert time.monotonic() - began >= limit
            if handled > 1:
                break
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert handled > 1


def test_a_handler_may_use_the_queue_that_it_interrupted(queue: umsg.Queue) -> None:
    before = signal.signal(signal.SIGALRM, lambda *_: queue.send(b"by the handler"))
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    try:
        assert queue.receive(timeout=60) == b"by the handler"
    finally:
        signal.signal(signal.SIGALRM, before)


def test_other_threads_run_while_a_call_is_blocked(queue: umsg.Queue) -> None:
    blocked = threading.Thread(target=queue.receive)
    blocked.start()
    while not queue.status().blocked_receivers:
        pass
    queue.send(b"go")
    blocked.join()


def test_a_handle_survives_a_fork(queue: umsg.Queue, in_child: Callable[[Callable[[], Any]], int]) -> None:
    queue.send(b"to the child")

    def child() -> None:
        assert queue.receive(timeout=60) == b"to the child"
        queue.send(b"to the parent")

    assert in_child(child) == 0
    assert queue.receive(timeout=60) == b"to the parent"


def test_a_killed_blocked_process_leaves_the_queue_usable(
    queue: umsg.Queue, in_child: Callable[[Callable[[], Any]], int]
) -> None:
    def child() -> None:
        threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGKILL]).start()
        queue.receive()

    assert in_child(child) == -signal.SIGKILL
    queue.send(b"job")
    assert queue.receive(timeout=60) == b"job"
