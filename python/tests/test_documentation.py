"""The examples of the documentation, and that every public name has one line of documentation."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Iterator

import pytest

import umsg


def documented() -> Iterator[tuple[str, object]]:
    yield "umsg", umsg
    for name in umsg.__all__:
        thing = getattr(umsg, name)
        if name == "__version__":
            continue
        yield name, thing
        if inspect.isclass(thing) and not issubclass(thing, BaseException):
            for attribute, value in vars(thing).items():
                if not attribute.startswith("_"):
                    yield f"{name}.{attribute}", value


@pytest.mark.parametrize("name, thing", list(documented()), ids=lambda value: value if isinstance(value, str) else "")
def test_examples_run(namespace: str, name: str, thing: object) -> None:
    text = inspect.getdoc(thing)
    assert text, f"{name} has no documentation"
    examples = doctest.DocTestParser().get_doctest(text, {"umsg": umsg}, name, None, None)
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(examples)
    assert result.failed == 0
