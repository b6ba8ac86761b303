"""Events of queues in the module logging."""

from __future__ import annotations

import logging
import os
import queue as queues
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import umsg


class Kept(logging.Handler):
    """Keeps records, for the test that waits for them."""

    def __init__(self) -> None:
        super().__init__()
        self.records: queues.Queue[logging.LogRecord] = queues.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self.records.put(record)

    def next(self) -> logging.LogRecord:
        return self.records.get(timeout=60)

    def of_kind(self, kind: str) -> logging.LogRecord:
        while True:
            record = self.next()
            if event_of(record).kind == kind:
                return record


def event_of(record: logging.LogRecord) -> umsg.LogEvent:
    event = record.__dict__["umsg"]
    assert isinstance(event, umsg.LogEvent)
    return event


@pytest.fixture
def kept() -> Iterator[Kept]:
    """Logs all events, also the shortest waits."""
    logger = logging.getLogger("umsg")
    handler = Kept()
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    umsg.set_log(slow_wait=0)
    yield handler
    umsg.set_log(None)
    logger.removeHandler(handler)


def let_expire(queue: umsg.Queue) -> None:
    queue.send(b"old")
    time.sleep(0.01)
    with pytest.raises(umsg.Empty):
        queue.try_receive()


def short_lived(name: str = "/short") -> umsg.Queue:
    return umsg.Queue(name, create=True, max_messages=8, message_size=64, time_to_live=0.001)


def test_events_of_calls_with_and_without_the_interpreters_lock_are_logged(namespace: str, kept: Kept) -> None:
    queue = short_lived()
    let_expire(queue)
    record = kept.next()
    assert (record.name, record.levelno, record.getMessage()) == ("umsg", logging.INFO, "/short: a message expired")
    event = event_of(record)
    assert (event.kind, event.queue, event.id, event.pid, event.seconds) == ("expired", "/short", None, None, None)
    assert repr(event) == "<umsg.LogEvent expired of /short>"
    with pytest.raises(umsg.TimedOut):
        queue.receive(timeout=0.02)
    record = kept.next()
    assert record.levelno == logging.DEBUG
    event = event_of(record)
    assert event.kind == "waited-for-message" and event.seconds is not None and event.seconds >= 0.01


def test_the_death_of_a_holder_names_its_process(
    namespace: str, kept: Kept, in_child: Callable[[Callable[[], Any]], int]
) -> None:
    queue = umsg.Queue("/jobs", create=True, max_messages=8, message_size=64)
    sysv = umsg.SysVQueue(7, create=True)
    queue.send(b"job")
    sysv.send(b"job", 1)

    def die() -> None:
        held = [queue.receive_lease(), sysv.receive_lease()]
        os.kill(os.getpid(), signal.SIGKILL)
        held.clear()

    assert in_child(die) == -signal.SIGKILL
    assert queue.receive(timeout=60) == b"job"
    record = kept.of_kind("holder-died")
    assert record.levelno == logging.WARNING
    assert (event_of(record).queue, event_of(record).pid is not None) == ("/jobs", True)
    assert sysv.receive(timeout=60) == b"job"
    assert event_of(kept.of_kind("holder-died")).id == sysv.id


def test_threads_that_wait_and_threads_that_use_python_do_not_block_each_other(namespace: str, kept: Kept) -> None:
    is_over = threading.Event()
    failures: list[BaseException] = []

    def work(name: str) -> None:
        try:
            with short_lived(name) as queue:
                while not is_over.is_set():
                    let_expire(queue)
                    with pytest.raises(umsg.TimedOut):
                        queue.receive(timeout=0.0001)
        except BaseException as failure:  # pytest does not see the failures of other threads.
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(f"/{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(100):
        kept.next()
    # The logger changes while the threads make events.
    for _ in range(5):
        umsg.set_log(None)
        umsg.set_log(slow_wait=0)
        kept.next()
    is_over.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert failures == []


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_logs_its_own_events(
    namespace: str, kept: Kept, in_child: Callable[[Callable[[], Any]], int]
) -> None:
    queue = short_lived()

    def work() -> None:
        let_expire(queue)
        assert kept.of_kind("expired").process == os.getpid()

    let_expire(queue)
    # At the fork, the logging thread is idle, so it holds no lock of the test's handler.
    assert kept.of_kind("expired").process == os.getpid()
    for _ in range(5):
        assert in_child(work) == 0
    let_expire(queue)
    assert kept.of_kind("expired").process == os.getpid()


def test_a_handler_that_uses_a_queue_makes_no_events(namespace: str) -> None:
    queue = short_lived()
    told: queues.Queue[str] = queues.Queue()

    class Sending(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            let_expire(queue)
            told.put(record.getMessage())

    logger = logging.Logger("own")
    logger.addHandler(Sending())
    umsg.set_log(logger)
    let_expire(short_lived("/other"))
    assert told.get(timeout=60) == "/other: a message expired"
    umsg.set_log(None)
    assert told.empty()


def test_other_threads_log_no_events_of_the_handler(namespace: str) -> None:
    is_over = threading.Event()
    told: queues.Queue[str] = queues.Queue()
    own = short_lived("/own")

    class Sending(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            let_expire(own)
            told.put(record.getMessage())

    def work(name: str) -> None:
        with short_lived(name) as queue:
            while not is_over.is_set():
                let_expire(queue)

    logger = logging.Logger("own")
    logger.addHandler(Sending())
    umsg.set_log(logger)
    threads = [threading.Thread(target=work, args=(f"/{number}",)) for number in range(3)]
    for thread in threads:
        thread.start()
    logged = {told.get(timeout=60) for _ in range(50)}
    is_over.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    umsg.set_log(None)
    assert logged and not any(line.startswith("/own") for line in logged), logged


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_of_a_handler_that_has_ended_the_log_may_log_again(
    namespace: str, in_child: Callable[[Callable[[], Any]], int]
) -> None:
    queue = short_lived()
    ended: queues.Queue[int] = queues.Queue()

    def work() -> None:
        handler, logger = Kept(), logging.Logger("again")
        logger.addHandler(handler)
        umsg.set_log(logger)
        let_expire(queue)
        assert handler.of_kind("expired").process == os.getpid()

    class Ending(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            umsg.set_log(None)
            ended.put(in_child(work))

    logger = logging.Logger("own")
    logger.addHandler(Ending())
    umsg.set_log(logger)
    let_expire(queue)
    assert ended.get(timeout=120) == 0


def test_a_failure_of_the_logger_does_not_end_the_log(namespace: str, kept: Kept) -> None:
    failed = threading.Event()

    def fail(record: logging.LogRecord) -> bool:
        failed.set()
        raise RuntimeError("wanted by the test")

    logger = logging.getLogger("umsg")
    logger.addFilter(fail)
    queue = short_lived()
    let_expire(queue)
    assert failed.wait(60)
    logger.removeFilter(fail)
    let_expire(queue)
    assert kept.of_kind("expired")


def test_the_end_of_the_program_logs_the_events_that_wait(namespace: str) -> None:
    program = """
import logging, time, umsg
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
umsg.set_log(logging.getLogger("jobs"))
queue = umsg.Queue("/q", create=True, max_messages=8, message_size=64, time_to_live=0.001)
queue.send(b"old")
time.sleep(0.01)
try:
    queue.try_receive()
except umsg.Empty:
    pass
"""
    for _ in range(5):
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
        assert (ran.returncode, ran.stderr) == (0, "INFO jobs: /q: a message expired\n")


def test_an_invalid_wait_leaves_the_earlier_log(namespace: str, kept: Kept) -> None:
    with pytest.raises(umsg.Invalid, match="slow_wait"):
        umsg.set_log("other", slow_wait=-1)
    let_expire(short_lived())
    assert kept.of_kind("expired").name == "umsg"


def test_without_a_thread_there_is_no_log(namespace: str, kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("wanted by the test")

    with monkeypatch.context() as changed:
        changed.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError, match="wanted by the test"):
            umsg.set_log()
    umsg.set_log(None)
    umsg.set_log(slow_wait=0)
    let_expire(short_lived())
    assert kept.of_kind("expired")


def test_only_a_logger_is_taken() -> None:
    with pytest.raises(TypeError, match="logger must be"):
        umsg.set_log(7)  # type: ignore[arg-type]
    with pytest.raises(umsg.Invalid, match="slow_wait"):
        umsg.set_log(slow_wait=-1)
    umsg.set_log(None)
