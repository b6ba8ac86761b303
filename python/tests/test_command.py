"""`python -m umsg`, `umsg.run`, and the command `umsg` that a wheel has. `UMSG_TEST_COMMAND` names the command if the package must contain it.

The tests that need the command are skipped if neither the package nor `PATH` has one.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import umsg


def of_package(name: str) -> str | None:
    """Returns the path of a file that pip has put beside the modules of the package."""
    files = importlib.metadata.files("umsg") or []
    found = [os.path.realpath(str(file.locate())) for file in files if file.name == name]
    return found[0] if found else None


WANTED = os.environ.get("UMSG_TEST_COMMAND")
COMMAND = WANTED or of_package("umsg") or shutil.which("umsg")
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


def test_the_package_has_the_command_and_its_drop_in(namespace: str, tmp_path: Path) -> None:
    command, drop_in = of_package("umsg"), of_package("libumsg_preload.so")
    if WANTED is None and command is None:
        pytest.skip("the package has no command")
    assert command is not None and drop_in is not None
    # Neither PATH nor a variable leads to a program or a library of umsg.
    clean = {"PATH": str(tmp_path), "UMSG_DIR": namespace}
    for words in [command], [sys.executable, "-m", "umsg"]:
        ran = subprocess.run([*words, "--version"], env=clean, capture_output=True, text=True, timeout=60)
        assert ran.stdout.split() == ["umsg", umsg.__version__]
        program = "import os; print(os.environ['LD_PRELOAD'])"
        ran = subprocess.run([*words, "run", sys.executable, "-c", program], env=clean, capture_output=True, text=True, timeout=60)
        assert os.path.realpath(ran.stdout.strip()) == drop_in, ran.stderr


@pytest.mark.parametrize("kind", ["target", "user"])
def test_the_command_is_that_of_the_installation(kind: str, tmp_path: Path) -> None:
    """The layouts of `pip install --target` and `pip install --user`."""
    own = {"userbase": str(tmp_path)}
    modules = tmp_path if kind == "target" else Path(sysconfig.get_path("platlib", "posix_user", own))
    modules.mkdir(parents=True, exist_ok=True)
    (modules / "umsg").symlink_to(os.path.dirname(umsg.__file__))
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "umsg"
    command.write_text("#!/bin/sh\necho it is $1\n")
    command.chmod(0o755)
    variables = {"PYTHONPATH": str(modules), "PYTHONUSERBASE": str(tmp_path)}
    ran = subprocess.run([sys.executable, "-m", "umsg", "this"], env={**os.environ, **variables}, capture_output=True, text=True, timeout=60)
    assert ran.stdout == "it is this\n", ran.stderr


def test_a_program_without_the_command_says_so(namespace: str, tmp_path: Path) -> None:
    # The interpreter from which the environment was made has the same version, but does not see the scripts of the environment.
    python: str = getattr(sys, "_base_executable", sys.executable)
    (tmp_path / "umsg").symlink_to(os.path.dirname(umsg.__file__))
    path = {**environment(str(tmp_path / "bin")), "PYTHONPATH": str(tmp_path)}
    ran = subprocess.run([python, "-m", "umsg", "--version"], env=path, capture_output=True, text=True, timeout=60)
    if ran.returncode == 0:
        pytest.skip("the command is installed beside the interpreter")
    assert ran.returncode == 1 and "the package has no umsg command" in ran.stderr
    program = "import umsg\ntry: umsg.run()\nexcept umsg.NotFound as error: print(error)"
    ran = subprocess.run([python, "-c", program], env=path, capture_output=True, text=True, timeout=60)
    assert "install the command" in ran.stdout
