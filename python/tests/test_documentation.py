"""The examples of the documentation, and that every public name has one line of documentation."""

from __future__ import annotations

import doctest
import importlib.util
import inspect
import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import umsg
import umsg.multiprocessing


def documented() -> Iterator[tuple[str, object]]:
    yield from documented_in(umsg, "")
    yield from documented_in(umsg.multiprocessing, "multiprocessing.")


def documented_in(module: ModuleType, prefix: str) -> Iterator[tuple[str, object]]:
    yield module.__name__, module
    for name in module.__all__:
        thing = getattr(module, name)
        if name == "__version__":
            continue
        yield prefix + name, thing
        if inspect.isclass(thing) and not issubclass(thing, BaseException):
            for attribute, value in vars(thing).items():
                if not attribute.startswith("_"):
                    yield f"{prefix}{name}.{attribute}", value


def run_examples(name: str, thing: object) -> None:
    text = inspect.getdoc(thing)
    assert text, f"{name} has no documentation"
    examples = doctest.DocTestParser().get_doctest(text, {"umsg": umsg, "os": os}, name, None, None)
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(examples)
    assert result.failed == 0


@pytest.mark.parametrize("name, thing", list(documented()), ids=lambda value: value if isinstance(value, str) else "")
def test_examples_run(namespace: str, name: str, thing: object) -> None:
    run_examples(name, thing)


def test_the_examples_of_the_guide_run(namespace: str) -> None:
    page = Path(__file__).parents[2] / "docs/guide/python.md"
    guide = page.read_text()
    if importlib.util.find_spec("numpy") is None:
        guide = re.sub(r"^## Arrays of numpy$.*?^## ", "## ", guide, flags=re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"^```python\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)
    text = "\n".join(block for block in blocks if block.startswith(">>>"))
    examples = doctest.DocTestParser().get_doctest(text, {}, page.name, None, None)
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(examples)
    assert result.failed == 0 and result.attempted > 10


def test_the_example_of_the_readme_runs(namespace: str, capsys: pytest.CaptureFixture[str]) -> None:
    readme = Path(__file__).parents[2] / "README.md"
    (program,) = re.findall(r"^```python\n(.*?)^```", readme.read_text(), re.MULTILINE | re.DOTALL)
    exec(compile(program, str(readme), "exec"), {})
    assert capsys.readouterr().out == "b'an urgent one' 9\n"
