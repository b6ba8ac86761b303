"""Arrays of numpy in messages."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import pytest

numpy = pytest.importorskip("numpy")

import umsg.numpy  # noqa: E402
from test_documentation import run_examples  # noqa: E402

ARRAYS = [
    numpy.arange(10.0),
    numpy.arange(24, dtype=">u2").reshape(2, 3, 4),
    numpy.asfortranarray(numpy.arange(6).reshape(2, 3)),
    numpy.arange(24).reshape(4, 6)[::2, 1::2],
    numpy.array(5.5),
    numpy.zeros((0, 3), "i4"),
    numpy.array(["2026-01-02"], "datetime64[D]"),
    numpy.array([(1, 2.5), (3, 4.5)], [("a", "i2"), ("b", "f8")]),
    numpy.array([True, False]),
    numpy.array(["text", "é"]),
    numpy.array([1 + 2j]),
]


@pytest.fixture
def arrays(namespace: str) -> umsg.Queue:
    return umsg.Queue("/arrays", create=True, max_messages=4, message_size=4096)


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype} {array.shape}")
def test_an_array_arrives_as_it_was(arrays: umsg.Queue, array: Any) -> None:
    for _ in range(2):
        umsg.numpy.send(arrays, array, priority=3)
        with umsg.numpy.lease(arrays) as leased:
            assert leased.lease.deliveries == 1
            assert leased.array.dtype == array.dtype
            assert leased.array.flags.f_contiguous == (array.flags.f_contiguous or array.size <= 1)
            assert not leased.array.flags.writeable
            assert leased.array.flags.aligned
            numpy.testing.assert_array_equal(leased.array, array)
        umsg.numpy.send(arrays, array)
        received = umsg.numpy.receive(arrays)
        assert received.flags.writeable
        numpy.testing.assert_array_equal(received, array)
    assert arrays.attributes().messages == 0


def test_a_message_is_a_file_of_numpy(arrays: umsg.Queue, namespace: str) -> None:
    umsg.numpy.send(arrays, numpy.arange(5))
    path = os.path.join(namespace, "stored.npy")
    with open(path, "wb") as file:
        file.write(arrays.receive())
    assert numpy.load(path).tolist() == [0, 1, 2, 3, 4]
    os.remove(path)


def test_an_array_is_written_in_place(arrays: umsg.Queue) -> None:
    with umsg.numpy.reserve(arrays, (2, 2), "i4") as room:
        room.array[:] = [[1, 2], [3, 4]]
    assert umsg.numpy.receive(arrays).tolist() == [[1, 2], [3, 4]]
    with pytest.raises(ValueError, match="has ended"):
        room.array  # noqa: B018
    with pytest.raises(KeyError), umsg.numpy.reserve(arrays, 2):
        raise KeyError
    assert arrays.attributes().messages == arrays.attributes().reserved == 0


def test_arrays_without_a_header(arrays: umsg.Queue, sysv: umsg.SysVQueue) -> None:
    arrays.send(numpy.arange(6.0))
    with umsg.numpy.lease(arrays, shape=(2, 3), dtype=float) as leased:
        assert leased.array.tolist() == [[0, 1, 2], [3, 4, 5]]
    sysv.send(numpy.arange(6, dtype="u1"), type=4)
    assert umsg.numpy.receive(sysv, dtype="u1", type=4).tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("message", [b"", b"text", b"\x93NUMPY\x01\x00\x76\x00", b"\x93NUMPY\x02\x00" + b"x" * 200])
def test_a_message_that_is_no_array_stays(arrays: umsg.Queue, message: bytes) -> None:
    arrays.send(message)
    with pytest.raises(ValueError):
        umsg.numpy.lease(arrays)
    assert arrays.try_receive() == message


def test_a_header_with_another_length_is_refused(arrays: umsg.Queue) -> None:
    umsg.numpy.send(arrays, numpy.arange(4))
    message = arrays.receive()
    for wrong in (message[:-1], message + b"x", message[:100]):
        arrays.send(wrong)
        with pytest.raises(ValueError):
            umsg.numpy.lease(arrays)
        assert arrays.try_receive() == wrong
    arrays.send(b"1234")
    for shape, dtype in ((4, "f8"), ((-2, -2), "u1"), (None, "f8"), (3, "u1")):
        with pytest.raises(ValueError):
            umsg.numpy.lease(arrays, shape=shape, dtype=dtype)
    assert arrays.try_receive() == b"1234"


def test_objects_are_refused(arrays: umsg.Queue) -> None:
    with pytest.raises(TypeError, match="objects"):
        umsg.numpy.send(arrays, numpy.array([{}]))
    numpy_file = numpy.lib.format
    import io

    header = io.BytesIO()
    numpy_file.write_array_header_1_0(header, {"descr": "|O", "fortran_order": False, "shape": (1,)})
    arrays.send(header.getvalue() + b"x" * 8)
    with pytest.raises(ValueError, match="objects"):
        umsg.numpy.lease(arrays)


def test_an_array_that_outlives_its_lease_keeps_it(arrays: umsg.Queue) -> None:
    umsg.numpy.send(arrays, numpy.arange(4))
    kept = None
    with pytest.raises(BufferError), umsg.numpy.lease(arrays) as leased:
        kept = leased.array
    assert kept is not None and kept.tolist() == [0, 1, 2, 3]
    del kept
    leased.lease.acknowledge()
    assert arrays.attributes().leased == 0


def test_a_large_array_crosses_processes(namespace: str, in_child: Callable[[Callable[[], Any]], int]) -> None:
    shape = (512, 512)
    size = umsg.numpy.message_size(shape, "f4")
    queue = umsg.Queue("/large", create=True, max_messages=2, message_size=size)

    def sends() -> None:
        umsg.numpy.send(queue, numpy.full(shape, 2.5, "f4"))

    assert in_child(sends) == 0
    with umsg.numpy.lease(queue, timeout=60) as leased:
        assert float(leased.array.sum()) == 2.5 * 512 * 512
        # The address is aligned for vector instructions.
        assert leased.array.ctypes.data % 64 == 0


def test_examples_run(namespace: str) -> None:
    run_examples("umsg.numpy", umsg.numpy)
    for name in umsg.numpy.__all__:
        run_examples(name, getattr(umsg.numpy, name))


def test_numpy_is_imported_when_asked() -> None:
    import subprocess

    program = "import sys, umsg; sys.exit('numpy' in sys.modules or 'asyncio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_the_pipeline_of_images_runs(namespace: str) -> None:
    import subprocess

    example = os.path.join(os.path.dirname(__file__), os.pardir, "examples", "images.py")
    command = [sys.executable, example, "--images", "20", "--height", "90", "--width", "160"]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    # Green counts half, red and blue a quarter each.
    expected = sum((number >> 1) + 2 * (number >> 2) for number in range(20))
    assert output.startswith(f"20 images, brightness {expected}\n")
