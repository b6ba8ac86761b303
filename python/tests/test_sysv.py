"""System V queues: the result of each call."""

from __future__ import annotations

import asyncio
import errno
import pickle
import select
import threading
from collections.abc import Callable

import pytest

import umsg


def test_messages_are_chosen_by_type(sysv: umsg.SysVQueue) -> None:
    for number in [3, 1, 2, 3]:
        sysv.send(b"%d" % number, number)
    assert sysv.receive(2) == b"2"
    assert sysv.receive_message(3, other=True) == (b"1", 1)
    assert sysv.receive_message(type=-5) == (b"3", 3)
    assert sysv.try_receive() == b"3"
    with pytest.raises(umsg.Empty) as empty:
        sysv.try_receive(1)
    assert empty.value.errno == errno.ENOMSG
    with pytest.raises(umsg.TimedOut):
        sysv.receive(timeout=0.01)


def test_the_smallest_type_is_any_type_up_to_the_largest(sysv: umsg.SysVQueue) -> None:
    sysv.send(b"1", 2**63 - 1)
    assert sysv.receive_message(-(2**63)) == (b"1", 2**63 - 1)


def test_batches(sysv: umsg.SysVQueue) -> None:
    sysv.send_many([b"1", b"2"], type=4)
    sysv.send_messages([(b"3", 5), (b"4", 6)])
    assert sysv.receive_messages(type=-5) == [(b"1", 4), (b"2", 4), (b"3", 5)]
    assert sysv.receive_many() == [b"4"]
    assert sysv.receive_many(0) == []


def test_receive_into_and_truncation(sysv: umsg.SysVQueue) -> None:
    buffer = bytearray(3)
    sysv.send(b"12345", 9)
    with pytest.raises(umsg.TooLong) as long:
        sysv.receive_into(buffer)
    assert long.value.errno == errno.E2BIG
    assert sysv.receive_into(buffer, truncate=True) == (3, 9)
    assert buffer == b"123"


def test_delays_peeking_and_status(sysv: umsg.SysVQueue) -> None:
    sysv.send_after(b"tomorrow", 86400.0, type=2)
    sysv.send(b"now", 3)
    peeked = sysv.peek()
    assert peeked is not None and (peeked.data, peeked.type) == (b"now", 3)
    assert [message.type for message in sysv.peek_many()] == [3]
    status = sysv.status()
    assert (status.key, status.messages, status.bytes, status.delayed) == (7, 1, 3, 1)
    assert sysv.receive(timeout=60) == b"now"
    sysv.send_after(b"later", 0.02, type=2)
    assert sysv.receive(timeout=60) == b"later"
    sysv.send_at(b"past", 0, 3)
    assert sysv.receive_message(timeout=60) == (b"past", 3)


def test_a_removed_queue_says_so(sysv: umsg.SysVQueue) -> None:
    ended = []

    def receive() -> None:
        try:
            sysv.receive()
        except umsg.Removed as error:
            ended.append(error.errno)

    blocked = threading.Thread(target=receive)
    blocked.start()
    while not sysv.status().blocked_receivers:
        pass
    sysv.remove()
    blocked.join()
    assert ended == [errno.EIDRM] and sysv.is_removed
    calls: list[Callable[[], object]] = [lambda: sysv.send(b""), lambda: sysv.receive(), lambda: sysv.status(), lambda: sysv.receive_lease()]
    for call in calls:
        with pytest.raises(umsg.Removed):
            call()
    with pytest.raises(umsg.Error):
        sysv.remove()
    with pytest.raises(umsg.NotFound):
        umsg.SysVQueue(7)


def test_keys_and_identifiers(namespace: str) -> None:
    private = umsg.SysVQueue()
    same = umsg.SysVQueue(id=private.id)
    private.send(b"same")
    assert same.receive() == b"same" and private.key == 0
    again = pickle.loads(pickle.dumps(private))
    assert again.id == private.id
    assert umsg.sysv_queues() == [private.id]
    umsg.SysVQueue(0xFFFF0000, create=True, exclusive=True).close()
    assert umsg.SysVQueue(0xFFFF0000 - (1 << 32)).key == 0xFFFF0000 - (1 << 32)
    with pytest.raises(umsg.Exists):
        umsg.SysVQueue(0xFFFF0000, create=True, exclusive=True)
    with pytest.raises(umsg.Invalid):
        umsg.SysVQueue(1 << 32, create=True)
    with pytest.raises(TypeError):
        umsg.SysVQueue("7")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not by both"):
        umsg.SysVQueue(7, id=1)
    with pytest.raises(umsg.Error):
        umsg.SysVQueue(id=123456)


def test_set_changes_the_queue(sysv: umsg.SysVQueue) -> None:
    sysv.set(mode=0o640, qbytes=100)
    assert (sysv.status().mode, sysv.status().qbytes) == (0o640, 100)
    with pytest.raises(umsg.Full):
        while True:
            sysv.try_send(b"x" * 60)


@pytest.mark.parametrize("bad", [0, -1])
def test_bad_types(sysv: umsg.SysVQueue, bad: int) -> None:
    with pytest.raises(umsg.Invalid, match="at least 1"):
        sysv.send(b"", bad)
    with pytest.raises(umsg.Invalid, match="type above 0"):
        sysv.receive(bad, other=True)


def test_more_bad_arguments(sysv: umsg.SysVQueue) -> None:
    with pytest.raises(umsg.Invalid, match="64 bits"):
        sysv.send(b"", 1 << 63)
    with pytest.raises(TypeError):
        sysv.send(b"", "1")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        sysv.send("text")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        sysv.receive(timeout="1")  # type: ignore[arg-type]
    with pytest.raises(umsg.Invalid):
        sysv.send(b"x" * (sysv.message_size + 1))


def test_a_closed_handle_says_so(sysv: umsg.SysVQueue) -> None:
    sysv.close()
    assert sysv.closed and "closed" in repr(sysv)
    calls: list[Callable[[], object]] = [
        lambda: sysv.send(b""),
        lambda: sysv.try_send(b""),
        lambda: sysv.receive(),
        lambda: sysv.try_receive(),
        lambda: sysv.receive_message(),
        lambda: sysv.try_receive_message(),
        lambda: sysv.receive_into(bytearray(64)),
        lambda: sysv.receive_many(),
        lambda: sysv.receive_messages(),
        lambda: sysv.send_many([b""]),
        lambda: sysv.send_messages([(b"", 1)]),
        lambda: sysv.send_after(b"", 1),
        lambda: sysv.send_at(b"", 1),
        lambda: sysv.receive_lease(),
        lambda: sysv.try_receive_lease(),
        lambda: sysv.peek(),
        lambda: sysv.peek_many(),
        lambda: sysv.delayed_messages(),
        lambda: sysv.types(),
        lambda: sysv.status(),
        lambda: sysv.set(mode=0o600),
        lambda: sysv.close_send(),
        lambda: sysv.reopen_send(),
        lambda: sysv.is_send_closed,
        lambda: sysv.is_removed,
        lambda: sysv.fileno(),
        lambda: sysv.readiness(),
        lambda: sysv.producer(),
        lambda: sysv.set_waiting("blocking"),
        lambda: sysv.__enter__(),
        lambda: next(sysv),
        lambda: pickle.dumps(sysv),
    ]
    for call in calls:
        with pytest.raises(umsg.HandleClosed, match="the handle was closed"):
            call()


def test_each_call_on_a_removed_queue_says_so(sysv: umsg.SysVQueue) -> None:
    polled = umsg.SysVQueue(7)
    descriptor = polled.fileno()
    umsg.SysVQueue(7).remove()
    calls: list[Callable[[], object]] = [
        lambda: sysv.send(b""),
        lambda: sysv.try_send(b""),
        lambda: sysv.receive(),
        lambda: sysv.try_receive(),
        lambda: sysv.receive_into(bytearray(64)),
        lambda: sysv.receive_many(),
        lambda: sysv.send_many([b""]),
        lambda: sysv.receive_lease(),
        lambda: sysv.peek(),
        lambda: sysv.status(),
        lambda: sysv.set(mode=0o600),
        lambda: sysv.close_send(),
        lambda: sysv.producer(),
        lambda: sysv.delayed_messages(),
        lambda: sysv.types(),
        lambda: sysv.remove(),
        lambda: sysv.fileno(),
        lambda: sysv.fileno("all"),
        lambda: next(sysv),
        lambda: asyncio.run(sysv.receive_async()),
        lambda: asyncio.run(sysv.send_async(b"")),
    ]
    for call in calls:
        with pytest.raises(umsg.Removed, match="was removed") as removed:
            call()
        assert removed.value.errno == errno.EIDRM
    assert sysv.is_removed and sysv.readiness() == (True, True)
    # A poller that has the descriptor learns by it that the queue was removed.
    assert polled.fileno() == descriptor
    assert select.select([descriptor], [descriptor], [], 0) == ([descriptor], [descriptor], [])
    sysv.close()
    with pytest.raises(umsg.HandleClosed):
        sysv.fileno()


def test_a_queue_is_removed_once_whatever_takes_its_place(namespace: str) -> None:
    first = umsg.SysVQueue(7, create=True)
    first.remove()
    second = umsg.SysVQueue(7, create=True)
    with pytest.raises(umsg.Removed):
        first.remove()
    first.close()
    # A closed handle keeps the identifier of its queue.
    with pytest.raises(umsg.Removed):
        first.remove()
    second.send(b"still there")
    second.close()
    second.remove()
    with pytest.raises(umsg.NotFound):
        umsg.SysVQueue(7)


def test_delayed_messages_and_types_are_shown(sysv: umsg.SysVQueue) -> None:
    sysv.send_after(b"tomorrow", 86400, type=3)
    sysv.send_after(b"in an hour", 3600, type=5)
    soon, later = sysv.delayed_messages()
    assert (soon.data, soon.type, later.data, later.type) == (b"in an hour", 5, b"tomorrow", 3)
    assert soon.due is not None and later.due is not None and soon.sent < soon.due < later.due
    assert [message.data for message in sysv.delayed_messages(1)] == [b"in an hour"]
    assert sysv.types() == [] and sysv.peek() is None
    sysv.send_messages([(b"", 9), (b"", 2), (b"", 9)])
    assert sysv.types() == [(2, 1), (9, 2)] and sysv.types(1) == [(2, 1)]
    first = sysv.peek()
    assert first is not None and first.due is None


def test_the_end_of_the_last_producer_ends_the_stream(namespace: str) -> None:
    queue = umsg.SysVQueue(close_with_last_producer=True)
    with queue.producer() as producer:
        queue.send(b"1")
        assert queue.status().producers == 1
    assert producer.closed and list(queue) == [b"1"]
    with pytest.raises(umsg.LeaseEnded):
        producer.__enter__()


def test_the_end_of_a_stream(sysv: umsg.SysVQueue) -> None:
    sysv.send_many([b"1", b"2"])
    assert sysv.close_send()
    assert list(sysv) == [b"1", b"2"]
    with pytest.raises(umsg.Closed):
        sysv.send(b"3")
    assert sysv.reopen_send()
