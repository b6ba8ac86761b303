"""Rare events of the process's queues, for the module logging."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import logging
    from datetime import timedelta

__all__ = ["set_log"]


def set_log(
    logger: logging.Logger | logging.LoggerAdapter[logging.Logger] | str | None = "umsg",
    *,
    slow_wait: float | timedelta = 1.0,
) -> None:
    """Passes rare events of this process's queues to a logger of the module logging. None ends the log.

    The events and their levels: a process died during a call on a queue, with a lease, or while it waited, or a queue is corrupted (WARNING);
    a message expired (INFO); a call waited for room (INFO) or for a message (DEBUG) for `slow_wait` seconds or longer. A record's
    attribute `umsg` is a `LogEvent`.

    >>> import logging
    >>> logging.basicConfig(level=logging.INFO)
    >>> umsg.set_log()
    >>> umsg.set_log(None)

    The calls of this process on its queues find the events. A separate thread calls the logger, soon after the event. A forked child logs its own
    events to the same logger. The calls that the logger's handlers make in that thread make no events, so a handler may use queues.
    """
    import logging  # Imported here, so that `import umsg` stays fast.

    from ._logging import LOG

    if isinstance(logger, str):
        logger = logging.getLogger(logger)
    elif logger is not None and not isinstance(logger, (logging.Logger, logging.LoggerAdapter)):
        raise TypeError(f"logger must be a logging.Logger, the name of one, or None, not {type(logger).__name__}")
    LOG.set(logger, slow_wait)
