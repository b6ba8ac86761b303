"""Queues whose messages may be long: more than 64 KiB."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

import umsg

LIMIT = 1 << 24


@pytest.fixture(params=["posix", "sysv"])
def long(request: pytest.FixtureRequest, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A queue of either kind."""
    if request.param == "posix":
        return umsg.Queue("/long", create=True, max_messages=8, message_size=LIMIT)
    return umsg.SysVQueue(7, create=True)


def longest(queue: Any) -> int:
    return min(int(queue.message_size), LIMIT)


def test_messages_of_all_lengths_arrive_whole(long: Any) -> None:
    most = longest(long)
    lengths = [0, 1, 65535, 65536, 65537, 70000, most]
    messages = [bytes([number]) * length for number, length in enumerate(lengths) if length <= most]
    for message in messages:
        long.send(message)
        assert long.receive() == message
        long.send(message)
        assert long.try_receive_message() == (message, 0 if isinstance(long, umsg.Queue) else 1)
        long.send(message)
        assert next(long) == message
        long.send(message)
        assert long.receive_many() == [message]


def test_batches_mix_lengths(long: Any) -> None:
    choice = random.Random(7)
    most = longest(long)
    messages: list[bytes] = []
    for number in range(200):
        length = choice.choice([0, 10, 30000, 65536, 65537, 100000])
        message = number.to_bytes(2, "little") * (min(length, most // 8) // 2)
        messages.append(message)
    received: list[bytes] = []

    def send() -> None:
        for message in messages:
            long.send(message, timeout=60)

    thread = threading.Thread(target=send)
    thread.start()
    while len(received) < len(messages):
        received += long.receive_many(choice.choice([1, 2, 5, 256]), timeout=60)
    thread.join()
    assert received == messages


def test_a_receiver_waits_for_a_long_message(long: Any) -> None:
    message = b"x" * min(longest(long), 1 << 20)
    for receive in (long.receive, lambda: next(long), lambda: long.receive_many()[0]):
        timer = threading.Timer(0.02, long.send, (message,))
        timer.start()
        assert receive() == message
        timer.join()
    with pytest.raises(umsg.TimedOut):
        long.receive(timeout=0.01)
    with pytest.raises(umsg.Empty):
        long.try_receive()
    with pytest.raises(umsg.TimedOut):
        long.receive_many(timeout=0)
    assert long.receive_many(0) == []


def test_the_end_of_a_stream_of_long_messages(long: Any) -> None:
    long.send(b"last")
    long.close_send()
    assert list(long) == [b"last"]
    with pytest.raises(umsg.EndOfStream):
        long.receive()
    with pytest.raises(umsg.EndOfStream):
        long.receive_many()
