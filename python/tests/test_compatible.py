"""umsg.posix_ipc and umsg.sysv_ipc: the tests of the original packages, a comparison with them, and the differences of umsg.

`UMSG_TEST_ORIGINALS` is a directory with the source distributions of posix_ipc and sysv_ipc, from which both are installed. With
`UMSG_TEST_ORIGINALS=none` the tests that need them are skipped.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import importlib
import inspect
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import umsg
import umsg.posix_ipc as posix_ipc
import umsg.sysv_ipc as sysv_ipc

VERSIONS = {"posix_ipc": "1.3.2", "sysv_ipc": "1.2.0"}


def sources() -> Path:
    """Returns the directory of the source distributions, or skips the test."""
    directory = os.environ.get("UMSG_TEST_ORIGINALS")
    if directory == "none":
        pytest.skip("UMSG_TEST_ORIGINALS=none: the packages posix_ipc and sysv_ipc are not compared")
    if directory is None:
        pytest.fail(
            "UMSG_TEST_ORIGINALS must be a directory with the source distributions of posix_ipc and sysv_ipc (pip download --no-deps "
            "--no-binary posix_ipc,sysv_ipc posix_ipc==1.3.2 sysv_ipc==1.2.0; both must be installed from them), or none",
            pytrace=False,
        )
    return Path(directory)


def original(package: str) -> ModuleType:
    sources()
    return importlib.import_module(package)


class Suite:
    """The tests of an original package, which run in a process of their own. They sleep most of the time."""

    def __init__(self, package: str, archive: Path, directory: Path) -> None:
        with tarfile.open(archive) as source:
            source.extractall(directory, filter="data") if sys.version_info >= (3, 12) else source.extractall(directory)
        self.namespace = tempfile.mkdtemp(prefix="umsg-python-", dir="/dev/shm")
        self.output = directory / "output"
        runner = Path(__file__).with_name("originals.py")
        unpacked = directory / archive.name.replace(".tar.gz", "")
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, str(runner), package, str(unpacked)],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "UMSG_DIR": self.namespace},
            )

    def end(self) -> None:
        # A test that is killed leaves its semaphores and shared memory.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=60)
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.namespace)


@pytest.fixture(scope="module", autouse=True)
def suites(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Suite]]:
    """Runs the tests of the original packages beside the tests of this file."""
    wanted = any("original_package_pass" in item.name for item in request.session.items)
    directory = os.environ.get("UMSG_TEST_ORIGINALS", "none") if wanted else "none"
    running: dict[str, Suite] = {}
    try:
        for package, version in VERSIONS.items() if directory != "none" else ():
            archive = Path(directory) / f"{package}-{version}.tar.gz"
            running[package] = Suite(package, archive, tmp_path_factory.mktemp(package))
        yield running
    finally:
        for suite in running.values():
            suite.end()


@pytest.mark.parametrize("package", VERSIONS)
def test_each_public_name_of_the_original_package_exists(package: str) -> None:
    module, ours = original(package), importlib.import_module(f"umsg.{package}")
    for name in dir(module):
        if name.startswith("__"):
            continue
        assert hasattr(ours, name), name
        theirs = getattr(module, name)
        if isinstance(theirs, (int, str)):
            assert getattr(ours, name) == theirs, name
        elif name == "MessageQueue":
            assert not set(dir(theirs)) - set(dir(getattr(ours, name)))
        elif name not in ("unlink_message_queue", "remove_message_queue", "ftok"):
            assert getattr(ours, name) is theirs, name


class Both:
    """The original module and the module of umsg. Each call is made on both, and its results must be equal."""

    def __init__(self, theirs: ModuleType, ours: ModuleType) -> None:
        self.modules = theirs, ours
        self.log: list[str] = []

    def call(self, text: str, calls: list[Callable[[], Any]], same: Callable[[Any], Any] = lambda value: value) -> list[Any]:
        """Makes the calls. Returns their results if they are equal; a failure is an empty list."""
        self.log.append(text if len(text) < 300 else f"{text[:200]} ... {text[-80:]}")
        results, values = [], []
        for call in calls:
            try:
                value = call()
                results.append(("returned", same(value)))
                values.append(value)
            except (KeyboardInterrupt, SystemExit):
                raise
            except Exception as error:
                results.append((type(error).__name__, self.text(error)))
        assert results[0] == results[1], "\n".join(self.log[-30:])
        return values if len(values) == 2 else []

    @staticmethod
    def text(error: Exception) -> Any:
        if isinstance(error, OSError):
            return error.errno, str(error)
        # For the original package, the texts of the other exceptions come from Python.
        return None if isinstance(error, (TypeError, OverflowError, UnicodeError, AttributeError)) else str(error)

    def attribute(self, pair: list[Any], name: str, same: Callable[[Any], Any] = lambda value: value) -> None:
        self.call(f"{name} of {pair[1]!r}", [lambda: getattr(pair[0], name), lambda: getattr(pair[1], name)], same)

    def set(self, pair: list[Any], name: str, value: Any) -> None:
        self.call(f"{name} = {value!r}", [lambda: setattr(pair[0], name, value), lambda: setattr(pair[1], name, value)])

    def method(self, pair: list[Any], name: str, *given: Any, **named: Any) -> list[Any]:
        text = f"{pair[1]!r}.{name}(*{given!r}, **{named!r})"
        return self.call(text, [lambda: getattr(pair[0], name)(*given, **named), lambda: getattr(pair[1], name)(*given, **named)])

    def make(self, *given: Any, **named: Any) -> list[Any]:
        text = f"MessageQueue(*{given!r}, **{named!r})"
        theirs, ours = self.modules
        calls: list[Callable[[], Any]] = [lambda: theirs.MessageQueue(*given, **named), lambda: ours.MessageQueue(*given, **named)]
        return self.call(text, calls, same=lambda queue: None)


MESSAGES = [b"", b"a", b"0123456789abcdef", b"0123456789abcdefg", "text", "\u00fc" * 8, "\u00fc" * 9, bytearray(b"xyz"), memoryview(b"view")]


def choose(rng: random.Random, common: list[Any], rare: list[Any]) -> Any:
    return rng.choice(rare if rng.random() < 0.15 else common)


def would_wait(queue: Any, sends: bool) -> bool:
    """Returns whether a call without a time-out waits. The queue has no other user."""
    try:
        return bool(queue.block) and queue.current_messages == (queue.max_messages if sends else 0)
    except Exception:
        return False


def posix_step(rng: random.Random, both: Both, pairs: list[list[Any]], names: list[Any]) -> None:
    flags = [0, 0o100, 0o300, 0o4100]
    operation = rng.choice(["open", "send", "send", "send", "receive", "receive", "look", "block", "notify", "close", "unlink"])
    if operation == "open" or not pairs:
        named = {"max_messages": choose(rng, [1, 3, 10], [0, -1]), "max_message_size": choose(rng, [16], [0, -5])}
        named["read"], named["write"] = rng.choice([(True, True), (True, True), (False, True), (True, False), (False, False)])
        pair = both.make(choose(rng, names[:3], names), choose(rng, flags, [0o200, 0o300]), **named)
        if pair:
            pairs.append(pair)
        if len(pairs) > 3:
            both.method(pairs.pop(0), "close")
        return
    pair = rng.choice(pairs)
    timeout = choose(rng, [None, 0, 0.001, 0.0], [-1, -0.5, "1", False, b"", 1j])
    if operation in ("send", "receive") and timeout is None and would_wait(pair[0], operation == "send"):
        timeout = 0
    if operation == "send":
        priority = choose(rng, [0, 1, 5, 32767], [-1, 32768, 2**32, 2**64, "1", 1.5, True])
        both.method(pair, "send", rng.choice(MESSAGES), timeout, priority)
    elif operation == "receive":
        both.method(pair, "receive", timeout)
    elif operation == "look":
        for name in ("name", "mode", "max_messages", "max_message_size", "current_messages", "block"):
            both.attribute(pair, name)
        both.attribute(pair, "mqd", lambda value: value == -1)
        both.call("str", [lambda: str(pair[0]), lambda: str(pair[1])])
        both.call("repr", [lambda: repr(pair[0]), lambda: repr(pair[1])])
    elif operation == "block":
        both.set(pair, "block", rng.choice([True, False, 1, 0, ""]))
    elif operation == "notify":
        # SIGURG is ignored by default, so the test may request the signal.
        given = choose(rng, [None, int(signal.SIGURG), 0], [65, -1, 2**40, "s", (), (1, 2), (len,), [len, 1]])
        both.method(pair, "request_notification", given)
    elif operation == "close":
        if rng.random() < 0.3:
            both.method(pair, "close")
    elif rng.random() < 0.5:
        both.method(pair, "unlink")
    else:
        name = choose(rng, names[:3], [*names, None, 3])
        theirs, ours = both.modules
        both.call(f"unlink {name!r}", [lambda: theirs.unlink_message_queue(name), lambda: ours.unlink_message_queue(name)])


@pytest.mark.parametrize("seed", range(8))
def test_random_calls_have_the_results_of_posix_ipc(namespace: str, seed: int) -> None:
    both = Both(original("posix_ipc"), posix_ipc)
    rng = random.Random(seed)
    start = f"/umsg-{os.getpid()}-{seed}"
    names: list[Any] = [f"{start}a", f"{start}b", f"{start}c".encode()]
    names += [start[1:], "/", "", f"{start}/x", "/" + "n" * 255, "/" + "n" * 256, 7]
    pairs: list[list[Any]] = []
    try:
        for _ in range(400):
            posix_step(rng, both, pairs, names)
    finally:
        for pair in pairs:
            for queue in pair:
                if queue.mqd != -1:
                    queue.close()
        for name in "abc":
            try:
                both.modules[0].unlink_message_queue(start + name)
            except both.modules[0].ExistentialError:
                pass


def sysv_step(rng: random.Random, both: Both, pairs: list[list[Any]], keys: list[Any]) -> None:
    theirs, ours = both.modules
    operation = rng.choice(["open", "send", "send", "send", "receive", "receive", "look", "set", "remove"])
    if operation == "open" or not pairs:
        flags = choose(rng, [0, 0o1000, 0o3000], [0o2000, 0o7000])
        longest = choose(rng, [2048, 16], [0, 10000])
        pair = both.make(choose(rng, keys[:3], keys), flags, rng.choice([0o600, 0o640, 0o7666]), longest)
        if pair:
            pairs.append(pair)
        del pairs[:-4]
        return
    pair = rng.choice(pairs)
    if operation == "send":
        kind = choose(rng, [1, 2, 3], [0, -1, 2**31, 2**31 - 1, "1", 1.5])
        block = rng.choice([True, False])
        try:
            block = block and pair[0].current_messages < 50 and pair[0].max_size > 4000
        except Exception:
            pass
        both.method(pair, "send", choose(rng, MESSAGES, [b"l" * 3000, b"m" * 9000]), block, kind)
    elif operation == "receive":
        both.method(pair, "receive", False, choose(rng, [0, 1, 2, -3], [-(2**31), 2**31, "1", 1.5]))
    elif operation == "look":
        for name in ("key", "mode", "uid", "gid", "cuid", "cgid", "current_messages", "max_size", "last_send_pid", "last_receive_pid"):
            both.attribute(pair, name)
        for name in ("last_send_time", "last_receive_time", "last_change_time"):
            both.attribute(pair, name, bool)
        both.call("str", [lambda: str(pair[0]).split("id")[0], lambda: str(pair[1]).split("id")[0]])
        both.call("repr", [lambda: repr(pair[0]), lambda: repr(pair[1])])
    elif operation == "set":
        name = rng.choice(["uid", "gid", "mode", "max_size", "key", "cuid", "id", "last_send_time"])
        values: dict[str, list[Any]] = {"mode": [0o600, 0o644, 0o10600], "max_size": [100, 2048, 16384, 0]}
        values.update(uid=[os.getuid()], gid=[os.getgid()])
        both.set(pair, name, choose(rng, values.get(name, [1]), ["1", 1.5, None]))
    elif rng.random() < 0.5:
        both.method(pair, "remove")
    else:
        both.call("remove_message_queue", [lambda: theirs.remove_message_queue(pair[0].id), lambda: ours.remove_message_queue(pair[1].id)])


@pytest.mark.parametrize("seed", range(8))
def test_random_calls_have_the_results_of_sysv_ipc(namespace: str, seed: int) -> None:
    both = Both(original("sysv_ipc"), sysv_ipc)
    rng = random.Random(seed)
    first = 0x5500_0000 + (os.getpid() << 8 & 0xFFFF00) + seed * 4
    keys: list[Any] = [first, first + 1, first + 2, first + 2**40, "k", 2**70, 1.5]
    pairs: list[list[Any]] = []
    try:
        for _ in range(400):
            sysv_step(rng, both, pairs, keys)
    finally:
        for key in keys[:3]:
            try:
                both.modules[0].MessageQueue(key).remove()
            except both.modules[0].ExistentialError:
                pass


def test_ftok_returns_the_key_of_the_original(tmp_path: Path) -> None:
    theirs = original("sysv_ipc")
    for path in ("/", "/dev", "/proc/self", str(tmp_path)):
        for number in (0, 1, 127, 200, 256, -1):
            expected = theirs.ftok(path, number, silence_warning=True)
            assert sysv_ipc.ftok(path, number, silence_warning=True) == expected


def as_nobody(work: Callable[[], list[Any]]) -> Any:
    """Returns the result of a function that runs in a process of another user."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            os.write(writer, repr(work()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    return ast.literal_eval(text.decode())


def outcome(call: Callable[[], Any]) -> Any:
    """Returns the result of a call, or its exception, as a literal."""
    try:
        value = call()
    except Exception as error:
        return type(error).__name__, Both.text(error)
    return value if isinstance(value, (int, tuple)) else None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has two users")
@pytest.mark.parametrize("mode", [0o600, 0o622, 0o644, 0o666, 0])
def test_another_user_has_the_rights_of_posix_ipc(namespace: str, mode: int) -> None:
    name = f"/umsg-{os.getpid()}-mode"
    os.chmod(namespace, 0o1777)

    def outcomes(module: Any) -> list[Any]:
        calls: list[Callable[[], Any]] = [
            lambda: module.MessageQueue(name),
            lambda: module.MessageQueue(name, write=False).receive(),
            lambda: module.MessageQueue(name, read=False).send("y"),
            lambda: module.MessageQueue(name, module.O_CREX),
            lambda: module.MessageQueue(name, module.O_CREX, max_messages=0),
            lambda: module.MessageQueue(name, module.O_CREAT, max_messages=0),
            lambda: module.unlink_message_queue(name),
        ]
        return [outcome(call) for call in calls]

    found = []
    for module in (original("posix_ipc"), posix_ipc):
        mask = os.umask(0)
        queue = module.MessageQueue(name, module.O_CREX, mode=mode, max_messages=2, max_message_size=9)
        os.umask(mask)
        queue.send("x")
        found.append(as_nobody(lambda module=module: outcomes(module)))  # type: ignore[misc]
        queue.close()
        queue.unlink()
    assert found[0] == found[1]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has two users")
@pytest.mark.parametrize("mode", [0o600, 0o622, 0o644, 0o666, 0])
def test_another_user_has_the_rights_of_sysv_ipc(namespace: str, mode: int) -> None:
    key = 0x5600_0000 + (os.getpid() & 0xFFFFFF)
    os.chmod(namespace, 0o1777)

    def outcomes(module: Any) -> list[Any]:
        calls: list[Callable[[], Any]] = [
            lambda: module.MessageQueue(key),
            lambda: module.MessageQueue(key, mode=0o400),
            lambda: module.MessageQueue(key, mode=0o200),
            lambda: module.MessageQueue(key, module.IPC_CREAT),
            lambda: module.MessageQueue(key, module.IPC_CREX),
        ]
        if mode & 0o6:
            queue = module.MessageQueue(key, mode=0)
            calls += [lambda: queue.send("y"), lambda: queue.receive(False), lambda: queue.mode, queue.remove]
            calls += [lambda: setattr(queue, "mode", 0o666), lambda: setattr(queue, "uid", 65534)]
        return [outcome(call) for call in calls]

    found = []
    for module in (original("sysv_ipc"), sysv_ipc):
        queue = module.MessageQueue(key, module.IPC_CREX, mode=mode)
        queue.send("x")
        found.append(as_nobody(lambda module=module: outcomes(module)))  # type: ignore[misc]
        queue.remove()
    assert found[0] == found[1]


@pytest.fixture
def posix(namespace: str) -> Iterator[posix_ipc.MessageQueue]:
    queue = posix_ipc.MessageQueue("/q", posix_ipc.O_CREX, max_messages=2, max_message_size=16)
    yield queue
    if queue.mqd != -1:
        queue.close()


def other_process(program: str) -> None:
    """Runs a program in another process of the same namespace."""
    program = f"import umsg, umsg.posix_ipc as posix_ipc, umsg.sysv_ipc as sysv_ipc\n{program}"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_queues_are_those_of_umsg(posix: posix_ipc.MessageQueue) -> None:
    posix.send("hello", priority=4)
    with umsg.Queue("/q") as queue:
        assert queue.receive_message() == (b"hello", 4)
    sysv = sysv_ipc.MessageQueue(99, sysv_ipc.IPC_CREX)
    sysv.send("hello", type=4)
    with umsg.SysVQueue(99) as by_key:
        assert by_key.receive_message() == (b"hello", 4)


def test_wrong_messages_raise_type_errors(posix: posix_ipc.MessageQueue) -> None:
    sysv = sysv_ipc.MessageQueue(None, sysv_ipc.IPC_CREX)
    wrong: list[Any] = [None, 5, [b"x"], object()]
    for message in wrong:
        with pytest.raises(TypeError):
            posix.send(message)
        with pytest.raises(TypeError):
            sysv.send(message)
    with pytest.raises(BufferError):
        posix.send(memoryview(b"0123456789")[::2])
    with pytest.raises(UnicodeEncodeError):
        posix.send("\ud800")
    assert posix.current_messages == sysv.current_messages == 0


def test_another_process_registered_for_the_notification_is_busy(posix: posix_ipc.MessageQueue) -> None:
    posix.request_notification(signal.SIGURG)
    program = """
queue = posix_ipc.MessageQueue("/q")
try:
    queue.request_notification(10)
    raise SystemExit("the registration was accepted")
except posix_ipc.BusyError as error:
    assert str(error) == "The queue is already delivering notifications elsewhere", error
"""
    other_process(program)
    second = posix_ipc.MessageQueue("/q")
    second.close()  # As mq_close does: the registration of the process ends, whichever of its descriptors is closed.
    other_process('posix_ipc.MessageQueue("/q").request_notification(10)')


def test_a_notification_of_another_process_calls_the_function_in_a_thread(posix: posix_ipc.MessageQueue) -> None:
    called: list[tuple[object, int]] = []
    done = threading.Event()

    def callback(argument: object) -> None:
        called.append((argument, threading.get_ident()))
        done.set()

    argument = object()
    posix.request_notification((callback, argument))
    other_process('posix_ipc.MessageQueue("/q").send("news")')
    assert done.wait(60)
    assert called[0][0] is argument
    assert called[0][1] != threading.get_ident()
    posix.receive()
    posix.send("second")
    assert len(called) == 1


def test_an_exception_of_a_notified_function_is_reported(
    posix: posix_ipc.MessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[Any] = []
    done = threading.Event()

    def hook(report: Any) -> None:
        reported.append(report.exc_value)
        done.set()

    monkeypatch.setattr(sys, "unraisablehook", hook)
    posix.request_notification((lambda number: 1 / number, 0))
    posix.send("news")
    assert done.wait(60)
    assert isinstance(reported[0], ZeroDivisionError)


@pytest.fixture
def alarm() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Returns a function that lets SIGALRM come every tenth of a second, and each time calls another function."""
    before = signal.getsignal(signal.SIGALRM)
    unheard: list[int] = []

    def start(work: Callable[[], None]) -> None:
        left = iter(range(100))

        def handler(number: int, frame: object) -> None:
            if next(left, None) is None:
                # No signal has ended the call.
                unheard.append(number)
                raise TimeoutError
            work()

        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)

    yield start
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    assert not unheard


Alarm = Callable[[Callable[[], None]], None]


def fail() -> None:
    raise ZeroDivisionError


def interrupt() -> None:
    raise KeyboardInterrupt


def test_a_signal_ends_a_call_of_posix_ipc(posix: posix_ipc.MessageQueue, alarm: Alarm) -> None:
    ran: list[int] = []
    alarm(lambda: ran.append(1))
    with pytest.raises(posix_ipc.SignalError, match="The wait was interrupted by a signal"):
        posix.receive()
    assert ran
    posix.send("a")
    posix.send("b")
    with pytest.raises(posix_ipc.SignalError):
        posix.send("c", timeout=60)
    alarm(fail)
    with pytest.raises(posix_ipc.SignalError):
        posix.send("c")
    alarm(interrupt)
    with pytest.raises(KeyboardInterrupt):
        posix.send("c")
    assert posix.current_messages == 2


def test_a_signal_ends_a_call_of_sysv_ipc(namespace: str, alarm: Alarm) -> None:
    for longest in (16, 10000):
        queue = sysv_ipc.MessageQueue(None, sysv_ipc.IPC_CREX, max_message_size=longest)
        alarm(lambda: None)
        with pytest.raises(sysv_ipc.Error, match="Signaled while waiting"):
            queue.receive()
        queue.max_size = 16
        queue.send("0123456789abcdef")
        with pytest.raises(sysv_ipc.Error, match="Signaled while waiting"):
            queue.send("c")
        alarm(interrupt)
        with pytest.raises(KeyboardInterrupt):
            queue.send("c")
        queue.remove()


def test_removal_ends_blocked_calls_of_sysv_ipc(namespace: str) -> None:
    queue = sysv_ipc.MessageQueue(7, sysv_ipc.IPC_CREX)
    queue.max_size = 4
    ended: list[BaseException] = []

    def run(call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as error:
            ended.append(error)

    queue.send("full")
    calls: list[Callable[[], object]] = [lambda: queue.send("more"), lambda: queue.receive(type=9)]
    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    status = umsg.SysVQueue(7)
    end = time.monotonic() + 60
    while time.monotonic() < end and status.status().blocked_senders + status.status().blocked_receivers < 2:
        time.sleep(0.01)
    sysv_ipc.remove_message_queue(queue.id)
    for thread in threads:
        thread.join(60)
    assert [type(error) for error in ended] == [sysv_ipc.ExistentialError] * 2


def test_the_descriptor_is_readable_with_a_message(posix: posix_ipc.MessageQueue) -> None:
    poll = select.poll()
    poll.register(posix, select.POLLIN)
    assert poll.poll(0) == []
    other_process('posix_ipc.MessageQueue("/q").send("news")')
    assert [descriptor for descriptor, _ in poll.poll(60_000)] == [posix.mqd]


def test_classes_can_be_derived(namespace: str) -> None:
    class Named(posix_ipc.MessageQueue):
        def __init__(self, name: str) -> None:
            super().__init__(name, posix_ipc.O_CREAT)
            self.label = name.upper()

    queue = Named("/derived")
    queue.send("x")
    assert queue.receive() == (b"x", 0)
    assert queue.label == "/DERIVED"


def test_parts_without_the_original_packages_raise_import_errors(namespace: str) -> None:
    program = """
import sys
sys.modules["posix_ipc"] = sys.modules["sysv_ipc"] = None
import pickle, umsg.posix_ipc as posix_ipc, umsg.sysv_ipc as sysv_ipc

parts = [(posix_ipc.Semaphore, "/s"), (posix_ipc.SharedMemory, "/s"), (posix_ipc.unlink_semaphore, "/s")]
parts += [(posix_ipc.unlink_shared_memory, "/s"), (sysv_ipc.Semaphore, 1), (sysv_ipc.SharedMemory, 1)]
parts += [(sysv_ipc.attach, 1), (sysv_ipc.remove_semaphore, 1), (sysv_ipc.remove_shared_memory, 1)]
for part, argument in parts:
    try:
        part(argument)
        raise SystemExit(f"{part} works")
    except ImportError as error:
        package = part.__module__.split(".")[1]
        text = f"umsg.{package} has message queues only: install {package}, and {part.__name__} is passed on to it"
        assert (str(error), error.name) == (text, package), error

queue = posix_ipc.MessageQueue(None, posix_ipc.O_CREX, max_messages=1)
try:
    queue.receive(0)
except posix_ipc.BusyError as error:
    assert type(pickle.loads(pickle.dumps(error))) is posix_ipc.BusyError
else:
    raise SystemExit("there is a message")
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def documented() -> Iterator[tuple[str, object, dict[str, Any]]]:
    for module in (posix_ipc, sysv_ipc):
        short = module.__name__.split(".")[1]
        names: dict[str, Any] = {short: module, "umsg": umsg}
        yield module.__name__, module, names
        own = [name for name in module.__all__ if getattr(getattr(module, name), "__module__", "") == module.__name__]
        for name in own:
            thing = getattr(module, name)
            yield f"{short}.{name}", thing, names
            if inspect.isclass(thing) and not issubclass(thing, BaseException):
                for attribute, value in vars(thing).items():
                    if not attribute.startswith("_"):
                        yield f"{short}.{name}.{attribute}", value, names


@pytest.mark.parametrize("name, thing, names", list(documented()), ids=lambda value: value if isinstance(value, str) else "")
def test_examples_run(namespace: str, name: str, thing: object, names: dict[str, Any]) -> None:
    text = inspect.getdoc(thing)
    assert text, f"{name} has no documentation"
    examples = doctest.DocTestParser().get_doctest(text, dict(names), name, None, None)
    # The exceptions are those of the original packages if these are installed, so their modules vary.
    result = doctest.DocTestRunner(optionflags=doctest.IGNORE_EXCEPTION_DETAIL).run(examples)
    assert result.failed == 0


@pytest.mark.parametrize("package", VERSIONS)
def test_the_tests_of_the_original_package_pass(suites: dict[str, Suite], package: str) -> None:
    assert original(package).VERSION == VERSIONS[package]
    suite = suites[package]
    status = suite.process.wait(timeout=300)
    print(suite.output.read_text(errors="replace"))
    assert status == 0
