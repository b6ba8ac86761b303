"""Messages in place: leases and reservations."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest

import umsg

InChild = Callable[[Callable[[], Any]], int]


def test_a_lease_is_acknowledged_at_the_end(queue: umsg.Queue) -> None:
    queue.send(b"job", 3)
    with queue.receive_lease() as job:
        assert (bytes(job), len(job), job.priority, job.deliveries) == (b"job", 3, 3, 1)
        assert bytes(job.data) == b"job" and job.data.readonly and bytes(memoryview(job)) == b"job"
        assert job.pid == os.getpid() and job.is_open
        assert queue.attributes().leased == 1
    assert not job.is_open and "ended" in repr(job)
    counts = queue.attributes()
    assert (counts.messages, counts.leased) == (0, 0)


def test_an_exception_returns_the_message(queue: umsg.Queue) -> None:
    queue.send(b"job")
    with pytest.raises(ZeroDivisionError), queue.receive_lease() as job:
        assert job.deliveries == 1
        1 / 0
    with queue.receive_lease() as job:
        assert job.deliveries == 2


def test_a_dropped_lease_returns_the_message(queue: umsg.Queue) -> None:
    queue.send(b"job")
    queue.receive_lease()
    gc.collect()
    assert queue.try_receive() == b"job"


def test_explicit_ends(queue: umsg.Queue) -> None:
    queue.send_many([b"1", b"2"])
    with queue.receive_lease() as job:
        job.acknowledge()
    with queue.try_receive_lease() as job:
        job.give_back()
    job = queue.receive_lease()
    job.give_back(delay=60)
    assert queue.attributes().delayed == 1
    with pytest.raises(umsg.Empty):
        queue.try_receive_lease()
    with pytest.raises(umsg.TimedOut):
        queue.receive_lease(0.01)


def test_an_ended_lease_says_so(queue: umsg.Queue) -> None:
    queue.send(b"job")
    job = queue.receive_lease()
    view = job.data
    part = job.data[1:2]
    with pytest.raises(BufferError, match="a view of the lease still exists"):
        job.acknowledge()
    part.release()
    job.acknowledge()
    with pytest.raises(ValueError, match="released"):
        view[0]
    calls: list[Callable[[], object]] = [
        lambda: job.data,
        lambda: memoryview(job),
        lambda: bytes(job),
        lambda: job.acknowledge(),
        lambda: job.give_back(),
        lambda: job.give_back(1),
        lambda: job.limit(1),
        lambda: job.__enter__(),
    ]
    for call in calls:
        with pytest.raises(umsg.LeaseEnded, match="has ended"):
            call()


@pytest.mark.parametrize("keep", [lambda job: memoryview(job), lambda job: job.data[1:], lambda job: memoryview(job.data)])
def test_a_view_keeps_its_lease(queue: umsg.Queue, keep: Callable[[umsg.Lease], memoryview]) -> None:
    queue.send(b"job")
    with pytest.raises(BufferError), queue.receive_lease() as job:
        view = keep(job)
    # The message stays in place as long as the view may read it.
    assert view[0] in b"jo" and queue.attributes().leased == 1
    queue.close()
    assert view[0] in b"jo"
    del job
    gc.collect()
    assert view[0] in b"jo"


def test_a_lease_outlives_its_handle(queue: umsg.Queue) -> None:
    queue.send(b"job")
    job = queue.receive_lease()
    queue.close()
    assert bytes(job) == b"job"
    job.acknowledge()
    with umsg.Queue("/q") as again:
        assert again.attributes().messages == 0


def test_a_lease_with_a_time_limit_shows_a_copy(queue: umsg.Queue) -> None:
    queue.send(b"job")
    job = queue.receive_lease()
    view = memoryview(job)
    with pytest.raises(BufferError):
        job.limit(0.001)
    view.release()
    job.limit(0.001)
    view = memoryview(job)
    again = queue.receive_lease(timeout=60)
    assert again.deliveries == 2
    again.acknowledge()
    queue.send(b"xxx")
    # The place of the message may already have another message, but the view shows a copy.
    assert bytes(view) == b"job"
    view.release()
    with pytest.raises(umsg.LeaseEnded):
        job.acknowledge()


def test_a_reservation_is_sent_at_the_end(queue: umsg.Queue) -> None:
    with queue.reserve(5, priority=4) as room:
        room.data[:] = b"12345"
        assert len(room) == 5 and not room.data.readonly
        assert queue.attributes().reserved == 1
    assert queue.receive_message() == (b"12345", 4)
    assert not room.is_open
    with queue.reserve(64) as room:
        memoryview(room)[:3] = b"abc"
        room.commit(size=3, priority=7)
    assert queue.receive_message() == (b"abc", 7)


def test_an_exception_frees_the_room(queue: umsg.Queue) -> None:
    with pytest.raises(ZeroDivisionError), queue.reserve(5):
        1 / 0
    with queue.try_reserve(5) as room:
        room.cancel()
    counts = queue.attributes()
    assert (counts.messages, counts.reserved) == (0, 0)


def test_an_ended_reservation_says_so(queue: umsg.Queue) -> None:
    room = queue.reserve(5)
    view = memoryview(room)
    calls: list[Callable[[], object]] = [lambda: room.commit(), lambda: room.cancel()]
    for call in calls:
        with pytest.raises(BufferError, match="a view of the reservation still exists"):
            call()
    view.release()
    with pytest.raises(umsg.Invalid, match="size must be at most 5"):
        room.commit(size=6)
    room.commit()
    calls = [lambda: room.commit(), lambda: room.cancel(), lambda: room.data, lambda: memoryview(room)]
    for call in calls:
        with pytest.raises(umsg.LeaseEnded, match="has ended"):
            call()


def test_bad_reservations(queue: umsg.Queue) -> None:
    with pytest.raises(umsg.TooLong):
        queue.reserve(65)
    with pytest.raises(umsg.Invalid, match="size must be at least 0"):
        queue.reserve(-1)
    with pytest.raises(TypeError):
        queue.reserve("1")  # type: ignore[arg-type]
    with pytest.raises(umsg.Invalid):
        queue.reserve(1, priority=32768)
    queue.send_many([b""] * 8)
    with pytest.raises(umsg.Full):
        queue.try_reserve(1)
    with pytest.raises(umsg.TimedOut):
        queue.reserve(1, timeout=0.01)


def test_leases_are_made_by_queues_only() -> None:
    for kind in [umsg.Lease, umsg.SysVLease, umsg.Reservation]:
        with pytest.raises(TypeError, match="are made by"):
            kind()


def test_a_forked_child_does_not_own_a_lease(queue: umsg.Queue, in_child: InChild) -> None:
    queue.send_many([b"1", b"2"])
    job, room = queue.receive_lease(), queue.reserve(1)

    def child() -> None:
        calls: list[Callable[[], object]] = [job.acknowledge, lambda: memoryview(job), lambda: memoryview(room)]
        for call in calls:
            with pytest.raises(umsg.LeaseEnded):
                call()
        assert queue.receive() == b"2"
        queue.send(b"3")

    assert in_child(child) == 0
    assert queue.receive() == b"3"
    job.acknowledge()
    room.commit()


def test_a_killed_process_returns_its_leases(queue: umsg.Queue, in_child: InChild) -> None:
    queue.send(b"job")

    def child() -> None:
        job, room = queue.receive_lease(), queue.reserve(1)
        assert memoryview(job)[0] == ord("j") and room.is_open
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(child) == -signal.SIGKILL
    with queue.receive_lease(timeout=60) as job:
        assert (bytes(job), job.deliveries) == (b"job", 2)


def test_a_lease_of_a_system_v_queue_has_a_type(sysv: umsg.SysVQueue) -> None:
    sysv.send(b"job", 5)
    with sysv.receive_lease(type=5) as job:
        assert (bytes(job), job.type, job.deliveries) == (b"job", 5, 1)
        with pytest.raises(AttributeError):
            job.priority  # type: ignore[attr-defined]
    assert sysv.status().messages == 0


def test_leases_leave_no_reference_behind(queue: umsg.Queue) -> None:
    queue.send(b"job")

    def lease() -> None:
        job = queue.receive_lease()
        assert bytes(job.data) == b"job"
        job.give_back()

    before = sys.getrefcount(umsg.Lease)
    for _ in range(100):
        lease()
    # The caches of the interpreter may refer to the class, too.
    assert sys.getrefcount(umsg.Lease) < before + 50
