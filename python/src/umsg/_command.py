"""The command `umsg` from Python: `python -m umsg`, and programs that start themselves again under `umsg run`."""

from __future__ import annotations

import os
import sys

from . import _errors

__all__ = ["main", "run"]

# The environment variable that `run` sets before it starts the program again under the drop-in.
_STARTED = "UMSG_PYTHON_RUN"


def _find() -> str:
    """Returns the path of the command: the package's, the environment's or the system's."""
    import shutil  # Imported here, so that `import umsg` stays fast.
    import sysconfig

    modules = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    # The places to which pip installs scripts: with --target, and in an environment or the system.
    places = [os.path.join(modules, "bin"), sysconfig.get_path("scripts")]
    if modules == sysconfig.get_path("platlib", "posix_user"):
        places.insert(0, sysconfig.get_path("scripts", "posix_user"))
    found = shutil.which("umsg", path=os.pathsep.join(places)) or shutil.which("umsg")
    if found is None:
        text = "the package has no umsg command, and neither has PATH: install the command, for example from its release archive"
        raise _errors.NotFound(2, text, "umsg")
    return os.path.abspath(found)


def main() -> None:
    """Runs the command, with the arguments of this process, in place of this process."""
    try:
        command = _find()
        os.execv(command, ["umsg", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"umsg: {error.strerror}")


def _has_drop_in() -> bool:
    with open("/proc/self/maps", "rb") as maps:
        return b"/libumsg_preload.so" in maps.read()


def run() -> None:
    """Puts the POSIX and System V queues of this program, and of its children, on umsg: starts the program again under `umsg run`.

    Call this function first, because the program repeats everything that it did before the call. The process keeps its id. If the program already
    runs under the drop-in, the call returns at once. All modules that use the queues of the system, such as posix_ipc and sysv_ipc, then use umsg.

        import umsg

        if __name__ == "__main__":
            umsg.run()

    Raises `NotFound` without the command `umsg`.
    """
    this = str(os.getpid())
    started = os.environ.pop(_STARTED, None) == this
    if _has_drop_in():
        return
    if started:
        raise _errors.NotFound(2, "the drop-in of umsg was not loaded into this program", sys.executable)
    command = _find()
    with open("/proc/self/cmdline", "rb") as line:
        arguments = [os.fsdecode(argument) for argument in line.read().split(b"\0")[1:-1]]
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os.environ[_STARTED] = this
    try:
        os.execv(command, [command, "run", "--", sys.executable, *arguments])
    except OSError:
        del os.environ[_STARTED]
        raise
