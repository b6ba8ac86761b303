"""The parts that `umsg.posix_ipc` and `umsg.sysv_ipc` share."""

from __future__ import annotations

import importlib
import os
from operator import index

# The import of typing would take longer than the rest of this module. Type checkers treat this name
# as true.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, NoReturn, TypeVar

    _Class = TypeVar("_Class", bound=type[Any])


def original(name: str) -> ModuleType | None:
    """Imports the original package. Returns None if the package is not installed, or if its name imports a module of umsg."""
    try:
        found = importlib.import_module(name)
    except ImportError:
        return None
    return None if found.__name__.startswith("umsg.") else found


def missing(package: str, what: str) -> NoReturn:
    """Raises the exception for a part that only the original package has."""
    text = f"umsg.{package} has message queues only: install {package}, and {what} is passed on to it"
    raise ImportError(text, name=package)


def with_read_only_texts(cls: _Class) -> _Class:
    """Makes a write to a read-only property fail with the same text as for a class in C."""
    for name, value in list(vars(cls).items()):
        if isinstance(value, property) and value.fset is None:
            text = f"attribute '{name}' of '{cls.__module__}.{cls.__qualname__}' objects is not writable"
            setattr(cls, name, property(value.fget, _refusal(text), None, value.__doc__))
    return cls


def _refusal(text: str) -> Any:
    def refuse(self: object, value: object) -> NoReturn:
        raise AttributeError(text)

    return refuse


def c_int(value: Any) -> int:
    """Converts an argument to an int of C."""
    number = index(value)
    if -(2**31) <= number < 2**31:
        return number
    raise OverflowError(f"{number} is out of the range of a C int")


def c_long(value: Any) -> int:
    """Converts an argument to a long of C."""
    number = index(value)
    if -(2**63) <= number < 2**63:
        return number
    raise OverflowError(f"{number} is out of the range of a C long")


def system_error(errno: int) -> OSError:
    """Makes the exception for an error number that has no exception of its own."""
    return OSError(errno, os.strerror(errno))
