"""The modules that `import umsg` loads. `cargo xtask python --full` measures the time of the import, 2 ms on a quiet machine."""

from __future__ import annotations

import subprocess
import sys

# Modules that are written in C, and two short modules.
SMALL = ("umsg", "__future__", "errno", "itertools", "types")

PROGRAM = "import sys; before = set(sys.modules); import umsg; print(*sorted(set(sys.modules) - before))"


def test_the_import_loads_nothing_but_the_package() -> None:
    """Each of asyncio, typing, pickle, datetime or numpy would take longer than the package itself."""
    ran = subprocess.run([sys.executable, "-I", "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    loaded = ran.stdout.split()
    assert "umsg._umsg" in loaded, ran.stderr
    assert [name for name in loaded if name.split(".")[0] not in SMALL] == []
