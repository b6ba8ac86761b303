"""`python -m umsg` and `umsg.run`. `UMSG_TEST_COMMAND` names the command; the tests that need it are skipped without one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import umsg

COMMAND = os.environ.get("UMSG_TEST_COMMAND") or shutil.which("umsg")
needs_command = pytest.mark.skipif(COMMAND is None, reason="the command umsg is not installed")

PROGRAM = """
import os, sys
print("start", os.getpid(), sys.argv[1:], sys.flags.optimize)
import umsg
umsg.run()
umsg.run()
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
queue = libc.mq_open(b"/of-the-drop-in", os.O_CREAT | os.O_RDWR, 0o600, None)
print(umsg.queues(), queue >= 0, "UMSG_PYTHON_RUN" in os.environ)
"""


def environment(path: str) -> dict[str, str]:
    return {**os.environ, "PATH": path}


@needs_command
def test_the_module_is_the_command(namespace: str) -> None:
    assert COMMAND is not None
    umsg.Queue("/jobs", create=True).close()
    path = environment(os.path.dirname(COMMAND))
    ran = subprocess.run([sys.executable, "-m", "umsg", "ls"], env=path, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0 and "/jobs" in ran.stdout
    ran = subprocess.run([sys.executable, "-m", "umsg", "--no-such"], env=path, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 2


@needs_command
def test_a_program_starts_itself_again_under_the_drop_in(namespace: str, tmp_path: Path) -> None:
    assert COMMAND is not None
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    ran = subprocess.run(
        [sys.executable, "-O", str(script), "an argument", ""],
        env=environment(os.path.dirname(COMMAND)),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    first, second, queues = ran.stdout.splitlines()
    assert first == second and first.endswith("['an argument', ''] 1")
    assert queues == "['/of-the-drop-in'] True False"


def test_a_program_without_the_command_says_so(namespace: str, tmp_path: Path) -> None:
    path = environment(str(tmp_path))
    ran = subprocess.run([sys.executable, "-m", "umsg", "ls"], env=path, capture_output=True, text=True, timeout=60)
    if ran.returncode == 0:
        pytest.skip("the package has the command")
    assert ran.returncode == 1 and "the package has no umsg command" in ran.stderr
    program = "import umsg\ntry: umsg.run()\nexcept umsg.NotFound as error: print(error)"
    ran = subprocess.run([sys.executable, "-c", program], env=path, capture_output=True, text=True, timeout=60)
    assert "install the command" in ran.stdout
