"""Rings: the result of each call."""

from __future__ import annotations

import errno
import os
import pickle
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

import umsg


def test_messages_arrive_in_order_with_their_fields(namespace: str) -> None:
    with umsg.Ring("/ring", entries=4, overflow=0, longest=1000) as ring, umsg.RingSender("/ring") as sender:
        sender.send(2**64 - 1, res=-1, flags=2**32 - 1, payload=b"x" * 64)
        sender.try_send(7, payload=bytearray(b"y" * 1000))
        first, second = ring.receive_many()
        assert (first.user_data, first.res, first.flags) == (2**64 - 1, -1, 2**32 - 1)
        assert (first.payload, second.payload) == (b"x" * 64, b"y" * 1000)
        assert (first.pid, first.index, first.descriptor) == (os.getpid(), sender.index, None)
        with pytest.raises(umsg.Empty):
            ring.try_receive()
        with pytest.raises(umsg.TimedOut):
            ring.receive(timeout=0.01)
        for number in range(4):
            sender.send(number)
        with pytest.raises(umsg.Full):
            sender.try_send(5)
        with pytest.raises(umsg.TimedOut):
            sender.send(5, timeout=0.01)
        assert ring.wait(4) == 4 and ring.available() == 4
        assert ring.status().messages == sender.status().messages == 4
        with pytest.raises(umsg.TooLong):
            sender.send(1, payload=b"x" * 1001)
        with pytest.raises(umsg.Busy):
            umsg.Ring("/ring")


def test_a_receiver_waits_for_a_number_of_messages() -> None:
    ring = umsg.Ring()
    sender = ring.sender()

    def send_all() -> None:
        for number in range(3):
            sender.send(number)

    later = threading.Timer(0.02, send_all)
    later.start()
    assert ring.wait(3, timeout=60) == 3
    assert [message.user_data for message in ring.receive_many(2)] == [0, 1]
    assert next(ring).user_data == 2
    later.join()
    with pytest.raises(umsg.TimedOut):
        ring.wait(1, timeout=0.01)


def test_descriptors_are_passed(namespace: str) -> None:
    with umsg.Ring("/ring") as ring, pickle.loads(pickle.dumps(umsg.RingSender("/ring"))) as sender:
        out, into = os.pipe()
        sender.send_fd(into, 1, payload=b"write here")
        os.close(into)
        message = ring.receive(timeout=60)
        assert message.descriptor is not None
        os.write(message.descriptor, b"hello")
        assert os.read(out, 5) == b"hello"
        os.close(message.descriptor)
        os.close(out)
        for bad in [-1, 10**6]:
            with pytest.raises(umsg.Error):
                sender.send_fd(bad, 1)
        with pytest.raises(umsg.TooLong):
            sender.send_fd(0, 1, payload=b"x" * 65)


def test_one_thread_at_a_time_receives() -> None:
    ring = umsg.Ring()
    sender = ring.sender()
    blocked = threading.Thread(target=ring.receive)
    blocked.start()
    try:
        with pytest.raises(umsg.Busy, match="another thread"):
            while True:
                ring.try_receive() if ring.available() else None
    finally:
        ring.close()  # The close takes effect after the blocked call.
        sender.send(1)
        blocked.join()
    assert ring.closed
    with pytest.raises(umsg.Closed):
        sender.send(1)


def test_a_closed_handle_says_so(namespace: str) -> None:
    ring = umsg.Ring("/ring")
    sender = umsg.RingSender("/ring")
    ring.close_send()
    with pytest.raises(umsg.Closed) as closed:
        sender.send(1)
    assert closed.value.errno == errno.EPIPE
    ring.close()
    sender.close()
    assert ring.closed and sender.closed and "closed" in repr(ring) and "closed" in repr(sender)
    calls: list[Callable[[], object]] = [
        lambda: ring.receive(),
        lambda: ring.try_receive(),
        lambda: ring.receive_many(),
        lambda: ring.wait(1),
        lambda: ring.available(),
        lambda: ring.take_fd(0),
        lambda: ring.fileno(),
        lambda: ring.sender(),
        lambda: ring.enable(),
        lambda: ring.close_send(),
        lambda: ring.status(),
        lambda: ring.set_waiting("blocking"),
        lambda: ring.__enter__(),
        lambda: next(ring),
        lambda: sender.send(1),
        lambda: sender.try_send(1),
        lambda: sender.send_fd(0, 1),
        lambda: sender.status(),
        lambda: sender.index,
        lambda: sender.longest,
        lambda: sender.__enter__(),
        lambda: pickle.dumps(sender),
    ]
    for call in calls:
        with pytest.raises(umsg.HandleClosed, match="the handle was closed"):
            call()
    with pytest.raises(umsg.NotFound):
        umsg.RingSender("/ring")


def test_bad_arguments(namespace: str) -> None:
    with pytest.raises(umsg.Invalid):
        umsg.Ring(entries=0)
    with pytest.raises(umsg.Invalid):
        umsg.Ring(entries=-1)
    with pytest.raises(umsg.Invalid, match="waiting must be one of"):
        umsg.Ring(waiting="sometimes")  # type: ignore[arg-type]
    ring = umsg.Ring()
    sender = ring.sender()
    for bad in [-1, 2**64]:
        with pytest.raises(OverflowError):
            sender.send(bad)
    with pytest.raises(TypeError):
        sender.send("1")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        sender.send(1, payload="text")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="no name"):
        pickle.dumps(sender)
    with pytest.raises(umsg.Invalid):
        ring.wait(-1)


def test_a_disabled_ring_refuses_senders() -> None:
    ring = umsg.Ring(disabled=True)
    with pytest.raises(umsg.Error, match="disabled"):
        ring.sender().send(1)
    ring.enable()
    ring.sender().send(1)


def test_a_sender_survives_a_fork_and_the_ring_belongs_to_its_owner(
    namespace: str, in_child: Callable[[Callable[[], Any]], int]
) -> None:
    with umsg.Ring("/ring") as ring, umsg.RingSender("/ring") as sender:

        def child() -> None:
            sender.send(os.getpid())
            with pytest.raises(PermissionError):
                ring.receive()
            ring.close()

        assert in_child(child) == 0
        assert ring.receive(timeout=60).user_data > 0
        sender.send(1)


def test_the_death_of_the_owner_ends_its_senders(
    namespace: str, in_child: Callable[[Callable[[], Any]], int]
) -> None:
    kept = []

    def child() -> None:
        kept.append(umsg.Ring("/ring"))
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(child) == -signal.SIGKILL
    with umsg.RingSender("/ring") as sender, pytest.raises(umsg.Closed, match="owner died") as died:
        sender.send(1)
    assert died.value.errno == errno.EOWNERDEAD
    umsg.Ring("/ring").close()


def test_a_batch_arrives_as_one(namespace: str) -> None:
    with umsg.Ring("/ring", entries=4, overflow=0) as ring:
        sender = ring.sender()
        sender.send_many([1, (2,), (3, -3), (4, 0, 7, bytearray(b"payload"))])
        assert ring.available() == 4
        with pytest.raises(umsg.TimedOut):
            sender.send_many([5], timeout=0.01)
        messages = ring.receive_many()
        assert [(message.user_data, message.res, message.flags, message.payload) for message in messages] == [
            (1, 0, 0, b""),
            (2, 0, 0, b""),
            (3, -3, 0, b""),
            (4, 0, 7, b"payload"),
        ]
        sender.send_many([])
        sender.send_many(iter(range(3)))
        timer = threading.Timer(0.02, ring.receive_many, (1,))
        timer.start()
        sender.send_many([3, 4], timeout=60)
        timer.join()
        assert [message.user_data for message in ring.receive_many(3)] == [1, 2, 3]
        assert [message.user_data for message in ring.receive_many()] == [4]
        assert ring.receive_many(0) == []


def test_bad_batches(namespace: str) -> None:
    ring = umsg.Ring("/ring", entries=4, overflow=0)
    sender = ring.sender()
    with pytest.raises(umsg.TooLong):
        sender.send_many(range(5))
    with pytest.raises(umsg.TooLong):
        sender.send_many([(1, 0, 0, b"x" * 65)])
    for bad in ([()], [(1, 2, 3, b"", 5)], [b"text"], [(1, 0, 0, "text")], 7):
        with pytest.raises(TypeError):
            sender.send_many(bad)  # type: ignore[arg-type]
    for too_large in ([-1], [1 << 64], [(1, 1 << 31)], [(1, 0, -1)]):
        with pytest.raises(OverflowError):
            sender.send_many(too_large)
    assert ring.available() == 0
    ring.close_send()
    with pytest.raises(umsg.Closed):
        sender.send_many([1])
    sender.close()
    with pytest.raises(umsg.HandleClosed):
        sender.send_many([1])


def test_the_sender_of_a_ring_with_a_name_is_pickled(namespace: str) -> None:
    with umsg.Ring("/ring") as ring:
        sender = pickle.loads(pickle.dumps(ring.sender()))
        sender.send(7)
        assert ring.receive().user_data == 7
        with pytest.raises(TypeError, match="belongs to the process"):
            pickle.dumps(ring)


def test_messages_without_room_are_dropped_and_counted() -> None:
    ring = umsg.Ring(entries=1, overflow=0, longest=1000)
    sender = ring.sender()
    assert sender.send_or_drop(1, res=-1, flags=3, payload=b"x" * 1000)
    assert not sender.send_or_drop(2) and not sender.send_or_drop(3, payload=b"x" * 1000)
    assert ring.status().dropped == 2
    message = ring.receive()
    assert (message.user_data, message.res, message.flags, message.payload) == (1, -1, 3, b"x" * 1000)
    assert sender.send_or_drop(4) and ring.receive().user_data == 4
    with pytest.raises(umsg.TooLong):
        sender.send_or_drop(5, payload=b"x" * 1001)
    ring.close_send()
    with pytest.raises(umsg.Closed):
        sender.send_or_drop(6)
    sender.close()
    with pytest.raises(umsg.HandleClosed):
        sender.send_or_drop(7)


def test_a_sender_gets_the_outcome_as_a_completion() -> None:
    ring, mine = umsg.Ring(entries=1, overflow=0, longest=1000), umsg.Ring(entries=4, overflow=0)
    sender, back = ring.sender(), mine.sender()
    sender.send_completing(1, res=5, payload=b"x" * 1000, to=back, completion=(10, 0, 7, b"done"))
    assert (ring.available(), mine.available()) == (1, 1)
    sender.send_completing(2, timeout=0.01, to=back, completion=11)
    sender.send_completing(3, payload=b"x" * 1001, to=back, completion=12)
    message = ring.receive()
    assert (message.user_data, message.res, len(message.payload)) == (1, 5, 1000)
    ring.close_send()
    sender.send_completing(4, to=back, completion=13)
    done = mine.receive_many()
    assert [(message.user_data, message.res) for message in done] == [
        (10, 0),
        (11, -errno.ETIMEDOUT),
        (12, -errno.EMSGSIZE),
        (13, -errno.EPIPE),
    ]
    assert (done[0].flags, done[0].payload) == (7, b"done")
    back.send_many([1, 2, 3, 4])
    with pytest.raises(umsg.Full):
        sender.send_completing(5, to=back, completion=14)
    for bad in ((), "7", (1, 2, 3, b"", 5)):
        with pytest.raises(TypeError):
            sender.send_completing(5, to=back, completion=bad)  # type: ignore[arg-type]
    back.close()
    with pytest.raises(umsg.HandleClosed):
        sender.send_completing(5, to=back, completion=14)


def test_a_descriptor_passes_with_a_ticket() -> None:
    ring = umsg.Ring()
    sender = ring.sender()
    with open(os.devnull) as file:
        ticket = sender.pass_fd(file.fileno())
        descriptor = ring.take_fd(ticket)
        assert descriptor is not None and os.path.sameopenfile(descriptor, file.fileno())
        os.close(descriptor)
        assert ring.take_fd(ticket) is None
    with pytest.raises(umsg.Invalid, match="descriptor"):
        sender.pass_fd(-1)
    with pytest.raises(umsg.Error) as bad:
        sender.pass_fd(2**31 - 1)
    assert bad.value.errno == errno.EBADF
