"""The tests that CPython has for the queues of multiprocessing, with the queues of umsg. They are skipped if Python has no test package."""

from __future__ import annotations

import io
import multiprocessing
import unittest
from typing import Any

import pytest

from umsg import multiprocessing as queues

cpython: Any = pytest.importorskip("test._test_multiprocessing")

# The tests of the feeder thread of multiprocessing.Queue, which umsg's queues lack, and of the
# errors of this thread.
WITHOUT_THREAD = {
    "test_queue_feeder_donot_stop_onexc",
    "test_queue_feeder_on_queue_feeder_error",
    # In multiprocessing, a queue that was closed without any use still works.
    "test_closed_queue_empty_exceptions",
    # This test imports a module that uses multiprocessing.Queue.
    "test_no_import_lock_contention",
}
NAMES = [
    (case, name)
    for case in ("_TestQueue", "_TestSimpleQueue")
    if hasattr(cpython, case)
    for name in unittest.defaultTestLoader.getTestCaseNames(getattr(cpython, case))
    if name not in WITHOUT_THREAD
]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("case, name", NAMES)
def test_of_cpython_passes(namespace: str, monkeypatch: pytest.MonkeyPatch, method: str, case: str, name: str) -> None:
    context: Any = multiprocessing.get_context(method)
    for kind in ("Queue", "JoinableQueue", "SimpleQueue"):
        monkeypatch.setattr(multiprocessing, kind, getattr(queues, kind))
    base = getattr(cpython, case)
    attributes = {
        "TYPE": "processes",
        "Process": context.Process,
        "Event": staticmethod(context.Event),
        "Queue": queues.Queue,
        "JoinableQueue": queues.JoinableQueue,
        "SimpleQueue": queues.SimpleQueue,
        # A started process finds a method by the module and the name of its class.
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
    }
    test = type(base.__name__, (base, unittest.TestCase), attributes)
    for attribute in dir(base):
        function = getattr(base, attribute)
        if attribute.startswith("_test") and callable(function):
            setattr(test, attribute, staticmethod(function))
    result = unittest.TextTestRunner(stream=io.StringIO()).run(unittest.TestSuite([test(name)]))
    assert result.testsRun == 1 and not result.errors and not result.failures, result
