"""`umsg.multiprocessing`: objects between processes, tasks, limits, deaths, and the ends of queues."""

from __future__ import annotations

import array
import gc
import inspect
import multiprocessing
import multiprocessing.queues
import os
import pickle
import queue as standard
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import pytest

import umsg
import umsg.multiprocessing
from umsg.multiprocessing import Failed, JoinableQueue, Queue, SimpleQueue, Task

METHODS = ["fork", "spawn", "forkserver"]
PATIENCE = 60
Call = Callable[[], object]


def started(method: str, target: Callable[..., Any], *arguments: Any) -> Any:
    context: Any = multiprocessing.get_context(method)
    process = context.Process(target=target, args=arguments, daemon=True)
    process.start()
    return process


def joined(process: Any) -> int:
    process.join(PATIENCE)
    assert process.exitcode is not None, "the process does not end"
    return int(process.exitcode)


def echo(requests: Queue[Any], replies: Any) -> None:
    for item in iter(requests.get, None):
        replies.put((os.getpid(), item))


@pytest.mark.parametrize("method", METHODS)
def test_objects_go_to_a_process_and_back(namespace: str, method: str) -> None:
    requests: Queue[Any] = Queue(maxsize=10)
    replies: SimpleQueue[Any] = SimpleQueue()
    process = started(method, echo, requests, replies)
    items = [1, "two", (3.0, b"four"), {"five": [6]}, b"7" * 100_000, bytearray(b"8" * 100_000)]
    for item in items:
        requests.put(item)
    assert [replies.get() for _ in items] == [(process.pid, item) for item in items]
    requests.put(None)
    assert joined(process) == 0


@pytest.mark.parametrize("name", ["Queue", "JoinableQueue", "SimpleQueue"])
def test_calls_have_the_parameters_of_multiprocessing(name: str) -> None:
    ours, theirs = getattr(umsg.multiprocessing, name), getattr(multiprocessing.queues, name)
    for method, function in vars(theirs).items():
        if not method.startswith("_") and callable(function):
            parameters = list(inspect.signature(getattr(ours, method)).parameters)
            wanted = list(inspect.signature(function).parameters)
            assert parameters[: len(wanted)] == wanted, method


def test_a_queue_needs_no_type(namespace: str) -> None:
    queue = Queue(maxsize=1)  # As for a queue of multiprocessing, type checkers require no type argument.
    queue.put(7)
    assert queue.get() == 7


@pytest.mark.parametrize("method", METHODS)
def test_a_process_opens_a_queue_that_the_program_has_closed_since(namespace: str, method: str) -> None:
    requests: Queue[Any] = Queue()
    replies: Queue[Any] = Queue()
    for item in (7, None):
        requests.put(item)
    process = started(method, echo, requests, replies)
    requests.close()
    del requests
    assert replies.get(timeout=PATIENCE) == (process.pid, 7)
    assert joined(process) == 0


def test_a_queue_goes_through_a_queue(namespace: str) -> None:
    outer: Queue[Any] = Queue()
    inner: Queue[Any] = Queue(maxsize=3)
    outer.put(inner)
    other = outer.get()
    other.put("through")
    assert inner.get() == "through" and inner.full() is other.full() is False


def test_objects_of_multiprocessing_go_through_a_queue(namespace: str) -> None:
    queue: Queue[Any] = Queue()
    here, there = multiprocessing.Pipe()
    queue.put(there)
    queue.get().send("hello")
    assert here.poll(PATIENCE) and here.recv() == "hello"


class Shared:
    """An object whose buffer lies beside the pickle."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Shared, (pickle.PickleBuffer(self.data),)


@pytest.mark.parametrize("length", [0, 1, 4095, 4096, 4097, 65_000, 65_536, 65_537, 1 << 20])
@pytest.mark.parametrize("kind", [Queue, JoinableQueue])
def test_buffers_come_as_they_went(namespace: str, kind: Any, length: int) -> None:
    queue = kind()
    first, second = os.urandom(length), array.array("I", range(length // 4))
    for _ in range(3):  # The second and third object are read in place, if the first one was long.
        queue.put([Shared(bytearray(first)), 7, Shared(second)])
        one, number, two = queue.get()
        assert bytes(one.data) == first and number == 7 and bytes(two.data) == second.tobytes()
        assert not memoryview(one.data).readonly or length < 4096
    queue.put("short")
    assert queue.get() == "short"


def test_the_objects_of_a_queue_outlive_it(namespace: str) -> None:
    queue: Queue[Any] = Queue()
    data = os.urandom(100_000)
    queue.put(Shared(bytearray(data)))
    got = queue.get()
    queue.put(Shared(bytearray(100_000)))
    queue.get()
    queue.close()
    del queue
    gc.collect()
    assert bytes(got.data) == data


def test_the_owner_of_a_buffer_may_change_its_size_after_put(namespace: str) -> None:
    queue: Queue[Any] = Queue()
    data = bytearray(100_000)
    queue.put(Shared(data))
    data.extend(b"more")
    small: Queue[Any] = Queue(message_size=1000)
    with pytest.raises(umsg.TooLong) as raised:
        small.put(Shared(data))
    data.extend(b"more")
    assert raised.value.__traceback__ is not None  # It holds the frames of put.


def test_arrays_of_numpy_keep_their_type_and_can_be_written(namespace: str) -> None:
    numpy = pytest.importorskip("numpy")
    queue: Queue[Any] = Queue()
    for shape in ((3,), (200, 300), (64, 64, 64)):
        values = numpy.arange(numpy.prod(shape), dtype="float32").reshape(shape)
        for sent in (values, values.T, values[::2]):
            queue.put({"array": sent})
            got = queue.get()["array"]
            assert got.dtype == sent.dtype and numpy.array_equal(got, sent)
            got += 1


class Refuses:
    def __reduce__(self) -> Any:
        raise ArithmeticError("refused")


def explode() -> None:
    raise ArithmeticError("exploded")


class Explodes:
    def __reduce__(self) -> Any:
        return explode, ()


@pytest.mark.parametrize("options", [{}, {"max_bytes": 1 << 20}], ids=str)
@pytest.mark.parametrize("kind", [Queue, JoinableQueue])
def test_an_exception_of_pickle_leaves_the_queue_as_it_was(namespace: str, kind: Any, options: Any) -> None:
    queue = kind(2, **options)
    queue.put("first")
    for bad in (Refuses(), [Shared(bytearray(100_000)), Refuses()], lambda: None):
        with pytest.raises((ArithmeticError, pickle.PicklingError, AttributeError)):
            queue.put(bad)
    assert queue.qsize() == 1
    queue.put(["second", bytearray(10)])
    assert [queue.get(), queue.get()] == ["first", ["second", bytearray(10)]]


def test_an_object_that_can_not_be_unpickled_is_gone_and_as_a_task_it_stays(namespace: str) -> None:
    queue: Queue[Any] = Queue()
    for item in (Explodes(), [Shared(bytearray(100_000)), Explodes()]):
        queue.put(item)
        queue.put("next")
        with pytest.raises(ArithmeticError):
            queue.get()
        assert queue.get() == "next"
    tasks: JoinableQueue[Any] = JoinableQueue()
    tasks.put(Explodes())
    errors = []
    for take in (tasks.get, tasks.get, tasks.task):
        with pytest.raises(ArithmeticError) as raised:
            take()
        errors.append(raised)
        assert tasks.qsize() == 1
    assert len(errors) == 3


def test_a_pickler_is_used_by_an_object_that_puts_another(namespace: str) -> None:
    queue: Queue[Any] = Queue()

    class Nested:
        def __reduce__(self) -> Any:
            queue.put("inner")
            return str, ("outer",)

    queue.put(Nested())
    assert [queue.get(), queue.get()] == ["inner", "outer"]


def test_a_full_queue_raises_full_and_an_empty_one_empty(namespace: str) -> None:
    queue: Queue[int] = Queue(2)
    assert queue.empty() and not queue.full()
    queue.put(1)
    queue.put_nowait(2)
    assert queue.full() and queue.qsize() == 2
    puts: list[Call] = [lambda: queue.put(3, False), lambda: queue.put(3, timeout=0.01), lambda: queue.put(3, timeout=-1)]
    for call in puts:
        with pytest.raises(standard.Full):
            call()
    with pytest.raises(standard.Full):
        queue.put_nowait(3)
    assert [queue.get(), queue.get(True, 1)] == [1, 2]
    gets: list[Call] = [lambda: queue.get(False), lambda: queue.get(timeout=0.01), lambda: queue.get(timeout=-1), queue.get_nowait]
    for call in gets:
        with pytest.raises(standard.Empty):
            call()
    with pytest.raises(standard.Empty):
        queue.task(False)


@pytest.mark.parametrize("options", [{}, {"max_bytes": 1 << 20}], ids=str)
@pytest.mark.parametrize("kind", [Queue, JoinableQueue])
def test_a_batch_goes_whole_or_not(namespace: str, kind: Any, options: Any) -> None:
    queue = kind(4, **options)
    queue.put(0)
    for items in ([1, 2, 3, 4], [1, Refuses()]):
        with pytest.raises((standard.Full, ArithmeticError)):
            queue.put_many(items, timeout=0.01)
    assert queue.qsize() == 1
    queue.put_many([1, Shared(bytearray(b"2" * 100_000))])
    queue.put_many([])
    first = queue.get_many(most=2)
    rest = queue.get_many(timeout=PATIENCE)
    assert first == [0, 1] and [bytes(one.data) for one in rest] == [b"2" * 100_000]
    with pytest.raises(standard.Empty):
        queue.get_many(block=False)
    if kind is JoinableQueue:
        assert not queue.join(timeout=0.01)
        for _ in range(3):
            queue.task_done()
        assert queue.join(timeout=PATIENCE)
    queue.close()
    for call in (lambda: queue.put_many([1]), queue.get_many):
        with pytest.raises(ValueError, match="is closed"):
            call()


def test_an_object_that_is_too_large_is_refused_with_the_name_of_the_setting(namespace: str) -> None:
    queue: Queue[Any] = Queue(message_size=1000)
    for item in (b"x" * 2000, Shared(bytearray(5000))):
        with pytest.raises(umsg.TooLong, match="message_size is 1000: make the queue with message_size="):
            queue.put(item)
    queue.put(b"x" * 900)
    assert queue.get() == b"x" * 900
    limited: Queue[Any] = Queue(max_bytes=1000)
    with pytest.raises(umsg.TooLong, match="max_bytes is 1000"):
        limited.put(b"x" * 2000)
    huge: Queue[Any] = Queue()
    with pytest.raises(umsg.TooLong, match="send it in parts"):
        huge.put(b"x" * (17 << 20))


def fill(queue: Queue[bytes], count: int) -> None:
    for _ in range(count):
        queue.put(b"x" * 1000)


@pytest.mark.parametrize("method", METHODS)
def test_max_bytes_holds_with_several_senders(namespace: str, method: str) -> None:
    most = 5000
    queue: Queue[bytes] = Queue(max_bytes=most)
    senders = [started(method, fill, queue, 50) for _ in range(3)]
    for _ in range(150):
        assert queue._queue.attributes().bytes <= most
        assert len(queue.get(timeout=PATIENCE)) == 1000
    assert [joined(sender) for sender in senders] == [0, 0, 0]
    assert queue.empty()


def test_a_queue_is_full_by_bytes(namespace: str) -> None:
    queue: Queue[bytes] = Queue(max_bytes=2100)
    fill(queue, 2)
    puts: list[Call] = [lambda: queue.put(b"x" * 1000, timeout=0.05), lambda: queue.put_nowait(b"x" * 1000)]
    for call in puts:
        with pytest.raises(standard.Full):
            call()
    queue.get()
    queue.put_nowait(b"x" * 1000)
    waiter = threading.Thread(target=queue.put, args=(b"x" * 1000,))
    waiter.start()
    assert queue.qsize() == 2
    queue.get()
    waiter.join(PATIENCE)
    assert not waiter.is_alive() and queue.qsize() == 2


def test_a_killed_sender_that_waits_for_bytes_stops_no_other(namespace: str) -> None:
    queue: Queue[bytes] = Queue(max_bytes=1100)
    fill(queue, 1)
    killed = started("fork", fill, queue, 1)
    while queue._bound is None or queue._bound.turns.attributes().leased == 0:
        time.sleep(0.001)
    os.kill(killed.pid, signal.SIGKILL)
    joined(killed)
    assert queue.get() == b"x" * 1000
    queue.put(b"x" * 1000, timeout=PATIENCE)


def test_a_task_is_removed_at_the_end_and_returned_on_an_exception(namespace: str) -> None:
    queue: Queue[str] = Queue()
    queue.put("job")
    with pytest.raises(ZeroDivisionError), queue.task() as job:
        assert job == "job" and queue.empty()
        raise ZeroDivisionError
    task = queue.task()
    assert task.item == "job" and task.deliveries == 2
    task.give_back(delay=0.05)
    with queue.task(timeout=PATIENCE):
        pass
    assert queue.empty() and not queue.full()
    queue.put("later")
    queue.task().give_back(delay=3600)
    with pytest.raises(standard.Empty):
        queue.task(False)
    with pytest.raises(umsg.LeaseEnded):
        task.done()


def take_and_stop(queue: Any, taken: Any) -> None:
    taken.put(queue.get() if isinstance(queue, JoinableQueue) else queue.task().item)
    time.sleep(PATIENCE)


def hold(queue: Any, taken: Any) -> None:
    task = queue.task()
    taken.put(task.item)
    time.sleep(PATIENCE)
    task.done()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", [Queue, JoinableQueue])
def test_the_task_of_a_killed_worker_goes_to_another(namespace: str, kind: Any, method: str) -> None:
    queue = kind()
    taken: SimpleQueue[Any] = SimpleQueue()
    queue.put({"job": 1})
    worker = started(method, hold, queue, taken)
    assert taken.get() == {"job": 1}
    with pytest.raises(standard.Empty):
        queue.task(False)
    os.kill(worker.pid, signal.SIGKILL)
    task: Task[Any] = queue.task(timeout=PATIENCE)
    assert task.item == {"job": 1} and task.deliveries == 2
    task.done()
    assert joined(worker) == -signal.SIGKILL


def test_join_waits_for_the_task_of_a_killed_worker(namespace: str) -> None:
    queue: JoinableQueue[int] = JoinableQueue()
    taken: SimpleQueue[int] = SimpleQueue()
    queue.put(1)
    worker = started("fork", take_and_stop, queue, taken)
    assert taken.get() == 1
    assert not queue.join(timeout=0.05)
    os.kill(worker.pid, signal.SIGKILL)
    joined(worker)
    assert not queue.join(timeout=0.05)
    assert queue.get(timeout=PATIENCE) == 1
    assert not queue.join(timeout=0.05)
    queue.task_done()
    assert queue.join(timeout=PATIENCE)
    with pytest.raises(ValueError, match="too many times"):
        queue.task_done()


def note(queue: JoinableQueue[int], log: str) -> None:
    while True:
        number = queue.get()
        with open(log, "a") as file:
            file.write(f"{number}\n")
        queue.task_done()


def test_join_returns_when_all_tasks_are_done_while_workers_are_killed(namespace: str, tmp_path: Path) -> None:
    queue: JoinableQueue[int] = JoinableQueue(maxsize=50)
    log = tmp_path / "log"
    log.touch()
    count = 3000
    workers = [started("fork", note, queue, str(log)) for _ in range(3)]

    def send() -> None:
        for number in range(count):
            queue.put(number)

    sender = threading.Thread(target=send)
    sender.start()
    kills = 0
    while sender.is_alive() or not queue.join(timeout=0.02):
        if kills < 40:
            victim = random.randrange(len(workers))
            workers[victim].kill()
            joined(workers[victim])
            workers[victim] = started("fork", note, queue, str(log))
            kills += 1
        time.sleep(random.uniform(0, 0.02))
    assert {int(line) for line in log.read_text().splitlines()} == set(range(count))
    assert queue.empty() and kills > 0
    for worker in workers:
        worker.kill()
        joined(worker)


def take_and_end(queue: JoinableQueue[int]) -> None:
    queue.get()


@pytest.mark.parametrize("method", METHODS)
def test_a_worker_that_ends_without_task_done_returns_its_task(namespace: str, method: str) -> None:
    queue: JoinableQueue[int] = JoinableQueue()
    queue.put(1)
    assert joined(started(method, take_and_end, queue)) == 0
    assert queue.get(timeout=PATIENCE) == 1
    queue.task_failed()
    assert queue.qsize() == 1


def test_several_callers_of_join_return(namespace: str) -> None:
    queue: JoinableQueue[int] = JoinableQueue()
    queue.put(1)
    callers = [threading.Thread(target=queue.join) for _ in range(3)]
    for caller in callers:
        caller.start()
    with queue.task():
        pass
    for caller in callers:
        caller.join(PATIENCE)
    assert not any(caller.is_alive() for caller in callers)


def test_task_done_ends_the_oldest_task_of_the_thread(namespace: str) -> None:
    queue: JoinableQueue[int] = JoinableQueue()
    for item in range(3):
        queue.put(item)
    queue.get()

    def work() -> None:
        queue.get()
        queue.get()
        queue.task_done()

    other = threading.Thread(target=work)
    other.start()
    other.join(PATIENCE)
    queue.task_done()  # 0
    queue.task_done()  # 2, of the other thread
    assert queue.join(timeout=PATIENCE)


def test_a_forked_child_has_no_task_of_its_parent(namespace: str, in_child: Callable[[Callable[[], Any]], int]) -> None:
    queue: JoinableQueue[int] = JoinableQueue()
    queue.put(1)
    queue.get()

    def work() -> None:
        try:
            queue.task_done()
        except ValueError:
            return
        raise AssertionError

    process = started("fork", work)
    assert joined(process) == 0
    assert in_child(lambda: None) == 0
    assert not queue.join(timeout=0.05)
    queue.task_done()
    assert queue.join(timeout=PATIENCE)


@pytest.mark.parametrize("kind", [Queue, JoinableQueue])
def test_a_task_that_fails_too_often_is_set_aside(namespace: str, kind: Any) -> None:
    queue = kind(max_deliveries=2)
    queue.put("bad")
    queue.put("good")
    for _ in range(2):
        task = queue.task(timeout=PATIENCE)
        assert task.item == "bad"
        task.give_back()
    with queue.task(timeout=PATIENCE) as good:
        assert good == "good"
    assert queue.empty()
    if isinstance(queue, JoinableQueue):
        assert queue.join(timeout=PATIENCE)
    failed: Failed[str] = queue.failed
    assert len(failed) == 1 and list(failed) == ["bad"] and len(failed) == 0
    with pytest.raises(ValueError, match="max_deliveries"):
        Queue().failed


def test_a_closed_queue_says_so(namespace: str) -> None:
    for queue in (Queue[int](), JoinableQueue[int](), Queue[int](max_bytes=100)):
        with pytest.raises(AssertionError):
            queue.join_thread()
        queue.cancel_join_thread()
        queue.close()
        queue.close()
        queue.join_thread()
        calls: list[Call] = [lambda: queue.put(1), queue.get, queue.qsize, queue.empty, queue.full, queue.task]
        for call in calls:
            with pytest.raises(ValueError, match="is closed") as raised:
                call()
            assert isinstance(raised.value, OSError)


def test_a_queue_can_be_waited_for(namespace: str) -> None:
    queue: Any = Queue()
    other: Any = Queue()
    assert wait([queue, other], timeout=0) == []
    queue.put(1)
    assert wait([queue, other], timeout=PATIENCE) == [queue]


def end_with(queue: Any) -> None:
    queue.put(os.getpid())


def files(namespace: str) -> list[str]:
    return os.listdir(os.path.join(namespace, "mq"))


@pytest.mark.parametrize("method", METHODS)
def test_the_last_process_removes_the_queue(namespace: str, method: str) -> None:
    queues: list[Any] = [Queue(max_bytes=1000, max_deliveries=3), JoinableQueue(), SimpleQueue()]
    processes = [started(method, end_with, queue) for queue in queues]
    for process in processes:
        assert joined(process) == 0
    assert len(files(namespace)) == 4 + 2 + 1
    processes.clear()
    del process
    gc.collect()
    queues[0].close()
    assert len(files(namespace)) == 2 + 1
    queues.clear()
    gc.collect()
    assert files(namespace) == []


PROGRAM = """
import multiprocessing, sys, time
from umsg.multiprocessing import JoinableQueue

def work(queue):
    time.sleep(0.1)
    queue.put("done")
    queue.get()

if __name__ == "__main__":
    queue = JoinableQueue(max_bytes=1000)
    queue.put(1)
    queue.get()
    queue.itself = queue
    multiprocessing.get_context(sys.argv[1]).Process(target=work, args=(queue,)).start()
"""


@pytest.mark.parametrize("method", METHODS)
def test_the_end_of_the_program_removes_its_queues(namespace: str, tmp_path: Path, method: str) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    subprocess.run([sys.executable, str(script), method], check=True, timeout=PATIENCE)
    assert files(namespace) == []


def wait_with(queue: Any, events: Any) -> None:
    queue.put(os.getpid())
    events.recv()


def test_a_forked_child_that_is_the_last_user_removes_the_queue(namespace: str) -> None:
    queue: Queue[int] = Queue(max_bytes=100)
    here, there = multiprocessing.Pipe()
    process = started("fork", wait_with, queue, there)
    queue.get()
    queue.close()
    assert len(files(namespace)) == 3
    here.send("end")
    assert joined(process) == 0
    assert files(namespace) == []


def test_the_next_process_removes_the_queues_of_killed_processes(namespace: str) -> None:
    program = "from umsg.multiprocessing import *; q = Queue(max_bytes=9999); q.put(1); import os; os.kill(os.getpid(), 9)"
    killed = subprocess.run([sys.executable, "-c", program], timeout=PATIENCE)
    assert killed.returncode == -signal.SIGKILL and len(files(namespace)) == 3
    program = "import os; from umsg.multiprocessing import *; q = Queue(); print(len(os.listdir(os.environ['UMSG_DIR'] + '/mq')))"
    other = subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE, capture_output=True)
    assert other.stdout == b"1\n" and files(namespace) == []


def test_a_queue_that_is_gone_is_not_found(namespace: str) -> None:
    queue: Queue[int] = Queue()
    data = pickle.dumps(queue)
    queue.close()
    with pytest.raises(umsg.NotFound, match="keep it open"):
        pickle.loads(data)


def churn(queue: Any, replies: Any, seed: int) -> None:
    n = 0
    while True:
        n += 1
        queue.put((seed, n, b"x" * (n % 3000)))
        replies.put(n)
        queue.get()


def test_killed_processes_leave_the_queue_usable(namespace: str) -> None:
    queue: Queue[Any] = Queue(5, max_bytes=20_000)
    beats: Queue[int] = Queue(100)
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        workers = [started("fork", churn, queue, beats, seed) for seed in range(3)]
        for _ in range(30):
            beats.get(timeout=PATIENCE)
        for worker in workers:
            os.kill(worker.pid, signal.SIGKILL)
            joined(worker)
        while not beats.empty():
            beats.get()
        while not queue.empty():
            assert len(queue.get(timeout=PATIENCE)) == 3
    for _ in range(5):
        queue.put("still", timeout=PATIENCE)
    assert [queue.get() for _ in range(5)] == ["still"] * 5


def test_threads_share_a_queue(namespace: str) -> None:
    queue: Queue[Any] = Queue(10)
    got: list[int] = []

    def take() -> None:
        for number, data in iter(queue.get, None):
            assert bytes(data.data) == bytes([number % 256]) * len(data.data)
            got.append(number)

    takers = [threading.Thread(target=take) for _ in range(3)]
    for taker in takers:
        taker.start()
    for number in range(600):
        queue.put((number, Shared(bytearray(bytes([number % 256]) * (number * 300)))))
    for _ in takers:
        queue.put(None)
    for taker in takers:
        taker.join(PATIENCE)
    assert sorted(got) == list(range(600))


def test_a_signal_ends_a_get(namespace: str) -> None:
    queue: Queue[int] = Queue()
    previous = signal.signal(signal.SIGALRM, lambda *_: queue.put(5))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        assert queue.get(timeout=PATIENCE) == 5
    finally:
        signal.signal(signal.SIGALRM, previous)
