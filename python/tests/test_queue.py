"""POSIX queues: the result of each call."""

from __future__ import annotations

import array
import datetime
import errno
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import umsg


def test_messages_come_by_priority_and_then_in_order(queue: umsg.Queue) -> None:
    queue.send(b"low", 1)
    queue.send(b"first", priority=9)
    queue.send(b"second", 9)
    assert queue.receive() == b"first"
    assert queue.receive_message() == (b"second", 9)
    assert queue.try_receive_message() == (b"low", 1)


@pytest.mark.parametrize(
    "message",
    [b"1234", bytearray(b"1234"), memoryview(b"1234"), array.array("B", b"1234"), memoryview(b"x1234x")[1:5]],
)
def test_every_object_with_the_buffer_protocol_is_a_message(queue: umsg.Queue, message: bytes) -> None:
    queue.send(message)
    queue.try_send(message)
    queue.send_many([message, message])
    queue.send_after(message, 0)
    assert [queue.receive(timeout=60) for _ in range(5)] == [b"1234"] * 5


def test_an_empty_message_is_a_message(queue: umsg.Queue) -> None:
    queue.send(b"")
    queue.send(bytearray())
    assert (queue.receive(), queue.receive()) == (b"", b"")


@pytest.mark.parametrize("limit", [0.02, datetime.timedelta(milliseconds=20), 0])
def test_a_time_limit_is_seconds_or_a_timedelta(queue: umsg.Queue, limit: float) -> None:
    began = time.monotonic()
    with pytest.raises(umsg.TimedOut) as caught:
        queue.receive(limit)
    assert time.monotonic() - began >= (0.02 if limit else 0)
    assert isinstance(caught.value, TimeoutError) and caught.value.errno == errno.ETIMEDOUT
    for _ in range(8):
        queue.send(b"job")
    with pytest.raises(umsg.TimedOut):
        queue.send(b"job", timeout=limit)
    queue.receive(timeout=limit)


def test_full_and_empty_are_told_apart(queue: umsg.Queue) -> None:
    with pytest.raises(umsg.Empty) as empty:
        queue.try_receive()
    while True:
        try:
            queue.try_send(b"job")
        except umsg.Full as full:
            assert (full.errno, full.filename) == (errno.EAGAIN, "/q")
            break
    assert empty.value.errno == errno.EAGAIN
    assert "the queue is empty" in str(empty.value)
    assert isinstance(empty.value, BlockingIOError)


def test_a_blocked_receiver_gets_a_message_of_another_thread(queue: umsg.Queue) -> None:
    later = threading.Timer(0.05, queue.send, [b"late", 3])
    later.start()
    assert queue.receive_message(timeout=60) == (b"late", 3)
    later.join()


def test_a_blocked_sender_gets_room(queue: umsg.Queue) -> None:
    queue.send_many([b"1"] * 8)
    later = threading.Timer(0.05, queue.receive)
    later.start()
    queue.send(b"2", timeout=60)
    later.join()
    assert queue.attributes().messages == 8


def test_a_batch_is_sent_whole_or_not_at_all(queue: umsg.Queue) -> None:
    queue.send_messages([(b"a", 1), (b"b", 5), (b"c", 5)])
    assert queue.receive_messages() == [(b"b", 5), (b"c", 5), (b"a", 1)]
    queue.send_many(iter([b"1"] * 5), priority=2)
    with pytest.raises(umsg.TimedOut):
        queue.send_many([b"2"] * 4, timeout=0)
    assert queue.send_some([b"3"] * 4) == 3
    with pytest.raises(umsg.TooLong):
        queue.send_many([b"4"] * 9)
    assert queue.receive_many(most=2) == [b"1", b"1"]
    assert queue.receive_many() == [b"1"] * 3 + [b"3"] * 3
    queue.send_many([])
    with pytest.raises(umsg.TimedOut):
        queue.receive_many(timeout=0)
    assert queue.receive_many(0) == []


def test_a_batch_of_bytes_is_not_its_numbers(queue: umsg.Queue) -> None:
    with pytest.raises(TypeError, match="iterable of bytes-like objects"):
        queue.send_many(b"1234")  # type: ignore[arg-type]


def test_a_batch_larger_than_one_piece_is_received(namespace: str) -> None:
    with umsg.Queue("/many", create=True, max_messages=1000, message_size=2000) as queue:
        sent = [b"%d" % number * 100 for number in range(1000)]
        queue.send_many(sent)
        assert queue.receive_many(most=1000) == sent


def test_receive_into_fills_a_buffer(queue: umsg.Queue) -> None:
    buffer = bytearray(64)
    queue.send(b"hello")
    assert queue.receive_into(buffer) == 5
    assert buffer[:5] == b"hello"
    with pytest.raises(umsg.TooLong, match="a buffer of 63 bytes is too short"):
        queue.receive_into(bytearray(63))
    with pytest.raises((TypeError, BufferError)):
        queue.receive_into(b"x" * 64)


def test_large_messages_are_whole(namespace: str) -> None:
    with umsg.Queue("/large", create=True, max_messages=4, message_size=1 << 20) as queue:
        message = bytes(range(256)) * 4096
        queue.send(message)
        queue.send(b"short")
        assert queue.receive_message() == (message, 0)
        assert queue.receive() == b"short"
        with pytest.raises(umsg.Empty):
            queue.try_receive()
        later = threading.Timer(0.05, queue.send, [message])
        later.start()
        assert queue.receive(60) == message
        later.join()


def test_peek_leaves_messages(queue: umsg.Queue) -> None:
    queue.send(b"low", 1)
    queue.send(b"high", 2)
    peeked = queue.peek()
    assert peeked is not None and (peeked.data, peeked.priority) == (b"high", 2)
    assert abs(peeked.sent - time.time()) < 60
    assert [message.data for message in queue.peek_many()] == [b"high", b"low"]
    assert queue.peek(2) is None
    assert queue.attributes().messages == 2


def test_a_delayed_message_comes_later(queue: umsg.Queue) -> None:
    day = 86400.0
    queue.send_after(b"tomorrow", day, priority=9)
    queue.send_at(b"then, too", time.time() + day, 8)
    queue.send_at(b"past", datetime.datetime(1999, 1, 1), 7)
    assert queue.receive() == b"past"
    assert queue.attributes().delayed == 2
    with pytest.raises(umsg.Empty):
        queue.try_receive()
    queue.send_after(b"later", 0.05)
    queue.send_at(b"at", time.time() + 0.05)
    assert {queue.receive(), queue.receive()} == {b"later", b"at"}


def test_an_iterator_ends_with_the_stream(queue: umsg.Queue) -> None:
    queue.send_many([b"1", b"2"])
    assert queue.close_send() and queue.is_send_closed
    assert list(queue) == [b"1", b"2"]
    with pytest.raises(EOFError) as end:
        queue.receive()
    assert isinstance(end.value, umsg.EndOfStream) and end.value.errno == errno.EPIPE
    with pytest.raises(BrokenPipeError):
        queue.send(b"3")
    assert queue.reopen_send() and not queue.is_send_closed


def test_the_death_of_the_last_producer_ends_the_stream(
    namespace: str, in_child: Callable[[Callable[[], Any]], int]
) -> None:
    queue = umsg.Queue("/q", create=True, close_with_last_producer=True)

    def child() -> None:
        producer = queue.producer()
        queue.send(b"1")
        assert not producer.closed
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(child) == -signal.SIGKILL
    assert list(queue) == [b"1"]


def test_attributes_and_status(queue: umsg.Queue) -> None:
    queue.send(b"12345")
    attributes = queue.attributes()
    assert (attributes.max_messages, attributes.message_size) == (8, 64)
    assert (attributes.messages, attributes.bytes) == (1, 5)
    assert attributes == queue.status().attributes
    assert queue.status().mode == 0o600
    assert "8 messages" in repr(queue)


def test_policies_are_keyword_arguments(namespace: str) -> None:
    with umsg.Queue(
        "/jobs",
        create=True,
        max_messages=2,
        message_size=16,
        on_full="drop-oldest",
        time_to_live=60,
        max_deliveries=3,
        retry_delay=(0.5, datetime.timedelta(minutes=1)),
        dead_letter="/failed",
        remove_on_last_close=True,
        close_with_last_producer=True,
        fair_priorities=4,
        trace_messages=True,
        waiting="blocking",
    ) as queue:
        status = queue.status()
        assert (status.on_full, status.time_to_live, status.max_deliveries) == ("drop-oldest", 60.0, 3)
        assert (status.retry_delay, status.dead_letter) == ((0.5, 60.0), "/failed")
        assert (status.remove_on_last_close, status.close_with_last_producer) == (True, True)
        assert (status.fair_priorities, status.trace_messages) == (4, True)
        queue.send_many([b"1", b"2"])
        queue.send(b"3")
        assert queue.receive_many() == [b"2", b"3"]
        with pytest.raises(umsg.Invalid, match="on_full is DropOldest, not Fail"):
            umsg.Queue("/jobs", create=True, on_full="fail")
        umsg.Queue("/jobs", create=True, on_full="fail", existing="any").close()
        with pytest.raises(umsg.Invalid, match="max_messages is 2, not 3"):
            umsg.Queue("/jobs", max_messages=3, existing="match")
    assert umsg.queues() == ["/failed"]


def test_names_and_namespaces(namespace: str) -> None:
    with pytest.raises(umsg.NotFound) as missing:
        umsg.Queue("/none")
    assert isinstance(missing.value, FileNotFoundError) and missing.value.filename == "/none"
    umsg.Queue(b"/bytes", create=True, namespace=namespace).close()
    with pytest.raises(FileExistsError):
        umsg.Queue("/bytes", create=True, exclusive=True)
    assert umsg.queues(namespace=namespace) == ["/bytes"]
    umsg.unlink("/bytes")
    with pytest.raises(umsg.NotFound):
        umsg.unlink("/bytes", namespace=namespace)
    with pytest.raises(umsg.Invalid):
        umsg.Queue("no-slash", create=True)


def test_access_is_what_was_asked_for(queue: umsg.Queue) -> None:
    with umsg.Queue("/q", write=False) as reader, pytest.raises(umsg.Error) as refused:
        reader.send(b"no")
    assert refused.value.errno == errno.EBADF
    with umsg.Queue("/q", read=False) as writer, pytest.raises(umsg.Error, match="not opened for receiving"):
        writer.try_receive()


def test_a_pickled_handle_opens_the_queue_again(queue: umsg.Queue) -> None:
    with pickle.loads(pickle.dumps(queue)) as again:
        again.send(b"same")
    assert queue.receive() == b"same"
    with umsg.Queue("/q", read=False) as writer, pickle.loads(pickle.dumps(writer)) as again:
        with pytest.raises(umsg.Error):
            again.receive()


def test_a_closed_handle_says_so(queue: umsg.Queue) -> None:
    queue.close()
    queue.close()
    assert queue.closed and "closed" in repr(queue)
    calls: list[Callable[[], object]] = [
        lambda: queue.send(b""),
        lambda: queue.try_send(b""),
        lambda: queue.receive(),
        lambda: queue.try_receive(),
        lambda: queue.receive_message(),
        lambda: queue.try_receive_message(),
        lambda: queue.receive_into(bytearray(64)),
        lambda: queue.receive_many(),
        lambda: queue.receive_messages(),
        lambda: queue.send_many([b""]),
        lambda: queue.send_many([]),
        lambda: queue.send_some([b""]),
        lambda: queue.send_messages([(b"", 0)]),
        lambda: queue.send_after(b"", 1),
        lambda: queue.send_at(b"", 1),
        lambda: queue.receive_lease(),
        lambda: queue.try_receive_lease(),
        lambda: queue.reserve(1),
        lambda: queue.try_reserve(1),
        lambda: queue.peek(),
        lambda: queue.peek_many(),
        lambda: queue.attributes(),
        lambda: queue.status(),
        lambda: queue.close_send(),
        lambda: queue.reopen_send(),
        lambda: queue.is_send_closed,
        lambda: queue.fileno(),
        lambda: queue.readiness(),
        lambda: queue.producer(),
        lambda: queue.set_waiting("blocking"),
        lambda: queue.__enter__(),
        lambda: next(queue),
        lambda: pickle.dumps(queue),
    ]
    for call in calls:
        with pytest.raises(umsg.HandleClosed, match="the handle was closed"):
            call()


def test_the_message_of_a_send_may_close_the_queue(queue: umsg.Queue) -> None:
    class Closer:
        def __float__(self) -> float:
            queue.close()
            return 1.0

    with pytest.raises(umsg.HandleClosed):
        queue.send(b"", timeout=Closer())  # type: ignore[arg-type]
