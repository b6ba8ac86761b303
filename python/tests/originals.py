"""Runs the tests of posix_ipc or sysv_ipc, unchanged, with the module of umsg in place of the package.

    python tests/originals.py PACKAGE SOURCE

SOURCE is the unpacked source distribution of the package, which has its tests. A test of posix_ipc leaves a shared memory segment, which is
removed here.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import unittest
from typing import Any


def names_of_segments(module: Any) -> list[str]:
    """Returns a list that gets the name of each POSIX shared memory segment that is opened from now on."""
    names: list[str] = []
    original: Any = module.SharedMemory

    class Recorded(original):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            names.append(self.name)

    module.SharedMemory = Recorded
    return names


def main(package: str, source: str) -> int:
    ours = importlib.import_module(f"umsg.{package}")
    sys.modules[package] = ours
    sys.path.insert(0, source)
    os.chdir(source)
    segments = names_of_segments(ours) if package == "posix_ipc" else []
    found = unittest.defaultTestLoader.discover("tests", top_level_dir=".")
    result = unittest.TextTestRunner(verbosity=2).run(found)
    for name in set(segments):
        with contextlib.suppress(ours.ExistentialError):
            ours.unlink_shared_memory(name)
    tested = importlib.import_module("tests.test_message_queues")
    if getattr(tested, package) is not ours:
        print("the tests used another module")
        return 1
    print(f"{result.testsRun} tests, {len(result.skipped)} skipped")
    return 0 if result.wasSuccessful() and result.testsRun else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
