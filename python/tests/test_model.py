"""POSIX queues and System V queues beside plain models, by hypothesis."""

from __future__ import annotations

import shutil
import tempfile

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

import umsg

CAPACITY, SIZE = 5, 32
messages = st.binary(max_size=SIZE + 2)
priorities = st.sampled_from([0, 0, 0, 1, 7, 32767, 32768])


class QueueMachine(RuleBasedStateMachine):
    """A queue, and a list of (priority, number, message) in order of delivery."""

    leases = Bundle("leases")
    rooms = Bundle("rooms")

    def __init__(self) -> None:
        super().__init__()
        self.home = tempfile.mkdtemp(prefix="umsg-python-", dir="/dev/shm")
        self.queue = umsg.Queue(
            "/model", create=True, max_messages=CAPACITY, message_size=SIZE, namespace=self.home
        )
        self.model: list[tuple[int, int, bytes]] = []
        self.held = 0
        self.number = 0

    def teardown(self) -> None:
        self.queue.close()
        shutil.rmtree(self.home)

    def room(self) -> int:
        return CAPACITY - len(self.model) - self.held

    def add(self, message: bytes, priority: int) -> None:
        self.number += 1
        self.model.append((-priority, self.number, message))
        self.model.sort(key=lambda item: item[:2])

    @rule(message=messages, priority=priorities, kind=st.sampled_from([bytes, bytearray, memoryview]))
    def send(self, message: bytes, priority: int, kind: type) -> None:
        try:
            self.queue.try_send(kind(message), priority)
        except umsg.Full:
            assert self.room() == 0
        except umsg.TooLong:
            assert len(message) > SIZE
        except umsg.Invalid:
            assert priority > 32767
        else:
            assert self.room() > 0
            self.add(message, priority)

    @rule(batch=st.lists(st.tuples(st.binary(max_size=SIZE), st.integers(0, 9)), max_size=CAPACITY + 1))
    def send_batch(self, batch: list[tuple[bytes, int]]) -> None:
        try:
            self.queue.send_messages(batch, timeout=0)
        except umsg.TooLong:
            assert len(batch) > CAPACITY
        except umsg.TimedOut:
            assert len(batch) > self.room()
        else:
            for message, priority in batch:
                self.add(message, priority)

    @rule()
    def receive(self) -> None:
        try:
            message, priority = self.queue.try_receive_message()
        except umsg.Empty:
            assert not self.model
        else:
            expected = self.model.pop(0)
            assert (-priority, message) == (expected[0], expected[2])

    @rule(most=st.integers(0, CAPACITY + 1))
    def receive_batch(self, most: int) -> None:
        try:
            received = self.queue.receive_messages(most, timeout=0)
        except umsg.TimedOut:
            assert not self.model and most
        else:
            expected, self.model = self.model[:most], self.model[most:]
            assert received == [(message, -priority) for priority, _, message in expected]

    @rule(target=leases)
    def lease(self) -> object:
        try:
            job = self.queue.try_receive_lease()
        except umsg.Empty:
            assert not self.model
            return multiple()
        expected = self.model.pop(0)
        self.held += 1
        assert (-job.priority, bytes(job), bytes(job.data)) == (expected[0], expected[2], expected[2])
        return (job, expected)

    @rule(taken=leases, returned=st.booleans())
    def end_lease(self, taken: tuple[umsg.Lease, tuple[int, int, bytes]], returned: bool) -> None:
        job, message = taken
        try:
            job.give_back() if returned else job.acknowledge()
        except umsg.LeaseEnded:
            assert not job.is_open
            return
        self.held -= 1
        if returned:
            # The message returns to its place, also if a later message has returned before.
            self.model.append(message)
            self.model.sort(key=lambda item: item[:2])

    @rule(target=rooms, size=st.integers(0, SIZE + 1))
    def reserve(self, size: int) -> object:
        try:
            room = self.queue.try_reserve(size, priority=3)
        except umsg.Full:
            assert self.room() == 0
        except umsg.TooLong:
            assert size > SIZE
        else:
            self.held += 1
            return room
        return multiple()

    @rule(room=rooms, message=messages, cancel=st.booleans())
    def end_reservation(self, room: umsg.Reservation, message: bytes, cancel: bool) -> None:
        if not room.is_open:
            return
        if cancel or len(message) > len(room):
            room.cancel()
        else:
            room.data[: len(message)] = message
            room.commit(size=len(message))
            self.add(message, 3)
        self.held -= 1

    @invariant()
    def counts_agree(self) -> None:
        now = self.queue.attributes()
        assert (now.messages, now.leased + now.reserved) == (len(self.model), self.held)
        assert [message.data for message in self.queue.peek_many()] == [item[2] for item in self.model]


class SysVMachine(RuleBasedStateMachine):
    """A System V queue, and a list of (type, message) in order of arrival."""

    def __init__(self) -> None:
        super().__init__()
        self.home = tempfile.mkdtemp(prefix="umsg-python-", dir="/dev/shm")
        self.queue = umsg.SysVQueue(namespace=self.home)
        self.model: list[tuple[int, bytes]] = []

    def teardown(self) -> None:
        self.queue.close()
        shutil.rmtree(self.home)

    @rule(message=messages, kind=st.integers(-1, 4))
    def send(self, message: bytes, kind: int) -> None:
        try:
            self.queue.try_send(message, kind)
        except umsg.Invalid:
            assert kind < 1
        else:
            self.model.append((kind, message))

    @rule(kind=st.integers(-5, 5), other=st.booleans())
    def receive(self, kind: int, other: bool) -> None:
        try:
            message, found = self.queue.try_receive_message(kind, other)
        except umsg.Invalid:
            assert other and kind < 1
            return
        except umsg.Empty:
            assert self.wanted(kind, other) is None
            return
        at = self.wanted(kind, other)
        assert at is not None
        assert self.model.pop(at) == (found, message)

    def wanted(self, kind: int, other: bool) -> int | None:
        """Returns the place of the message that msgrcv(2) takes."""
        types = [found for found, _ in self.model]
        if other:
            fit = [at for at, found in enumerate(types) if found != kind]
        elif kind > 0:
            fit = [at for at, found in enumerate(types) if found == kind]
        elif kind == 0:
            fit = list(range(len(types)))
        else:
            lowest = min((found for found in types if found <= -kind), default=None)
            fit = [at for at, found in enumerate(types) if found == lowest]
        return fit[0] if fit else None

    @invariant()
    def contents_agree(self) -> None:
        assert [(message.type, message.data) for message in self.queue.peek_many()] == self.model


TestQueueMachine = QueueMachine.TestCase
TestSysVMachine = SysVMachine.TestCase
TestQueueMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestSysVMachine.settings = TestQueueMachine.settings
