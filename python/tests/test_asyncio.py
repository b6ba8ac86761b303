"""The calls that wait in an event loop: asyncio's, uvloop's, and trio's by anyio."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import random
import selectors
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

import umsg

Run = Callable[[Coroutine[Any, Any, Any]], Any]

LIMIT = 60


def on_asyncio(main: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(main, LIMIT))


def on_uvloop(main: Coroutine[Any, Any, Any]) -> Any:
    import uvloop

    loop = uvloop.new_event_loop()
    try:
        return loop.run_until_complete(asyncio.wait_for(main, LIMIT))
    finally:
        loop.close()


def python_tasks(main: Coroutine[Any, Any, Any]) -> Any:
    """Runs with the tasks that asyncio has in Python."""
    loop = asyncio.new_event_loop()
    task_class: Any = asyncio.tasks._PyTask  # type: ignore[attr-defined]
    loop.set_task_factory(lambda loop, work, **more: task_class(work, loop=loop, **more))
    try:
        return loop.run_until_complete(asyncio.wait_for(main, LIMIT))
    finally:
        loop.close()


@pytest.fixture(params=[on_asyncio, on_uvloop, python_tasks], ids=["asyncio", "uvloop", "tasks in Python"])
def run(request: pytest.FixtureRequest) -> Run:
    if request.param is on_uvloop:
        pytest.importorskip("uvloop")
    result: Run = request.param
    return result


@pytest.fixture
def fork() -> Iterator[Callable[[Callable[[], None]], int]]:
    """Returns a function that runs another function in a child, which must succeed."""
    children: list[int] = []

    def start(work: Callable[[], None]) -> int:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                signal.alarm(LIMIT)
                work()
                status = 0
            except BaseException as error:
                os.write(2, f"{type(error).__name__}: {error}\n".encode())
            finally:
                os._exit(status)
        children.append(pid)
        return pid

    yield start
    for pid in children:
        assert os.waitpid(pid, 0)[1] == 0


async def begin(*calls: Coroutine[Any, Any, Any]) -> None:
    """Lets calls wait without success. Tasks then keep their places from their first calls on: other tasks may pass only before the first wait."""
    for call in calls:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(call, 0.001)


async def settle() -> None:
    """Lets the other tasks run until they wait."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_tasks_receive_in_the_order_in_which_they_began_to_wait(queue: umsg.Queue, run: Run) -> None:
    async def main() -> list[bytes]:
        await begin(queue.receive_async())
        tasks = [asyncio.create_task(queue.receive_async()) for _ in range(6)]
        await settle()
        queue.send_many([b"0", b"1", b"2"])
        # This call begins after the calls that wait.
        late = asyncio.create_task(queue.receive_async())
        await settle()
        for number in (3, 4, 5, 6):
            queue.send(b"%d" % number)
        return list(await asyncio.gather(*tasks, late))

    assert run(main()) == [b"%d" % number for number in range(7)]


def test_tasks_send_in_the_order_in_which_they_began_to_wait(queue: umsg.Queue, run: Run) -> None:
    async def main() -> list[bytes]:
        queue.send_many([b""] * 8)
        await begin(queue.send_async(b""))
        queue.receive_many()
        tasks = [asyncio.create_task(queue.send_async(b"%d" % number)) for number in range(12)]
        received = []
        for _ in range(12):
            await asyncio.sleep(0.001)
            received.append(queue.try_receive())
        await asyncio.gather(*tasks)
        return received

    assert run(main()) == [b"%d" % number for number in range(12)]


@pytest.mark.parametrize("how", ["wait_for", "cancel"])
def test_time_limits_lose_no_message(queue: umsg.Queue, run: Run, how: str, fork: Callable[..., int]) -> None:
    count = 3000

    def sends() -> None:
        choice = random.Random(1)
        for number in range(count):
            queue.send(b"%d" % number, timeout=LIMIT)
            if choice.random() < 0.5:
                time.sleep(choice.random() * 0.0004)

    async def by_wait_for(limit: float) -> bytes:
        return await asyncio.wait_for(queue.receive_async(), limit)

    async def by_cancel(limit: float) -> bytes:
        task = asyncio.create_task(queue.receive_async())
        asyncio.get_running_loop().call_later(limit, task.cancel)
        return await task

    async def main() -> tuple[list[int], int]:
        choice = random.Random(2)
        attempt = by_wait_for if how == "wait_for" else by_cancel
        received: list[int] = []
        ended = 0
        while len(received) < count:
            try:
                received.append(int(await attempt(choice.random() * 0.0003)))
            except (asyncio.TimeoutError, asyncio.CancelledError):
                ended += 1
        return received, ended

    fork(sends)
    received, ended = run(main())
    assert received == list(range(count))
    assert ended > 10  # Otherwise the test shows nothing.


def test_a_send_that_a_time_limit_ends_has_sent_nothing(queue: umsg.Queue, run: Run, fork: Callable[..., int]) -> None:
    count = 2000
    results = umsg.Queue("/results", create=True, max_messages=10, message_size=64)

    def receives() -> None:
        choice = random.Random(3)
        expected = 0
        for message in queue:
            # The messages are the numbers that were reported as sent, each once and in order.
            assert int(message) == expected, (message, expected)
            expected += 1
            if choice.random() < 0.5:
                time.sleep(choice.random() * 0.0004)
        results.send(b"%d" % expected)

    async def main() -> int:
        choice = random.Random(4)
        sent = ended = 0
        while sent < count:
            try:
                await asyncio.wait_for(queue.send_async(b"%d" % sent), choice.random() * 0.0003)
                sent += 1
            except asyncio.TimeoutError:
                ended += 1
        return ended

    fork(receives)
    assert run(main()) > 10
    queue.close_send()
    assert results.receive(timeout=LIMIT) == b"%d" % count


def test_a_message_that_comes_with_the_cancellation_stays(queue: umsg.Queue, run: Run) -> None:
    async def main() -> None:
        for cancelled_first in (True, False) * 50:
            first = asyncio.create_task(queue.receive_async())
            second = asyncio.create_task(queue.receive_async())
            await settle()
            if cancelled_first:
                first.cancel()
                queue.send(b"message")
            else:
                queue.send(b"message")
                first.cancel()
            assert await second == b"message"
            assert first.cancelled()

    run(main())


def test_async_for_ends_with_the_stream(queue: umsg.Queue, run: Run, fork: Callable[..., int]) -> None:
    def sends() -> None:
        async def send_all() -> None:
            for number in range(500):
                await queue.send_async(b"%d" % number)

        asyncio.run(send_all())
        queue.close_send()

    async def main() -> list[int]:
        return [int(message) async for message in queue]

    fork(sends)
    assert run(main()) == list(range(500))


def test_processes_exchange_all_messages(namespace: str, run: Run, fork: Callable[..., int]) -> None:
    # Several tasks in several processes, at both ends of a queue that is always empty or full.
    queue = umsg.Queue("/small", create=True, max_messages=2, message_size=8)
    results = umsg.Queue("/results", create=True, max_messages=1000, message_size=8)
    each = 300

    async def sends(first: int) -> None:
        async def part(first: int) -> None:
            for number in range(first, first + each):
                await queue.send_async(b"%d" % number)

        await asyncio.gather(part(first), part(first + each))

    async def receives() -> None:
        async def part() -> None:
            async for message in queue:
                await results.send_async(message)

        await asyncio.gather(part(), part(), part())

    async def main() -> set[int]:
        received = []
        for _ in range(each * 4):
            received.append(int(await results.receive_async()))
        assert len(received) == len(set(received))
        queue.close_send()
        return set(received)

    for first in (0, each * 2):
        fork(lambda first=first: run(sends(first)))
    for _ in range(2):
        fork(lambda: run(receives()))
    assert run(main()) == set(range(each * 4))


@pytest.mark.parametrize("where", ["in a task", "in a thread"])
def test_a_task_that_waits_learns_of_the_closing(namespace: str, run: Run, where: str) -> None:
    full = umsg.Queue("/full", create=True, max_messages=1, message_size=8)
    full.send(b"")
    handles: list[Any] = [umsg.Queue("/q", create=True), umsg.SysVQueue(), umsg.Ring(), full]

    async def main() -> None:
        for handle in handles:
            calls = [handle.send_async(b"")] * 1 if handle is full else [handle.receive_async(), handle.receive_async()]
            tasks = [asyncio.create_task(call) for call in calls]
            await settle()
            if where == "in a task":
                handle.close()
            else:
                thread = threading.Thread(target=handle.close)
                thread.start()
            for task in tasks:
                with pytest.raises(umsg.HandleClosed):
                    await task
            with pytest.raises(umsg.HandleClosed):
                await handle.receive_async()

    run(main())


def test_the_end_of_a_with_statement_closes_as_well(namespace: str, run: Run) -> None:
    async def main() -> None:
        with umsg.Queue("/q", create=True) as queue:
            task = asyncio.create_task(queue.receive_async())
            await settle()
        with pytest.raises(umsg.HandleClosed):
            await task

    run(main())


def test_a_task_that_waits_learns_of_the_removal(sysv: umsg.SysVQueue, run: Run) -> None:
    async def main() -> None:
        tasks = [asyncio.create_task(sysv.receive_async(type=kind)) for kind in (1, 1, 2)]
        await settle()
        umsg.SysVQueue(7).remove()
        for task in tasks:
            with pytest.raises(umsg.Removed):
                await task

    run(main())


def test_tasks_wait_for_messages_of_different_types(sysv: umsg.SysVQueue, run: Run) -> None:
    async def main() -> None:
        await begin(sysv.receive_async())
        five = asyncio.create_task(sysv.receive_async(type=5))
        two = [asyncio.create_task(sysv.receive_message_async(type=2)) for _ in range(2)]
        lowest = asyncio.create_task(sysv.receive_message_async(type=-3))
        await settle()
        sysv.send(b"nine", type=9)
        await asyncio.sleep(0.01)
        assert not any(task.done() for task in [five, lowest, *two])
        sysv.send(b"a", type=2)
        sysv.send(b"b", type=2)
        sysv.send(b"c", type=2)
        sysv.send(b"five", type=5)
        assert await five == b"five"
        assert [await task for task in two] == [(b"a", 2), (b"b", 2)]
        assert await lowest == (b"c", 2)
        assert await sysv.receive_many_async() == [b"nine"]

    run(main())


def test_a_task_waits_for_room_of_its_length(sysv: umsg.SysVQueue, run: Run) -> None:
    async def main() -> None:
        sysv.set(qbytes=100)
        sysv.send(b"x" * 50)
        sysv.send(b"y" * 10)
        large = asyncio.create_task(sysv.send_async(b"l" * 95))
        await settle()
        await sysv.send_async(b"z" * 10)
        for _ in range(3):
            await asyncio.sleep(0.002)
            assert not large.done()
            await sysv.receive_async()
        await large
        assert sysv.try_receive() == b"l" * 95

    run(main())


def test_a_ring_receives(namespace: str, run: Run, fork: Callable[..., int]) -> None:
    with umsg.Ring("/ring", entries=16) as ring:

        def sends() -> None:
            sender = umsg.RingSender("/ring")
            for number in range(500):
                sender.send(number, timeout=LIMIT)

        async def main() -> list[int]:
            received = []
            async for message in ring:
                received.append(message.user_data)
                if len(received) == 500:
                    return received
            return received

        fork(sends)
        assert run(main()) == list(range(500))


def test_a_ring_receives_batches(run: Run) -> None:
    ring = umsg.Ring()
    sender = ring.sender()

    async def main() -> None:
        waiting = asyncio.create_task(ring.receive_many_async())
        await settle()
        assert not waiting.done()
        sender.send_many([1, 2, 3])
        assert [message.user_data for message in await waiting] == [1, 2, 3]
        sender.send_many([4, 5, 6])
        assert [message.user_data for message in await ring.receive_many_async(2)] == [4, 5]
        assert await ring.receive_many_async(0) == []
        assert (await ring.receive_async()).user_data == 6

    run(main())


def test_leases_and_reservations(queue: umsg.Queue, run: Run) -> None:
    async def main() -> None:
        waiting = asyncio.create_task(queue.receive_lease_async())
        await settle()
        with await queue.reserve_async(3, priority=4) as room:
            room.data[:] = b"job"
        with await waiting as job:
            assert (bytes(job), job.priority) == (b"job", 4)
        assert queue.attributes().leased == 0
        queue.send_many([b"a", b"b"])
        assert await queue.receive_many_async() == [b"a", b"b"]

    run(main())


def test_a_send_waits_while_all_messages_are_leased(namespace: str, run: Run) -> None:
    # While its only message is leased, the queue's descriptor is writable, although there is no
    # room.
    queue = umsg.Queue("/one", create=True, max_messages=1, message_size=8)

    async def main() -> float:
        queue.send(b"first")
        with queue.receive_lease():
            task = asyncio.create_task(queue.send_async(b"second"))
            began = time.process_time()
            await asyncio.sleep(0.2)
            used = time.process_time() - began
            assert not task.done()
        await task
        return used

    assert run(main()) < 0.15


def test_a_queue_that_lets_no_sender_wait_raises(namespace: str, run: Run) -> None:
    queue = umsg.Queue("/one", create=True, max_messages=1, on_full="fail")

    async def main() -> None:
        # A receiver still waits.
        waiting = asyncio.create_task(queue.receive_async())
        await settle()
        for _ in range(100):
            await queue.send_async(b"")
            await waiting
            waiting = asyncio.create_task(queue.receive_async())
            await settle()
        await queue.send_async(b"")
        await waiting
        await queue.send_async(b"")
        for _ in range(100):
            with pytest.raises(umsg.Full):
                await queue.send_async(b"")

    run(main())


def test_a_queue_that_is_never_empty_lets_other_tasks_run(queue: umsg.Queue, run: Run) -> None:
    async def main() -> None:
        others = 0

        async def other() -> None:
            nonlocal others
            while True:
                others += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        for _ in range(1000):
            await queue.send_async(b"")
            await queue.receive_async()
        assert others > 10
        task.cancel()

    run(main())


def test_a_task_that_lets_others_run_keeps_its_place(queue: umsg.Queue, run: Run) -> None:
    async def main() -> None:
        await begin(queue.receive_async())
        # Each of these calls may let other tasks run.
        for _ in range(40):
            tasks = [asyncio.create_task(queue.receive_async()) for _ in range(5)]
            queue.send_many([b"0", b"1", b"2", b"3", b"4"])
            assert await asyncio.gather(*tasks) == [b"0", b"1", b"2", b"3", b"4"]

    run(main())


def test_a_task_keeps_its_place_where_none_has_waited(queue: umsg.Queue, run: Run) -> None:
    async def main() -> None:
        # Each of these calls may let other tasks run.
        for _ in range(80):
            tasks = [asyncio.create_task(queue.receive_async()) for _ in range(5)]
            queue.send_many([b"0", b"1", b"2", b"3", b"4"])
            assert await asyncio.gather(*tasks) == [b"0", b"1", b"2", b"3", b"4"]

    run(main())


def test_a_task_keeps_its_context(queue: umsg.Queue, run: Run) -> None:
    variable = contextvars.ContextVar("variable", default=0)

    async def main() -> None:
        async def waits(value: int) -> None:
            variable.set(value)
            await queue.receive_async()
            assert variable.get() == value
            assert asyncio.current_task() is not None

        tasks = [asyncio.create_task(waits(value)) for value in (1, 2)]
        await settle()
        queue.send_many([b"", b""])
        await asyncio.gather(*tasks)
        assert variable.get() == 0

    run(main())


def test_loops_of_two_threads_share_a_queue(queue: umsg.Queue, run: Run) -> None:
    received: list[bytes] = []

    async def receives() -> None:
        async for message in queue:
            received.append(message)

    threads = [threading.Thread(target=lambda: run(receives())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(1000):
        queue.send(b"%d" % number, timeout=LIMIT)
    queue.close_send()
    for thread in threads:
        thread.join(LIMIT)
    assert sorted(map(int, received)) == list(range(1000))


def test_loops_leave_no_descriptor(queue: umsg.Queue, run: Run) -> None:
    async def main() -> None:
        for _ in range(2):
            waiting = asyncio.create_task(queue.receive_async())
            await settle()
            queue.send(b"")
            await waiting
        # The loop is closed while this task waits.
        asyncio.ensure_future(queue.receive_async())
        await settle()

    def count() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    run(main())
    before = count()
    for _ in range(10):
        run(main())
    assert count() == before


def test_a_dropped_queue_leaves_no_reader(namespace: str) -> None:
    selector = selectors.DefaultSelector()
    loop = asyncio.SelectorEventLoop(selector)

    async def main() -> None:
        before = len(selector.get_map())
        for drop in (umsg.Queue.close, lambda _: None):
            queue: Any = umsg.Queue("/q", create=True)
            waiting = asyncio.create_task(queue.receive_async())
            await settle()
            queue.send(b"")
            await waiting
            assert len(selector.get_map()) == before + 1
            drop(queue)
            del queue, waiting
            gc.collect()
            await settle()
            assert len(selector.get_map()) == before

    loop.run_until_complete(main())
    loop.close()


def test_a_child_that_closes_its_handle_does_not_disturb_the_parent(queue: umsg.Queue, run: Run) -> None:
    async def main() -> None:
        waiting = asyncio.create_task(queue.receive_async())
        await settle()
        pid = os.fork()
        if pid == 0:
            queue.close()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        queue.send(b"message")
        assert await waiting == b"message"

    run(main())


def test_an_exit_in_a_task_leaves_the_rest_to_the_others(queue: umsg.Queue) -> None:
    async def exits() -> None:
        await queue.receive_async()
        raise SystemExit(3)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(begin(queue.receive_async()))
    first = loop.create_task(exits())
    second = loop.create_task(queue.receive_async())
    loop.run_until_complete(settle())
    queue.send_many([b"one", b"two"])
    with pytest.raises(SystemExit):
        loop.run_forever()
    assert loop.run_until_complete(asyncio.wait_for(second, LIMIT)) == b"two"
    assert isinstance(first.exception(), SystemExit)
    loop.close()


def test_without_a_loop_there_is_an_error(queue: umsg.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    call = queue.receive_async()
    monkeypatch.setitem(sys.modules, "umsg._trio", None)
    monkeypatch.delattr(umsg, "_trio", raising=False)
    with pytest.raises(RuntimeError, match="no asyncio event loop is running"):
        call.send(None)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_anyio(namespace: str, backend: str) -> None:
    anyio = pytest.importorskip("anyio")
    if backend == "trio":
        pytest.importorskip("trio")
    queue = umsg.Queue("/q", create=True, max_messages=2, message_size=8)
    sysv = umsg.SysVQueue(7, create=True)
    received: list[bytes] = []

    async def receives() -> None:
        async for message in queue:
            received.append(message)

    async def waits_for_closing() -> None:
        with pytest.raises(umsg.HandleClosed):
            await sysv.receive_async(type=4)

    async def main() -> None:
        with anyio.fail_after(LIMIT):
            with anyio.move_on_after(0.01) as scope:
                await queue.receive_async()
            assert scope.cancel_called
            async with anyio.create_task_group() as group:
                group.start_soon(receives)
                group.start_soon(receives)
                for number in range(500):
                    await queue.send_async(b"%d" % number)
                queue.close_send()
            async with anyio.create_task_group() as group:
                group.start_soon(waits_for_closing)
                await sysv.send_async(b"three", type=3)
                with anyio.move_on_after(0.01):
                    await sysv.receive_async(type=2)
                assert await sysv.receive_async(type=3) == b"three"
                sysv.close()

    anyio.run(main, backend=backend)
    assert sorted(map(int, received)) == list(range(500))
