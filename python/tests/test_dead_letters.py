"""Dead letters, redrives, notifications and snapshots."""

from __future__ import annotations

import errno
import gc
import os
import pickle
import signal
import threading
from collections.abc import Callable

import pytest

import umsg


@pytest.fixture
def failed(namespace: str) -> umsg.Queue:
    """Returns the dead-letter queue of /jobs, with the letters b"a", b"b" and b"c"."""
    jobs = umsg.Queue("/jobs", create=True, max_messages=4, max_deliveries=1, dead_letter="/jobs.failed")
    for message in (b"a", b"b", b"c"):
        jobs.send(message)
        jobs.receive_lease().give_back()
    return umsg.Queue("/jobs.failed")


def test_a_history_says_where_a_dead_letter_comes_from(failed: umsg.Queue) -> None:
    first = failed.dead_letters()[0]
    assert (first.source, first.reason, first.pid, first.uid) == ("/jobs", "undelivered", os.getpid(), os.getuid())
    assert (first.deliveries, first.redrives) == (1, 0)
    assert first.first_delivery is not None and first.sent <= first.first_delivery + 1 and first.dead > 0
    assert first.last_delivery == first.first_delivery
    with failed.receive_lease() as letter:
        history = letter.history()
        assert history is not None
        assert (history.id, letter.message_id()) == (first.id, first.id)
    with pytest.raises(umsg.LeaseEnded):
        letter.history()
    with pytest.raises(umsg.LeaseEnded):
        letter.message_id()
    peeked = failed.peek()
    assert peeked is not None and peeked.history is not None and peeked.history.source == "/jobs"


def test_other_messages_have_no_history(queue: umsg.Queue, sysv: umsg.SysVQueue) -> None:
    queue.send(b"job")
    with queue.receive_lease() as job:
        assert job.history() is None and job.message_id() > 0
    assert queue.dead_letters() == [] and queue.redrive().messages == 0
    sysv.send(b"job")
    with sysv.receive_lease() as typed, pytest.raises(AttributeError):
        typed.history()  # type: ignore[attr-defined]


def test_dead_letters_are_selected(failed: umsg.Queue) -> None:
    letters = failed.peek_dead_letters()
    assert [(letter.data, letter.size) for letter in letters] == [(b"a", 1), (b"b", 1), (b"c", 1)]
    ids = [letter.history.id for letter in letters]
    assert [letter.id for letter in failed.dead_letters(id=ids[1])] == [ids[1]]
    assert [letter.id for letter in failed.dead_letters(most=2)] == ids[:2]
    assert len(failed.dead_letters(source="/jobs", reason="undelivered")) == 3
    assert failed.dead_letters(source=b"/mails") == failed.dead_letters(reason="expired") == []
    assert failed.peek_dead_letters(0, most=1)[0].data == b""
    assert failed.attributes().messages == 3


def test_dead_letters_are_sent_back(failed: umsg.Queue) -> None:
    jobs = umsg.Queue("/jobs")
    second = failed.dead_letters()[1].id
    assert failed.redrive(id=second).messages == 1
    with jobs.receive_lease() as job:
        history = job.history()
        assert bytes(job) == b"b" and job.deliveries == 1 and history is not None and history.redrives == 1
    other = umsg.Queue("/other", create=True, max_messages=1)
    result = failed.redrive(to="/other")
    assert result.messages == 1 and other.receive() == b"a"
    refused = result.refused[0]
    assert (refused.queue, refused.messages) == ("/other", 1)
    assert isinstance(refused.error, umsg.Full) and refused.error.errno == errno.EAGAIN
    assert "1 refused" in repr(result) and "/other" in repr(refused)
    missing = failed.redrive(to="/missing").refused[0]
    assert isinstance(missing.error, umsg.NotFound)
    assert failed.redrive(most=0).messages == 0
    assert failed.redrive().messages == 1 and jobs.receive() == b"c"


def test_bad_selections(failed: umsg.Queue) -> None:
    with pytest.raises(umsg.Invalid, match="reason must be one of"):
        failed.redrive(reason="lost")  # type: ignore[arg-type]
    with pytest.raises(umsg.Invalid, match="most"):
        failed.dead_letters(most=-1)
    with pytest.raises(OverflowError):
        failed.dead_letters(id=-1)
    with pytest.raises(TypeError):
        failed.redrive(to=7)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        failed.peek_dead_letters("1")  # type: ignore[arg-type]
    for write_only in [umsg.Queue("/jobs.failed", read=False)]:
        with pytest.raises(umsg.Error):
            write_only.redrive()
    failed.close()
    calls: list[Callable[[], object]] = [failed.dead_letters, failed.peek_dead_letters, failed.redrive]
    for call in calls:
        with pytest.raises(umsg.HandleClosed):
            call()


def test_a_function_is_called_once(queue: umsg.Queue) -> None:
    heard: list[umsg.Notified] = []
    news = threading.Event()

    def tell(notified: umsg.Notified) -> None:
        heard.append(notified)
        news.set()

    registration = queue.notify(tell)
    assert registration.is_armed
    with pytest.raises(umsg.Busy):
        queue.notify(tell)
    queue.send(b"1")
    assert news.wait(60)
    queue.receive()
    queue.send(b"2")
    assert (heard[0].pid, heard[0].uid) == (os.getpid(), os.getuid()) and len(heard) == 1
    assert not registration.is_armed and "ended" in repr(registration)


def test_a_signal_notifies(queue: umsg.Queue) -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
    try:
        with queue.notify(signal=signal.SIGUSR1) as registration:
            queue.send(b"news")
            # Another thread may take the signal. Python then runs the handler some time later, in the main thread.
            for _ in range(6000):
                if heard:
                    break
                threading.Event().wait(0.01)
            assert heard == [signal.SIGUSR1] and not registration.is_armed
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_registration_ends(queue: umsg.Queue) -> None:
    with queue.notify(lambda notified: None) as registration:
        assert registration.is_armed
    assert not registration.is_armed
    with pytest.raises(umsg.LeaseEnded):
        registration.__enter__()
    dropped = queue.notify(signal=0)
    del dropped
    gc.collect()
    with queue.notify(signal=0) as again:
        # The registration keeps the queue open.
        queue.close()
        assert again.is_armed
        other = umsg.Queue("/q")
        other.send(b"")
        assert not again.is_armed


def test_a_program_waits_for_a_notification(queue: umsg.Queue) -> None:
    with queue.notify_waiter() as news:
        with pytest.raises(umsg.TimedOut):
            news.try_wait()
        with pytest.raises(umsg.TimedOut):
            news.wait(timeout=0.01)
        with pytest.raises(umsg.Busy):
            queue.notify_waiter()
        sender = threading.Timer(0.02, queue.send, (b"news",))
        sender.start()
        heard = news.wait(timeout=60)
        sender.join()
        assert (heard.pid, heard.uid) == (os.getpid(), os.getuid())
        # The registration has ended, and its result stays.
        assert news.try_wait().pid == news.wait().pid == os.getpid()
        assert queue.receive() == b"news"
        queue.notify_waiter().close()
        assert not news.closed
    assert news.closed and "closed" in repr(news)
    for call in (news.wait, news.try_wait, news.__enter__):
        with pytest.raises(umsg.LeaseEnded, match="notify_waiter"):
            call()


def test_a_signal_ends_the_wait_for_a_notification(queue: umsg.Queue) -> None:
    class Enough(Exception):
        pass

    def stop(number: int, frame: object) -> None:
        raise Enough

    before = signal.signal(signal.SIGALRM, stop)
    try:
        with queue.notify_waiter() as news:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(Enough):
                news.wait()
            # The registration is still there.
            queue.send(b"news")
            assert news.wait(timeout=60).pid == os.getpid()
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_waiting_thread_keeps_its_registration_until_its_call_ends(queue: umsg.Queue) -> None:
    news = queue.notify_waiter()
    heard: list[umsg.Notified] = []
    thread = threading.Thread(target=lambda: heard.append(news.wait()))
    thread.start()
    # The registration is in use as soon as the thread waits.
    for _ in range(6000):
        try:
            with pytest.raises(umsg.TimedOut):
                news.wait(timeout=0)
        except umsg.Busy:
            break
        threading.Event().wait(0.01)
    else:
        pytest.fail("the thread does not wait")
    news.close()
    assert news.closed
    queue.send(b"news")
    thread.join()
    assert heard[0].pid == os.getpid()
    # The registration has ended with the call. Closing it needs no open queue.
    queue.receive()
    again = queue.notify_waiter()
    queue.close()
    again.close()


def test_a_forked_child_does_not_own_the_registration(
    queue: umsg.Queue, in_child: Callable[[Callable[[], None]], int]
) -> None:
    news = queue.notify_waiter()

    def work() -> None:
        with pytest.raises(umsg.Error) as gone:
            news.try_wait()
        assert gone.value.errno == errno.ECANCELED
        news.close()

    assert in_child(work) == 0
    queue.send(b"news")
    assert news.wait(timeout=60).pid == os.getpid()


def test_delayed_messages_are_shown(queue: umsg.Queue) -> None:
    queue.send_after(b"tomorrow", 86400)
    queue.send_after(b"in an hour", 3600, priority=5)
    assert queue.attributes().delayed == 2
    soon, later = queue.delayed_messages()
    assert (soon.data, soon.priority, later.data) == (b"in an hour", 5, b"tomorrow")
    assert soon.due is not None and later.due is not None and soon.sent < soon.due < later.due
    assert [message.data for message in queue.delayed_messages(1)] == [b"in an hour"]
    assert queue.peek() is None


def test_bad_notifications(queue: umsg.Queue) -> None:
    with pytest.raises(umsg.Invalid, match="either a function or a signal"):
        queue.notify()
    with pytest.raises(umsg.Invalid, match="either a function or a signal"):
        queue.notify(print, signal=1)
    with pytest.raises(TypeError, match="callable"):
        queue.notify(1)  # type: ignore[arg-type]
    with pytest.raises(umsg.Invalid):
        queue.notify(signal=65)
    queue.close()
    with pytest.raises(umsg.HandleClosed):
        queue.notify(signal=0)
    with pytest.raises(umsg.HandleClosed):
        queue.notify_waiter()
    with pytest.raises(umsg.HandleClosed):
        queue.delayed_messages()
    with umsg.Queue("/q") as other, pytest.raises(umsg.Invalid, match="timeout"):
        other.notify_waiter().wait(timeout=-1)


def test_a_snapshot_restores_a_queue(failed: umsg.Queue) -> None:
    snapshot = failed.snapshot()
    assert (snapshot.name, len(snapshot), snapshot.send_closed) == ("/jobs.failed", 3, False)
    for same in (umsg.Snapshot.from_bytes(bytearray(snapshot.to_bytes())), pickle.loads(pickle.dumps(snapshot))):
        first = same.messages()[0]
        assert (first.data, first.priority, first.pid, first.returns, first.delay) == (b"a", 0, os.getpid(), 0, None)
        assert first.history is not None and first.history.source == "/jobs"
        assert (same.taken, same.max_messages) == (snapshot.taken, snapshot.max_messages)
    copy = snapshot.restore("/copy")
    assert copy.message_size == snapshot.message_size and copy.receive_many() == [b"a", b"b", b"c"]
    with pytest.raises(umsg.Exists):
        snapshot.restore("/copy")
    snapshot.send_all(copy)
    assert copy.attributes().messages == failed.attributes().messages == 3
    small = umsg.Queue("/small", create=True, max_messages=2)
    with pytest.raises(umsg.Error):
        snapshot.send_all(small)
    assert small.attributes().messages == 0


def test_a_snapshot_of_a_system_v_queue(sysv: umsg.SysVQueue) -> None:
    sysv.send_messages([(b"five", 5), (b"one", 1)])
    snapshot = pickle.loads(pickle.dumps(sysv.snapshot()))
    assert (snapshot.key, len(snapshot), snapshot.send_closed) == (7, 2, False)
    assert [(saved.data, saved.type, saved.pid) for saved in snapshot.messages()] == [
        (b"five", 5, os.getpid()),
        (b"one", 1, os.getpid()),
    ]
    sysv.receive_many()
    snapshot.send_all(sysv)
    assert sysv.receive_messages() == [(b"five", 5), (b"one", 1)]
    sysv.close()
    with pytest.raises(umsg.HandleClosed):
        sysv.snapshot()
    with pytest.raises(umsg.HandleClosed):
        snapshot.send_all(sysv)


def test_bad_snapshots(queue: umsg.Queue, sysv: umsg.SysVQueue) -> None:
    queue.send(b"job")
    saved = queue.snapshot().to_bytes()
    for kind in (umsg.Snapshot, umsg.SysVSnapshot):
        with pytest.raises(umsg.Invalid, match="not a snapshot"):
            kind.from_bytes(b"no snapshot")
        with pytest.raises(TypeError):
            kind.from_bytes("text")  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            kind()
    for length in range(len(saved)):
        with pytest.raises(umsg.Error):
            umsg.Snapshot.from_bytes(saved[:length])
    with pytest.raises(umsg.Invalid, match="format"):
        umsg.SysVSnapshot.from_bytes(saved)
    with pytest.raises(umsg.Corrupted):
        umsg.Snapshot.from_bytes(saved[:-9] + bytes([saved[-9] ^ 1]) + saved[-8:])
    with pytest.raises(TypeError):
        umsg.Snapshot.from_bytes(saved).send_all(sysv)  # type: ignore[arg-type]
    queue.close()
    with pytest.raises(umsg.HandleClosed):
        queue.snapshot()
